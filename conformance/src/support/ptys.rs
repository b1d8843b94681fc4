//! Pseudo-terminals: a master end with screen and keyboard, and a slave end.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::{Duration, Instant};

use super::observe::SOON;
use crate::Skip;

/// A pseudo-terminal.
#[derive(Debug)]
pub(crate) struct Pty {
    /// The end with screen and keyboard, non-blocking.
    pub(crate) master: File,
    /// The end for programs, blocking.
    pub(crate) slave: File,
}

/// The comparable part of a terminal's mode.
pub(crate) type Mode = [libc::tcflag_t; 4];

impl Pty {
    /// Creates a pseudo-terminal with a window of 80 by 24 that echoes lines.
    pub(crate) fn new() -> Result<Pty, Skip> {
        let (mut master, mut slave) = (-1, -1);
        let mut size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let (name, mode) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: both descriptors and the size outlive the call; the null pointers select
        // defaults.
        let made = unsafe { libc::openpty(&mut master, &mut slave, name, mode, &raw mut size) };
        if made != 0 {
            let error = io::Error::last_os_error();
            return Err(Skip::because(format!("this system has no pseudo-terminals: {error}")));
        }
        let own = |fd| {
            // SAFETY: `openpty` has just created it, and it has no other owner.
            File::from(unsafe { OwnedFd::from_raw_fd(fd) })
        };
        let (master, slave) = (own(master), own(slave));
        set_flags(&master, flags(&master) | libc::O_NONBLOCK);
        Ok(Pty { master, slave })
    }

    /// Writes input from the keyboard.
    #[track_caller]
    pub(crate) fn keys(&self, keys: &[u8]) {
        (&self.master).write_all(keys).expect("a keyboard that takes a few keys");
    }

    /// Waits until the screen shows exactly this since the last call.
    #[track_caller]
    pub(crate) fn shows(&self, expected: &[u8]) {
        let (started, mut shown) = (Instant::now(), Vec::new());
        while shown.len() < expected.len() && started.elapsed() < SOON {
            shown.extend(self.take_output());
        }
        // Surplus output needs time to arrive, too.
        std::thread::sleep(Duration::from_millis(2));
        shown.extend(self.take_output());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&shown), text(expected), "the screen");
    }

    /// The output to the screen since the last call.
    pub(crate) fn take_output(&self) -> Vec<u8> {
        let mut shown = vec![0; 1 << 16];
        match (&self.master).read(&mut shown) {
            Ok(count) => shown.truncate(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => shown.clear(),
            Err(error) => panic!("the screen: {error}"),
        }
        shown
    }

    /// The current mode of the terminal.
    pub(crate) fn mode(&self) -> Mode {
        // SAFETY: `termios` is plain data, for which all zeros are valid.
        let mut mode: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: `mode` outlives the call, which writes one `termios`.
        let got = unsafe { libc::tcgetattr(self.slave.as_raw_fd(), &mut mode) };
        assert_eq!(got, 0, "tcgetattr: {}", io::Error::last_os_error());
        [mode.c_iflag, mode.c_oflag, mode.c_cflag, mode.c_lflag]
    }

    /// Changes the size of the window.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: `size` outlives the call, which reads one `winsize`.
        let set = unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &size) };
        assert_eq!(set, 0, "TIOCSWINSZ: {}", io::Error::last_os_error());
    }
}

/// The status flags of the file behind a descriptor.
pub(crate) fn flags(file: &impl AsRawFd) -> libc::c_int {
    // SAFETY: `F_GETFL` takes no pointer.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    assert!(flags >= 0, "F_GETFL: {}", io::Error::last_os_error());
    flags
}

fn set_flags(file: &impl AsRawFd, flags: libc::c_int) {
    // SAFETY: `F_SETFL` takes no pointer.
    let set = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) };
    assert_eq!(set, 0, "F_SETFL: {}", io::Error::last_os_error());
}
