//! Writing, and the queue of unsent data.

use std::io::{ErrorKind, IoSlice, Read as _};
use std::sync::Arc;
use std::thread;

use uv_core::{Handle, RunMode, Stream, Tcp};

use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::streams::{
    OVER_STREAM_BUFFERS, both_ends, connected, fill_up, finish, outcome, read_the_echo, refusal,
    runs,
};
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// Writes are sent and call back in order, never inline, even those that were sent immediately.
/// Writing does not make a stream active.
pub fn writes_call_back_in_order(lab: &Lab) -> Verdict {
    const SIZE: usize = 20_000;
    let mut lp = new_loop(lab)?;
    let (one, other) = both_ends(&mut lp);
    let callbacks = Log::default();
    for number in 0..100_u8 {
        one.write(&mut lp, vec![number; SIZE], callbacks.written(number)).unwrap();
    }
    assert_eq!(callbacks.len(), 0, "no callback runs inline");
    assert!(!one.is_active(&lp) && lp.is_alive(), "the requests keep the loop alive");
    let mut received = 0;
    let started = other.read_start(&mut lp, move |lp, other, bytes| {
        for (byte, length) in runs(bytes.unwrap()) {
            assert_eq!(usize::from(byte), received / SIZE, "in order");
            assert!(received % SIZE + length <= SIZE, "no byte too many");
            received += length;
        }
        if received == 100 * SIZE {
            other.close(lp).unwrap();
        }
    });
    started.unwrap();
    run_to_the_end(&mut lp);
    let expected: Vec<_> = (0..100).map(|number| (number, "done")).collect();
    assert_eq!(callbacks.take(), expected);
    one.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A write owns its buffer, of any type, and returns it. Several slices, empty ones included, are
/// sent like one.
pub fn writes_return_their_buffers(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    let callbacks = Log::default();
    macro_rules! write {
        ($name:literal, $buffer:expr) => {
            let (expected, callbacks) = ($buffer, callbacks.clone());
            tcp.write(&mut lp, $buffer, move |_, _, result, buffer| {
                result.unwrap();
                assert!(buffer == expected, "{} is returned unchanged", $name);
                callbacks.push($name);
            })
            .unwrap();
        };
    }
    let shared: Arc<[u8]> = Arc::from(&b"5"[..]);
    write!("vector", b"1".to_vec());
    write!("box", b"2".to_vec().into_boxed_slice());
    write!("text", "3");
    write!("string", String::from("4"));
    write!("shared", Arc::clone(&shared));
    write!("array", ["6", "", "78"]);
    write!("list", vec![b"9".to_vec(); 300]);
    write!("nothing", "");
    let none = Vec::<Vec<u8>>::new();
    assert_eq!(refusal(tcp.write(&mut lp, none, |_, _, _, _| {})), ErrorKind::InvalidInput);
    run_to_the_end(&mut lp);
    let expected = ["vector", "box", "text", "string", "shared", "array", "list", "nothing"];
    assert_eq!(callbacks.take(), expected);
    assert_eq!(Arc::strong_count(&shared), 1, "no buffer is kept");
    tcp.close(&mut lp).unwrap();
    finish(lp);
    let mut all = String::new();
    peer.read_to_string(&mut all).expect("an orderly end");
    assert_eq!(all, format!("12345678{}", "9".repeat(300)));
    Ok(())
}

/// The queue size counts unsent bytes: it decreases as bytes are sent, and excludes a write whose
/// callback runs.
pub fn the_queue_size_counts_unsent_bytes(lab: &Lab) -> Verdict {
    const LARGE: usize = 8 << 20;
    const SMALL: usize = 200;
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    tcp.write(&mut lp, "small", |_, _, result, _| result.unwrap()).unwrap();
    assert_eq!(tcp.write_queue_size(&lp), 0, "the kernel has it");
    run_to_the_end(&mut lp);
    let filled = fill_up(&mut lp, tcp);
    let sizes = Log::default();
    // The kernel may accept some more bytes, but not this many.
    for size in [LARGE, SMALL] {
        let note = sizes.clone();
        tcp.write(&mut lp, vec![1; size], move |lp, tcp, result, _| {
            result.unwrap();
            note.push(tcp.write_queue_size(lp));
        })
        .unwrap();
    }
    let queued = tcp.write_queue_size(&lp);
    assert!((SMALL + 1..=LARGE + SMALL).contains(&queued), "{queued} bytes are queued");
    let reader = thread::spawn(move || {
        peer.read_exact(&mut vec![0; filled + 5 + LARGE + SMALL]).expect("all that was written");
        peer
    });
    run_to_the_end(&mut lp);
    let sizes = sizes.take();
    assert!(sizes.len() == 2 && sizes[0] <= SMALL && sizes[1] == 0, "{sizes:?} in the callbacks");
    drop(reader.join().expect("a peer that reads"));
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// `try_write` writes as much as the kernel accepts, and never queues the rest. It does not
/// overtake queued writes.
pub fn try_write_never_queues(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, _peer) = connected(&mut lp);
    assert_eq!(tcp.try_write(&mut lp, b"abc").unwrap(), 3);
    let pieces = [IoSlice::new(b"de"), IoSlice::new(b""), IoSlice::new(b"f")];
    assert_eq!(tcp.try_write_vectored(&mut lp, &pieces).unwrap(), 3);
    assert_eq!(tcp.try_write(&mut lp, b"").unwrap(), 0, "an empty write succeeds");
    assert_eq!(tcp.try_write_vectored(&mut lp, &[]).unwrap(), 0, "of no buffers, too");
    assert!(fill_up(&mut lp, tcp) > 0);
    assert_eq!(tcp.write_queue_size(&lp), 0);
    assert!(!lp.is_alive(), "there is no request");
    let write = tcp.write(&mut lp, vec![1; OVER_STREAM_BUFFERS], |_, _, _, _| {}).unwrap();
    let queued = tcp.write_queue_size(&lp);
    assert_eq!(refusal(tcp.try_write(&mut lp, b"x")), ErrorKind::WouldBlock);
    assert_eq!(tcp.write_queue_size(&lp), queued);
    write.cancel(&mut lp).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(tcp.write_queue_size(&lp), 0);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A write behind queued writes is sent after them, even if the socket became writable meanwhile
/// and the loop has not noticed. `try_write` is refused.
pub fn nothing_overtakes_queued_writes(lab: &Lab) -> Verdict {
    const SIZE: usize = 8 << 20;
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    let filled = fill_up(&mut lp, tcp);
    let callbacks = Log::default();
    tcp.write(&mut lp, vec![1; SIZE], callbacks.written("first")).unwrap();
    assert!(tcp.write_queue_size(&lp) > 0, "it waits");
    // The peer reads all sent data while the loop does not run.
    let mut got = SIZE - tcp.write_queue_size(&lp);
    peer.read_exact(&mut vec![0; filled + got]).expect("the sent data");
    assert_eq!(refusal(tcp.try_write(&mut lp, &[2; 10])), ErrorKind::WouldBlock);
    tcp.write(&mut lp, vec![3; 10], callbacks.written("second")).unwrap();
    assert_eq!(refusal(tcp.try_write(&mut lp, &[2; 10])), ErrorKind::WouldBlock);
    let reader = thread::spawn(move || {
        let mut rest = vec![0; SIZE - got + 10];
        peer.read_exact(&mut rest).expect("all that was written");
        got +=
            runs(&rest).take_while(|(byte, _)| *byte == 1).map(|(_, length)| length).sum::<usize>();
        (got, rest.split_off(rest.len() - 10))
    });
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [("first", "done"), ("second", "done")]);
    assert_eq!(reader.join().expect("a peer that reads"), (SIZE, vec![3; 10]));
    assert_eq!(tcp.try_write(&mut lp, b"x").unwrap(), 1, "nothing waits any more");
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A queued write can be cancelled: none of its bytes are sent, the other writes are, and its
/// callback does not wait for earlier ones.
pub fn queued_writes_can_be_cancelled(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    fill_up(&mut lp, tcp);
    let callbacks = Log::default();
    // Large enough that the second write cannot start.
    tcp.write(&mut lp, vec![1; OVER_STREAM_BUFFERS], callbacks.written("first")).unwrap();
    let second = tcp.write(&mut lp, vec![2; 100], callbacks.written("second")).unwrap();
    tcp.write(&mut lp, vec![3; 100], callbacks.written("third")).unwrap();
    let queued = tcp.write_queue_size(&lp);
    assert_eq!(second.cancel(&mut lp).unwrap(), 0, "none of it was written");
    assert_eq!(refusal(second.cancel(&mut lp)), ErrorKind::NotFound);
    assert_eq!(callbacks.len(), 0, "no callback runs inline");
    run(&mut lp, RunMode::NoWait);
    assert_eq!(callbacks.take(), [("second", "cancelled")], "before the first");
    assert!(tcp.write_queue_size(&lp) <= queued - 100);
    tcp.shutdown(&mut lp, callbacks.ended("shutdown")).unwrap();
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).expect("an orderly end");
        all
    });
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [("first", "done"), ("third", "done"), ("shutdown", "done")]);
    let all = reader.join().expect("a peer that reads");
    let received: Vec<_> = runs(&all).collect();
    assert!(received.ends_with(&[(1, OVER_STREAM_BUFFERS), (3, 100)]), "{received:?}");
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A partial write can be cancelled: exactly the number of bytes that `cancel` returns arrives.
pub fn a_partial_write_can_be_cancelled(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    let callbacks = Log::default();
    let log = callbacks.clone();
    let write = tcp.write(&mut lp, vec![1; OVER_STREAM_BUFFERS], move |_, _, result, buffer| {
        log.push((outcome(&result), buffer.len()));
    });
    let queued = tcp.write_queue_size(&lp);
    let written = write.unwrap().cancel(&mut lp).unwrap();
    assert!(written > 0, "the kernel accepts a part immediately");
    assert_eq!(written, OVER_STREAM_BUFFERS - queued);
    run_to_the_end(&mut lp);
    assert_eq!(
        callbacks.take(),
        [("cancelled", OVER_STREAM_BUFFERS)],
        "the whole buffer is returned"
    );
    assert_eq!(tcp.write_queue_size(&lp), 0);
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).expect("an orderly end");
        all.len()
    });
    tcp.close(&mut lp).unwrap();
    finish(lp);
    assert_eq!(reader.join().expect("a peer that reads"), written);
    Ok(())
}

