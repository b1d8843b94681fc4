//! Point 10: kernels' conditions are reported uniformly on every backend.
//!
//! Kernels differ in how they report the end of a connection; loops rely on one answer, the table
//! "How failures look" in poll-core's documentation.

use std::net::UdpSocket;
use std::time::Instant;

use poll_core::{BoxedBackend, Interest, Mode, Readiness};

use crate::support::observe::{
    A, SHORT, SOON, await_ready, modify, quiet, ready_of, register, try_register, wait_for,
};
use crate::support::sources::{
    Source, connecting, drain, fill, half_close, listener, refused_address, reset, send,
    send_urgent, shrink_buffers, tcp_pair, udp_pair,
};
use crate::support::wine;
use crate::{Lab, Skip, Verdict};

const READ_WRITE: Interest = Interest::READ.union(Interest::WRITE);

/// Data makes a source readable, without any other flag.
pub fn data_is_readable(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    quiet(&mut backend);
    send(&far, b"x");
    assert_eq!(await_ready(&mut backend, A, Readiness::READ), Readiness::READ, "one byte arrived");
    drain(&near);
    quiet(&mut backend);
    Ok(())
}

/// Space in the send buffer makes a source writable, whether or not it is readable.
pub fn free_send_buffer_is_writable(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::WRITE, Mode::Level);
    assert_eq!(
        await_ready(&mut backend, A, Readiness::WRITE),
        Readiness::WRITE,
        "an idle connection"
    );
    send(&far, b"x");
    modify(&mut backend, A, Interest::READ, Mode::Level);
    await_ready(&mut backend, A, Readiness::READ); // The byte has arrived.
    modify(&mut backend, A, Interest::WRITE, Mode::Level);
    assert_eq!(
        await_ready(&mut backend, A, Readiness::WRITE),
        Readiness::WRITE,
        "READ is not in the interest"
    );
    Ok(())
}

/// A peer that does not read makes the source unwritable, and its first read makes it writable
/// again: this is TCP's back-pressure.
pub fn full_send_buffer_is_not_writable(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    shrink_buffers(&near);
    shrink_buffers(&far);
    let mut backend = lab.backend()?;
    fill(&near);
    register(&mut backend, A, &near, Interest::WRITE, Mode::Level);
    quiet(&mut backend);
    let started = Instant::now();
    while ready_of(&wait_for(&mut backend, SHORT), A) != Readiness::WRITE {
        drain(&far);
        assert!(
            started.elapsed() < SOON,
            "the peer has read everything, so the send buffer has space"
        );
    }
    Ok(())
}

/// A pending connection makes a listener readable until it is accepted.
pub fn pending_connection_is_readable(lab: &Lab) -> Verdict {
    let listener = listener();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &listener, Interest::READ, Mode::Level);
    quiet(&mut backend);
    let _client = connecting(listener.local_addr().expect("an address"));
    assert_eq!(
        await_ready(&mut backend, A, Readiness::READ),
        Readiness::READ,
        "a client has connected"
    );
    listener.accept().expect("the pending connection");
    quiet(&mut backend);
    Ok(())
}

/// A successful connect makes the socket writable, without `ERROR`.
pub fn established_connection_is_writable(lab: &Lab) -> Verdict {
    let listener = listener();
    let client = connecting(listener.local_addr().expect("an address"));
    let mut backend = lab.backend()?;
    register(&mut backend, A, &client, Interest::WRITE, Mode::Level);
    assert_eq!(await_ready(&mut backend, A, Readiness::WRITE), Readiness::WRITE, "connected");
    client.peer_addr().expect("a socket that is writable to be connected");
    modify(&mut backend, A, READ_WRITE, Mode::Level);
    assert_eq!(
        await_ready(&mut backend, A, Readiness::WRITE),
        Readiness::WRITE,
        "without data to read"
    );
    Ok(())
}

/// A failed connect makes the socket writable too; otherwise a loop that waits for the result never
/// gets it. Windows reports a failed connect in the exception set of `select` only, which backends
/// there must check.
pub fn refused_connection_is_writable(lab: &Lab) -> Verdict {
    for interest in [Interest::WRITE, READ_WRITE] {
        let client = connecting(refused_address());
        let mut backend = lab.backend()?;
        register(&mut backend, A, &client, interest, Mode::Level);
        await_ready(&mut backend, A, interest);
        assert!(client.peer_addr().is_err(), "connected to a port without a listener");
    }
    Ok(())
}

