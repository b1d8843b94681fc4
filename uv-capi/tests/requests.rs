//! The public count of requests.

#![cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

use std::ffi::{c_int, c_uint};
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::IntoRawFd;
use std::os::unix::net::UnixStream;

use uv_capi::event_loop::*;
use uv_capi::fs::{uv_fs_req_cleanup, uv_fs_stat};
use uv_capi::handle::uv_close;
use uv_capi::layout::*;
use uv_capi::network::uv_ip4_addr;
use uv_capi::pipe::{uv_pipe_connect, uv_pipe_init, uv_pipe_open};
use uv_capi::stream::uv_shutdown;
use uv_capi::udp::{uv_udp_init, uv_udp_send};
use uv_capi::work::uv_queue_work;
use uv_capi::write::uv_write;

/// Memory for a struct, which is never freed.
fn memory<T>() -> *mut T {
    Box::leak(Box::new(MaybeUninit::<T>::zeroed())).as_mut_ptr()
}

/// The requests of a loop that have not called back. Its `data` has the number that must be left.
unsafe fn ended(c_loop: *mut uv_loop_t) {
    // SAFETY: the test has set `data`.
    unsafe {
        let left = (*c_loop).data.cast::<c_uint>();
        *left -= 1;
        assert_eq!((*c_loop).active_reqs[0], *left);
    }
}

unsafe extern "C" fn work(_request: *mut uv_work_t) {}

unsafe extern "C" fn worked(request: *mut uv_work_t, _status: c_int) {
    // SAFETY: as for `ended`.
    unsafe { ended((*request).loop_) };
}

unsafe extern "C" fn stat(request: *mut uv_fs_t) {
    // SAFETY: as for `ended`.
    unsafe {
        ended((*request).loop_);
        uv_fs_req_cleanup(request);
    }
}

unsafe extern "C" fn written(request: *mut uv_write_t, status: c_int) {
    assert_eq!(status, 0);
    // SAFETY: as for `ended`.
    unsafe { ended((*(*request).handle).base.loop_) };
}

unsafe extern "C" fn shut(request: *mut uv_shutdown_t, _status: c_int) {
    // SAFETY: as for `ended`.
    unsafe { ended((*(*request).handle).base.loop_) };
}

unsafe extern "C" fn connected(request: *mut uv_connect_t, status: c_int) {
    assert_eq!(status, -libc::ENOENT);
    // SAFETY: as for `ended`.
    unsafe { ended((*(*request).handle).base.loop_) };
}

unsafe extern "C" fn sent(request: *mut uv_udp_send_t, _status: c_int) {
    // SAFETY: as for `ended`.
    unsafe { ended((*(*request).handle).base.loop_) };
}

#[test]
fn requests_are_counted_until_they_call_back() {
    // SAFETY: the structs are never freed.
    unsafe {
        let c_loop = memory::<uv_loop_t>();
        assert_eq!(uv_loop_init(c_loop), 0);
        let mut left: c_uint = 6;
        (*c_loop).data = (&raw mut left).cast();
        assert_eq!(uv_queue_work(c_loop, memory(), Some(work), Some(worked)), 0);
        assert_eq!(uv_fs_stat(c_loop, memory(), c"/".as_ptr(), Some(stat)), 0);
        assert_eq!((*c_loop).active_reqs[0], 2);

        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let stream = memory::<uv_pipe_t>();
        uv_pipe_init(c_loop, stream, 0);
        assert_eq!(uv_pipe_open(stream, ours.into_raw_fd()), 0);
        let text = b"text";
        let buffer = uv_buf_t { base: text.as_ptr().cast_mut().cast(), len: text.len() };
        let stream = stream.cast::<uv_stream_t>();
        assert_eq!(uv_write(memory(), stream, &raw const buffer, 1, Some(written)), 0);
        assert_eq!(uv_shutdown(memory(), stream, Some(shut)), 0);
        assert_eq!((*c_loop).active_reqs[0], 4);
        // Refused: it is shut down.
        assert!(uv_write(memory(), stream, &raw const buffer, 1, Some(written)) < 0);

        let pipe = memory::<uv_pipe_t>();
        uv_pipe_init(c_loop, pipe, 0);
        uv_pipe_connect(memory(), pipe, c"/none/such".as_ptr(), Some(connected));
        let (udp, address) = (memory::<uv_udp_t>(), memory());
        uv_udp_init(c_loop, udp);
        uv_ip4_addr(c"127.0.0.1".as_ptr(), 9, address);
        let to = address.cast_const().cast();
        assert_eq!(uv_udp_send(memory(), udp, &raw const buffer, 1, to, Some(sent)), 0);
        assert_eq!((*c_loop).active_reqs[0], 6);

        assert_eq!(uv_run(c_loop, 0), 0);
        assert_eq!((left, (*c_loop).active_reqs[0]), (0, 0));
        for handle in [stream.cast::<uv_handle_t>(), pipe.cast(), udp.cast()] {
            uv_close(handle, None);
        }
        assert_eq!((uv_run(c_loop, 0), uv_loop_close(c_loop)), (0, 0));
        let mut received = String::new();
        theirs.read_to_string(&mut received).unwrap();
        assert_eq!(received, "text");
    }
}
