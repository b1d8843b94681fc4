//! Winsock `fd_set`s of any size: a count and an array of sockets.

use std::collections::HashMap;
use std::io;
use std::ptr;
use std::time::Duration;

use poll_core::{Interest, RawSource, Readiness};
use windows_sys::Win32::Networking::WinSock::{
    FD_SET, SO_TYPE, SOCK_STREAM, SOCKADDR_STORAGE, SOCKET, SOCKET_ERROR, SOL_SOCKET, TIMEVAL,
    WSAENOTSOCK, getpeername, getsockopt, select,
};

/// The longest timeout given to Winsock, in seconds. `Deadline::repeat` calls again for the
/// rest.
const MAX_TIMEOUT_S: u128 = 100_000_000;

/// The three sets: readable, writable, exceptional.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    sets: [Set; 3],
    members: HashMap<SOCKET, Member>,
    /// Members whose `conditions` are not empty; a field so that its memory is reused.
    ready: Vec<SOCKET>,
}

#[derive(Debug, Default)]
struct Member {
    wanted: Interest,
    /// A connect may be in progress or still to come. Winsock reports its failure in the
    /// exceptional set only.
    may_connect: bool,
    /// Its index in each set; 0 if it is not a member.
    indices: [usize; 3],
    /// The conditions in the three results of the current call.
    conditions: Readiness,
}

/// An `fd_set` of any length. The first word is `fd_count`: a `u32`, followed by padding if
/// sockets have 64 bits. As Windows is little-endian, both can be written as one word.
#[derive(Debug)]
struct Set {
    wanted: Vec<SOCKET>,
    /// The copy that Winsock overwrites with its result.
    result: Vec<SOCKET>,
}

impl Sets {
    /// Adds an open source with the interest `wanted`.
    pub(crate) fn add(&mut self, source: RawSource, wanted: Interest) {
        let may_connect = may_connect(source);
        self.members.insert(source.socket() as SOCKET, Member { may_connect, ..Member::default() });
        self.set_interest(source, wanted);
    }

    /// Removes a source.
    pub(crate) fn remove(&mut self, source: RawSource) {
        self.set_interest(source, Interest::NONE);
        self.members.remove(&(source.socket() as SOCKET));
    }

    /// Adds `source` to the sets of `wanted`, and removes it from the others.
    pub(crate) fn set_interest(&mut self, source: RawSource, wanted: Interest) {
        let socket = source.socket() as SOCKET;
        let wanted = wanted & Interest::all();
        let Some(member) = self.members.get_mut(&socket) else { return };
        member.wanted = wanted;
        let connects = member.may_connect && !wanted.is_empty();
        self.set_member(0, socket, wanted.contains(Interest::READ));
        self.set_member(1, socket, wanted.contains(Interest::WRITE));
        self.set_member(2, socket, wanted.contains(Interest::PRIORITY) || connects);
    }

    /// Adds `socket` to a set, or removes it.
    fn set_member(&mut self, set: usize, socket: SOCKET, is_member: bool) {
        let Some(entry) = self.members.get_mut(&socket) else { return };
        let index = entry.indices[set];
        match (index != 0, is_member) {
            (false, true) => entry.indices[set] = self.sets[set].insert(socket),
            (true, false) => {
                entry.indices[set] = 0;
                let moved = self.sets[set].remove(index);
                if let Some(entry) = moved.and_then(|moved| self.members.get_mut(&moved)) {
                    entry.indices[set] = index;
                }
            }
            _ => {}
        }
    }

    /// `select`: blocks until a member is ready, and replaces the contents of `ready` by the
    /// ready members.
    pub(crate) fn select(
        &mut self,
        timeout: Option<Duration>,
        ready: &mut Vec<(RawSource, Readiness)>,
    ) -> io::Result<()> {
        ready.clear();
        let [readable, writable, exceptional] = self.sets.each_mut().map(Set::copy);
        let timeout = timeout.map(timeval);
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: `Set` keeps each count equal to the number of sockets behind it, and `timeout`
        // is null or points to a local variable.
        let count = unsafe { select(0, readable, writable, exceptional, timeout) };
        if count == SOCKET_ERROR {
            return Err(io::Error::last_os_error());
        }
        if count != 0 {
            self.collect(ready);
        }
        Ok(())
    }

