//! Shared libraries, and what concerns this library itself.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use crate::alloc::{copy_string, release};
use crate::layout::uv_lib_t;
use crate::strings::bytes;

/// Keeps the message of the last error, and returns -1 if there is one.
unsafe fn keep_error(library: *mut uv_lib_t) -> c_int {
    release((*library).errmsg.cast());
    let message = libc::dlerror();
    if message.is_null() {
        (*library).errmsg = null_mut();
        return 0;
    }
    (*library).errmsg = copy_string(bytes(message));
    -1
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_dlopen(file: *const c_char, library: *mut uv_lib_t) -> c_int {
    libc::dlerror(); // Discards an earlier error.
    (*library).errmsg = null_mut();
    (*library).handle = libc::dlopen(file, libc::RTLD_LAZY);
    if (*library).handle.is_null() { keep_error(library) } else { 0 }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_dlclose(library: *mut uv_lib_t) {
    release((*library).errmsg.cast());
    (*library).errmsg = null_mut();
    if !(*library).handle.is_null() {
        // libuv ignores the result as well.
        libc::dlclose((*library).handle);
        (*library).handle = null_mut();
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_dlsym(
    library: *mut uv_lib_t,
    name: *const c_char,
    symbol: *mut *mut c_void,
) -> c_int {
    libc::dlerror();
    *symbol = libc::dlsym((*library).handle, name);
    if (*symbol).is_null() { keep_error(library) } else { 0 }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_dlerror(library: *const uv_lib_t) -> *const c_char {
    if (*library).errmsg.is_null() { c"no error".as_ptr() } else { (*library).errmsg }
}

/// The version of the ABI.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn uv_version() -> c_uint {
    (1 << 16) | (53 << 8)
}

/// The version of the ABI and of this library.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn uv_version_string() -> *const c_char {
    const VERSION: &str = concat!("1.53.0-uv-capi-", env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Ends the threads of the pool and frees what was allocated for the process. To be called by the
/// last user of the library, when no loop exists any more.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_library_shutdown() {
    // A loop that still exists keeps its threads.
    let _ = uv_core::Pool::shutdown_global();
    crate::title::forget_arguments();
}
