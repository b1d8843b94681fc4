//! `WSAPoll`, and what its flags mean.

use std::io;
use std::time::Duration;

use poll_core::{RawSource, Ready};
use windows_sys::Win32::Networking::WinSock::{
    INVALID_SOCKET, POLLERR, POLLHUP, POLLRDBAND, POLLRDNORM, POLLWRNORM, SO_TYPE, SOCKET_ERROR,
    SOL_SOCKET, WSAPoll, getsockopt,
};

pub(crate) use windows_sys::Win32::Networking::WinSock::{POLLNVAL, WSAPOLLFD as PollFd};

/// An entry that Winsock passes over.
pub(crate) const NO_ENTRY: PollFd = PollFd { fd: INVALID_SOCKET, events: 0, revents: 0 };

/// `POLLHUP` may not show before all data is read.
pub(crate) const SEES_DISCONNECT: bool = false;

/// What can be asked for. `POLLIN` would ask for urgent data too, and `POLLPRI`
/// makes `WSAPoll` fail.
const ASKED: [(i16, Ready); 3] =
    [(POLLRDNORM, Ready::READ), (POLLWRNORM, Ready::WRITE), (POLLRDBAND, Ready::PRIORITY)];

/// The entry that asks for `interest`.
pub(crate) fn entry(source: RawSource, interest: Ready) -> PollFd {
    let asked = ASKED.iter().filter(|(_, ready)| interest.contains(*ready));
    let events = asked.fold(0, |all, (flag, _)| all | flag);
    PollFd { fd: source.socket() as usize, events, revents: 0 }
}

/// What an answer means. `POLLHUP` alone is a peer that has shut down its writing
/// side: the other direction may be open still. With `POLLERR` it is an abort.
pub(crate) fn seen(revents: i16) -> Ready {
    let flags = [
        (POLLRDNORM, Ready::READ),
        (POLLWRNORM, Ready::WRITE),
        (POLLRDBAND, Ready::PRIORITY),
        (POLLHUP, Ready::READ),
        (POLLERR, Ready::ERROR),
        (POLLERR | POLLHUP, Ready::ERROR.union(Ready::HANGUP)),
        (POLLNVAL, Ready::ERROR),
    ];
    flags.iter().filter(|(flag, _)| revents & flag == *flag).map(|(_, ready)| *ready).collect()
}

/// Fails unless the source is an open socket.
pub(crate) fn check_open(source: RawSource) -> io::Result<()> {
    let mut kind = 0i32;
    let mut len = size_of::<i32>() as i32;
    let (socket, out) = (source.socket() as usize, (&raw mut kind).cast());
    // SAFETY: `out` and `len` describe `kind`, which outlives the call.
    match unsafe { getsockopt(socket, SOL_SOCKET, SO_TYPE, out, &mut len) } {
        SOCKET_ERROR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Waits until an entry has an answer, and returns how many have.
pub(crate) fn poll(entries: &mut [PollFd], timeout: Option<Duration>) -> io::Result<usize> {
    // Rounded up: a wait may be late, never early. A wait of more calls again.
    let round_up =
        |timeout: Duration| timeout.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
    let (list, len) = (entries.as_mut_ptr(), entries.len() as u32);
    // SAFETY: `list` and `len` describe `entries`.
    let count = unsafe { WSAPoll(list, len, timeout.map_or(-1, round_up)) };
    if count == SOCKET_ERROR {
        return Err(io::Error::last_os_error());
    }
    // Closed sockets are marked, but not counted.
    Ok(entries.iter().filter(|entry| entry.revents != 0).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interest_asks_for_its_flags_only() {
        let source = RawSource::from_socket(4);
        assert_eq!(entry(source, Ready::READ | Ready::WRITE).events, POLLRDNORM | POLLWRNORM);
        assert_eq!(entry(source, Ready::PRIORITY | Ready::ERROR).events, POLLRDBAND);
    }

    #[test]
    fn a_shutdown_is_no_hangup_but_an_abort_is() {
        assert_eq!(seen(POLLHUP), Ready::READ);
        assert!(seen(POLLHUP | POLLERR).contains(Ready::ERROR | Ready::HANGUP));
        assert_eq!(seen(POLLERR), Ready::ERROR);
        assert_eq!(seen(POLLNVAL), Ready::ERROR);
    }
}
