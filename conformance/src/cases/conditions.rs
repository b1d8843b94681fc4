//! Point 10: what happened to a source looks alike on every backend.
//!
//! Kernels disagree on how they call the end of a connection; loops are written for
//! one answer. The table "How failures look" in poll-core's documentation is it.

use std::net::UdpSocket;
use std::time::Instant;

use poll_core::{Backend, Mode, Ready};

use crate::support::observe::{
    A, SHORT, SOON, await_ready, modify, quiet, ready_of, register, try_register, wait_for,
};
use crate::support::sources::{
    Source, connecting, drain, fill, half_close, listener, refused_address, reset, send,
    send_urgent, shrink_buffers, tcp_pair, udp_pair,
};
use crate::support::wine;
use crate::{Lab, Skip, Verdict};

const READ_WRITE: Ready = Ready::READ.union(Ready::WRITE);

/// Data makes a source readable, and nothing else: no flag that was not asked for.
pub fn data_is_readable<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
    quiet(&mut backend);
    send(&far, b"x");
    assert_eq!(await_ready(&mut backend, A, Ready::READ), Ready::READ, "one byte arrived");
    drain(&near);
    quiet(&mut backend);
    Ok(())
}

/// Room in the send buffer makes a source writable, whether or not it is readable too.
pub fn room_is_writable<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::WRITE, Mode::Level);
    assert_eq!(await_ready(&mut backend, A, Ready::WRITE), Ready::WRITE, "an idle connection");
    send(&far, b"x");
    modify(&mut backend, A, Ready::READ, Mode::Level);
    await_ready(&mut backend, A, Ready::READ); // It has arrived.
    modify(&mut backend, A, Ready::WRITE, Mode::Level);
    assert_eq!(await_ready(&mut backend, A, Ready::WRITE), Ready::WRITE, "READ was not asked for");
    Ok(())
}

/// A peer that does not read stops a writer, and its first read lets it go on: this is
/// all the flow control there is.
pub fn a_full_peer_is_not_writable<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (near, far) = tcp_pair();
    shrink_buffers(&near);
    shrink_buffers(&far);
    let mut backend = lab.backend()?;
    fill(&near);
    register(&mut backend, A, &near, Ready::WRITE, Mode::Level);
    quiet(&mut backend);
    let started = Instant::now();
    while ready_of(&wait_for(&mut backend, SHORT), A) != Ready::WRITE {
        drain(&far);
        assert!(started.elapsed() < SOON, "the peer has read everything: there is room");
    }
    Ok(())
}

/// A connection to accept makes a listener readable, until it is accepted.
pub fn a_connection_makes_its_listener_readable<B: Backend>(lab: &Lab<B>) -> Verdict {
    let listener = listener();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &listener, Ready::READ, Mode::Level);
    quiet(&mut backend);
    let _client = connecting(listener.local_addr().expect("an address"));
    assert_eq!(await_ready(&mut backend, A, Ready::READ), Ready::READ, "a client has connected");
    listener.accept().expect("what made the listener readable");
    quiet(&mut backend);
    Ok(())
}

/// A connect that has succeeded makes the socket writable, without `ERROR`.
pub fn a_made_connection_is_writable<B: Backend>(lab: &Lab<B>) -> Verdict {
    let listener = listener();
    let client = connecting(listener.local_addr().expect("an address"));
    let mut backend = lab.backend()?;
    register(&mut backend, A, &client, Ready::WRITE, Mode::Level);
    assert_eq!(await_ready(&mut backend, A, Ready::WRITE), Ready::WRITE, "connected");
    client.peer_addr().expect("a socket that is writable to be connected");
    modify(&mut backend, A, READ_WRITE, Mode::Level);
    assert_eq!(await_ready(&mut backend, A, Ready::WRITE), Ready::WRITE, "with nothing to read");
    Ok(())
}

/// A connect that has failed makes the socket writable too, or a loop that waits to
/// ask how it went would wait for ever. Windows tells it apart from success in another
/// set than the one for writing, and backends there have forgotten to look.
pub fn a_refused_connection_is_writable<B: Backend>(lab: &Lab<B>) -> Verdict {
    for interest in [Ready::WRITE, READ_WRITE] {
        let client = connecting(refused_address());
        let mut backend = lab.backend()?;
        register(&mut backend, A, &client, interest, Mode::Level);
        await_ready(&mut backend, A, interest);
        assert!(client.peer_addr().is_err(), "nobody listens there: how is it connected?");
    }
    Ok(())
}