/// When the peer is lost, the queued writes fail in order, and the queue is empty afterwards.
pub fn writes_to_a_lost_peer_fail(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    fill_up(&mut lp, tcp);
    let callbacks = Log::default();
    for name in ["first", "second", "third"] {
        tcp.write(&mut lp, vec![1; OVER_STREAM_BUFFERS / 4], callbacks.written(name)).unwrap();
    }
    run(&mut lp, RunMode::NoWait);
    assert_eq!(callbacks.len(), 0, "the peer does not read");
    // With unread data, this is a reset.
    drop(peer);
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [("first", "failed"), ("second", "failed"), ("third", "failed")]);
    assert_eq!(tcp.write_queue_size(&lp), 0);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A shutdown waits until the queue is sent, and calls back after it. The peer reads all data, and
/// then the end of file.
pub fn a_shutdown_waits_for_the_queue(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    let callbacks = Log::default();
    tcp.write(&mut lp, vec![1; OVER_STREAM_BUFFERS], callbacks.written("first")).unwrap();
    tcp.write(&mut lp, vec![1; 10], callbacks.written("second")).unwrap();
    tcp.shutdown(&mut lp, callbacks.ended("shutdown")).unwrap();
    run(&mut lp, RunMode::NoWait);
    assert_eq!(callbacks.len(), 0, "the peer does not read");
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).expect("an orderly end");
        all.len()
    });
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [("first", "done"), ("second", "done"), ("shutdown", "done")]);
    assert_eq!(reader.join().expect("a peer that reads"), OVER_STREAM_BUFFERS + 10);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A shutdown calls back after a write that is sent but has not called back. Both are requested in
