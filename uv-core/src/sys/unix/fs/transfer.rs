//! Reading, writing, and copying from file to file.

use std::io;
use std::os::unix::fs::FileExt;

use libc::{c_int, iovec};
use poll_core::{Op, RawBufs};
use std::ptr::NonNull;

use super::{Way, fd, retried};
use crate::fs::File;
use crate::sys::Slices;

/// How many pieces a call takes.
const MAX_PIECES: usize = 1024;

/// How many bytes a call takes. Apple's kernels refuse more, the others do fewer by
/// themselves.
const MAX_BYTES: usize =
    if cfg!(target_vendor = "apple") { i32::MAX as usize } else { isize::MAX as usize };

/// Calls with as many pieces as one call takes.
fn call(slices: &Slices, call: impl Fn(*const iovec, c_int) -> isize) -> io::Result<usize> {
    let left = slices.left();
    let mut bytes = 0_usize;
    let fits = |slice: &&iovec| {
        bytes = bytes.saturating_add(slice.iov_len);
        bytes <= MAX_BYTES
    };
    let count = left.iter().take(MAX_PIECES).take_while(fits).count();
    let result = match left.first() {
        // The first alone is too long.
        Some(first) if count == 0 => {
            let part = iovec { iov_base: first.iov_base, iov_len: MAX_BYTES };
            retried(|| call(&part, 1))
        }
        _ => retried(|| call(left.as_ptr(), count as c_int)),
    };
    result.map(|count| count as usize)
}

fn position(offset: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

pub(crate) fn read(file: &File, slices: &Slices, offset: Option<u64>) -> io::Result<usize> {
    if let (&[only], Some(offset)) = (slices.left(), offset) {
        let (at, len) = (position(offset)?, only.iov_len.min(MAX_BYTES));
        // SAFETY: the slice is memory that its buffer lends to be filled.
        let count = retried(|| unsafe { libc::pread(fd(file), only.iov_base, len, at) });
        return count.map(|count| count as usize);
    }
    let Some(offset) = offset.map(position).transpose()? else {
        // SAFETY: the slices are memory that their buffer lends to be filled.
        return call(slices, |list, count| unsafe { libc::readv(fd(file), list, count) });
    };
    // SAFETY: the slices are memory that their buffer lends to be filled.
    call(slices, |list, count| unsafe { libc::preadv(fd(file), list, count, offset) })
}

cfg_if::cfg_if! {
    if #[cfg(all(target_os = "linux", any(target_env = "gnu", target_env = "musl")))] {
        /// No more than this is copied in the loop's thread: as much as a stream reads at a time.
        const AT_ONCE: usize = 64 * 1024;

        /// As much is copied in a few microseconds.
        const BRIEF: usize = 16 * 1024;

        /// True if what is [in memory](read_cached) is read so quickly that several such reads
        /// may wait for each other.
        pub(crate) fn is_brief(slices: &Slices) -> bool {
            (1..=BRIEF).contains(&slices.bytes())
        }

        /// Reads what the kernel has in memory (`RWF_NOWAIT`, Linux 4.14). `None` if that is
        /// not all that is asked for, or much, or if there is anything else to say: whoever
        /// may block finds out.
        pub(crate) fn read_cached(file: &File, slices: &Slices, offset: u64) -> Option<usize> {
            let (left, bytes) = (slices.left(), slices.bytes());
            if left.len() > MAX_PIECES || !(1..=AT_ONCE).contains(&bytes) {
                return None;
            }
            position(offset).ok()?;
            let (low, high) = (offset as libc::c_long, (offset >> 32) as libc::c_long);
            let (list, count) = (left.as_ptr(), left.len() as libc::c_long);
            // SAFETY: the slices are memory that their buffer lends to be filled. Of the two
            // halves of the offset, systems with long words look at the first alone.
            let read = unsafe {
                libc::syscall(
                    libc::SYS_preadv2,
                    libc::c_long::from(fd(file)),
                    list,
                    count,
                    low,
                    high,
                    libc::c_long::from(libc::RWF_NOWAIT),
                )
            };
            (usize::try_from(read) == Ok(bytes)).then_some(bytes)
        }
    } else {
        pub(crate) fn is_brief(_: &Slices) -> bool {
            false
        }

        /// No other system says whether reading would block.
        pub(crate) fn read_cached(_: &File, _: &Slices, _: u64) -> Option<usize> {
            None
        }
    }
}

