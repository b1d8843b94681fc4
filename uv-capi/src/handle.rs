//! What all handles have in common.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute_copy;
use std::ptr::{addr_of_mut, null, null_mut};

use libc::{EBADF, EINVAL, ENOTSUP, FILE};
use uv_core::{
    AnyHandle, Async, Check, FsEvent, FsPoll, Handle as _, Idle, Pipe, Poll, Prepare, Process,
    Signal, Tcp, Timer, Tty, Udp,
};

use crate::descriptors::leave_place;
use crate::errors::{code, status};
use crate::event_loop::{
    CoreLoop, core, enter, handle_of, queue_push, queue_remove, sync, uv_default_loop,
};
use crate::layout::*;

/// The values of `uv_handle_type`.
pub mod kind {
    use std::ffi::c_int;

    pub const UNKNOWN: c_int = 0;
    pub const ASYNC: c_int = 1;
    pub const CHECK: c_int = 2;
    pub const FS_EVENT: c_int = 3;
    pub const FS_POLL: c_int = 4;
    pub const HANDLE: c_int = 5;
    pub const IDLE: c_int = 6;
    pub const NAMED_PIPE: c_int = 7;
    pub const POLL: c_int = 8;
    pub const PREPARE: c_int = 9;
    pub const PROCESS: c_int = 10;
    pub const STREAM: c_int = 11;
    pub const TCP: c_int = 12;
    pub const TIMER: c_int = 13;
    pub const TTY: c_int = 14;
    pub const UDP: c_int = 15;
    pub const SIGNAL: c_int = 16;
    pub const FILE: c_int = 17;
}

/// Bits of `flags`; those that programs are known to read have libuv's values.
pub mod flags {
    use std::ffi::c_uint;

    pub const CLOSING: c_uint = 0x1;
    pub const CLOSED: c_uint = 0x2;
    pub const ACTIVE: c_uint = 0x4;
    pub const REF: c_uint = 0x8;
    pub const INTERNAL: c_uint = 0x10;
    pub const SHUTTING: c_uint = 0x100;
    pub const BOUND: c_uint = 0x2000;
    pub const READABLE: c_uint = 0x4000;
    pub const BLOCKING_WRITES: c_uint = 0x10_0000;
    pub const IPV6: c_uint = 0x40_0000;
    pub const UDP_CONNECTED: c_uint = 0x200_0000;
    pub const UDP_RECVMMSG: c_uint = 0x400_0000;
    /// Of this library: a socket with an error queue.
    pub const UDP_REPORTS: c_uint = 0x4000_0000;
}

const NAMES: [&CStr; 18] = [
    c"",
    c"async",
    c"check",
    c"fs_event",
    c"fs_poll",
    c"handle",
    c"idle",
    c"pipe",
    c"poll",
    c"prepare",
    c"process",
    c"stream",
    c"tcp",
    c"timer",
    c"tty",
    c"udp",
    c"signal",
    c"file",
];

/// Fills the head of a new handle; `data` is the caller's.
pub(crate) unsafe fn init<K: Copy, T>(c_loop: *mut uv_loop_t, handle: *mut T, kind: c_int, key: K) {
    const { assert!(size_of::<K>() == 8) };
    let handle = handle.cast::<uv_handle_t>();
    (*handle).loop_ = c_loop;
    (*handle).type_ = kind;
    (*handle).flags = flags::REF;
    (*handle).close_cb = None;
    (*handle).next_closing = null_mut();
    (*handle).u = [transmute_copy(&key), 0, 0, 0];
    queue_push(addr_of_mut!((*c_loop).handle_queue), addr_of_mut!((*handle).handle_queue));
    sync(c_loop);
}

/// The key of a handle. Keys are numbers that the loop checks, so a wrong type or a word that the
/// program has overwritten leads to an error, not to other memory.
pub(crate) unsafe fn key<K: Copy, T>(handle: *const T) -> K {
    const { assert!(size_of::<K>() == 8) };
    transmute_copy(&(*handle.cast::<uv_handle_t>()).u[0])
}

/// The loop of a handle.
pub(crate) unsafe fn loop_of<T>(handle: *const T) -> *mut uv_loop_t {
    (*handle.cast::<uv_handle_t>()).loop_
}

pub(crate) unsafe fn core_of<'a, T>(handle: *const T) -> &'a mut CoreLoop {
    core(loop_of(handle))
}

pub(crate) unsafe fn is_closing<T>(handle: *const T) -> bool {
    (*handle.cast::<uv_handle_t>()).flags & (flags::CLOSING | flags::CLOSED) != 0
}

