//! Receiving of datagrams into the caller's memory.

use std::ffi::c_int;
use std::ptr::{addr_of_mut, null, null_mut};

use libc::{
    EAGAIN, EINTR, EINVAL, ENOBUFS, IP_RECVERR, IPV6_RECVERR, MSG_ERRQUEUE, MSG_TRUNC, SOL_IP,
    SOL_IPV6, iovec, mmsghdr, msghdr, sockaddr, sockaddr_storage,
};
use uv_core::UdpReady;

use crate::errors::last_error;
use crate::event_loop::{CoreLoop, enter};
use crate::handle::{flags, is_closing, loop_of};
use crate::layout::{uv_buf_t, uv_udp_t};
use crate::udp::uv_udp_using_recvmmsg;

/// The largest datagram, which is also the size of a part of a buffer for several.
const DATAGRAM: usize = 64 * 1024;

/// The most datagrams of one call, and of one event.
const BATCH: usize = 20;
const PER_EVENT: isize = 32;

/// The values of `uv_udp_flags` that a receive callback gets.
const PARTIAL: u32 = 2;
const MMSG_CHUNK: u32 = 8;
const MMSG_FREE: u32 = 16;
const LINUX_RECVERR: u32 = 32;

/// Receives what there is. Reports of errors come after datagrams, as in libuv.
pub(crate) unsafe fn receive_ready(udp: *mut uv_udp_t, lp: &mut CoreLoop, ready: UdpReady) {
    let ready = match (*udp).base.flags & flags::UDP_REPORTS != 0 && !ready.has_reports {
        true => exact(udp, lp).unwrap_or(ready),
        false => ready,
    };
    if ready.readable {
        receive(udp, lp, 0);
    }
    if ready.has_reports && is_receiving(udp) {
        receive(udp, lp, MSG_ERRQUEUE);
    }
}

/// What there is to receive, of a socket with an error queue: `select` reports that as readable.
unsafe fn exact(udp: *mut uv_udp_t, lp: &CoreLoop) -> Option<UdpReady> {
    let mut poll = libc::pollfd { fd: socket_of(udp, lp)?, events: libc::POLLIN, revents: 0 };
    if libc::poll(&mut poll, 1, 0) < 0 {
        return None;
    }
    let has = |event: i16| poll.revents & event != 0;
    // As libuv: an error alone is also received as one of the socket.
    Some(UdpReady { readable: poll.revents != 0, has_reports: has(libc::POLLERR) })
}

/// False once a callback has stopped or closed the handle.
unsafe fn is_receiving(udp: *mut uv_udp_t) -> bool {
    !is_closing(udp) && (*udp).recv_cb.is_some()
}

unsafe fn receive(udp: *mut uv_udp_t, lp: &mut CoreLoop, flag: c_int) {
    let mut left = PER_EVENT;
    while left > 0 && is_receiving(udp) {
        let Some(alloc) = (*udp).alloc_cb else { return };
        let mut buffer = uv_buf_t { base: null_mut(), len: 0 };
        let out = addr_of_mut!(buffer);
        enter(loop_of(udp), lp, || alloc(udp.cast(), DATAGRAM, out));
        if buffer.base.is_null() || buffer.len == 0 {
            return report(udp, lp, -(ENOBUFS as isize), &buffer, null(), 0);
        }
        let received = if uv_udp_using_recvmmsg(udp) != 0 {
            receive_several(udp, lp, &buffer, flag)
        } else {
            receive_one(udp, lp, &buffer, flag)
        };
        match received {
            Some(count) => left -= count,
            None => return,
        }
    }
}

/// Calls the receive callback, unless the handle was stopped.
unsafe fn report(
    udp: *mut uv_udp_t,
    lp: &mut CoreLoop,
    count: isize,
    buffer: &uv_buf_t,
    from: *const sockaddr,
    flags: u32,
) {
    if let Some(callback) = (*udp).recv_cb {
        enter(loop_of(udp), lp, || callback(udp, count, buffer, from, flags));
    }
}

/// Returns the buffer without a datagram: 0 if there is none, or the error.
unsafe fn report_error(udp: *mut uv_udp_t, lp: &mut CoreLoop, buffer: &uv_buf_t, error: c_int) {
    let count = if error == -EAGAIN { 0 } else { error as isize };
    report(udp, lp, count, buffer, null(), 0);
}

