//! Descriptors that a peer sends along with bytes, without a loop.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

/// Sends bytes and descriptors by one message.
pub(crate) fn send_descriptors(peer: &UnixStream, bytes: &[u8], fds: &[RawFd]) {
    let size = size_of_val(fds) as libc::c_uint;
    let mut control = [0_u64; 160];
    let mut vector =
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros are a header that names nothing.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    // SAFETY: it only computes.
    header.msg_controllen = unsafe { libc::CMSG_SPACE(size) } as _;
    // SAFETY: the header names control memory with room for the message.
    let message = unsafe { libc::CMSG_FIRSTHDR(&header) };
    // SAFETY: it only computes.
    let length = unsafe { libc::CMSG_LEN(size) };
    // SAFETY: the message lies in the control memory, which nobody else uses.
    let head = unsafe { &mut *message };
    (head.cmsg_level, head.cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
    head.cmsg_len = length as _;
    // SAFETY: as above.
    let data = unsafe { libc::CMSG_DATA(message) };
    // SAFETY: there is room for them behind the head.
    unsafe { data.copy_from_nonoverlapping(fds.as_ptr().cast(), size as usize) };
    // SAFETY: all that the header names lives across the call.
    let sent = unsafe { libc::sendmsg(peer.as_raw_fd(), &header, 0) };
    assert_eq!(sent, bytes.len() as isize, "sendmsg: {}", io::Error::last_os_error());
}
