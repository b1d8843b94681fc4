//! TCP handles.

use std::ffi::{c_int, c_uint};
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use libc::{AF_INET, AF_INET6, AF_UNSPEC, EBADF, EBUSY, EEXIST, EINVAL, sockaddr};
use uv_core::{Handle as _, Keepalive, Tcp, TcpBindFlags};

use crate::descriptors::{is_watched, take_place};
use crate::errors::{last_error, status};
use crate::event_loop::{core, queue_remove};
use crate::handle::{core_of, descriptor, flags, is_closing, key, kind, loop_of, uv_close};
use crate::layout::*;
use crate::network::{to_address, write_address};
use crate::stream::{begin_connect, end_connect, init_stream, set_pair_flags, take_descriptor};

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_tcp_init(c_loop: *mut uv_loop_t, tcp: *mut uv_tcp_t) -> c_int {
    uv_tcp_init_ex(c_loop, tcp, AF_UNSPEC as c_uint)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_tcp_init_ex(
    c_loop: *mut uv_loop_t,
    tcp: *mut uv_tcp_t,
    flags: c_uint,
) -> c_int {
    let family = (flags & 0xff) as c_int;
    if !matches!(family, AF_UNSPEC | AF_INET | AF_INET6) || flags & !0xff != 0 {
        return -EINVAL;
    }
    let key = Tcp::new(core(c_loop));
    init_stream(c_loop, tcp, kind::TCP, key);
    if family == AF_UNSPEC {
        return 0;
    }
    let fd = libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0);
    let result = if fd < 0 {
        last_error()
    } else {
        status(key.open_unconnected(core(c_loop), OwnedFd::from_raw_fd(fd)))
    };
    if result != 0 {
        // The handle does not exist: it is not to be closed by the caller.
        queue_remove(&raw mut (*tcp).base.handle_queue);
        let _ = key.close(core(c_loop));
    }
    result
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_tcp_open(tcp: *mut uv_tcp_t, fd: c_int) -> c_int {
    if let Some(own) = descriptor(tcp) {
        return if own == fd { 0 } else { -EBUSY };
    }
    if is_watched(loop_of(tcp), fd) {
        return -EEXIST;
    }
    if libc::fcntl(fd, libc::F_GETFD) < 0 {
        return last_error();
    }
    if is_closing(tcp) {
        return -EINVAL;
    }
    match take_descriptor(tcp, fd) {
        Ok(socket) => {
            let result = key::<Tcp, _>(tcp).open(core_of(tcp), socket);
            take_place(tcp);
            status(result)
        }
        Err(error) => error,
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_tcp_bind(
    tcp: *mut uv_tcp_t,
    address: *const sockaddr,
    bind_flags: c_uint,
) -> c_int {
    if is_closing(tcp) {
        return -EINVAL;
    }
    let address = match to_address(address) {
        Ok(address) => address,
        Err(error) => return error,
    };
    let Some(options) = u8::try_from(bind_flags).ok().and_then(TcpBindFlags::from_bits) else {
        return -EINVAL;
    };
    let result = status(key::<Tcp, _>(tcp).bind(core_of(tcp), address, options));
    if result == 0 {
        (*tcp).base.flags |= flags::BOUND;
        if address.is_ipv6() {
            (*tcp).base.flags |= flags::IPV6;
        }
    }
    result
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_tcp_connect(
    request: *mut uv_connect_t,
    tcp: *mut uv_tcp_t,
    address: *const sockaddr,
    callback: StatusCallback<uv_connect_t>,
) -> c_int {
    let address = match to_address(address) {
        Ok(address) => address,
        Err(error) => return error,
    };
    if is_closing(tcp) {
        return -EINVAL;
    }
    let result = key::<Tcp, _>(tcp).connect(core_of(tcp), address, move |lp, _, result| {
        end_connect(request, lp, status(result));
    });
    if result.is_ok() {
        begin_connect(request, tcp, callback);
    }
    status(result)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_tcp_nodelay(tcp: *mut uv_tcp_t, on: c_int) -> c_int {
    status(key::<Tcp, _>(tcp).set_nodelay(core_of(tcp), on != 0))
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_tcp_keepalive(tcp: *mut uv_tcp_t, on: c_int, idle: c_uint) -> c_int {
    uv_tcp_keepalive_ex(tcp, on, idle, 1, 10)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_tcp_keepalive_ex(
    tcp: *mut uv_tcp_t,
    on: c_int,
    idle: c_uint,
    interval: c_uint,
    count: c_uint,
) -> c_int {
    if on != 0 && (idle < 1 || interval < 1 || count < 1) {
        // As libuv, which passes the values to the kernel only if there is a socket.
        return if descriptor(tcp).is_some() { -EINVAL } else { 0 };
    }
    let seconds = |count: c_uint| Duration::from_secs(count.into());
    let mut keepalive = Keepalive::after(seconds(idle));
    keepalive.interval = seconds(interval);
    keepalive.count = count;
    status(key::<Tcp, _>(tcp).set_keepalive(core_of(tcp), (on != 0).then_some(keepalive)))
}

/// An option of Windows.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_tcp_simultaneous_accepts(_tcp: *mut uv_tcp_t, _on: c_int) -> c_int {
    0
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_tcp_getsockname(
    tcp: *const uv_tcp_t,
    address: *mut sockaddr,
    size: *mut c_int,
) -> c_int {
    if descriptor(tcp).is_none() {
        return -EBADF;
    }
    write_address(key::<Tcp, _>(tcp).local_addr(core_of(tcp)), address, size)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_tcp_getpeername(
    tcp: *const uv_tcp_t,
    address: *mut sockaddr,
    size: *mut c_int,
) -> c_int {
    if descriptor(tcp).is_none() {
        return -EBADF;
    }
    write_address(key::<Tcp, _>(tcp).peer_addr(core_of(tcp)), address, size)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_tcp_close_reset(
    tcp: *mut uv_tcp_t,
    callback: Callback<uv_handle_t>,
) -> c_int {
    if is_closing(tcp) || (*tcp).base.flags & flags::SHUTTING != 0 {
        return -EINVAL;
    }
    let Some(fd) = descriptor(tcp) else { return -EBADF };
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let (option, size) = ((&raw const linger).cast(), size_of::<libc::linger>() as u32);
    if libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, option, size) != 0 {
        return last_error();
    }
    uv_close(tcp.cast(), callback);
    0
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_socketpair(
    kind: c_int,
    protocol: c_int,
    fds: *mut c_int,
    first_flags: c_int,
    second_flags: c_int,
) -> c_int {
    if libc::socketpair(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, protocol, fds) != 0 {
        return last_error();
    }
    set_pair_flags(fds, [first_flags, second_flags])
}
