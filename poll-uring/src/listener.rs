//! Listening sockets, which a ring polls through an epoll instance.
//!
//! A poll in flight holds its file open. When a process ends, the kernel closes the descriptors
//! before anyone can wait for the process, but ends the polls of its rings later, in a kernel
//! thread. A listener that a ring polls stays open until then: its port is taken, and the kernel
//! completes connections that no process will accept. An epoll instance holds no reference to the
//! files that it watches, and is itself readable while one of them is ready.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use poll_core::RawSource;

/// An epoll instance that watches one listening socket, and is readable while that is.
#[derive(Debug)]
pub(crate) struct Watcher(OwnedFd);

impl Watcher {
    /// The watcher of a listening socket. `None` for any other source, and if there is no
    /// descriptor left: such a source is polled directly.
    pub(crate) fn of(source: RawSource) -> Option<Watcher> {
        is_listening(source.fd()).then(|| Watcher::new(source.fd()).ok()).flatten()
    }

    fn new(listener: RawFd) -> io::Result<Watcher> {
        // SAFETY: `epoll_create1` takes no pointer.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just opened, and has no other owner.
        let watcher = Watcher(unsafe { OwnedFd::from_raw_fd(fd) });
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: the kernel reads `event` during the call only.
        match unsafe { libc::epoll_ctl(fd, libc::EPOLL_CTL_ADD, listener, &mut event) } {
            0 => Ok(watcher),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// True for a socket that accepts connections.
fn is_listening(fd: RawFd) -> bool {
    let mut listening: libc::c_int = 0;
    let mut size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes to `listening`, and both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ACCEPTCONN,
            (&raw mut listening).cast(),
            &mut size,
        )
    };
    result == 0 && listening != 0
}
