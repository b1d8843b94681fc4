//! libuv, in two ways.
//!
//! `libuv` is the echo server that libuv's own tests and guide have, and with them most
//! programs: each read gets a block of the size that libuv suggests, and a write request
//! takes it along. `libuv-lean` is as fast as libuv can be made: one buffer for all reads,
//! and each answer written at once by `uv_try_write`.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::IntoRawFd;

use super::{BACKLOG, READ_SIZE, Service};
use crate::allocations::note;
use crate::libuv::{self, Loop, sys};

/// What the loop's data points to.
struct Server {
    service: Service,
    alloc: sys::uv_alloc_cb,
    read: sys::uv_read_cb,
    /// For all reads, if it is lean.
    buffer: Vec<u8>,
}

/// A queued write and its bytes.
struct Write {
    request: MaybeUninit<sys::uv_write_t>,
    bytes: Vec<u8>,
}

pub(super) fn serve(listener: TcpListener, service: Service) -> io::Result<()> {
    let (alloc, read) = (Some(alloc_block as _), Some(read_block as _));
    serve_with(listener, Server { service, alloc, read, buffer: Vec::new() })
}

pub(super) fn serve_lean(listener: TcpListener, service: Service) -> io::Result<()> {
    let (alloc, read) = (Some(lend_buffer as _), Some(read_lean as _));
    serve_with(listener, Server { service, alloc, read, buffer: vec![0; READ_SIZE] })
}

fn serve_with(listener: TcpListener, server: Server) -> io::Result<()> {
    let server = Box::into_raw(Box::new(server));
    let lp = Loop::new()?;
    // SAFETY: the loop is initialised.
    unsafe { (*lp.raw()).data = server.cast() };
    let handle = Box::into_raw(Box::new(MaybeUninit::<sys::uv_tcp_t>::zeroed())).cast();
    // SAFETY: the memory is never freed.
    libuv::check(unsafe { sys::uv_tcp_init(lp.raw(), handle) })?;
    // SAFETY: the handle is initialised and takes the descriptor over.
    libuv::check(unsafe { sys::uv_tcp_open(handle, listener.into_raw_fd()) })?;
    // SAFETY: the handle is initialised.
    libuv::check(unsafe { sys::uv_listen(handle.cast(), BACKLOG as c_int, Some(connection)) })?;
    lp.run();
    Ok(())
}

unsafe extern "C" fn connection(listener: *mut sys::uv_stream_t, status: c_int) {
    if status < 0 {
        return;
    }
    let memory = Box::new(MaybeUninit::<sys::uv_tcp_t>::zeroed());
    let tcp: *mut sys::uv_tcp_t = Box::into_raw(memory).cast();
    // SAFETY: libuv gives the handle.
    let lp = unsafe { (*listener).loop_ };
    // SAFETY: the memory is freed by `closed` only.
    unsafe { sys::uv_tcp_init(lp, tcp) };
    // SAFETY: both handles are initialised, and one connection waits.
    let accepted = unsafe { sys::uv_accept(listener, tcp.cast()) };
    // SAFETY: the handle is initialised.
    unsafe { sys::uv_tcp_nodelay(tcp, 1) };
    if accepted < 0 || read_start(tcp.cast()) < 0 {
        close(tcp.cast());
    }
}

fn read_start(stream: *mut sys::uv_stream_t) -> c_int {
    let Server { alloc, read, .. } = server(stream);
    // SAFETY: the handle is initialised and open.
    unsafe { sys::uv_read_start(stream, *alloc, *read) }
}

unsafe extern "C" fn alloc_block(
    _: *mut sys::uv_handle_t,
    suggested: usize,
    buf: *mut sys::uv_buf_t,
) {
    // SAFETY: libuv gives a place for the answer.
    let buf = unsafe { &mut *buf };
    buf.base = malloc(suggested).cast();
    buf.len = suggested;
}

unsafe extern "C" fn read_block(
    stream: *mut sys::uv_stream_t,
    count: isize,
    buf: *const sys::uv_buf_t,
) {
    // SAFETY: libuv gives the buffer of `alloc_block`.
    let block = unsafe { (*buf).base };
    if count <= 0 || server(stream).service == Service::Sink {
        free(block.cast());
        if count < 0 {
            close(stream);
        }
        return;
    }
    let request = malloc(size_of::<sys::uv_write_t>()).cast::<sys::uv_write_t>();
    // SAFETY: the memory is the request's.
    unsafe { (*request).data = block.cast() };
    let buf = sys::uv_buf_t { base: block, len: count as usize };
    // SAFETY: request and block are there until `block_written`.
    if unsafe { sys::uv_write(request, stream, &buf, 1, Some(block_written)) } < 0 {
        free(block.cast());
        free(request.cast());
        close(stream);
    }
}

