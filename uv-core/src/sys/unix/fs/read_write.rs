//! Reading, writing, and copying from file to file.
//!
//! The functions that take [`Slices`] rely on its invariant: the request that owns the list also
//! owns the buffer, so the pieces are valid, and exclusive for a read, while the list is borrowed.

use std::io;
use std::os::unix::fs::FileExt;

use libc::{c_int, iovec};
use poll_core::{Op, RawBufs};
use std::ptr::NonNull;

use super::{Way, fd, retried};
use crate::fs::File;
use crate::sys::Slices;

/// The most pieces of one call (`IOV_MAX`).
const MAX_PIECES: usize = 1024;

/// The most bytes of one call. Apple's kernels refuse more; the others transfer fewer.
const MAX_BYTES: usize =
    if cfg!(target_vendor = "apple") { i32::MAX as usize } else { isize::MAX as usize };

/// Calls with as many pieces as one call may have.
fn call(slices: &Slices, call: impl Fn(*const iovec, c_int) -> isize) -> io::Result<usize> {
    let left = slices.remaining();
    let mut bytes = 0_usize;
    let fits = |slice: &&iovec| {
        bytes = bytes.saturating_add(slice.iov_len);
        bytes <= MAX_BYTES
    };
    let count = left.iter().take(MAX_PIECES).take_while(fits).count();
    let result = match left.first() {
        // The first piece is too long by itself.
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
    if let (&[only], Some(offset)) = (slices.remaining(), offset) {
        let (at, len) = (position(offset)?, only.iov_len.min(MAX_BYTES));
        // SAFETY: writes at most `len` bytes to a piece of the request's read buffer (module docs).
        let count = retried(|| unsafe { libc::pread(fd(file), only.iov_base, len, at) });
        return count.map(|count| count as usize);
    }
    let Some(offset) = offset.map(position).transpose()? else {
        // SAFETY: writes to pieces of the request's read buffer (module docs); `call` passes a list
        // of `count` elements.
        return call(slices, |list, count| unsafe { libc::readv(fd(file), list, count) });
    };
    // SAFETY: writes to pieces of the request's read buffer (module docs); `call` passes a list of
    // `count` elements.
    call(slices, |list, count| unsafe { libc::preadv(fd(file), list, count, offset) })
}

cfg_if::cfg_if! {
    if #[cfg(all(target_os = "linux", any(target_env = "gnu", target_env = "musl")))] {
        /// The most bytes that are copied in the loop's thread: as many as one read of a stream.
        const CACHED_MAX: usize = 64 * 1024;

        /// Bytes that are copied in a few microseconds.
        const BRIEF_MAX: usize = 16 * 1024;

        /// True if the read is so short when it is [cached](read_cached) that one worker may run
        /// several of them one after the other.
        pub(crate) fn is_short(slices: &Slices) -> bool {
            (1..=BRIEF_MAX).contains(&slices.bytes())
        }

        /// Reads from the page cache (`RWF_NOWAIT`, Linux 4.14). `None` if not all bytes are
        /// cached, if there are more than `CACHED_MAX`, if the file is read past the cache, or on
        /// any error: a blocking read decides then.
        pub(crate) fn read_cached(file: &File, slices: &Slices, offset: u64) -> Option<usize> {
            let (left, bytes) = (slices.remaining(), slices.bytes());
            if left.len() > MAX_PIECES || !(1..=CACHED_MAX).contains(&bytes) {
                return None;
            }
            if may_be_direct(left, offset) && is_direct(file) {
                return None;
            }
            let read = read_nowait(file, left, offset)?;
            (read == bytes).then_some(bytes)
        }

        /// The least alignment of memory, length and offset that direct reads need on most devices.
        const SECTOR: usize = 512;

        /// True if a read is aligned as direct ones are. Memory of an allocator seldom is, so that
        /// other reads need no system call to find out about the file.
        fn may_be_direct(list: &[iovec], offset: u64) -> bool {
            let is_aligned = |piece: &iovec| {
                (piece.iov_base as usize | piece.iov_len).is_multiple_of(SECTOR)
            };
            offset.is_multiple_of(SECTOR as u64) && list.iter().all(is_aligned)
        }

        /// True if reads go past the page cache (`O_DIRECT`). The kernel waits for the device then,
        /// also with `RWF_NOWAIT`.
        fn is_direct(file: &File) -> bool {
            // SAFETY: no memory is passed.
            let flags = unsafe { libc::fcntl(fd(file), libc::F_GETFL) };
            flags != -1 && flags & libc::O_DIRECT != 0
        }

        /// True if a read at this offset does not wait for the disk. An offset beyond the end
        /// counts as cached.
        pub(crate) fn is_cached(file: &File, offset: u64) -> bool {
            let mut byte = 0_u8;
            let place = iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
            read_nowait(file, &[place], offset).is_some()
        }

        /// Reads bytes that are cached to the memory that `list` names, of which there are at most
        /// [`MAX_PIECES`] pieces. `None` on any error.
        fn read_nowait(file: &File, list: &[iovec], offset: u64) -> Option<usize> {
            position(offset).ok()?;
            let (low, high) = (offset as libc::c_long, (offset >> 32) as libc::c_long);
            let (list, count) = (list.as_ptr(), list.len() as libc::c_long);
            // The kernel takes the offset as two words; with 64-bit words it ignores the second.
            // SAFETY: writes to pieces of the request's read buffer (module docs), or to a local of
            // the caller's, in a list of `count` elements.
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
            usize::try_from(read).ok()
        }
    } else {
        pub(crate) fn is_short(_: &Slices) -> bool {
            false
        }

        /// Other systems cannot read without blocking on the disk.
        pub(crate) fn read_cached(_: &File, _: &Slices, _: u64) -> Option<usize> {
            None
        }
    }
}

