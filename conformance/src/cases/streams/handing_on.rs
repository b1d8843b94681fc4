//! Streams that go to another owner, descriptors with two handles, and memory after a flood.

use std::io::{ErrorKind, Write};
use std::net::Shutdown;

use uv_core::{AnyHandle, Handle, Pipe, Poll, PollEvents, Stream, Tcp};

use crate::support::loops::{new_loop, run_to_the_end};
use crate::support::pipes::piping_loop;
use crate::support::sources::{Source, send, tcp_pair};
use crate::support::streams::{connected, run_a_moment, run_until};
#[cfg(all(target_os = "linux", target_env = "gnu"))]
use crate::support::trace::Count;
use crate::support::trace::Log;
use crate::{Lab, Loop, Verdict};

/// Starts reading, and logs each byte. Errors fail the case.
fn read_into<S: Stream>(lp: &mut Loop, stream: S, log: &Log<u8>) {
    let log = log.clone();
    let reading = stream.read_start(lp, move |_, _, bytes| {
        log.extend(bytes.expect("no error").iter().copied());
    });
    reading.expect("a connection to read");
}

/// Bytes that arrive while a connection is stopped are not lost when it is passed over a pipe: the
/// new owner reads them, or passing is refused until the loop's reader has them.
pub fn a_stopped_connection_is_passed_with_its_bytes(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (one, other) = Pipe::pair(&mut lp).expect("a pair");
    one.enable_passing(&mut lp).and(other.enable_passing(&mut lp)).expect("sockets pass handles");
    let ((tcp, mut peer), read) = (connected(&mut lp), Log::default());
    read_into(&mut lp, tcp, &read);
    run_a_moment(&mut lp); // A receive is in flight, where the backend performs it.
    tcp.read_stop(&mut lp).expect("an open stream");
    peer.write_all(b"early ").expect("a write");
    run_a_moment(&mut lp);

    let passed = Log::default();
    let accepted = passed.clone();
    let reading = other.read_start(&mut lp, move |lp, other, _| {
        let handle = other.accept_pending(lp).expect("a handle with the byte");
        let AnyHandle::Tcp(tcp) = handle else { panic!("another kind arrived: {handle:?}") };
        accepted.push(tcp);
    });
    reading.expect("a pipe to read");
    let pass = |lp: &mut Loop| {
        let passed = one.write_with_handles(lp, "x", &[tcp.into()], move |lp, _, result, _| {
            result.expect("a write");
            tcp.close(lp).expect("an open handle");
        });
        passed.map(drop).map_err(|error| error.kind())
    };
    if let Err(kind) = pass(&mut lp) {
        assert_eq!(kind, ErrorKind::ResourceBusy);
        read_into(&mut lp, tcp, &read);
        run_until(&mut lp, "the bytes of the loop", |_| read.len() > 0);
        tcp.read_stop(&mut lp).expect("an open stream");
        assert_eq!(pass(&mut lp), Ok(()), "nothing is left in the loop");
    }
    run_until(&mut lp, "the handle", |_| passed.len() > 0);
    read_into(&mut lp, passed.take()[0], &read);
    peer.write_all(b"late").expect("a write");
    peer.shutdown(Shutdown::Write).expect("a connection");
    run_until(&mut lp, "all bytes", |_| read.len() == 10);
    assert_eq!(read.take(), b"early late");
    lp.walk().into_iter().for_each(|handle| handle.close_if_open(&mut lp));
    run_to_the_end(&mut lp);
    Ok(())
}

/// A stream of a descriptor that a poll watches cannot be read until the poll stops. The poll goes
/// on meanwhile, and nothing is lost.
pub fn a_descriptor_that_is_watched_is_not_read(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (near, far) = tcp_pair();
    let raw = near.raw();
    let tcp = Tcp::new(&mut lp);
    watched_then_read(&mut lp, raw, tcp, &far, |lp| tcp.open(lp, near).expect("a free handle"));
    #[cfg(unix)]
    {
        let (near, far) = std::os::unix::net::UnixStream::pair().expect("a pair of local sockets");
        let raw = near.raw();
        let pipe = Pipe::new(&mut lp);
        let open = |lp: &mut Loop| {
            pipe.open(lp, std::os::fd::OwnedFd::from(near)).expect("a free handle");
        };
        watched_then_read(&mut lp, raw, pipe, &far, open);
    }
    run_to_the_end(&mut lp);
    Ok(())
}