/// The handle as one of any kind.
pub(crate) unsafe fn any<T>(handle: *const T) -> AnyHandle {
    match (*handle.cast::<uv_handle_t>()).type_ {
        kind::ASYNC => key::<Async, _>(handle).into(),
        kind::CHECK => key::<Check, _>(handle).into(),
        kind::FS_EVENT => key::<FsEvent, _>(handle).into(),
        kind::FS_POLL => key::<FsPoll, _>(handle).into(),
        kind::IDLE => key::<Idle, _>(handle).into(),
        kind::NAMED_PIPE => key::<Pipe, _>(handle).into(),
        kind::POLL => key::<Poll, _>(handle).into(),
        kind::PREPARE => key::<Prepare, _>(handle).into(),
        kind::PROCESS => key::<Process, _>(handle).into(),
        kind::TCP => key::<Tcp, _>(handle).into(),
        kind::TIMER => key::<Timer, _>(handle).into(),
        kind::TTY => key::<Tty, _>(handle).into(),
        kind::UDP => key::<Udp, _>(handle).into(),
        kind::SIGNAL => key::<Signal, _>(handle).into(),
        other => misuse("a handle that was not initialized", handle.cast(), other),
    }
}

/// Ends the process, as libuv's assertions do, with what is wrong.
pub(crate) fn misuse(what: &str, handle: *const c_void, kind: c_int) -> ! {
    eprintln!("uv-capi: {what}: {handle:p} of type {kind}");
    std::process::abort()
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_close(handle: *mut uv_handle_t, callback: Callback<uv_handle_t>) {
    if is_closing(handle) {
        misuse("uv_close of a handle that is closing", handle.cast(), (*handle).type_);
    }
    (*handle).flags |= flags::CLOSING;
    (*handle).close_cb = callback;
    let c_loop = (*handle).loop_;
    before_close(handle);
    let closed = any(handle).close_with(core(c_loop), move |lp, _| {
        // libuv has no references to a closed handle: its close callback sees none.
        (*handle).flags = ((*handle).flags | flags::CLOSED) & !flags::REF;
        queue_remove(addr_of_mut!((*handle).handle_queue));
        if (*handle).type_ == kind::ASYNC {
            crate::async_handle::drop_sender(handle.cast());
        }
        if let Some(callback) = (*handle).close_cb {
            enter(c_loop, lp, || callback(handle));
        }
    });
    sync(c_loop);
    if closed.is_err() {
        misuse("uv_close of a handle that is not in its loop", handle.cast(), (*handle).type_);
    }
}

/// Releases what the struct of a handle owns.
unsafe fn before_close(handle: *mut uv_handle_t) {
    leave_place(handle);
    match (*handle).type_ {
        kind::ASYNC => crate::async_handle::wait_for_senders(handle.cast()),
        kind::NAMED_PIPE => crate::pipe::forget_name(handle.cast()),
        kind::FS_EVENT => crate::fs_event::forget_path(handle.cast()),
        kind::SIGNAL => (*handle.cast::<uv_signal_t>()).signum = 0,
        _ => {}
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_is_closing(handle: *const uv_handle_t) -> c_int {
    c_int::from(is_closing(handle))
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_is_active(handle: *const uv_handle_t) -> c_int {
    c_int::from(!is_closing(handle) && any(handle).is_active(core_of(handle)))
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_has_ref(handle: *const uv_handle_t) -> c_int {
    c_int::from((*handle).flags & flags::REF != 0)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_ref(handle: *mut uv_handle_t) {
    (*handle).flags |= flags::REF;
    if !is_closing(handle) {
        // A handle that is not closing is in its loop.
        let _ = any(handle).reference(core_of(handle));
        sync((*handle).loop_);
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_unref(handle: *mut uv_handle_t) {
    (*handle).flags &= !flags::REF;
    if !is_closing(handle) {
        let _ = any(handle).unreference(core_of(handle));
        sync((*handle).loop_);
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_fileno(handle: *const uv_handle_t, fd: *mut c_int) -> c_int {
    let has_descriptor = matches!(
        (*handle).type_,
        kind::TCP | kind::NAMED_PIPE | kind::TTY | kind::UDP | kind::POLL
    );
    if !has_descriptor {
        return -EINVAL;
    }
    match descriptor(handle) {
        Some(number) => {
            *fd = number;
            0
        }
        None => -EBADF,
    }
}

/// The descriptor of a handle: the one it was opened with, or the one it has made.
pub(crate) unsafe fn descriptor<T>(handle: *const T) -> Option<c_int> {
    if is_closing(handle) {
        return None;
    }
    let kind = (*handle.cast::<uv_handle_t>()).type_;
    if matches!(kind, kind::TCP | kind::NAMED_PIPE | kind::TTY)
        && let Some(standard) = crate::stream::standard_descriptor(handle.cast())
    {
        return Some(standard);
    }
    any(handle).raw_source(core_of(handle)).ok().map(|source| source.fd())
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_send_buffer_size(handle: *mut uv_handle_t, value: *mut c_int) -> c_int {
    buffer_size(handle, value, libc::SO_SNDBUF)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_recv_buffer_size(handle: *mut uv_handle_t, value: *mut c_int) -> c_int {
    buffer_size(handle, value, libc::SO_RCVBUF)
}

/// Sets the size, or reads it if the value is 0.
unsafe fn buffer_size(handle: *mut uv_handle_t, value: *mut c_int, option: c_int) -> c_int {
    if handle.is_null() || value.is_null() {
        return -EINVAL;
    }
    if !matches!((*handle).type_, kind::TCP | kind::NAMED_PIPE | kind::UDP) {
        return -ENOTSUP;
    }
    let (any, lp) = (any(handle), core_of(handle));
    let is_send = option == libc::SO_SNDBUF;
    if *value != 0 {
        let size = *value as usize;
        return status(if is_send {
            any.set_send_buffer_size(lp, size)
        } else {
            any.set_recv_buffer_size(lp, size)
        });
    }
    match if is_send { any.send_buffer_size(lp) } else { any.recv_buffer_size(lp) } {
        Ok(size) => {
            *value = size as c_int;
            0
        }
        Err(error) => code(&error),
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_handle_get_loop(handle: *const uv_handle_t) -> *mut uv_loop_t {
    (*handle).loop_
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_handle_get_data(handle: *const uv_handle_t) -> *mut c_void {
    (*handle).data
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_handle_set_data(handle: *mut uv_handle_t, data: *mut c_void) {
    (*handle).data = data;
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_handle_get_type(handle: *const uv_handle_t) -> c_int {
    (*handle).type_
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn uv_handle_type_name(kind: c_int) -> *const c_char {
    match usize::try_from(kind) {
        Ok(index @ 1..) => NAMES.get(index).map_or(null(), |name| name.as_ptr()),
        _ => null(),
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn uv_handle_size(kind: c_int) -> usize {
    match kind {
        kind::ASYNC => size_of::<uv_async_t>(),
        kind::CHECK | kind::IDLE | kind::PREPARE => size_of::<uv_watcher_t>(),
        kind::FS_EVENT => size_of::<uv_fs_event_t>(),
        kind::FS_POLL => size_of::<uv_fs_poll_t>(),
        kind::HANDLE => size_of::<uv_handle_t>(),
        kind::NAMED_PIPE => size_of::<uv_pipe_t>(),
        kind::POLL => size_of::<uv_poll_t>(),
        kind::PROCESS => size_of::<uv_process_t>(),
        kind::STREAM | kind::TCP => size_of::<uv_stream_t>(),
        kind::TIMER => size_of::<uv_timer_t>(),
        kind::TTY => size_of::<uv_tty_t>(),
        kind::UDP => size_of::<uv_udp_t>(),
        kind::SIGNAL => size_of::<uv_signal_t>(),
        _ => usize::MAX,
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_print_all_handles(c_loop: *mut uv_loop_t, stream: *mut FILE) {
    print(c_loop, stream, false);
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_print_active_handles(c_loop: *mut uv_loop_t, stream: *mut FILE) {
    print(c_loop, stream, true);
}

unsafe extern "C" {
    static stderr: *mut FILE;
}

unsafe fn print(c_loop: *mut uv_loop_t, stream: *mut FILE, only_active: bool) {
    let c_loop = if c_loop.is_null() { uv_default_loop() } else { c_loop };
    let stream = if stream.is_null() { stderr } else { stream };
    let head = addr_of_mut!((*c_loop).handle_queue);
    let mut node = (*head).next;
    while node != head {
        let handle = handle_of(node);
        node = (*node).next;
        let is_active = uv_is_active(handle) != 0;
        if only_active && !is_active {
            continue;
        }
        let letter = |set: bool, letter: char| c_uint::from(if set { letter } else { '-' });
        libc::fprintf(
            stream,
            c"[%c%c%c] %-8s %p\n".as_ptr(),
            letter((*handle).flags & flags::REF != 0, 'R'),
            letter(is_active, 'A'),
            letter((*handle).flags & flags::INTERNAL != 0, 'I'),
            uv_handle_type_name((*handle).type_),
            handle,
        );
    }
}
