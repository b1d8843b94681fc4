//! The condition of a filter, derived from what Linux reports of a descriptor.

use std::os::fd::RawFd;

use super::Rules;
use crate::sys::{EV_EOF, EVFILT_READ, EVFILT_WRITE, Kevent, NOTE_LOWAT, NOTE_OOB, RawFlags};

/// `ECONNRESET` as the BSDs and Apple number it. The number contains the bit of `NOTE_OOB`.
const ECONNRESET: u32 = 54;

/// The major numbers of the slaves of Linux's pseudo-terminals.
const SLAVES: std::ops::RangeInclusive<libc::c_uint> = 136..=143;

/// The kind of a descriptor, as far as filters differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Stream,
    /// A socket of another type.
    Datagram,
    Pipe,
    /// The read end of a pipe whose ends have both directions.
    PipeReader,
    /// Either end of a pseudo-terminal.
    Terminal,
    /// A pseudo-terminal whose master is closed.
    HungUpTerminal,
    /// A file that Linux cannot poll. The device and inode numbers identify it.
    File(u64, u64),
    /// A device that Linux cannot poll, such as the null device.
    Device(u64, u64),
    Other,
}

/// The fields that an evaluation sets in an event.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fired {
    pub(super) flags: RawFlags,
    pub(super) fflags: u32,
    pub(super) data: i64,
}

/// The state of a file that a real kernel would announce a change of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    size: i64,
    modified: (i64, i64),
}

impl Kind {
    /// The kind of a descriptor that Linux can poll.
    pub(super) fn of_pollable(fd: RawFd, rules: Rules) -> Result<Kind, i32> {
        let status = status(fd).ok_or(libc::EBADF)?;
        Ok(match status.st_mode & libc::S_IFMT {
            libc::S_IFSOCK if socket_type(fd) == libc::SOCK_DGRAM => Kind::Datagram,
            libc::S_IFSOCK => Kind::Stream,
            libc::S_IFIFO if rules.has_bidirectional_pipes() && is_read_only(fd) => {
                Kind::PipeReader
            }
            libc::S_IFIFO => Kind::Pipe,
            libc::S_IFCHR if is_hung_up_slave(fd, &status) => Kind::HungUpTerminal,
            // SAFETY: no memory is passed.
            libc::S_IFCHR if unsafe { libc::isatty(fd) } == 1 => Kind::Terminal,
            _ => Kind::Other,
        })
    }

    /// The kind of a descriptor that Linux cannot poll.
    pub(super) fn of_file(fd: RawFd) -> Result<Kind, i32> {
        let status = status(fd).ok_or(libc::EBADF)?;
        Ok(match status.st_mode & libc::S_IFMT {
            libc::S_IFCHR => Kind::Device(status.st_dev, status.st_ino),
            _ => Kind::File(status.st_dev, status.st_ino),
        })
    }

    /// True if Linux cannot poll the source.
    pub(super) fn is_file(self) -> bool {
        matches!(self, Kind::File(..) | Kind::Device(..))
    }
}

/// `EBADF` if the descriptor is closed.
pub(super) fn check_open(fd: RawFd) -> Result<(), i32> {
    status(fd).map(drop).ok_or(libc::EBADF)
}

/// The state of a file, if the descriptor is open.
pub(super) fn version(fd: RawFd) -> Option<Version> {
    let status = status(fd)?;
    let modified = (status.st_mtime, status.st_mtime_nsec);
    Some(Version { size: status.st_size, modified })
}

/// True if the other end of a pipe is closed.
pub(super) fn is_broken_pipe(kind: Kind, fd: RawFd) -> bool {
    match kind {
        Kind::Pipe => poll(fd) & libc::POLLERR != 0,
        Kind::PipeReader => poll(fd) & libc::POLLHUP != 0,
        _ => false,
    }
}