/// The end of file is readable, as a read returns 0 without blocking; the other direction stays
/// open.
pub fn end_of_file_is_readable(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    quiet(&mut backend);
    half_close(&far);
    let ready = await_ready(&mut backend, A, Readiness::READ);
    let unexpected = ready - Readiness::READ;
    assert!(unexpected.is_empty(), "the writing side is open, yet {unexpected:?} is reported");
    assert!(drain(&near), "readable, but not at the end");
    await_ready(&mut backend, A, Readiness::READ); // Level-triggered: it repeats.
    modify(&mut backend, A, READ_WRITE, Mode::Level);
    await_ready(&mut backend, A, READ_WRITE);
    send(&near, b"still open");

    // Shut down in both directions.
    drop(far);
    await_ready(&mut backend, A, READ_WRITE);
    Ok(())
}

/// The peer's end is reported as `DISCONNECT` while data is unread, alone or with `READ`: a proxy
/// that has stopped reading learns that its client disconnected.
pub fn disconnect_is_reported_with_unread_data(lab: &Lab) -> Verdict {
    for interest in [Interest::DISCONNECT, Interest::DISCONNECT | Interest::READ] {
        let (near, far) = tcp_pair();
        let mut backend = lab.backend()?;
        register_if_supported(&mut backend, &near, interest)?;
        quiet(&mut backend);
        send(&far, b"unread");
        if interest.contains(Interest::READ) {
            let ready = await_ready(&mut backend, A, Readiness::READ);
            assert_eq!(ready, Readiness::READ, "the peer is still open");
        } else {
            quiet(&mut backend);
        }
        half_close(&far);
        if wine::delays_end_of_file() {
            drain(&near);
        }
        let ready = await_ready(&mut backend, A, interest);
        assert_eq!(ready, interest.to_readiness(), "half closed, with data unread");
        assert!(drain(&near), "the data, then the end of file");
        await_ready(&mut backend, A, interest);
    }
    Ok(())
}

/// A reset is reported as each of `READ` and `WRITE` in the interest: the next read or write
/// returns the error.
pub fn reset_is_readable_and_writable(lab: &Lab) -> Verdict {
    for interest in [READ_WRITE, Interest::READ, Interest::WRITE] {
        let (near, far) = tcp_pair();
        // Filled, so that it is not writable for another reason.
        shrink_buffers(&near);
        shrink_buffers(&far);
        fill(&near);
        let mut backend = lab.backend()?;
        register(&mut backend, A, &near, interest, Mode::Level);
        quiet(&mut backend);
        reset(far);
        let ready = await_ready(&mut backend, A, interest);
        let asked = ready.to_interest();
        assert_eq!(asked, interest, "a condition outside of the interest is reported");
    }
    Ok(())
}

/// A pipe whose last writer has closed is readable, with unread data and after it.
pub fn pipe_without_writers_is_readable(lab: &Lab) -> Verdict {
    #[cfg(unix)]
    for unread in [&b""[..], b"last words"] {
        let (reader, writer) = crate::support::sources::pipe();
        let mut backend = lab.backend()?;
        register(&mut backend, A, &reader, Interest::READ, Mode::Level);
        quiet(&mut backend);
        send(&writer, unread);
        drop(writer);
        await_ready(&mut backend, A, Readiness::READ);
        assert!(drain(&reader), "readable, but not at the end");
        await_ready(&mut backend, A, Readiness::READ);
    }
    unix_only(lab)
}

/// A full pipe whose last reader has closed is writable: a write fails immediately with `EPIPE`
/// instead of blocking. Linux reports `POLLERR` alone here.
pub fn pipe_without_readers_is_writable(lab: &Lab) -> Verdict {
    #[cfg(unix)]
    {
        let (reader, writer) = crate::support::sources::pipe();
        fill(&writer);
        let mut backend = lab.backend()?;
        register(&mut backend, A, &writer, Interest::WRITE, Mode::Level);
        quiet(&mut backend);
        drop(reader);
        await_ready(&mut backend, A, Readiness::WRITE);
        let error = std::io::Write::write(&mut &writer, b"x").expect_err("the pipe has no reader");
        assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
        // Some kernels refuse to watch a pipe that is broken already.
        let mut other = lab.backend()?;
        register(&mut other, A, &writer, Interest::WRITE, Mode::Level);
        await_ready(&mut other, A, Readiness::WRITE);
    }
    unix_only(lab)
}

