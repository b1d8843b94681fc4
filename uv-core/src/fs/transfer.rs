//! Reading and writing.

use std::io;

use poll_core::{Op, OpKind};

use super::File;
use super::operation::{Action, Call, Operation};
use crate::buffers::{IoBuf, IoBufMut};
use crate::pool::{Step, Task};
use crate::sys::Slices;
use crate::sys::fs as sys;

/// Reads from where the file is at, which moves on, into a buffer (`readv(2)`). Gives how
/// many bytes, and the buffer: 0 is the end of the file, and fewer than asked for is no error.
///
/// ```
/// use uv_core::{Loop, RunMode, fs};
///
/// let mut lp = Loop::with_default_backend()?;
/// let file = fs::open("Cargo.toml", fs::OpenOptions::new().read(true)).perform()?;
/// fs::read(&file, vec![0; 9]).start(&mut lp, |_, (count, bytes)| {
///     assert_eq!(&bytes[..count.unwrap()], b"[package]");
/// })?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's. An interrupted read is tried again.
#[doc(alias = "uv_fs_read")]
pub fn read<T: IoBufMut + Send>(file: &File, buf: T) -> Operation<Reading<T>> {
    Operation(Reading::new(file, buf, None))
}

/// As [`read`], from a given place of the file, whose position stays (`preadv(2)`).
///
/// ```
/// use uv_core::fs;
///
/// let file = fs::open("Cargo.toml", fs::OpenOptions::new().read(true)).perform()?;
/// let (count, bytes) = fs::read_at(&file, vec![0; 7], 1).perform();
/// assert_eq!(&bytes[..count?], b"package");
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's, such as `ESPIPE` for what has no places, and `InvalidInput` for a place
/// beyond `i64::MAX`.
pub fn read_at<T: IoBufMut + Send>(file: &File, buf: T, offset: u64) -> Operation<Reading<T>> {
    Operation(Reading::new(file, buf, Some(offset)))
}

/// Writes all of a buffer to where the file is at, which moves on (`writev(2)`). Gives how
/// many bytes, which are all, and the buffer.
///
/// ```
/// use uv_core::fs;
///
/// # let dir = fs::mkdtemp(std::env::temp_dir().join("write-XXXXXX")).perform()?;
/// # let file = fs::File::from(std::fs::File::create(dir.join("a"))?);
/// let (count, _) = fs::write(&file, ["many ", "pieces"]).perform();
/// assert_eq!(count?, 11);
/// # drop(std::fs::remove_dir_all(dir));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's. If that came after a first part, as from a disk that is full then, this
/// gives the count of the first part instead, and the next write gives the error.
#[doc(alias = "uv_fs_write")]
pub fn write<T: IoBuf + Send>(file: &File, buf: T) -> Operation<Writing<T>> {
    Operation(Writing::new(file, buf, None))
}

/// As [`write`](write()), to a given place of the file, whose position stays (`pwritev(2)`).
///
/// ```
/// use uv_core::fs;
///
/// # let dir = fs::mkdtemp(std::env::temp_dir().join("write-XXXXXX")).perform()?;
/// # let file = fs::File::from(std::fs::File::create(dir.join("a"))?);
/// let (count, _) = fs::write_at(&file, "behind a hole", 1 << 20).perform();
/// assert_eq!(count?, 13);
/// # drop(std::fs::remove_dir_all(dir));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// As for `write`, and those of [`read_at`].
pub fn write_at<T: IoBuf + Send>(file: &File, buf: T, offset: u64) -> Operation<Writing<T>> {
    Operation(Writing::new(file, buf, Some(offset)))
}

/// What [`read`] and [`read_at`] do.
#[derive(Debug)]
pub struct Reading<T> {
    slices: Slices,
    offset: Option<u64>,
    start: sys::Start,
    file: File,
    buf: T,
}

impl<T: IoBufMut + Send> Reading<T> {
    fn new(file: &File, mut buf: T, offset: Option<u64>) -> Reading<T> {
        let slices = Slices::to_fill(&mut buf);
        Reading { slices, offset, start: sys::Start::default(), file: file.clone(), buf }
    }
}

impl<T: IoBufMut + Send> Task for Reading<T> {
    type Value = usize;