/// The end of file is readable, as a read returns 0 without blocking; the other
/// direction is as open as before.
pub fn end_of_file_is_readable<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
    quiet(&mut backend);
    half_close(&far);
    let ready = await_ready(&mut backend, A, Ready::READ);
    let unexpected = ready - Ready::READ;
    assert!(unexpected.is_empty(), "our direction is open: {unexpected:?} is wrong");
    assert!(drain(&near), "readable, but not at the end");
    await_ready(&mut backend, A, Ready::READ); // Level: it stays the end.
    modify(&mut backend, A, READ_WRITE, Mode::Level);
    await_ready(&mut backend, A, READ_WRITE);
    send(&near, b"still open");

    // Closed in both directions.
    drop(far);
    await_ready(&mut backend, A, READ_WRITE);
    Ok(())
}

/// The peer's end shows as `DISCONNECT` while its data is still unread, alone or with
/// `READ`: a proxy that has stopped reading learns that its client is gone.
pub fn disconnect_shows_behind_unread_data<B: Backend>(lab: &Lab<B>) -> Verdict {
    for interest in [Ready::DISCONNECT, Ready::DISCONNECT | Ready::READ] {
        let (near, far) = tcp_pair();
        let mut backend = lab.backend()?;
        asking_for(&mut backend, &near, interest)?;
        quiet(&mut backend);
        send(&far, b"unread");
        if interest.contains(Ready::READ) {
            let ready = await_ready(&mut backend, A, Ready::READ);
            assert_eq!(ready, Ready::READ, "the peer has not gone yet");
        } else {
            quiet(&mut backend);
        }
        half_close(&far);
        if wine::hides_ends_behind_data() {
            drain(&near);
        }
        let ready = await_ready(&mut backend, A, interest);
        assert_eq!(ready, interest, "half closed, with data unread");
        assert!(drain(&near), "the data and then the end");
        await_ready(&mut backend, A, interest);
    }
    Ok(())
}

/// A reset is readable and writable, whichever was asked for: the error waits in the
/// next read or write.
pub fn a_reset_is_readable_and_writable<B: Backend>(lab: &Lab<B>) -> Verdict {
    for interest in [READ_WRITE, Ready::READ, Ready::WRITE] {
        let (near, far) = tcp_pair();
        // Full, so that it is not writable for another reason.
        shrink_buffers(&near);
        shrink_buffers(&far);
        fill(&near);
        let mut backend = lab.backend()?;
        register(&mut backend, A, &near, interest, Mode::Level);
        quiet(&mut backend);
        reset(far);
        let ready = await_ready(&mut backend, A, interest);
        let asked = ready & Ready::INTEREST;
        assert_eq!(asked, interest, "what was not asked for is reported");
    }
    Ok(())
}

/// A pipe whose last writer has closed is readable, with its last data and after it.
pub fn a_hung_up_pipe_is_readable<B: Backend>(lab: &Lab<B>) -> Verdict {
    #[cfg(unix)]
    for unread in [&b""[..], b"last words"] {
        let (reader, writer) = crate::support::sources::pipe();
        let mut backend = lab.backend()?;
        register(&mut backend, A, &reader, Ready::READ, Mode::Level);
        quiet(&mut backend);
        send(&writer, unread);
        drop(writer);
        await_ready(&mut backend, A, Ready::READ);
        assert!(drain(&reader), "readable, but not at the end");
        await_ready(&mut backend, A, Ready::READ);
    }
    unix_only(lab)
}

/// A full pipe whose last reader has closed is writable: the write fails at once, with
/// `EPIPE`, instead of blocking for ever. Linux says `POLLERR` alone here.
pub fn a_pipe_without_readers_is_writable<B: Backend>(lab: &Lab<B>) -> Verdict {
    #[cfg(unix)]
    {
        let (reader, writer) = crate::support::sources::pipe();
        fill(&writer);
        let mut backend = lab.backend()?;
        register(&mut backend, A, &writer, Ready::WRITE, Mode::Level);
        quiet(&mut backend);
        drop(reader);
        await_ready(&mut backend, A, Ready::WRITE);
        let error = std::io::Write::write(&mut &writer, b"x").expect_err("nobody reads");
        assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    }
    unix_only(lab)
}

