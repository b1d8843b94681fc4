//! Sending.

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use uv_core::{Check, Handle, RunMode, Udp};

#[cfg(not(unix))]
use crate::Skip;
use crate::support::datagrams::code::EMSGSIZE;
use crate::support::datagrams::{
    bound, finish, numbers_of, outsider, receive_numbers, refused, run_out, send_numbers, sent,
};
use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::trace::{Count, Log, Trace};
use crate::{Lab, Loop, Verdict};

/// Longer than a datagram can be.
const TOO_LONG: usize = 70_000;

/// A datagram is sent before the call returns. Its callback runs when the loop runs.
pub fn sends_are_immediate_and_call_back_later(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let (udp, (outside, to)) = (Udp::new(&mut lp), outsider());
    let note = trace.clone();
    let first = move |lp: &mut Loop, udp: Udp, result: io::Result<()>, _| {
        result.expect("the datagram is sent");
        note.note("first");
        let again = note.clone();
        udp.send(lp, vec![2], to, move |_: &mut Loop, _, _, _| again.note("second")).unwrap();
        note.note("first ends");
    };
    udp.send(&mut lp, vec![1], to, first).unwrap();
    assert_eq!(numbers_of(&outside, 1), [1], "sent before the loop has run");
    trace.expect(&[], "no callback runs inline");
    run_to_the_end(&mut lp);
    trace.expect(&["first", "first ends", "second"], "nor inside of one from a callback");
    assert_eq!(numbers_of(&outside, 1), [2]);
    finish(lp);
    Ok(())
}

/// The queue's size and count cover the sends that have not called back. A send whose callback runs
/// is not counted.
pub fn the_queue_is_counted_until_the_callback(lab: &Lab) -> Verdict {
    let (mut lp, (_outside, to)) = (new_loop(lab)?, outsider());
    let (udp, left) = (Udp::new(&mut lp), Log::default());
    assert_eq!((udp.send_queue_size(&lp), udp.send_queue_count(&lp)), (0, 0));
    for text in ["four", "sixsix", ""] {
        let left = left.clone();
        let callback = move |lp: &mut Loop, udp: Udp, result: io::Result<()>, _| {
            result.expect("the datagram is sent");
            left.push((udp.send_queue_size(lp), udp.send_queue_count(lp)));
        };
        udp.send(&mut lp, text, to, callback).unwrap();
    }
    assert_eq!((udp.send_queue_size(&lp), udp.send_queue_count(&lp)), (10, 3));
    run_out(&mut lp);
    assert_eq!(left.take(), [(6, 2), (0, 1), (0, 0)]);
    finish(lp);
    Ok(())
}

/// The callback gets the buffer back, of any type. Several slices form one datagram.
pub fn buffers_are_returned(lab: &Lab) -> Verdict {
    let (mut lp, (outside, to)) = (new_loop(lab)?, outsider());
    let (udp, mut callbacks) = (Udp::new(&mut lp), Log::default());
    fn back<B: PartialEq + std::fmt::Debug + 'static>(
        callbacks: &mut Log<bool>,
        expected: B,
    ) -> impl FnOnce(&mut Loop, Udp, io::Result<()>, B) + use<B> + 'static {
        let callbacks = callbacks.clone();
        move |_, _, result, buffer| callbacks.push(result.is_ok() && buffer == expected)
    }
    udp.send(&mut lp, vec![1], to, back(&mut callbacks, vec![1])).unwrap();
    let boxed = || Box::<[u8]>::from([2]);
    udp.send(&mut lp, boxed(), to, back(&mut callbacks, boxed())).unwrap();
    let shared = Arc::<[u8]>::from([3]);
    udp.send(&mut lp, Arc::clone(&shared), to, back(&mut callbacks, shared)).unwrap();
    udp.send(&mut lp, &b"static"[..], to, back(&mut callbacks, &b"static"[..])).unwrap();
    udp.send(&mut lp, ["a", "", "bc"], to, back(&mut callbacks, ["a", "", "bc"])).unwrap();
    udp.send(&mut lp, vec!["x"; 100], to, back(&mut callbacks, vec!["x"; 100])).unwrap();
    run_out(&mut lp);
    assert_eq!(callbacks.take(), [true; 6]);
    let mut data = [0; 200];
    let received = [(); 6].map(|()| {
        let length = outside.recv(&mut data).expect("a datagram");
        data[..length].to_vec()
    });
    let expected: [&[u8]; 6] = [&[1], &[2], &[3], b"static", b"abc", &[b'x'; 100]];
    assert_eq!(received, expected);
    finish(lp);
    Ok(())
}

