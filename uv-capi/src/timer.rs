//! Timers.

use std::ffi::c_int;
use std::io;
use std::time::Duration;

use libc::EINVAL;
use uv_core::Timer;

use crate::errors::status;
use crate::event_loop::{core, enter, sync, uv_now};
use crate::handle::{core_of, init, is_closing, key, kind, loop_of};
use crate::layout::{Callback, uv_loop_t, uv_timer_t};

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_timer_init(c_loop: *mut uv_loop_t, timer: *mut uv_timer_t) -> c_int {
    let key = Timer::new(core(c_loop));
    init(c_loop, timer, kind::TIMER, key);
    (*timer).timer_cb = None;
    (*timer).timeout = 0;
    (*timer).repeat = 0;
    0
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_timer_start(
    timer: *mut uv_timer_t,
    callback: Callback<uv_timer_t>,
    timeout: u64,
    repeat: u64,
) -> c_int {
    if is_closing(timer) || callback.is_none() {
        return -EINVAL;
    }
    let c_loop = loop_of(timer);
    let had_callback = std::mem::replace(&mut (*timer).timer_cb, callback).is_some();
    let had_repeat = std::mem::replace(&mut (*timer).repeat, repeat);
    keep_far_deadline(timer, timeout);
    let (key, lp) = (key::<Timer, _>(timer), core(c_loop));
    let result = if had_callback && repeat == had_repeat {
        key.restart_in_nanos(lp, timeout.saturating_mul(1_000_000))
    } else {
        start(timer, had_callback, timeout)
    };
    sync(c_loop);
    status(result)
}

/// Starts a timer for the first time, or with another repeat time.
#[inline(never)]
unsafe fn start(timer: *mut uv_timer_t, had_callback: bool, timeout: u64) -> io::Result<()> {
    let c_loop = loop_of(timer);
    let timeout = Duration::from_millis(timeout);
    let repeat = Duration::from_millis((*timer).repeat);
    let (key, lp) = (key::<Timer, _>(timer), core(c_loop));
    if had_callback {
        return key.restart(lp, timeout, repeat);
    }
    key.start(lp, timeout, repeat, move |lp, _| {
        if let Some(callback) = (*timer).timer_cb {
            enter(c_loop, lp, || callback(timer));
        }
    })
}

/// Beyond this, in milliseconds, the loop's nanoseconds are not exact: 36 years.
const FAR: u64 = 1 << 40;

/// Keeps a deadline that is too far for the loop's nanoseconds, for `uv_timer_get_due_in`.
unsafe fn keep_far_deadline(timer: *mut uv_timer_t, timeout: u64) {
    if timeout > FAR {
        (*timer).timeout = uv_now(loop_of(timer)).saturating_add(timeout);
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_timer_stop(timer: *mut uv_timer_t) -> c_int {
    if is_closing(timer) {
        return 0;
    }
    let result = key::<Timer, _>(timer).stop(core_of(timer));
    sync(loop_of(timer));
    status(result)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_timer_again(timer: *mut uv_timer_t) -> c_int {
    if (*timer).timer_cb.is_none() {
        return -EINVAL;
    }
    if is_closing(timer) {
        return 0;
    }
    let c_loop = loop_of(timer);
    keep_far_deadline(timer, (*timer).repeat);
    let result = key::<Timer, _>(timer).again(core(c_loop));
    sync(c_loop);
    status(result)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_timer_set_repeat(timer: *mut uv_timer_t, repeat: u64) {
    (*timer).repeat = repeat;
    // A handle that is closing does not repeat.
    let _ = key::<Timer, _>(timer).set_repeat(core_of(timer), Duration::from_millis(repeat));
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_timer_get_repeat(timer: *const uv_timer_t) -> u64 {
    (*timer).repeat
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_timer_get_due_in(timer: *const uv_timer_t) -> u64 {
    match key::<Timer, _>(timer).due_in(core_of(timer)) {
        None => 0,
        Some(due) if due.as_millis() > FAR.into() => {
            (*timer).timeout.saturating_sub(uv_now(loop_of(timer)))
        }
        Some(due) => due.as_nanos().div_ceil(1_000_000) as u64,
    }
}