    /// Lists the members of the three results, each once.
    fn collect(&mut self, ready: &mut Vec<(RawSource, Readiness)>) {
        for (set, condition) in
            [Readiness::READ, Readiness::WRITE, Readiness::PRIORITY].into_iter().enumerate()
        {
            for &socket in self.sets[set].result() {
                let Some(member) = self.members.get_mut(&socket) else { continue };
                if member.conditions.is_empty() {
                    self.ready.push(socket);
                }
                member.conditions |= condition;
            }
        }
        let mut sockets = std::mem::take(&mut self.ready);
        for socket in sockets.drain(..) {
            let Some(member) = self.members.get_mut(&socket) else { continue };
            let mut conditions = std::mem::take(&mut member.conditions);
            if conditions.contains(Readiness::PRIORITY) {
                if !is_connected(socket) {
                    conditions ^= Readiness::PRIORITY | Readiness::ERROR;
                } else if !member.wanted.contains(Interest::PRIORITY) {
                    // Urgent data outside the interest would end every later call.
                    conditions -= Readiness::PRIORITY;
                    member.may_connect = false;
                    self.set_member(2, socket, false);
                }
            }
            if !conditions.is_empty() {
                ready.push((RawSource::from_socket(socket as u64), conditions));
            }
        }
        self.ready = sockets;
    }
}

impl Default for Set {
    fn default() -> Set {
        Set { wanted: vec![0], result: Vec::new() }
    }
}

impl Set {
    /// Adds a socket and returns its index, which is never 0.
    fn insert(&mut self, socket: SOCKET) -> usize {
        self.wanted.push(socket);
        self.wanted[0] += 1;
        self.wanted[0]
    }

    /// Removes a socket, and returns the one that has moved to its index.
    fn remove(&mut self, index: usize) -> Option<SOCKET> {
        self.wanted.swap_remove(index);
        self.wanted[0] -= 1;
        self.wanted.get(index).copied()
    }

    fn copy(&mut self) -> *mut FD_SET {
        self.result.clone_from(&self.wanted);
        self.result.as_mut_ptr().cast()
    }

    fn result(&self) -> &[SOCKET] {
        let count = self.result[0] as u32 as usize;
        &self.result[1..=count]
    }
}

/// Rounds up to microseconds: a wait may be late, never early.
fn timeval(timeout: Duration) -> TIMEVAL {
    let us = timeout.as_nanos().div_ceil(1000).min(MAX_TIMEOUT_S * 1_000_000);
    TIMEVAL { tv_sec: (us / 1_000_000) as i32, tv_usec: (us % 1_000_000) as i32 }
}

/// Fails unless the source is an open socket.
pub(crate) fn check_source(source: RawSource) -> io::Result<()> {
    socket_type(source).map(drop)
}

fn socket_type(source: RawSource) -> io::Result<i32> {
    let mut kind = 0i32;
    let mut len = size_of::<i32>() as i32;
    let (socket, out) = (source.socket() as SOCKET, (&raw mut kind).cast());
    // SAFETY: `out` and `len` describe the local variable `kind`.
    match unsafe { getsockopt(socket, SOL_SOCKET, SO_TYPE, out, &mut len) } {
        SOCKET_ERROR => Err(io::Error::last_os_error()),
        _ => Ok(kind),
    }
}

/// True if a connect may be in progress or still to come.
fn may_connect(source: RawSource) -> bool {
    socket_type(source).is_ok_and(|kind| kind == SOCK_STREAM)
        && !is_connected(source.socket() as SOCKET)
}

/// True if the socket has a peer. Unlike reading `SO_ERROR`, this does not clear an error.
fn is_connected(socket: SOCKET) -> bool {
    let mut peer = SOCKADDR_STORAGE::default();
    let mut len = size_of::<SOCKADDR_STORAGE>() as i32;
    let out = (&raw mut peer).cast();
    // SAFETY: `out` and `len` describe the local variable `peer`.
    unsafe { getpeername(socket, out, &mut len) != SOCKET_ERROR }
}

/// True if `select` failed because a member of a set is closed.
pub(crate) fn is_closed_source(error: &io::Error) -> bool {
    error.raw_os_error() == Some(WSAENOTSOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removals_update_the_indices_of_moved_members() {
        let mut sets = Sets::default();
        let source = RawSource::from_socket;
        for socket in [4, 8, 12] {
            sets.add(source(socket), Interest::READ | Interest::PRIORITY);
        }
        sets.remove(source(4));
        sets.set_interest(source(8), Interest::WRITE | Interest::PRIORITY);
        assert_eq!(sets.sets[0].wanted, [1, 12]);
        assert_eq!(sets.sets[1].wanted, [1, 8]);
        assert_eq!(sets.sets[2].wanted, [2, 12, 8]);
        sets.set_interest(source(12), Interest::NONE);
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
        assert_eq!(parts(Duration::MAX), (MAX_TIMEOUT_S as i32, 0));
    }
}
