//! UDP handles.

use std::ffi::{OsStr, c_int, c_uint};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{addr_of_mut, null_mut};

use libc::{
    AF_INET, AF_INET6, AF_UNSPEC, EAGAIN, EBADF, EBUSY, EDESTADDRREQ, EEXIST, EINVAL, EISCONN,
    ENOMEM, ENOTCONN, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_un,
};
use uv_core::{Destination, Handle as _, IoBuf, Udp, UdpBindFlags};

use crate::descriptors::{has_place, is_watched, take_place};
use crate::errors::{code, last_error, status};
use crate::event_loop::{CoreLoop, begin_request, core, end_request, enter, queue_remove, sync};
use crate::handle::{core_of, descriptor, flags, init, is_closing, key, kind, loop_of};
use crate::layout::*;
use crate::network::{to_address, write_address};
use crate::request::kind as request_kind;
use crate::write::{check_buffers, copy_buffers, release_buffers, slice_of};

/// The values of `uv_udp_flags` that a caller passes.
const IPV6ONLY: c_uint = 1;
const REUSEADDR: c_uint = 4;
const LINUX_RECVERR: c_uint = 32;
const REUSEPORT: c_uint = 64;
const RECVMMSG: c_uint = 256;

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_init(c_loop: *mut uv_loop_t, udp: *mut uv_udp_t) -> c_int {
    uv_udp_init_ex(c_loop, udp, AF_UNSPEC as c_uint)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_init_ex(
    c_loop: *mut uv_loop_t,
    udp: *mut uv_udp_t,
    init_flags: c_uint,
) -> c_int {
    let family = (init_flags & 0xff) as c_int;
    let is_family = matches!(family, AF_UNSPEC | AF_INET | AF_INET6);
    if !is_family || init_flags & !(0xff | RECVMMSG) != 0 {
        return -EINVAL;
    }
    let key = Udp::new(core(c_loop));
    init(c_loop, udp, kind::UDP, key);
    (*udp).send_queue_size = 0;
    (*udp).send_queue_count = 0;
    (*udp).alloc_cb = None;
    (*udp).recv_cb = None;
    if init_flags & RECVMMSG != 0 {
        (*udp).base.flags |= flags::UDP_RECVMMSG;
    }
    if family == AF_UNSPEC {
        return 0;
    }
    let fd = libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0);
    let result = if fd < 0 {
        last_error()
    } else {
        status(key.open(core(c_loop), OwnedFd::from_raw_fd(fd)))
    };
    if result != 0 {
        // The handle does not exist: it is not to be closed by the caller.
        queue_remove(addr_of_mut!((*udp).base.handle_queue));
        let _ = key.close(core(c_loop));
    }
    result
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_open(udp: *mut uv_udp_t, fd: c_int) -> c_int {
    // As libuv, for compatibility with its earlier versions.
    uv_udp_open_ex(udp, fd, REUSEADDR)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_open_ex(
    udp: *mut uv_udp_t,
    fd: c_int,
    open_flags: c_uint,
) -> c_int {
    if open_flags & !(REUSEADDR | REUSEPORT) != 0 || is_closing(udp) {
        return -EINVAL;
    }
    if descriptor(udp).is_some() {
        return -EBUSY;
    }
    if is_watched(loop_of(udp), fd) {
        return -EEXIST;
    }
    if libc::fcntl(fd, libc::F_GETFD) < 0 {
        return last_error();
    }
    let options = [(REUSEADDR, libc::SO_REUSEADDR), (REUSEPORT, libc::SO_REUSEPORT)];
    for (_, option) in options.iter().filter(|(flag, _)| open_flags & flag != 0) {
        let (on, size) = (1 as c_int, size_of::<c_int>() as u32);
        if libc::setsockopt(fd, libc::SOL_SOCKET, *option, (&raw const on).cast(), size) != 0 {
            return last_error();
        }
    }
    open(udp, OwnedFd::from_raw_fd(fd))
}

/// Opens a handle with a socket, which may be connected.
pub(crate) unsafe fn open(udp: *mut uv_udp_t, socket: OwnedFd) -> c_int {
    let (key, lp) = (key::<Udp, _>(udp), core_of(udp));
    let result = status(key.open(lp, socket));
    take_place(udp);
    if key.peer_addr(lp).is_ok() {
        (*udp).base.flags |= flags::UDP_CONNECTED;
    }
    result
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_bind(
    udp: *mut uv_udp_t,
    address: *const sockaddr,
    bind_flags: c_uint,
) -> c_int {
    if is_closing(udp) || bind_flags & !(IPV6ONLY | REUSEADDR | LINUX_RECVERR | REUSEPORT) != 0 {
        return -EINVAL;
    }
    if !address.is_null() && c_int::from((*address).sa_family) == libc::AF_UNIX {
        return bind_unix(udp, address);
    }
    let address = match to_address(address) {
        Ok(address) => address,
        Err(error) => return error,
    };
    let known = [
        (IPV6ONLY, UdpBindFlags::IPV6_ONLY),
        (REUSEADDR, UdpBindFlags::REUSE_ADDRESS),
        (LINUX_RECVERR, UdpBindFlags::REPORT_ERRORS),
        (REUSEPORT, UdpBindFlags::REUSE_PORT),
    ];
    let set = known.into_iter().filter(|(bit, _)| bind_flags & bit != 0).map(|(_, flag)| flag);
    let result = status(key::<Udp, _>(udp).bind(core_of(udp), address, set.collect()));
    if result == 0 {
        (*udp).base.flags |= flags::BOUND;
        if bind_flags & LINUX_RECVERR != 0 {
            (*udp).base.flags |= flags::UDP_REPORTS;
        }
        if address.is_ipv6() {
            (*udp).base.flags |= flags::IPV6;
        }
    }
    result
}

/// Binds to a path: libuv passes any address to the kernel.
unsafe fn bind_unix(udp: *mut uv_udp_t, address: *const sockaddr) -> c_int {
    let fd = match descriptor(udp) {
        Some(fd) => fd,
        None => match open_unix(udp) {
            Ok(fd) => fd,
            Err(error) => return error,
        },
    };
    if libc::bind(fd, address, size_of::<sockaddr_un>() as u32) != 0 { last_error() } else { 0 }
}

/// Gives the handle a Unix datagram socket.
unsafe fn open_unix(udp: *mut uv_udp_t) -> Result<c_int, c_int> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let fd = libc::socket(libc::AF_UNIX, kind, 0);
    if fd < 0 {
        return Err(last_error());
    }
    match status(key::<Udp, _>(udp).open(core_of(udp), OwnedFd::from_raw_fd(fd))) {
        0 => Ok(fd),
        error => Err(error),
    }
}

unsafe fn is_connected(udp: *const uv_udp_t) -> bool {
    (*udp).base.flags & flags::UDP_CONNECTED != 0
}

/// Connects, or disconnects if the address is null.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_connect(udp: *mut uv_udp_t, address: *const sockaddr) -> c_int {
    let (lp, connected) = (core_of(udp), is_connected(udp));
    if address.is_null() {
        if !connected {
            return -ENOTCONN;
        }
        let result = status(key::<Udp, _>(udp).disconnect(lp));
        if result == 0 {
            (*udp).base.flags &= !flags::UDP_CONNECTED;
        }
        return result;
    }
    if connected {
        return -EISCONN;
    }
    let result = match to_address(address) {
        Ok(address) => status(key::<Udp, _>(udp).connect(lp, address)),
        Err(error) => error,
    };
    if result == 0 {
        (*udp).base.flags |= flags::UDP_CONNECTED;
    }
    result
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_getsockname(
    udp: *const uv_udp_t,
    address: *mut sockaddr,
    size: *mut c_int,
) -> c_int {
    if descriptor(udp).is_none() {
        return -EBADF;
    }
    write_address(key::<Udp, _>(udp).local_addr(core_of(udp)), address, size)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_getpeername(
    udp: *const uv_udp_t,
    address: *mut sockaddr,
    size: *mut c_int,
) -> c_int {
    if descriptor(udp).is_none() {
        return -EBADF;
    }
    write_address(key::<Udp, _>(udp).peer_addr(core_of(udp)), address, size)
}

/// The buffers of a request.
struct SendBuffers(*mut uv_udp_send_t);

// SAFETY: as for the buffers of a write.
unsafe impl IoBuf for SendBuffers {
    fn pieces(&self) -> usize {
        // SAFETY: the request is the library's until its callback.
        unsafe { (*self.0).nbufs as usize }
    }

    fn piece(&self, index: usize) -> &[u8] {
        // SAFETY: as above, and so is the memory of its buffers.
        unsafe { slice_of(&*(*self.0).bufs.add(index)) }
    }
}

/// Writes the public fields of the send queue.
unsafe fn sync_queue(udp: *mut uv_udp_t, lp: &CoreLoop) {
    let key = key::<Udp, _>(udp);
    (*udp).send_queue_size = key.send_queue_size(lp);
    (*udp).send_queue_count = key.send_queue_count(lp);
}

/// What libuv checks before a send; the size of the address, or an error.
unsafe fn check(
    udp: *mut uv_udp_t,
    buffers: *const uv_buf_t,
    count: c_uint,
    address: *const sockaddr,
) -> Result<usize, c_int> {
    let size = match (is_connected(udp), address.is_null()) {
        (true, false) => return Err(-EISCONN),
        (false, true) => return Err(-EDESTADDRREQ),
        (_, true) => 0,
        (_, false) => match c_int::from((*address).sa_family) {
            AF_INET => size_of::<sockaddr_in>(),
            AF_INET6 => size_of::<sockaddr_in6>(),
            libc::AF_UNIX => size_of::<sockaddr_un>(),
            _ => return Err(-EINVAL),
        },
    };
    match check_buffers(buffers, count) {
        0 => Ok(size),
        error => Err(error),
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_send(
    request: *mut uv_udp_send_t,
    udp: *mut uv_udp_t,
    buffers: *const uv_buf_t,
    count: c_uint,
    address: *const sockaddr,
    callback: StatusCallback<uv_udp_send_t>,
) -> c_int {
    if let Err(error) = check(udp, buffers, count, address) {
        return error;
    }
    if is_closing(udp) {
        return -EINVAL;
    }
    let c_loop = loop_of(udp);
    (*request).base.type_ = request_kind::UDP_SEND;
    (*request).handle = udp;
    (*request).cb = callback;
    (*request).send_cb = callback;
    (*request).nbufs = count;
    (*request).bufs = copy_buffers(buffers, count, addr_of_mut!((*request).bufsml));
    if (*request).bufs.is_null() {
        return -ENOMEM;
    }
    let to = match destination(udp, address) {
        Ok(to) => to,
        Err(error) => {
            release_buffers((*request).bufs, addr_of_mut!((*request).bufsml));
            return error;
        }
    };
    let result =
        key::<Udp, _>(udp).send(core(c_loop), SendBuffers(request), to, |lp, _, result, sent| {
            end_send(sent.0, lp, result);
        });
    sync_queue(udp, core(c_loop));
    sync(c_loop);
    if !has_place(udp) {
        take_place(udp);
    }
    if result.is_ok() {
        begin_request(c_loop);
    } else {
        release_buffers((*request).bufs, addr_of_mut!((*request).bufsml));
    }
    status(result)
}

/// The destination of a send. A path gives a handle without a socket a Unix datagram socket.
unsafe fn destination(udp: *mut uv_udp_t, address: *const sockaddr) -> Result<Destination, c_int> {
    if address.is_null() {
        return Ok(None.into());
    }
    if c_int::from((*address).sa_family) != libc::AF_UNIX {
        return to_address(address).map(Into::into);
    }
    if descriptor(udp).is_none() {
        open_unix(udp)?;
    }
    let name = &(*address.cast::<sockaddr_un>()).sun_path;
    let name = std::slice::from_raw_parts(name.as_ptr().cast::<u8>(), name.len());
    // An abstract name begins with a NUL and fills the address; a path ends with one.
    let is_end = |&(index, byte): &(usize, &u8)| index > 0 && *byte == 0 && name[0] != 0;
    let length = name.iter().enumerate().find(is_end).map_or(name.len(), |(index, _)| index);
    let path = Path::new(OsStr::from_bytes(&name[..length]));
    Destination::unix(path).map_err(|error| code(&error))
}

/// Calls back a send request.
unsafe fn end_send(request: *mut uv_udp_send_t, lp: &mut CoreLoop, result: io::Result<()>) {
    let udp = (*request).handle;
    sync_queue(udp, lp);
    end_request(loop_of(udp));
    release_buffers((*request).bufs, addr_of_mut!((*request).bufsml));
    (*request).bufs = null_mut();
    let result = status(result);
    if let Some(callback) = (*request).send_cb {
        enter(loop_of(udp), lp, || callback(request, result));
    }
}

/// Calls sendmsg(2). The number of bytes, or an error.
unsafe fn send_message(
    udp: *mut uv_udp_t,
    buffers: *const uv_buf_t,
    count: c_uint,
    address: *const sockaddr,
    size: usize,
) -> c_int {
    let Some(fd) = descriptor(udp) else { return -EBADF };
    let mut message: libc::msghdr = std::mem::zeroed();
    message.msg_name = address.cast_mut().cast();
    message.msg_namelen = size as u32;
    // `uv_buf_t` has the layout of `iovec`.
    message.msg_iov = buffers.cast_mut().cast();
    message.msg_iovlen = count as usize;
    loop {
        let sent = libc::sendmsg(fd, &message, 0);
        if sent >= 0 {
            return sent as c_int;
        }
        match -last_error() {
            libc::EINTR => {}
            libc::ENOBUFS => return -EAGAIN,
            error => return -error,
        }
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_try_send(
    udp: *mut uv_udp_t,
    buffers: *const uv_buf_t,
    count: c_uint,
    address: *const sockaddr,
) -> c_int {
    let size = match check(udp, buffers, count, address) {
        Ok(size) => size,
        Err(error) => return error,
    };
    if is_closing(udp) {
        return -EINVAL;
    }
    if (*udp).send_queue_count != 0 {
        return -EAGAIN;
    }
    if descriptor(udp).is_none() {
        // A send binds to any address of the destination's family.
        let any: SocketAddr = match c_int::from((*address).sa_family) {
            AF_INET => (Ipv4Addr::UNSPECIFIED, 0).into(),
            AF_INET6 => (Ipv6Addr::UNSPECIFIED, 0).into(),
            _ => match open_unix(udp) {
                Ok(_) => return send_message(udp, buffers, count, address, size),
                Err(error) => return error,
            },
        };
        let bound = key::<Udp, _>(udp).bind(core_of(udp), any, UdpBindFlags::empty());
        if bound.is_err() {
            return status(bound);
        }
    }
    send_message(udp, buffers, count, address, size)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_try_send2(
    udp: *mut uv_udp_t,
    count: c_uint,
    buffers: *mut *mut uv_buf_t,
    buffer_counts: *mut c_uint,
    addresses: *mut *mut sockaddr,
    send_flags: c_uint,
) -> c_int {
    if count < 1 || send_flags != 0 {
        return -EINVAL;
    }
    let address_of = |index: usize| match addresses.is_null() {
        true => null_mut(),
        false => *addresses.add(index),
    };
    // Nothing is sent if a datagram of them is refused.
    for index in 0..count as usize {
        let (list, number) = (*buffers.add(index), *buffer_counts.add(index));
        if let Err(error) = check(udp, list, number, address_of(index)) {
            return error;
        }
    }
    if (*udp).send_queue_count > 0 {
        return -EAGAIN;
    }
    for index in 0..count as usize {
        let address = address_of(index);
        let sent = uv_udp_try_send(udp, *buffers.add(index), *buffer_counts.add(index), address);
        if sent < 0 {
            return if index > 0 { index as c_int } else { sent };
        }
    }
    count as c_int
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_recv_start(
    udp: *mut uv_udp_t,
    alloc: uv_alloc_cb,
    receive: uv_udp_recv_cb,
) -> c_int {
    if udp.is_null() || alloc.is_none() || receive.is_none() || is_closing(udp) {
        return -EINVAL;
    }
    let c_loop = loop_of(udp);
    let result = key::<Udp, _>(udp).recv_ready_start(core(c_loop), move |lp, _, ready| {
        crate::udp_receive::receive_ready(udp, lp, ready);
    });
    if result.is_ok() {
        (*udp).alloc_cb = alloc;
        (*udp).recv_cb = receive;
        take_place(udp);
    }
    sync(c_loop);
    status(result)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_recv_stop(udp: *mut uv_udp_t) -> c_int {
    if is_closing(udp) {
        return 0;
    }
    let result = key::<Udp, _>(udp).recv_stop(core_of(udp));
    (*udp).alloc_cb = None;
    (*udp).recv_cb = None;
    sync(loop_of(udp));
    status(result)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_using_recvmmsg(udp: *const uv_udp_t) -> c_int {
    c_int::from((*udp).base.flags & flags::UDP_RECVMMSG != 0)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_get_send_queue_size(udp: *const uv_udp_t) -> usize {
    (*udp).send_queue_size
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_get_send_queue_count(udp: *const uv_udp_t) -> usize {
    (*udp).send_queue_count
}
