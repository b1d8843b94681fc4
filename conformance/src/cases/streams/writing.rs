//! Writing, and what becomes of what cannot be written yet.

use std::io::{ErrorKind, IoSlice, Read as _};
use std::sync::Arc;
use std::thread;

use poll_core::Backend;
use uv_core::{Handle, RunMode, Stream};

use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::streams::{
    TOO_MUCH, both_ends, connected, fill_up, finish, outcome, read_the_echo, refusal,
};
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// Writes arrive and call back in the order they were made, never inline, even those that
/// were written at once. Writing does not make a stream active.
pub fn writes_call_back_in_order<T: Backend>(lab: &Lab<T>) -> Verdict {
    const SIZE: usize = 20_000;
    let mut lp = new_loop(lab)?;
    let (one, other) = both_ends(&mut lp);
    let told = Log::default();
    for number in 0..100_u8 {
        one.write(&mut lp, vec![number; SIZE], told.written(number)).unwrap();
    }
    assert_eq!(told.len(), 0, "nothing is told inline");
    assert!(!one.is_active(&lp) && lp.alive(), "the requests keep the loop alive");
    let mut expected = (0..100).flat_map(|number| [number; SIZE]);
    let mut left = 100 * SIZE;
    let started = other.read_start(&mut lp, move |lp, other, bytes| {
        let bytes = bytes.unwrap();
        assert!(bytes.iter().all(|byte| expected.next() == Some(*byte)), "in order");
        left -= bytes.len();
        if left == 0 {
            other.close(lp).unwrap();
        }
    });
    started.unwrap();
    run_to_the_end(&mut lp);
    let expected: Vec<_> = (0..100).map(|number| (number, "done")).collect();
    assert_eq!(told.take(), expected);
    one.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A write owns its buffer, of whatever kind, and hands it back. Several pieces, empty ones
/// among them, are sent as if they were one.
pub fn writes_hand_their_buffers_back<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    let told = Log::default();
    macro_rules! write {
        ($name:literal, $buffer:expr) => {
            let (expected, told) = ($buffer, told.clone());
            tcp.write(&mut lp, $buffer, move |_, _, result, buffer| {
                result.unwrap();
                assert!(buffer == expected, "{} comes back as it was", $name);
                told.push($name);
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
    assert_eq!(told.take(), expected);
    assert_eq!(Arc::strong_count(&shared), 1, "no buffer is kept");
    tcp.close(&mut lp).unwrap();
    finish(lp);
    let mut all = String::new();
    peer.read_to_string(&mut all).expect("an orderly end");
    assert_eq!(all, format!("12345678{}", "9".repeat(300)));
    Ok(())
}

/// The queue's size is what has not left yet: it falls as bytes leave, and a write is off it
/// when its callback comes.
pub fn the_queue_size_is_what_has_not_left<T: Backend>(lab: &Lab<T>) -> Verdict {
    const LARGE: usize = 8 << 20;
    const SMALL: usize = 200;
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    tcp.write(&mut lp, "small", |_, _, result, _| result.unwrap()).unwrap();
    assert_eq!(tcp.write_queue_size(&lp), 0, "the kernel has it");
    run_to_the_end(&mut lp);
    let filled = fill_up(&mut lp, tcp);
    let sizes = Log::default();
    // The kernel may find some room after all, but not that much.
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

/// To try to write takes what the kernel takes now, and never queues the rest. It does not
/// overtake what is queued.
pub fn trying_to_write_never_queues<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, _peer) = connected(&mut lp);
    assert_eq!(tcp.try_write(&mut lp, b"abc").unwrap(), 3);
    let pieces = [IoSlice::new(b"de"), IoSlice::new(b""), IoSlice::new(b"f")];
    assert_eq!(tcp.try_write_vectored(&mut lp, &pieces).unwrap(), 3);
    assert_eq!(tcp.try_write(&mut lp, b"").unwrap(), 0, "nothing is written at once");
    assert_eq!(tcp.try_write_vectored(&mut lp, &[]).unwrap(), 0, "of no buffers, too");
    assert!(fill_up(&mut lp, tcp) > 0);
    assert_eq!(tcp.write_queue_size(&lp), 0);
    assert!(!lp.alive(), "there is no request");
    let write = tcp.write(&mut lp, vec![1; TOO_MUCH], |_, _, _, _| {}).unwrap();
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

/// What is written while others wait comes after them, also if there is room again by then and
/// the loop does not know yet. An immediate write is refused.
pub fn nothing_overtakes_what_is_queued<T: Backend>(lab: &Lab<T>) -> Verdict {
    const SIZE: usize = 8 << 20;
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    let filled = fill_up(&mut lp, tcp);
    let told = Log::default();
    tcp.write(&mut lp, vec![1; SIZE], told.written("first")).unwrap();
    assert!(tcp.write_queue_size(&lp) > 0, "it waits");
    // The peer takes all that there is, while the loop does not run.
    let mut got = SIZE - tcp.write_queue_size(&lp);
    peer.read_exact(&mut vec![0; filled + got]).expect("what was sent");
    assert_eq!(refusal(tcp.try_write(&mut lp, &[2; 10])), ErrorKind::WouldBlock);
    tcp.write(&mut lp, vec![3; 10], told.written("second")).unwrap();
    assert_eq!(refusal(tcp.try_write(&mut lp, &[2; 10])), ErrorKind::WouldBlock);
    let reader = thread::spawn(move || {
        let mut rest = vec![0; SIZE - got + 10];
        peer.read_exact(&mut rest).expect("all that was written");
        got += rest.iter().take_while(|byte| **byte == 1).count();
        (got, rest.split_off(rest.len() - 10))
    });
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [("first", "done"), ("second", "done")]);
    assert_eq!(reader.join().expect("a peer that reads"), (SIZE, vec![3; 10]));
    assert_eq!(tcp.try_write(&mut lp, b"x").unwrap(), 1, "nothing waits any more");
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A write that waits can be cancelled: none of it is sent, the others are, and its
/// callback does not wait for those before it.
pub fn queued_writes_can_be_cancelled<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    fill_up(&mut lp, tcp);
    let told = Log::default();
    // So much that the second cannot begin.
    tcp.write(&mut lp, vec![1; TOO_MUCH], told.written("first")).unwrap();
    let second = tcp.write(&mut lp, vec![2; 100], told.written("second")).unwrap();
    tcp.write(&mut lp, vec![3; 100], told.written("third")).unwrap();
    let queued = tcp.write_queue_size(&lp);
    assert_eq!(second.cancel(&mut lp).unwrap(), 0, "nothing of it was written");
    assert_eq!(refusal(second.cancel(&mut lp)), ErrorKind::NotFound);
    assert_eq!(told.len(), 0, "nothing is told inline");
    run(&mut lp, RunMode::NoWait);
    assert_eq!(told.take(), [("second", "cancelled")], "before the first");
    assert!(tcp.write_queue_size(&lp) <= queued - 100);
    tcp.shutdown(&mut lp, told.ended("shutdown")).unwrap();
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).expect("an orderly end");
        all
    });
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [("first", "done"), ("third", "done"), ("shutdown", "done")]);
    let all = reader.join().expect("a peer that reads");
    let count = |wanted| all.iter().filter(|byte| **byte == wanted).count();
    assert_eq!([count(1), count(2), count(3)], [TOO_MUCH, 0, 100]);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A write of which a part has left can be cancelled: exactly the part that `cancel` tells
