//! Control messages: what goes with bytes over a socket besides them.

/// Room for the control messages that go with one message.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct Control<const N: usize>(pub(crate) [u8; N]);

/// One control message: its level, its type, and its bytes.
pub(crate) type Message<'a> = (i32, i32, &'a [u8]);

/// The control messages that the kernel has written for `header`.
///
/// # Safety
///
/// `header` was filled by the kernel, and its control memory lives for `'a`.
pub(crate) unsafe fn messages<'a>(header: &'a libc::msghdr) -> impl Iterator<Item = Message<'a>> {
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
        // Some kernels say how long a message was that they have cut.
        let controls: usize = header.msg_controllen as _;
        let end = header.msg_control.addr() + controls;
        let room = end.saturating_sub(data.addr());
        let length = (message.cmsg_len as usize - (data.addr() - here.addr())).min(room);
        // SAFETY: the kernel has written this many bytes of data.
        let data = unsafe { std::slice::from_raw_parts(data, length) };
        Some((message.cmsg_level, message.cmsg_type, data))
    })
}

/// The first bytes as an integer of the kernel's.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn integer(data: &[u8]) -> Option<i32> {
    data.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}
