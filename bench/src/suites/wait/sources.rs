//! Many sources, of which as many are active as one likes.

use std::cell::OnceCell;
use std::io;

use poll_core::RawSource;

/// Descriptors that the process needs besides the sources.
const OTHERS: usize = 100;

/// So many sources, or as many as this process may have.
pub(super) fn at_most(count: usize) -> usize {
    count.min(crate::limits::descriptors().saturating_sub(OTHERS)).max(1)
}

/// Sources, opened by the first who needs them and closed with their scenario: the others'
/// descriptors must not stand in their way.
#[derive(Debug)]
pub(super) struct Sources {
    count: usize,
    opened: OnceCell<Vec<Source>>,
}

impl Sources {
    pub(super) fn new(count: usize) -> Sources {
        Sources { count, opened: OnceCell::new() }
    }

    /// All sources, none active.
    pub(super) fn open(&self) -> io::Result<&[Source]> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let explained = |error: io::Error| {
            let why = format!("{} sources: {error} (see 'ulimit -n')", self.count);
            io::Error::new(error.kind(), why)
        };
        let opened = (0..self.count).map(|_| Source::new()).collect::<io::Result<Vec<_>>>();
        Ok(self.opened.get_or_init({
            let opened = opened.map_err(explained)?;
            || opened
        }))
    }
}

#[cfg(target_os = "linux")]
pub(super) use eventfd::Source;

#[cfg(not(target_os = "linux"))]
pub(super) use socket::Source;

#[cfg(target_os = "linux")]
mod eventfd {
    use super::*;
    use crate::pollers::epoll::EventFd;

    /// The smallest thing that can be made ready: an eventfd.
    #[derive(Debug)]
    pub(in super::super) struct Source(EventFd);

    impl Source {
        pub(super) fn new() -> io::Result<Source> {
            EventFd::new().map(Source)
        }

        pub(in super::super) fn raw(&self) -> RawSource {
            RawSource::of(&self.0)
        }

        pub(in super::super) fn make_ready(&self) -> io::Result<()> {
            self.0.ring()
        }

        pub(in super::super) fn make_quiet(&self) -> io::Result<()> {
            self.0.clear()
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod socket {
    use super::*;
    use std::net::UdpSocket;

    /// A socket that sends to itself.
    #[derive(Debug)]
    pub(in super::super) struct Source(UdpSocket);

    impl Source {
        pub(super) fn new() -> io::Result<Source> {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.connect(socket.local_addr()?)?;
            Ok(Source(socket))
        }

        pub(in super::super) fn raw(&self) -> RawSource {
            RawSource::of(&self.0)
        }

        pub(in super::super) fn make_ready(&self) -> io::Result<()> {
            self.0.send(&[1]).map(drop)
        }

        pub(in super::super) fn make_quiet(&self) -> io::Result<()> {
            self.0.recv(&mut [0]).map(drop)
        }
    }
}
