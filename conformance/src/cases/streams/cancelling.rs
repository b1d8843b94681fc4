//! Requests that are cancelled while the kernel may be at them.

use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::thread;

use poll_core::Backend;
use uv_core::{Handle, Loop, Read, RunMode, Stream, Tcp};

use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::sources::send;
use crate::support::streams::{
    TOO_MUCH, connected, fill_up, finish, outcome, refusal, run_a_moment, run_until,
};
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// How often each byte comes, until the end.
fn tally(mut peer: TcpStream) -> thread::JoinHandle<[usize; 256]> {
    thread::spawn(move || {
        let (mut buffer, mut tally, mut last) = (vec![0; 1 << 20], [0; 256], 0);
        loop {
            match peer.read(&mut buffer).expect("more of it, or an orderly end") {
                0 => return tally,
                count => {
                    for byte in &buffer[..count] {
                        assert!(*byte >= last, "{byte} after {last}: out of order");
                        last = *byte;
                        tally[usize::from(*byte)] += 1;
                    }
                }
            }
        }
    })
}

/// Runs until the kernel has taken all that it takes, and is at the rest.
fn wait_for_room<T: Backend>(lp: &mut Loop<T>, tcp: Tcp) {
    let mut before = usize::MAX;
    while tcp.write_queue_size(lp) < before {
        before = tcp.write_queue_size(lp);
        run_a_moment(lp);
        // A run that ends has written by calls what no operation has.
        run(lp, RunMode::NoWait);
    }
}

/// Asks to read, and notes how that went.
fn pull<T: Backend>(
    lp: &mut Loop<T>,
    tcp: Tcp,
    name: &'static str,
    told: &Log<(&'static str, &'static str, Vec<u8>)>,
) -> Read {
    let told = told.clone();
    let pulled = tcp.read(lp, vec![0; 3], move |_, _, result, buffer| {
        assert_eq!(buffer.len(), 3, "the buffer comes back");
        told.push((name, outcome(&result), buffer[..result.unwrap_or(0)].to_vec()));
    });
    pulled.unwrap()
}

/// A write that the kernel is at can be cancelled: it calls back once, later, with its buffer,
/// though the peer never reads. What is written behind it goes on.
pub fn a_write_under_way_can_be_cancelled<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let filled = fill_up(&mut lp, tcp);
    let told = Log::default();
    let tell = told.clone();
    let write = tcp.write(&mut lp, vec![8; TOO_MUCH], move |_, _, result, buffer| {
        assert_eq!(buffer.len(), TOO_MUCH, "the buffer comes back");
        tell.push(("cancelled", outcome(&result)));
    });
    tcp.write(&mut lp, vec![9; TOO_MUCH], told.written("behind")).unwrap();
    wait_for_room(&mut lp, tcp);
    assert_eq!(told.len(), 0, "nobody reads");
    let write = write.unwrap();
    let written = write.cancel(&mut lp).unwrap();
    assert_eq!(refusal(write.cancel(&mut lp)), ErrorKind::NotFound, "once");
    assert_eq!(told.len(), 0, "nothing is told inline");
    run_until(&mut lp, "the end of the write", |_| told.len() > 0);
    assert_eq!(told.take(), [("cancelled", "cancelled")]);
    assert!(tcp.write_queue_size(&lp) > 0, "what is behind waits");
    assert_eq!(refusal(write.cancel(&mut lp)), ErrorKind::NotFound, "it is over");
    tcp.shutdown(&mut lp, told.ended("shutdown")).unwrap();
    let tally = tally(peer);
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [("behind", "done"), ("shutdown", "done")]);
    let tally = tally.join().expect("a peer that reads");
    assert_eq!([tally[7], tally[9]], [filled, TOO_MUCH], "what is around it");
    assert!((written..TOO_MUCH).contains(&tally[8]), "{} of {written}, or more", tally[8]);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Of writes that leave together one can be cancelled. The others arrive whole, and nothing of
/// them twice.
pub fn one_of_several_writes_can_be_cancelled<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let filled = fill_up(&mut lp, tcp);
    let (told, writes) = (Log::default(), Log::default());
    let (tell, list) = (told.clone(), writes.clone());
    // What a callback writes leaves together, where the backend sends.
    lp.defer(move |lp| {
        for (byte, size) in [(8, TOO_MUCH), (9, 100), (10, TOO_MUCH), (11, 100), (12, 100)] {
            list.push(tcp.write(lp, vec![byte; size], tell.written(byte)).unwrap());
        }
    });
    wait_for_room(&mut lp, tcp);
    assert_eq!(told.len(), 0, "nobody reads");
    for given_up in writes.take().into_iter().skip(1).step_by(2) {
        assert_eq!(given_up.cancel(&mut lp).unwrap(), 0, "nothing of it was written");
    }
    run_until(&mut lp, "the ends of two", |_| told.len() == 2);
    assert_eq!(told.take(), [(9, "cancelled"), (11, "cancelled")], "before the others");
    tcp.shutdown(&mut lp, told.ended(13)).unwrap();
    let tally = tally(peer);
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [8, 10, 12, 13].map(|number| (number, "done")));
    let tally = tally.join().expect("a peer that reads");
    assert_eq!(tally[7..13], [filled, TOO_MUCH, 0, TOO_MUCH, 0, 100]);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// However far a write is when it is cancelled, it calls back once: what it says is what
