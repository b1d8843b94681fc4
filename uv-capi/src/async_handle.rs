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
    if senders.fetch_add(1, Ordering::AcqRel) < 0 {
        senders.fetch_sub(1, Ordering::AcqRel);
        return 0;
    }
    let result = (*sender(handle)).send();
    senders.fetch_sub(1, Ordering::AcqRel);
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

pub(crate) unsafe fn drop_sender(handle: *mut uv_async_t) {
    std::ptr::drop_in_place(sender(handle));
}