pub(crate) fn write(file: &File, slices: &Slices, offset: Option<u64>) -> io::Result<usize> {
    if let (&[only], Some(offset)) = (slices.remaining(), offset) {
        let (at, len) = (position(offset)?, only.iov_len.min(MAX_BYTES));
        // SAFETY: reads at most `len` bytes of a piece of the request's buffer (module docs).
        let count = retried(|| unsafe { libc::pwrite(fd(file), only.iov_base, len, at) });
        return count.map(|count| count as usize);
    }
    let Some(offset) = offset.map(position).transpose()? else {
        // SAFETY: reads pieces of the request's buffer (module docs); `call` passes a list of
        // `count` elements.
        return call(slices, |list, count| unsafe { libc::writev(fd(file), list, count) });
    };
    // SAFETY: reads pieces of the request's buffer (module docs); `call` passes a list of `count`
    // elements.
    call(slices, |list, count| unsafe { libc::pwritev(fd(file), list, count, offset) })
}

/// The list for a backend operation. `None` if the kernel would misinterpret the offset.
fn lend(slices: &Slices, offset: Option<u64>) -> Option<RawBufs> {
    // io_uring takes -1 as the current position, and the blocking calls refuse negative offsets.
    offset.map(position).transpose().ok()?;
    let left = slices.remaining();
    let ptr = NonNull::from(left).cast();
    Some(RawBufs { ptr, count: left.len().min(MAX_PIECES) as u32 })
}

pub(crate) fn read_op(file: &File, slices: &Slices, offset: Option<u64>) -> Option<Op> {
    Some(Op::Read { source: file.source(), bufs: lend(slices, offset)?, offset })
}

pub(crate) fn write_op(file: &File, slices: &Slices, offset: Option<u64>) -> Option<Op> {
    Some(Op::Write { source: file.source(), bufs: lend(slices, offset)?, offset })
}

/// The file position before an operation that moves it; `None` if the file is not seekable.
///
/// If io_uring starts a transfer inline and a worker continues it and fails, for example on a full
/// disk, the completion has the count of the first part but the position does not move.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Start(Option<libc::off_t>);

impl Start {
    pub(crate) fn of(file: &File, offset: Option<u64>) -> Start {
        Start(if offset.is_none() { at(file) } else { None })
    }

    pub(crate) fn is_known(self) -> bool {
        self.0.is_some()
    }

