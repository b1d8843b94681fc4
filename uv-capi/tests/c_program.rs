//! Uses the library as a C program does: by pointers to structs of the caller.
//!
//! libuv's own suite, which `suite/run` runs, covers the behaviour; these tests need no C compiler.

#![cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::thread;

use uv_capi::async_handle::{uv_async_init, uv_async_send};
use uv_capi::errors::{UV_EOF, uv_err_name, uv_strerror};
use uv_capi::event_loop::*;
use uv_capi::fs::{uv_fs_req_cleanup, uv_fs_stat};
use uv_capi::handle::{uv_close, uv_is_active, uv_unref};
use uv_capi::layout::*;
use uv_capi::libraries::uv_library_shutdown;
use uv_capi::network::uv_ip4_addr;
use uv_capi::stream::{uv_accept, uv_listen, uv_read_start};
use uv_capi::tcp::{uv_tcp_bind, uv_tcp_connect, uv_tcp_getsockname, uv_tcp_init};
use uv_capi::timer::{uv_timer_init, uv_timer_start, uv_timer_stop};
use uv_capi::work::uv_queue_work;
use uv_capi::write::{uv_try_write, uv_write, uv_write_nwritten};

const DEFAULT: c_int = 0;
const NOWAIT: c_int = 2;

/// Memory for a struct, as a C program has it on its heap.
fn memory<T>() -> *mut T {
    Box::into_raw(Box::new(MaybeUninit::<T>::zeroed())).cast()
}

/// # Safety
///
/// `memory` must come from [`memory`], and must not be used any more.
unsafe fn free<T>(memory: *mut T) {
    // SAFETY: by the contract; `MaybeUninit` has the layout of its type.
    drop(unsafe { Box::from_raw(memory.cast::<MaybeUninit<T>>()) });
}

fn new_loop() -> *mut uv_loop_t {
    let c_loop = memory();
    // SAFETY: it is memory for a loop.
    assert_eq!(unsafe { uv_loop_init(c_loop) }, 0);
    c_loop
}

/// # Safety
///
/// The loop must come from [`new_loop`].
unsafe fn close_loop(c_loop: *mut uv_loop_t) {
    // SAFETY: by the contract.
    unsafe {
        assert_eq!(uv_loop_close(c_loop), 0);
        free(c_loop);
    }
}

/// Counts the calls of a handle in its `data`.
unsafe fn count<T>(handle: *mut T) {
    // SAFETY: the tests set `data` to a counter.
    unsafe { *(*handle.cast::<uv_handle_t>()).data.cast::<u32>() += 1 };
}

unsafe extern "C" fn closed(handle: *mut uv_handle_t) {
    // SAFETY: as for `count`.
    unsafe { count(handle) };
}

unsafe extern "C" fn timer_fired(timer: *mut uv_timer_t) {
    // SAFETY: the library passes the handle of the test.
    unsafe {
        count(timer);
        assert_eq!((*(*timer).base.loop_).active_handles, 1, "a repeating timer is active");
        uv_close(timer.cast(), Some(closed));
    }
}

#[test]
fn timers_run_and_public_fields_are_live() {
    // SAFETY: the structs live until the loop has run to its end.
    unsafe {
        let (c_loop, timer, mut calls) = (new_loop(), memory::<uv_timer_t>(), 0u32);
        uv_timer_init(c_loop, timer);
        (*timer).base.data = (&raw mut calls).cast();
        assert_eq!((*c_loop).active_handles, 0);
        assert_eq!(uv_timer_start(timer, Some(timer_fired), 1, 1), 0);
        assert_eq!((*c_loop).active_handles, 1);
        uv_unref(timer.cast());
        assert_eq!((*c_loop).active_handles, 0);
        uv_timer_stop(timer);
        assert_eq!(uv_is_active(timer.cast()), 0);
        uv_capi::handle::uv_ref(timer.cast());
        uv_timer_start(timer, Some(timer_fired), 1, 1);
        assert_eq!(uv_loop_close(c_loop), -libc::EBUSY, "a loop with handles is not closed");
        assert_eq!(uv_run(c_loop, DEFAULT), 0);
        assert_eq!(calls, 2, "the timer and the close");
        close_loop(c_loop);
        free(timer);
    }
}

#[test]
fn a_program_can_hold_a_loop_by_its_public_field() {
    // SAFETY: as above.
    unsafe {
        let c_loop = new_loop();
        assert_eq!((uv_loop_alive(c_loop), uv_backend_timeout(c_loop)), (0, 0));
        (*c_loop).active_handles += 1;
        assert_eq!((uv_loop_alive(c_loop), uv_backend_timeout(c_loop)), (1, -1));
        assert_eq!(uv_run(c_loop, NOWAIT), 1);
        (*c_loop).active_handles -= 1;
        assert_eq!((uv_loop_alive(c_loop), (*c_loop).active_handles), (0, 0));
        close_loop(c_loop);
    }
}