/// Urgent data is reported as `PRIORITY` to a source with that interest, alone or beside `READ`;
/// ordinary data is not. `io_uring` repeats the poll mask that woke it, which names both.
pub fn urgent_data_is_priority(lab: &Lab) -> Verdict {
    for interest in [Interest::PRIORITY, Interest::PRIORITY | Interest::READ] {
        let (near, far) = tcp_pair();
        let mut backend = lab.backend()?;
        register_if_supported(&mut backend, &near, interest)?;
        quiet(&mut backend);
        send(&far, b"ordinary");
        if interest.contains(Interest::READ) {
            let ready = await_ready(&mut backend, A, Readiness::READ);
            assert_eq!(ready, Readiness::READ, "the data is ordinary");
            drain(&near);
        }
        quiet(&mut backend);
        send_urgent(&far);
        let ready = await_ready(&mut backend, A, Readiness::PRIORITY);
        assert!(
            interest.to_readiness().contains(ready),
            "the interest is {interest:?}, {ready:?} is reported"
        );
    }
    Ok(())
}

/// A reset is not urgent data: some kernels report both in one place.
pub fn a_reset_is_no_urgent_data(lab: &Lab) -> Verdict {
    if cfg!(windows) {
        return Err(Skip::because("not verified on Windows, where no filter has both"));
    }
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register_if_supported(&mut backend, &near, Interest::PRIORITY | Interest::READ)?;
    quiet(&mut backend);
    reset(far);
    let ready = await_ready(&mut backend, A, Readiness::READ);
    assert!(!ready.contains(Readiness::PRIORITY), "{ready:?} is reported");
    Ok(())
}

/// Urgent data is not reported without `PRIORITY` interest: any peer can send it, and a loop woken
/// repeatedly for data that it does not read would spin. One spurious `READ` is tolerated:
/// `io_uring` reports it for any wakeup of the poll.
pub fn urgent_data_without_interest_is_ignored(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    quiet(&mut backend);
    send_urgent(&far);
    let ready = ready_of(&wait_for(&mut backend, SHORT), A);
    assert!(Readiness::READ.contains(ready), "{ready:?} is reported, but the interest is READ");
    quiet(&mut backend);
    send(&far, b"ordinary");
    let ready = await_ready(&mut backend, A, Readiness::READ);
    assert_eq!(ready, Readiness::READ, "PRIORITY is not in the interest");
    Ok(())
}

/// Datagrams are readable one at a time, including empty ones.
pub fn datagrams_are_readable(lab: &Lab) -> Verdict {
    let (near, far): (UdpSocket, UdpSocket) = udp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, READ_WRITE, Mode::Level);
    assert_eq!(await_ready(&mut backend, A, Readiness::WRITE), Readiness::WRITE, "an idle socket");
    modify(&mut backend, A, Interest::READ, Mode::Level);
    quiet(&mut backend);
    for payload in [&b""[..], b"payload", b""] {
        far.send(payload).expect("a datagram sent");
    }
    for len in [0, 7, 0] {
        assert_eq!(await_ready(&mut backend, A, Readiness::READ), Readiness::READ);
        let received = near.recv(&mut [0; 16]).expect("the datagram that was reported");
        assert_eq!(received, len, "datagrams in another order");
    }
    quiet(&mut backend);
    Ok(())
}

/// A source that is readable and writable is reported in one event: its handler runs once per wait.
/// Kernels with one filter per direction deliver two events, which the backend merges.
pub fn both_directions_are_one_event(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    for mode in [Mode::Level, Mode::Oneshot] {
        let mut backend = lab.backend()?;
        register(&mut backend, A, &near, Interest::READ, Mode::Level);
        send(&far, b"x");
        await_ready(&mut backend, A, Readiness::READ); // The byte has arrived.
        modify(&mut backend, A, READ_WRITE, mode);
        let events = wait_for(&mut backend, SOON);
        assert_eq!(events.len(), 1, "one source, one event: {events:?}");
        assert_eq!(ready_of(&events, A), READ_WRITE.to_readiness(), "both conditions hold");
        if mode == Mode::Oneshot {
            quiet(&mut backend);
        }
    }
    Ok(())
}

/// Registers for a condition that not every backend supports.
fn register_if_supported(
    backend: &mut BoxedBackend,
    source: &impl Source,
    interest: Interest,
) -> Verdict {
    match try_register(backend, A, source.raw(), interest, Mode::Level) {
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            Err(Skip::because(error.to_string()))
        }
        Err(error) => panic!("register for {interest:?}: {error}"),
        Ok(()) => Ok(()),
    }
}

/// The result of a case about Unix pipes.
fn unix_only(_lab: &Lab) -> Verdict {
    if cfg!(unix) { Ok(()) } else { Err(Skip::because("pipes cannot be polled on Windows")) }
}
