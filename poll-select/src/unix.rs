//! POSIX `fd_set`s of any size: bit sets indexed by descriptor.

use std::io;
use std::ptr;
use std::time::Duration;

use libc::{c_int, fd_set, sigset_t, timespec};
use poll_core::{Interest, RawSource, Readiness};

cfg_if::cfg_if! {
    if #[cfg(any(target_vendor = "apple", target_os = "netbsd", target_os = "openbsd"))] {
        /// The element type of `fd_set`.
        type Word = u32;
    } else {
        /// The element type of `fd_set`.
        type Word = libc::c_ulong;
    }
}

const BITS: usize = Word::BITS as usize;

/// The first descriptor that a set cannot hold; `None` where the kernel takes sets of any size.
const LIMIT: Option<usize> = if cfg!(any(
    target_os = "linux",
    target_os = "android",
    target_os = "freebsd",
    target_os = "netbsd",
    target_os = "openbsd",
    target_os = "dragonfly",
    target_vendor = "apple",
)) {
    None
} else {
    Some(libc::FD_SETSIZE)
};

/// The longest timeout that all kernels take, in seconds: three years. `Deadline::repeat`
/// calls again for the rest.
const MAX_TIMEOUT_S: u64 = 100_000_000;

/// The condition of each of the three sets.
const CONDITIONS: [Readiness; 3] = [Readiness::READ, Readiness::WRITE, Readiness::PRIORITY];

/// The three sets, in the order of [`CONDITIONS`].
#[derive(Debug, Default)]
pub(crate) struct Sets([Set; 3]);

#[derive(Debug, Default)]
struct Set {
    wanted: Vec<Word>,
    /// The number of bits that are set in `wanted`.
    count: usize,
    /// The copy that the kernel overwrites with its result. Empty if `wanted` is.
    result: Vec<Word>,
}

impl Sets {
    /// Adds an open source with the interest `wanted`.
    pub(crate) fn add(&mut self, source: RawSource, wanted: Interest) {
        self.set_interest(source, wanted);
    }

    /// Removes a source.
    pub(crate) fn remove(&mut self, source: RawSource) {
        self.set_interest(source, Interest::NONE);
    }

    /// Adds `source` to the sets of `wanted`, and removes it from the others.
    pub(crate) fn set_interest(&mut self, source: RawSource, wanted: Interest) {
        for (set, condition) in self.0.iter_mut().zip(CONDITIONS) {
            set.set_member(source.fd() as usize, wanted.to_readiness().contains(condition));
        }
    }

    /// `pselect(2)`: blocks until a member is ready, and replaces the contents of `ready` by
    /// the ready members.
    pub(crate) fn select(
        &mut self,
        timeout: Option<Duration>,
        ready: &mut Vec<(RawSource, Readiness)>,
    ) -> io::Result<()> {
        ready.clear();
        let words = self.0.iter_mut().map(Set::trim).max().unwrap_or(0);
        let [readable, writable, exceptional] = self.0.each_mut().map(|set| set.copy(words));
        let timeout = timeout.map(|timeout| timespec {
            tv_sec: timeout.as_secs().min(MAX_TIMEOUT_S) as _,
            tv_nsec: timeout.subsec_nanos() as _,
        });
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        let nfds = (words * BITS) as c_int;
        // SAFETY: each set is null or, by `Set::copy`, has `nfds` bits; `timeout` is null or
        // points to a local variable; a null signal mask is allowed.
        let count = unsafe {
            pselect(nfds, readable, writable, exceptional, timeout, ptr::null::<sigset_t>())
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        self.collect(words, count, ready);
        Ok(())
    }

    /// Lists the members of the three results, which have `count` bits set.
    fn collect(&self, words: usize, mut count: usize, ready: &mut Vec<(RawSource, Readiness)>) {
        for index in 0..words {
            if count == 0 {
                break;
            }
            let results = self.0.each_ref().map(|set| set.result.get(index).copied().unwrap_or(0));
            let mut any = results.iter().fold(0, |any, result| any | result);
            while any != 0 {
                let bit = any.trailing_zeros();
                any &= any - 1;
                let mut conditions = Readiness::NONE;
                for (result, condition) in results.iter().zip(CONDITIONS) {
                    if result >> bit & 1 != 0 {
                        conditions |= condition;
                        count = count.saturating_sub(1);
                    }
                }
                let fd = (index * BITS) as i32 + bit as i32;
                ready.push((RawSource::from_fd(fd), conditions));
            }
        }
    }
}

impl Set {
    fn set_member(&mut self, fd: usize, is_member: bool) {
        let (index, bit) = (fd / BITS, 1 << (fd % BITS));
        if index >= self.wanted.len() {
            if !is_member {
                return;
            }
            self.wanted.resize(index + 1, 0);
        }
        let word = &mut self.wanted[index];
        match (*word & bit != 0, is_member) {
            (false, true) => self.count += 1,
            (true, false) => self.count -= 1,
            _ => return,
        }
        *word ^= bit;
    }

