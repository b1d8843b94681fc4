//! Pseudo-terminals: the screen and the keyboard at one end, the terminal at the other.

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
    /// The end with a screen and a keyboard. It does not block.
    pub(crate) master: File,
    /// The end for programs. It blocks.
    pub(crate) slave: File,
}

/// What can be compared of a terminal's mode.
pub(crate) type Mode = [libc::tcflag_t; 4];

impl Pty {
    /// A pseudo-terminal with a window of 80 by 24, that echoes lines.
    pub(crate) fn new() -> Result<Pty, Skip> {
        let (mut master, mut slave) = (-1, -1);
        let mut size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let (name, mode) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: writes two numbers and reads the size; a null pointer is for nothing.
        let made = unsafe { libc::openpty(&mut master, &mut slave, name, mode, &raw mut size) };
        if made != 0 {
            let error = io::Error::last_os_error();
            return Err(Skip::because(format!("this system has no pseudo-terminals: {error}")));
        }
        let own = |fd| {
            // SAFETY: it was just made, and is nobody else's.
            File::from(unsafe { OwnedFd::from_raw_fd(fd) })
        };
        let (master, slave) = (own(master), own(slave));
        set_flags(&master, flags(&master) | libc::O_NONBLOCK);
        Ok(Pty { master, slave })
    }

    /// Types on the keyboard.
    #[track_caller]
    pub(crate) fn keys(&self, keys: &[u8]) {
        (&self.master).write_all(keys).expect("a keyboard that takes a few keys");
    }

    /// Waits until this, and nothing else, is on the screen since the last look.
    #[track_caller]
    pub(crate) fn shows(&self, expected: &[u8]) {
        let (started, mut shown) = (Instant::now(), Vec::new());
        while shown.len() < expected.len() && started.elapsed() < SOON {
            shown.extend(self.look());
        }
        // What is too much needs its time, too.
        std::thread::sleep(Duration::from_millis(2));
        shown.extend(self.look());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&shown), text(expected), "the screen");
    }

    /// What has come to the screen since the last look.
    pub(crate) fn look(&self) -> Vec<u8> {
        let mut shown = vec![0; 1 << 16];
        match (&self.master).read(&mut shown) {
            Ok(count) => shown.truncate(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => shown.clear(),
            Err(error) => panic!("the screen: {error}"),
        }
        shown
    }

    /// The mode that the terminal is in.
    pub(crate) fn mode(&self) -> Mode {
        // SAFETY: all zeros are a valid `termios`.
        let mut mode: libc::termios = unsafe { std::mem::zeroed() };
        // SAFETY: writes one `termios`.
        let got = unsafe { libc::tcgetattr(self.slave.as_raw_fd(), &mut mode) };
        assert_eq!(got, 0, "tcgetattr: {}", io::Error::last_os_error());
        [mode.c_iflag, mode.c_oflag, mode.c_cflag, mode.c_lflag]
    }

    /// Changes the size of the window.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: reads one `winsize`.
        let set = unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &size) };
        assert_eq!(set, 0, "TIOCSWINSZ: {}", io::Error::last_os_error());
    }
}

/// The flags of the file behind a descriptor.
pub(crate) fn flags(file: &impl AsRawFd) -> libc::c_int {
    // SAFETY: no memory is passed.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    assert!(flags >= 0, "F_GETFL: {}", io::Error::last_os_error());
    flags
}

fn set_flags(file: &impl AsRawFd, flags: libc::c_int) {
    // SAFETY: no memory is passed.
    let set = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) };
    assert_eq!(set, 0, "F_SETFL: {}", io::Error::last_os_error());
}
