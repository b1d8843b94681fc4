//! Memory that goes into a pipe, or that a byte comes to.

use std::fmt;
use std::io::{self, IoSlice};
use std::ptr;

use poll_core::RawBufs;
use windows_sys::Win32::Networking::WinSock::WSABUF;

use super::calls::ROOM;
use super::{Channel, frames};
use crate::sys::Rights;

/// Bytes on their way into a pipe. The kernel may read it from where it is: it is boxed, and
/// its bytes do not move.
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    /// How many of them are not the stream's own.
    framing: usize,
    /// What the operation names: the bytes, as the kernel wants them to be named.
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
    /// Room for a byte that is to come.
    pub(super) fn for_one_byte() -> Box<Chunk> {
        let mut bytes = vec![0];
        let list = WSABUF { len: 1, buf: bytes.as_mut_ptr() };
        Box::new(Chunk { bytes, framing: 0, list })
    }

    /// The byte that has come.
    pub(super) fn first(&self) -> u8 {
        self.bytes[0]
    }

    /// Fills it with the first bytes of `bufs`, as many as there is room for.
    pub(crate) fn fill(&mut self, bufs: &[IoSlice<'_>]) -> usize {
        self.bytes.clear();
        self.framing = 0;
        self.append(bufs)
    }

    /// Fills it with frames: handles, and as above.
    ///
    /// # Errors
    ///
    /// Those of giving the handles to the peer, which has none of them then.
    pub(crate) fn fill_framed(
        &mut self,
        bufs: &[IoSlice<'_>],
        rights: &Rights,
        channel: &Channel,
    ) -> io::Result<usize> {
        self.bytes.clear();
        let size = bufs.iter().map(|buf| buf.len()).sum::<usize>().min(ROOM);
        // Without handles it makes no difference who the peer is.
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
            let room = most - self.bytes.len();
            self.bytes.extend_from_slice(&buf[..buf.len().min(room)]);
        }
        self.list.len = self.bytes.len() as u32;
        self.list.buf = self.bytes.as_mut_ptr();
        self.bytes.len() - self.framing
    }

    /// Names them for an operation.
    pub(crate) fn lend(&self) -> RawBufs {
        RawBufs { ptr: ptr::NonNull::from(&self.list).cast(), count: 1 }
    }

    /// How many of the stream's own bytes have left, of so many in all.
    pub(crate) fn own(&self, count: usize) -> usize {
        count.saturating_sub(self.framing)
    }

    /// It has not left: nobody will take the handles that were made for the peer.
    pub(crate) fn take_back(&mut self) {
        frames::discard(&self.bytes);
        self.bytes.clear();
    }

    /// Many handles take much memory, which is not kept.
    pub(super) fn shrink(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(ROOM);
    }
}
