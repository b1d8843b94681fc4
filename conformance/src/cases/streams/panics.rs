//! Stream callbacks that panic: the other requests still call back.

use std::io::Read as _;
use std::net::TcpStream;

use uv_core::{Handle, RunMode, Stream, Tcp};

use crate::support::loops::{new_loop, panic_on_purpose, run, run_to_the_end, unwinds};
use crate::support::sources::send;
use crate::support::streams::{OVER_STREAM_BUFFERS, connected, fill_up, finish, run_a_moment};
use crate::support::trace::Log;
use crate::{Lab, Loop, Verdict};

/// The number of a request, and the data that it has read.
type Callbacks = Log<(u32, Vec<u8>)>;

/// Starts `count` reads of one byte; the callbacks of even numbers panic.
fn pull(lp: &mut Loop, tcp: Tcp, count: u32, callbacks: &Callbacks) {
    for number in 0..count {
        let callbacks = callbacks.clone();
        let pulled = tcp.read(lp, vec![0; 1], move |_, _, result, mut buffer| {
            buffer.truncate(result.unwrap());
            callbacks.push((number, buffer));
            if number % 2 == 0 {
                panic_on_purpose();
            }
        });
        pulled.unwrap();
    }
}

/// A stopped connection to which `bytes` have been sent. A receive operation has received them, and
/// the loop buffers them.
fn kept(lp: &mut Loop, bytes: &[u8]) -> (Tcp, TcpStream) {
    let (tcp, peer) = connected(lp);
    tcp.read_start(lp, |_, _, _| panic!("called although it was stopped")).unwrap();
    run(lp, RunMode::NoWait);
    tcp.read_stop(lp).unwrap();
    send(&peer, bytes);
    run_a_moment(lp);
    (tcp, peer)
}

/// A panic in a callback propagates out of `run`. The other completed requests call back in the
/// next run.
pub fn a_panic_keeps_the_other_requests(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, _peer) = connected(&mut lp);
    let callbacks = Log::default();
    let writes = move |lp: &mut Loop, callbacks: &Log<u8>| {
        for number in 0..3 {
            let callbacks = callbacks.clone();
            let written = tcp.write(lp, vec![number], move |_, _, _, _| {
                callbacks.push(number);
                if number == 1 {
                    panic_on_purpose();
                }
            });
            written.unwrap();
        }
    };
    writes(&mut lp, &callbacks);
    unwinds(&mut lp, RunMode::Default);
    assert_eq!(callbacks.take(), [0, 1]);
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [2]);

    // Writes of callbacks may be sent by an operation.
    let log = callbacks.clone();
    lp.defer(move |lp| writes(lp, &log));
    unwinds(&mut lp, RunMode::Default);
    assert_eq!(callbacks.take(), [0, 1]);
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [2]);

    for number in 0..3 {
        let log = callbacks.clone();
        let pulled = tcp.read(&mut lp, vec![0], move |_, _, _, _| {
            log.push(number);
            if number == 1 {
                panic_on_purpose();
            }
        });
        pulled.unwrap();
    }
    let log = callbacks.clone();
    tcp.close_with(&mut lp, move |_, _| log.push(99)).unwrap();
    unwinds(&mut lp, RunMode::Default);
    finish(lp);
    assert_eq!(callbacks.take(), [0, 1, 2, 99], "all call back, and the close is the last");
    Ok(())
}

/// A reader that panics is stopped. Pending writes call back, other streams are read, and the next
/// reader gets the following data.
pub fn a_panic_in_a_reader_stops_it(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    let (other, other_peer) = connected(&mut lp);
    let (callbacks, got) = (Log::default(), Log::default());
    tcp.read_start(&mut lp, |_, _, _| panic_on_purpose()).unwrap();
    let gathered = got.clone();
    let reading = other.read_start(&mut lp, move |lp, other, bytes| {
        gathered.extend(bytes.unwrap().iter().copied());
        other.close(lp).unwrap();
    });
    reading.unwrap();
    let filled = fill_up(&mut lp, tcp);
    tcp.write(&mut lp, vec![1; OVER_STREAM_BUFFERS], callbacks.written("write")).unwrap();
    send(&peer, b"a");
    send(&other_peer, b"b");
    unwinds(&mut lp, RunMode::Default);
    assert!(!tcp.is_active(&lp), "reading is over");
    let reader = std::thread::spawn(move || {
        peer.read_exact(&mut vec![0; filled + OVER_STREAM_BUFFERS]).expect("all of it");
        peer
    });
    run_to_the_end(&mut lp);
    assert_eq!((callbacks.take(), got.take()), (vec![("write", "done")], b"b".to_vec()));
    send(&reader.join().expect("a peer that reads"), b"c");
    let gathered = got.clone();
    let reading = tcp.read_start(&mut lp, move |lp, tcp, bytes| {
        gathered.extend(bytes.unwrap().iter().copied());
        tcp.close(lp).unwrap();
    });
    reading.unwrap();
    finish(lp);
    assert_eq!(got.take(), b"c", "without the data lent to the reader that panicked");
    Ok(())
}

