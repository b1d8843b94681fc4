//! What a filter's condition is, told from what Linux can tell of a descriptor.

use std::os::fd::RawFd;

use super::super::{EV_EOF, EVFILT_READ, EVFILT_WRITE, NOTE_LOWAT, NOTE_OOB, RawFilter, RawFlags};

/// What a descriptor is, as far as filters differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Stream,
    /// A socket without connections or without streams.
    Datagram,
    Pipe,
    /// Either end of a terminal.
    Terminal,
    /// What Linux cannot poll: with its device and inode, to know it again.
    File(u64, u64),
    Other,
}

/// What a knote that fires says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fired {
    pub(super) flags: RawFlags,
    pub(super) fflags: u32,
    pub(super) data: i64,
}

impl Kind {
    /// Looks at a descriptor, which Linux can poll or cannot.
    pub(super) fn of(fd: RawFd, pollable: bool) -> Result<Kind, i32> {
        let status = status(fd).ok_or(libc::EBADF)?;
        if !pollable {
            return Ok(Kind::File(status.st_dev, status.st_ino));
        }
        Ok(match status.st_mode & libc::S_IFMT {
            libc::S_IFSOCK if socket_type(fd) == libc::SOCK_DGRAM => Kind::Datagram,
            libc::S_IFSOCK => Kind::Stream,
            libc::S_IFIFO => Kind::Pipe,
            // SAFETY: no memory is passed.
            libc::S_IFCHR if unsafe { libc::isatty(fd) } == 1 => Kind::Terminal,
            _ => Kind::Other,
        })
    }

    /// True if a file is still the one that the descriptor was.
    pub(super) fn is_same_file(self, fd: RawFd) -> bool {
        Kind::of(fd, false) == Ok(self)
    }
}

/// True if a pipe has lost its readers.
pub(super) fn is_broken_pipe(kind: Kind, fd: RawFd) -> bool {
    kind == Kind::Pipe && poll(fd) & libc::POLLERR != 0
}

/// What a knote would say now, if its condition holds.
pub(super) fn look(
    kind: Kind,
    fd: RawFd,
    filter: RawFilter,
    fflags: u32,
    mark: i64,
) -> Option<Fired> {
    let polled = if matches!(kind, Kind::File(..)) { 0 } else { poll(fd) };
    // A stream socket that was never connected is hung up, says Linux. On a BSD
    // there is nothing to tell of it.
    let fresh = libc::POLLHUP | libc::POLLRDHUP | libc::POLLERR;
    if kind == Kind::Stream && polled & fresh == libc::POLLHUP {
        return None;
    }
    match filter {
        EVFILT_READ => read(kind, fd, polled, (fflags & NOTE_LOWAT != 0).then_some(mark)),
        EVFILT_WRITE => write(kind, polled),
        _ if polled & libc::POLLPRI != 0 && fflags & NOTE_OOB != 0 => {
            Some(Fired { fflags: NOTE_OOB, ..Fired::default() })
        }
        _ => None,
    }
}

/// BSDs look at low-water marks for sockets only.
fn read(kind: Kind, fd: RawFd, polled: i16, mark: Option<i64>) -> Option<Fired> {
    if let Kind::File(..) = kind {
        let data = status(fd)?.st_size - offset(fd);
        return (data != 0).then_some(Fired { data, ..Fired::default() });
    }
    let data = i64::from(unread(fd));
    let end = match kind {
        Kind::Stream => libc::POLLRDHUP,
        Kind::Pipe | Kind::Terminal => libc::POLLHUP,
        _ => 0,
    };
    if polled & end != 0 {
        return Some(Fired { flags: EV_EOF, fflags: error(polled), data });
    }
    let enough = match mark {
        Some(mark) if matches!(kind, Kind::Stream | Kind::Datagram) => data >= mark,
        _ => polled & libc::POLLIN != 0,
    };
    (enough || polled & libc::POLLERR != 0).then_some(Fired { data, ..Fired::default() })
}

fn write(kind: Kind, polled: i16) -> Option<Fired> {
    let both_ended = polled & libc::POLLHUP != 0 || polled & libc::POLLERR != 0;
    match kind {
        Kind::File(..) => Some(Fired::default()),
        Kind::Stream if both_ended => Some(Fired { flags: EV_EOF, fflags: error(polled), data: 0 }),
        Kind::Terminal if polled & libc::POLLHUP != 0 => {
            Some(Fired { flags: EV_EOF, ..Fired::default() })
        }
        Kind::Pipe if polled & libc::POLLERR != 0 => {
            Some(Fired { flags: EV_EOF, ..Fired::default() })
        }
        _ => (polled & libc::POLLOUT != 0).then_some(Fired::default()),
    }
}

/// That there is an error. To ask Linux which one would take it away.
fn error(polled: i16) -> u32 {
    if polled & libc::POLLERR != 0 { libc::ECONNRESET as u32 } else { 0 }
}

fn poll(fd: RawFd) -> i16 {
    let events = libc::POLLIN | libc::POLLOUT | libc::POLLPRI | libc::POLLRDHUP;
    let mut polled = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one entry, which outlives the call.
    unsafe { libc::poll(&mut polled, 1, 0) };
    polled.revents
}

fn status(fd: RawFd) -> Option<libc::stat> {
    // SAFETY: a structure of integers may be zero.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `status` outlives the call.
    (unsafe { libc::fstat(fd, &mut status) } == 0).then_some(status)
}

fn offset(fd: RawFd) -> i64 {
    // SAFETY: it takes no pointer.
    unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) }.max(0)
}

/// How many bytes can be read; 0 of what does not tell, such as a listener.
fn unread(fd: RawFd) -> i32 {
    let mut count = 0;
    // SAFETY: an integer is written to `count`.
    unsafe { libc::ioctl(fd, libc::FIONREAD, &mut count) };
    count
}

fn socket_type(fd: RawFd) -> i32 {
    let (mut kind, mut len) = (0, 4);
    // SAFETY: an integer is written to `kind`; `len` says how long it is.
    unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut kind).cast(), &mut len)
    };
    kind
}