/// Evaluates a knote: the fields of its event if its condition holds.
pub(super) fn evaluate(kind: Kind, knote: &Kevent, rules: Rules) -> Option<Fired> {
    let fd = knote.ident() as RawFd;
    let polled = if kind.is_file() { 0 } else { poll(fd) };
    // Linux reports a stream socket that was never connected as hung up. Its filters do not fire
    // on a BSD.
    let fresh = libc::POLLHUP | libc::POLLRDHUP | libc::POLLERR;
    if kind == Kind::Stream && polled & fresh == libc::POLLHUP {
        return None;
    }
    match knote.filter() {
        EVFILT_READ => read(kind, fd, polled, low_water_mark(knote)),
        EVFILT_WRITE => write(kind, polled),
        _ => except(kind, polled, knote.fflags(), rules),
    }
}

fn low_water_mark(knote: &Kevent) -> Option<i64> {
    (knote.fflags() & NOTE_LOWAT != 0).then_some(knote.data())
}

/// The BSDs honour low-water marks of sockets only.
fn read(kind: Kind, fd: RawFd, polled: i16, mark: Option<i64>) -> Option<Fired> {
    if kind.is_file() {
        let data = status(fd)?.st_size - offset(fd);
        return (data != 0).then_some(Fired { data, ..Fired::default() });
    }
    let data = i64::from(unread(fd));
    let end = match kind {
        Kind::Stream => libc::POLLRDHUP,
        Kind::Pipe | Kind::PipeReader | Kind::Terminal | Kind::HungUpTerminal => libc::POLLHUP,
        _ => 0,
    };
    if polled & end != 0 {
        return Some(Fired { flags: EV_EOF, fflags: error(kind, polled), data });
    }
    let enough = match mark {
        Some(mark) if matches!(kind, Kind::Stream | Kind::Datagram) => data >= mark,
        _ => polled & libc::POLLIN != 0,
    };
    (enough || polled & libc::POLLERR != 0).then_some(Fired { data, ..Fired::default() })
}

fn write(kind: Kind, polled: i16) -> Option<Fired> {
    let (hung_up, failed) = (polled & libc::POLLHUP != 0, polled & libc::POLLERR != 0);
    let ended = match kind {
        Kind::Stream => hung_up || failed,
        Kind::Terminal | Kind::HungUpTerminal | Kind::PipeReader => hung_up,
        Kind::Pipe => failed,
        _ => false,
    };
    if ended {
        return Some(Fired { flags: EV_EOF, fflags: error(kind, polled), data: 0 });
    }
    let writable = kind.is_file() || kind == Kind::PipeReader || polled & libc::POLLOUT != 0;
    writable.then_some(Fired::default())
}

fn except(kind: Kind, polled: i16, wanted: u32, rules: Rules) -> Option<Fired> {
    if rules.reports_end_as_exception() && kind == Kind::Stream && polled & libc::POLLRDHUP != 0 {
        return Some(Fired { flags: EV_EOF, fflags: error(kind, polled), data: 0 });
    }
    let urgent = polled & libc::POLLPRI != 0 && wanted & NOTE_OOB != 0;
    urgent.then_some(Fired { fflags: NOTE_OOB, ..Fired::default() })
}

/// The error of a socket, as a BSD numbers it. To read the error from Linux would clear it.
fn error(kind: Kind, polled: i16) -> u32 {
    if kind == Kind::Stream && polled & libc::POLLERR != 0 { ECONNRESET } else { 0 }
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

/// The slave of a pseudo-terminal after its master was closed. It is no terminal any more.
fn is_hung_up_slave(fd: RawFd, status: &libc::stat) -> bool {
    SLAVES.contains(&libc::major(status.st_rdev)) && poll(fd) & libc::POLLHUP != 0
}

fn is_read_only(fd: RawFd) -> bool {
    // SAFETY: no memory is passed.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags & libc::O_ACCMODE == libc::O_RDONLY
}

fn offset(fd: RawFd) -> i64 {
    // SAFETY: no memory is passed.
    unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) }.max(0)
}

/// The number of bytes to read; 0 if Linux does not report it, as for a listener.
fn unread(fd: RawFd) -> i32 {
    let mut count = 0;
    // SAFETY: the kernel writes an integer to `count`.
    unsafe { libc::ioctl(fd, libc::FIONREAD, &mut count) };
    count
}

fn socket_type(fd: RawFd) -> i32 {
    let (mut kind, mut len) = (0, 4);
    // SAFETY: the kernel writes an integer to `kind`, and `len` is its length.
    unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, (&raw mut kind).cast(), &mut len)
    };
    kind
}