    /// Removes the zero words at the end, and returns the length. `pselect` calls it, where it
    /// costs no more than the copy of the call before.
    fn trim(&mut self) -> usize {
        while self.wanted.last() == Some(&0) {
            self.wanted.pop();
        }
        self.wanted.len()
    }

    /// Copies `wanted` for the kernel, extended to `words` words. Returns null for an empty set.
    fn copy(&mut self, words: usize) -> *mut fd_set {
        self.result.clear();
        if self.count == 0 {
            return ptr::null_mut();
        }
        self.result.extend_from_slice(&self.wanted);
        self.result.resize(words, 0);
        self.result.as_mut_ptr().cast()
    }
}

/// Fails unless the source is open and can be a member of a set.
///
/// `select` ignores members beyond the end of the process's descriptor table. An open
/// descriptor is in the table, which never shrinks, so `select` fails if it is closed later.
pub(crate) fn check_source(source: RawSource) -> io::Result<()> {
    // SAFETY: `F_GETFD` takes no pointer.
    if unsafe { libc::fcntl(source.fd(), libc::F_GETFD) } == -1 {
        return Err(io::Error::last_os_error());
    }
    check_limit(source.fd(), LIMIT)
}

fn check_limit(fd: c_int, limit: Option<usize>) -> io::Result<()> {
    match limit {
        Some(limit) if fd as usize >= limit => {
            let why = format!(
                "select cannot watch descriptor {fd}, FD_SETSIZE is {limit} here: \
                 use the poll, epoll or kqueue backend"
            );
            Err(io::Error::new(io::ErrorKind::Unsupported, why))
        }
        _ => Ok(()),
    }
}

/// True if `pselect` failed because a member of a set is closed.
pub(crate) fn is_closed_source(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBADF)
}

cfg_if::cfg_if! {
    if #[cfg(target_vendor = "apple")] {
        unsafe extern "C" {
            /// The variant that takes more than `FD_SETSIZE`; the plain one fails with `EINVAL`.
            #[link_name = "pselect$DARWIN_EXTSN"]
            fn pselect(
                nfds: c_int,
                readfds: *mut fd_set,
                writefds: *mut fd_set,
                errorfds: *mut fd_set,
                timeout: *const timespec,
                sigmask: *const sigset_t,
            ) -> c_int;
        }
    } else {
        use libc::pselect;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_grow_and_shrink_with_the_highest_descriptor() {
        let mut set = Set::default();
        set.set_member(3, true);
        set.set_member(5000, true);
        set.set_member(5000, true);
        assert_eq!((set.count, set.trim()), (2, 5000 / BITS + 1));
        set.set_member(5000, false);
        set.set_member(9000, false);
        assert_eq!((set.count, set.trim()), (1, 1));
        assert!(!set.copy(4).is_null());
        assert_eq!(set.result, [8, 0, 0, 0]);
        set.set_member(3, false);
        assert!(set.copy(0).is_null());
    }

    #[test]
    fn a_source_in_two_result_sets_is_one_entry() {
        let mut sets = Sets::default();
        let (low, high) = (RawSource::from_fd(1), RawSource::from_fd(2 * BITS as i32));
        sets.set_interest(low, Interest::WRITE);
        sets.set_interest(high, Interest::READ | Interest::WRITE);
        for set in &mut sets.0 {
            set.copy(3);
        }
        let mut ready = Vec::new();
        sets.collect(3, 3, &mut ready);
        assert_eq!(ready, [(low, Readiness::WRITE), (high, Readiness::READ | Readiness::WRITE)]);
    }

    #[test]
    fn the_error_names_the_limit() {
        assert!(check_limit(1 << 20, None).is_ok());
        assert!(check_limit(1023, Some(1024)).is_ok());
        let error = check_limit(1024, Some(1024)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("FD_SETSIZE is 1024"));
    }
}