unsafe extern "C" fn async_called(handle: *mut uv_async_t) {
    // SAFETY: as above.
    unsafe {
        count(handle);
        uv_close(handle.cast(), None);
    }
}

#[test]
fn threads_send_while_the_handle_is_closed() {
    for _ in 0..50 {
        // SAFETY: the threads end before the memory is freed.
        unsafe {
            let (c_loop, handle, mut calls) = (new_loop(), memory::<uv_async_t>(), 0u32);
            uv_async_init(c_loop, handle, Some(async_called));
            (*handle).base.data = (&raw mut calls).cast();
            let address = handle as usize;
            let sends = move || {
                // Until the callback has called `uv_close`, of which this thread knows nothing.
                uv_async_send(address as *mut uv_async_t);
            };
            thread::scope(|scope| {
                scope.spawn(sends);
                scope.spawn(sends);
                uv_run(c_loop, DEFAULT);
            });
            assert_eq!(calls, 1);
            close_loop(c_loop);
            free(handle);
        }
    }
}

/// What the callbacks of the echo share.
struct Echo {
    server: *mut uv_tcp_t,
    incoming: *mut uv_tcp_t,
    client: *mut uv_tcp_t,
    request: *mut uv_write_t,
    buffer: [c_char; 64],
    received: Vec<u8>,
    written: usize,
}

unsafe fn echo_of<T>(handle: *const T) -> *mut Echo {
    // SAFETY: the test sets `data` of every handle.
    unsafe { (*handle.cast::<uv_handle_t>()).data.cast() }
}

unsafe extern "C" fn alloc(handle: *mut uv_handle_t, _: usize, buffer: *mut uv_buf_t) {
    // SAFETY: as above.
    unsafe {
        let echo = echo_of(handle);
        *buffer = uv_buf_t { base: (&raw mut (*echo).buffer).cast(), len: 64 };
    }
}

unsafe extern "C" fn connection(server: *mut uv_stream_t, status: c_int) {
    // SAFETY: as above.
    unsafe {
        assert_eq!(status, 0);
        let echo = echo_of(server);
        uv_tcp_init((*server).base.loop_, (*echo).incoming);
        (*(*echo).incoming).base.data = echo.cast();
        assert_eq!(uv_accept(server, (*echo).incoming), 0);
        assert_eq!(uv_accept(server, (*echo).client), -libc::EBUSY, "it has a socket");
        assert_eq!(uv_read_start((*echo).incoming, Some(alloc), Some(incoming_read)), 0);
    }
}

unsafe extern "C" fn incoming_read(
    stream: *mut uv_stream_t,
    count: isize,
    buffer: *const uv_buf_t,
) {
    // SAFETY: as above.
    unsafe {
        if count > 0 {
            let reply = uv_buf_t { base: (*buffer).base, len: count as usize };
            assert_eq!(uv_try_write(stream, &reply, 1), count as c_int);
        } else {
            assert_eq!(count, UV_EOF as isize);
            uv_close(stream.cast(), None);
            uv_close((*echo_of(stream)).server.cast(), None);
        }
    }
}

unsafe extern "C" fn connected(request: *mut uv_connect_t, status: c_int) {
    // SAFETY: as above.
    unsafe {
        assert_eq!(status, 0);
        let stream = (*request).handle;
        let echo = echo_of(stream);
        assert_eq!(uv_read_start(stream, Some(alloc), Some(client_read)), 0);
        let text = uv_buf_t { base: c"echo".as_ptr().cast_mut(), len: 4 };
        let write = (*echo).request;
        assert_eq!(uv_write(write, stream, &text, 0, Some(written)), -libc::EINVAL, "no buffers");
        assert_eq!(uv_write(write, stream, [text; 6].as_ptr(), 6, Some(written)), 0);
    }
}

unsafe extern "C" fn written(request: *mut uv_write_t, status: c_int) {
    // SAFETY: as above.
    unsafe {
        assert_eq!(status, 0);
        let echo = echo_of((*request).handle);
        (*echo).written = uv_write_nwritten(request);
        assert_eq!((*(*request).handle).write_queue_size, 0);
    }
}

