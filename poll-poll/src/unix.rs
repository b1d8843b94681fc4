//! `ppoll` and `poll`, and what their flags mean.

use std::io;
use std::time::Duration;

use poll_core::{RawSource, Ready};

pub(crate) use libc::{POLLNVAL, pollfd as PollFd};

/// An entry that the kernel passes over.
pub(crate) const NO_ENTRY: PollFd = PollFd { fd: -1, events: 0, revents: 0 };

cfg_if::cfg_if! {
    if #[cfg(any(
        target_os = "linux",
        target_os = "android",
        target_os = "freebsd",
        target_os = "illumos",
    ))] {
        const POLLRDHUP: i16 = libc::POLLRDHUP;
    } else {
        const POLLRDHUP: i16 = 0;
    }
}

pub(crate) const SEES_DISCONNECT: bool = POLLRDHUP != 0;

/// The conditions that can be asked for come first.
const FLAGS: [(i16, Ready); 7] = [
    (libc::POLLIN, Ready::READ),
    (libc::POLLOUT, Ready::WRITE),
    (libc::POLLPRI, Ready::PRIORITY),
    (POLLRDHUP, Ready::DISCONNECT),
    (libc::POLLHUP, Ready::HANGUP),
    (libc::POLLERR, Ready::ERROR),
    (libc::POLLNVAL, Ready::ERROR),
];

/// The entry that asks for `interest`.
pub(crate) fn entry(source: RawSource, interest: Ready) -> PollFd {
    let asked = FLAGS[..4].iter().filter(|(_, ready)| interest.contains(*ready));
    PollFd { fd: source.fd(), events: asked.fold(0, |all, (flag, _)| all | flag), revents: 0 }
}

/// What an answer means.
pub(crate) fn seen(revents: i16) -> Ready {
    FLAGS.iter().filter(|(flag, _)| revents & flag != 0).map(|(_, ready)| *ready).collect()
}

/// Fails unless the descriptor is open.
pub(crate) fn check_open(source: RawSource) -> io::Result<()> {
    // SAFETY: the call takes a number and touches no memory.
    match unsafe { libc::fcntl(source.fd(), libc::F_GETFD) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Waits until an entry has an answer, and returns how many have.
pub(crate) fn poll(entries: &mut [PollFd], timeout: Option<Duration>) -> io::Result<usize> {
    usize::try_from(system_call(entries, timeout)).map_err(|_| io::Error::last_os_error())
}

cfg_if::cfg_if! {
    if #[cfg(any(
        target_os = "linux",
        target_os = "android",
        target_os = "freebsd",
        target_os = "netbsd",
        target_os = "openbsd",
        target_os = "dragonfly",
    ))] {
        /// The longest timeout that all these kernels take, in seconds: three years.
        /// A wait of more calls again.
        const LONGEST_S: u64 = 100_000_000;

        fn system_call(entries: &mut [PollFd], timeout: Option<Duration>) -> i32 {
            let timeout = timeout.map(|timeout| libc::timespec {
                tv_sec: timeout.as_secs().min(LONGEST_S) as _,
                tv_nsec: timeout.subsec_nanos() as _,
            });
            let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            let (list, len) = (entries.as_mut_ptr(), entries.len() as libc::nfds_t);
            // SAFETY: `list` and `len` describe `entries`, `timeout` is null or points to
            // a local, and no signal mask is given.
            unsafe { libc::ppoll(list, len, timeout, std::ptr::null()) }
        }
    } else {
        fn system_call(entries: &mut [PollFd], timeout: Option<Duration>) -> i32 {
            // Rounded up: a wait may be late, never early.
            let round_up = |timeout: Duration| {
                timeout.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32
            };
            let (list, len) = (entries.as_mut_ptr(), entries.len() as libc::nfds_t);
            // SAFETY: `list` and `len` describe `entries`.
            unsafe { libc::poll(list, len, timeout.map_or(-1, round_up)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interest_asks_for_its_flags_only() {
        let source = RawSource::from_fd(3);
        assert_eq!(entry(source, Ready::READ | Ready::WRITE).events, libc::POLLIN | libc::POLLOUT);
        assert_eq!(entry(source, Ready::PRIORITY | Ready::ERROR).events, libc::POLLPRI);
        assert_eq!(entry(source, Ready::DISCONNECT).events, POLLRDHUP);
        assert_eq!(entry(source, Ready::HANGUP).events, 0);
    }

    #[test]
    fn failures_are_told_apart() {
        assert_eq!(seen(libc::POLLIN | libc::POLLHUP), Ready::READ | Ready::HANGUP);
        assert_eq!(seen(libc::POLLERR), Ready::ERROR);
        assert_eq!(seen(libc::POLLNVAL), Ready::ERROR);
        assert_eq!(seen(0), Ready::NONE);
    }
}
