//! An echo server in a steady state allocates nothing for a request.

#![cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

#[path = "../../uv-core/tests/support/counting.rs"]
mod counting;

use std::ffi::{c_char, c_int};
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::thread;

use counting::allocations;
use uv_capi::event_loop::{uv_loop_close, uv_loop_init, uv_run};
use uv_capi::handle::uv_close;
use uv_capi::layout::*;
use uv_capi::network::uv_ip4_addr;
use uv_capi::stream::{uv_accept, uv_listen, uv_read_start};
use uv_capi::tcp::{uv_tcp_bind, uv_tcp_getsockname, uv_tcp_init};
use uv_capi::write::{uv_try_write, uv_write};

/// Requests before counting, in which buffers grow to their final size, and counted requests.
const WARM_UP: usize = 200;
const COUNTED: usize = 1000;
const MESSAGE: usize = 64;

/// The server's memory. Handles lead to it by `data`.
struct Server {
    listener: uv_tcp_t,
    peer: uv_tcp_t,
    request: uv_write_t,
    buffer: [c_char; 4096],
    by_write: bool,
    requests: usize,
    /// The number of allocations after the warm-up.
    before: usize,
    allocated: usize,
}

unsafe fn server_of<T>(handle: *const T) -> *mut Server {
    // SAFETY: the test sets `data` of every handle.
    unsafe { (*handle.cast::<uv_handle_t>()).data.cast() }
}

unsafe extern "C" fn connection(listener: *mut uv_stream_t, status: c_int) {
    assert_eq!(status, 0);
    // SAFETY: as above.
    unsafe {
        let server = server_of(listener);
        let peer = &raw mut (*server).peer;
        assert_eq!(uv_tcp_init((*listener).base.loop_, peer), 0);
        (*peer).base.data = server.cast();
        assert_eq!(uv_accept(listener, peer), 0);
        assert_eq!(uv_read_start(peer, Some(alloc), Some(read)), 0);
    }
}

unsafe extern "C" fn alloc(handle: *mut uv_handle_t, _: usize, buffer: *mut uv_buf_t) {
    // SAFETY: as above.
    unsafe {
        let memory = &raw mut (*server_of(handle)).buffer;
        *buffer = uv_buf_t { base: memory.cast(), len: size_of_val(&*memory) };
    }
}

unsafe extern "C" fn written(_: *mut uv_write_t, status: c_int) {
    assert_eq!(status, 0);
}

unsafe extern "C" fn read(stream: *mut uv_stream_t, count: isize, buffer: *const uv_buf_t) {
    // SAFETY: as above; the request before has ended, as the client has its answer.
    unsafe {
        let server = server_of(stream);
        if count < 0 {
            (*server).allocated = allocations() - (*server).before;
            uv_close(stream.cast(), None);
            uv_close((&raw mut (*server).listener).cast(), None);
            return;
        }
        assert_eq!(count, MESSAGE as isize);
        (*server).requests += 1;
        if (*server).requests == WARM_UP {
            (*server).before = allocations();
        }
        let answer = uv_buf_t { base: (*buffer).base, len: MESSAGE };
        if (*server).by_write {
            let request = &raw mut (*server).request;
            assert_eq!(uv_write(request, stream, &answer, 1, Some(written)), 0);
        } else {
            assert_eq!(uv_try_write(stream, &answer, 1), MESSAGE as c_int);
        }
    }
}

fn ask(port: u16) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut message = [b'x'; MESSAGE];
    for _ in 0..WARM_UP + COUNTED {
        stream.write_all(&message).unwrap();
        stream.read_exact(&mut message).unwrap();
    }
}

/// Serves a client, and returns the number of allocations after the warm-up.
fn serve(by_write: bool) -> usize {
    let mut c_loop = Box::new(MaybeUninit::<uv_loop_t>::zeroed());
    let mut server = Box::new(MaybeUninit::<Server>::zeroed());
    let (c_loop, server) = (c_loop.as_mut_ptr(), server.as_mut_ptr());
    // SAFETY: the memory outlives the loop; a server of zeroes is valid.
    unsafe {
        (*server).by_write = by_write;
        let listener = &raw mut (*server).listener;
        let (mut address, mut size) = (MaybeUninit::uninit(), 16);
        assert_eq!(uv_ip4_addr(c"127.0.0.1".as_ptr(), 0, address.as_mut_ptr()), 0);
        assert_eq!(uv_loop_init(c_loop), 0);
        assert_eq!(uv_tcp_init(c_loop, listener), 0);
        (*listener).base.data = server.cast();
        assert_eq!(uv_tcp_bind(listener, address.as_ptr().cast(), 0), 0);
        assert_eq!(uv_listen(listener, 1, Some(connection)), 0);
        assert_eq!(uv_tcp_getsockname(listener, address.as_mut_ptr().cast(), &mut size), 0);
        let port = u16::from_be(address.assume_init().sin_port);
        let client = thread::spawn(move || ask(port));
        assert_eq!(uv_run(c_loop, 0), 0);
        assert_eq!(uv_loop_close(c_loop), 0);
        client.join().unwrap();
        assert_eq!((*server).requests, WARM_UP + COUNTED);
        (*server).allocated
    }
}

#[test]
fn an_echo_allocates_nothing() {
    for backend in ["epoll", "poll", "select", "uring,epoll"] {
        // SAFETY: the only test of this process; the client's thread reads no variable.
        unsafe { std::env::set_var("UV_BACKEND", backend) };
        for by_write in [true, false] {
            assert_eq!(serve(by_write), 0, "{backend}, by uv_write: {by_write}");
        }
    }
}