unsafe extern "C" fn client_read(stream: *mut uv_stream_t, count: isize, buffer: *const uv_buf_t) {
    // SAFETY: as above.
    unsafe {
        let echo = echo_of(stream);
        let bytes = std::slice::from_raw_parts((*buffer).base.cast::<u8>(), count as usize);
        (*echo).received.extend_from_slice(bytes);
        if (*echo).received.len() == 24 {
            uv_close(stream.cast(), None);
        }
    }
}

#[test]
fn tcp_echoes() {
    // SAFETY: as above.
    unsafe {
        let c_loop = new_loop();
        let echo = Box::into_raw(Box::new(Echo {
            server: memory(),
            incoming: memory(),
            client: memory(),
            request: memory(),
            buffer: [0; 64],
            received: Vec::new(),
            written: 0,
        }));
        let (server, incoming) = ((*echo).server, (*echo).incoming);
        let (client, request) = ((*echo).client, (*echo).request);
        let (mut address, mut size) = (MaybeUninit::uninit(), 16);
        assert_eq!(uv_ip4_addr(c"127.0.0.1".as_ptr(), 0, address.as_mut_ptr()), 0);
        let address = address.as_mut_ptr().cast();
        uv_tcp_init(c_loop, server);
        uv_tcp_init(c_loop, client);
        (*server).base.data = echo.cast();
        (*client).base.data = echo.cast();
        assert_eq!(uv_tcp_bind(server, address, 0), 0);
        assert_eq!(uv_listen(server, 16, Some(connection)), 0);
        assert_eq!(uv_tcp_getsockname(server, address, &mut size), 0);
        let connect = memory();
        assert_eq!(uv_tcp_connect(connect, client, address, Some(connected)), 0);
        assert_eq!(uv_run(c_loop, DEFAULT), 0);
        assert_eq!((*echo).received, b"echo".repeat(6));
        assert_eq!((*echo).written, 24);
        close_loop(c_loop);
        for stream in [server, incoming, client] {
            free(stream);
        }
        free(request);
        free(connect);
        drop(Box::from_raw(echo));
    }
}

unsafe extern "C" fn stat_done(request: *mut uv_fs_t) {
    // SAFETY: as above.
    unsafe {
        assert_eq!((*request).result, 0);
        assert_eq!((*request).statbuf.st_mode & u64::from(libc::S_IFMT), u64::from(libc::S_IFDIR));
        *(*request).base.data.cast::<u32>() += 1;
        uv_fs_req_cleanup(request);
        assert!((*request).path.is_null());
    }
}

unsafe extern "C" fn work(request: *mut uv_work_t) {
    // SAFETY: the loop waits for the work.
    unsafe { *(*request).base.data.cast::<u32>() += 1 };
}

unsafe extern "C" fn after_work(request: *mut uv_work_t, status: c_int) {
    assert_eq!(status, 0);
    // SAFETY: as above.
    unsafe { *(*request).base.data.cast::<u32>() += 1 };
}

#[test]
fn files_and_work_run_on_the_pool() {
    // SAFETY: as above.
    unsafe {
        let (c_loop, mut calls) = (new_loop(), [0u32; 2]);
        let (stat, job) = (memory::<uv_fs_t>(), memory::<uv_work_t>());
        assert_eq!(uv_fs_stat(null_mut(), stat, c"/".as_ptr(), None), 0, "without a loop");
        assert_eq!(uv_fs_stat(null_mut(), stat, c"/none".as_ptr(), None), -libc::ENOENT);
        assert_eq!(uv_fs_stat(c_loop, stat, null(), Some(stat_done)), -libc::EINVAL);
        assert_eq!(uv_fs_stat(c_loop, stat, c"/".as_ptr(), Some(stat_done)), 0);
        (*stat).base.data = (&raw mut calls[0]).cast::<c_void>();
        (*job).base.data = (&raw mut calls[1]).cast::<c_void>();
        assert_eq!(uv_queue_work(c_loop, job, None, None), -libc::EINVAL);
        assert_eq!(uv_queue_work(c_loop, job, Some(work), Some(after_work)), 0);
        assert_eq!(uv_run(c_loop, DEFAULT), 0);
        assert_eq!(calls, [1, 2]);
        close_loop(c_loop);
        free(stat);
        free(job);
        // The threads end, unless the loop of another test has them.
        uv_library_shutdown();
    }
}

#[test]
fn errors_have_libuvs_names() {
    // SAFETY: the strings are static.
    unsafe {
        assert_eq!(CStr::from_ptr(uv_err_name(-libc::ECONNREFUSED)), c"ECONNREFUSED");
        assert_eq!(CStr::from_ptr(uv_strerror(UV_EOF)), c"end of file");
        assert_eq!(CStr::from_ptr(uv_err_name(-9999)), c"Unknown system error -9999");
    }
}
