//! What all requests have in common.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null;

use crate::layout::*;

/// The values of `uv_req_type`.
pub mod kind {
    use std::ffi::c_int;

    pub const REQ: c_int = 1;
    pub const CONNECT: c_int = 2;
    pub const WRITE: c_int = 3;
    pub const SHUTDOWN: c_int = 4;
    pub const UDP_SEND: c_int = 5;
    pub const FS: c_int = 6;
    pub const WORK: c_int = 7;
    pub const GETADDRINFO: c_int = 8;
    pub const GETNAMEINFO: c_int = 9;
    pub const RANDOM: c_int = 10;
}

const NAMES: [&CStr; 11] = [
    c"",
    c"req",
    c"connect",
    c"write",
    c"shutdown",
    c"udp_send",
    c"fs",
    c"work",
    c"getaddrinfo",
    c"getnameinfo",
    c"random",
];

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_cancel(request: *mut uv_req_t) -> c_int {
    let c_loop = match (*request).type_ {
        kind::WRITE => return crate::write::cancel(request.cast()),
        kind::FS => (*request.cast::<uv_fs_t>()).loop_,
        kind::WORK => (*request.cast::<uv_work_t>()).loop_,
        kind::GETADDRINFO => (*request.cast::<uv_getaddrinfo_t>()).loop_,
        kind::GETNAMEINFO => (*request.cast::<uv_getnameinfo_t>()).loop_,
        kind::RANDOM => (*request.cast::<uv_random_t>()).loop_,
        _ => return -libc::EINVAL,
    };
    crate::work::cancel(c_loop, request)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_req_get_data(request: *const uv_req_t) -> *mut c_void {
    (*request).data
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_req_set_data(request: *mut uv_req_t, data: *mut c_void) {
    (*request).data = data;
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_req_get_type(request: *const uv_req_t) -> c_int {
    (*request).type_
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn uv_req_type_name(kind: c_int) -> *const c_char {
    match usize::try_from(kind) {
        Ok(index @ 1..) => NAMES.get(index).map_or(null(), |name| name.as_ptr()),
        _ => null(),
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn uv_req_size(kind: c_int) -> usize {
    match kind {
        kind::REQ => size_of::<uv_req_t>(),
        kind::CONNECT => size_of::<uv_connect_t>(),
        kind::WRITE => size_of::<uv_write_t>(),
        kind::SHUTDOWN => size_of::<uv_shutdown_t>(),
        kind::UDP_SEND => size_of::<uv_udp_send_t>(),
        kind::FS => size_of::<uv_fs_t>(),
        kind::WORK => size_of::<uv_work_t>(),
        kind::GETADDRINFO => size_of::<uv_getaddrinfo_t>(),
        kind::GETNAMEINFO => size_of::<uv_getnameinfo_t>(),
        kind::RANDOM => size_of::<uv_random_t>(),
        _ => usize::MAX,
    }
}
