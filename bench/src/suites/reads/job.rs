//! The file, its state and the order of the reads.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::rc::Rc;

use uv_core::IoBufMut;

use crate::clock::Spent;
use crate::suite::{Reading, Sample};
use crate::temporary::Temporary;

/// The size of a read, and the alignment that direct reads need.
pub(super) const PIECE: usize = 4096;

/// The part of the file that is in the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Everything.
    Cached,
    /// Nothing.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "needs Linux"))]
    Cold,
    /// It is not used.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "needs Linux"))]
    Direct,
}

impl State {
    /// The states that this system has means for.
    #[cfg(target_os = "linux")]
    pub(super) const HERE: [State; 3] = [State::Cached, State::Cold, State::Direct];
    /// The states that this system has means for.
    #[cfg(not(target_os = "linux"))]
    pub(super) const HERE: [State; 1] = [State::Cached];

    pub(super) fn name(self) -> &'static str {
        match self {
            State::Cached => "cached",
            State::Cold => "cold",
            State::Direct => "direct",
        }
    }
}

/// The content of a file of that many pieces: each is filled with its number.
pub(super) fn content(pieces: u64) -> Vec<u8> {
    (0..pieces).flat_map(|piece| [mark(piece); PIECE]).collect()
}

/// The byte that fills a piece.
fn mark(piece: u64) -> u8 {
    (piece % 251) as u8
}

/// The reads of a run.
///
/// Each of `depth` slots reads a part of the file in order, one read at a time: so can contestants
/// that have no reads at a position.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) file: Rc<Temporary>,
    pub(super) pieces: u64,
    pub(super) state: State,
    pub(super) depth: usize,
    /// The number of reads.
    pub(super) count: u64,
}

impl Job {
    pub(super) fn path(&self) -> io::Result<&Path> {
        self.file.path()
    }

    /// Opens the file as the state needs it.
    pub(super) fn open(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true);
        #[cfg(target_os = "linux")]
        if self.state == State::Direct {
            std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_DIRECT);
        }
        let file = options.open(self.path()?)?;
        self.without_read_ahead(&file)?;
        Ok(file)
    }

    /// Turns read-ahead off for an open file, if it would make later reads cached ones.
    #[cfg(target_os = "linux")]
    pub(super) fn without_read_ahead(&self, file: &impl std::os::fd::AsRawFd) -> io::Result<()> {
        match self.state {
            State::Cold => linux::advise(file, libc::POSIX_FADV_RANDOM),
            State::Cached | State::Direct => Ok(()),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn without_read_ahead(&self, _: &File) -> io::Result<()> {
        Ok(())
    }

    /// Brings the file into the state, before each run. False if the kernel has not done so.
    pub(super) fn prepare(&self) -> io::Result<bool> {
        match self.state {
            State::Cached => std::fs::read(self.path()?).map(|_| true),
            #[cfg(target_os = "linux")]
            State::Cold => linux::evict(self.path()?, self.pieces),
            _ => Ok(true),
        }
    }

    /// Prepares the file, and runs a contestant on it.
    pub(super) fn run(&self, run: impl FnOnce(&Job) -> io::Result<Sample>) -> io::Result<Sample> {
        let is_prepared = self.prepare()?;
        let mut sample = run(self)?;
        if !is_prepared {
            sample.notes.push("a part of the file was still cached".into());
        }
        Ok(sample)
    }

    /// Why the state cannot be had here.
    pub(super) fn refusal(&self) -> Option<String> {
        let tried = self.prepare().and_then(|is_prepared| {
            self.open()?;
            let why = "the file system keeps the pages of a file";
            if is_prepared { Ok(()) } else { Err(io::Error::other(why)) }
        });
        let name = self.state.name();
        tried.err().map(|error| format!("no {name} reads in the temporary folder: {error}"))
    }

    /// The first piece of a slot and the number of its reads.
    pub(super) fn part(&self, slot: usize) -> Part {
        let (slot, depth) = (slot as u64, self.depth as u64);
        let from = slot * self.count / depth;
        let to = (slot + 1) * self.count / depth;
        Part { next: from, to, pieces: self.pieces, done: 0 }
    }

    /// The result of a run.
    pub(super) fn sample(&self, done: u64, spent: Spent) -> Sample {
        Sample::new([Reading { count: done, spent }; 2])
    }
}

/// The reads of one slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    next: u64,
    to: u64,
    pieces: u64,
    /// The number of reads with the right content.
    pub(super) done: u64,
}

impl Part {
    /// The offset of the current read; `None` if all are done.
    pub(super) fn offset(&self) -> Option<u64> {
        (self.next < self.to).then(|| self.next % self.pieces * PIECE as u64)
    }

