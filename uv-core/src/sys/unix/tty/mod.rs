//! Terminals: opening, window size, and what a descriptor is.

mod modes;

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::Transport;
use crate::handles::{HandleKind, TtyMode, WindowSize};

pub(super) use modes::Saved;
pub(crate) use modes::reset_mode;

/// The bound of [`Tty::new`](crate::Tty::new): a type that has a descriptor.
pub(crate) use std::os::fd::AsFd as AsDescriptor;

/// A terminal that was opened for a stream.
#[derive(Debug)]
pub(crate) struct Terminal {
    pub(crate) transport: Transport,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// True if it shares the caller's open file description, and so must stay blocking.
    pub(crate) blocking: bool,
}

impl Terminal {
    /// Reopens the terminal of `descriptor`, so that the stream has an open file description of its
    /// own to make non-blocking. If that is not possible, the descriptor is duplicated and its
    /// flags stay unchanged.
    pub(crate) fn open(descriptor: &impl AsDescriptor) -> io::Result<Terminal> {
        let theirs = descriptor.as_fd();
        if !is_terminal(theirs) {
            let why = "not a terminal: files, pipes and sockets have handles of their own, \
                       which guess_handle() determines";
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

/// Opens the same terminal, or on Linux the same pipe, again. `None` if that fails: for the master
/// of a pseudo-terminal, which has no path, for a terminal of another user, and for a pipe without
/// readers.
pub(super) fn reopen(theirs: BorrowedFd<'_>, access: libc::c_int) -> Option<OwnedFd> {
    let mut name = [0; 128];
    let path = name_of(theirs, &mut name)?;
    let flags = access | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: reads a NUL-terminated path, which `CStr` guarantees.
    let fd = unsafe { libc::open(path.as_ptr(), flags) };
    if fd < 0 {
        return None;
    }
    // SAFETY: the call has returned a new descriptor, which nothing else owns.
    let ours = unsafe { OwnedFd::from_raw_fd(fd) };
    // The path may be that of another file, for example in a container or for a master.
    let same = |one: &libc::stat, other: &libc::stat| {
        (one.st_dev, one.st_ino, one.st_rdev) == (other.st_dev, other.st_ino, other.st_rdev)
    };
    same(&status(theirs).ok()?, &status(ours.as_fd()).ok()?).then_some(ours)
}

cfg_if::cfg_if! {
    if #[cfg(any(target_os = "linux", target_os = "android"))] {
        /// A path of the terminal or pipe, which is valid in every mount namespace.
        fn name_of<'a>(fd: BorrowedFd<'_>, name: &'a mut [u8; 128]) -> Option<&'a CStr> {
            use std::io::Write as _;

            let mut number: libc::c_int = 0;
            // SAFETY: writes one `int`, to a local of that type, if the descriptor is a master.
            if unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCGPTN, &raw mut number) } == 0 {
                return None; // Opening its path would create another pseudo-terminal.
            }
            write!(&mut name[..], "/proc/self/fd/{}\0", fd.as_raw_fd()).ok()?;
            CStr::from_bytes_until_nul(name).ok()
        }
    } else {
        /// The path of the terminal.
        fn name_of<'a>(fd: BorrowedFd<'_>, name: &'a mut [u8; 128]) -> Option<&'a CStr> {
            let (place, capacity) = (name.as_mut_ptr().cast::<libc::c_char>(), name.len());
            // SAFETY: writes at most `capacity` bytes, the size of `name`.
            match unsafe { libc::ttyname_r(fd.as_raw_fd(), place, capacity as _) } {
                0 => CStr::from_bytes_until_nul(name).ok(),
                _ => None,
            }
        }
    }
}

fn is_terminal(fd: BorrowedFd<'_>) -> bool {
    // SAFETY: takes no pointer.
    unsafe { libc::isatty(fd.as_raw_fd()) == 1 }
}

fn flags(fd: BorrowedFd<'_>) -> io::Result<libc::c_int> {
    // SAFETY: takes no pointer.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) } {
        -1 => Err(io::Error::last_os_error()),
        flags => Ok(flags),
    }
}

fn status(fd: BorrowedFd<'_>) -> io::Result<libc::stat> {
    let mut status = MaybeUninit::uninit();
    // SAFETY: writes one `stat`, to a local of that type.
    match unsafe { libc::fstat(fd.as_raw_fd(), status.as_mut_ptr()) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the call has succeeded, so it has written the value.
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
    // SAFETY: writes one `winsize`, to a local of that type.
    match unsafe { libc::ioctl(fd, libc::TIOCGWINSZ, size.as_mut_ptr()) } {
        -1 => Err(io::Error::last_os_error()),
        _ => {
            // SAFETY: zeroed, and zero is valid for its integers; the call has written the rest.
            let size = unsafe { size.assume_init() };
            Ok(WindowSize { columns: size.ws_col, rows: size.ws_row })
        }
    }
}

/// True if the other end is closed (`POLLHUP`).
pub(super) fn is_hung_up(fd: RawFd) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: reads and writes one `pollfd`, a local that outlives the call.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 && poll.revents & libc::POLLHUP != 0 }
}

/// The kind of handle that a descriptor needs.
pub(crate) fn guess(descriptor: &impl AsDescriptor) -> HandleKind {
    let fd = descriptor.as_fd();
    if is_terminal(fd) {
        return HandleKind::Tty;
    }
    let Ok(status) = status(fd) else { return HandleKind::Unknown };
    match status.st_mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFCHR => HandleKind::File,
        libc::S_IFIFO => HandleKind::Pipe,
        libc::S_IFSOCK => guess_socket(fd).unwrap_or(HandleKind::Unknown),
        _ => HandleKind::Unknown,
    }
}

fn guess_socket(fd: BorrowedFd<'_>) -> Option<HandleKind> {
    let socket = socket2::SockRef::from(&fd);
    let (kind, address) = (socket.r#type().ok()?, socket.local_addr().ok()?);
    match kind {
        socket2::Type::STREAM if address.as_socket().is_some() => Some(HandleKind::Tcp),
        socket2::Type::STREAM if address.is_unix() => Some(HandleKind::Pipe),
        socket2::Type::DGRAM if address.as_socket().is_some() => Some(HandleKind::Udp),
        _ => None,
    }
}