/// the callback of an earlier write, which was sent immediately, or had to wait.
pub fn a_shutdown_is_reported_after_all_writes(lab: &Lab) -> Verdict {
    for size in [1, OVER_STREAM_BUFFERS] {
        let mut lp = new_loop(lab)?;
        let (tcp, mut peer) = connected(&mut lp);
        let reader = thread::spawn(move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).map(|_| all)
        });
        let callbacks = Log::default();
        let log = callbacks.clone();
        tcp.write(&mut lp, vec![1; size], move |lp, tcp: Tcp, result, _| {
            log.push(("first", outcome(&result)));
            tcp.write(lp, vec![2], log.written("second")).unwrap();
            tcp.shutdown(lp, log.ended("shutdown")).unwrap();
        })
        .unwrap();
        run_to_the_end(&mut lp);
        let expected = [("first", "done"), ("second", "done"), ("shutdown", "done")];
        assert_eq!(callbacks.take(), expected, "behind a write of {size} bytes");
        let all = reader.join().expect("a peer that reads").expect("an orderly end");
        assert_eq!(all.len(), size + 1);
        assert_eq!(all.last(), Some(&2));
        tcp.close(&mut lp).unwrap();
        finish(lp);
    }
    Ok(())
}

/// A stream accepts one shutdown, which calls back later even if the queue is empty. The stream is
/// not writable after the call.
pub fn a_second_shutdown_is_an_error(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, _peer) = connected(&mut lp);
    let callbacks = Log::default();
    tcp.shutdown(&mut lp, callbacks.ended("shutdown")).unwrap();
    assert_eq!(callbacks.len(), 0, "no callback runs inline");
    for time in ["before", "after"] {
        let lp = &mut lp;
        assert!(!tcp.is_writable(lp), "{time} the callback");
        assert_eq!(refusal(tcp.shutdown(lp, |_, _, _| {})), ErrorKind::NotConnected);
        assert_eq!(refusal(tcp.write(lp, "x", |_, _, _, _| {})), ErrorKind::BrokenPipe);
        assert_eq!(refusal(tcp.try_write(lp, b"x")), ErrorKind::BrokenPipe);
        run_to_the_end(lp);
    }
    assert_eq!(callbacks.take(), [("shutdown", "done")]);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A shutdown ends one direction: the stream still reads from its peer.
