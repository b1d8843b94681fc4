//! Receiving.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use uv_core::{Check, Handle, RunMode, Udp};

use crate::support::datagrams::{
    bound, finish, outsider, receive_numbers, run_out, send_numbers, sent,
};
use crate::support::loops::{ZERO, new_loop, run, timer_in};
use crate::support::streams::run_until;
use crate::support::trace::{Count, Log};
use crate::{Lab, Loop, Verdict};

/// The maximum number of datagrams for one event.
const PER_EVENT: u64 = 160;

/// A datagram is delivered complete, with its sender's address.
pub fn datagrams_carry_their_sender(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((udp, to), (client, from)) = (bound(&mut lp), bound(&mut lp));
    let (outside, other) = outsider();
    let got = Log::default();
    let log = got.clone();
    udp.recv_start(&mut lp, move |lp, udp, datagram| {
        let datagram = datagram.expect("a datagram");
        assert!(!datagram.truncated);
        assert!(datagram.segments().eq([datagram.data]), "no datagrams were coalesced");
        log.push((datagram.data.to_vec(), datagram.from));
        if log.len() == 2 {
            udp.close(lp).unwrap();
        }
    })
    .unwrap();
    client.send(&mut lp, "inside", to, sent).unwrap();
    outside.send_to(b"outside", to).unwrap();
    run_out(&mut lp);
    assert_eq!(got.take(), [(b"inside".to_vec(), from), (b"outside".to_vec(), other)]);
    finish(lp);
    Ok(())
}

/// A handle can report that there is something to receive, and its owner receives it.
pub fn callers_can_receive_themselves(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (socket, to) = outsider();
    let udp = Udp::new(&mut lp);
    udp.open(&mut lp, socket.try_clone().expect("a second handle of the socket"))
        .expect("a UDP socket");
    let (got, calls) = (Log::default(), Count::default());
    let (log, count) = (got.clone(), calls.clone());
    udp.recv_ready_start(&mut lp, move |lp, udp, ready| {
        assert!(ready.readable && !ready.has_reports);
        count.add();
        // One of two: the rest is reported again.
        let mut memory = [0; 16];
        let length = socket.recv(&mut memory).expect("a datagram");
        log.push(memory[..length].to_vec());
        if count.get() == 2 {
            udp.recv_stop(lp).expect("an open handle");
        }
    })
    .expect("an open handle");
    assert!(udp.recv_start(&mut lp, |_, _, _| {}).is_err(), "it receives");
    let (outside, _) = outsider();
    outside.send_to(b"one", to).unwrap();
    outside.send_to(b"two", to).unwrap();
    run_out(&mut lp);
    assert_eq!(got.take(), [b"one".to_vec(), b"two".to_vec()]);
    assert!(!udp.is_active(&lp));
    udp.close(&mut lp).expect("an open handle");
    finish(lp);
    Ok(())
}

