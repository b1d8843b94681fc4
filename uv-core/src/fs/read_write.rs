//! Reading and writing files.

use std::io;

use poll_core::{Op, OpKind};

use super::File;
use super::operation::{Action, Call, Operation};
use crate::pool::{Step, Task};
use crate::storage::{IntoIoBuf, IoBuf, IoBufMut};
use crate::sys::Slices;
use crate::sys::fs as sys;

/// Reads from the position of the file, which advances, into a buffer (`readv(2)`). Returns the
/// number of bytes and the buffer. 0 is the end of the file; a short read is no error.
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
/// The system's errors. An interrupted read is retried.
#[doc(alias = "uv_fs_read")]
pub fn read<T: IoBufMut + Send>(file: &File, buf: T) -> Operation<Reading<T>> {
    Operation(Reading::new(file, buf, None))
}

/// As [`read`], from a given offset; the position of the file is unchanged (`preadv(2)`).
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
/// The system's errors, such as `ESPIPE` for a file without offsets, and `InvalidInput` for an
/// offset beyond `i64::MAX`.
#[doc(alias = "uv_fs_read")]
pub fn read_at<T: IoBufMut + Send>(file: &File, buf: T, offset: u64) -> Operation<Reading<T>> {
    Operation(Reading::new(file, buf, Some(offset)))
}

/// Writes a whole buffer at the position of the file, which advances (`writev(2)`). Returns the
/// number of bytes, which is that of the buffer, and the buffer.
///
/// ```
/// use uv_core::fs;
///
/// # let dir = fs::mkdtemp(std::env::temp_dir().join("write-XXXXXX")).perform()?;
/// # let file = fs::File::from(std::fs::File::create(dir.join("a"))?);
/// let (count, _) = fs::write(&file, ["many ", "pieces"]).perform();
/// assert_eq!(count?, 11);
/// let (count, _) = fs::write(&file, 7_u32.to_be_bytes()).perform(); // An array comes back in a box.
/// assert_eq!(count?, 4);
/// # drop(std::fs::remove_dir_all(dir));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors. If one occurs after a part was written, as when the disk becomes full, the
/// result is the length of that part, and the next write reports the error.
#[doc(alias = "uv_fs_write")]
pub fn write<T: IntoIoBuf<Buf: Send>>(file: &File, buf: T) -> Operation<Writing<T::Buf>> {
    Operation(Writing::new(file, buf.into_io_buf(), None))
}

/// As [`write`](write()), at a given offset; the position of the file is unchanged (`pwritev(2)`).
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
#[doc(alias = "uv_fs_write")]
pub fn write_at<T: IntoIoBuf<Buf: Send>>(
    file: &File,
    buf: T,
    offset: u64,
) -> Operation<Writing<T::Buf>> {
    Operation(Writing::new(file, buf.into_io_buf(), Some(offset)))
}

/// The action of [`read`] and [`read_at`].
#[derive(Debug)]
pub struct Reading<T> {
    slices: Slices,
    offset: Option<u64>,
    start: sys::Start,
    file: File,
    buf: T,
}

impl<T: IoBufMut + Send> Reading<T> {
    pub(crate) fn new(file: &File, mut buf: T, offset: Option<u64>) -> Reading<T> {
        let slices = Slices::for_read(&mut buf);
        Reading { slices, offset, start: sys::Start::default(), file: file.clone(), buf }
    }
}

// SAFETY: the operation names the file and the slices of the buffer, which the task owns. The
// buffer is not used before the task leaves its job.
#[allow(unsafe_code, reason = "the kernel uses the memory that `op` names")]
unsafe impl<T: IoBufMut + Send> Task for Reading<T> {
    type Value = usize;

    fn perform(&mut self) -> io::Result<usize> {
        sys::read(&self.file, &self.slices, self.offset)
    }

    fn try_perform(&mut self) -> Option<usize> {
        sys::read_cached(&self.file, &self.slices, self.offset?)
    }

    fn is_short(&self) -> bool {
        self.offset.is_some() && sys::is_short(&self.slices)
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
        Step::Done(Ok(count))
    }
}

impl<T: IoBufMut + Send> Action for Reading<T> {
    type Output = (io::Result<usize>, T);

    fn output(self, result: io::Result<usize>) -> (io::Result<usize>, T) {
        (result, self.buf)
    }
}

/// The action of [`write`](write()) and [`write_at`].
#[derive(Debug)]
pub struct Writing<T> {
    slices: Slices,
    /// The offset of the next part.
    offset: Option<u64>,
    start: sys::Start,
    written: usize,
    file: File,
    buf: T,
}

impl<T: IoBuf + Send> Writing<T> {
    fn new(file: &File, buf: T, offset: Option<u64>) -> Writing<T> {
        let slices = Slices::for_write(&buf);
        let start = sys::Start::default();
        Writing { slices, offset, start, written: 0, file: file.clone(), buf }
    }

    /// Advances past a part that was written. True if another write can make progress.
    fn advance(&mut self, count: usize) -> bool {
        self.written += count;
        self.offset = self.offset.map(|offset| offset + count as u64);
        self.slices.advance(count) && count > 0
    }
}

// SAFETY: the operation names the file and the slices of the buffer, which the task owns. The
// buffer is not used before the task leaves its job.
#[allow(unsafe_code, reason = "the kernel uses the memory that `op` names")]
unsafe impl<T: IoBuf + Send> Task for Writing<T> {
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
        if self.advance(count) { Step::Continue } else { Step::Done(Ok(self.written)) }
    }
}

impl<T: IoBuf + Send> Action for Writing<T> {
    type Output = (io::Result<usize>, T);

    fn output(self, result: io::Result<usize>) -> (io::Result<usize>, T) {
        match result {
            // A part was written: an error would make the caller write it again.
            Err(_) if self.written > 0 => (Ok(self.written), self.buf),
            result => (result, self.buf),
        }
    }
}

/// Copies bytes from an offset of one file to the position of another file or a socket
/// (`sendfile(2)`). Returns the number of bytes, which may be less than `len`: to continue, add it
/// to `offset`. 0 is the end of the file.
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
/// The system's errors, if no byte was copied.
#[doc(alias = "uv_fs_sendfile")]
pub fn sendfile(
    to: &File,
    from: &File,
    offset: u64,
    len: usize,
) -> Operation<Call<sys::SendFile, usize>> {
    let (to, from) = (to.clone(), from.clone());
    Call::of(sys::SendFile { to, from, offset, len }, &sys::SENDFILE)
}
