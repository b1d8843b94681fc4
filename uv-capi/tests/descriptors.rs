//! Which handles of a loop may use which descriptors.

#![cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

use std::ffi::{c_char, c_int, c_void};
use std::io::{Read, Write, pipe};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::net::UnixStream;

use uv_capi::event_loop::*;
use uv_capi::handle::{uv_close, uv_fileno};
use uv_capi::layout::*;
use uv_capi::pipe::{uv_pipe_init, uv_pipe_open};
use uv_capi::poll::{uv_poll_init, uv_poll_start, uv_poll_stop};
use uv_capi::stream::{uv_read_start, uv_read_stop};
use uv_capi::tty::{uv_tty_get_winsize, uv_tty_init, uv_tty_set_mode};
use uv_capi::write::uv_try_write;

const READABLE: c_int = 1;

/// A loop and memory for handles, which live until the end of a test.
struct Fixture {
    c_loop: *mut uv_loop_t,
}

impl Fixture {
    fn new() -> Fixture {
        let c_loop = memory();
        // SAFETY: it is memory for a loop.
        assert_eq!(unsafe { uv_loop_init(c_loop) }, 0);
        Fixture { c_loop }
    }

    /// Runs the loop until nothing is left, and closes it.
    fn end(self) {
        // SAFETY: the loop and its handles are still there.
        unsafe {
            assert_eq!(uv_run(self.c_loop, 0), 0);
            assert_eq!(uv_loop_close(self.c_loop), 0);
        }
    }
}

/// Memory for a struct, which is never freed.
fn memory<T>() -> *mut T {
    Box::leak(Box::new(MaybeUninit::<T>::zeroed())).as_mut_ptr()
}

unsafe extern "C" fn ready(_poll: *mut uv_poll_t, _status: c_int, _events: c_int) {}

unsafe extern "C" fn allocate(_handle: *mut uv_handle_t, _size: usize, buffer: *mut uv_buf_t) {
    static mut MEMORY: [c_char; 64] = [0; 64];
    // SAFETY: only the test that reads uses the memory.
    unsafe { *buffer = uv_buf_t { base: (&raw mut MEMORY).cast(), len: 64 } };
}

/// Adds what is read to the `Vec` in `data`; closes the stream at the end.
unsafe extern "C" fn read(stream: *mut uv_stream_t, count: isize, buffer: *const uv_buf_t) {
    // SAFETY: the test has set `data`, and the library has filled `count` bytes.
    unsafe {
        if count > 0 {
            let bytes = std::slice::from_raw_parts((*buffer).base.cast::<u8>(), count as usize);
            (*(*stream).base.data.cast::<Vec<u8>>()).extend(bytes);
        } else if count < 0 {
            uv_close(stream.cast(), None);
        }
    }
}

#[test]
fn two_handles_do_not_wait_for_one_descriptor() {
    // SAFETY: the structs are never freed.
    unsafe {
        let fixture = Fixture::new();
        let c_loop = fixture.c_loop;
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let fd = ours.into_raw_fd();
        let (stream, first, second) =
            (memory::<uv_pipe_t>(), memory::<uv_poll_t>(), memory::<uv_poll_t>());
        uv_pipe_init(c_loop, stream, 0);
        assert_eq!(uv_pipe_open(stream, fd), 0);
        // An open stream does not wait yet.
        assert_eq!(uv_poll_init(c_loop, first, fd), 0);
        assert_eq!(uv_poll_init(c_loop, second, fd), 0);
        assert_eq!(uv_poll_start(first, READABLE, Some(ready)), 0);
        assert_eq!(uv_poll_start(first, READABLE, Some(ready)), 0);
        assert_eq!(uv_poll_start(second, READABLE, Some(ready)), -libc::EEXIST);
        assert_eq!(uv_poll_init(c_loop, memory(), fd), -libc::EEXIST);
        uv_poll_stop(first);
        assert_eq!(uv_poll_start(second, READABLE, Some(ready)), 0);
        assert_eq!(uv_poll_start(first, READABLE, Some(ready)), -libc::EEXIST);
        uv_close(second.cast(), None);
        // The stream has its place again when it reads, after polls of its descriptor.
        assert_eq!(uv_read_start(stream.cast(), Some(allocate), Some(read)), 0);
        assert_eq!(uv_poll_start(first, READABLE, Some(ready)), -libc::EEXIST);
        assert_eq!(uv_pipe_open(stream, fd), -libc::EEXIST);
        uv_read_stop(stream.cast());
        assert_eq!(uv_poll_start(first, READABLE, Some(ready)), 0);
        uv_close(first.cast(), None);
        uv_close(stream.cast(), None);
        fixture.end();
    }
}

#[test]
fn terminal_handles_take_pipes_and_sockets() {
    // SAFETY: the structs are never freed.
    unsafe {
        let fixture = Fixture::new();
        let file = std::fs::File::open("/etc/passwd").unwrap();
        assert_eq!(uv_tty_init(fixture.c_loop, memory(), file.as_raw_fd(), 0), -libc::EINVAL);

        let (reader, mut writer) = pipe().unwrap();
        let (mut bytes, fd) = (Vec::<u8>::new(), reader.into_raw_fd());
        let tty = memory::<uv_tty_t>();
        assert_eq!(uv_tty_init(fixture.c_loop, tty, fd, 1), 0);
        (*tty).stream.base.data = (&raw mut bytes).cast::<c_void>();
        let mut number = -1;
        assert_eq!((uv_fileno(tty.cast(), &raw mut number), number), (0, fd));
        let (mut width, mut height) = (0, 0);
        assert_eq!(uv_tty_get_winsize(tty, &raw mut width, &raw mut height), -libc::ENOTTY);
        assert_eq!(uv_tty_set_mode(tty, 0), 0);
        assert_eq!(uv_tty_set_mode(tty, 1), -libc::ENOTTY);
        assert_eq!(uv_read_start(tty.cast(), Some(allocate), Some(read)), 0);
        writer.write_all(b"of a pipe").unwrap();
        drop(writer);

        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let socket = memory::<uv_tty_t>();
        assert_eq!(uv_tty_init(fixture.c_loop, socket, ours.into_raw_fd(), 0), 0);
        let mut text = *b"of a socket";
        let buffer = uv_buf_t { base: text.as_mut_ptr().cast(), len: text.len() };
        assert_eq!(uv_try_write(socket.cast(), &raw const buffer, 1), 11);
        uv_close(socket.cast(), None);

        fixture.end();
        let mut received = Vec::new();
        theirs.read_to_end(&mut received).unwrap();
        assert_eq!((&bytes[..], &received[..]), (&b"of a pipe"[..], &b"of a socket"[..]));
    }
}
