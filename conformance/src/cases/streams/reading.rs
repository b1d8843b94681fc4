//! Reading with `read_start` and with read requests.

use std::io::{self, ErrorKind, Read as _};
use std::rc::Rc;

use uv_core::{Handle, Listener, RunMode, Stream, Tcp};

use crate::support::datagrams::code::EALREADY;
use crate::support::datagrams::refused;
use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::sources::{half_close, reset, send, send_urgent};
use crate::support::streams::{
    bound, connected, finish, outcome, refusal, run_a_moment, run_until,
};
use crate::support::trace::Log;
use crate::support::wine;
use crate::{Lab, Loop, Verdict};

/// Received data is lent to the callback, in order and complete. An empty slice is the end of file.
pub fn reads_lend_received_data(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let sent: Vec<u8> = (0..300_000_u32).map(|number| (number % 251) as u8).collect();
    let got = Log::default();
    let gathered = got.clone();
    let started = tcp.read_start(&mut lp, move |lp, tcp, bytes| match bytes.unwrap() {
        [] => tcp.close(lp).unwrap(),
        bytes => gathered.extend(bytes.iter().copied()),
    });
    started.unwrap();
    assert!(tcp.is_active(&lp), "a stream that is read is active");
    let expected = sent.clone();
    let writer = std::thread::spawn(move || send(peer, &sent));
    finish(lp);
    writer.join().expect("a peer that can send");
    assert!(got.take() == expected, "the bytes are those that were sent");
    Ok(())
}