/// A read request that panics leaves the later requests, which get the following data, whether it
/// arrives later or was buffered before the requests.
pub fn a_panic_in_a_read_keeps_later_reads(lab: &Lab) -> Verdict {
    let expected = [(0, "a"), (1, "b"), (2, "c"), (3, "d")];
    let expected = expected.map(|(number, bytes)| (number, bytes.as_bytes().to_vec()));
    for comes_first in [false, true] {
        let mut lp = new_loop(lab)?;
        let callbacks = Callbacks::default();
        let (tcp, peer) = match comes_first {
            true => kept(&mut lp, b"abcd"),
            false => connected(&mut lp),
        };
        pull(&mut lp, tcp, 4, &callbacks);
        if !comes_first {
            send(&peer, b"abcd");
        }
        unwinds(&mut lp, RunMode::Default);
        unwinds(&mut lp, RunMode::Default);
        run_to_the_end(&mut lp);
        assert_eq!(callbacks.take(), expected, "all call back in order");
        tcp.close(&mut lp).unwrap();
        finish(lp);
    }
    Ok(())
}

/// If the allocation callback panics, nothing is read: the next reader gets all data. A read
/// callback that panics with its memory is stopped.
pub fn a_panic_in_the_allocator_stops_reading(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let got = Log::default();
    let refuse = |_: &mut Loop, _, _| -> Vec<u8> { panic_on_purpose() };
    tcp.read_start_with(&mut lp, refuse, |_, _, _, _| panic!("there is no memory")).unwrap();
    send(&peer, b"first");
    unwinds(&mut lp, RunMode::Default);
    assert!(!tcp.is_active(&lp), "reading is over");
    let gathered = got.clone();
    let panics = move |_: &mut Loop, _, result: std::io::Result<usize>, buffer: Vec<u8>| {
        gathered.push(buffer[..result.unwrap()].to_vec());
        panic_on_purpose();
    };
    tcp.read_start_with(&mut lp, |_, _, _| vec![0; 100], panics).unwrap();
    unwinds(&mut lp, RunMode::Default);
    assert!(!tcp.is_active(&lp), "reading is over");
    assert!(!run(&mut lp, RunMode::NoWait), "nothing else keeps the loop alive");
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

/// A shutdown whose callback panics has ended writing. A read that completed with it calls back.
pub fn a_panic_in_a_shutdown_keeps_reads(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = kept(&mut lp, b"ab");
    let callbacks = Callbacks::default();
    tcp.write(&mut lp, "last", |_, _, result, _| result.unwrap()).unwrap();
    tcp.shutdown(&mut lp, |_, _, _| panic_on_purpose()).unwrap();
    unwinds(&mut lp, RunMode::Default);
    pull(&mut lp, tcp, 2, &callbacks);
    unwinds(&mut lp, RunMode::Default);
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [(0, b"a".to_vec()), (1, b"b".to_vec())]);
    let mut all = Vec::new();
    peer.read_to_end(&mut all).expect("an orderly end");
    assert_eq!(all, b"last");
    tcp.close(&mut lp).unwrap();

    // The same, in one batch.
    let (tcp, _peer) = kept(&mut lp, b"ab");
    tcp.shutdown(&mut lp, |_, _, _| panic_on_purpose()).unwrap();
    pull(&mut lp, tcp, 2, &callbacks);
    unwinds(&mut lp, RunMode::Default);
    unwinds(&mut lp, RunMode::Default);
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [(0, b"a".to_vec()), (1, b"b".to_vec())]);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}
