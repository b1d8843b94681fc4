//! Coalesced writes: callbacks write, and the loop sends the bytes together, where the backend
//! sends.

use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;

use uv_core::{Handle, RunMode, Stream, Tcp};

use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::sources::send;
use crate::support::streams::{
    OVER_STREAM_BUFFERS, both_ends, connected, fill_up, finish, read_the_echo,
};
use crate::support::trace::Log;
use crate::{Lab, Loop, Verdict};

/// Reads from a peer until the end of file, on another thread.
fn reads_all(mut peer: TcpStream) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).expect("an orderly end");
        all
    })
}

/// How many streams write together: a single stream takes another path.
const TOGETHER: [usize; 2] = [1, 5];

/// Connections, and the data that their peers have read at the end.
fn connections(lp: &mut Loop, count: usize) -> (Vec<Tcp>, Vec<thread::JoinHandle<Vec<u8>>>) {
    (0..count).map(|_| connected(lp)).map(|(tcp, peer)| (tcp, reads_all(peer))).unzip()
}

/// Coalesced writes arrive in the order of all writes, and keep the loop alive until they are sent.
/// A shutdown waits for them.
pub fn coalesced_writes_keep_the_order(lab: &Lab) -> Verdict {
    for count in TOGETHER {
        let mut lp = new_loop(lab)?;
        let (tcps, readers) = connections(&mut lp, count);
        let callbacks = Log::default();
        let (all, log) = (tcps.clone(), callbacks.clone());
        lp.defer(move |lp| {
            for tcp in all {
                assert_eq!(tcp.write_coalesced(lp, b"one ").unwrap(), 4);
                assert_eq!(tcp.write_coalesced(lp, b"two ").unwrap(), 4);
                tcp.write(lp, "three ", log.written("three")).unwrap();
                tcp.write(lp, vec!["four", " "], log.written("four")).unwrap();
                tcp.shutdown(lp, log.ended("shutdown")).unwrap();
            }
        });
        run_to_the_end(&mut lp);
        let callbacks = callbacks.take();
        assert!(
            callbacks.len() == 3 * count && callbacks.iter().all(|(_, how)| *how == "done"),
            "{callbacks:?}"
        );
        for (tcp, reader) in tcps.into_iter().zip(readers) {
            assert_eq!(tcp.write_queue_size(&lp), 0);
            assert_eq!(reader.join().expect("a peer that reads"), b"one two three four ");
            tcp.close(&mut lp).unwrap();
        }
        finish(lp);
    }
    Ok(())
}

/// Coalesced writes are sent before a later shutdown or close, submitted or not.
pub fn coalesced_writes_are_sent_before_a_shutdown_or_close(lab: &Lab) -> Verdict {
    for count in TOGETHER {
        let mut lp = new_loop(lab)?;
        let (tcps, readers) = connections(&mut lp, count);
        lp.defer(move |lp| {
            for (index, tcp) in tcps.into_iter().enumerate() {
                assert_eq!(tcp.write_coalesced(lp, b"farewell").unwrap(), 8);
                match index % 2 {
                    0 => tcp.shutdown(lp, |lp, tcp, _| tcp.close(lp).unwrap()).unwrap(),
                    _ => tcp.close(lp).unwrap(),
                }
            }
        });
        finish(lp);
        for reader in readers {
            assert_eq!(reader.join().expect("a peer that reads"), b"farewell");
        }
    }
    Ok(())
}