pub fn a_shutdown_leaves_the_stream_readable(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (one, other) = both_ends(&mut lp);
    let got = Log::default();
    other
        .read_start(&mut lp, |lp, other, bytes| {
            if bytes.unwrap().is_empty() {
                other.write(lp, "answer", |lp, other, _, _| other.close(lp).unwrap()).unwrap();
            }
        })
        .unwrap();
    let gathered = got.clone();
    one.shutdown(&mut lp, move |lp, one, result| {
        result.unwrap();
        assert!(one.is_readable(lp) && !one.is_writable(lp));
        let started = one.read_start(lp, move |lp, one, bytes| match bytes.unwrap() {
            [] => one.close(lp).unwrap(),
            bytes => gathered.extend(bytes.iter().copied()),
        });
        started.unwrap();
    })
    .unwrap();
    finish(lp);
    assert_eq!(got.take(), b"answer");
    Ok(())
}

/// A blocking stream has sent all bytes when `write` returns. The callback still runs later.
pub fn a_blocking_stream_writes_synchronously(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    tcp.set_blocking(&mut lp, true).unwrap();
    let reader = thread::spawn(move || {
        peer.read_exact(&mut vec![0; OVER_STREAM_BUFFERS]).expect("all of it");
        peer
    });
    let callbacks = Log::default();
    tcp.write(&mut lp, vec![1; OVER_STREAM_BUFFERS], callbacks.written("write")).unwrap();
    assert_eq!((tcp.write_queue_size(&lp), callbacks.len()), (0, 0));
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [("write", "done")]);
    drop(reader.join().expect("a peer that reads"));
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// An echo returns all bytes in order, for any write sizes.
pub fn an_echo_is_complete(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (client, server) = both_ends(&mut lp);
    let echoing = server.read_start(&mut lp, |lp, server, bytes| match bytes.unwrap() {
        [] => server.shutdown(lp, |lp, server, _| server.close(lp).unwrap()).unwrap(),
        bytes => drop(server.write(lp, bytes.to_vec(), |_, _, result, _| result.unwrap()).unwrap()),
    });
    echoing.unwrap();
    let sent: Arc<[u8]> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
    client.write(&mut lp, Arc::clone(&sent), |_, _, result, _| result.unwrap()).unwrap();
    read_the_echo(lp, client, &sent);
    Ok(())
}
