//! Sets of sockets as Winsock has them: a count, and an array of that length.

use std::collections::HashMap;
use std::io;
use std::ptr;
use std::time::Duration;

use poll_core::{RawSource, Ready};
use windows_sys::Win32::Networking::WinSock::{
    FD_SET, SO_TYPE, SOCK_STREAM, SOCKADDR_STORAGE, SOCKET, SOCKET_ERROR, SOL_SOCKET, TIMEVAL,
    WSAENOTSOCK, getpeername, getsockopt, select,
};

/// The longest timeout given to Winsock, in seconds. A wait of more calls again.
const LONGEST_S: u128 = 100_000_000;

/// The three sets: the readable, the writable, the exceptional.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    sets: [Set; 3],
    members: HashMap<SOCKET, Member>,
    /// Members with something `seen`, kept for its memory.
    answered: Vec<SOCKET>,
}

#[derive(Debug, Default)]
struct Member {
    wanted: Ready,
    /// It has no connect ahead of it that could fail.
    settled: bool,
    /// Where it is in each set; 0 where it is not a member.
    places: [usize; 3],
    /// What the answer says, gathered from the three sets.
    seen: Ready,
}

/// An `fd_set` of any length. The first word is its `fd_count`: a `u32` and, with
/// sockets of 64 bits, padding; as Windows is little-endian, one number of a word.
#[derive(Debug)]
struct Set {
    wanted: Vec<SOCKET>,
    /// The copy that Winsock overwrites.
    answer: Vec<SOCKET>,
}

impl Sets {
    /// Takes an open source in, and watches it for `wanted`.
    pub(crate) fn add(&mut self, source: RawSource, wanted: Ready) {
        let settled = !may_connect(source);
        self.members.insert(source.socket() as SOCKET, Member { settled, ..Member::default() });
        self.watch(source, wanted);
    }

    /// Forgets a source.
    pub(crate) fn remove(&mut self, source: RawSource) {
        self.watch(source, Ready::NONE);
        self.members.remove(&(source.socket() as SOCKET));
    }

    /// Puts `source` into the sets that `wanted` needs, and out of the others.
    pub(crate) fn watch(&mut self, source: RawSource, wanted: Ready) {
        let socket = source.socket() as SOCKET;
        let wanted = wanted & Ready::INTEREST;
        let Some(member) = self.members.get_mut(&socket) else { return };
        member.wanted = wanted;
        // A connect that fails is an exception and nothing else.
        let connects = !member.settled && !wanted.is_empty();
        self.put(0, socket, wanted.contains(Ready::READ));
        self.put(1, socket, wanted.contains(Ready::WRITE));
        self.put(2, socket, wanted.contains(Ready::PRIORITY) || connects);
    }

    /// Puts `socket` into a set, or takes it out.
    fn put(&mut self, set: usize, socket: SOCKET, member: bool) {
        let Some(entry) = self.members.get_mut(&socket) else { return };
        let place = entry.places[set];
        match (place != 0, member) {
            (false, true) => entry.places[set] = self.sets[set].insert(socket),
            (true, false) => {
                entry.places[set] = 0;
                let moved = self.sets[set].remove(place);
                if let Some(entry) = moved.and_then(|moved| self.members.get_mut(&moved)) {
                    entry.places[set] = place;
                }
            }
            _ => {}
        }
    }

    /// Waits until a member is ready, and replaces `found` by those that are.
    pub(crate) fn select(
        &mut self,
        timeout: Option<Duration>,
        found: &mut Vec<(RawSource, Ready)>,
    ) -> io::Result<()> {
        found.clear();
        let [readable, writable, exceptional] = self.sets.each_mut().map(Set::copy);
        let timeout = timeout.map(timeval);
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: each set is as long as its count says, and `timeout` is null or
        // points to a local.
        let count = unsafe { select(0, readable, writable, exceptional, timeout) };
        if count == SOCKET_ERROR {
            return Err(io::Error::last_os_error());
        }
        if count != 0 {
            self.collect(found);
        }
        Ok(())
    }

    /// Lists the members of the answer, once each.
    fn collect(&mut self, found: &mut Vec<(RawSource, Ready)>) {
        for (set, condition) in [Ready::READ, Ready::WRITE, Ready::PRIORITY].into_iter().enumerate()
        {
            for &socket in self.sets[set].answer() {
                let Some(member) = self.members.get_mut(&socket) else { continue };
                if member.seen.is_empty() {
                    self.answered.push(socket);
                }
                member.seen |= condition;
            }
        }
        let mut answered = std::mem::take(&mut self.answered);
        for socket in answered.drain(..) {
            let Some(member) = self.members.get_mut(&socket) else { continue };
            let mut seen = std::mem::take(&mut member.seen);
            if seen.contains(Ready::PRIORITY) {
                if !is_connected(socket) {
                    seen ^= Ready::PRIORITY | Ready::ERROR;
                } else if !member.wanted.contains(Ready::PRIORITY) {
                    // Urgent data nobody asked for would end every call from now on.
                    seen -= Ready::PRIORITY;
                    member.settled = true;
                    self.put(2, socket, false);
                }
            }
            if !seen.is_empty() {
                found.push((RawSource::from_socket(socket as u64), seen));
            }
        }
        self.answered = answered;
    }
}

