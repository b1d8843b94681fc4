//! Many sources, of which any number can be made ready.

use std::cell::OnceCell;
use std::io;

use poll_core::RawSource;

/// Descriptors reserved for other uses.
const OTHERS: usize = 100;

/// Limits the number of sources to the descriptors of this process.
pub(super) fn at_most(count: usize) -> usize {
    count.min(crate::limits::descriptors().saturating_sub(OTHERS)).max(1)
}

/// Sources, opened at the first use and closed with their scenario, so that scenarios do not
/// compete for descriptors.
#[derive(Debug)]
pub(super) struct Sources {
    count: usize,
    opened: OnceCell<Vec<Source>>,
}

impl Sources {
    pub(super) fn new(count: usize) -> Sources {
        Sources { count, opened: OnceCell::new() }
    }

    /// All sources, none ready.
    pub(super) fn open(&self) -> io::Result<&[Source]> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let explained = |error: io::Error| {
            let why = format!("{} sources: {error} (raise 'ulimit -n')", self.count);
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

    /// An eventfd, the cheapest source.
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
            self.0.signal()
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
