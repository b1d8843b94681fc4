//! Name lookups: the system's resolver on the pool.

use std::ffi::{c_char, c_int};
use std::ptr::{addr_of_mut, null_mut};

use libc::{AF_INET, AF_INET6, EINVAL, ENOMEM, addrinfo, sockaddr, sockaddr_in, sockaddr_in6};
use uv_core::WorkKind;

use crate::alloc::{allocate, copy_string, release};
use crate::errors::{UV_EAI_CANCELED, UV_UNKNOWN, last_error};
use crate::event_loop::enter;
use crate::layout::*;
use crate::request::kind;
use crate::strings::bytes;
use crate::work::queue;

/// The longest name that resolvers take.
const LONGEST: usize = 255;

/// libuv's number of a resolver's error.
fn resolver_error(error: c_int) -> c_int {
    /// `EAI_ADDRFAMILY`, which the C library defines but does not use.
    const ADDRESS_FAMILY: c_int = -9;
    match error {
        0 => 0,
        ADDRESS_FAMILY => -3000,
        libc::EAI_AGAIN => -3001,
        libc::EAI_BADFLAGS => -3002,
        libc::EAI_FAIL => -3004,
        libc::EAI_FAMILY => -3005,
        libc::EAI_MEMORY => -3006,
        libc::EAI_NODATA => -3007,
        libc::EAI_NONAME => -3008,
        libc::EAI_OVERFLOW => -3009,
        libc::EAI_SERVICE => -3010,
        libc::EAI_SOCKTYPE => -3011,
        libc::EAI_SYSTEM => last_error(),
        _ => UV_UNKNOWN,
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_getaddrinfo(
    c_loop: *mut uv_loop_t,
    request: *mut uv_getaddrinfo_t,
    callback: uv_getaddrinfo_cb,
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
) -> c_int {
    let no_loop = c_loop.is_null() && callback.is_some();
    if request.is_null() || (node.is_null() && service.is_null()) || no_loop {
        return -EINVAL;
    }
    let node = match ascii_name(node) {
        Ok(node) => node,
        Err(error) => return error,
    };
    (*request).base.type_ = kind::GETADDRINFO;
    (*request).loop_ = c_loop;
    (*request).cb = callback;
    (*request).addrinfo = null_mut();
    (*request).retcode = 0;
    (*request).hostname = node;
    (*request).service = if service.is_null() { null_mut() } else { copy_string(bytes(service)) };
    (*request).hints = null_mut();
    if !hints.is_null() {
        (*request).hints = allocate(size_of::<addrinfo>()).cast();
        if (*request).hints.is_null() {
            release_arguments(request);
            return -ENOMEM;
        }
        *(*request).hints = *hints;
    }
    if callback.is_none() {
        resolve(request);
        release_arguments(request);
        return (*request).retcode;
    }
    queue(c_loop, request, WorkKind::SlowIo, resolve, move |lp, cancelled| {
        if cancelled {
            (*request).retcode = UV_EAI_CANCELED;
        }
        release_arguments(request);
        if let Some(callback) = (*request).cb {
            enter(c_loop, lp, || callback(request, (*request).retcode, (*request).addrinfo));
        }
    })
}

/// A copy of a host name in the form that resolvers take: international names in Punycode.
unsafe fn ascii_name(node: *const c_char) -> Result<*mut c_char, c_int> {
    if node.is_null() {
        return Ok(null_mut());
    }
    let node = bytes(node);
    if node.is_empty() {
        return Err(-EINVAL);
    }
    let Ok(text) = std::str::from_utf8(node) else { return Err(-EINVAL) };
    let copy = if text.is_ascii() {
        if node.len() > LONGEST {
            return Err(-EINVAL);
        }
        copy_string(node)
    } else {
        match uv_core::dns::to_ascii(text) {
            Ok(ascii) => copy_string(ascii.as_bytes()),
            Err(_) => return Err(-EINVAL),
        }
    };
    if copy.is_null() { Err(-ENOMEM) } else { Ok(copy) }
}

unsafe fn release_arguments(request: *mut uv_getaddrinfo_t) {
    release((*request).hints.cast());
    release((*request).hostname.cast());
    release((*request).service.cast());
    (*request).hints = null_mut();
    (*request).hostname = null_mut();
    (*request).service = null_mut();
}

unsafe fn resolve(request: *mut uv_getaddrinfo_t) {
    (*request).retcode = resolver_error(libc::getaddrinfo(
        (*request).hostname,
        (*request).service,
        (*request).hints,
        addr_of_mut!((*request).addrinfo),
    ));
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_freeaddrinfo(addresses: *mut addrinfo) {
    if !addresses.is_null() {
        libc::freeaddrinfo(addresses);
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_getnameinfo(
    c_loop: *mut uv_loop_t,
    request: *mut uv_getnameinfo_t,
    callback: uv_getnameinfo_cb,
    address: *const sockaddr,
    flags: c_int,
) -> c_int {
    if request.is_null() || address.is_null() {
        return -EINVAL;
    }
    let size = match c_int::from((*address).sa_family) {
        AF_INET => size_of::<sockaddr_in>(),
        AF_INET6 => size_of::<sockaddr_in6>(),
        _ => return -EINVAL,
    };
    let storage = addr_of_mut!((*request).storage).cast::<u8>();
    std::ptr::copy_nonoverlapping(address.cast::<u8>(), storage, size);
    (*request).base.type_ = kind::GETNAMEINFO;
    (*request).loop_ = c_loop;
    (*request).getnameinfo_cb = callback;
    (*request).flags = flags;
    (*request).retcode = 0;
    if callback.is_none() {
        name(request);
        return (*request).retcode;
    }
    queue(c_loop, request, WorkKind::SlowIo, name, move |lp, cancelled| {
        if cancelled {
            (*request).retcode = UV_EAI_CANCELED;
        }
        let (mut host, mut service) = (std::ptr::null(), std::ptr::null());
        if (*request).retcode == 0 {
            host = (&raw const (*request).host).cast();
            service = (&raw const (*request).service).cast();
        }
        if let Some(callback) = (*request).getnameinfo_cb {
            enter(c_loop, lp, || callback(request, (*request).retcode, host, service));
        }
    })
}

unsafe fn name(request: *mut uv_getnameinfo_t) {
    let size = match c_int::from((*request).storage.ss_family) {
        AF_INET => size_of::<sockaddr_in>(),
        _ => size_of::<sockaddr_in6>(),
    };
    (*request).retcode = resolver_error(libc::getnameinfo(
        (&raw const (*request).storage).cast(),
        size as u32,
        (&raw mut (*request).host).cast(),
        (*request).host.len() as u32,
        (&raw mut (*request).service).cast(),
        (*request).service.len() as u32,
        (*request).flags,
    ));
}
