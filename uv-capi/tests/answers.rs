//! Writes in a read callback: they call back after it, in order, and count their bytes, whether the
//! kernel takes all bytes, a part, or none.

#![cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

use std::ffi::{c_char, c_int};
use std::io::{Read, Write, pipe};
use std::mem::MaybeUninit;
use std::os::fd::IntoRawFd;
use std::thread;

use uv_capi::event_loop::{uv_backend_timeout, uv_loop_alive, uv_loop_close, uv_loop_init, uv_run};
use uv_capi::handle::uv_close;
use uv_capi::layout::*;
use uv_capi::pipe::{uv_pipe_init, uv_pipe_open};
use uv_capi::stream::{uv_read_start, uv_read_stop};
use uv_capi::write::{uv_write, uv_write_nwritten};

/// A pipe takes the first write, a page of the second, and nothing of the third.
const WRITES: usize = 3;
const SIZE: usize = 60_000;

/// The memory of the test. Handles lead to it by `data`.
struct Test {
    input: uv_pipe_t,
    output: uv_pipe_t,
    requests: [uv_write_t; WRITES],
    bytes: [[c_char; SIZE]; WRITES],
    byte: c_char,
    reads: bool,
    answered: usize,
}

unsafe fn test_of<T>(handle: *const T) -> *mut Test {
    // SAFETY: the test sets `data` of every handle.
    unsafe { (*handle.cast::<uv_handle_t>()).data.cast() }
}

unsafe extern "C" fn alloc(handle: *mut uv_handle_t, _: usize, buffer: *mut uv_buf_t) {
    // SAFETY: as above.
    unsafe { *buffer = uv_buf_t { base: &raw mut (*test_of(handle)).byte, len: 1 } };
}

unsafe extern "C" fn read(stream: *mut uv_stream_t, count: isize, _: *const uv_buf_t) {
    // SAFETY: as above.
    unsafe {
        let test = test_of(stream);
        if count == 0 {
            return;
        }
        assert_eq!(count, 1);
        (*test).reads = true;
        let output = (&raw mut (*test).output).cast::<uv_stream_t>();
        let c_loop = (*stream).base.loop_;
        for index in 0..WRITES {
            let request = &raw mut (*test).requests[index];
            let base = (&raw mut (*test).bytes[index]).cast::<c_char>();
            // In two pieces.
            let pieces =
                [uv_buf_t { base, len: 1000 }, uv_buf_t { base: base.add(1000), len: SIZE - 1000 }];
            assert_eq!(uv_write(request, output, pieces.as_ptr(), 2, Some(written)), 0);
        }
        uv_read_stop(stream);
        assert_eq!(uv_loop_alive(c_loop), 1);
        let queued = (*output).write_queue_size;
        assert!((1..=(WRITES - 1) * SIZE).contains(&queued), "{queued}");
        if std::env::var_os("UV_BACKEND").is_some_and(|backend| backend != "uring,epoll") {
            assert_eq!(uv_backend_timeout(c_loop), 0, "a callback is due");
        }
        (*test).reads = false;
    }
}

unsafe extern "C" fn written(request: *mut uv_write_t, status: c_int) {
    // SAFETY: as above.
    unsafe {
        let output = (*request).handle;
        let test = test_of(output);
        assert_eq!(status, 0);
        assert!(!(*test).reads, "not in the callback that writes");
        assert_eq!(request, &raw mut (*test).requests[(*test).answered], "in order");
        assert_eq!(uv_write_nwritten(request), SIZE);
        (*test).answered += 1;
        if (*test).answered == WRITES {
            uv_close(output.cast(), None);
            uv_close((&raw mut (*test).input).cast(), None);
        }
    }
}

fn answer() {
    let mut c_loop = Box::new(MaybeUninit::<uv_loop_t>::zeroed());
    let mut test = Box::new(MaybeUninit::<Test>::zeroed());
    let (c_loop, test) = (c_loop.as_mut_ptr(), test.as_mut_ptr());
    let (question, mut asks) = pipe().unwrap();
    let (mut answers, answer) = pipe().unwrap();
    // SAFETY: the memory outlives the loop; a test of zeroes is valid.
    unsafe {
        for index in 0..WRITES {
            (*test).bytes[index] = [index as c_char + 1; SIZE];
        }
        assert_eq!(uv_loop_init(c_loop), 0);
        let (input, output) = (&raw mut (*test).input, &raw mut (*test).output);
        for (pipe, fd) in [(input, question.into_raw_fd()), (output, answer.into_raw_fd())] {
            assert_eq!(uv_pipe_init(c_loop, pipe, 0), 0);
            (*pipe).stream.base.data = test.cast();
            assert_eq!(uv_pipe_open(pipe, fd), 0);
        }
        assert_eq!(uv_read_start(input.cast(), Some(alloc), Some(read)), 0);
        asks.write_all(b"?").unwrap();
        // One iteration, so that nothing is taken from the pipe meanwhile.
        uv_run(c_loop, 1);
        let reader = thread::spawn(move || {
            let mut all = Vec::new();
            answers.read_to_end(&mut all).unwrap();
            all
        });
        assert_eq!(uv_run(c_loop, 0), 0);
        assert_eq!(uv_loop_close(c_loop), 0);
        assert_eq!((*test).answered, WRITES);
        let all = reader.join().unwrap();
        assert_eq!(all.len(), WRITES * SIZE);
        let expected = (0..WRITES * SIZE).map(|index| (index / SIZE) as u8 + 1);
        assert!(all.into_iter().eq(expected), "in order, nothing twice");
    }
}

#[test]
fn answers_call_back_in_order_after_the_read_callback() {
    for backend in ["epoll", "poll", "select", "uring,epoll"] {
        // SAFETY: the only test of this process, before its threads.
        unsafe { std::env::set_var("UV_BACKEND", backend) };
        answer();
    }
}
