//! A list of buffers for one send, and where it goes.

#![allow(unsafe_code)]

use std::fmt;
use std::net::SocketAddr;
use std::ptr::NonNull;

use poll_core::RawMessage;
use socket2::SockAddr;

#[cfg(unix)]
mod raw {
    use std::ptr;

    use socket2::SockAddr;

    pub(super) use libc::{iovec as Buffer, msghdr as Header};

    pub(super) fn buffer(bytes: &[u8]) -> Option<Buffer> {
        Some(Buffer { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() })
    }

    pub(super) fn name(header: &mut Header, buffers: &mut [Buffer]) {
        header.msg_iov = buffers.as_mut_ptr();
        header.msg_iovlen = buffers.len() as _;
    }

    pub(super) fn address(header: &mut Header, to: Option<&SockAddr>) {
        header.msg_name = to.map_or(ptr::null_mut(), |to| to.as_ptr().cast_mut().cast());
        header.msg_namelen = to.map_or(0, SockAddr::len);
    }
}

#[cfg(windows)]
mod raw {
    use std::ptr;

    use socket2::SockAddr;

    pub(super) use windows_sys::Win32::Networking::WinSock::{WSABUF as Buffer, WSAMSG as Header};

    /// `None` for a buffer beyond what Windows counts.
    pub(super) fn buffer(bytes: &[u8]) -> Option<Buffer> {
        let len = u32::try_from(bytes.len()).ok()?;
        Some(Buffer { len, buf: bytes.as_ptr().cast_mut() })
    }

    pub(super) fn name(header: &mut Header, buffers: &mut [Buffer]) {
        header.lpBuffers = buffers.as_mut_ptr();
        header.dwBufferCount = buffers.len() as u32;
    }

    pub(super) fn address(header: &mut Header, to: Option<&SockAddr>) {
        header.name = to.map_or(ptr::null_mut(), |to| to.as_ptr().cast_mut().cast());
        header.namelen = to.map_or(0, SockAddr::len);
    }
}

/// A list of buffers, with the header that names it. It stays where it is while the kernel
/// reads it: in a box.
pub(crate) struct Gather {
    header: raw::Header,
    buffers: [raw::Buffer; Gather::CAPACITY],
    count: usize,
    /// Where to, if the socket does not know.
    to: Option<SockAddr>,
}

impl Default for Gather {
    fn default() -> Gather {
        Gather {
            // SAFETY: all zeros are null pointers and no lengths.
            header: unsafe { std::mem::zeroed() },
            // SAFETY: as above.
            buffers: unsafe { std::mem::zeroed() },
            count: 0,
            to: None,
        }
    }
}

impl fmt::Debug for Gather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gather").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Gather {
    /// Buffers that one operation sends: 1 KiB.
    pub(crate) const CAPACITY: usize = 64;

    pub(crate) fn clear(&mut self) {
        self.count = 0;
        self.to = None;
    }

    pub(crate) fn set_address(&mut self, to: Option<SocketAddr>) {
        self.to = to.map(SockAddr::from);
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Appends a buffer; false if the list is full, or the buffer too long for one. Whoever
    /// sends the list keeps the buffer.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        let Some(place) = self.buffers.get_mut(self.count) else { return false };
        let Some(buffer) = raw::buffer(bytes) else { return false };
        *place = buffer;
        self.count += 1;
        true
    }

    /// The header of the list.
    pub(crate) fn message(&mut self) -> RawMessage {
        raw::name(&mut self.header, &mut self.buffers[..self.count]);
        raw::address(&mut self.header, self.to.as_ref());
        RawMessage(NonNull::from(&mut self.header).cast())
    }
}