    fn perform(&mut self) -> io::Result<usize> {
        sys::read(&self.file, &self.slices, self.offset)
    }

    fn at_once(&mut self) -> Option<usize> {
        sys::read_cached(&self.file, &self.slices, self.offset?)
    }

    fn is_brief(&self) -> bool {
        self.offset.is_some() && sys::is_brief(&self.slices)
    }

    fn kind(&mut self) -> Option<OpKind> {
        Some(OpKind::Read)
    }

    fn op(&mut self) -> Option<Op> {
        self.start = sys::Start::of(&self.file, self.offset);
        sys::read_op(&self.file, &self.slices, self.offset)
    }

    fn step(&mut self, count: usize) -> Step<usize> {
        if self.start.is_known() && count < self.slices.bytes() {
            self.start.moved(&self.file, count);
        }
        Step::Over(Ok(count))
    }
}

impl<T: IoBufMut + Send> Action for Reading<T> {
    type Output = (io::Result<usize>, T);

    fn output(self, result: io::Result<usize>) -> (io::Result<usize>, T) {
        (result, self.buf)
    }
}

/// What [`write`](write()) and [`write_at`] do.
#[derive(Debug)]
pub struct Writing<T> {
    slices: Slices,
    /// Where the next part goes.
    offset: Option<u64>,
    start: sys::Start,
    written: usize,
    file: File,
    buf: T,
}

impl<T: IoBuf + Send> Writing<T> {
    fn new(file: &File, buf: T, offset: Option<u64>) -> Writing<T> {
        let slices = Slices::to_write(&buf);
        let start = sys::Start::default();
        Writing { slices, offset, start, written: 0, file: file.clone(), buf }
    }

    /// A part is written. True if there is more to write, and writing it makes sense.
    fn advance(&mut self, count: usize) -> bool {
        self.written += count;
        self.offset = self.offset.map(|offset| offset + count as u64);
        self.slices.advance(count) && count > 0
    }
}

impl<T: IoBuf + Send> Task for Writing<T> {
    type Value = usize;

    fn perform(&mut self) -> io::Result<usize> {
        loop {
            let count = sys::write(&self.file, &self.slices, self.offset)?;
            if !self.advance(count) {
                return Ok(self.written);
            }
        }
    }

    fn kind(&mut self) -> Option<OpKind> {
        Some(OpKind::Write)
    }

    fn op(&mut self) -> Option<Op> {
        self.start = sys::Start::of(&self.file, self.offset);
        sys::write_op(&self.file, &self.slices, self.offset)
    }

    fn step(&mut self, count: usize) -> Step<usize> {
        if self.start.is_known() && count < self.slices.bytes() {
            self.start.moved(&self.file, count);
        }
        if self.advance(count) { Step::Again } else { Step::Over(Ok(self.written)) }
    }
}

impl<T: IoBuf + Send> Action for Writing<T> {
    type Output = (io::Result<usize>, T);

    fn output(self, result: io::Result<usize>) -> (io::Result<usize>, T) {
        match result {
            // What is written is written, and must not be written again.
            Err(_) if self.written > 0 => (Ok(self.written), self.buf),
            result => (result, self.buf),
        }
    }
}

/// Copies bytes from a place of one file to another file, or a socket, at its position
/// (`sendfile(2)`). Gives how many, which may be fewer than asked for: to go on, add the
/// count to `offset`. 0 is the end of the file.
///
/// ```
/// use uv_core::fs;
///
/// # let dir = fs::mkdtemp(std::env::temp_dir().join("send-XXXXXX")).perform()?;
/// # let to = fs::File::from(std::fs::File::create(dir.join("a"))?);
/// let from = fs::open("Cargo.toml", fs::OpenOptions::new().read(true)).perform()?;
/// assert_eq!(fs::sendfile(&to, &from, 1, 7).perform()?, 7);
/// # drop(std::fs::remove_dir_all(dir));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's, if nothing could be copied.
#[doc(alias = "uv_fs_sendfile")]
pub fn sendfile(
    to: &File,
    from: &File,
    offset: u64,
    len: usize,
) -> Operation<Call<sys::Sending, usize>> {
    let (to, from) = (to.clone(), from.clone());
    Call::of(sys::Sending { to, from, offset, len }, &sys::SENDFILE)
}
