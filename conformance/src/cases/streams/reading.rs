//! Reading: pushed and pulled.

use std::io::{self, ErrorKind, Read as _};
use std::rc::Rc;

use poll_core::Backend;
use uv_core::{Handle, Loop, RunMode, Stream, Tcp};

use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::sources::{half_close, reset, send, send_urgent};
use crate::support::streams::{
    bound, connected, finish, outcome, refusal, run_a_moment, run_until,
};
use crate::support::trace::Log;
use crate::support::wine;
use crate::{Lab, Verdict};

/// Whatever arrives is lent to the callback, in order and whole; nothing at all is the end.
pub fn reads_lend_what_arrives<T: Backend>(lab: &Lab<T>) -> Verdict {
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

/// At the end of file reading has stopped when the callback comes, once. The stream is as
/// good as before: reading it again tells the end again.
pub fn the_end_of_file_stops_reading<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    half_close(&peer);
    let ends = Log::default();
    for time in 0..2 {
        let tell = ends.clone();
        tcp.read_start(&mut lp, move |lp, tcp, bytes| {
            assert_eq!(bytes.unwrap(), b"", "nothing was sent");
            assert!(!tcp.is_active(lp), "reading stops before the callback");
            assert!(tcp.is_readable(lp) && tcp.is_writable(lp), "no error has happened");
            tell.push(time);
        })
        .unwrap();
        run_to_the_end(&mut lp);
    }
    assert_eq!(ends.take(), [0, 1], "one end for each start");
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// That a peer has ended its side does not close ours: it can be answered.
pub fn the_end_of_file_closes_nothing<T: Backend>(lab: &Lab<T>) -> Verdict {
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

/// A connection that is reset is neither readable nor writable any more, from before the
/// callback on, and reading has stopped.
pub fn an_error_ends_both_directions<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let told = Log::default();
    let tell = told.clone();
    tcp.read_start(&mut lp, move |lp, tcp, bytes| {
        assert!(!tcp.is_active(lp), "reading stops before the callback");
        if bytes.is_err() {
            assert!(!tcp.is_readable(lp) && !tcp.is_writable(lp), "before the callback");
            assert_eq!(refusal(tcp.write(lp, "x", |_, _, _, _| {})), ErrorKind::BrokenPipe);
            assert_eq!(refusal(tcp.read_start(lp, |_, _, _| {})), ErrorKind::NotConnected);
        }
        tell.push(bytes.map(<[u8]>::len).map_err(|error| error.kind()));
    })
    .unwrap();
    run(&mut lp, RunMode::NoWait);
    reset(peer);
    run_to_the_end(&mut lp);
    let told = told.take();
    let collected = wine::collects_errors() && told == [Ok(0)];
    assert!(collected || told == [Err(ErrorKind::ConnectionReset)], "told {told:?}");
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A stream is read in one way at a time, and only if there is something to read.
pub fn reading_twice_is_an_error<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, _peer) = connected(&mut lp);
    let lp = &mut lp;
    tcp.read_start(lp, |_, _, _| panic!("nothing was sent")).unwrap();
    assert_eq!(refusal(tcp.read_start(lp, |_, _, _| {})), ErrorKind::AlreadyExists);
    assert_eq!(refusal(tcp.read(lp, vec![0], |_, _, _, _| {})), ErrorKind::AlreadyExists);
    tcp.read_stop(lp).unwrap();
    tcp.read_stop(lp).unwrap();
    assert!(!tcp.is_active(lp) && !lp.alive(), "a stopped stream stays so");
    tcp.read(lp, vec![0], |_, _, result, _| assert_eq!(outcome(&result), "cancelled")).unwrap();
    assert_eq!(refusal(tcp.read_start(lp, |_, _, _| {})), ErrorKind::AlreadyExists);
    assert_eq!(refusal(tcp.read(lp, Vec::<u8>::new(), |_, _, _, _| {})), ErrorKind::InvalidInput);
    tcp.close(lp).unwrap();
    assert_eq!(refusal(tcp.read_start(lp, |_, _, _| {})), ErrorKind::InvalidInput);
    run_to_the_end(lp);
    assert_eq!(refusal(tcp.read_start(lp, |_, _, _| {})), ErrorKind::NotFound);
    assert_eq!(refusal(tcp.read_stop(lp)), ErrorKind::NotFound);
    Ok(())
}