/// Coalesced writes are sent even if the loop is stopped, and immediately outside of callbacks.
pub fn coalesced_writes_are_sent_before_run_returns(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    assert_eq!(tcp.write_coalesced(&mut lp, b"before").unwrap(), 6);
    assert_eq!(tcp.write_queue_size(&lp), 0, "nothing would send it later");
    lp.defer(move |lp| {
        assert_eq!(tcp.write_coalesced(lp, b" after").unwrap(), 6);
        lp.stop();
    });
    run(&mut lp, RunMode::Default);
    let mut got = [0; 12];
    peer.read_exact(&mut got).expect("the written data");
    assert_eq!(&got, b"before after");
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A stream whose socket is full accepts few or no coalesced bytes, returns how many, and all
/// accepted bytes arrive.
pub fn a_full_stream_accepts_few_coalesced_bytes(lab: &Lab) -> Verdict {
    for count in TOGETHER {
        let mut lp = new_loop(lab)?;
        let ends: Vec<_> = (0..count).map(|_| connected(&mut lp)).collect();
        let tcps: Vec<_> = ends.iter().map(|(tcp, _)| *tcp).collect();
        let filled: Vec<_> = tcps.iter().map(|tcp| fill_up(&mut lp, *tcp)).collect();
        let taken = Log::default();
        let (all, take) = (tcps.clone(), taken.clone());
        lp.defer(move |lp| all.into_iter().for_each(|tcp| take.push(fill_batch(lp, tcp))));
        // The writes are in flight, and blocked.
        while taken.len() < count {
            run(&mut lp, RunMode::NoWait);
        }
        let readers: Vec<_> = ends.into_iter().map(|(_, peer)| reads_all(peer)).collect();
        run_to_the_end(&mut lp);
        for ((reader, filled), taken) in readers.into_iter().zip(filled).zip(taken.take()) {
            let all = reader.join().expect("a peer that reads");
            assert_eq!(all.len(), filled + taken + 2);
            assert!(all[filled..][..taken].iter().all(|byte| *byte == 7) && all.ends_with(b"xy"));
        }
        tcps.into_iter().for_each(|tcp| tcp.close(&mut lp).unwrap());
        finish(lp);
    }
    Ok(())
}

/// Fills a stream whose socket is full with coalesced writes, and returns the accepted number of
/// bytes. When all bytes are sent, `x` and `y` follow.
fn fill_batch(lp: &mut Loop, tcp: Tcp) -> usize {
    let mut taken = 0;
    let refused = loop {
        match tcp.write_coalesced(lp, &[7; 100]) {
            Ok(count) => taken += count,
            Err(error) => break error,
        }
        assert!(taken < 1 << 20, "the number of bytes is not limited");
    };
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    // The kernel may have accepted some bytes after all.
    assert!(tcp.write_queue_size(lp) <= taken);
    tcp.write(lp, "x", |lp, tcp, result, _| {
        result.unwrap();
        assert_eq!(tcp.write_coalesced(lp, b"y").unwrap(), 1, "the socket is writable again");
        tcp.shutdown(lp, |_, _, result| result.unwrap()).unwrap();
    })
    .unwrap();
    taken
}

/// Coalesced writes made after the poll are sent at the end of the run. A shutdown behind them
/// completes in the next run.
pub fn a_shutdown_follows_coalesced_writes_into_the_next_run(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let callbacks = Log::default();
    let log = callbacks.clone();
    let answered = tcp.read_start(&mut lp, move |lp, tcp, bytes| {
        assert_eq!(bytes.unwrap(), b"?");
        tcp.read_stop(lp).unwrap();
        assert_eq!(tcp.write_coalesced(lp, b"answer").unwrap(), 6);
        tcp.shutdown(lp, log.ended("shutdown")).unwrap();
        log.push(("question", "read"));
    });
    answered.unwrap();
    send(&peer, b"?");
    let reader = reads_all(peer);
    while callbacks.len() == 0 {
        run(&mut lp, RunMode::NoWait);
    }
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [("question", "read"), ("shutdown", "done")]);
    assert_eq!(reader.join().expect("a peer that reads"), b"answer");
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Coalesced writes to a lost peer end, together with the writes queued behind them. A close
/// meanwhile does not block.
pub fn coalesced_writes_to_a_lost_peer_end(lab: &Lab) -> Verdict {
    let large: Arc<[u8]> = vec![1; OVER_STREAM_BUFFERS].into();
    for (count, closes) in TOGETHER.into_iter().flat_map(|count| [(count, false), (count, true)]) {
        let mut lp = new_loop(lab)?;
        let (tcps, peers): (Vec<_>, Vec<_>) = (0..count).map(|_| connected(&mut lp)).unzip();
        for tcp in &tcps {
            fill_up(&mut lp, *tcp);
        }
        let callbacks = Log::default();
        let (all, log, large) = (tcps.clone(), callbacks.clone(), Arc::clone(&large));
        lp.defer(move |lp| {
            for tcp in all {
                let _ = tcp.write_coalesced(lp, b"lost");
                tcp.write(lp, Arc::clone(&large), log.written("write")).unwrap();
            }
        });
        // The writes are in flight, and blocked.
        for _ in 0..3 {
            run(&mut lp, RunMode::NoWait);
        }
        // With unread data, this is a reset.
        drop(peers);
        if closes {
            tcps.iter().for_each(|tcp| tcp.close(&mut lp).unwrap());
        }
        run_to_the_end(&mut lp);
        let ends: Vec<_> = callbacks.take().into_iter().map(|(_, how)| how).collect();
        let allowed = |how: &&str| *how == "failed" || (closes && *how == "cancelled");
        assert!(ends.len() == count && ends.iter().all(allowed), "{ends:?}");
        if !closes {
            assert!(tcps.iter().all(|tcp| tcp.write_queue_size(&lp) == 0));
            tcps.into_iter().for_each(|tcp| tcp.close(&mut lp).unwrap());
        }
        finish(lp);
    }
    Ok(())
}

/// Responses made of coalesced writes equal the requests, for any sizes.
pub fn a_coalesced_echo_is_complete(lab: &Lab) -> Verdict {
    fn echo(lp: &mut Loop, server: Tcp, bytes: &[u8]) {
        let taken = match server.write_coalesced(lp, bytes) {
            Ok(taken) => taken,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                0
            }
        };
        if taken < bytes.len() {
            let rest = bytes[taken..].to_vec();
            server.write(lp, rest, |_, _, result, _| result.unwrap()).unwrap();
        }
    }
    let mut lp = new_loop(lab)?;
    let (client, server) = both_ends(&mut lp);
    let echoing = server.read_start(&mut lp, |lp, server, bytes| match bytes.unwrap() {
        [] => server.shutdown(lp, |lp, server, _| server.close(lp).unwrap()).unwrap(),
        // Parts of all sizes, several of them in one batch.
        bytes => bytes.chunks(1 + bytes.len() / 3).for_each(|part| echo(lp, server, part)),
    });
    echoing.unwrap();
    let sent: Arc<[u8]> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
    for part in sent.chunks(1_000) {
        client.write(&mut lp, part.to_vec(), |_, _, result, _| result.unwrap()).unwrap();
    }
    read_the_echo(lp, client, &sent);
    Ok(())
}