/// arrives.
pub fn a_cancel_may_come_too_late<T: Backend>(lab: &Lab<T>) -> Verdict {
    const SIZE: usize = 500_000;
    const WRITES: u8 = 60;
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let (tally, told) = (tally(peer), Log::default());
    let mut least = [SIZE; WRITES as usize];
    for number in 0..WRITES {
        let (list, tell) = (Log::default(), told.clone());
        let made = list.clone();
        lp.defer(move |lp| made.push(tcp.write(lp, vec![number; SIZE], tell.written(number))));
        for _ in 0..=number % 4 {
            run(&mut lp, RunMode::NoWait);
        }
        match list.take().remove(0).unwrap().cancel(&mut lp) {
            Ok(written) => least[usize::from(number)] = written,
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "it is over"),
        }
    }
    tcp.shutdown(&mut lp, |_, _, result| result.unwrap()).unwrap();
    run_to_the_end(&mut lp);
    let (told, tally) = (told.take(), tally.join().expect("a peer that reads"));
    assert_eq!(told.len(), usize::from(WRITES), "each calls back once: {told:?}");
    for (number, how) in told {
        let (least, came) = (least[usize::from(number)], tally[usize::from(number)]);
        match how {
            "done" => assert_eq!(came, SIZE, "of write {number}, which is done"),
            how => assert!(how == "cancelled" && (least..SIZE).contains(&came), "{how}: {came}"),
        }
    }
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A write that was cancelled while the kernel is at it is told before the close of its
/// stream, once.
pub fn a_close_follows_a_cancel<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, _peer) = connected(&mut lp);
    let told = Log::default();
    fill_up(&mut lp, tcp);
    let write = tcp.write(&mut lp, vec![1; TOO_MUCH], told.written("write")).unwrap();
    tcp.write(&mut lp, vec![1; TOO_MUCH], told.written("behind")).unwrap();
    let read = tcp.read(&mut lp, vec![0; 100], told.pulled("read")).unwrap();
    run_a_moment(&mut lp);
    write.cancel(&mut lp).unwrap();
    read.cancel(&mut lp).unwrap();
    tcp.close_with(&mut lp, told.closed("close")).unwrap();
    assert_eq!(refusal(write.cancel(&mut lp)), ErrorKind::NotFound);
    finish(lp);
    let mut told = told.take();
    assert_eq!(told.pop(), Some(("close", "closed")), "the last");
    told.sort_unstable();
    assert_eq!(told, ["behind", "read", "write"].map(|name| (name, "cancelled")));
    Ok(())
}

/// A read that the kernel is at can be cancelled: it calls back with its buffer, and the next
/// gets what comes.
pub fn a_read_under_way_can_be_cancelled<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let told = Log::default();
    let first = pull(&mut lp, tcp, "first", &told);
    pull(&mut lp, tcp, "second", &told);
    run_a_moment(&mut lp);
    first.cancel(&mut lp).unwrap();
    assert_eq!(refusal(first.cancel(&mut lp)), ErrorKind::NotFound, "once");
    assert_eq!(told.len(), 0, "nothing is told inline");
    run_until(&mut lp, "the end of the read", |_| told.len() > 0);
    assert_eq!(told.take(), [("first", "cancelled", vec![])]);
    assert!(tcp.is_readable(&lp) && tcp.is_writable(&lp), "nothing is broken");
    send(&peer, b"abc");
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [("second", "done", b"abc".to_vec())]);

    // Something comes before the cancel: it is the first's, or the second's.
    let first = pull(&mut lp, tcp, "first", &told);
    pull(&mut lp, tcp, "second", &told);
    run_a_moment(&mut lp);
    send(&peer, b"def");
    first.cancel(&mut lp).unwrap();
    run_until(&mut lp, "the end of the read", |_| told.len() > 0);
    send(&peer, b"ghi");
    run_to_the_end(&mut lp);
    let told = told.take();
    let names: Vec<_> = told.iter().map(|(name, _, _)| *name).collect();
    assert_eq!(names, ["first", "second"], "each once");
    let bytes: Vec<_> = told.into_iter().flat_map(|(_, _, bytes)| bytes).collect();
    assert!(b"defghi".starts_with(&bytes[..]) && bytes.len() >= 3, "{bytes:?}: nothing is lost");
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A read goes on when the stream is made blocking, which may end the operation that reads:
/// nobody has cancelled it.
pub fn a_read_outlives_a_change_of_ways<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let told = Log::default();
    pull(&mut lp, tcp, "first", &told);
    run_a_moment(&mut lp);
    tcp.set_blocking(&mut lp, true).unwrap();
    pull(&mut lp, tcp, "second", &told);
    run_a_moment(&mut lp);
    assert_eq!(told.take(), [], "nothing has come");
    for (name, bytes) in [("first", b"abc"), ("second", b"def")] {
        send(&peer, bytes);
        run_until(&mut lp, "a read", |_| told.len() > 0);
        assert_eq!(told.take(), [(name, "done", bytes.to_vec())]);
    }
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}
