//! libuv, in three ways.
//!
//! `libuv` is its best: one buffer for the reads of all connections, and `uv_try_write` for each
//! answer, without an allocation. `libuv-write` answers by `uv_write`, with buffers and requests that
//! are recycled: the same system calls, and 1.5 to 2 times the instructions. `libuv-malloc` is the echo
//! server of libuv's guide: a block of the size that libuv suggests and a request are allocated for
//! each read, which costs more than everything else together.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::IntoRawFd;

use super::service::DELAY;
use super::{BACKLOG, Handler, READ_SIZE, Service, connection_ended};
use crate::allocations::note;
use crate::libuv::{self, Loop, sys};

/// The data of the loop.
struct Server {
    service: Service,
    alloc: sys::uv_alloc_cb,
    read: sys::uv_read_cb,
    /// The buffer for all reads of the best server.
    buffer: Vec<u8>,
    /// The blocks of `libuv-write` that are not in use.
    free: Vec<*mut Block>,
}

/// A write request and the buffer that it sends, for `libuv-write`.
#[repr(C)]
struct Block {
    request: sys::uv_write_t,
    bytes: [u8; READ_SIZE],
}

/// A queued write and its bytes.
struct Write {
    request: MaybeUninit<sys::uv_write_t>,
    bytes: Vec<u8>,
}

/// The data of a connection, unless it only echoes or discards.
struct Extra {
    handler: Handler,
    stream: *mut sys::uv_stream_t,
    timer: MaybeUninit<sys::uv_timer_t>,
    /// Bytes that the timer is to answer.
    waiting: Vec<u8>,
}

pub(super) fn serve(listener: TcpListener, service: Service) -> io::Result<()> {
    let (alloc, read) = (Some(lend_buffer as _), Some(read_shared as _));
    let (buffer, free) = (vec![0; READ_SIZE], Vec::new());
    serve_with(listener, Server { service, alloc, read, buffer, free })
}

pub(super) fn serve_write(listener: TcpListener, service: Service) -> io::Result<()> {
    let (alloc, read) = (Some(lend_block as _), Some(read_recycled as _));
    let (buffer, free) = (Vec::new(), Vec::new());
    serve_with(listener, Server { service, alloc, read, buffer, free })
}

