//! `ppoll(2)` and `poll(2)`, and the mapping of their flags.

use std::io;
use std::time::Duration;

use poll_core::{Interest, RawSource, Readiness};

pub(crate) use libc::{POLLNVAL, pollfd as PollFd};

/// An entry that the kernel ignores.
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

/// `Readiness::DISCONNECT` is supported.
pub(crate) const HAS_DISCONNECT: bool = POLLRDHUP != 0;

/// The conditions of an interest come first.
const FLAGS: [(i16, Readiness); 7] = [
    (libc::POLLIN, Readiness::READ),
    (libc::POLLOUT, Readiness::WRITE),
    (libc::POLLPRI, Readiness::PRIORITY),
    (POLLRDHUP, Readiness::DISCONNECT),
    (libc::POLLHUP, Readiness::HANGUP),
    (libc::POLLERR, Readiness::ERROR),
    (libc::POLLNVAL, Readiness::ERROR),
];

/// Returns the entry that watches for `interest`.
pub(crate) fn entry(source: RawSource, interest: Interest) -> PollFd {
    let asked = FLAGS[..4].iter().filter(|(_, ready)| interest.to_readiness().contains(*ready));
    PollFd { fd: source.fd(), events: asked.fold(0, |all, (flag, _)| all | flag), revents: 0 }
}

/// Returns the conditions in `pollfd.revents`.
pub(crate) fn to_ready(revents: i16) -> Readiness {
    FLAGS.iter().filter(|(flag, _)| revents & flag != 0).map(|(_, ready)| *ready).collect()
}

/// Fails unless the descriptor is open.
pub(crate) fn check_open(source: RawSource) -> io::Result<()> {
    // SAFETY: `F_GETFD` takes no pointer.
    match unsafe { libc::fcntl(source.fd(), libc::F_GETFD) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Blocks until an entry has a result, and returns the number of such entries.
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
        /// `Deadline::repeat` calls again for the rest.
        const MAX_TIMEOUT_S: u64 = 100_000_000;

        fn system_call(entries: &mut [PollFd], timeout: Option<Duration>) -> i32 {
            let timeout = timeout.map(|timeout| libc::timespec {
                tv_sec: timeout.as_secs().min(MAX_TIMEOUT_S) as _,
                tv_nsec: timeout.subsec_nanos() as _,
            });
            let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            let (list, len) = (entries.as_mut_ptr(), entries.len() as libc::nfds_t);
            // SAFETY: `list` and `len` describe the slice `entries`; `timeout` is null or points
            // to a local variable; a null signal mask is allowed.
            unsafe { libc::ppoll(list, len, timeout, std::ptr::null()) }
        }
    } else {
        fn system_call(entries: &mut [PollFd], timeout: Option<Duration>) -> i32 {
            // A wait may be late, never early.
            let round_up = |timeout: Duration| {
                timeout.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32
            };
            let (list, len) = (entries.as_mut_ptr(), entries.len() as libc::nfds_t);
            // SAFETY: `list` and `len` describe the slice `entries`.
            unsafe { libc::poll(list, len, timeout.map_or(-1, round_up)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_flags_of_its_interest_only() {
        let source = RawSource::from_fd(3);
        assert_eq!(
            entry(source, Interest::READ | Interest::WRITE).events,
            libc::POLLIN | libc::POLLOUT
        );
        assert_eq!(entry(source, Interest::PRIORITY).events, libc::POLLPRI);
        assert_eq!(entry(source, Interest::DISCONNECT).events, POLLRDHUP);
        assert_eq!(entry(source, Interest::NONE).events, 0);
    }

    #[test]
    fn failures_map_to_distinct_conditions() {
        assert_eq!(to_ready(libc::POLLIN | libc::POLLHUP), Readiness::READ | Readiness::HANGUP);
        assert_eq!(to_ready(libc::POLLERR), Readiness::ERROR);
        assert_eq!(to_ready(libc::POLLNVAL), Readiness::ERROR);
        assert_eq!(to_ready(0), Readiness::NONE);
    }
}
