//! Descriptors that go with bytes over a Unix domain socket (`SCM_RIGHTS`).

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use poll_core::RawSource;
use socket2::{Domain, SockRef, Socket, Type};

use super::control::{Control, messages};
use super::pipes::{OwnedPipe, file_type};
use super::sockets::{OwnedSocket, SEND_FLAGS};

/// A descriptor that has come, and is nobody's yet.
pub(crate) type Passed = OwnedFd;

/// How many go with one message: Linux takes no more.
pub(crate) const MOST_HANDLES: usize = 253;

/// Room for as many, and for the head of their control message.
const ROOM: usize = MOST_HANDLES * size_of::<RawFd>() + 64;

/// Descriptors are as good as those that were made here.
pub(crate) const PASSED_OPERATE: bool = true;

/// Descriptors that are to go with a message. Their owners keep them open.
pub(crate) struct Rights {
    fds: [RawFd; MOST_HANDLES],
    count: usize,
}

impl Rights {
    pub(crate) const NONE: Rights = Rights { fds: [-1; MOST_HANDLES], count: 0 };

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds one; those beyond the most that can go are left out.
    pub(crate) fn push(&mut self, source: RawSource) {
        if let Some(fd) = self.fds.get_mut(self.count) {
            *fd = source.fd();
            self.count += 1;
        }
    }
}

/// Sends bytes, of which there is at least one, and descriptors with the first of them.
pub(crate) fn send_rights(
    socket: &Socket,
    bufs: &[IoSlice<'_>],
    rights: &Rights,
) -> io::Result<usize> {
    let fds = &rights.fds[..rights.count];
    let size = size_of_val(fds) as libc::c_uint;
    let mut control = Control([0; ROOM]);
    let mut header = empty_header();
    header.msg_iov = bufs.as_ptr().cast_mut().cast();
    header.msg_iovlen = bufs.len() as _;
    header.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: it only computes.
    header.msg_controllen = unsafe { libc::CMSG_SPACE(size) } as _;
    // SAFETY: the header names control memory that is large enough for a message.
    let message = unsafe { libc::CMSG_FIRSTHDR(&header) };
    // SAFETY: it only computes.
    let length = unsafe { libc::CMSG_LEN(size) };
    // SAFETY: the message lies in `control`, which nobody else uses.
    let head = unsafe { &mut *message };
    head.cmsg_level = libc::SOL_SOCKET;
    head.cmsg_type = libc::SCM_RIGHTS;
    head.cmsg_len = length as _;
    // SAFETY: as above.
    let data = unsafe { libc::CMSG_DATA(message) };
    // SAFETY: there is room for them in `control`, by its size; bytes have no alignment.
    unsafe { data.copy_from_nonoverlapping(fds.as_ptr().cast(), size as usize) };
    // SAFETY: all that the header names lives across the call, which only reads it; an
    // `IoSlice` is laid out as an `iovec`.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &header, SEND_FLAGS) };
    match usize::try_from(sent) {
        Ok(sent) => Ok(sent),
        Err(_) => Err(retryable(io::Error::last_os_error())),
    }
}

/// Apple's kernels say that a message is too long while there is no room for its descriptors.
fn retryable(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EMSGSIZE) if cfg!(target_vendor = "apple") => io::ErrorKind::WouldBlock.into(),
        _ => error,
    }
}

/// Receives bytes, and appends the descriptors that came with them. False with their number if
/// there were more, which the kernel has closed: this process could have no more.
pub(crate) fn receive_rights(
    socket: &Socket,
    memory: &mut [u8],
    passed: &mut VecDeque<Passed>,
) -> io::Result<(usize, bool)> {
    let mut control = Control([0; ROOM]);
    let mut vector = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
    let mut header = empty_header();
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = ROOM as _;
    // SAFETY: all that the header names lives across the call and is the kernel's meanwhile.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, RECEIVE_FLAGS) };
    let Ok(received) = usize::try_from(received) else { return Err(io::Error::last_os_error()) };
    // SAFETY: the kernel has filled the header, and `control` lives.
    for (level, kind, data) in unsafe { messages(&header) } {
        if (level, kind) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            continue;
        }
        for fd in data.chunks_exact(size_of::<RawFd>()).filter_map(|bytes| bytes.first_chunk()) {
            // SAFETY: the kernel has just given it to us.
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
            // SAFETY: the descriptor is open, and the call takes no pointer.
            match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) } {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        }
    } else {
        /// What is received is closed by `exec`, from the start.
        const RECEIVE_FLAGS: i32 = libc::MSG_CMSG_CLOEXEC;
    }
}

fn empty_header() -> libc::msghdr {
    // SAFETY: all zeros are a header that names nothing.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// What a descriptor that has come is.
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

/// A socket that has come.
pub(crate) fn passed_tcp(passed: Passed) -> io::Result<OwnedSocket> {
    Ok(passed)
}

/// As above.
pub(crate) fn passed_udp(passed: Passed) -> io::Result<UdpSocket> {
    Ok(passed.into())
}

/// A pipe that has come.
pub(crate) fn passed_pipe(passed: Passed) -> io::Result<OwnedPipe> {
    Ok(passed)
}
