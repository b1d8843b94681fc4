//! Terminals.

mod modes;

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::Transport;
use crate::handles::{Guess, TtyMode, WindowSize};

pub(super) use modes::Saved;
pub(crate) use modes::reset_mode;

/// What has a descriptor: [`Tty::new`](crate::Tty::new) takes one.
pub(crate) use std::os::fd::AsFd as AsDescriptor;

/// A terminal that was opened for a stream.
#[derive(Debug)]
pub(crate) struct Terminal {
    pub(crate) transport: Transport,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// It shares the caller's flags, and so must not be made non-blocking.
    pub(crate) blocking: bool,
}

impl Terminal {
    /// Opens the terminal behind `descriptor` anew, so that being non-blocking is ours alone.
    /// Where that is not possible, the descriptor is duplicated and left as it is.
    pub(crate) fn open(descriptor: &impl AsDescriptor) -> io::Result<Terminal> {
        let theirs = descriptor.as_fd();
        if !is_terminal(theirs) {
            let why = "not a terminal: files, pipes and sockets have handles of their own, \
                       and guess_handle() says which";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let flags = flags(theirs)?;
        let access = flags & libc::O_ACCMODE;
        let (readable, writable) = (access != libc::O_WRONLY, access != libc::O_RDONLY);
        let (fd, blocking) = match reopen(theirs, access) {
            Some(ours) => (ours, false),
            None => (theirs.try_clone_to_owned()?, flags & libc::O_NONBLOCK == 0),
        };
        Ok(Terminal { transport: Transport::terminal(fd), readable, writable, blocking })
    }
}

/// Opens the same terminal again. `None` if it cannot be: it is the master of a
/// pseudo-terminal, which no name leads to, or it is somebody else's.
fn reopen(theirs: BorrowedFd<'_>, access: libc::c_int) -> Option<OwnedFd> {
    let mut name = [0; 128];
    let path = name_of(theirs, &mut name)?;
    let flags = access | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: the path ends with a NUL.
    let fd = unsafe { libc::open(path.as_ptr(), flags) };
    if fd < 0 {
        return None;
    }
    // SAFETY: the kernel has just given it to us.
    let ours = unsafe { OwnedFd::from_raw_fd(fd) };
    // A name may lead elsewhere: in a container, say, or for a master.
    let same = |one: &libc::stat, other: &libc::stat| {
        (one.st_dev, one.st_ino, one.st_rdev) == (other.st_dev, other.st_ino, other.st_rdev)
    };
    same(&status(theirs).ok()?, &status(ours.as_fd()).ok()?).then_some(ours)
}

cfg_if::cfg_if! {
    if #[cfg(any(target_os = "linux", target_os = "android"))] {
        /// A path that leads to the terminal, in whatever namespace it is.
        fn name_of<'a>(fd: BorrowedFd<'_>, name: &'a mut [u8; 128]) -> Option<&'a CStr> {
            use std::io::Write as _;

            let mut number: libc::c_int = 0;
            // SAFETY: writes one `int`, and only of a master.
            if unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCGPTN, &raw mut number) } == 0 {
                return None; // Its path would make another pseudo-terminal.
            }
            write!(&mut name[..], "/proc/self/fd/{}\0", fd.as_raw_fd()).ok()?;
            CStr::from_bytes_until_nul(name).ok()
        }
    } else {
        /// The terminal's name.
        fn name_of<'a>(fd: BorrowedFd<'_>, name: &'a mut [u8; 128]) -> Option<&'a CStr> {
            let (place, room) = (name.as_mut_ptr().cast::<libc::c_char>(), name.len());
            // SAFETY: writes no more than there is room.
            match unsafe { libc::ttyname_r(fd.as_raw_fd(), place, room as _) } {
                0 => CStr::from_bytes_until_nul(name).ok(),
                _ => None,
            }
        }
    }
}

fn is_terminal(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::isatty(fd.as_raw_fd()) == 1 }
}

fn flags(fd: BorrowedFd<'_>) -> io::Result<libc::c_int> {
    // SAFETY: no memory is passed.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) } {
        -1 => Err(io::Error::last_os_error()),
        flags => Ok(flags),
    }
}

fn status(fd: BorrowedFd<'_>) -> io::Result<libc::stat> {
    let mut status = MaybeUninit::uninit();
    // SAFETY: writes one `stat`.
    match unsafe { libc::fstat(fd.as_raw_fd(), status.as_mut_ptr()) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: written by the call.
        _ => Ok(unsafe { status.assume_init() }),
    }
}

impl Transport {
    /// Sets the mode of a terminal.
    pub(crate) fn set_mode(&mut self, mode: TtyMode) -> io::Result<()> {
        let device = status(self.as_fd())?.st_rdev;
        modes::set_mode(self.as_raw_fd(), device, &mut self.saved, mode)
    }

    /// The size of the terminal's window, in characters.
    pub(crate) fn window_size(&self) -> io::Result<WindowSize> {
        window_size(self.as_raw_fd())
    }
}

fn window_size(fd: RawFd) -> io::Result<WindowSize> {
    let mut size = MaybeUninit::<libc::winsize>::zeroed();
    // SAFETY: writes one `winsize`.
    match unsafe { libc::ioctl(fd, libc::TIOCGWINSZ, size.as_mut_ptr()) } {
        -1 => Err(io::Error::last_os_error()),
        _ => {
            // SAFETY: all zeros are one, and the call has written another.
            let size = unsafe { size.assume_init() };
            Ok(WindowSize { columns: size.ws_col, rows: size.ws_row })
        }
    }
}

/// True if nobody is at the other end any more.
pub(super) fn is_hung_up(fd: RawFd) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one `pollfd`, which lives across the call.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 && poll.revents & libc::POLLHUP != 0 }
}

/// What a descriptor is.
pub(crate) fn guess(descriptor: &impl AsDescriptor) -> Guess {
    let fd = descriptor.as_fd();
    if is_terminal(fd) {
        return Guess::Tty;
    }
    let Ok(status) = status(fd) else { return Guess::Unknown };
    match status.st_mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFCHR => Guess::File,
        libc::S_IFIFO => Guess::Pipe,
        libc::S_IFSOCK => guess_socket(fd).unwrap_or(Guess::Unknown),
        _ => Guess::Unknown,
    }
}

fn guess_socket(fd: BorrowedFd<'_>) -> Option<Guess> {
    let socket = socket2::SockRef::from(&fd);
    let (kind, address) = (socket.r#type().ok()?, socket.local_addr().ok()?);
    match kind {
        socket2::Type::STREAM if address.as_socket().is_some() => Some(Guess::Tcp),
        socket2::Type::STREAM if address.is_unix() => Some(Guess::Pipe),
        socket2::Type::DGRAM if address.as_socket().is_some() => Some(Guess::Udp),
        _ => None,
    }
}