    /// Advances the position by `count` if the operation did not.
    pub(crate) fn moved(self, file: &File, count: usize) {
        let Some(start) = self.0 else { return };
        if count > 0 && at(file) == Some(start) {
            // SAFETY: takes no pointer.
            unsafe { libc::lseek(fd(file), start + count as libc::off_t, libc::SEEK_SET) };
        }
    }
}

fn at(file: &File) -> Option<libc::off_t> {
    // SAFETY: takes no pointer.
    let position = unsafe { libc::lseek(fd(file), 0, libc::SEEK_CUR) };
    (position >= 0).then_some(position)
}

/// The arguments of a copy from file to file.
#[derive(Debug)]
pub struct SendFile {
    pub(crate) to: File,
    pub(crate) from: File,
    pub(crate) offset: u64,
    pub(crate) len: usize,
}

pub(crate) const SENDFILE: Way<SendFile, usize> = Way::blocking(|request| {
    match by_kernel(request) {
        // The kernel does not copy between these kinds of files.
        Err(error) if is_impossible(&error) => by_read_write(request),
        result => result,
    }
});

cfg_if::cfg_if! {
    if #[cfg(any(target_os = "linux", target_os = "android"))] {
        fn by_kernel(SendFile { to, from, offset, len }: &SendFile) -> io::Result<usize> {
            let offset = position(*offset)?;
            retried(|| {
                let mut at = offset;
                // SAFETY: reads and writes the offset, a local, and no other memory of this
                // process.
                unsafe { libc::sendfile(fd(to), fd(from), &mut at, *len) }
            })
            .map(|count| count as usize)
        }
    } else {
        /// The BSDs' `sendfile` writes to sockets only.
        fn by_kernel(_: &SendFile) -> io::Result<usize> {
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

/// Copies through a buffer. An error after the first bytes is left to the next call.
fn by_read_write(SendFile { to, from, offset, len }: &SendFile) -> io::Result<usize> {
    position(*offset)?;
    let mut piece = [0; 16 * 1024];
    let mut sent = 0;
    let partial = |sent, error| if sent > 0 { Ok(sent) } else { Err(error) };
    while sent < *len {
        let wanted = piece.len().min(*len - sent);
        let count = match from.std().read_at(&mut piece[..wanted], *offset + sent as u64) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return partial(sent, error),
            Ok(0) => break,
            Ok(count) => count,
        };
        let mut written = 0;
        while written < count {
            match io::Write::write(&mut to.std(), &piece[written..count]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return partial(sent + written, error),
                Ok(0) => return Ok(sent + written),
                Ok(part) => written += part,
            }
        }
        sent += count;
    }
    Ok(sent)
}

#[cfg(all(test, target_os = "linux", any(target_env = "gnu", target_env = "musl")))]
mod tests {
    use std::os::unix::fs::OpenOptionsExt;

    use super::*;
    use crate::IoBufMut;

    #[repr(align(4096))]
    struct Page([u8; 4096]);

    struct Buffer(Box<Page>);

    // SAFETY: the memory of a box does not move with it.
    unsafe impl IoBufMut for Buffer {
        const ONE_PIECE: bool = true;

        fn memory(&mut self) -> &mut [u8] {
            &mut self.0.0
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no page cache")]
    fn reads_past_the_cache_are_left_to_threads() {
        let name = format!("uv-core-direct-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, [7; 4096]).unwrap();
        // The kernel refuses to read past cached pages that are not written yet.
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        let mut buffer = Buffer(Box::new(Page([0; 4096])));
        let slices = Slices::for_read(&mut buffer);
        let cached = File::from(std::fs::File::open(&path).unwrap());
        // A kernel may refuse such reads on some file systems.
        assert!(read_cached(&cached, &slices, 0).is_none_or(|count| count == 4096));
        let mut options = std::fs::OpenOptions::new();
        // Not every file system has such files.
        if let Ok(direct) = options.read(true).custom_flags(libc::O_DIRECT).open(&path) {
            let direct = File::from(direct);
            assert_eq!(read_cached(&direct, &slices, 0), None);
            assert_eq!(read(&direct, &slices, Some(0)).unwrap(), 4096);
            assert_eq!(buffer.0.0, [7; 4096]);
        }
        std::fs::remove_file(path).unwrap();
    }
}