/// An empty datagram is a datagram, not an end of file.
pub fn empty_datagrams_are_delivered(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((udp, to), (client, from)) = (bound(&mut lp), bound(&mut lp));
    client.send(&mut lp, "", to, sent).unwrap();
    client.send(&mut lp, Vec::<&'static str>::new(), to, sent).unwrap();
    client.send(&mut lp, "end", to, sent).unwrap();
    let got = Log::default();
    let log = got.clone();
    udp.recv_start(&mut lp, move |lp, udp, datagram| {
        let datagram = datagram.expect("a datagram");
        assert_eq!((datagram.from, datagram.truncated), (from, false));
        assert_eq!(datagram.segments().count(), 1, "one, of no bytes");
        log.push(datagram.data.len());
        if datagram.data == b"end" {
            udp.close(lp).unwrap();
        }
    })
    .unwrap();
    run_out(&mut lp);
    assert_eq!(got.take(), [0, 0, 3]);
    finish(lp);
    Ok(())
}

/// A datagram longer than the limit is truncated and flagged. The next datagram is not affected.
/// The limit can be changed meanwhile.
pub fn long_datagrams_are_truncated(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (udp, to) = bound(&mut lp);
    udp.set_largest_datagram(&mut lp, 4).unwrap();
    let outside = outsider().0;
    // More than one event delivers, so that full batches occur.
    for _ in 0..20 {
        for data in [&b"longer"[..], b"fits", b""] {
            outside.send_to(data, to).unwrap();
        }
    }
    let got = Log::default();
    let log = got.clone();
    udp.recv_start(&mut lp, move |lp, udp, datagram| {
        let datagram = datagram.expect("a datagram");
        log.push((datagram.data.to_vec(), datagram.truncated));
        if log.len() == 60 {
            udp.recv_stop(lp).unwrap();
        }
    })
    .unwrap();
    run_out(&mut lp);
    for three in got.take().chunks(3) {
        let expected = [(&b"long"[..], true), (b"fits", false), (b"", false)];
        assert!(three.iter().map(|(data, cut)| (&data[..], *cut)).eq(expected), "{three:?}");
    }
    udp.set_largest_datagram(&mut lp, usize::MAX).unwrap();
    outside.send_to(b"longer", to).unwrap();
    udp.recv_start(&mut lp, |lp, udp, datagram| {
        let datagram = datagram.expect("a datagram");
        assert_eq!((datagram.data, datagram.truncated), (&b"longer"[..], false));
        udp.close(lp).unwrap();
    })
    .unwrap();
    finish(lp);
    Ok(())
}

/// The longest possible datagram is delivered complete.
pub fn the_largest_datagram_is_not_truncated(lab: &Lab) -> Verdict {
    // 65,535 less the IP and UDP headers.
    const LARGEST: u32 = 65_507;
    let mut lp = new_loop(lab)?;
    let ((udp, to), (client, _)) = (bound(&mut lp), bound(&mut lp));
    // The BSDs and Apple's systems have a lower limit, `net.inet.udp.maxdgram`, of 9,216 bytes by
    // default.
    let largest = if cfg!(any(target_os = "linux", windows)) { LARGEST } else { 9_216 };
    let data: Vec<u8> = (0..largest).map(|index| (index % 251) as u8).collect();
    let expected = data.clone();
    udp.recv_start(&mut lp, move |lp, udp, datagram| {
        let datagram = datagram.expect("a datagram");
        assert!(datagram.data == expected && !datagram.truncated);
        udp.close(lp).unwrap();
    })
    .unwrap();
    client.send(&mut lp, data, to, sent).unwrap();
    run_out(&mut lp);
    assert!(udp.local_addr(&lp).is_err(), "the datagram arrived and closed the handle");
    finish(lp);
    Ok(())
}

/// Datagrams are delivered in order, several for one event instead of one per iteration.
pub fn one_event_delivers_several_datagrams(lab: &Lab) -> Verdict {
    const MANY: u8 = 200;
    let mut lp = new_loop(lab)?;
    let ((udp, to), got) = (bound(&mut lp), Log::default());
    send_numbers(to, 0..MANY);
    receive_numbers(&mut lp, udp, &got, MANY.into());
    let before = lp.metrics().loop_count();
    run_out(&mut lp);
    let polls = lp.metrics().loop_count() - before;
    assert_eq!(got.take(), (0..MANY).collect::<Vec<_>>());
    assert!(polls < u64::from(MANY) / 4, "{polls} polls for {MANY} datagrams");
    finish(lp);
    Ok(())
}

/// A socket that always has more datagrams does not starve the rest of the loop: one event delivers
/// a limited number.
pub fn a_flood_does_not_starve_the_loop(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (udp, to) = bound(&mut lp);
    let (received, timers) = (Count::default(), Count::default());
    // Every datagram produces another, so that one is always pending.
    send_numbers(to, 0..50);
    let count = received.clone();
    udp.recv_start(&mut lp, move |lp, udp, datagram| {
        datagram.expect("a datagram");
        count.add();
        udp.try_send(lp, b"x", to).unwrap();
    })
    .unwrap();
    let (count, check) = (received.clone(), Check::new(&mut lp));
    let (mut seen, fired) = (0, timers.clone());
    let callback = move |lp: &mut Loop, check: Check| {
        let news = count.get() - seen;
        assert!(news <= PER_EVENT, "{news} datagrams in one iteration");
        seen = count.get();
        let fired = fired.clone();
        timer_in(lp, ZERO, move |lp, timer| {
            fired.add();
            timer.close(lp).unwrap();
        });
        if seen > 5_000 {
            check.close(lp).unwrap();
            udp.close(lp).unwrap();
        }
    };
    check.start(&mut lp, callback).unwrap();
    run_out(&mut lp);
    assert!(timers.get() >= 5_000 / PER_EVENT, "timers fire meanwhile: {}", timers.get());
    finish(lp);
    Ok(())
}

/// A stop in the callback takes effect immediately: no other datagram of the batch is delivered.
/// The rest is delivered when the handle receives again.
pub fn stopping_in_the_callback_loses_nothing(lab: &Lab) -> Verdict {
    const MANY: usize = 100;
    /// Stops at every multiple of seven, and after the first twenty.
    fn receive(lp: &mut Loop, udp: Udp, got: &Log<u8>) {
        let log = got.clone();
        udp.recv_start(lp, move |lp, udp, datagram| {
            assert!(udp.is_active(lp), "called although it was stopped");
            log.push(datagram.expect("a datagram").data[0]);
            if log.len() >= 20 && log.len().is_multiple_of(7) || log.len() == MANY {
                udp.recv_stop(lp).unwrap();
                assert!(!udp.is_active(lp), "stopped");
            }
        })
        .unwrap();
    }
    let mut lp = new_loop(lab)?;
    let ((udp, to), got) = (bound(&mut lp), Log::default());
    send_numbers(to, 0..MANY as u8);
    let mut starts = 0;
    while got.len() < MANY {
        receive(&mut lp, udp, &got);
        starts += 1;
        run_out(&mut lp);
        let count = got.len();
        run(&mut lp, RunMode::NoWait);
        assert_eq!(got.len(), count, "no datagram is delivered while it is stopped");
    }
    assert_eq!(starts, 13, "from 21 to 98, and the end");
    assert_eq!(got.take(), (0..MANY as u8).collect::<Vec<_>>());
    finish(lp);
    Ok(())
}

/// A close in the callback takes effect immediately: the rest of the batch is not delivered.
pub fn closing_in_the_callback_stops_delivery(lab: &Lab) -> Verdict {
    for last in [1, 2, 20, 40] {
        let mut lp = new_loop(lab)?;
        let ((udp, to), got) = (bound(&mut lp), Log::default());
        send_numbers(to, 0..60);
        receive_numbers(&mut lp, udp, &got, last.into());
        run_out(&mut lp);
        assert_eq!(got.take(), (0..last).collect::<Vec<_>>());
        finish(lp);
    }
    Ok(())
}

/// A callback may stop, and start with another callback, which gets the rest.
pub fn a_callback_may_replace_itself(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((udp, to), got) = (bound(&mut lp), Log::default());
    send_numbers(to, 0..40);
    let (first, second) = (Log::default(), got.clone());
    let (log, held) = (first.clone(), Rc::new(()));
    let kept = Rc::clone(&held);
    udp.recv_start(&mut lp, move |lp, udp, datagram| {
        log.push(datagram.expect("a datagram").data[0]);
        if log.len() == 20 {
            udp.recv_stop(lp).unwrap();
            receive_numbers(lp, udp, &second, 20);
            assert_eq!(Rc::strong_count(&kept), 2, "its captures live until it returns");
        }
    })
    .unwrap();
    run_out(&mut lp);
    assert_eq!(first.take(), (0..20).collect::<Vec<_>>());
    assert_eq!(got.take(), (20..40).collect::<Vec<_>>());
    assert_eq!(Rc::strong_count(&held), 1, "the first callback is dropped");
    finish(lp);
    Ok(())
}

/// A panic in the callback propagates out of `run` and stops receiving. The later datagrams of the
/// batch are delivered when the handle receives again.
pub fn a_panic_loses_one_datagram_at_most(lab: &Lab) -> Verdict {
    for last in [0, 1, 10, 30] {
        let mut lp = new_loop(lab)?;
        let ((udp, to), got) = (bound(&mut lp), Log::default());
        send_numbers(to, 0..50);
        let log = got.clone();
        udp.recv_start(&mut lp, move |_, _, datagram| {
            log.push(datagram.expect("a datagram").data[0]);
            if log.len() > last {
                resume_unwind(Box::new("on purpose"));
            }
        })
        .unwrap();
        let unwound = catch_unwind(AssertUnwindSafe(|| lp.run(RunMode::Default)));
        assert!(unwound.is_err(), "the panic propagates out of `run`");
        assert!(!udp.is_active(&lp), "it does not receive any more");
        assert_eq!(got.len(), last + 1);
        receive_numbers(&mut lp, udp, &got, 50);
        run_out(&mut lp);
        assert_eq!(got.take(), (0..50).collect::<Vec<_>>());
        finish(lp);
    }
    Ok(())
}

/// The lent memory does not change during the callback, which may send it, and receive on other
/// handles.
pub fn lent_memory_is_stable_during_the_callback(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((one, to_one), (two, to_two)) = (bound(&mut lp), bound(&mut lp));
    send_numbers(to_one, 0..40);
    let got = Log::default();
    one.recv_start(&mut lp, move |lp, one, datagram| {
        let datagram = datagram.expect("a datagram");
        let number = datagram.data[0];
        one.try_send(lp, datagram.data, to_two).unwrap();
        one.send(lp, datagram.data.to_vec(), to_two, sent).unwrap();
        assert_eq!(datagram.data, [number]);
        if number == 39 {
            one.close(lp).unwrap();
            assert_eq!(datagram.data, [number], "even though the handle is closed");
        }
    })
    .unwrap();
    receive_numbers(&mut lp, two, &got, 80);
    let (count, seen) = (got.clone(), got.clone());
    run_until(&mut lp, "all of them", move |_| count.len() == 80);
    let twice: Vec<u8> = (0..40).flat_map(|number| [number; 2]).collect();
    let mut seen = seen.take();
    seen.sort_unstable();
    assert_eq!(seen, twice);
    finish(lp);
    Ok(())
}
