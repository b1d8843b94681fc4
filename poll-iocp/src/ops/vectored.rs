//! `Read` and `Write`: one `ReadFile` or `WriteFile` per buffer.

use std::io;
use std::ptr::NonNull;

use poll_core::{Op, RawBuf, RawBufs, Token};
use windows_sys::Win32::Networking::WinSock::WSABUF;

use super::{OpResult, OpState, Ops, normalize};
use crate::association::is_disk_file;
use crate::overlapped;

/// The progress of a read or write over several buffers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VectoredIo {
    /// The bytes of all completed buffers.
    total: usize,
    /// The index after the current buffer.
    next: u32,
    /// The length of the current buffer.
    current_len: u32,
}

/// Rejects operations on files without an offset: overlapped handles have no file position.
pub(super) fn check_position(op: &Op) -> io::Result<()> {
    if let Op::Read { source, offset: None, .. } | Op::Write { source, offset: None, .. } = op
        && is_disk_file(source.handle())
    {
        let why =
            "a file that was opened with FILE_FLAG_OVERLAPPED has no position: give an offset";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Ok(())
}

impl Ops {
    /// Starts the call for the next buffer.
    ///
    /// # Safety
    ///
    /// The buffers and their list are valid until the last `Done` of the operation.
    pub(super) unsafe fn start_buffer(
        &mut self,
        token: Token,
        op: Op,
        mut progress: VectoredIo,
    ) -> Result<OpState, OpResult> {
        let (Op::Read { source, bufs, offset } | Op::Write { source, bufs, offset }) = op else {
            unreachable!("only reads and writes are in this state")
        };
        // SAFETY: the caller keeps the list valid.
        let (buf, next) = unsafe { next_buffer(bufs, progress.next) };
        (progress.next, progress.current_len) = (next, buf.len);
        let (file, at) = (source.handle(), offset.unwrap_or(0) + progress.total as u64);
        let called = self.call(token, source, |_, memory| {
            if let Op::Read { .. } = op {
                // SAFETY: `call` has just taken the slot; the caller keeps the buffer valid.
                unsafe { overlapped::read(file, buf, at, memory) }
            } else {
                // SAFETY: as above.
                unsafe { overlapped::write(file, buf, at, memory) }
            }
        });
        match called {
            Ok((slot, _)) => Ok(OpState::Vectored(slot, progress)),
            Err(_) if progress.total > 0 => Err(Ok(progress.total)),
            Err(code) => Err(normalize(&op, code)),
        }
    }

    /// Handles the completion of the call for one buffer.
    ///
    /// # Safety
    ///
    /// As for [`Ops::transfer`].
    pub(super) unsafe fn buffer_completed(
        &mut self,
        token: Token,
        op: Op,
        mut progress: VectoredIo,
        result: OpResult,
        cancelled: bool,
    ) -> Result<OpState, OpResult> {
        let count = match result.or_else(|code| normalize(&op, code)) {
            Ok(count) => count,
            Err(_) if progress.total > 0 => return Err(Ok(progress.total)),
            Err(code) => return Err(Err(code)),
        };
        progress.total += count;
        // A pipe that has filled one buffer may have no more data pending.
        let (bufs, goes_on) = match op {
            Op::Read { bufs, offset, .. } => (bufs, offset.is_some()),
            Op::Write { bufs, .. } => (bufs, true),
            _ => unreachable!("only reads and writes are in this state"),
        };
        // SAFETY: the caller keeps the list valid.
        let (following, _) = unsafe { next_buffer(bufs, progress.next) };
        if goes_on && !cancelled && count == progress.current_len as usize && following.len > 0 {
            // SAFETY: the caller keeps the buffers valid.
            return unsafe { self.start_buffer(token, op, progress) };
        }
        Err(Ok(progress.total))
    }
}

/// Returns the first non-empty buffer at index `from` or later, and the index after it; an
/// empty buffer if there is none.
///
/// # Safety
///
/// The list is valid.
unsafe fn next_buffer(bufs: RawBufs, from: u32) -> (RawBuf, u32) {
    let list: NonNull<WSABUF> = bufs.ptr.cast();
    for index in from..bufs.count {
        // SAFETY: `index` is less than `count`, the length of the list.
        let entry = unsafe { list.add(index as usize) };
        // SAFETY: the caller keeps the list valid.
        let WSABUF { len, buf } = unsafe { entry.read() };
        if let Some(ptr) = NonNull::new(buf).filter(|_| len > 0) {
            return (RawBuf { ptr, len }, index + 1);
        }
    }
    (RawBuf { ptr: NonNull::dangling(), len: 0 }, bufs.count)
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;

    #[test]
    fn empty_buffers_are_skipped() {
        let list = [IoSlice::new(b""), IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"c")];
        let bufs = RawBufs::sending(&list);
        let next = |from| {
            // SAFETY: the list is a local variable of the test.
            let (buf, next) = unsafe { next_buffer(bufs, from) };
            (buf.len, next)
        };
        assert_eq!([next(0), next(2), next(4)], [(2, 2), (1, 4), (0, 4)]);
    }
}
