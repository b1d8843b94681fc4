//! Reads, writes and copies.

use std::ffi::c_int;
use std::ptr::{addr_of_mut, null_mut};

use libc::{EINTR, EPERM, O_CLOEXEC, O_CREAT, O_EXCL, O_RDONLY, O_WRONLY, iovec};

use super::perform::result;
use crate::errors::last_error;
use crate::layout::uv_fs_t;
use crate::write::release_buffers;

/// The flags of `uv_fs_copyfile`.
const COPY_EXCL: c_int = 1;
const COPY_CLONE: c_int = 2;
const COPY_CLONE_FORCE: c_int = 4;
pub(super) const COPY_FLAGS: c_int = COPY_EXCL | COPY_CLONE | COPY_CLONE_FORCE;

/// The most pieces of one call: `IOV_MAX`.
const MOST_PIECES: usize = 1024;

/// Frees the list of buffers, which libuv does when the operation ends.
unsafe fn release_list(r: *mut uv_fs_t) {
    release_buffers((*r).bufs, addr_of_mut!((*r).bufsml));
    (*r).bufs = null_mut();
    (*r).nbufs = 0;
}

/// One call reads, as read(2): a short read is the caller's to continue.
pub(super) unsafe fn read(r: *mut uv_fs_t) -> isize {
    let (pieces, count) =
        ((*r).bufs.cast::<iovec>(), ((*r).nbufs as usize).min(MOST_PIECES) as c_int);
    let read = result(if (*r).off < 0 {
        libc::readv((*r).file, pieces, count)
    } else {
        libc::preadv((*r).file, pieces, count, (*r).off)
    });
    release_list(r);
    read
}

/// Writes all pieces. An error after the first bytes is reported as a short write.
pub(super) unsafe fn write(r: *mut uv_fs_t) -> isize {
    let mut pieces = std::slice::from_raw_parts_mut((*r).bufs.cast::<iovec>(), (*r).nbufs as usize);
    let mut total = 0;
    while !pieces.is_empty() {
        let count = pieces.len().min(MOST_PIECES) as c_int;
        let written = result(if (*r).off < 0 {
            libc::writev((*r).file, pieces.as_ptr(), count)
        } else {
            libc::pwritev((*r).file, pieces.as_ptr(), count, (*r).off + total as i64)
        });
        if written == -(EINTR as isize) {
            continue;
        }
        if written < 0 {
            total = if total > 0 { total } else { written };
            break;
        }
        total += written;
        let mut left = written as usize;
        while let Some(piece) = pieces.first()
            && left >= piece.iov_len
        {
            left -= piece.iov_len;
            pieces = &mut std::mem::take(&mut pieces)[1..];
        }
        if let Some(piece) = pieces.first_mut() {
            if written == 0 {
                break;
            }
            piece.iov_base = piece.iov_base.byte_add(left);
            piece.iov_len -= left;
        }
    }
    release_list(r);
    total
}

pub(super) unsafe fn send_file(r: *mut uv_fs_t) -> isize {
    let (output, input, length) = ((*r).flags, (*r).file, (*r).bufsml[0].len);
    let mut offset = (*r).off;
    loop {
        let sent = result(libc::sendfile(output, input, &mut offset, length));
        match -sent as c_int {
            EINTR => {}
            // The kernel cannot copy between these two: as libuv, by reads and writes.
            libc::EINVAL | libc::EIO | libc::ENOTSOCK | libc::EXDEV => {
                return copy_bytes(output, input, (*r).off, length);
            }
            _ => return sent,
        }
    }
}

/// Copies by reads and writes. The number of bytes, or the error before the first.
unsafe fn copy_bytes(output: c_int, input: c_int, offset: i64, length: usize) -> isize {
    let mut buffer = vec![0u8; length.clamp(1, 64 * 1024)];
    let mut copied = 0;
    while (copied as usize) < length {
        let wanted = buffer.len().min(length - copied as usize);
        let at = offset + copied as i64;
        let read = result(libc::pread(input, buffer.as_mut_ptr().cast(), wanted, at));
        if read == -(EINTR as isize) {
            continue;
        }
        if read <= 0 {
            return if copied > 0 { copied } else { read };
        }
        let mut written = 0;
        while written < read {
            let rest = &buffer[written as usize..read as usize];
            let count = result(libc::write(output, rest.as_ptr().cast(), rest.len()));
            match count {
                count if count == -(EINTR as isize) => {}
                count if count < 0 => {
                    let total = copied + written;
                    return if total > 0 { total } else { count };
                }
                count => written += count,
            }
        }
        copied += written;
    }
    copied
}

/// Closes a descriptor at the end of a scope.
struct Closed(c_int);

impl Drop for Closed {
    fn drop(&mut self) {
        // SAFETY: the descriptor was opened for this value alone.
        unsafe { libc::close(self.0) };
    }
}

pub(super) unsafe fn copy_file(r: *mut uv_fs_t) -> isize {
    let from = Closed(libc::open((*r).path, O_RDONLY | O_CLOEXEC));
    if from.0 < 0 {
        return last_error() as isize;
    }
    let mut source: libc::stat = std::mem::zeroed();
    if libc::fstat(from.0, &mut source) != 0 {
        return last_error() as isize;
    }
    let exclusive = if (*r).flags & COPY_EXCL != 0 { O_EXCL } else { 0 };
    let flags = O_WRONLY | O_CREAT | O_CLOEXEC | exclusive;
    let to = Closed(libc::open((*r).new_path, flags, source.st_mode & 0o7777));
    if to.0 < 0 {
        return last_error() as isize;
    }
    let copied = copy_contents((*r).flags, from.0, to.0, &source);
    if copied < 0 {
        libc::unlink((*r).new_path);
    }
    copied
}

unsafe fn copy_contents(flags: c_int, from: c_int, to: c_int, source: &libc::stat) -> isize {
    let mut target: libc::stat = std::mem::zeroed();
    if libc::fstat(to, &mut target) != 0 {
        return last_error() as isize;
    }
    if (source.st_dev, source.st_ino) == (target.st_dev, target.st_ino) {
        return 0;
    }
    if libc::ftruncate(to, 0) != 0 {
        return last_error() as isize;
    }
    // File systems without permissions refuse it.
    if libc::fchmod(to, source.st_mode) != 0 && last_error() != -EPERM {
        return last_error() as isize;
    }
    if flags & (COPY_CLONE | COPY_CLONE_FORCE) != 0 {
        if libc::ioctl(to, libc::FICLONE as _, from) == 0 {
            return 0;
        }
        if flags & COPY_CLONE_FORCE != 0 {
            return last_error() as isize;
        }
    }
    let mut offset = 0;
    while offset < source.st_size {
        let left = (source.st_size - offset).min(super::MOST_BYTES as i64) as usize;
        let sent = result(libc::sendfile(to, from, &mut offset, left));
        match -sent as c_int {
            EINTR => {}
            libc::EINVAL | libc::EIO | libc::EXDEV | libc::ENOSYS => {
                let copied = copy_bytes(to, from, offset, left);
                if copied <= 0 {
                    return copied;
                }
                offset += copied as i64;
            }
            _ if sent < 0 => return sent,
            // The file has become shorter.
            _ if sent == 0 => break,
            _ => {}
        }
    }
    0
}
