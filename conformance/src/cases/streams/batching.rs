//! What callbacks write is taken and sent together, where the backend sends.

use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;

use poll_core::Backend;
use uv_core::{Handle, Loop, RunMode, Stream, Tcp};

use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::sources::send;
use crate::support::streams::{TOO_MUCH, both_ends, connected, fill_up, finish, read_the_echo};
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// What a peer reads until the end, on a thread of its own.
fn reads_all(mut peer: TcpStream) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).expect("an orderly end");
        all
    })
}

/// How many streams write together: what is written by one alone is sent otherwise.
const TOGETHER: [usize; 2] = [1, 5];

/// So many connections, and what their peers have read at the end.
fn connections<T: Backend>(
    lp: &mut Loop<T>,
    count: usize,
) -> (Vec<Tcp>, Vec<thread::JoinHandle<Vec<u8>>>) {
    (0..count).map(|_| connected(lp)).map(|(tcp, peer)| (tcp, reads_all(peer))).unzip()
}

/// What is written in a batch arrives in the order of all writes, keeps the loop alive until it
/// has left, and a shutdown waits for it.
pub fn batches_keep_the_order<T: Backend>(lab: &Lab<T>) -> Verdict {
    for count in TOGETHER {
        let mut lp = new_loop(lab)?;
        let (tcps, readers) = connections(&mut lp, count);
        let told = Log::default();
        let (all, tell) = (tcps.clone(), told.clone());
        lp.defer(move |lp| {
            for tcp in all {
                assert_eq!(tcp.write_batched(lp, b"one ").unwrap(), 4);
                assert_eq!(tcp.write_batched(lp, b"two ").unwrap(), 4);
                tcp.write(lp, "three ", tell.written("three")).unwrap();
                tcp.write(lp, vec!["four", " "], tell.written("four")).unwrap();
                tcp.shutdown(lp, tell.ended("shutdown")).unwrap();
            }
        });
        run_to_the_end(&mut lp);
        let told = told.take();
        assert!(told.len() == 3 * count && told.iter().all(|(_, how)| *how == "done"), "{told:?}");
        for (tcp, reader) in tcps.into_iter().zip(readers) {
            assert_eq!(tcp.write_queue_size(&lp), 0);
            assert_eq!(reader.join().expect("a peer that reads"), b"one two three four ");
            tcp.close(&mut lp).unwrap();
        }
        finish(lp);
    }
    Ok(())
}