pub(super) fn serve_malloc(listener: TcpListener, service: Service) -> io::Result<()> {
    let (alloc, read) = (Some(alloc_block as _), Some(read_block as _));
    let (buffer, free) = (Vec::new(), Vec::new());
    serve_with(listener, Server { service, alloc, read, buffer, free })
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
    let service = server(tcp.cast()).service;
    if !matches!(service, Service::Echo | Service::Sink) {
        let extra = Box::into_raw(Box::new(Extra {
            handler: Handler::new(service),
            stream: tcp.cast(),
            timer: MaybeUninit::zeroed(),
            waiting: Vec::new(),
        }));
        // SAFETY: the handle is initialised, and `closed` frees the data.
        unsafe { (*tcp).data = extra.cast() };
        // SAFETY: the box was made above.
        let timer = unsafe { &raw mut (*extra).timer }.cast::<sys::uv_timer_t>();
        // SAFETY: the memory lives until `timer_closed`.
        unsafe { sys::uv_timer_init(lp, timer) };
        // SAFETY: the timer is initialised.
        unsafe { (*timer).data = extra.cast() };
    }
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

unsafe extern "C" fn lend_block(handle: *mut sys::uv_handle_t, _: usize, buf: *mut sys::uv_buf_t) {
    let block = server(handle.cast()).free.pop();
    let block = block.unwrap_or_else(|| Box::into_raw(Box::<Block>::new_uninit()).cast());
    // SAFETY: libuv passes a valid pointer for the result.
    let buf = unsafe { &mut *buf };
    // SAFETY: the block is from the line above, and not in use.
    buf.base = unsafe { &raw mut (*block).bytes }.cast();
    buf.len = READ_SIZE;
}

/// The block of a buffer.
fn block_of(bytes: *mut std::ffi::c_char) -> *mut Block {
    bytes.wrapping_byte_sub(std::mem::offset_of!(Block, bytes)).cast()
}

unsafe extern "C" fn read_recycled(
    stream: *mut sys::uv_stream_t,
    count: isize,
    buf: *const sys::uv_buf_t,
) {
    // SAFETY: libuv passes the buffer of `lend_block`, or an empty one.
    let base = unsafe { (*buf).base };
    if base.is_null() {
        return close(stream);
    }
    let (server, block) = (server(stream), block_of(base));
    if count <= 0 || server.service == Service::Sink {
        server.free.push(block);
        if count < 0 {
            close(stream);
        }
        return;
    }
    let buf = sys::uv_buf_t { base, len: count as usize };
    let request = block.cast::<sys::uv_write_t>();
    // SAFETY: request and bytes are one block, which is not in use until `recycle`.
    if unsafe { sys::uv_write(request, stream, &buf, 1, Some(recycle)) } < 0 {
        server.free.push(block);
        close(stream);
    }
}

unsafe extern "C" fn recycle(request: *mut sys::uv_write_t, status: c_int) {
    // SAFETY: libuv passes a valid request.
    let stream = unsafe { (*request).handle };
    // The request is the first field of its block.
    server(stream).free.push(request.cast());
    if status < 0 {
        close(stream);
    }
}

unsafe extern "C" fn lend_buffer(handle: *mut sys::uv_handle_t, _: usize, buf: *mut sys::uv_buf_t) {
    let server = server(handle.cast());
    // SAFETY: libuv passes a valid pointer for the result.
    let buf = unsafe { &mut *buf };
    buf.base = server.buffer.as_mut_ptr().cast();
    buf.len = server.buffer.len();
}

unsafe extern "C" fn read_shared(
    stream: *mut sys::uv_stream_t,
    count: isize,
    buf: *const sys::uv_buf_t,
) {
    if count < 0 {
        return close(stream);
    }
    let service = server(stream).service;
    if count == 0 || service == Service::Sink {
        return;
    }
    // SAFETY: libuv passes the buffer of `lend_buffer`.
    let base = unsafe { (*buf).base };
    // SAFETY: libuv has filled this number of bytes of the server's buffer.
    let bytes = unsafe { std::slice::from_raw_parts(base.cast::<u8>(), count as usize) };
    if service == Service::Echo {
        return write(stream, bytes);
    }
    let extra = extra(stream);
    match (service, extra.handler.answer(bytes)) {
        (_, Err(_)) => close(stream),
        (Service::Delay, Ok(answer)) => {
            extra.waiting.extend_from_slice(answer);
            let timer = extra.timer.as_mut_ptr();
            // SAFETY: the timer is initialised.
            if unsafe { sys::uv_is_active(timer.cast()) } == 0 {
                // SAFETY: as above.
                unsafe { sys::uv_timer_start(timer, Some(fired), DELAY.as_millis() as u64, 0) };
            }
        }
        (_, Ok(answer)) => write(stream, answer),
    }
}

unsafe extern "C" fn fired(timer: *mut sys::uv_timer_t) {
    // SAFETY: libuv passes a valid timer.
    let extra = unsafe { (*timer).data }.cast::<Extra>();
    // SAFETY: the data lives until `timer_closed`, and no other reference to it exists.
    let extra = unsafe { &mut *extra };
    write(extra.stream, &extra.waiting);
    extra.waiting.clear();
}

/// Writes an answer.
fn write(stream: *mut sys::uv_stream_t, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let all = sys::uv_buf_t { base: bytes.as_ptr().cast_mut().cast(), len: bytes.len() };
    // SAFETY: the bytes are valid during the call.
    let written = unsafe { sys::uv_try_write(stream, &all, 1) };
    let written = match written {
        0.. => written as usize,
        _ if written == sys::uv_errno_t_UV_EAGAIN => 0,
        _ => return close(stream),
    };
    if written < bytes.len() {
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
    // SAFETY: libuv passes a valid handle.
    let extra = unsafe { (*handle).data }.cast::<Extra>();
    if !extra.is_null() {
        // SAFETY: the data lives until `timer_closed`.
        let timer = unsafe { &raw mut (*extra).timer };
        // SAFETY: the timer is initialised, and closed only here.
        unsafe { sys::uv_close(timer.cast(), Some(timer_closed)) };
    }
    // SAFETY: `connection` made it from a box of this type.
    drop(unsafe { Box::from_raw(handle.cast::<MaybeUninit<sys::uv_tcp_t>>()) });
    connection_ended();
}

unsafe extern "C" fn timer_closed(timer: *mut sys::uv_handle_t) {
    // SAFETY: libuv passes a valid handle.
    let extra = unsafe { (*timer).data }.cast::<Extra>();
    // SAFETY: `connection` made it from a box, and nothing uses it any more.
    drop(unsafe { Box::from_raw(extra) });
}

/// The data of a connection that has some.
fn extra<'a>(stream: *mut sys::uv_stream_t) -> &'a mut Extra {
    // SAFETY: libuv passes a valid handle.
    let extra = unsafe { (*stream).data }.cast::<Extra>();
    // SAFETY: the data lives until the connection is closed, and no other reference to it exists.
    unsafe { &mut *extra }
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
