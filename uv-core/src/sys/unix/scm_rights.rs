//! Descriptor passing over Unix domain sockets (`SCM_RIGHTS`).

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use poll_core::RawSource;
use socket2::{Domain, SockRef, Type};

use super::Transport;
use super::cmsg::{Control, messages, written};
use super::pipes::{OwnedPipe, file_type};
use super::sockets::{OwnedSocket, SEND_FLAGS};

/// A received descriptor that no handle owns yet.
pub(crate) type Passed = OwnedFd;

/// The most descriptors of one message: `SCM_MAX_FD` of Linux.
pub(crate) const MAX_HANDLES: usize = 253;

/// Control space for `MAX_HANDLES` descriptors and the header of their control message.
const CONTROL: usize = MAX_HANDLES * size_of::<RawFd>() + 64;

/// Received descriptors support backend operations like those opened by this process.
pub(crate) const PASSED_SUPPORT_OPS: bool = true;

/// Descriptors to send with a message. Their owners keep them open.
pub(crate) struct Rights {
    fds: [RawFd; MAX_HANDLES],
    count: usize,
}

impl Rights {
    pub(crate) const NONE: Rights = Rights { fds: [-1; MAX_HANDLES], count: 0 };

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a descriptor; one beyond [`MAX_HANDLES`] is ignored.
    pub(crate) fn push(&mut self, source: RawSource) {
        if let Some(fd) = self.fds.get_mut(self.count) {
            *fd = source.fd();
            self.count += 1;
        }
    }
}

/// Sends at least one byte, and the descriptors with the first byte.
pub(crate) fn send_rights(
    socket: &Transport,
    bufs: &[IoSlice<'_>],
    rights: &Rights,
) -> io::Result<usize> {
    let fds = &rights.fds[..rights.count];
    let size = size_of_val(fds) as libc::c_uint;
    let mut control = Control([0; CONTROL]);
    let mut header = empty_header();
    header.msg_iov = bufs.as_ptr().cast_mut().cast();
    header.msg_iovlen = bufs.len() as _;
    header.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: arithmetic on an integer.
    header.msg_controllen = unsafe { libc::CMSG_SPACE(size) } as _;
    // SAFETY: reads the header, whose control pointer and length describe `control`.
    let message = unsafe { libc::CMSG_FIRSTHDR(&header) };
    // SAFETY: arithmetic on an integer.
    let length = unsafe { libc::CMSG_LEN(size) };
    // SAFETY: `CONTROL` is larger than a header, so the pointer is not null but the start of
    // `control`, which is aligned for `cmsghdr`, initialised, and used through `message` only.
    let head = unsafe { &mut *message };
    head.cmsg_level = libc::SOL_SOCKET;
    head.cmsg_type = libc::SCM_RIGHTS;
    head.cmsg_len = length as _;
    // SAFETY: computes the address after the header, inside `control`.
    let data = unsafe { libc::CMSG_DATA(message) };
    // SAFETY: `rights` holds at most `MAX_HANDLES` descriptors, and `CONTROL` has space for them
    // after the header; bytes need no alignment, and `control` is a local that does not overlap.
    unsafe { data.copy_from_nonoverlapping(fds.as_ptr().cast(), size as usize) };
    let flags = SEND_FLAGS | socket.wait_flag();
    // SAFETY: `bufs` and `control`, which the header points to, outlive the call, and `sendmsg`
    // only reads them. `IoSlice` has the layout of `iovec`, as `std` documents.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &header, flags) };
    match usize::try_from(sent) {
        Ok(sent) => Ok(sent),
        Err(_) => Err(retryable(io::Error::last_os_error())),
    }
}

/// Apple's kernels return `EMSGSIZE` while the socket buffer has no space for the descriptors.
fn retryable(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EMSGSIZE) if cfg!(target_vendor = "apple") => io::ErrorKind::WouldBlock.into(),
        _ => error,
    }
}

/// Receives bytes, and appends the descriptors that arrive with them. The flag is false if the
/// kernel has dropped descriptors (`MSG_CTRUNC`): the process has reached its limit.
pub(crate) fn receive_rights(
    socket: &Transport,
    memory: &mut [u8],
    passed: &mut VecDeque<Passed>,
) -> io::Result<(usize, bool)> {
    let mut control = Control([0; CONTROL]);
    let mut vector = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
    let mut header = empty_header();
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL as _;
    let flags = RECEIVE_FLAGS | socket.wait_flag();
    // SAFETY: the header points to `vector`, `memory` and `control` with their lengths. All are
    // borrowed exclusively by this function and outlive the call.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, flags) };
    let Ok(received) = usize::try_from(received) else { return Err(io::Error::last_os_error()) };
    for (level, kind, data) in messages(written(&control.0, &header)) {
        if (level, kind) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            continue;
        }
        for fd in data.chunks_exact(size_of::<RawFd>()).filter_map(|bytes| bytes.first_chunk()) {
            // SAFETY: `SCM_RIGHTS` data are new descriptors of this process, which nothing owns
            // yet.
            let fd = unsafe { OwnedFd::from_raw_fd(RawFd::from_ne_bytes(*fd)) };
            #[cfg(target_vendor = "apple")]
            close_on_exec(&fd)?;
            passed.push_back(fd);
        }
    }
    Ok((received, header.msg_flags & libc::MSG_CTRUNC == 0))
}

cfg_if::cfg_if! {
    if #[cfg(target_vendor = "apple")] {
        const RECEIVE_FLAGS: i32 = 0;

        fn close_on_exec(fd: &OwnedFd) -> io::Result<()> {
            // SAFETY: takes no pointer.
            match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) } {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        }
    } else {
        /// Received descriptors are close-on-exec from the start.
        const RECEIVE_FLAGS: i32 = libc::MSG_CMSG_CLOEXEC;
    }
}

fn empty_header() -> libc::msghdr {
    // SAFETY: a C structure of integers and raw pointers; zero is valid for each field.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// The kind of a received descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassedKind {
    Tcp,
    Udp,
    Pipe,
    Other,
}

pub(crate) fn kind_of(passed: &Passed) -> PassedKind {
    let socket = SockRef::from(passed);
    let (domain, kind) = (socket.local_addr().map(|address| address.domain()), socket.r#type());
    match (domain.ok(), kind.ok()) {
        (Some(Domain::IPV4 | Domain::IPV6), Some(Type::STREAM)) => PassedKind::Tcp,
        (Some(Domain::IPV4 | Domain::IPV6), Some(Type::DGRAM)) => PassedKind::Udp,
        (Some(Domain::UNIX), Some(Type::STREAM)) => PassedKind::Pipe,
        (None, _) if file_type(passed.as_raw_fd()).is_ok_and(|kind| kind == libc::S_IFIFO) => {
            PassedKind::Pipe
        }
        _ => PassedKind::Other,
    }
}

/// A received descriptor as a TCP socket.
pub(crate) fn passed_tcp(passed: Passed) -> io::Result<OwnedSocket> {
    Ok(passed)
}

/// A received descriptor as a UDP socket.
pub(crate) fn passed_udp(passed: Passed) -> io::Result<UdpSocket> {
    Ok(passed.into())
}

/// A received descriptor as a pipe.
pub(crate) fn passed_pipe(passed: Passed) -> io::Result<OwnedPipe> {
    Ok(passed)
}
