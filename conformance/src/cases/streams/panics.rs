//! Callbacks of streams that panic: what else was asked for is told all the same.

use std::io::Read as _;
use std::net::TcpStream;

use poll_core::Backend;
use uv_core::{Handle, Loop, RunMode, Stream, Tcp};

use crate::support::loops::{new_loop, panic_on_purpose, run, run_to_the_end, unwinds};
use crate::support::sources::send;
use crate::support::streams::{TOO_MUCH, connected, fill_up, finish, run_a_moment};
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// Which request was told, and what it has read.
type Told = Log<(u32, Vec<u8>)>;

/// Pulls `count` pieces of two bytes; those of even numbers panic when they are told.
fn pull<T: Backend>(lp: &mut Loop<T>, tcp: Tcp, count: u32, told: &Told) {
    for number in 0..count {
        let told = told.clone();
        let pulled = tcp.read(lp, vec![0; 2], move |_, _, result, mut buffer| {
            buffer.truncate(result.unwrap());
            told.push((number, buffer));
            if number % 2 == 0 {
                panic_on_purpose();
            }
        });
        pulled.unwrap();
    }
}

/// A connection that is not read and to which `bytes` have come. Where an operation receives,
/// it has received them, and the loop keeps them.
fn kept<T: Backend>(lp: &mut Loop<T>, bytes: &[u8]) -> (Tcp, TcpStream) {
    let (tcp, peer) = connected(lp);
    tcp.read_start(lp, |_, _, _| panic!("told although it was stopped")).unwrap();
    run(lp, RunMode::NoWait);
    tcp.read_stop(lp).unwrap();
    send(&peer, bytes);
    run_a_moment(lp);
    (tcp, peer)
}

/// A panic in a callback comes out of `run`. The requests that were due with it are told by
/// the next run.
pub fn a_panic_leaves_the_rest<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, _peer) = connected(&mut lp);
    let told = Log::default();
    let writes = move |lp: &mut Loop<T>, told: &Log<u8>| {
        for number in 0..3 {
            let told = told.clone();
            let written = tcp.write(lp, vec![number], move |_, _, _, _| {
                told.push(number);
                if number == 1 {
                    panic_on_purpose();
                }
            });
            written.unwrap();
        }
    };
    writes(&mut lp, &told);
    unwinds(&mut lp, RunMode::Default);
    assert_eq!(told.take(), [0, 1]);
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [2]);

    // What callbacks write may be sent by an operation.
    let tell = told.clone();
    lp.defer(move |lp| writes(lp, &tell));
    unwinds(&mut lp, RunMode::Default);
    assert_eq!(told.take(), [0, 1]);
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [2]);

    for number in 0..3 {
        let tell = told.clone();
        let pulled = tcp.read(&mut lp, vec![0], move |_, _, _, _| {
            tell.push(number);
            if number == 1 {
                panic_on_purpose();
            }
        });
        pulled.unwrap();
    }
    let tell = told.clone();
    tcp.close_with(&mut lp, move |_, _| tell.push(99)).unwrap();
    unwinds(&mut lp, RunMode::Default);
    finish(lp);
    assert_eq!(told.take(), [0, 1, 2, 99], "all are told, and the close at last");
    Ok(())
}

/// A reader that panics is stopped. What is written meanwhile is told, others are read, and
/// the next reader gets what comes next.
pub fn a_panic_in_a_reader_stops_it<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    let (other, other_peer) = connected(&mut lp);
    let (told, got) = (Log::default(), Log::default());
    tcp.read_start(&mut lp, |_, _, _| panic_on_purpose()).unwrap();
    let gathered = got.clone();
    let reading = other.read_start(&mut lp, move |lp, other, bytes| {
        gathered.extend(bytes.unwrap().iter().copied());
        other.close(lp).unwrap();
    });
    reading.unwrap();
    let filled = fill_up(&mut lp, tcp);
    tcp.write(&mut lp, vec![1; TOO_MUCH], told.written("write")).unwrap();
    send(&peer, b"a");
    send(&other_peer, b"b");
    unwinds(&mut lp, RunMode::Default);
    assert!(!tcp.is_active(&lp), "reading is over");
    let reader = std::thread::spawn(move || {
        peer.read_exact(&mut vec![0; filled + TOO_MUCH]).expect("all of it");
        peer
    });
    run_to_the_end(&mut lp);
    assert_eq!((told.take(), got.take()), (vec![("write", "done")], b"b".to_vec()));
    send(&reader.join().expect("a peer that reads"), b"c");
    let gathered = got.clone();
    let reading = tcp.read_start(&mut lp, move |lp, tcp, bytes| {
        gathered.extend(bytes.unwrap().iter().copied());
        tcp.close(lp).unwrap();
    });
    reading.unwrap();
    finish(lp);
    assert_eq!(got.take(), b"c", "without what was lent to the one that panicked");
    Ok(())
}

