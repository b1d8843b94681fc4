//! Hand-written `select(2)`, with sets sized by the highest descriptor.

use std::ffi::c_int;
use std::io;
use std::mem;
use std::ptr;
use std::time::Duration;

use poll_core::RawSource;

use super::{Interest, Poller, uninterrupted};

type Word = libc::c_ulong;
const BITS: usize = Word::BITS as usize;
/// The minimum size of a set: kernels may write this much for any highest descriptor.
const WORDS_OF_FD_SET: usize = mem::size_of::<libc::fd_set>() / mem::size_of::<Word>();

/// Two sets: for reading and for writing.
#[derive(Debug)]
pub(crate) struct HandSelect {
    wanted: [Vec<Word>; 2],
    found: [Vec<Word>; 2],
    numbers: Vec<usize>,
    highest: c_int,
}

impl HandSelect {
    pub(crate) fn new() -> HandSelect {
        let empty = || [vec![0; WORDS_OF_FD_SET], vec![0; WORDS_OF_FD_SET]];
        HandSelect { wanted: empty(), found: empty(), numbers: Vec::new(), highest: -1 }
    }

    fn set(&mut self, source: RawSource, interest: Option<Interest>) {
        let (word, bit) = (source.fd() as usize / BITS, 1 << (source.fd() as usize % BITS));
        for (which, set) in self.wanted.iter_mut().enumerate() {
            let wanted = match interest {
                None => false,
                Some(Interest::Write) => which == 1,
                Some(Interest::Read | Interest::ReadOnce) => which == 0,
            };
            if wanted {
                set[word] |= bit;
            } else {
                set[word] &= !bit;
            }
        }
    }
}

impl Poller for HandSelect {
    fn add(&mut self, number: usize, source: RawSource) -> io::Result<()> {
        let fd = source.fd() as usize;
        for set in self.wanted.iter_mut().chain(&mut self.found) {
            let words = set.len().max(fd / BITS + 1);
            set.resize(words, 0);
        }
        self.numbers.resize(self.numbers.len().max(fd + 1), 0);
        self.numbers[fd] = number;
        self.highest = self.highest.max(source.fd());
        self.set(source, Some(Interest::Read));
        Ok(())
    }

    fn change(&mut self, number: usize, source: RawSource, interest: Interest) -> io::Result<()> {
        self.numbers[source.fd() as usize] = number;
        self.set(source, Some(interest));
        Ok(())
    }

    fn remove(&mut self, _: usize, source: RawSource) -> io::Result<()> {
        self.set(source, None);
        while self.highest >= 0 {
            let (word, bit) = (self.highest as usize / BITS, self.highest as usize % BITS);
            if self.wanted.iter().any(|set| set[word] >> bit & 1 == 1) {
                break;
            }
            self.highest -= 1;
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<usize>) -> io::Result<()> {
        let words = (self.highest + 1) as usize / BITS + 1;
        let words = words.min(self.wanted[0].len());
        let count = uninterrupted(|| {
            for (found, wanted) in self.found.iter_mut().zip(&self.wanted) {
                found[..words].copy_from_slice(&wanted[..words]);
            }
            let mut time = timeout.map(|timeout| libc::timeval {
                tv_sec: timeout.as_secs() as _,
                tv_usec: timeout.subsec_micros() as _,
            });
            let time = time.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
            let [read, write] = self.found.each_mut().map(|set| set.as_mut_ptr().cast());
            // SAFETY: the sets have a bit for each descriptor up to the highest.
            unsafe { libc::select(self.highest + 1, read, write, ptr::null_mut(), time) }
        })?;
        if count == 0 {
            return Ok(());
        }
        for word in 0..words {
            let mut bits = self.found[0][word] | self.found[1][word];
            while bits != 0 {
                ready.push(self.numbers[word * BITS + bits.trailing_zeros() as usize]);
                bits &= bits - 1;
            }
        }
        Ok(())
    }
}
