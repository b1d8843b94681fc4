//! Requests that are cancelled while they may be in flight.

use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::thread;

use poll_core::{Backend, OpKind};
use uv_core::{Handle, ReadRequest, RunMode, Stream, Tcp, WriteRequest, error_name};

use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::observe::SHORT;
use crate::support::sources::{reset, send};
use crate::support::streams::{
    OVER_STREAM_BUFFERS, connected, fill_up, finish, outcome, refusal, run_a_moment, run_until,
    runs,
};
use crate::support::trace::Log;
use crate::support::wine;
use crate::{Lab, Loop, Skip, Verdict};

/// How often each byte value is received, until the end of file.
fn tally(mut peer: TcpStream) -> thread::JoinHandle<[usize; 256]> {
    thread::spawn(move || {
        let (mut buffer, mut tally, mut last) = (vec![0; 1 << 20], [0; 256], 0);
        loop {
            match peer.read(&mut buffer).expect("more of it, or an orderly end") {
                0 => return tally,
                count => {
                    for (byte, length) in runs(&buffer[..count]) {
                        assert!(byte >= last, "{byte} after {last}: out of order");
                        last = byte;
                        tally[usize::from(byte)] += length;
                    }
                }
            }
        }
    })
}

/// Runs until the kernel accepts no more bytes, and the rest is in flight.
fn wait_for_room(lp: &mut Loop, tcp: Tcp) {
    let mut before = usize::MAX;
    while tcp.write_queue_size(lp) < before {
        before = tcp.write_queue_size(lp);
        run_a_moment(lp);
        // A finished run has written by system calls what no operation has.
        run(lp, RunMode::NoWait);
    }
}

/// Starts a read, and logs its result.
fn pull(
    lp: &mut Loop,
    tcp: Tcp,
    name: &'static str,
    callbacks: &Log<(&'static str, &'static str, Vec<u8>)>,
) -> ReadRequest {
    let callbacks = callbacks.clone();
    let pulled = tcp.read(lp, vec![0; 3], move |_, _, result, buffer| {
        assert_eq!(buffer.len(), 3, "the buffer is returned");
        callbacks.push((name, outcome(&result), buffer[..result.unwrap_or(0)].to_vec()));
    });
    pulled.unwrap()
}

/// A write in flight can be cancelled: it calls back once, later, with its buffer, although the
/// peer never reads. Later writes continue.
pub fn a_write_in_flight_can_be_cancelled(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let filled = fill_up(&mut lp, tcp);
    let callbacks = Log::default();
    let log = callbacks.clone();
    let write = tcp.write(&mut lp, vec![8; OVER_STREAM_BUFFERS], move |_, _, result, buffer| {
        assert_eq!(buffer.len(), OVER_STREAM_BUFFERS, "the buffer is returned");
        log.push(("cancelled", outcome(&result)));
    });
    tcp.write(&mut lp, vec![9; OVER_STREAM_BUFFERS], callbacks.written("behind")).unwrap();
    wait_for_room(&mut lp, tcp);
    assert_eq!(callbacks.len(), 0, "the peer does not read");
    let write = write.unwrap();
    let written = write.cancel(&mut lp).unwrap();
    assert_eq!(refusal(write.cancel(&mut lp)), ErrorKind::NotFound, "once");
    assert_eq!(callbacks.len(), 0, "no callback runs inline");
    run_until(&mut lp, "the completion of the write", |_| callbacks.len() > 0);
    assert_eq!(callbacks.take(), [("cancelled", "cancelled")]);
    assert!(tcp.write_queue_size(&lp) > 0, "later writes stay queued");
    assert_eq!(refusal(write.cancel(&mut lp)), ErrorKind::NotFound, "it is complete");
    tcp.shutdown(&mut lp, callbacks.ended("shutdown")).unwrap();
    let tally = tally(peer);
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [("behind", "done"), ("shutdown", "done")]);
    let tally = tally.join().expect("a peer that reads");
    assert_eq!([tally[7], tally[9]], [filled, OVER_STREAM_BUFFERS], "the bytes around it");
    assert!(
        (written..OVER_STREAM_BUFFERS).contains(&tally[8]),
        "{} of {written}, or more",
        tally[8]
    );
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// One of several writes submitted together can be cancelled. The others arrive complete, and no
/// byte arrives twice.
pub fn one_of_several_writes_can_be_cancelled(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let filled = fill_up(&mut lp, tcp);
    let (callbacks, writes) = (Log::default(), Log::default());
    let (log, list) = (callbacks.clone(), writes.clone());
    // Writes of one callback are sent together, where the backend sends.
    lp.defer(move |lp| {
        for (byte, size) in
            [(8, OVER_STREAM_BUFFERS), (9, 100), (10, OVER_STREAM_BUFFERS), (11, 100), (12, 100)]
        {
            list.push(tcp.write(lp, vec![byte; size], log.written(byte)).unwrap());
        }
    });
    wait_for_room(&mut lp, tcp);
    assert_eq!(callbacks.len(), 0, "the peer does not read");
    for given_up in writes.take().into_iter().skip(1).step_by(2) {
        assert_eq!(given_up.cancel(&mut lp).unwrap(), 0, "none of it was written");
    }
    run_until(&mut lp, "two completions", |_| callbacks.len() == 2);
    assert_eq!(callbacks.take(), [(9, "cancelled"), (11, "cancelled")], "before the others");
    tcp.shutdown(&mut lp, callbacks.ended(13)).unwrap();
    let tally = tally(peer);
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [8, 10, 12, 13].map(|number| (number, "done")));
    let tally = tally.join().expect("a peer that reads");
    assert_eq!(tally[7..13], [filled, OVER_STREAM_BUFFERS, 0, OVER_STREAM_BUFFERS, 0, 100]);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A write cancelled at any point calls back once, and its result matches the bytes that arrive.
