//! Pipes: Unix domain sockets, FIFOs and one-way pipes.

use std::ffi::{OsStr, c_char, c_int, c_uint};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::null;

use libc::{EACCES, EBADF, EEXIST, EINVAL, ENOBUFS, ENOENT};
use uv_core::{PendingKind, Pipe, PipeAccess};

use crate::alloc::{copy_string, release};
use crate::descriptors::{is_watched, take_place};
use crate::errors::{code, last_error, status};
use crate::event_loop::core;
use crate::handle::{core_of, descriptor, is_closing, key, kind, loop_of};
use crate::layout::*;
use crate::stream::{begin_connect, end_connect, init_stream, set_pair_flags, take_descriptor};
use crate::strings::is_buffer;

/// `UV_PIPE_NO_TRUNCATE`.
const NO_TRUNCATE: c_uint = 1;

/// The size of a socket's path; a name of the file system needs a final NUL.
const PATH_SIZE: usize = 108;

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_pipe_init(
    c_loop: *mut uv_loop_t,
    pipe: *mut uv_pipe_t,
    ipc: c_int,
) -> c_int {
    let key = Pipe::new(core(c_loop));
    init_stream(c_loop, pipe.cast(), kind::NAMED_PIPE, key);
    (*pipe).ipc = ipc;
    (*pipe).pipe_fname = null();
    if ipc == 0 { 0 } else { status(key.enable_passing(core(c_loop))) }
}

/// True if handles can be passed over the pipe.
pub(crate) unsafe fn is_ipc(stream: *const uv_stream_t) -> bool {
    (*stream.cast::<uv_pipe_t>()).ipc != 0
}

/// Frees the name that the struct of a bound pipe has.
pub(crate) unsafe fn forget_name(pipe: *mut uv_pipe_t) {
    release((*pipe).pipe_fname.cast_mut().cast());
    (*pipe).pipe_fname = null();
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_pipe_open(pipe: *mut uv_pipe_t, fd: c_int) -> c_int {
    if is_watched(loop_of(pipe), fd) {
        return -EEXIST;
    }
    if libc::fcntl(fd, libc::F_GETFL) < 0 {
        return last_error();
    }
    if is_closing(pipe) {
        return -EINVAL;
    }
    if descriptor(pipe).is_some() {
        return -libc::EBUSY;
    }
    match take_descriptor(pipe.cast(), fd) {
        Ok(owned) => {
            let result = key::<Pipe, _>(pipe).open(core_of(pipe), owned);
            take_place(pipe);
            status(result)
        }
        Err(error) => error,
    }
}

/// The name of a pipe, truncated as libuv does it.
unsafe fn name_of<'a>(
    name: *const c_char,
    length: usize,
    flags: c_uint,
) -> Result<&'a [u8], c_int> {
    if flags & !NO_TRUNCATE != 0 || name.is_null() {
        return Err(-EINVAL);
    }
    let name = std::slice::from_raw_parts(name.cast::<u8>(), length);
    let is_abstract = name.first() == Some(&0);
    if !is_abstract && name.contains(&0) {
        return Err(-EINVAL);
    }
    if flags & NO_TRUNCATE != 0 && length > PATH_SIZE {
        return Err(-EINVAL);
    }
    Ok(&name[..length.min(if is_abstract { PATH_SIZE } else { PATH_SIZE - 1 })])
}