unsafe extern "C" fn block_written(request: *mut sys::uv_write_t, status: c_int) {
    // SAFETY: libuv gives the request.
    let stream = unsafe { (*request).handle };
    // SAFETY: as above.
    free(unsafe { (*request).data });
    free(request.cast());
    if status < 0 {
        close(stream);
    }
}

fn malloc(bytes: usize) -> *mut c_void {
    note(1, bytes as i64);
    // SAFETY: takes no memory.
    unsafe { libc::malloc(bytes) }
}

fn free(memory: *mut c_void) {
    // SAFETY: it is from `malloc`, and nobody uses it any more.
    unsafe { libc::free(memory) };
}

unsafe extern "C" fn lend_buffer(handle: *mut sys::uv_handle_t, _: usize, buf: *mut sys::uv_buf_t) {
    let server = server(handle.cast());
    // SAFETY: libuv gives a place for the answer.
    let buf = unsafe { &mut *buf };
    buf.base = server.buffer.as_mut_ptr().cast();
    buf.len = server.buffer.len();
}

unsafe extern "C" fn read_lean(
    stream: *mut sys::uv_stream_t,
    count: isize,
    buf: *const sys::uv_buf_t,
) {
    if count < 0 {
        return close(stream);
    }
    if count == 0 || server(stream).service == Service::Sink {
        return;
    }
    // SAFETY: libuv gives the buffer of `lend_buffer`.
    let base = unsafe { (*buf).base };
    let all = sys::uv_buf_t { base, len: count as usize };
    // SAFETY: the buffer is the server's and valid.
    let written = unsafe { sys::uv_try_write(stream, &all, 1) };
    let written = match written {
        0.. => written as usize,
        _ if written == sys::uv_errno_t_UV_EAGAIN => 0,
        _ => return close(stream),
    };
    if written < count as usize {
        // SAFETY: so many bytes of it were filled.
        let bytes = unsafe { std::slice::from_raw_parts(base.cast::<u8>(), count as usize) };
        queue(stream, bytes[written..].to_vec());
    }
}

/// Writes later what the kernel did not take, and reads no more until then.
fn queue(stream: *mut sys::uv_stream_t, bytes: Vec<u8>) {
    let write = Box::into_raw(Box::new(Write { request: MaybeUninit::zeroed(), bytes }));
    // SAFETY: it was made one line above, and `queued` frees it.
    let Write { request, bytes } = unsafe { &mut *write };
    let request = request.as_mut_ptr();
    // SAFETY: the memory is the request's.
    unsafe { (*request).data = write.cast() };
    let buf = sys::uv_buf_t { base: bytes.as_mut_ptr().cast(), len: bytes.len() };
    // SAFETY: the handle is open.
    unsafe { sys::uv_read_stop(stream) };
    // SAFETY: request and bytes are there until `queued`.
    if unsafe { sys::uv_write(request, stream, &buf, 1, Some(queued)) } < 0 {
        // SAFETY: libuv has not taken it.
        drop(unsafe { Box::from_raw(write) });
        close(stream);
    }
}

unsafe extern "C" fn queued(request: *mut sys::uv_write_t, status: c_int) {
    // SAFETY: libuv gives the request.
    let stream = unsafe { (*request).handle };
    // SAFETY: as above.
    let write = unsafe { (*request).data }.cast::<Write>();
    // SAFETY: `queue` made it of a box, and libuv is done with it.
    drop(unsafe { Box::from_raw(write) });
    if status < 0 {
        return close(stream);
    }
    if read_start(stream) < 0 {
        close(stream);
    }
}

fn close(stream: *mut sys::uv_stream_t) {
    // SAFETY: the handle is there until `closed`.
    if unsafe { sys::uv_is_closing(stream.cast()) } == 0 {
        // SAFETY: the handle is open.
        unsafe { sys::uv_close(stream.cast(), Some(closed)) };
    }
}

unsafe extern "C" fn closed(handle: *mut sys::uv_handle_t) {
    // SAFETY: `connection` made it of a box of this type.
    drop(unsafe { Box::from_raw(handle.cast::<MaybeUninit<sys::uv_tcp_t>>()) });
}

/// The server that a handle belongs to.
fn server<'a>(stream: *mut sys::uv_stream_t) -> &'a mut Server {
    // SAFETY: libuv gives the handle.
    let lp = unsafe { (*stream).loop_ };
    // SAFETY: a handle's loop is there.
    let server = unsafe { (*lp).data }.cast::<Server>();
    // SAFETY: it is never freed, and nobody else has a reference meanwhile.
    unsafe { &mut *server }
}
