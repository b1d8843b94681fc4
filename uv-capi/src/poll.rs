//! Poll handles: readiness of descriptors that the program reads and writes itself.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use libc::{EBADF, EEXIST, EINVAL};
use uv_core::poll_core::RawSource;
use uv_core::{Handle as _, Poll, PollEvents};

use crate::descriptors::{is_watched, take_place};
use crate::errors::{code, status};
use crate::event_loop::{core, enter, sync};
use crate::handle::{core_of, init, is_closing, key, kind, loop_of};
use crate::layout::{uv_loop_t, uv_poll_cb, uv_poll_t};

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_poll_init(
    c_loop: *mut uv_loop_t,
    poll: *mut uv_poll_t,
    fd: c_int,
) -> c_int {
    if fd < 0 {
        return -EBADF;
    }
    if is_watched(c_loop, fd) {
        return -EEXIST;
    }
    let source = RawSource::of(&BorrowedFd::borrow_raw(fd));
    match Poll::from_raw_source(core(c_loop), source) {
        Ok(key) => {
            init(c_loop, poll, kind::POLL, key);
            (*poll).poll_cb = None;
            (*poll).io_watcher = [fd as u64, 0, 0, 0, 0, 0, 0];
            0
        }
        Err(error) => code(&error),
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_poll_init_socket(
    c_loop: *mut uv_loop_t,
    poll: *mut uv_poll_t,
    socket: c_int,
) -> c_int {
    uv_poll_init(c_loop, poll, socket)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_poll_start(
    poll: *mut uv_poll_t,
    events: c_int,
    callback: uv_poll_cb,
) -> c_int {
    let Some(events) = u8::try_from(events).ok().and_then(PollEvents::from_bits) else {
        return -EINVAL;
    };
    if is_closing(poll) {
        return -EINVAL;
    }
    let (c_loop, key) = (loop_of(poll), key::<Poll, _>(poll));
    let is_active = key.is_active(core(c_loop));
    if !is_active && is_watched(c_loop, (*poll).io_watcher[0] as c_int) {
        return -EEXIST;
    }
    (*poll).poll_cb = callback;
    let result = key.start(core(c_loop), events, move |lp, _, result| {
        let (status, events) = match result {
            Ok(events) => (0, c_int::from(events.bits())),
            Err(error) => (code(&error), 0),
        };
        if let Some(callback) = (*poll).poll_cb {
            enter(c_loop, lp, || callback(poll, status, events));
        }
    });
    if !is_active && result.is_ok() {
        take_place(poll);
    }
    sync(c_loop);
    status(result)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_poll_stop(poll: *mut uv_poll_t) -> c_int {
    if is_closing(poll) {
        return 0;
    }
    let result = key::<Poll, _>(poll).stop(core_of(poll));
    sync(loop_of(poll));
    status(result)
}