/// A datagram that cannot be sent fails alone, in its own callback, in order.
pub fn an_error_fails_one_datagram_only(lab: &Lab) -> Verdict {
    let (mut lp, (outside, to)) = (new_loop(lab)?, outsider());
    let (udp, callbacks) = (Udp::new(&mut lp), Log::default());
    for buffer in [vec![1], vec![0; TOO_LONG], vec![2]] {
        let callbacks = callbacks.clone();
        let callback = move |_: &mut Loop, _, result: io::Result<()>, buffer: Vec<u8>| {
            callbacks.push((buffer.len(), result.err().and_then(|error| error.raw_os_error())));
        };
        udp.send(&mut lp, buffer, to, callback)
            .expect("errors of the kernel are reported by the callback");
    }
    assert_eq!(callbacks.len(), 0, "not inline");
    run_out(&mut lp);
    assert_eq!(callbacks.take(), [(1, None), (TOO_LONG, Some(EMSGSIZE)), (1, None)]);
    assert_eq!(numbers_of(&outside, 2), [1, 2]);
    finish(lp);
    Ok(())
}

/// Sends of the check phase call back before the close callback of their handle, which was closed
/// in the same phase: every send calls back.
pub fn sends_call_back_before_the_close(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let (udp, (outside, to)) = (Udp::new(&mut lp), outsider());
    let (note, check) = (trace.clone(), Check::new(&mut lp));
    let callback = move |lp: &mut Loop, check: Check| {
        let (sent, closed) = (note.clone(), note.clone());
        udp.send(lp, vec![7], to, move |_: &mut Loop, _, result, _| {
            sent.note(if result.is_ok() { "sent" } else { "failed" });
        })
        .unwrap();
        udp.close_with(lp, move |_, _| closed.note("closed")).unwrap();
        note.note("check");
        check.close(lp).unwrap();
    };
    check.start(&mut lp, callback).unwrap();
    run(&mut lp, RunMode::NoWait);
    run_to_the_end(&mut lp);
    trace.expect(&["check", "sent", "closed"], "in this order");
    assert_eq!(numbers_of(&outside, 1), [7], "the datagram was sent before the close");
    finish(lp);
    Ok(())
}

/// `try_send` sends or fails, and has no callback.
pub fn try_send_sends_or_fails(lab: &Lab) -> Verdict {
    let (mut lp, (outside, to)) = (new_loop(lab)?, outsider());
    let udp = Udp::new(&mut lp);
    assert_eq!(udp.try_send(&mut lp, &[1, 2, 3], to).unwrap(), 3, "its length");
    assert_eq!(udp.try_send(&mut lp, &[], to).unwrap(), 0, "an empty one counts");
    refused(udp.try_send(&mut lp, &[0; TOO_LONG], to), EMSGSIZE, "immediately");
    assert_eq!((udp.send_queue_size(&lp), udp.send_queue_count(&lp)), (0, 0));
    assert!(!udp.is_active(&lp) && !lp.is_alive(), "nothing is left to do");
    let mut data = [0; 16];
    let lengths = [(); 2].map(|()| outside.recv(&mut data).expect("a datagram"));
    assert_eq!(lengths, [3, 0], "and nothing of the one that failed");
    finish(lp);
    Ok(())
}

/// One call sends many datagrams, each once and in order. libuv's `uv_udp_try_send2` skipped every
/// second block of twenty, and reported them as sent.
pub fn try_send_many_skips_nothing(lab: &Lab) -> Verdict {
    let (mut lp, (outside, to)) = (new_loop(lab)?, outsider());
    let udp = Udp::new(&mut lp);
    assert_eq!(udp.try_send_many(&mut lp, &[]).unwrap(), 0, "none is not many");
    let bytes: Vec<u8> = (0..150).collect();
    for count in [1, 2, 19, 20, 21, 31, 32, 33, 50, 100, 150] {
        let many: Vec<_> = bytes[..count].chunks(1).map(|byte| (byte, Some(to))).collect();
        assert_eq!(udp.try_send_many(&mut lp, &many).unwrap(), count, "all are sent");
        assert_eq!(numbers_of(&outside, count), bytes[..count]);
    }
    outside.set_nonblocking(true).unwrap();
    assert!(outside.recv(&mut [0; 16]).is_err(), "and none twice");
    finish(lp);
    Ok(())
}