pub fn a_late_cancel_matches_the_sent_bytes(lab: &Lab) -> Verdict {
    const SIZE: usize = 500_000;
    const WRITES: u8 = 60;
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let (tally, callbacks) = (tally(peer), Log::default());
    let mut least = [SIZE; WRITES as usize];
    for number in 0..WRITES {
        let (list, log) = (Log::default(), callbacks.clone());
        let made = list.clone();
        lp.defer(move |lp| made.push(tcp.write(lp, vec![number; SIZE], log.written(number))));
        for _ in 0..=number % 4 {
            run(&mut lp, RunMode::NoWait);
        }
        match list.take().remove(0).unwrap().cancel(&mut lp) {
            Ok(written) => least[usize::from(number)] = written,
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "it is complete"),
        }
    }
    tcp.shutdown(&mut lp, |_, _, result| result.unwrap()).unwrap();
    run_to_the_end(&mut lp);
    let (callbacks, tally) = (callbacks.take(), tally.join().expect("a peer that reads"));
    assert_eq!(callbacks.len(), usize::from(WRITES), "each calls back once: {callbacks:?}");
    for (number, how) in callbacks {
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

/// In its callback, the number of bytes written of a cancelled write is what the peer receives.
/// Before, it grows with each partial write; after the callback, the key is stale.
pub fn the_final_count_of_a_cancelled_write_is_reported(lab: &Lab) -> Verdict {
    // The kernel may take the rest of the write before it can be cancelled.
    for _ in 0..20 {
        if reports_a_final_count(lab)? {
            return Ok(());
        }
    }
    Err(Skip::because("the kernel takes and reports a buffer as a whole"))
}

/// False if the write was done before it could be cancelled.
fn reports_a_final_count(lab: &Lab) -> Result<bool, Skip> {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    fill_up(&mut lp, tcp);
    let (counts, requests) = (Log::default(), Log::default());
    for byte in [8, 9] {
        let (log, list) = (counts.clone(), requests.clone());
        let index = usize::from(byte == 9);
        let write = tcp.write(&mut lp, vec![byte; OVER_STREAM_BUFFERS], move |lp, _, result, _| {
            let request: WriteRequest = list.at(index);
            log.push((byte, outcome(&result), request.bytes_written(lp).unwrap()));
        });
        requests.push(write.unwrap());
    }
    let writes = [requests.at(0), requests.at(1)];
    wait_for_room(&mut lp, tcp);
    let early = writes[0].bytes_written(&lp).unwrap();
    let tally = tally(peer);
    run_until(&mut lp, "a part of the write", |lp| {
        tcp.write_queue_size(lp) < OVER_STREAM_BUFFERS * 3 / 2
    });
    let at_cancel = match writes[0].cancel(&mut lp) {
        Err(_) if tcp.write_queue_size(&lp) <= OVER_STREAM_BUFFERS => return Ok(false),
        cancelled => cancelled.unwrap(),
    };
    assert!(at_cancel >= early);
    tcp.shutdown(&mut lp, |_, _, result| result.unwrap()).unwrap();
    run_to_the_end(&mut lp);
    let (mut counts, tally) = (counts.take(), tally.join().expect("a peer that reads"));
    counts.sort_unstable();
    let [(8, how, final_count), behind] = counts[..] else { panic!("two callbacks: {counts:?}") };
    assert_eq!(behind, (9, "done", OVER_STREAM_BUFFERS));
    assert_eq!(final_count, tally[8], "what the peer has received; {how}");
    assert!(final_count >= at_cancel && (how == "done") == (final_count == OVER_STREAM_BUFFERS));
    assert_eq!(refusal(writes[0].bytes_written(&lp)), ErrorKind::NotFound, "after the callback");
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(true)
}

/// A write cancelled in flight calls back once, before the close callback of its stream.
pub fn a_cancelled_write_calls_back_before_the_close(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, _peer) = connected(&mut lp);
    let callbacks = Log::default();
    fill_up(&mut lp, tcp);
    let write =
        tcp.write(&mut lp, vec![1; OVER_STREAM_BUFFERS], callbacks.written("write")).unwrap();
    tcp.write(&mut lp, vec![1; OVER_STREAM_BUFFERS], callbacks.written("behind")).unwrap();
    let read = tcp.read(&mut lp, vec![0; 100], callbacks.pulled("read")).unwrap();
    run_a_moment(&mut lp);
    write.cancel(&mut lp).unwrap();
    read.cancel(&mut lp).unwrap();
    tcp.close_with(&mut lp, callbacks.closed("close")).unwrap();
    assert_eq!(refusal(write.cancel(&mut lp)), ErrorKind::NotFound);
    finish(lp);
    let mut callbacks = callbacks.take();
    assert_eq!(callbacks.pop(), Some(("close", "closed")), "the last");
    callbacks.sort_unstable();
    assert_eq!(callbacks, ["behind", "read", "write"].map(|name| (name, "cancelled")));
    Ok(())
}