/// A shutdown and a close let go what was taken before them, be it on its way already or not.
pub fn a_batch_leaves_before_an_end<T: Backend>(lab: &Lab<T>) -> Verdict {
    for count in TOGETHER {
        let mut lp = new_loop(lab)?;
        let (tcps, readers) = connections(&mut lp, count);
        lp.defer(move |lp| {
            for (index, tcp) in tcps.into_iter().enumerate() {
                assert_eq!(tcp.write_batched(lp, b"farewell").unwrap(), 8);
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

/// What was taken leaves also if the loop is stopped, and outside of callbacks at once.
pub fn a_batch_leaves_before_the_loop_returns<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    assert_eq!(tcp.write_batched(&mut lp, b"before").unwrap(), 6);
    assert_eq!(tcp.write_queue_size(&lp), 0, "nothing would send it later");
    lp.defer(move |lp| {
        assert_eq!(tcp.write_batched(lp, b" after").unwrap(), 6);
        lp.stop();
    });
    run(&mut lp, RunMode::Default);
    let mut got = [0; 12];
    peer.read_exact(&mut got).expect("what was written");
    assert_eq!(&got, b"before after");
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A stream that has no room takes little or nothing, says so, and all that it took arrives.
pub fn a_full_stream_takes_no_more<T: Backend>(lab: &Lab<T>) -> Verdict {
    for count in TOGETHER {
        let mut lp = new_loop(lab)?;
        let ends: Vec<_> = (0..count).map(|_| connected(&mut lp)).collect();
        let tcps: Vec<_> = ends.iter().map(|(tcp, _)| *tcp).collect();
        let filled: Vec<_> = tcps.iter().map(|tcp| fill_up(&mut lp, *tcp)).collect();
        let taken = Log::default();
        let (all, take) = (tcps.clone(), taken.clone());
        lp.defer(move |lp| all.into_iter().for_each(|tcp| take.push(fill_batch(lp, tcp))));
        // They are on their way, and get nowhere.
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

/// Has a stream without room take as much as it does, and returns how much that was. When all of
/// it has left, `x` and `y` follow.
fn fill_batch<T: Backend>(lp: &mut Loop<T>, tcp: Tcp) -> usize {
    let mut taken = 0;
    let refused = loop {
        match tcp.write_batched(lp, &[7; 100]) {
            Ok(count) => taken += count,
            Err(error) => break error,
        }
        assert!(taken < 1 << 20, "there is an end to it");
    };
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    // The kernel may have found some room after all.
    assert!(tcp.write_queue_size(lp) <= taken);
    tcp.write(lp, "x", |lp, tcp, result, _| {
        result.unwrap();
        assert_eq!(tcp.write_batched(lp, b"y").unwrap(), 1, "there is room again");
        tcp.shutdown(lp, |_, _, result| result.unwrap()).unwrap();
    })
    .unwrap();
    taken
}

/// A batch that is written when the loop has waited leaves at the end of the run, and a shutdown
/// that waits for it is not forgotten.
pub fn a_shutdown_follows_a_batch_into_the_next_run<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    let told = Log::default();
    let tell = told.clone();
    let answered = tcp.read_start(&mut lp, move |lp, tcp, bytes| {
        assert_eq!(bytes.unwrap(), b"?");
        tcp.read_stop(lp).unwrap();
        assert_eq!(tcp.write_batched(lp, b"answer").unwrap(), 6);
        tcp.shutdown(lp, tell.ended("shutdown")).unwrap();
        tell.push(("question", "read"));
    });
    answered.unwrap();
    send(&peer, b"?");
    let reader = reads_all(peer);
    while told.len() == 0 {
        run(&mut lp, RunMode::NoWait);
    }
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [("question", "read"), ("shutdown", "done")]);
    assert_eq!(reader.join().expect("a peer that reads"), b"answer");
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A batch whose peer is gone is over, with what is queued behind it, and a close in the middle
/// of it all waits for nobody.
pub fn batches_to_a_lost_peer_end<T: Backend>(lab: &Lab<T>) -> Verdict {
    let much: Arc<[u8]> = vec![1; TOO_MUCH].into();
    for (count, closes) in TOGETHER.into_iter().flat_map(|count| [(count, false), (count, true)]) {
        let mut lp = new_loop(lab)?;
        let (tcps, peers): (Vec<_>, Vec<_>) = (0..count).map(|_| connected(&mut lp)).unzip();
        for tcp in &tcps {
            fill_up(&mut lp, *tcp);
        }
        let told = Log::default();
        let (all, tell, much) = (tcps.clone(), told.clone(), Arc::clone(&much));
        lp.defer(move |lp| {
            for tcp in all {
                let _ = tcp.write_batched(lp, b"lost");
                tcp.write(lp, Arc::clone(&much), tell.written("write")).unwrap();
            }
        });
        // They are on their way, and get nowhere.
        for _ in 0..3 {
            run(&mut lp, RunMode::NoWait);
        }
        // With data unread, this is a reset.
        drop(peers);
        if closes {
            tcps.iter().for_each(|tcp| tcp.close(&mut lp).unwrap());
        }
        run_to_the_end(&mut lp);
        let ends: Vec<_> = told.take().into_iter().map(|(_, how)| how).collect();
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

/// Answers that are written in batches are what was asked, whatever the pieces.
pub fn a_batched_echo_comes_back_whole<T: Backend>(lab: &Lab<T>) -> Verdict {
    fn echo<T: Backend>(lp: &mut Loop<T>, server: Tcp, bytes: &[u8]) {
        let taken = match server.write_batched(lp, bytes) {
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
        // Pieces of all sizes, several of them to one batch.
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
