//! Descriptors sent with bytes over a Unix socket, without a loop.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

/// Sends bytes and descriptors in one message.
pub(crate) fn send_descriptors(peer: &UnixStream, bytes: &[u8], fds: &[RawFd]) {
    let size = size_of_val(fds) as libc::c_uint;
    let mut control = [0_u64; 160];
    let mut vector =
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: `msghdr` is plain data; all zeros name no buffers.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    // SAFETY: `CMSG_SPACE` only computes a size.
    header.msg_controllen = unsafe { libc::CMSG_SPACE(size) } as _;
    // SAFETY: the header names control memory with space for one message.
    let message = unsafe { libc::CMSG_FIRSTHDR(&header) };
    // SAFETY: `CMSG_LEN` only computes a size.
    let length = unsafe { libc::CMSG_LEN(size) };
    // SAFETY: the message lies in `control`, which has no other reference.
    let head = unsafe { &mut *message };
    (head.cmsg_level, head.cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
    head.cmsg_len = length as _;
    // SAFETY: `message` is the valid header from `CMSG_FIRSTHDR`.
    let data = unsafe { libc::CMSG_DATA(message) };
    // SAFETY: `control` has space for the descriptors behind the message header.
    unsafe { data.copy_from_nonoverlapping(fds.as_ptr().cast(), size as usize) };
    // SAFETY: all memory that the header names outlives the call.
    let sent = unsafe { libc::sendmsg(peer.as_raw_fd(), &header, 0) };
    assert_eq!(sent, bytes.len() as isize, "sendmsg: {}", io::Error::last_os_error());
}