/// A read in flight can be cancelled: it calls back with its buffer, and the next read gets the
/// data.
pub fn a_read_in_flight_can_be_cancelled(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let callbacks = Log::default();
    let first = pull(&mut lp, tcp, "first", &callbacks);
    pull(&mut lp, tcp, "second", &callbacks);
    run_a_moment(&mut lp);
    first.cancel(&mut lp).unwrap();
    assert_eq!(refusal(first.cancel(&mut lp)), ErrorKind::NotFound, "once");
    assert_eq!(callbacks.len(), 0, "no callback runs inline");
    run_until(&mut lp, "the completion of the read", |_| callbacks.len() > 0);
    assert_eq!(callbacks.take(), [("first", "cancelled", vec![])]);
    assert!(tcp.is_readable(&lp) && tcp.is_writable(&lp), "nothing is broken");
    send(&peer, b"a");
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [("second", "done", b"a".to_vec())]);

    // Data arrives before the cancel: it is for the second read.
    let first = pull(&mut lp, tcp, "first", &callbacks);
    pull(&mut lp, tcp, "second", &callbacks);
    run_a_moment(&mut lp);
    send(&peer, b"b");
    first.cancel(&mut lp).unwrap();
    run_until(&mut lp, "both callbacks", |_| callbacks.len() == 2);
    let expected = [("first", "cancelled", vec![]), ("second", "done", b"b".to_vec())];
    assert_eq!(callbacks.take(), expected);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Bytes that arrive before, while or after a read is cancelled go to the next reader, whatever its
