//! Requests of the thread pool.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::transmute_copy;

use libc::{E2BIG, EBUSY, ECANCELED, EINVAL};
use uv_core::{WorkError, WorkKind, WorkRequest};

use crate::errors::{code, status};
use crate::event_loop::{CoreLoop, begin_request, core, end_request, enter};
use crate::layout::*;
use crate::request::kind;

/// A request of the caller, which a thread of the pool may use.
struct Shared<T>(*mut T);

// SAFETY: libuv's contract is that the program does not touch a request between its start and its
// callback; the loop and the pool use it one after the other.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    /// A method, so that a closure captures the wrapper.
    fn get(&self) -> *mut T {
        self.0
    }
}

/// Has `work` run by the pool, then `done` by the loop; true if the request was cancelled.
pub(crate) unsafe fn queue<T: 'static>(
    c_loop: *mut uv_loop_t,
    request: *mut T,
    kind: WorkKind,
    work: unsafe fn(*mut T),
    done: impl FnOnce(&mut CoreLoop, bool) + 'static,
) -> c_int {
    let shared = Shared(request);
    let queued = core(c_loop).queue_work_kind(
        kind,
        move || work(shared.get()),
        move |lp, result| {
            end_request(c_loop);
            done(lp, matches!(result, Err(WorkError::Cancelled)));
        },
    );
    match queued {
        Ok(key) => {
            const { assert!(size_of::<WorkRequest>() == 8) };
            (*request.cast::<uv_req_t>()).reserved[0] = transmute_copy(&key);
            begin_request(c_loop);
            0
        }
        Err(error) => code(&error),
    }
}

/// Cancels a request that no thread has begun.
pub(crate) unsafe fn cancel(c_loop: *mut uv_loop_t, request: *mut uv_req_t) -> c_int {
    let key: WorkRequest = transmute_copy(&(*request).reserved[0]);
    match key.cancel(core(c_loop)) {
        Ok(()) => 0,
        Err(_) => -EBUSY,
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_queue_work(
    c_loop: *mut uv_loop_t,
    request: *mut uv_work_t,
    work: Callback<uv_work_t>,
    after: StatusCallback<uv_work_t>,
) -> c_int {
    if work.is_none() {
        return -EINVAL;
    }
    (*request).base.type_ = kind::WORK;
    (*request).loop_ = c_loop;
    (*request).work_cb = work;
    (*request).after_work_cb = after;
    queue(c_loop, request, WorkKind::Cpu, run_work, move |lp, cancelled| {
        if let Some(after) = (*request).after_work_cb {
            let status = if cancelled { -ECANCELED } else { 0 };
            enter(c_loop, lp, || after(request, status));
        }
    })
}

unsafe fn run_work(request: *mut uv_work_t) {
    if let Some(work) = (*request).work_cb {
        work(request);
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_random(
    c_loop: *mut uv_loop_t,
    request: *mut uv_random_t,
    buffer: *mut c_void,
    length: usize,
    flags: c_uint,
    callback: uv_random_cb,
) -> c_int {
    if length > 0x7fff_ffff {
        return -E2BIG;
    }
    if flags != 0 {
        return -EINVAL;
    }
    if callback.is_none() {
        return fill(buffer, length);
    }
    (*request).base.type_ = kind::RANDOM;
    (*request).loop_ = c_loop;
    (*request).status = 0;
    (*request).buf = buffer;
    (*request).buflen = length;
    (*request).cb = callback;
    queue(c_loop, request, WorkKind::Cpu, run_random, move |lp, cancelled| {
        if cancelled {
            (*request).status = -ECANCELED;
        }
        if let Some(callback) = (*request).cb {
            enter(c_loop, lp, || {
                callback(request, (*request).status, (*request).buf, (*request).buflen)
            });
        }
    })
}

unsafe fn run_random(request: *mut uv_random_t) {
    (*request).status = fill((*request).buf, (*request).buflen);
}

unsafe fn fill(buffer: *mut c_void, length: usize) -> c_int {
    if length == 0 {
        return 0;
    }
    status(uv_core::random::fill(std::slice::from_raw_parts_mut(buffer.cast(), length)))
}
