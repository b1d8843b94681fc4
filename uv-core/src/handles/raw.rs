//! Access to the descriptors and sockets of handles.

use std::io;
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};

use poll_core::{Backend, RawSource};
use socket2::Socket;

use crate::handles::AnyHandle;
use crate::{Loop, error};

/// The descriptor of a handle.
pub(super) fn descriptor<B: Backend>(handle: AnyHandle, lp: &Loop<B>) -> io::Result<RawSource> {
    let key = handle.key();
    let descriptor = match handle {
        AnyHandle::Tcp(_) | AnyHandle::Pipe(_) | AnyHandle::Tty(_) => {
            let slot = lp.streams.slots.get(key).ok_or_else(error::stale)?;
            slot.socket.as_ref().and_then(|socket| socket.source().ok())
        }
        AnyHandle::Udp(_) => lp.udps.slots.get(key).ok_or_else(error::stale)?.source(),
        AnyHandle::Poll(_) => lp.polls.get(key).ok_or_else(error::stale)?.watched(),
        other => {
            lp.base(other).ok_or_else(error::stale)?;
            let why = format!("a {} has no descriptor", other.kind());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
    };
    descriptor.ok_or_else(error::no_socket)
}

/// The descriptor of a handle that owns it.
#[cfg(unix)]
pub(super) fn borrowed<B: Backend>(handle: AnyHandle, lp: &Loop<B>) -> io::Result<BorrowedFd<'_>> {
    let key = handle.key();
    let socket = match handle {
        AnyHandle::Tcp(_) | AnyHandle::Pipe(_) | AnyHandle::Tty(_) => {
            let slot = lp.streams.slots.get(key).ok_or_else(error::stale)?;
            slot.socket.as_deref()
        }
        AnyHandle::Udp(_) => lp.udps.slots.get(key).ok_or_else(error::stale)?.as_socket(),
        other => {
            lp.base(other).ok_or_else(error::stale)?;
            let why = format!("a {} has no descriptor of its own", other.kind());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
    };
    socket.map(AsFd::as_fd).ok_or_else(error::no_socket)
}

/// The socket of a handle that has one.
pub(super) fn of<B: Backend>(handle: AnyHandle, lp: &Loop<B>) -> io::Result<&Socket> {
    let key = handle.key();
    let socket = match handle {
        AnyHandle::Tcp(_) | AnyHandle::Pipe(_) => {
            let slot = lp.streams.slots.get(key).ok_or_else(error::stale)?;
            match &slot.socket {
                Some(transport) if !transport.is_socket() => return Err(no_socket(handle)),
                transport => transport.as_deref(),
            }
        }
        AnyHandle::Udp(_) => lp.udps.slots.get(key).ok_or_else(error::stale)?.as_socket(),
        other => {
            lp.base(other).ok_or_else(error::stale)?;
            return Err(no_socket(other));
        }
    };
    socket.ok_or_else(error::no_socket)
}

fn no_socket(handle: AnyHandle) -> io::Error {
    let why = format!("this {} has no socket, so it has no kernel buffers", handle.kind());
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// Checks that a buffer size is not zero.
pub(super) fn nonzero(bytes: usize) -> io::Result<usize> {
    if bytes == 0 {
        let why = "the buffer size must be at least one byte";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(bytes)
}