    /// Whether the current read is at the start of the file, after another.
    #[cfg(all(target_os = "linux", feature = "tokio-uring", tokio_unstable))]
    pub(super) fn is_behind_the_end(&self) -> bool {
        self.next.is_multiple_of(self.pieces)
    }

    /// Checks what the current read has got, and goes on to the next.
    pub(super) fn got(&mut self, bytes: &[u8]) {
        let mark = mark(self.next % self.pieces);
        let right = bytes.len() == PIECE && bytes[0] == mark && bytes[PIECE - 1] == mark;
        self.done += u64::from(right);
        self.next += 1;
    }
}

/// Memory for one read, aligned for direct ones.
#[derive(Clone, Copy)]
#[repr(C, align(4096))]
pub(super) struct Page(pub(super) [u8; PIECE]);

/// Memory that is lent to the kernel.
pub(super) struct Buffer(Box<Page>);

impl Buffer {
    pub(super) fn new() -> Buffer {
        Buffer(Box::new(Page([0; PIECE])))
    }

    /// The first bytes.
    pub(super) fn start(&self, count: usize) -> &[u8] {
        &self.0.0[..count]
    }

    #[cfg_attr(not(unix), expect(dead_code, reason = "for other contestants"))]
    pub(super) fn memory(&mut self) -> &mut [u8] {
        &mut self.0.0
    }
}

// SAFETY: the memory of a box does not move with it.
unsafe impl IoBufMut for Buffer {
    const ONE_PIECE: bool = true;

    fn memory(&mut self) -> &mut [u8] {
        &mut self.0.0
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd;
    use std::path::Path;

    use super::PIECE;

    /// Tells the kernel how a file is used.
    pub(super) fn advise(file: &impl AsRawFd, advice: i32) -> io::Result<()> {
        // SAFETY: no memory is passed.
        match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, advice) } {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// Removes a file from the page cache; returns whether it is gone from there.
    pub(super) fn evict(path: &Path, pieces: u64) -> io::Result<bool> {
        /// Pages that another processor is just using stay.
        const ATTEMPTS: usize = 20;
        let file = File::open(path)?;
        // Dirty pages stay, too.
        file.sync_all()?;
        // Otherwise the checks start a read-ahead, which goes on with the reads that follow.
        advise(&file, libc::POSIX_FADV_RANDOM)?;
        for _ in 0..ATTEMPTS {
            advise(&file, libc::POSIX_FADV_DONTNEED)?;
            // Some file systems, among them those in memory, ignore the advice.
            let mut are_cached = false;
            for piece in [0, pieces / 2, pieces - 1] {
                are_cached |= is_cached(&file, piece)?;
            }
            if !are_cached {
                return Ok(true);
            }
            std::thread::yield_now();
        }
        Ok(false)
    }

    /// Whether a read would not need the disk.
    fn is_cached(file: &File, piece: u64) -> io::Result<bool> {
        let mut byte = [0_u8; 1];
        let iov = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() };
        let at = (piece * PIECE as u64) as i64;
        // SAFETY: the vector refers to one byte that is valid for writes.
        let read = unsafe { libc::preadv2(file.as_raw_fd(), &iov, 1, at, libc::RWF_NOWAIT) };
        match read {
            0.. => Ok(true),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
                error => Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(state: State, depth: usize, count: u64) -> Job {
        let file = Rc::new(Temporary::new("job", &content(8)));
        Job { file, pieces: 8, state, depth, count }
    }

    #[test]
    fn the_slots_read_everything_once_and_in_order() {
        for (depth, count) in [(1, 8), (3, 8), (8, 8), (4, 20), (128, 20)] {
            let job = job(State::Cached, depth, count);
            let mut offsets = Vec::new();
            for slot in 0..depth {
                let mut part = job.part(slot);
                while let Some(offset) = part.offset() {
                    offsets.push(offset / PIECE as u64);
                    part.got(&[]);
                }
                assert_eq!(part.done, 0, "nothing was read");
            }
            let expected: Vec<u64> = (0..count).map(|number| number % 8).collect();
            assert_eq!(offsets, expected, "{depth} {count}");
        }
    }

    #[test]
    fn wrong_content_does_not_count() {
        let job = job(State::Cached, 1, 3);
        let mut part = job.part(0);
        part.got(&[0; PIECE]);
        part.got(&[0; PIECE]);
        part.got(&[2; PIECE - 1]);
        assert_eq!(part.done, 1, "only the first piece is filled with zeros");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_evicted_file_has_its_content() {
        let job = job(State::Cold, 1, 8);
        // Whether the pages are gone is up to the file system.
        job.prepare().unwrap();
        assert_eq!(std::fs::read(job.path().unwrap()).unwrap(), content(8));
    }
}
