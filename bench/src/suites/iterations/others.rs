//! Waits with a timeout of zero: hand-written, and with the pollers of other crates.

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use super::Registered;
use crate::clock::Stopwatch;
use crate::suite::{ContestantId, Entrants, Reading, Sample};

pub(super) fn enter(entrants: &mut Entrants, registered: Registered, iterations: u64) {
    #[cfg(target_os = "linux")]
    entrants.enter(ContestantId::Hand("epoll"), move || epoll(registered, iterations));
    #[cfg(unix)]
    entrants.enter(ContestantId::Peer("mio"), move || mio(registered, iterations));
    #[cfg(not(unix))]
    entrants.skip(ContestantId::Peer("mio"), "is measured on Unix only");
    entrants.enter(ContestantId::Peer("polling"), move || polling(registered, iterations));
}

/// The quiet socket, if the scenario has one.
fn socket(registered: Registered) -> io::Result<Option<UdpSocket>> {
    match registered {
        Registered::Nothing => Ok(None),
        Registered::QuietSocket => UdpSocket::bind("127.0.0.1:0").map(Some),
    }
}

/// Waits repeatedly; counts the waits that reported no event.
fn waits(iterations: u64, mut wait: impl FnMut() -> io::Result<usize>) -> io::Result<Sample> {
    let mut count = 0;
    let watch = Stopwatch::start();
    for _ in 0..iterations {
        count += u64::from(wait()? == 0);
    }
    Ok(Sample::new([Reading { spent: watch.spent(), count }]))
}

#[cfg(target_os = "linux")]
fn epoll(registered: Registered, iterations: u64) -> io::Result<Sample> {
    use crate::pollers::epoll::{Epoll, EventFd};
    use std::os::fd::AsRawFd;

    let (mut epoll, bell) = (Epoll::new()?, EventFd::new()?);
    epoll.control(libc::EPOLL_CTL_ADD, bell.as_raw_fd(), libc::EPOLLIN, 0)?;
    let socket = socket(registered)?;
    if let Some(socket) = &socket {
        epoll.control(libc::EPOLL_CTL_ADD, socket.as_raw_fd(), libc::EPOLLIN, 1)?;
    }
    waits(iterations, || epoll.wait_ms(0))
}

#[cfg(unix)]
fn mio(registered: Registered, iterations: u64) -> io::Result<Sample> {
    use mio::{Events, Interest, Poll, Token, Waker, unix::SourceFd};
    use std::os::fd::AsRawFd;

    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(1024));
    let _waker = Waker::new(poll.registry(), Token(0))?;
    let socket = socket(registered)?;
    if let Some(socket) = &socket {
        let mut source = SourceFd(&socket.as_raw_fd());
        poll.registry().register(&mut source, Token(1), Interest::READABLE)?;
    }
    waits(iterations, || {
        poll.poll(&mut events, Some(Duration::ZERO))?;
        Ok(events.iter().count())
    })
}

fn polling(registered: Registered, iterations: u64) -> io::Result<Sample> {
    use polling::{Event, Events, PollMode, Poller};

    let (poller, mut events) = (Poller::new()?, Events::new());
    let socket = socket(registered)?;
    if let Some(socket) = &socket {
        let mode = if poller.supports_level() { PollMode::Level } else { PollMode::Oneshot };
        // SAFETY: the socket is deleted from the poller before it is closed.
        unsafe { poller.add_with_mode(socket, Event::readable(1), mode) }?;
    }
    let sample = waits(iterations, || {
        events.clear();
        poller.wait(&mut events, Some(Duration::ZERO))
    });
    if let Some(socket) = &socket {
        poller.delete(socket)?;
    }
    sample
}