impl Default for Set {
    fn default() -> Set {
        Set { wanted: vec![0], answer: Vec::new() }
    }
}

impl Set {
    /// Adds a socket and returns its place, which is never 0.
    fn insert(&mut self, socket: SOCKET) -> usize {
        self.wanted.push(socket);
        self.wanted[0] += 1;
        self.wanted[0]
    }

    /// Takes a socket out, and returns the one that has moved into its place.
    fn remove(&mut self, place: usize) -> Option<SOCKET> {
        self.wanted.swap_remove(place);
        self.wanted[0] -= 1;
        self.wanted.get(place).copied()
    }

    fn copy(&mut self) -> *mut FD_SET {
        self.answer.clone_from(&self.wanted);
        self.answer.as_mut_ptr().cast()
    }

    fn answer(&self) -> &[SOCKET] {
        let count = self.answer[0] as u32 as usize;
        &self.answer[1..=count]
    }
}

/// Microseconds, rounded up: a wait may be late, never early.
fn timeval(timeout: Duration) -> TIMEVAL {
    let us = timeout.as_nanos().div_ceil(1000).min(LONGEST_S * 1_000_000);
    TIMEVAL { tv_sec: (us / 1_000_000) as i32, tv_usec: (us % 1_000_000) as i32 }
}

/// Fails unless the source is an open socket.
pub(crate) fn check(source: RawSource) -> io::Result<()> {
    socket_type(source).map(drop)
}

fn socket_type(source: RawSource) -> io::Result<i32> {
    let mut kind = 0i32;
    let mut len = size_of::<i32>() as i32;
    let (socket, out) = (source.socket() as SOCKET, (&raw mut kind).cast());
    // SAFETY: `out` and `len` describe `kind`, which outlives the call.
    match unsafe { getsockopt(socket, SOL_SOCKET, SO_TYPE, out, &mut len) } {
        SOCKET_ERROR => Err(io::Error::last_os_error()),
        _ => Ok(kind),
    }
}

/// True if the socket could be connecting, now or later.
fn may_connect(source: RawSource) -> bool {
    socket_type(source).is_ok_and(|kind| kind == SOCK_STREAM)
        && !is_connected(source.socket() as SOCKET)
}

/// True if the socket has a peer. Unlike `SO_ERROR`, asking changes nothing.
fn is_connected(socket: SOCKET) -> bool {
    let mut peer = SOCKADDR_STORAGE::default();
    let mut len = size_of::<SOCKADDR_STORAGE>() as i32;
    let out = (&raw mut peer).cast();
    // SAFETY: `out` and `len` describe `peer`, which outlives the call.
    unsafe { getpeername(socket, out, &mut len) != SOCKET_ERROR }
}

/// True if a member of a set was closed.
pub(crate) fn is_about_a_source(error: &io::Error) -> bool {
    error.raw_os_error() == Some(WSAENOTSOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_follow_their_places_through_removals() {
        let mut sets = Sets::default();
        let source = RawSource::from_socket;
        for socket in [4, 8, 12] {
            sets.add(source(socket), Ready::READ | Ready::PRIORITY);
        }
        sets.remove(source(4));
        sets.watch(source(8), Ready::WRITE | Ready::PRIORITY);
        assert_eq!(sets.sets[0].wanted, [1, 12]);
        assert_eq!(sets.sets[1].wanted, [1, 8]);
        assert_eq!(sets.sets[2].wanted, [2, 12, 8]);
        sets.watch(source(12), Ready::NONE);
        sets.remove(source(8));
        sets.remove(source(12));
        assert!(sets.members.is_empty());
        assert!(sets.sets.iter().all(|set| set.wanted == [0]));
    }

    #[test]
    fn timeouts_are_rounded_up_and_carried() {
        let parts = |timeout| {
            let timeval = timeval(timeout);
            (timeval.tv_sec, timeval.tv_usec)
        };
        assert_eq!(parts(Duration::from_nanos(1)), (0, 1));
        assert_eq!(parts(Duration::new(1, 999_999_999)), (2, 0));
        assert_eq!(parts(Duration::MAX), (LONGEST_S as i32, 0));
    }
}