/// Receives a datagram and reports it. `None` if there was none.
unsafe fn receive_one(
    udp: *mut uv_udp_t,
    lp: &mut CoreLoop,
    buffer: &uv_buf_t,
    flag: c_int,
) -> Option<isize> {
    let fd = socket_of(udp, lp)?;
    let mut peer: sockaddr_storage = std::mem::zeroed();
    let mut control = [0u64; 32];
    let mut part = iovec { iov_base: buffer.base.cast(), iov_len: buffer.len };
    let mut message = message(&mut peer, &mut part);
    if flag & MSG_ERRQUEUE != 0 {
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
    }
    let received = retry(|| libc::recvmsg(fd, &mut message, flag));
    let Ok(count) = received else {
        report_error(udp, lp, buffer, received.err().unwrap_or(-EINVAL));
        return None;
    };
    let mut flags = if message.msg_flags & MSG_TRUNC != 0 { PARTIAL } else { 0 };
    let mut result = count;
    if let Some(error) = queued_error(&message, flag) {
        (result, flags) = (-(error as isize), flags | LINUX_RECVERR);
    }
    report(udp, lp, result, buffer, (&raw const peer).cast(), flags);
    Some(1)
}

/// Receives datagrams into parts of the buffer and reports each, then the buffer. `None` if there
/// was none.
unsafe fn receive_several(
    udp: *mut uv_udp_t,
    lp: &mut CoreLoop,
    buffer: &uv_buf_t,
    flag: c_int,
) -> Option<isize> {
    let parts = (buffer.len / DATAGRAM).min(BATCH);
    if parts == 0 {
        report_error(udp, lp, buffer, -EINVAL);
        return None;
    }
    let fd = socket_of(udp, lp)?;
    let mut peers: [sockaddr_storage; BATCH] = std::mem::zeroed();
    let mut control = [[0u64; 8]; BATCH];
    let mut iovecs: [iovec; BATCH] = std::mem::zeroed();
    let mut messages: [mmsghdr; BATCH] = std::mem::zeroed();
    for index in 0..parts {
        let base = buffer.base.add(index * DATAGRAM);
        iovecs[index] = iovec { iov_base: base.cast(), iov_len: DATAGRAM };
        messages[index].msg_hdr = message(&mut peers[index], &mut iovecs[index]);
        if flag & MSG_ERRQUEUE != 0 {
            messages[index].msg_hdr.msg_control = control[index].as_mut_ptr().cast();
            messages[index].msg_hdr.msg_controllen = size_of_val(&control[index]);
        }
    }
    let call = || {
        let list = messages.as_mut_ptr();
        libc::recvmmsg(fd, list, parts as u32, flag as _, null_mut()) as isize
    };
    let count = match retry(call) {
        Ok(count @ 1..) => count,
        Ok(_) => {
            report_error(udp, lp, buffer, -EAGAIN);
            return None;
        }
        Err(error) => {
            report_error(udp, lp, buffer, error);
            return None;
        }
    };
    for (index, message) in messages.iter().enumerate().take(count as usize) {
        if !is_receiving(udp) {
            break;
        }
        let part = uv_buf_t { base: buffer.base.add(index * DATAGRAM), len: DATAGRAM };
        let truncated = if message.msg_hdr.msg_flags & MSG_TRUNC != 0 { PARTIAL } else { 0 };
        let mut flags = MMSG_CHUNK | truncated;
        let mut result = message.msg_len as isize;
        if let Some(error) = queued_error(&message.msg_hdr, flag) {
            (result, flags) = (-(error as isize), flags | LINUX_RECVERR);
        }
        report(udp, lp, result, &part, (&raw const peers[index]).cast(), flags);
    }
    if is_receiving(udp) {
        report(udp, lp, 0, buffer, null(), MMSG_FREE);
    }
    Some(count)
}

/// The socket; the buffer's callback may have closed the handle.
unsafe fn socket_of(udp: *mut uv_udp_t, lp: &CoreLoop) -> Option<c_int> {
    use uv_core::Handle as _;
    if is_closing(udp) {
        return None;
    }
    crate::handle::any(udp).raw_source(lp).ok().map(|source| source.fd())
}

fn message(peer: &mut sockaddr_storage, part: &mut iovec) -> msghdr {
    // SAFETY: zeros are a valid value of the struct.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw mut *peer).cast();
    message.msg_namelen = size_of::<sockaddr_storage>() as u32;
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message
}

/// Repeats a call that a signal interrupts.
fn retry(mut call: impl FnMut() -> isize) -> Result<isize, c_int> {
    loop {
        let result = call();
        if result >= 0 {
            return Ok(result);
        }
        match last_error() {
            error if error == -EINTR => {}
            error => return Err(error),
        }
    }
}

/// The error number in a message of the error queue.
unsafe fn queued_error(message: &msghdr, flag: c_int) -> Option<u32> {
    if flag & MSG_ERRQUEUE == 0 {
        return None;
    }
    let mut next = libc::CMSG_FIRSTHDR(message);
    while let Some(header) = next.as_ref() {
        let kind = (header.cmsg_level, header.cmsg_type);
        if kind == (SOL_IP, IP_RECVERR) || kind == (SOL_IPV6, IPV6_RECVERR) {
            return Some((*libc::CMSG_DATA(header).cast::<libc::sock_extended_err>()).ee_errno);
        }
        next = libc::CMSG_NXTHDR(message, header);
    }
    None
}
