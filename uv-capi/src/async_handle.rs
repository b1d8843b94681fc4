//! Async handles: wake-ups from other threads and signal handlers.

use std::ffi::c_int;
use std::io::ErrorKind;
use std::ptr::addr_of_mut;
use std::sync::atomic::{AtomicI32, Ordering};

use uv_core::{Async, AsyncSender};

use crate::errors::code;
use crate::event_loop::{core, enter};
use crate::handle::{init, kind, loop_of};
use crate::layout::{Callback, uv_async_t, uv_loop_t};

const _: () = assert!(size_of::<AsyncSender>() <= size_of::<[usize; 2]>());

/// The sender lives in the struct, from the init to the close callback.
unsafe fn sender(handle: *mut uv_async_t) -> *mut AsyncSender {
    addr_of_mut!((*handle).sender).cast()
}

/// Set by the close: a send after it does nothing, as long as the program keeps the memory.
const CLOSED: i32 = i32::MIN;

/// The number of threads that are inside `uv_async_send`, and [`CLOSED`].
unsafe fn senders<'a>(handle: *mut uv_async_t) -> &'a AtomicI32 {
    AtomicI32::from_ptr(addr_of_mut!((*handle).pending))
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_async_init(
    c_loop: *mut uv_loop_t,
    handle: *mut uv_async_t,
    callback: Callback<uv_async_t>,
) -> c_int {
    (*handle).async_cb = callback;
    (*handle).pending = 0;
    let (key, own) = Async::new(core(c_loop), move |lp, _| {
        if let Some(callback) = (*handle).async_cb {
            enter(loop_of(handle), lp, || callback(handle));
        }
    });
    sender(handle).write(own);
    init(c_loop, handle, kind::ASYNC, key);
    0
}

/// Callable by any thread and by signal handlers, until the memory of the handle is reused.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_async_send(handle: *mut uv_async_t) -> c_int {
    let senders = senders(handle);
    // Not an addition: the close waits for the threads that were inside, and no later one delays it.
    let enter = |now: i32| (now >= 0).then_some(now + 1);
    if senders.fetch_update(Ordering::Acquire, Ordering::Relaxed, enter).is_err() {
        return 0;
    }
    let result = (*sender(handle)).send();
    senders.fetch_sub(1, Ordering::Release);
    match result {
        Ok(()) => 0,
        // The handle is closing: as libuv, nothing happens.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => 0,
        Err(error) => code(&error),
    }
}

/// Waits until no thread uses the sender, as libuv's close does. None will use it again.
pub(crate) unsafe fn wait_for_senders(handle: *mut uv_async_t) {
    senders(handle).fetch_or(CLOSED, Ordering::AcqRel);
    while senders(handle).load(Ordering::Acquire) != CLOSED {
        std::thread::yield_now();
    }
}

/// Forgets threads that were inside `uv_async_send` when the process was forked: they do not exist in
/// the child, and a close would wait for them forever.
pub(crate) unsafe fn forget_senders(handle: *mut uv_async_t) {
    senders(handle).fetch_and(CLOSED, Ordering::AcqRel);
}

pub(crate) unsafe fn drop_sender(handle: *mut uv_async_t) {
    std::ptr::drop_in_place(sender(handle));
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;
    use crate::event_loop::{uv_loop_close, uv_loop_fork, uv_loop_init, uv_run};
    use crate::handle::uv_close;
    use crate::layout::uv_handle_t;

    unsafe extern "C" fn closed(handle: *mut uv_handle_t) {
        // SAFETY: `data` is the counter of the test.
        unsafe { *(*handle).data.cast::<u32>() += 1 };
    }

    /// A thread that was inside `uv_async_send` when the process was forked is not there in the
    /// child, where a close must not wait for it.
    #[test]
    fn a_child_does_not_wait_for_threads_of_its_parent() {
        let mut c_loop = Box::new(MaybeUninit::<uv_loop_t>::zeroed());
        let mut handle = Box::new(MaybeUninit::<uv_async_t>::zeroed());
        let (c_loop, handle) = (c_loop.as_mut_ptr(), handle.as_mut_ptr());
        let mut calls = 0u32;
        // SAFETY: the memory outlives the loop.
        unsafe {
            assert_eq!(uv_loop_init(c_loop), 0);
            assert_eq!(uv_async_init(c_loop, handle, None), 0);
            (*handle).base.data = (&raw mut calls).cast();
            // As a thread leaves it that does not return from a send.
            (*handle).pending = 1;
            assert_eq!(uv_loop_fork(c_loop), 0);
            uv_close(handle.cast(), Some(closed));
            assert_eq!(uv_run(c_loop, 0), 0);
            assert_eq!(uv_loop_close(c_loop), 0);
        }
        assert_eq!(calls, 1);
    }
}