/// Stopped in its own callback, a reader is not called again, though more has arrived;
/// the rest waits for the next start.
pub fn reading_stops_at_once<T: Backend>(lab: &Lab<T>) -> Verdict {
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
        let tell = calls.clone();
        tcp.read_start(&mut lp, move |lp, tcp, bytes| {
            gathered.extend(bytes.unwrap().iter().copied());
            tell.push(());
            tcp.read_stop(lp).unwrap();
        })
        .unwrap();
        run_to_the_end(&mut lp);
        assert_eq!(calls.len(), 1, "one callback for each start");
        assert!(got.len() > before, "there was more to come");
    }
    let _peer = writer.join().expect("a peer that can send");
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// What arrives while nobody reads is not told, and is there for the next who does, however that
/// is: lent, pulled in small pieces, or the end of file.
pub fn what_comes_while_stopped_is_kept<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let got = Log::default();
    let start = |lp: &mut Loop<T>| {
        let gathered = got.clone();
        let gather = move |_: &mut Loop<T>, _: Tcp, bytes: io::Result<&[u8]>| match bytes.unwrap() {
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
        assert_eq!(got.len(), 0, "nobody reads");
        // Some is asked for, and what is left is lent.
        let pulled: Vec<u8> = (0..5).flat_map(|_| pull_one(&mut lp, tcp)).collect();
        assert_eq!(pulled, [&text[..], &text[..2]].concat(), "in order");
        start(&mut lp);
        run_until(&mut lp, "what was left", |_| got.len() > 0);
        assert_eq!(got.take(), &text[2..]);
    }
    tcp.read_stop(&mut lp).unwrap();
    half_close(&peer);
    run_a_moment(&mut lp);
    assert_eq!(got.len(), 0, "nobody reads the end");
    for _ in 0..2 {
        start(&mut lp);
        run_until(&mut lp, "the end", |_| got.len() > 0);
        assert_eq!(got.take(), b".", "as often as it is asked for");
    }
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// The next byte, asked for.
fn pull_one<T: Backend>(lp: &mut Loop<T>, tcp: Tcp) -> Vec<u8> {
    let read = Log::default();
    let tell = read.clone();
    let pulled = tcp.read(lp, vec![0], move |_, _, count, buffer| {
        tell.extend(buffer[..count.unwrap()].iter().copied());
    });
    pulled.unwrap();
    run_until(lp, "a pulled read", |_| read.len() > 0);
    read.take()
}

/// What arrives while nobody reads neither wakes the loop nor makes it spin.
pub fn a_stopped_reader_lets_the_loop_sleep<T: Backend>(lab: &Lab<T>) -> Verdict {
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
    assert!(polls < 6, "it polled {polls} times though nobody reads");
    assert_eq!(got.take(), b"seen");
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Reading can be stopped outside of callbacks too, and then nothing that arrives wakes the
/// loop. It is there for who reads next.
pub fn reading_stops_from_outside<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let got = Log::default();
    for (first, rest) in [(b"a", b"b"), (b"c", b"d")] {
        let gathered = got.clone();
        tcp.read_start(&mut lp, move |_, _, bytes| gathered.extend(bytes.unwrap().iter().copied()))
            .unwrap();
        send(&peer, first);
        run_until(&mut lp, "a byte", |_| got.len() > 0);
        // Arrived already, and not told yet.
        send(&peer, rest);
        tcp.read_stop(&mut lp).unwrap();
        assert!(!tcp.is_active(&lp));
        run_to_the_end(&mut lp);
        let polls = run_a_moment(&mut lp);
        assert!(polls < 6, "it polled {polls} times though nobody reads");
        assert_eq!(got.take(), first, "nothing is told any more");
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

/// Started anew in its own callback, reading goes on with the new callback alone, and the
/// old one is dropped with what it captured.
pub fn reading_starts_anew_in_its_callback<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let (told, held) = (Log::default(), Rc::new(()));
    let (tell, captured, far) = (told.clone(), Rc::clone(&held), peer.try_clone().unwrap());
    tcp.read_start(&mut lp, move |lp, tcp, bytes| {
        let _ = &captured;
        tell.push((1, bytes.unwrap().to_vec()));
        tcp.read_stop(lp).unwrap();
        let tell = tell.clone();
        let again = tcp.read_start(lp, move |lp, tcp, bytes| {
            tell.push((2, bytes.unwrap().to_vec()));
            tcp.close(lp).unwrap();
        });
        again.unwrap();
        send(&far, b"two");
    })
    .unwrap();
    send(&peer, b"one");
    finish(lp);
    assert_eq!(told.take(), [(1, b"one".to_vec()), (2, b"two".to_vec())]);
    assert_eq!(Rc::strong_count(&held), 1, "the old callback is dropped");
    Ok(())
}

/// Much comes on many streams at once, more than there is memory to receive into: each is told
/// all of it, in order, and then the end. One that stops at its first piece is told no more until
/// it starts again.
pub fn much_on_many_comes_whole<T: Backend>(lab: &Lab<T>) -> Verdict {
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
            move |lp: &mut Loop<T>, tcp: Tcp, bytes: io::Result<&[u8]>| {
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
    run_until(&mut lp, "the ends of those that go on", |_| ends.len() == others);
    let starts = |got: &Log<u8>| got.len() > 0;
    run_until(&mut lp, "a piece for the rest", |_| stopped.iter().all(|(_, got, _)| starts(got)));
    let pieces: Vec<usize> = stopped.iter().map(|(_, got, _)| got.len()).collect();
    run_a_moment(&mut lp);
    for ((tcp, got, reader), piece) in stopped.into_iter().zip(pieces) {
        assert_eq!(got.len(), piece, "nothing is told of a stream that has stopped");
        tcp.read_start(&mut lp, reader).unwrap();
    }
    finish(lp);
    assert_eq!(ends.len(), STREAMS, "each has its end");
    Ok(())
}

/// Urgent data is not among what is read, and does not hold up what is sent behind it: whether
/// the reader waits, or comes when all is there.
pub fn urgent_data_holds_nothing_up<T: Backend>(lab: &Lab<T>) -> Verdict {
    for (before, waits) in [(0, true), (3, true), (3_000, true), (0, false), (3, false)] {
        let mut lp = new_loop(lab)?;
        let (tcp, peer) = connected(&mut lp);
        let got = Log::default();
        let read = |lp: &mut Loop<T>| {
            let gathered = got.clone();
            let reader = move |_: &mut Loop<T>, _, bytes: io::Result<&[u8]>| {
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
        run_until(&mut lp, "the end of what was sent", |_| got.len() >= whole.len());
        assert!(got.take() == whole, "{before} before it; the reader waits: {waits}");
        tcp.close(&mut lp).unwrap();
        finish(lp);
    }
    Ok(())
}

/// A stream that always has more to read leaves the others their turn: it is read a
/// bounded number of times for one event.
pub fn a_busy_reader_starves_nobody<T: Backend>(lab: &Lab<T>) -> Verdict {
    const BYTES: usize = 2_000;
    let mut lp = new_loop(lab)?;
    let (reads, mut streams) = (Log::default(), Vec::new());
    for name in ["one", "other"] {
        let (tcp, peer) = connected(&mut lp);
        send(&peer, &[1; BYTES]);
        let tell = reads.clone();
        // A byte at a time makes it long.
        let alloc = |_: &mut Loop<T>, _, _| vec![0; 1];
        tcp.read_start_with(&mut lp, alloc, move |_, _, count, _| {
            // Nothing there is no read.
            if count.is_ok() {
                tell.push(name);
            }
        })
        .unwrap();
        streams.push((tcp, peer));
    }
    run_until(&mut lp, "a turn of both", |_| reads.len() > 0);
    run(&mut lp, RunMode::NoWait);
    let turns = reads.take();
    assert!(turns.contains(&"one") && turns.contains(&"other"), "both have had a turn");
    assert!(turns.len() < BYTES, "and neither was read to the end: {}", turns.len());
    let left = 2 * BYTES - turns.len();
    run_until(&mut lp, "the end of what was sent", |_| reads.len() == left);
    for (tcp, _) in &streams {
        tcp.close(&mut lp).unwrap();
    }
    finish(lp);
    Ok(())
}

/// Requests to read are served in order, one callback each, and hand their buffers back.
/// One that is cancelled says so and takes nothing.
pub fn pulled_reads_are_served_in_order<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let told = Log::default();
    for name in ["first", "second", "given up", "third"] {
        let tell = told.clone();
        let pulled = tcp.read(&mut lp, vec![0; 3], move |_, _, result, buffer| {
            assert_eq!(buffer.len(), 3, "the buffer comes back");
            tell.push((name, outcome(&result), buffer[..result.unwrap_or(0)].to_vec()));
        });
        let pulled = pulled.unwrap();
        if name == "given up" {
            pulled.cancel(&mut lp).unwrap();
            assert_eq!(refusal(pulled.cancel(&mut lp)), ErrorKind::NotFound);
        }
    }
    assert!(!tcp.is_active(&lp) && lp.alive(), "requests keep the loop alive");
    assert_eq!(told.len(), 0, "nothing is told inline");
    run(&mut lp, RunMode::NoWait);
    assert_eq!(told.take(), [("given up", "cancelled", vec![])], "before the others");
    send(&peer, b"12345");
    run_until(&mut lp, "two reads", |_| told.len() >= 2);
    half_close(&peer);
    run_to_the_end(&mut lp);
    let (first, second) = (b"123".to_vec(), b"45".to_vec());
    let expected =
        [("first", "done", first), ("second", "done", second), ("third", "done", vec![])];
    assert_eq!(told.take(), expected);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Without a request nothing is read: what the reader does not ask for stays in the kernel,
/// and the loop sleeps. So a reader is no faster than it wants to be.
pub fn pulled_reads_take_no_more_than_asked<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let told = Log::default();
    send(&peer, b"abc");
    for expected in [b"a", b"b", b"c"] {
        let tell = told.clone();
        tcp.read(&mut lp, vec![0; 1].into_boxed_slice(), move |_, _, count, buffer| {
            tell.push((count.unwrap(), buffer[0]));
        })
        .unwrap();
        run_to_the_end(&mut lp);
        assert_eq!(told.take(), [(1, expected[0])]);
        assert!(run_a_moment(&mut lp) < 6, "what is not asked for does not wake the loop");
    }
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// The end of file, and an error, answer every request that waits.
pub fn pulled_reads_all_see_the_end<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let told = Log::default();
    for number in 0..3 {
        let tell = told.clone();
        let pulled = tcp.read(&mut lp, vec![0; 8], move |_, _, count, _| {
            tell.push((number, count.unwrap()));
        });
        pulled.unwrap();
    }
    half_close(&peer);
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [(0, 0), (1, 0), (2, 0)]);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// What is not connected, closing or closed can be neither read nor written nor shut down.
pub fn what_is_no_connection_is_refused<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, lp) = (Tcp::new(&mut lp), &mut lp);
    let every_call = |lp: &mut Loop<T>| {
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

    // A listener is no connection.
    let (server, _) = bound(lp);
    server.listen_quietly(lp, 1).unwrap();
    assert_eq!(refusal(server.read_start(lp, |_, _, _| {})), ErrorKind::NotConnected);
    assert!(!server.is_readable(lp) && !server.is_writable(lp));
    server.close(lp).unwrap();
    run_to_the_end(lp);
    Ok(())
}
