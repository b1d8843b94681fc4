//! The message header of a gathered send: a list of buffers and the destination.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;

use poll_core::{RawAddr, RawMessage};
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

    /// `None` for a buffer whose length does not fit into the 32 bits of `WSABUF`.
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

/// A message header and the memory that it points to: the buffer list and the address.
///
/// The header points into this structure, so an operation in flight keeps it in a box.
pub(crate) struct SendMessage {
    header: raw::Header,
    buffers: [raw::Buffer; SendMessage::CAPACITY],
    count: usize,
    /// The destination; `None` on a connected socket.
    to: Option<SockAddr>,
}

impl Default for SendMessage {
    fn default() -> SendMessage {
        SendMessage {
            // SAFETY: a C structure of integers and raw pointers; zero is valid for each field.
            header: unsafe { std::mem::zeroed() },
            // SAFETY: C structures of an integer and a raw pointer; zero is valid for both.
            buffers: unsafe { std::mem::zeroed() },
            count: 0,
            to: None,
        }
    }
}

impl fmt::Debug for SendMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendMessage").field("count", &self.count).finish_non_exhaustive()
    }
}

impl SendMessage {
    /// The number of buffers that one operation sends: their list takes 1 KiB.
    pub(crate) const CAPACITY: usize = 64;

    pub(crate) fn clear(&mut self) {
        self.count = 0;
        self.to = None;
    }

    pub(crate) fn set_address(&mut self, to: Option<SockAddr>) {
        self.to = to;
    }

    /// Stores the address of a connect operation, which keeps this message while it is in flight.
    pub(crate) fn connect_to(&mut self, address: SockAddr) -> Option<RawAddr> {
        let address = self.to.insert(address);
        let ptr = NonNull::new(address.as_ptr().cast_mut().cast())?;
        Some(RawAddr { ptr, len: address.len() as _ })
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Appends a buffer; false if the list is full or the buffer is too long for an entry.
    ///
    /// Only the address is stored: the submitter keeps the bytes until the operation completes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        let Some(place) = self.buffers.get_mut(self.count) else { return false };
        let Some(buffer) = raw::buffer(bytes) else { return false };
        *place = buffer;
        self.count += 1;
        true
    }

    /// Points the header to the buffers and the address. The result is valid until this moves.
    pub(crate) fn message(&mut self) -> RawMessage {
        raw::name(&mut self.header, &mut self.buffers[..self.count]);
        raw::address(&mut self.header, self.to.as_ref());
        RawMessage(NonNull::from(&mut self.header).cast())
    }
}