/// `try_send_many` stops at the first datagram that fails: it returns the number of earlier ones,
/// or the error if there are none.
pub fn try_send_many_stops_at_the_first_error(lab: &Lab) -> Verdict {
    let (mut lp, (outside, to)) = (new_loop(lab)?, outsider());
    let udp = Udp::new(&mut lp);
    let long = vec![0; TOO_LONG];
    for place in [1, 19, 20, 32, 40] {
        let mut many = vec![(&[1][..], Some(to)); 50];
        many[place].0 = &long;
        assert_eq!(udp.try_send_many(&mut lp, &many).unwrap(), place);
        refused(udp.try_send_many(&mut lp, &many[place..]), EMSGSIZE, "it is the first");
        assert_eq!(numbers_of(&outside, place), vec![1; place]);
    }
    outside.set_nonblocking(true).unwrap();
    assert!(outside.recv(&mut [0; 16]).is_err(), "none behind it was sent");
    finish(lp);
    Ok(())
}

/// A socket that sends again from each send callback does not starve the loop: an iteration
/// completes each send once.
pub fn sends_from_callbacks_do_not_starve_the_loop(lab: &Lab) -> Verdict {
    const AT_ONCE: u64 = 5;
    const ITERATIONS: u64 = 20;
    fn send_again(lp: &mut Loop, udp: Udp, to: SocketAddr, callbacks: &Count) {
        let count = callbacks.clone();
        // Refused when the handle is closing, which ends the chain.
        let _ = udp.send(lp, "x", to, move |lp, udp, _, _| {
            count.add();
            send_again(lp, udp, to, &count);
        });
    }
    let (mut lp, (_outside, to)) = (new_loop(lab)?, outsider());
    let ((udp, _), callbacks) = (bound(&mut lp), Count::default());
    for _ in 0..AT_ONCE {
        send_again(&mut lp, udp, to, &callbacks);
    }
    for _ in 0..ITERATIONS {
        let before = callbacks.get();
        run(&mut lp, RunMode::NoWait);
        let news = callbacks.get() - before;
        assert!(news <= AT_ONCE, "{news} sends called back in one iteration");
    }
    assert!(
        callbacks.get() >= ITERATIONS,
        "only {} sends in {ITERATIONS} iterations",
        callbacks.get()
    );
    udp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Responses to a batch of datagrams are sent in order, interleaved with immediate sends.
pub fn responses_keep_their_order(lab: &Lab) -> Verdict {
    let (mut lp, (outside, from)) = (new_loop(lab)?, outsider());
    let ((udp, to), callbacks) = (bound(&mut lp), Log::default());
    for number in 0..60 {
        outside.send_to(&[number], to).unwrap();
    }
    let log = callbacks.clone();
    udp.recv_start(&mut lp, move |lp, udp, datagram| {
        let number = datagram.expect("a datagram").data[0];
        let log = log.clone();
        let callback = move |lp: &mut Loop, udp: Udp, result: io::Result<()>, _| {
            result.expect("an answer");
            log.push(number);
            if log.len() == 60 {
                udp.close(lp).unwrap();
            }
        };
        udp.send(lp, vec![number], from, callback).unwrap();
        if number % 3 == 0 {
            assert_eq!(udp.try_send(lp, &[100 + number], from).unwrap(), 1);
        }
    })
    .unwrap();
    run_out(&mut lp);
    assert_eq!(callbacks.take(), (0..60).collect::<Vec<_>>(), "in order");
    let with_extra = |number| (number % 3 == 0).then_some(100 + number);
    let expected: Vec<_> =
        (0..60).flat_map(|number| [Some(number), with_extra(number)]).flatten().collect();
    assert_eq!(numbers_of(&outside, expected.len()), expected);
    finish(lp);
    Ok(())
}

/// Responses to a batch of datagrams are sent even if a later callback of the batch closes the
/// handle.
pub fn responses_before_a_close_are_sent(lab: &Lab) -> Verdict {
    let (mut lp, (outside, from)) = (new_loop(lab)?, outsider());
    let ((udp, to), callbacks) = (bound(&mut lp), Log::default());
    send_numbers(to, 0..60);
    let log = callbacks.clone();
    udp.recv_start(&mut lp, move |lp, udp, datagram| {
        let number = datagram.expect("a datagram").data[0];
        let log = log.clone();
        let callback = move |_: &mut Loop, _, result: io::Result<()>, _| log.push(result.is_ok());
        udp.send(lp, vec![number], from, callback).unwrap();
        if number == 49 {
            udp.close(lp).unwrap();
        }
    })
    .unwrap();
    run_out(&mut lp);
    assert_eq!(callbacks.take(), [true; 50]);
    assert_eq!(numbers_of(&outside, 50), (0..50).collect::<Vec<_>>());
    finish(lp);
    Ok(())
}

/// A panic propagates out of `run`, and loses neither earlier responses nor the callbacks of other
/// sends.
pub fn a_panic_loses_no_send(lab: &Lab) -> Verdict {
    let (mut lp, (outside, from)) = (new_loop(lab)?, outsider());
    let ((udp, to), callbacks) = (bound(&mut lp), Log::default());
    send_numbers(to, 0..40);
    let start = |lp: &mut Loop| {
        let log = callbacks.clone();
        udp.recv_start(lp, move |lp, udp, datagram| {
            let (number, log) = (datagram.expect("a datagram").data[0], log.clone());
            let callback = move |_: &mut Loop, _, result: io::Result<()>, _| {
                result.expect("an answer");
                log.push(number);
                if number == 10 {
                    resume_unwind(Box::new("in the callback of a send"));
                }
            };
            udp.send(lp, vec![number], from, callback).unwrap();
            match number {
                20 => resume_unwind(Box::new("in the callback of a datagram")),
                39 => udp.close(lp).unwrap(),
                _ => {}
            }
        })
        .unwrap();
    };
    start(&mut lp);
    let mut panics = 0;
    while let Err(_panic) = catch_unwind(AssertUnwindSafe(|| lp.run(RunMode::Default))) {
        panics += 1;
        // A panic in its own callback has stopped the receiver.
        if !udp.is_closing(&lp) && udp.recv_stop(&mut lp).is_ok() {
            start(&mut lp);
        }
    }
    assert_eq!(panics, 2, "both come out");
    assert_eq!(callbacks.take(), (0..40).collect::<Vec<_>>(), "all call back once");
    assert_eq!(numbers_of(&outside, 40), (0..40).collect::<Vec<_>>(), "and were sent");
    finish(lp);
    Ok(())
}

/// A handle sends to itself, and to a handle of another loop.
pub fn handles_send_to_each_other(lab: &Lab) -> Verdict {
    let (mut lp, mut other) = (new_loop(lab)?, new_loop(lab)?);
    let ((udp, own), got) = (bound(&mut lp), Log::default());
    let ((far, theirs), far_got) = (bound(&mut other), Log::default());
    udp.send(&mut lp, vec![1], own, sent).unwrap();
    udp.send(&mut lp, vec![2], theirs, sent).unwrap();
    receive_numbers(&mut lp, udp, &got, 1);
    receive_numbers(&mut other, far, &far_got, 1);
    run_out(&mut lp);
    run_out(&mut other);
    assert_eq!((got.take(), far_got.take()), (vec![1], vec![2]));
    finish(lp);
    finish(other);
    Ok(())
}

#[cfg(unix)]
mod queued;
#[cfg(unix)]
pub use queued::*;

/// A case that needs a sender that the kernel blocks.
#[cfg(not(unix))]
fn no_waiting() -> Verdict {
    Err(Skip::because("UDP loses rather than waits, and there are no local datagram sockets"))
}

/// See the cases for Unix.
#[cfg(not(unix))]
pub fn queued_sends_keep_their_order(_: &Lab) -> Verdict {
    no_waiting()
}

/// See the cases for Unix.
#[cfg(not(unix))]
pub fn an_error_fails_one_queued_send_only(_: &Lab) -> Verdict {
    no_waiting()
}

/// See the cases for Unix.
#[cfg(not(unix))]
pub fn try_send_does_not_overtake_queued_sends(_: &Lab) -> Verdict {
    no_waiting()
}

/// See the cases for Unix.
#[cfg(not(unix))]
pub fn closing_cancels_queued_sends(_: &Lab) -> Verdict {
    no_waiting()
}

/// See the cases for Unix.
#[cfg(not(unix))]
pub fn a_close_outside_of_run_ends_sends_in_flight(_: &Lab) -> Verdict {
    no_waiting()
}

/// See the cases for Unix.
#[cfg(not(unix))]
pub fn closing_cancels_sends_in_flight(_: &Lab) -> Verdict {
    no_waiting()
}