/// Urgent data is `PRIORITY` for whoever asked for it, alone or beside `READ`, and
/// ordinary data is not. `io_uring` repeats what woke it up, which names both.
pub fn urgent_data_is_priority<B: Backend>(lab: &Lab<B>) -> Verdict {
    for interest in [Ready::PRIORITY, Ready::PRIORITY | Ready::READ] {
        let (near, far) = tcp_pair();
        let mut backend = lab.backend()?;
        asking_for(&mut backend, &near, interest)?;
        quiet(&mut backend);
        send(&far, b"ordinary");
        if interest.contains(Ready::READ) {
            let ready = await_ready(&mut backend, A, Ready::READ);
            assert_eq!(ready, Ready::READ, "nothing of it is urgent");
            drain(&near);
        }
        quiet(&mut backend);
        send_urgent(&far);
        let ready = await_ready(&mut backend, A, Ready::PRIORITY);
        assert!(interest.contains(ready), "{interest:?} was asked for, {ready:?} is reported");
    }
    Ok(())
}

/// Urgent data says nothing to those who did not ask for it: any peer can send it, and
/// a loop that is woken again and again for what it will not read spins. Once is
/// forgiven: `io_uring` says `READ` for whatever woke it up.
pub fn urgent_data_is_silent_unasked<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
    quiet(&mut backend);
    send_urgent(&far);
    let ready = ready_of(&wait_for(&mut backend, SHORT), A);
    assert!(Ready::READ.contains(ready), "{ready:?} is reported, of which READ was asked for");
    quiet(&mut backend);
    send(&far, b"ordinary");
    let ready = await_ready(&mut backend, A, Ready::READ);
    assert_eq!(ready, Ready::READ, "PRIORITY was not asked for");
    Ok(())
}

/// A datagram is readable, an empty one as well, one at a time.
pub fn datagrams_are_readable<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (near, far): (UdpSocket, UdpSocket) = udp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, READ_WRITE, Mode::Level);
    assert_eq!(await_ready(&mut backend, A, Ready::WRITE), Ready::WRITE, "an idle socket");
    modify(&mut backend, A, Ready::READ, Mode::Level);
    quiet(&mut backend);
    for payload in [&b""[..], b"payload", b""] {
        far.send(payload).expect("a datagram sent");
    }
    for len in [0, 7, 0] {
        assert_eq!(await_ready(&mut backend, A, Ready::READ), Ready::READ);
        let received = near.recv(&mut [0; 16]).expect("the datagram that was reported");
        assert_eq!(received, len, "datagrams in another order");
    }
    quiet(&mut backend);
    Ok(())
}

/// A source that is readable and writable is reported once, with both: a handler runs
/// once a wait. Facilities with a filter for each direction have to put them together.
pub fn both_directions_come_in_one_event<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (near, far) = tcp_pair();
    for mode in [Mode::Level, Mode::Oneshot] {
        let mut backend = lab.backend()?;
        register(&mut backend, A, &near, Ready::READ, Mode::Level);
        send(&far, b"x");
        await_ready(&mut backend, A, Ready::READ); // It has arrived.
        modify(&mut backend, A, READ_WRITE, mode);
        let events = wait_for(&mut backend, SOON);
        assert_eq!(events.len(), 1, "one source, one event: {events:?}");
        assert_eq!(ready_of(&events, A), READ_WRITE, "both hold");
        if mode == Mode::Oneshot {
            quiet(&mut backend);
        }
    }
    Ok(())
}

/// Registers what not every backend can see.
fn asking_for(backend: &mut impl Backend, source: &impl Source, interest: Ready) -> Verdict {
    match try_register(backend, A, source.raw(), interest, Mode::Level) {
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            Err(Skip::because(error.to_string()))
        }
        Err(error) => panic!("register for {interest:?}: {error}"),
        Ok(()) => Ok(()),
    }
}

/// How a case about a thing of Unix ends.
fn unix_only<B>(_lab: &Lab<B>) -> Verdict {
    if cfg!(unix) { Ok(()) } else { Err(Skip::because("pipes cannot be polled on Windows")) }
}