/// Reading has stopped when the callback gets the end of file, once. The stream can be read again,
/// which reports the end of file again.
pub fn the_end_of_file_stops_reading(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    half_close(&peer);
    let ends = Log::default();
    for time in 0..2 {
        let log = ends.clone();
        tcp.read_start(&mut lp, move |lp, tcp, bytes| {
            assert_eq!(bytes.unwrap(), b"", "nothing was sent");
            assert!(!tcp.is_active(lp), "reading stops before the callback");
            assert!(tcp.is_readable(lp) && tcp.is_writable(lp), "no error has happened");
            log.push(time);
        })
        .unwrap();
        run_to_the_end(&mut lp);
    }
    assert_eq!(ends.take(), [0, 1], "one end of file for each start");
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A peer's shutdown does not close this side: it can still write.
pub fn the_end_of_file_leaves_the_stream_writable(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    send(&peer, b"question");
    half_close(&peer);
    tcp.read_start(&mut lp, |lp, tcp, bytes| {
        if bytes.unwrap().is_empty() {
            tcp.write(lp, "answer", |lp, tcp, result, _| {
                result.unwrap();
                tcp.close(lp).unwrap();
            })
            .unwrap();
        }
    })
    .unwrap();
    finish(lp);
    let mut answer = String::new();
    peer.read_to_string(&mut answer).expect("an orderly end");
    assert_eq!(answer, "answer");
    Ok(())
}

/// A reset connection is neither readable nor writable when the callback runs, and reading has
/// stopped.
pub fn an_error_ends_both_directions(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let callbacks = Log::default();
    let log = callbacks.clone();
    tcp.read_start(&mut lp, move |lp, tcp, bytes| {
        assert!(!tcp.is_active(lp), "reading stops before the callback");
        if bytes.is_err() {
            assert!(!tcp.is_readable(lp) && !tcp.is_writable(lp), "before the callback");
            assert_eq!(refusal(tcp.write(lp, "x", |_, _, _, _| {})), ErrorKind::BrokenPipe);
            assert_eq!(refusal(tcp.read_start(lp, |_, _, _| {})), ErrorKind::NotConnected);
        }
        log.push(bytes.map(<[u8]>::len).map_err(|error| error.kind()));
    })
    .unwrap();
    run(&mut lp, RunMode::NoWait);
    reset(peer);
    run_to_the_end(&mut lp);
    let callbacks = callbacks.take();
    let collected = wine::collects_errors() && callbacks == [Ok(0)];
    assert!(collected || callbacks == [Err(ErrorKind::ConnectionReset)], "got {callbacks:?}");
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A stream has one reader at a time, and must be readable.
pub fn reading_twice_is_an_error(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, _peer) = connected(&mut lp);
    let lp = &mut lp;
    tcp.read_start(lp, |_, _, _| panic!("nothing was sent")).unwrap();
    refused(tcp.read_start(lp, |_, _, _| {}), EALREADY, "it is being read");
    refused(tcp.read(lp, vec![0], |_, _, _, _| {}), EALREADY, "it is being read");
    tcp.read_stop(lp).unwrap();
    tcp.read_stop(lp).unwrap();
    assert!(!tcp.is_active(lp) && !lp.is_alive(), "a stopped stream stays so");
    tcp.read(lp, vec![0], |_, _, result, _| assert_eq!(outcome(&result), "cancelled")).unwrap();
    refused(tcp.read_start(lp, |_, _, _| {}), EALREADY, "it is being read");
    assert_eq!(refusal(tcp.read(lp, Vec::<u8>::new(), |_, _, _, _| {})), ErrorKind::InvalidInput);
    tcp.close(lp).unwrap();
    assert_eq!(refusal(tcp.read_start(lp, |_, _, _| {})), ErrorKind::InvalidInput);
    run_to_the_end(lp);
    assert_eq!(refusal(tcp.read_start(lp, |_, _, _| {})), ErrorKind::NotFound);
    assert_eq!(refusal(tcp.read_stop(lp)), ErrorKind::NotFound);
    Ok(())
}

/// A reader stopped in its own callback is not called again although more data has arrived. The
/// rest is kept for the next start.
pub fn read_stop_takes_effect_immediately(lab: &Lab) -> Verdict {
    const ALL: usize = 200 * 1024;
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let writer = std::thread::spawn(move || {
        send(&peer, &[1; ALL]);
        peer
    });
    let got = Log::default();
    while got.len() < ALL {
        let (before, gathered, calls) = (got.len(), got.clone(), Log::default());
        let log = calls.clone();
        tcp.read_start(&mut lp, move |lp, tcp, bytes| {
            gathered.extend(bytes.unwrap().iter().copied());
            log.push(());
            tcp.read_stop(lp).unwrap();
        })
        .unwrap();
        run_to_the_end(&mut lp);
        assert_eq!(calls.len(), 1, "one callback for each start");
        assert!(got.len() > before, "more data was pending");
    }
    let _peer = writer.join().expect("a peer that can send");
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Data that arrives while the stream is stopped is not delivered, and is kept for the next reader:
/// lent, requested in small parts, or the end of file.
pub fn data_received_while_stopped_is_kept(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let got = Log::default();
    let start = |lp: &mut Loop| {
        let gathered = got.clone();
        let gather = move |_: &mut Loop, _: Tcp, bytes: io::Result<&[u8]>| match bytes.unwrap() {
            [] => gathered.push(b'.'),
            bytes => gathered.extend(bytes.iter().copied()),
        };
        tcp.read_start(lp, gather).unwrap();
    };
    start(&mut lp);
    send(&peer, b"one");
    run_until(&mut lp, "the first", |_| got.len() == 3);
    got.take();
    for text in [b"two", b"six", b"ten"] {
        tcp.read_stop(&mut lp).unwrap();
        for _ in 0..2 {
            send(&peer, text);
            run_a_moment(&mut lp);
        }
        assert_eq!(got.len(), 0, "the stream does not read");
        // Some data is requested, and the rest is lent.
        let pulled: Vec<u8> = (0..5).flat_map(|_| pull_one(&mut lp, tcp)).collect();
        assert_eq!(pulled, [&text[..], &text[..2]].concat(), "in order");
        start(&mut lp);
        run_until(&mut lp, "the remaining data", |_| got.len() > 0);
        assert_eq!(got.take(), &text[2..]);
    }
    tcp.read_stop(&mut lp).unwrap();
    half_close(&peer);
    run_a_moment(&mut lp);
    assert_eq!(got.len(), 0, "the stream does not read");
    for _ in 0..2 {
        start(&mut lp);
        run_until(&mut lp, "the end", |_| got.len() > 0);
        assert_eq!(got.take(), b".", "as often as it is asked for");
    }
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Bytes that were read and put back are for the next reader, whichever way it reads, and so is an
/// error; both come before what has arrived since.
pub fn bytes_that_were_put_back_are_read_first(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let got = Log::default();
    let start = |lp: &mut Loop| {
        let gathered = got.clone();
        let gather = move |_: &mut Loop, _: Tcp, bytes: io::Result<&[u8]>| match bytes {
            Ok(bytes) => gathered.extend(bytes.iter().copied()),
            Err(_) => gathered.push(b'!'),
        };
        tcp.read_start(lp, gather).unwrap();
    };
    start(&mut lp);
    refused(tcp.unread(&mut lp, b"ab".to_vec(), None), EALREADY, "it is being read");
    for pulled in [false, true] {
        send(&peer, b"one");
        run_until(&mut lp, "the first", |_| got.len() == 3);
        assert_eq!(got.take(), b"one");
        tcp.read_stop(&mut lp).unwrap();
        send(&peer, b"two");
        run_a_moment(&mut lp);
        tcp.unread(&mut lp, b"one".to_vec(), None).unwrap();
        if pulled {
            let pulled: Vec<u8> = (0..4).flat_map(|_| pull_one(&mut lp, tcp)).collect();
            assert_eq!(pulled, b"onet");
            tcp.unread(&mut lp, b"onet".to_vec(), None).unwrap();
        }
        start(&mut lp);
        run_until(&mut lp, "all bytes", |_| got.len() == 6);
        assert_eq!(got.take(), b"onetwo");
    }
    tcp.read_stop(&mut lp).unwrap();
    let failed = io::ErrorKind::ConnectionReset.into();
    tcp.unread(&mut lp, b"last".to_vec(), Some(failed)).unwrap();
    start(&mut lp);
    run_until(&mut lp, "the error", |_| got.len() == 5);
    assert_eq!(got.take(), b"last!");
    assert!(!tcp.is_readable(&lp) && !tcp.is_active(&lp));
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Requests the next byte.
fn pull_one(lp: &mut Loop, tcp: Tcp) -> Vec<u8> {
    let read = Log::default();
    let log = read.clone();
    let pulled = tcp.read(lp, vec![0], move |_, _, count, buffer| {
        log.extend(buffer[..count.unwrap()].iter().copied());
    });
    pulled.unwrap();
    run_until(lp, "a pulled read", |_| read.len() > 0);
    read.take()
}

/// Data for a stopped reader neither wakes the loop nor makes it spin.
pub fn a_stopped_reader_lets_the_loop_sleep(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let got = Log::default();
    let gathered = got.clone();
    tcp.read_start(&mut lp, move |lp, tcp, bytes| {
        gathered.extend(bytes.unwrap().iter().copied());
        tcp.read_stop(lp).unwrap();
    })
    .unwrap();
    send(&peer, b"seen");
    run_to_the_end(&mut lp);
    send(&peer, b"unseen");
    let polls = run_a_moment(&mut lp);
    assert!(polls < 6, "{polls} polls although the stream does not read");
    assert_eq!(got.take(), b"seen");
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Reading can be stopped outside of callbacks. Data that arrives then does not wake the loop, and
/// is kept for the next reader.
pub fn read_stop_works_outside_of_callbacks(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let got = Log::default();
    for (first, rest) in [(b"a", b"b"), (b"c", b"d")] {
        let gathered = got.clone();
        tcp.read_start(&mut lp, move |_, _, bytes| gathered.extend(bytes.unwrap().iter().copied()))
            .unwrap();
        send(&peer, first);
        run_until(&mut lp, "a byte", |_| got.len() > 0);
        // Received, and not delivered yet.
        send(&peer, rest);
        tcp.read_stop(&mut lp).unwrap();
        assert!(!tcp.is_active(&lp));
        run_to_the_end(&mut lp);
        let polls = run_a_moment(&mut lp);
        assert!(polls < 6, "{polls} polls although the stream does not read");
        assert_eq!(got.take(), first, "no data is delivered after the stop");
        let pulled = got.clone();
        tcp.read(&mut lp, vec![0; 8], move |_, _, count, buffer| {
            pulled.extend(buffer[..count.unwrap()].iter().copied());
        })
        .unwrap();
        run_to_the_end(&mut lp);
        assert_eq!(got.take(), rest, "nothing is lost");
    }
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A reader restarted in its own callback continues with the new callback only. The old one is
/// dropped with its captures.
pub fn reading_may_restart_in_its_callback(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let (callbacks, held) = (Log::default(), Rc::new(()));
    let (log, captured, far) = (callbacks.clone(), Rc::clone(&held), peer.try_clone().unwrap());
    tcp.read_start(&mut lp, move |lp, tcp, bytes| {
        let _ = &captured;
        log.push((1, bytes.unwrap().to_vec()));
        tcp.read_stop(lp).unwrap();
        let log = log.clone();
        let again = tcp.read_start(lp, move |lp, tcp, bytes| {
            log.push((2, bytes.unwrap().to_vec()));
            tcp.close(lp).unwrap();
        });
        again.unwrap();
        send(&far, b"two");
    })
    .unwrap();
    send(&peer, b"one");
    finish(lp);
    assert_eq!(callbacks.take(), [(1, b"one".to_vec()), (2, b"two".to_vec())]);
    assert_eq!(Rc::strong_count(&held), 1, "the old callback is dropped");
    Ok(())
}

/// Many streams receive more data than there are receive buffers: each gets all of it, in order,
/// and then the end of file. A reader that stops at its first part gets no more until it starts
/// again.
pub fn large_transfers_on_many_streams_are_complete(lab: &Lab) -> Verdict {
    const STREAMS: usize = 48;
    const BYTES: usize = 20_000;
    let mut lp = new_loop(lab)?;
    let (ends, mut stopped) = (Log::default(), Vec::new());
    for number in 0..STREAMS {
        let sent: Vec<u8> = (0..BYTES).map(|place| ((number + place) % 251) as u8).collect();
        let (tcp, peer) = connected(&mut lp);
        send(&peer, &sent);
        half_close(&peer);
        let (got, stops) = (Log::default(), number % 3 == 0);
        let reader = || {
            let (ends, got, sent) = (ends.clone(), got.clone(), sent.clone());
            move |lp: &mut Loop, tcp: Tcp, bytes: io::Result<&[u8]>| {
                let bytes = bytes.unwrap();
                if stops && got.len() == 0 {
                    tcp.read_stop(lp).unwrap();
                }
                got.extend(bytes.iter().copied());
                if bytes.is_empty() {
                    assert!(got.take() == sent, "the bytes of stream {number}, in order");
                    ends.push(number);
                    tcp.close(lp).unwrap();
                }
            }
        };
        tcp.read_start(&mut lp, reader()).unwrap();
        if stops {
            stopped.push((tcp, got.clone(), Box::new(reader())));
        }
    }
    let others = STREAMS - stopped.len();
    run_until(&mut lp, "the ends of the active streams", |_| ends.len() == others);
    let starts = |got: &Log<u8>| got.len() > 0;
    run_until(&mut lp, "a piece for the rest", |_| stopped.iter().all(|(_, got, _)| starts(got)));
    let pieces: Vec<usize> = stopped.iter().map(|(_, got, _)| got.len()).collect();
    run_a_moment(&mut lp);
    for ((tcp, got, reader), piece) in stopped.into_iter().zip(pieces) {
        assert_eq!(got.len(), piece, "a stopped stream gets no data");
        tcp.read_start(&mut lp, reader).unwrap();
    }
    finish(lp);
    assert_eq!(ends.len(), STREAMS, "each has its end");
    Ok(())
}

/// Urgent data is not part of the read data, and does not delay the data sent after it, for a
/// reader that waits and for one that starts later.
pub fn urgent_data_does_not_delay_normal_data(lab: &Lab) -> Verdict {
    for (before, waits) in [(0, true), (3, true), (3_000, true), (0, false), (3, false)] {
        let mut lp = new_loop(lab)?;
        let (tcp, peer) = connected(&mut lp);
        let got = Log::default();
        let read = |lp: &mut Loop| {
            let gathered = got.clone();
            let reader = move |_: &mut Loop, _, bytes: io::Result<&[u8]>| {
                gathered.extend(bytes.unwrap().iter().copied());
            };
            tcp.read_start(lp, reader).unwrap();
        };
        if waits {
            read(&mut lp);
            run_a_moment(&mut lp);
        }
        send(&peer, &vec![b'b'; before]);
        send_urgent(&peer);
        send(&peer, b"request");
        if !waits {
            run_a_moment(&mut lp);
            read(&mut lp);
        }
        let whole = [&vec![b'b'; before], &b"request"[..]].concat();
        run_until(&mut lp, "all sent data", |_| got.len() >= whole.len());
        assert!(got.take() == whole, "{before} before it; the reader waits: {waits}");
        tcp.close(&mut lp).unwrap();
        finish(lp);
    }
    Ok(())
}

/// A stream that always has more data does not starve others: one event causes a bounded number of
/// reads.
pub fn a_busy_reader_does_not_starve_others(lab: &Lab) -> Verdict {
    const BYTES: usize = 2_000;
    let mut lp = new_loop(lab)?;
    let (reads, mut streams) = (Log::default(), Vec::new());
    for name in ["one", "other"] {
        let (tcp, peer) = connected(&mut lp);
        send(&peer, &[1; BYTES]);
        let log = reads.clone();
        // One byte at a time, for many reads.
        let alloc = |_: &mut Loop, _, _| vec![0; 1];
        tcp.read_start_with(&mut lp, alloc, move |_, _, count, _| {
            // `WouldBlock` is not a read.
            if count.is_ok() {
                log.push(name);
            }
        })
        .unwrap();
        streams.push((tcp, peer));
    }
    run_until(&mut lp, "a read of both", |_| reads.len() > 0);
    run(&mut lp, RunMode::NoWait);
    let order = reads.take();
    assert!(order.contains(&"one") && order.contains(&"other"), "both were read");
    assert!(order.len() < BYTES, "neither was read to the end: {}", order.len());
    let left = 2 * BYTES - order.len();
    run_until(&mut lp, "all sent data", |_| reads.len() == left);
    for (tcp, _) in &streams {
        tcp.close(&mut lp).unwrap();
    }
    finish(lp);
    Ok(())
}

/// Read requests complete in order, with one callback each, and return their buffers. A cancelled
/// request reports the cancellation and takes no data.
pub fn read_requests_complete_in_order(lab: &Lab) -> Verdict {
    const SENT: &[u8] = b"12345";
    const CANCELLED: usize = 2;
    // One for each byte, in case a read gets no more, one for the end, and the cancelled one.
    const REQUESTS: usize = SENT.len() + 2;
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let callbacks = Log::default();
    for number in 0..REQUESTS {
        let log = callbacks.clone();
        let pulled = tcp.read(&mut lp, vec![0; 3], move |_, _, result, buffer| {
            assert_eq!(buffer.len(), 3, "the buffer is returned");
            log.push((number, outcome(&result), buffer[..result.unwrap_or(0)].to_vec()));
        });
        let pulled = pulled.unwrap();
        if number == CANCELLED {
            pulled.cancel(&mut lp).unwrap();
            assert_eq!(refusal(pulled.cancel(&mut lp)), ErrorKind::NotFound);
        }
    }
    assert!(!tcp.is_active(&lp) && lp.is_alive(), "requests keep the loop alive");
    assert_eq!(callbacks.len(), 0, "no callback runs inline");
    run(&mut lp, RunMode::NoWait);
    assert_eq!(callbacks.take(), [(CANCELLED, "cancelled", vec![])], "before the others");
    send(&peer, SENT);
    run_until(&mut lp, "two reads", |_| callbacks.len() >= 2);
    half_close(&peer);
    run_to_the_end(&mut lp);
    let callbacks = callbacks.take();
    let order: Vec<_> = callbacks.iter().map(|(number, ..)| *number).collect();
    let expected: Vec<_> = (0..REQUESTS).filter(|number| *number != CANCELLED).collect();
    assert_eq!(order, expected, "each once, in order");
    assert!(callbacks.iter().all(|(_, outcome, _)| *outcome == "done"), "{callbacks:?}");
    let pieces: Vec<_> = callbacks.into_iter().map(|(.., piece)| piece).collect();
    assert_eq!(pieces.concat(), SENT, "each byte once, in order");
    let data = pieces.iter().take_while(|piece| !piece.is_empty());
    assert_eq!(data.map(Vec::len).sum::<usize>(), SENT.len(), "only the end is empty: {pieces:?}");
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Without a request nothing is read: unrequested data stays in the kernel, and the loop blocks.
/// This gives the reader back-pressure.
pub fn read_requests_read_no_more_than_requested(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let callbacks = Log::default();
    send(&peer, b"abc");
    for expected in [b"a", b"b", b"c"] {
        let log = callbacks.clone();
        tcp.read(&mut lp, vec![0; 1].into_boxed_slice(), move |_, _, count, buffer| {
            log.push((count.unwrap(), buffer[0]));
        })
        .unwrap();
        run_to_the_end(&mut lp);
        assert_eq!(callbacks.take(), [(1, expected[0])]);
        assert!(run_a_moment(&mut lp) < 6, "unrequested data does not wake the loop");
    }
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// The end of file, and an error, complete every pending request.
pub fn read_requests_all_see_the_end_of_file(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let callbacks = Log::default();
    for number in 0..3 {
        let log = callbacks.clone();
        let pulled = tcp.read(&mut lp, vec![0; 8], move |_, _, count, _| {
            log.push((number, count.unwrap()));
        });
        pulled.unwrap();
    }
    half_close(&peer);
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [(0, 0), (1, 0), (2, 0)]);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A stream that is not connected, closing or closed can be neither read nor written nor shut down.
pub fn unconnected_streams_are_refused(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, lp) = (Tcp::new(&mut lp), &mut lp);
    let every_call = |lp: &mut Loop| {
        [
            refusal(tcp.read_start(lp, |_, _, _| {})),
            refusal(tcp.read(lp, vec![0], |_, _, _, _| {})),
            refusal(tcp.write(lp, "x", |_, _, _, _| {})),
            refusal(tcp.try_write(lp, b"x")),
            refusal(tcp.set_blocking(lp, true)),
        ]
    };
    assert_eq!(every_call(lp), [ErrorKind::NotConnected; 5]);
    assert_eq!(refusal(tcp.shutdown(lp, |_, _, _| {})), ErrorKind::NotConnected);
    assert!(!tcp.is_readable(lp) && !tcp.is_writable(lp));
    tcp.close(lp).unwrap();
    assert_eq!(every_call(lp), [ErrorKind::InvalidInput; 5]);
    assert_eq!(refusal(tcp.shutdown(lp, |_, _, _| {})), ErrorKind::NotConnected);
    run_to_the_end(lp);
    assert_eq!(every_call(lp), [ErrorKind::NotFound; 5]);
    assert_eq!(refusal(tcp.shutdown(lp, |_, _, _| {})), ErrorKind::NotFound);
    assert_eq!(tcp.write_queue_size(lp), 0);

    // A listener is not a connection.
    let (server, _) = bound(lp);
    server.listen_without_callback(lp, 1).unwrap();
    assert_eq!(refusal(server.read_start(lp, |_, _, _| {})), ErrorKind::NotConnected);
    assert!(!server.is_readable(lp) && !server.is_writable(lp));
    server.close(lp).unwrap();
    run_to_the_end(lp);
    Ok(())
}