/// arrives.
pub fn a_half_written_write_can_be_cancelled<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    let told = Log::default();
    let tell = told.clone();
    let write = tcp.write(&mut lp, vec![1; TOO_MUCH], move |_, _, result, buffer| {
        tell.push((outcome(&result), buffer.len()));
    });
    let queued = tcp.write_queue_size(&lp);
    let written = write.unwrap().cancel(&mut lp).unwrap();
    assert!(written > 0, "the kernel takes some at once");
    assert_eq!(written, TOO_MUCH - queued);
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [("cancelled", TOO_MUCH)], "the buffer comes back whole");
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

/// When the peer is lost, what is queued fails in order, and the queue is empty then.
pub fn writes_to_a_lost_peer_fail<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    fill_up(&mut lp, tcp);
    let told = Log::default();
    for name in ["first", "second", "third"] {
        tcp.write(&mut lp, vec![1; TOO_MUCH / 4], told.written(name)).unwrap();
    }
    run(&mut lp, RunMode::NoWait);
    assert_eq!(told.len(), 0, "nobody reads");
    // With data unread, this is a reset.
    drop(peer);
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [("first", "failed"), ("second", "failed"), ("third", "failed")]);
    assert_eq!(tcp.write_queue_size(&lp), 0);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A shutdown waits until all that is queued has left, and is told after it; the peer reads
/// everything, and then the end.
pub fn a_shutdown_waits_for_the_queue<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    let told = Log::default();
    tcp.write(&mut lp, vec![1; TOO_MUCH], told.written("first")).unwrap();
    tcp.write(&mut lp, vec![1; 10], told.written("second")).unwrap();
    tcp.shutdown(&mut lp, told.ended("shutdown")).unwrap();
    run(&mut lp, RunMode::NoWait);
    assert_eq!(told.len(), 0, "nobody reads");
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        peer.read_to_end(&mut all).expect("an orderly end");
        all.len()
    });
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [("first", "done"), ("second", "done"), ("shutdown", "done")]);
    assert_eq!(reader.join().expect("a peer that reads"), TOO_MUCH + 10);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// There is one shutdown, told later even if nothing is queued. From the call on the stream
/// is not writable.
pub fn a_shutdown_happens_once<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, _peer) = connected(&mut lp);
    let told = Log::default();
    tcp.shutdown(&mut lp, told.ended("shutdown")).unwrap();
    assert_eq!(told.len(), 0, "nothing is told inline");
    for time in ["before", "after"] {
        let lp = &mut lp;
        assert!(!tcp.is_writable(lp), "{time} the callback");
        assert_eq!(refusal(tcp.shutdown(lp, |_, _, _| {})), ErrorKind::NotConnected);
        assert_eq!(refusal(tcp.write(lp, "x", |_, _, _, _| {})), ErrorKind::BrokenPipe);
        assert_eq!(refusal(tcp.try_write(lp, b"x")), ErrorKind::BrokenPipe);
        run_to_the_end(lp);
    }
    assert_eq!(told.take(), [("shutdown", "done")]);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A shutdown ends one direction: what the peer then says can be read.
pub fn a_shutdown_leaves_reading<T: Backend>(lab: &Lab<T>) -> Verdict {
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

/// A stream that is made blocking has written all when `write` returns; the callback comes
/// later all the same.
pub fn a_blocking_stream_writes_all_at_once<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    tcp.set_blocking(&mut lp, true).unwrap();
    let reader = thread::spawn(move || {
        peer.read_exact(&mut vec![0; TOO_MUCH]).expect("all of it");
        peer
    });
    let told = Log::default();
    tcp.write(&mut lp, vec![1; TOO_MUCH], told.written("write")).unwrap();
    assert_eq!((tcp.write_queue_size(&lp), told.len()), (0, 0));
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [("write", "done")]);
    drop(reader.join().expect("a peer that reads"));
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// What is written to a stream that writes back is what is read, whatever the pieces.
pub fn an_echo_comes_back_whole<T: Backend>(lab: &Lab<T>) -> Verdict {
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
