//! libuv, in two ways.
//!
//! `libuv` is the echo server of libuv's own tests and guide: each read allocates a block of the
//! size that libuv suggests, and a write request sends it. `libuv-lean` uses the fastest
//! functions: one buffer for all reads, and `uv_try_write` for each answer.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::IntoRawFd;

use super::{BACKLOG, READ_SIZE, Service};
use crate::allocations::note;
use crate::libuv::{self, Loop, sys};

/// The data of the loop.
struct Server {
    service: Service,
    alloc: sys::uv_alloc_cb,
    read: sys::uv_read_cb,
    /// The buffer for all reads of the lean server.
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
    // SAFETY: the handle is initialised and takes ownership of the descriptor.
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
    // SAFETY: libuv passes a valid handle.
    let lp = unsafe { (*listener).loop_ };
    // SAFETY: only `closed` frees the memory.
    unsafe { sys::uv_tcp_init(lp, tcp) };
    // SAFETY: both handles are initialised, and a connection is pending.
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
    // SAFETY: libuv passes a valid pointer for the result.
    let buf = unsafe { &mut *buf };
    buf.base = malloc(suggested).cast();
    buf.len = suggested;
}

unsafe extern "C" fn read_block(
    stream: *mut sys::uv_stream_t,
    count: isize,
    buf: *const sys::uv_buf_t,
) {
    // SAFETY: libuv passes the buffer of `alloc_block`.
    let block = unsafe { (*buf).base };
    if count <= 0 || server(stream).service == Service::Sink {
        free(block.cast());
        if count < 0 {
            close(stream);
        }
        return;
    }
    let request = malloc(size_of::<sys::uv_write_t>()).cast::<sys::uv_write_t>();
    // SAFETY: the memory belongs to the request.
    unsafe { (*request).data = block.cast() };
    let buf = sys::uv_buf_t { base: block, len: count as usize };
    // SAFETY: request and block live until `block_written`.
    if unsafe { sys::uv_write(request, stream, &buf, 1, Some(block_written)) } < 0 {
        free(block.cast());
        free(request.cast());
        close(stream);
    }
}

unsafe extern "C" fn block_written(request: *mut sys::uv_write_t, status: c_int) {
    // SAFETY: libuv passes a valid request.
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
    // SAFETY: no memory is passed.
    unsafe { libc::malloc(bytes) }
}

fn free(memory: *mut c_void) {
    // SAFETY: the block is from `malloc`, and no longer used.
    unsafe { libc::free(memory) };
}

unsafe extern "C" fn lend_buffer(handle: *mut sys::uv_handle_t, _: usize, buf: *mut sys::uv_buf_t) {
    let server = server(handle.cast());
    // SAFETY: libuv passes a valid pointer for the result.
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
    // SAFETY: libuv passes the buffer of `lend_buffer`.
    let base = unsafe { (*buf).base };
    let all = sys::uv_buf_t { base, len: count as usize };
    // SAFETY: the buffer belongs to the server, which is never freed.
    let written = unsafe { sys::uv_try_write(stream, &all, 1) };
    let written = match written {
        0.. => written as usize,
        _ if written == sys::uv_errno_t_UV_EAGAIN => 0,
        _ => return close(stream),
    };
    if written < count as usize {
        // SAFETY: libuv has filled this number of bytes.
        let bytes = unsafe { std::slice::from_raw_parts(base.cast::<u8>(), count as usize) };
        queue(stream, bytes[written..].to_vec());
    }
}

/// Queues the bytes that the kernel did not accept, and stops reading until they are written.
fn queue(stream: *mut sys::uv_stream_t, bytes: Vec<u8>) {
    let write = Box::into_raw(Box::new(Write { request: MaybeUninit::zeroed(), bytes }));
    // SAFETY: the pointer is from `Box::into_raw` above, and `queued` frees it.
    let Write { request, bytes } = unsafe { &mut *write };
    let request = request.as_mut_ptr();
    // SAFETY: the memory belongs to the request.
    unsafe { (*request).data = write.cast() };
    let buf = sys::uv_buf_t { base: bytes.as_mut_ptr().cast(), len: bytes.len() };
    // SAFETY: the handle is open.
    unsafe { sys::uv_read_stop(stream) };
    // SAFETY: request and bytes live until `queued`.
    if unsafe { sys::uv_write(request, stream, &buf, 1, Some(queued)) } < 0 {
        // SAFETY: the failed call does not keep it.
        drop(unsafe { Box::from_raw(write) });
        close(stream);
    }
}

unsafe extern "C" fn queued(request: *mut sys::uv_write_t, status: c_int) {
    // SAFETY: libuv passes a valid request.
    let stream = unsafe { (*request).handle };
    // SAFETY: as above.
    let write = unsafe { (*request).data }.cast::<Write>();
    // SAFETY: `queue` made it from a box, and libuv no longer uses it.
    drop(unsafe { Box::from_raw(write) });
    if status < 0 {
        return close(stream);
    }
    if read_start(stream) < 0 {
        close(stream);
    }
}

fn close(stream: *mut sys::uv_stream_t) {
    // SAFETY: the handle lives until `closed`.
    if unsafe { sys::uv_is_closing(stream.cast()) } == 0 {
        // SAFETY: the handle is open.
        unsafe { sys::uv_close(stream.cast(), Some(closed)) };
    }
}

unsafe extern "C" fn closed(handle: *mut sys::uv_handle_t) {
    // SAFETY: `connection` made it from a box of this type.
    drop(unsafe { Box::from_raw(handle.cast::<MaybeUninit<sys::uv_tcp_t>>()) });
}

/// The server that a handle belongs to.
fn server<'a>(stream: *mut sys::uv_stream_t) -> &'a mut Server {
    // SAFETY: libuv passes a valid handle.
    let lp = unsafe { (*stream).loop_ };
    // SAFETY: the loop of a handle is valid.
    let server = unsafe { (*lp).data }.cast::<Server>();
    // SAFETY: the server is never freed, and no other reference to it exists in a callback.
    unsafe { &mut *server }
}