fn path_of(name: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(name))
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_pipe_bind(pipe: *mut uv_pipe_t, name: *const c_char) -> c_int {
    uv_pipe_bind2(pipe, name, libc::strlen(name), 0)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_pipe_bind2(
    pipe: *mut uv_pipe_t,
    name: *const c_char,
    length: usize,
    flags: c_uint,
) -> c_int {
    let name = match name_of(name, length, flags) {
        Ok(name) => name,
        Err(error) => return error,
    };
    if is_closing(pipe) || descriptor(pipe).is_some() {
        return -EINVAL;
    }
    // The empty name means an abstract one that the kernel chooses.
    match status(key::<Pipe, _>(pipe).bind(core_of(pipe), path_of(name))) {
        0 if name.first().is_some_and(|&first| first != 0) => {
            (*pipe).pipe_fname = copy_string(name);
            0
        }
        // As libuv: the directory does not exist.
        error if error == -ENOENT => -EACCES,
        other => other,
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_pipe_connect(
    request: *mut uv_connect_t,
    pipe: *mut uv_pipe_t,
    name: *const c_char,
    callback: StatusCallback<uv_connect_t>,
) {
    let result = uv_pipe_connect2(request, pipe, name, libc::strlen(name), 0, callback);
    if result != 0 {
        defer_error(request, pipe, callback, result);
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_pipe_connect2(
    request: *mut uv_connect_t,
    pipe: *mut uv_pipe_t,
    name: *const c_char,
    length: usize,
    flags: c_uint,
    callback: StatusCallback<uv_connect_t>,
) -> c_int {
    let name = match name_of(name, length, flags) {
        // The empty name is one to be chosen by the kernel, so nothing listens on it.
        Ok([]) => return -EINVAL,
        Ok(name) => name,
        Err(error) => return error,
    };
    let connected = move |lp: &mut crate::event_loop::CoreLoop, _: Pipe, result: io::Result<()>| {
        end_connect(request, lp, status(result));
    };
    match key::<Pipe, _>(pipe).connect(core_of(pipe), path_of(name), connected) {
        Ok(()) => begin_connect(request, pipe.cast(), callback),
        Err(error) => defer_error(request, pipe, callback, code(&error)),
    }
    0
}

/// Reports an error of a connect in its callback.
unsafe fn defer_error(
    request: *mut uv_connect_t,
    pipe: *mut uv_pipe_t,
    callback: StatusCallback<uv_connect_t>,
    error: c_int,
) {
    begin_connect(request, pipe.cast(), callback);
    core_of(pipe).defer(move |lp| end_connect(request, lp, error));
}

/// Writes the name of an end; an abstract one has no final NUL.
unsafe fn write_name(
    pipe: *const uv_pipe_t,
    name: io::Result<PathBuf>,
    buffer: *mut c_char,
    size: *mut usize,
) -> c_int {
    if !is_buffer(buffer, size) {
        return -EINVAL;
    }
    if descriptor(pipe).is_none() {
        return -EBADF;
    }
    let name = match name {
        Ok(name) => name,
        Err(error) => {
            *size = 0;
            return code(&error);
        }
    };
    let name = name.as_os_str().as_bytes();
    let nul = usize::from(name.first().is_some_and(|first| *first != 0));
    if name.len() + nul > *size {
        *size = name.len() + nul;
        return -ENOBUFS;
    }
    std::ptr::copy_nonoverlapping(name.as_ptr(), buffer.cast(), name.len());
    if nul == 1 {
        *buffer.add(name.len()) = 0;
    }
    *size = name.len();
    0
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_pipe_getsockname(
    pipe: *const uv_pipe_t,
    buffer: *mut c_char,
    size: *mut usize,
) -> c_int {
    write_name(pipe, key::<Pipe, _>(pipe).local_name(core_of(pipe)), buffer, size)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_pipe_getpeername(
    pipe: *const uv_pipe_t,
    buffer: *mut c_char,
    size: *mut usize,
) -> c_int {
    write_name(pipe, key::<Pipe, _>(pipe).peer_name(core_of(pipe)), buffer, size)
}

/// A setting of Windows.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_pipe_pending_instances(_pipe: *mut uv_pipe_t, _count: c_int) {}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_pipe_pending_count(pipe: *mut uv_pipe_t) -> c_int {
    if (*pipe).ipc == 0 {
        return 0;
    }
    key::<Pipe, _>(pipe).pending_count(core_of(pipe)) as c_int
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_pipe_pending_type(pipe: *mut uv_pipe_t) -> c_int {
    if (*pipe).ipc == 0 {
        return kind::UNKNOWN;
    }
    match key::<Pipe, _>(pipe).pending_kind(core_of(pipe)) {
        Some(PendingKind::Tcp) => kind::TCP,
        Some(PendingKind::Udp) => kind::UDP,
        Some(PendingKind::Pipe) => kind::NAMED_PIPE,
        _ => kind::UNKNOWN,
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_pipe_chmod(pipe: *mut uv_pipe_t, mode: c_int) -> c_int {
    if pipe.is_null() || descriptor(pipe).is_none() {
        return -EBADF;
    }
    let access = u8::try_from(mode).ok().and_then(PipeAccess::from_bits);
    let Some(access) = access.filter(|access| !access.is_empty()) else { return -EINVAL };
    status(key::<Pipe, _>(pipe).set_permissions(core_of(pipe), access))
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_pipe(fds: *mut c_int, read_flags: c_int, write_flags: c_int) -> c_int {
    if libc::pipe2(fds, libc::O_CLOEXEC) != 0 {
        return last_error();
    }
    set_pair_flags(fds, [read_flags, write_flags])
}