/// kind, in order. The cancelled read gets no byte and calls back once.
pub fn bytes_of_a_cancelled_read_go_to_the_next_reader(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let (cancelled, read) = (Log::default(), Log::default());
    let mut next = 0_u8;
    for round in 0..48 {
        let request = tcp.read(&mut lp, vec![0; 100], cancelled.pulled(round)).unwrap();
        run_often(&mut lp, round % 3);
        let message: Vec<_> = (next..next + 5).collect();
        next += 5;
        send(&peer, &message);
        // On some backends the data has arrived in the loop's memory, and the event is pending.
        let complete = round % 2 == 1;
        if complete && lp.backend().supports(OpKind::Recv) {
            arrived_unread(&mut lp);
        }
        request.cancel(&mut lp).unwrap();
        assert_eq!(refusal(request.cancel(&mut lp)), ErrorKind::NotFound, "once");
        if round % 8 < 4 {
            run_until(&mut lp, "the callback", |_| cancelled.len() > 0);
        }
        read_one_way(&mut lp, tcp, round / 3 % 4, &read);
        run_until(&mut lp, "the bytes", |lp| {
            collect(lp, tcp, &read);
            read.len() >= 5 && cancelled.len() > 0
        });
        tcp.read_stop(&mut lp).unwrap();
        assert_eq!(cancelled.take(), [(round, "cancelled")]);
        assert_eq!(read.take(), message, "in order, and not more");
        if next > 240 {
            next = 0;
        }
    }
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

fn run_often(lp: &mut Loop, times: usize) {
    for _ in 0..times {
        run(lp, RunMode::NoWait);
    }
}

/// Gives the kernel time to complete an operation whose event the loop does not fetch.
fn arrived_unread(lp: &mut Loop) {
    lp.update_time();
    thread::sleep(SHORT);
}

/// Reads in one of four ways.
fn read_one_way(lp: &mut Loop, tcp: Tcp, way: usize, read: &Log<u8>) {
    let log = read.clone();
    let started = match way {
        0 => tcp.read_start(lp, move |_, _, bytes| log.extend(bytes.unwrap().to_vec())),
        1 => tcp.read_start_with(
            lp,
            |_, _, _| vec![0; 3],
            move |_, _, count, bytes| match count {
                Ok(count) => log.extend(bytes[..count].to_vec()),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            },
        ),
        2 => {
            for _ in 0..2 {
                let log = log.clone();
                let pulled = tcp.read(lp, vec![0; 3], move |_, _, count, bytes| {
                    log.extend(bytes[..count.unwrap()].to_vec());
                });
                pulled.unwrap();
            }
            Ok(())
        }
        _ => Ok(()), // The caller tries.
    };
    started.unwrap();
}

/// Takes what is there, if nothing else reads the stream.
fn collect(lp: &mut Loop, tcp: Tcp, read: &Log<u8>) {
    let mut buffer = [0; 3];
    match tcp.try_read(lp, &mut buffer) {
        Ok(count) => read.extend(buffer[..count].to_vec()),
        Err(error) if error_name(&error) == Some("EALREADY") => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
    }
    if read.len() < 5 {
        lp.defer(|_| {}); // Try again soon.
    }
}

/// An error that the kernel has reported to a read that was cancelled meanwhile is for the next
/// reader.
pub fn an_error_of_a_cancelled_read_is_kept(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let callbacks = Log::default();
    let request = tcp.read(&mut lp, vec![0; 100], callbacks.pulled("first")).unwrap();
    run_a_moment(&mut lp);
    reset(peer);
    arrived_unread(&mut lp);
    request.cancel(&mut lp).unwrap();
    let log = callbacks.clone();
    let reading = tcp.read_start(&mut lp, move |_, _, bytes| log.push(("second", outcome(&bytes))));
    reading.unwrap();
    run_until(&mut lp, "both callbacks", |_| callbacks.len() >= 2);
    let mut callbacks = callbacks.take();
    callbacks.sort_unstable();
    let collected = wine::collects_errors() && callbacks[1].1 == "done";
    let second = if collected { "done" } else { "failed" };
    assert_eq!(callbacks, [("first", "cancelled"), ("second", second)]);
    assert!(collected || !tcp.is_readable(&lp) && !tcp.is_writable(&lp));
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A read continues when the stream is made blocking, which may end the receive operation: the
/// request was not cancelled.
pub fn a_read_survives_a_switch_to_blocking(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let callbacks = Log::default();
    pull(&mut lp, tcp, "first", &callbacks);
    run_a_moment(&mut lp);
    tcp.set_blocking(&mut lp, true).unwrap();
    pull(&mut lp, tcp, "second", &callbacks);
    run_a_moment(&mut lp);
    assert_eq!(callbacks.take(), [], "no data has arrived");
    for (name, bytes) in [("first", b"abc"), ("second", b"def")] {
        send(&peer, bytes);
        run_until(&mut lp, "a read", |_| callbacks.len() > 0);
        assert_eq!(callbacks.take(), [(name, "done", bytes.to_vec())]);
    }
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}