pub(crate) fn write(file: &File, slices: &Slices, offset: Option<u64>) -> io::Result<usize> {
    if let (&[only], Some(offset)) = (slices.left(), offset) {
        let (at, len) = (position(offset)?, only.iov_len.min(MAX_BYTES));
        // SAFETY: the slice is memory that its buffer lends to be read.
        let count = retried(|| unsafe { libc::pwrite(fd(file), only.iov_base, len, at) });
        return count.map(|count| count as usize);
    }
    let Some(offset) = offset.map(position).transpose()? else {
        // SAFETY: the slices are memory that their buffer lends to be read.
        return call(slices, |list, count| unsafe { libc::writev(fd(file), list, count) });
    };
    // SAFETY: the slices are memory that their buffer lends to be read.
    call(slices, |list, count| unsafe { libc::pwritev(fd(file), list, count, offset) })
}

/// The list for a backend. `None` where the kernel would understand something else.
fn lend(slices: &Slices, offset: Option<u64>) -> Option<RawBufs> {
    // All ones is the current position, and what is negative is refused, by calls.
    offset.map(position).transpose().ok()?;
    let left = slices.left();
    let ptr = NonNull::from(left).cast();
    Some(RawBufs { ptr, count: left.len().min(MAX_PIECES) as u32 })
}

pub(crate) fn read_op(file: &File, slices: &Slices, offset: Option<u64>) -> Option<Op> {
    Some(Op::Read { source: file.source(), bufs: lend(slices, offset)?, offset })
}

pub(crate) fn write_op(file: &File, slices: &Slices, offset: Option<u64>) -> Option<Op> {
    Some(Op::Write { source: file.source(), bufs: lend(slices, offset)?, offset })
}

/// The position of a file before an operation that moves it; `None` if it has none.
///
/// A transfer that Linux's io_uring begins at once and ends elsewhere with an error, as that
/// of a disk that gets full, gives the count of the first part, but leaves the position.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Start(Option<libc::off_t>);

impl Start {
    pub(crate) fn of(file: &File, offset: Option<u64>) -> Start {
        Start(if offset.is_none() { at(file) } else { None })
    }

    pub(crate) fn is_known(self) -> bool {
        self.0.is_some()
    }

    /// Makes sure that the position has moved.
    pub(crate) fn moved(self, file: &File, count: usize) {
        let Some(start) = self.0 else { return };
        if count > 0 && at(file) == Some(start) {
            // SAFETY: no memory is passed.
            unsafe { libc::lseek(fd(file), start + count as libc::off_t, libc::SEEK_SET) };
        }
    }
}

fn at(file: &File) -> Option<libc::off_t> {
    // SAFETY: no memory is passed.
    let position = unsafe { libc::lseek(fd(file), 0, libc::SEEK_CUR) };
    (position >= 0).then_some(position)
}

/// What copying from file to file takes.
#[derive(Debug)]
pub struct Sending {
    pub(crate) to: File,
    pub(crate) from: File,
    pub(crate) offset: u64,
    pub(crate) len: usize,
}

pub(crate) const SENDFILE: Way<Sending, usize> = Way::blocking(|sending| {
    match by_kernel(sending) {
        // Not between such files: then by hand.
        Err(error) if is_impossible(&error) => by_hand(sending),
        result => result,
    }
});

cfg_if::cfg_if! {
    if #[cfg(any(target_os = "linux", target_os = "android"))] {
        fn by_kernel(Sending { to, from, offset, len }: &Sending) -> io::Result<usize> {
            let offset = position(*offset)?;
            retried(|| {
                let mut at = offset;
                // SAFETY: the kernel reads and writes the offset only, which is there.
                unsafe { libc::sendfile(fd(to), fd(from), &mut at, *len) }
            })
            .map(|count| count as usize)
        }
    } else {
        /// There they send to sockets only.
        fn by_kernel(_: &Sending) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(libc::ENOSYS))
        }
    }
}

fn is_impossible(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::ENOSYS | libc::EIO | libc::ENOTSOCK | libc::EXDEV)
    )
}

/// Copies piece by piece. An error after a first piece is left to the next call.
fn by_hand(Sending { to, from, offset, len }: &Sending) -> io::Result<usize> {
    position(*offset)?;
    let mut piece = [0; 16 * 1024];
    let mut sent = 0;
    let told = |sent, error| if sent > 0 { Ok(sent) } else { Err(error) };
    while sent < *len {
        let wanted = piece.len().min(*len - sent);
        let count = match from.0.read_at(&mut piece[..wanted], *offset + sent as u64) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return told(sent, error),
            Ok(0) => break,
            Ok(count) => count,
        };
        let mut written = 0;
        while written < count {
            match io::Write::write(&mut &*to.0, &piece[written..count]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return told(sent + written, error),
                Ok(0) => return Ok(sent + written),
                Ok(part) => written += part,
            }
        }
        sent += count;
    }
    Ok(sent)
}
