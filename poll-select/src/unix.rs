//! Sets of descriptors as POSIX has them: a bit for each number.

use std::io;
use std::ptr;
use std::time::Duration;

use libc::{c_int, fd_set, sigset_t, timespec};
use poll_core::{RawSource, Ready};

cfg_if::cfg_if! {
    if #[cfg(any(target_vendor = "apple", target_os = "netbsd", target_os = "openbsd"))] {
        /// What an `fd_set` is an array of.
        type Word = u32;
    } else {
        /// What an `fd_set` is an array of.
        type Word = libc::c_ulong;
    }
}

const BITS: usize = Word::BITS as usize;

/// How many descriptors a set may have; `None` where the kernel takes any number.
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

/// The longest timeout that all kernels take, in seconds: three years. A wait of
/// more calls again.
const LONGEST_S: u64 = 100_000_000;

/// The condition that each of the three sets stands for.
const CONDITIONS: [Ready; 3] = [Ready::READ, Ready::WRITE, Ready::PRIORITY];

/// The three sets, in the order of [`CONDITIONS`].
#[derive(Debug, Default)]
pub(crate) struct Sets([Set; 3]);

#[derive(Debug, Default)]
struct Set {
    wanted: Vec<Word>,
    /// How many bits of `wanted` are set.
    count: usize,
    /// The copy that the kernel overwrites. Empty if nothing is wanted.
    answer: Vec<Word>,
}

impl Sets {
    /// Takes an open source in, and watches it for `wanted`.
    pub(crate) fn add(&mut self, source: RawSource, wanted: Ready) {
        self.watch(source, wanted);
    }

    /// Forgets a source.
    pub(crate) fn remove(&mut self, source: RawSource) {
        self.watch(source, Ready::NONE);
    }

    /// Puts `source` into the sets that `wanted` names, and out of the others.
    pub(crate) fn watch(&mut self, source: RawSource, wanted: Ready) {
        for (set, condition) in self.0.iter_mut().zip(CONDITIONS) {
            set.put(source.fd() as usize, wanted.contains(condition));
        }
    }

    /// Waits until a member is ready, and replaces `found` by those that are.
    pub(crate) fn select(
        &mut self,
        timeout: Option<Duration>,
        found: &mut Vec<(RawSource, Ready)>,
    ) -> io::Result<()> {
        found.clear();
        let words = self.0.iter_mut().map(Set::trim).max().unwrap_or(0);
        let [readable, writable, exceptional] = self.0.each_mut().map(|set| set.copy(words));
        let timeout = timeout.map(|timeout| timespec {
            tv_sec: timeout.as_secs().min(LONGEST_S) as _,
            tv_nsec: timeout.subsec_nanos() as _,
        });
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        let nfds = (words * BITS) as c_int;
        // SAFETY: each set is null or has room for `nfds` bits, `timeout` is null or
        // points to a local, and no signal mask is given.
        let count = unsafe {
            pselect(nfds, readable, writable, exceptional, timeout, ptr::null::<sigset_t>())
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        self.collect(words, count, found);
        Ok(())
    }

    /// Lists the members of the answer, which has `count` bits set.
    fn collect(&self, words: usize, mut count: usize, found: &mut Vec<(RawSource, Ready)>) {
        for index in 0..words {
            if count == 0 {
                break;
            }
            let answers = self.0.each_ref().map(|set| set.answer.get(index).copied().unwrap_or(0));
            let mut any = answers.iter().fold(0, |any, answer| any | answer);
            while any != 0 {
                let bit = any.trailing_zeros();
                any &= any - 1;
                let mut ready = Ready::NONE;
                for (answer, condition) in answers.iter().zip(CONDITIONS) {
                    if answer >> bit & 1 != 0 {
                        ready |= condition;
                        count = count.saturating_sub(1);
                    }
                }
                found.push((RawSource::from_fd((index * BITS) as i32 + bit as i32), ready));
            }
        }
    }
}

impl Set {
    fn put(&mut self, fd: usize, member: bool) {
        let (index, bit) = (fd / BITS, 1 << (fd % BITS));
        if index >= self.wanted.len() {
            if !member {
                return;
            }
            self.wanted.resize(index + 1, 0);
        }
        let word = &mut self.wanted[index];
        match (*word & bit != 0, member) {
            (false, true) => self.count += 1,
            (true, false) => self.count -= 1,
            _ => return,
        }
        *word ^= bit;
    }

    /// Drops the empty words at the end, and returns how many are left. Done at a
    /// wait, it costs no more than the copy that the wait before had to make.
    fn trim(&mut self) -> usize {
        while self.wanted.last() == Some(&0) {
            self.wanted.pop();
        }
        self.wanted.len()
    }

    /// A copy of `words` words for the kernel, or null if it would be empty.
    fn copy(&mut self, words: usize) -> *mut fd_set {
        self.answer.clear();
        if self.count == 0 {
            return ptr::null_mut();
        }
        self.answer.extend_from_slice(&self.wanted);
        self.answer.resize(words, 0);
        self.answer.as_mut_ptr().cast()
    }
}

/// Fails unless the source is open and can be a member of a set.
///
/// An open descriptor has a place in the kernel's table, beyond which `select` does
/// not look: so a member that is closed later is noticed.
pub(crate) fn check(source: RawSource) -> io::Result<()> {
    // SAFETY: the call takes a number and touches no memory.
    if unsafe { libc::fcntl(source.fd(), libc::F_GETFD) } == -1 {
        return Err(io::Error::last_os_error());
    }
    check_number(source.fd(), LIMIT)
}

fn check_number(fd: c_int, limit: Option<usize>) -> io::Result<()> {
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

/// True if a member of a set was closed.
pub(crate) fn is_about_a_source(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBADF)
}

cfg_if::cfg_if! {
    if #[cfg(target_vendor = "apple")] {
        unsafe extern "C" {
            /// The one that takes more than `FD_SETSIZE`; the plain one says `EINVAL`.
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
    fn sets_grow_and_shrink_with_the_highest_number() {
        let mut set = Set::default();
        set.put(3, true);
        set.put(5000, true);
        set.put(5000, true);
        assert_eq!((set.count, set.trim()), (2, 5000 / BITS + 1));
        set.put(5000, false);
        set.put(9000, false);
        assert_eq!((set.count, set.trim()), (1, 1));
        assert!(!set.copy(4).is_null());
        assert_eq!(set.answer, [8, 0, 0, 0]);
        set.put(3, false);
        assert!(set.copy(0).is_null());
    }

    #[test]
    fn an_answer_is_one_entry_a_source() {
        let mut sets = Sets::default();
        let (low, high) = (RawSource::from_fd(1), RawSource::from_fd(2 * BITS as i32));
        sets.watch(low, Ready::WRITE);
        sets.watch(high, Ready::READ | Ready::WRITE);
        for set in &mut sets.0 {
            set.copy(3);
        }
        let mut found = Vec::new();
        sets.collect(3, 3, &mut found);
        assert_eq!(found, [(low, Ready::WRITE), (high, Ready::READ | Ready::WRITE)]);
    }

    #[test]
    fn a_limit_is_named_in_the_error() {
        assert!(check_number(1 << 20, None).is_ok());
        assert!(check_number(1023, Some(1024)).is_ok());
        let error = check_number(1024, Some(1024)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("FD_SETSIZE is 1024"));
    }
}
