//! `WSAPoll`, and the mapping of its flags.

use std::io;
use std::time::Duration;

use poll_core::{Interest, RawSource, Readiness};
use windows_sys::Win32::Networking::WinSock::{
    INVALID_SOCKET, POLLERR, POLLHUP, POLLRDBAND, POLLRDNORM, POLLWRNORM, SO_TYPE, SOCKET_ERROR,
    SOL_SOCKET, WSAPoll, getsockopt,
};

pub(crate) use windows_sys::Win32::Networking::WinSock::{POLLNVAL, WSAPOLLFD as PollFd};

/// An entry that Winsock ignores.
pub(crate) const NO_ENTRY: PollFd = PollFd { fd: INVALID_SOCKET, events: 0, revents: 0 };

/// `Interest::DISCONNECT` is not supported: `POLLHUP` may be withheld until all data is read.
pub(crate) const HAS_DISCONNECT: bool = false;

/// The flags of an interest. `POLLIN` would include urgent data, and `POLLPRI` makes `WSAPoll`
/// fail.
const INTEREST: [(i16, Interest); 3] =
    [(POLLRDNORM, Interest::READ), (POLLWRNORM, Interest::WRITE), (POLLRDBAND, Interest::PRIORITY)];

/// Returns the entry that watches for `interest`.
pub(crate) fn entry(source: RawSource, interest: Interest) -> PollFd {
    let asked = INTEREST.iter().filter(|(_, ready)| interest.contains(*ready));
    let events = asked.fold(0, |all, (flag, _)| all | flag);
    PollFd { fd: source.socket() as usize, events, revents: 0 }
}

/// Returns the conditions in `WSAPOLLFD.revents`. `POLLHUP` alone is a peer that has shut down
/// its writing side: the other direction may still be open. With `POLLERR` it is an abort.
pub(crate) fn to_ready(revents: i16) -> Readiness {
    let flags = [
        (POLLRDNORM, Readiness::READ),
        (POLLWRNORM, Readiness::WRITE),
        (POLLRDBAND, Readiness::PRIORITY),
        (POLLHUP, Readiness::READ),
        (POLLERR, Readiness::ERROR),
        (POLLERR | POLLHUP, Readiness::ERROR.union(Readiness::HANGUP)),
        (POLLNVAL, Readiness::ERROR),
    ];
    flags.iter().filter(|(flag, _)| revents & flag == *flag).map(|(_, ready)| *ready).collect()
}

/// Fails unless the source is an open socket.
pub(crate) fn check_open(source: RawSource) -> io::Result<()> {
    let mut kind = 0i32;
    let mut len = size_of::<i32>() as i32;
    let (socket, out) = (source.socket() as usize, (&raw mut kind).cast());
    // SAFETY: `out` and `len` describe the local variable `kind`.
    match unsafe { getsockopt(socket, SOL_SOCKET, SO_TYPE, out, &mut len) } {
        SOCKET_ERROR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Blocks until an entry has a result, and returns the number of such entries.
pub(crate) fn poll(entries: &mut [PollFd], timeout: Option<Duration>) -> io::Result<usize> {
    // A wait may be late, never early. `Deadline::repeat` calls again for the rest.
    let round_up =
        |timeout: Duration| timeout.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
    let (list, len) = (entries.as_mut_ptr(), entries.len() as u32);
    // SAFETY: `list` and `len` describe the slice `entries`, which `WSAPoll` accesses during the
    // call only.
    let count = unsafe { WSAPoll(list, len, timeout.map_or(-1, round_up)) };
    if count == SOCKET_ERROR {
        return Err(io::Error::last_os_error());
    }
    // The count of `WSAPoll` leaves out closed sockets, whose `revents` are `POLLNVAL`.
    Ok(entries.iter().filter(|entry| entry.revents != 0).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_flags_of_its_interest_only() {
        let source = RawSource::from_socket(4);
        assert_eq!(entry(source, Interest::READ | Interest::WRITE).events, POLLRDNORM | POLLWRNORM);
        assert_eq!(entry(source, Interest::PRIORITY).events, POLLRDBAND);
    }

    #[test]
    fn an_abort_is_a_hangup_and_a_shutdown_is_not() {
        assert_eq!(to_ready(POLLHUP), Readiness::READ);
        assert!(to_ready(POLLHUP | POLLERR).contains(Readiness::ERROR | Readiness::HANGUP));
        assert_eq!(to_ready(POLLERR), Readiness::ERROR);
        assert_eq!(to_ready(POLLNVAL), Readiness::ERROR);
    }
}
