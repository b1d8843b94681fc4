//! The memory of a pipe's write operation or one-byte read.

use std::fmt;
use std::io::{self, IoSlice};
use std::ptr;

use poll_core::RawBufs;
use windows_sys::Win32::Networking::WinSock::WSABUF;

use super::calls::ROOM;
use super::{Channel, frames};
use crate::sys::Rights;

/// A buffer lent to a pipe operation. It is boxed, so that its address is stable while the kernel
/// uses it.
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    /// The number of leading bytes that are framing, not stream data.
    framing: usize,
    /// The address and length of `bytes`, in the form that the operation takes.
    list: WSABUF,
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({} bytes)", self.bytes.len())
    }
}

impl Default for Chunk {
    fn default() -> Chunk {
        let list = WSABUF { len: 0, buf: ptr::null_mut() };
        Chunk { bytes: Vec::with_capacity(ROOM), framing: 0, list }
    }
}

impl Chunk {
    /// A buffer for a one-byte read.
    pub(super) fn for_one_byte() -> Box<Chunk> {
        let mut bytes = vec![0];
        let list = WSABUF { len: 1, buf: bytes.as_mut_ptr() };
        Box::new(Chunk { bytes, framing: 0, list })
    }

    /// The byte that was read.
    pub(super) fn first(&self) -> u8 {
        self.bytes[0]
    }

    /// Copies the first bytes of `bufs`, up to the capacity.
    pub(crate) fn fill(&mut self, bufs: &[IoSlice<'_>]) -> usize {
        self.bytes.clear();
        self.framing = 0;
        self.append(bufs)
    }

    /// Copies the handles as frames, then the bytes as [`Chunk::fill`] does.
    ///
    /// # Errors
    ///
    /// Those of duplicating the handles into the peer; it then has none of them.
    pub(crate) fn fill_framed(
        &mut self,
        bufs: &[IoSlice<'_>],
        rights: &Rights,
        channel: &Channel,
    ) -> io::Result<usize> {
        self.bytes.clear();
        let size = bufs.iter().map(|buf| buf.len()).sum::<usize>().min(ROOM);
        // The peer matters only for handles.
        let peer = if rights.is_empty() { Ok(0) } else { channel.peer() };
        let framed =
            peer.and_then(|peer| frames::append(&mut self.bytes, rights.sources(), peer, size));
        if let Err(error) = framed {
            self.take_back();
            return Err(error);
        }
        self.framing = self.bytes.len();
        Ok(self.append(bufs))
    }

    fn append(&mut self, bufs: &[IoSlice<'_>]) -> usize {
        let most = self.bytes.len() + ROOM;
        for buf in bufs {
            let space = most - self.bytes.len();
            self.bytes.extend_from_slice(&buf[..buf.len().min(space)]);
        }
        self.list.len = self.bytes.len() as u32;
        self.list.buf = self.bytes.as_mut_ptr();
        self.bytes.len() - self.framing
    }

    /// Lends the bytes to an operation.
    pub(crate) fn lend(&self) -> RawBufs {
        RawBufs { ptr: ptr::NonNull::from(&self.list).cast(), count: 1 }
    }

    /// The number of stream bytes among `count` bytes that were written.
    pub(crate) fn own(&self, count: usize) -> usize {
        count.saturating_sub(self.framing)
    }

    /// Closes the handles duplicated for the peer, because the chunk was not sent.
    pub(crate) fn take_back(&mut self) {
        frames::discard(&self.bytes);
        self.bytes.clear();
    }

    /// Frees the additional memory that frames with many handles needed.
    pub(super) fn shrink(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(ROOM);
    }
}