fn watched_then_read<S: Stream, P: Source>(
    lp: &mut Loop,
    raw: poll_core::RawSource,
    stream: S,
    peer: &P,
    open: impl FnOnce(&mut Loop),
) where
    for<'a> &'a P: Write,
{
    // SAFETY: the stream that opens it below is closed behind the poll.
    let poll = unsafe { Poll::from_raw_source(lp, raw) }.expect("a poll of a socket");
    let (events, read) = (Log::default(), Log::default());
    let log = events.clone();
    let started = poll.start(lp, PollEvents::READABLE, move |_, _, events| {
        log.push(events.expect("no error"));
    });
    started.expect("a poll to start");
    open(lp);
    let refused = stream.read_start(lp, |_, _, _| panic!("the poll has the descriptor"));
    assert_eq!(refused.map_err(|error| error.kind()), Err(ErrorKind::AlreadyExists));
    send(peer, b"bytes");
    run_until(lp, "an event of the poll", |_| events.len() > 0);

    poll.stop(lp).expect("an open poll");
    read_into(lp, stream, &read);
    run_until(lp, "the bytes", |_| read.len() == 5);
    assert_eq!(read.take(), b"bytes");
    let again = poll.start(lp, PollEvents::READABLE, |_, _, _| panic!("the stream reads"));
    assert_eq!(again.map_err(|error| error.kind()), Err(ErrorKind::AlreadyExists));
    poll.close(lp).and(stream.close(lp)).expect("open handles");
}

/// Memory for writes that were queued is returned when they are done, though a later one is not.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn memory_of_queued_writes_is_returned(lab: &Lab) -> Verdict {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use crate::support::child::Child;
    use crate::support::sources::drain;

    /// Many times what a local socket buffers.
    const WRITES: usize = 30_000;

    /// The bytes of the allocator that are in use.
    fn in_use() -> usize {
        // SAFETY: takes no pointer.
        let info = unsafe { libc::mallinfo2() };
        info.uordblks + info.hblkhd
    }

    /// A stream whose buffers are full, and its peer.
    fn full(lp: &mut Loop) -> (Pipe, UnixStream) {
        let (near, far) = UnixStream::pair().expect("a pair of local sockets");
        far.set_nonblocking(true).expect("a socket");
        let pipe = Pipe::new(lp);
        pipe.open(lp, OwnedFd::from(near)).expect("a free handle");
        while pipe.try_write(lp, &[0; 1000]).is_ok() {}
        (pipe, far)
    }

    drop(lab.backend()?);
    // A child of one thread has an allocator to itself.
    let child = Child::fork(|| {
        let mut lp = new_loop(lab)?;
        let ((one, far), (other, _peer)) = (full(&mut lp), full(&mut lp));
        run_a_moment(&mut lp);
        let (done, before) = (Count::default(), in_use());
        for _ in 0..WRITES {
            let done = done.clone();
            let write = one.write(&mut lp, "x", move |_, _, result, _| {
                result.expect("a write");
                done.count();
            });
            assert!(write.is_ok(), "a write to a full stream is queued");
        }
        let last = other.write(&mut lp, "y", |_, _, result, _| {
            assert!(result.is_err(), "its peer does not read");
        });
        assert!(last.is_ok(), "a write to a full stream is queued");
        let peak = in_use() - before;
        run_until(&mut lp, "all writes", |_| {
            drain(&far);
            done.get() == WRITES as u64
        });
        run_a_moment(&mut lp);
        let left = in_use().saturating_sub(before);
        assert!(left < peak / 8, "{left} bytes of {peak} are left");
        other.close(&mut lp).and(one.close(&mut lp)).expect("open handles");
        run_to_the_end(&mut lp);
        Ok(())
    });
    child.join(Duration::from_secs(60))
}

/// See the case for Linux.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn memory_of_queued_writes_is_returned(_: &Lab) -> Verdict {
    Err(crate::Skip::because("this system's allocator has no counts"))
}
