//! Reading and writing: `ReadFile` and `WriteFile`, which take one buffer each.

use std::io;
use std::ptr::NonNull;

use poll_core::{Op, RawBuf, RawBufs, Token};
use windows_sys::Win32::Networking::WinSock::WSABUF;

use super::{Course, End, Ops, failure};
use crate::bindings::is_disk_file;
use crate::calls;

/// How far an operation has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Transfer {
    /// Bytes of the buffers that are done.
    moved: usize,
    /// The buffer after the present one.
    next: u32,
    /// The length of the present one.
    asked: u32,
}

/// Handles that take operations have no position that moves: a file needs an offset.
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
    /// Reads or writes the next buffer.
    ///
    /// # Safety
    ///
    /// The buffers and their list outlive the operation.
    pub(super) unsafe fn transfer(
        &mut self,
        token: Token,
        op: Op,
        mut transfer: Transfer,
    ) -> Result<Course, End> {
        let (Op::Read { source, bufs, offset } | Op::Write { source, bufs, offset }) = op else {
            unreachable!("only these transfer")
        };
        // SAFETY: our caller vouches for the list.
        let (buf, next) = unsafe { next_buffer(bufs, transfer.next) };
        (transfer.next, transfer.asked) = (next, buf.len);
        let (file, at) = (source.handle(), offset.unwrap_or(0) + transfer.moved as u64);
        let called = self.call(token, source, |_, memory| {
            if let Op::Read { .. } = op {
                // SAFETY: the slot was just taken; our caller vouches for the buffer.
                unsafe { calls::read(file, buf, at, memory) }
            } else {
                // SAFETY: as above.
                unsafe { calls::write(file, buf, at, memory) }
            }
        });
        match called {
            Ok((slot, _)) => Ok(Course::Transfer(slot, transfer)),
            Err(_) if transfer.moved > 0 => Err(Ok(transfer.moved)),
            Err(code) => Err(failure(&op, code)),
        }
    }

    /// A buffer is done, or failed.
    ///
    /// # Safety
    ///
    /// As for [`Ops::transfer`].
    pub(super) unsafe fn transferred(
        &mut self,
        token: Token,
        op: Op,
        mut transfer: Transfer,
        result: End,
        cancelled: bool,
    ) -> Result<Course, End> {
        let count = match result.or_else(|code| failure(&op, code)) {
            Ok(count) => count,
            Err(_) if transfer.moved > 0 => return Err(Ok(transfer.moved)),
            Err(code) => return Err(Err(code)),
        };
        transfer.moved += count;
        // A pipe that has filled a buffer may have no more for now.
        let (bufs, goes_on) = match op {
            Op::Read { bufs, offset, .. } => (bufs, offset.is_some()),
            Op::Write { bufs, .. } => (bufs, true),
            _ => unreachable!("only these transfer"),
        };
        // SAFETY: our caller vouches for the list.
        let (following, _) = unsafe { next_buffer(bufs, transfer.next) };
        if goes_on && !cancelled && count == transfer.asked as usize && following.len > 0 {
            // SAFETY: our caller vouches for the buffers.
            return unsafe { self.transfer(token, op, transfer) };
        }
        Err(Ok(transfer.moved))
    }
}

/// The first buffer from number `from` on that is not empty, and the number after it. An
/// empty one if there is none.
///
/// # Safety
///
/// The list is valid.
unsafe fn next_buffer(bufs: RawBufs, from: u32) -> (RawBuf, u32) {
    let list: NonNull<WSABUF> = bufs.ptr.cast();
    for index in from..bufs.count {
        // SAFETY: the list has `count` entries.
        let entry = unsafe { list.add(index as usize) };
        // SAFETY: our caller vouches for the list.
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
    fn empty_buffers_are_passed_over() {
        let list = [IoSlice::new(b""), IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"c")];
        let bufs = RawBufs::sending(&list);
        let next = |from| {
            // SAFETY: the list is a local variable.
            let (buf, next) = unsafe { next_buffer(bufs, from) };
            (buf.len, next)
        };
        assert_eq!([next(0), next(2), next(4)], [(2, 2), (1, 4), (0, 4)]);
    }
}
