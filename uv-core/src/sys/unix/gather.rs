//! A list of buffers for one send.

use std::fmt;
use std::ptr::NonNull;

use poll_core::RawMessage;

/// Buffers that one operation sends: 1 KiB.
const CAPACITY: usize = 64;

/// A list of buffers, with the header that names it. It stays where it is while the kernel
/// reads it: in a box.
pub(crate) struct Gather {
    header: libc::msghdr,
    vectors: [libc::iovec; CAPACITY],
    count: usize,
}

impl Default for Gather {
    fn default() -> Gather {
        Gather {
            // SAFETY: all zeros are null pointers and no lengths.
            header: unsafe { std::mem::zeroed() },
            // SAFETY: as above.
            vectors: unsafe { std::mem::zeroed() },
            count: 0,
        }
    }
}

impl fmt::Debug for Gather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gather").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Gather {
    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Appends a buffer; false if the list is full. Whoever sends the list keeps the buffer.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        let Some(vector) = self.vectors.get_mut(self.count) else { return false };
        vector.iov_base = bytes.as_ptr().cast_mut().cast();
        vector.iov_len = bytes.len();
        self.count += 1;
        true
    }

    /// The header of the list.
    pub(crate) fn message(&mut self) -> RawMessage {
        self.header.msg_iov = self.vectors.as_mut_ptr();
        self.header.msg_iovlen = self.count as _;
        RawMessage(NonNull::from(&mut self.header).cast())
    }
}
