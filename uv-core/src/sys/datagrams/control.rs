//! Control messages: what comes with a datagram besides its bytes.

#![allow(unsafe_code)]

/// Room for the control messages of one datagram.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct Control<const N: usize>(pub(super) [u8; N]);

/// One control message: its level, its type, and its bytes.
pub(super) type Message<'a> = (i32, i32, &'a [u8]);

/// The control messages that the kernel has written for `header`.
///
/// # Safety
///
/// `header` was filled by the kernel, and its control memory lives for `'a`.
pub(super) unsafe fn messages<'a>(header: &'a libc::msghdr) -> impl Iterator<Item = Message<'a>> {
    // SAFETY: the caller's promise.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    std::iter::from_fn(move || {
        let here = next;
        // SAFETY: the macros give null or a message that lies in the control memory.
        let message = unsafe { here.as_ref() }?;
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(header, here) };
        // SAFETY: as above.
        let data = unsafe { libc::CMSG_DATA(here) };
        let length = message.cmsg_len as usize - (data.addr() - here.addr());
        // SAFETY: the kernel has written this many bytes of data.
        let data = unsafe { std::slice::from_raw_parts(data, length) };
        Some((message.cmsg_level, message.cmsg_type, data))
    })
}

/// The first bytes as an integer of the kernel's.
pub(super) fn integer(data: &[u8]) -> Option<i32> {
    data.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}