/// A pulled read that panics leaves those behind it, which get what comes next: whether it
/// comes later, or has come before any of them was asked for.
pub fn a_panic_in_a_read_leaves_those_behind<T: Backend>(lab: &Lab<T>) -> Verdict {
    let expected = [(0, "aa"), (1, "bb"), (2, "cc"), (3, "dd")];
    let expected = expected.map(|(number, bytes)| (number, bytes.as_bytes().to_vec()));
    for comes_first in [false, true] {
        let mut lp = new_loop(lab)?;
        let told = Told::default();
        let (tcp, peer) = match comes_first {
            true => kept(&mut lp, b"aabbccdd"),
            false => connected(&mut lp),
        };
        pull(&mut lp, tcp, 4, &told);
        if !comes_first {
            send(&peer, b"aabbccdd");
        }
        unwinds(&mut lp, RunMode::Default);
        unwinds(&mut lp, RunMode::Default);
        run_to_the_end(&mut lp);
        assert_eq!(told.take(), expected, "all are told, in order");
        tcp.close(&mut lp).unwrap();
        finish(lp);
    }
    Ok(())
}

/// Memory that is not allocated, because that panics, is not read into: the next reader gets
/// it all. One that panics with its memory is stopped.
pub fn a_panic_with_late_memory_stops_reading<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let got = Log::default();
    let refuse = |_: &mut Loop<T>, _, _| -> Vec<u8> { panic_on_purpose() };
    tcp.read_start_with(&mut lp, refuse, |_, _, _, _| panic!("there is no memory")).unwrap();
    send(&peer, b"first");
    unwinds(&mut lp, RunMode::Default);
    assert!(!tcp.is_active(&lp), "reading is over");
    let gathered = got.clone();
    let panics = move |_: &mut Loop<T>, _, result: std::io::Result<usize>, buffer: Vec<u8>| {
        gathered.push(buffer[..result.unwrap()].to_vec());
        panic_on_purpose();
    };
    tcp.read_start_with(&mut lp, |_, _, _| vec![0; 100], panics).unwrap();
    unwinds(&mut lp, RunMode::Default);
    assert!(!tcp.is_active(&lp), "reading is over");
    assert!(!run(&mut lp, RunMode::NoWait), "and nothing else is left");
    send(&peer, b"second");
    let gathered = got.clone();
    let reading = tcp.read_start(&mut lp, move |lp, tcp, bytes| {
        gathered.push(bytes.unwrap().to_vec());
        tcp.close(lp).unwrap();
    });
    reading.unwrap();
    finish(lp);
    assert_eq!(got.take(), [&b"first"[..], b"second"], "nothing is lost");
    Ok(())
}

/// A shutdown that panics has ended writing, and leaves reading: a read that was due with it is
/// told.
pub fn a_panic_in_a_shutdown_leaves_reading<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = kept(&mut lp, b"aabb");
    let told = Told::default();
    tcp.write(&mut lp, "last", |_, _, result, _| result.unwrap()).unwrap();
    tcp.shutdown(&mut lp, |_, _, _| panic_on_purpose()).unwrap();
    unwinds(&mut lp, RunMode::Default);
    pull(&mut lp, tcp, 2, &told);
    unwinds(&mut lp, RunMode::Default);
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [(0, b"aa".to_vec()), (1, b"bb".to_vec())]);
    let mut all = Vec::new();
    peer.read_to_end(&mut all).expect("an orderly end");
    assert_eq!(all, b"last");
    tcp.close(&mut lp).unwrap();

    // As above, all at once.
    let (tcp, _peer) = kept(&mut lp, b"aabb");
    tcp.shutdown(&mut lp, |_, _, _| panic_on_purpose()).unwrap();
    pull(&mut lp, tcp, 2, &told);
    unwinds(&mut lp, RunMode::Default);
    unwinds(&mut lp, RunMode::Default);
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [(0, b"aa".to_vec()), (1, b"bb".to_vec())]);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}
