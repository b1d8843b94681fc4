//! Signals.

use std::ffi::c_int;

use libc::EINVAL;
use uv_core::Signal;

use crate::errors::status;
use crate::event_loop::{CoreLoop, core, enter, sync};
use crate::handle::{core_of, init, is_closing, key, kind, loop_of};
use crate::layout::{StatusCallback, uv_loop_t, uv_signal_t};

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_signal_init(c_loop: *mut uv_loop_t, signal: *mut uv_signal_t) -> c_int {
    let key = Signal::new(core(c_loop));
    init(c_loop, signal, kind::SIGNAL, key);
    (*signal).signal_cb = None;
    (*signal).signum = 0;
    (*signal).caught_signals = 0;
    (*signal).dispatched_signals = 0;
    0
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_signal_start(
    signal: *mut uv_signal_t,
    callback: StatusCallback<uv_signal_t>,
    signum: c_int,
) -> c_int {
    start(signal, callback, signum, false)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_signal_start_oneshot(
    signal: *mut uv_signal_t,
    callback: StatusCallback<uv_signal_t>,
    signum: c_int,
) -> c_int {
    start(signal, callback, signum, true)
}

unsafe fn start(
    signal: *mut uv_signal_t,
    callback: StatusCallback<uv_signal_t>,
    signum: c_int,
    oneshot: bool,
) -> c_int {
    if signum == 0 || is_closing(signal) {
        return -EINVAL;
    }
    let (c_loop, key) = (loop_of(signal), key::<Signal, _>(signal));
    (*signal).signal_cb = callback;
    let caught = move |lp: &mut CoreLoop, key: Signal, number: c_int| {
        if key.signum(lp).is_none() {
            (*signal).signum = 0;
        }
        if let Some(callback) = (*signal).signal_cb {
            enter(c_loop, lp, || callback(signal, number));
        }
    };
    let result = if oneshot {
        key.start_oneshot(core(c_loop), signum, caught)
    } else {
        key.start(core(c_loop), signum, caught)
    };
    if result.is_ok() {
        (*signal).signum = signum;
    }
    sync(c_loop);
    status(result)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_signal_stop(signal: *mut uv_signal_t) -> c_int {
    if is_closing(signal) {
        return 0;
    }
    let result = key::<Signal, _>(signal).stop(core_of(signal));
    (*signal).signum = 0;
    sync(loop_of(signal));
    status(result)
}
