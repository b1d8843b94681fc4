//! The functions that a program may call without owning the loop: `uv_async_send` from threads and from
//! a signal handler, against a close, and `uv_metrics_idle_time`. Miri and ThreadSanitizer run this,
//! too.

#![cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::thread;

use uv_capi::async_handle::{uv_async_init, uv_async_send};
use uv_capi::event_loop::*;
use uv_capi::handle::uv_close;
use uv_capi::layout::{uv_async_t, uv_loop_t, uv_timer_t};
use uv_capi::timer::{uv_timer_init, uv_timer_start};

const DEFAULT: c_int = 0;
const ROUNDS: usize = if cfg!(miri) { 2 } else { 100 };
const SENDERS: usize = 3;

/// The handle that the signal handler sends to.
static SIGNALLED: AtomicPtr<uv_async_t> = AtomicPtr::new(null_mut());
static SENT: AtomicU32 = AtomicU32::new(0);
static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn send_to_it(_: c_int) {
    let handle = SIGNALLED.load(Ordering::Acquire);
    if !handle.is_null() {
        // SAFETY: the handle's memory is freed after the last signal.
        unsafe { uv_async_send(handle) };
        SENT.fetch_add(1, Ordering::Relaxed);
    }
}

unsafe extern "C" fn close_after_some(handle: *mut uv_async_t) {
    // SAFETY: `data` is the counter of the test.
    unsafe {
        let calls = (*handle).base.data.cast::<u32>();
        *calls += 1;
        if *calls == 3 {
            uv_close(handle.cast(), None);
        }
    }
}

/// Runs a loop whose handle gets sends from `senders`, which end when the loop has ended.
fn round(senders: impl Fn(usize) + Sync) {
    let (mut c_loop, mut handle) = (
        Box::new(MaybeUninit::<uv_loop_t>::zeroed()),
        Box::new(MaybeUninit::<uv_async_t>::zeroed()),
    );
    let (c_loop, handle) = (c_loop.as_mut_ptr(), handle.as_mut_ptr());
    let mut calls = 0u32;
    // SAFETY: the threads end before the memory is freed.
    unsafe {
        assert_eq!(uv_loop_init(c_loop), 0);
        assert_eq!(uv_async_init(c_loop, handle, Some(close_after_some)), 0);
        (*handle).base.data = (&raw mut calls).cast();
        SIGNALLED.store(handle, Ordering::Release);
        STOP.store(false, Ordering::Release);
        let (address, senders) = (handle as usize, &senders);
        thread::scope(|scope| {
            for _ in 0..SENDERS {
                scope.spawn(move || senders(address));
            }
            uv_run(c_loop, DEFAULT);
            STOP.store(true, Ordering::Release);
        });
        SIGNALLED.store(null_mut(), Ordering::Release);
        assert_eq!(calls, 3);
        assert_eq!(uv_loop_close(c_loop), 0);
    }
}

#[test]
fn threads_and_a_signal_handler_send_while_the_handle_is_closed() {
    for _ in 0..ROUNDS {
        round(|address| {
            while !STOP.load(Ordering::Acquire) {
                // SAFETY: the memory outlives the thread.
                unsafe { uv_async_send(address as *mut uv_async_t) };
                thread::yield_now();
            }
        });
    }
    if cfg!(miri) {
        return; // Miri has no signals.
    }
    // SAFETY: the handler calls what may be called in one.
    unsafe { libc::signal(libc::SIGUSR1, send_to_it as extern "C" fn(c_int) as usize) };
    for _ in 0..ROUNDS {
        round(|_| {
            while !STOP.load(Ordering::Acquire) {
                // SAFETY: the signal has a handler, which runs on this thread.
                unsafe { libc::raise(libc::SIGUSR1) };
                thread::yield_now();
            }
        });
    }
    assert!(SENT.load(Ordering::Relaxed) > 0);
}

unsafe extern "C" fn expired(timer: *mut uv_timer_t) {
    // SAFETY: `data` is the counter of the test.
    unsafe {
        let calls = (*timer).base.data.cast::<usize>();
        *calls += 1;
        if *calls < ROUNDS {
            assert_eq!(uv_timer_start(timer, Some(expired), 1, 0), 0);
        } else {
            uv_close(timer.cast(), None);
        }
    }
}

#[test]
fn threads_read_the_idle_time_of_a_running_loop() {
    const UV_METRICS_IDLE_TIME: c_int = 1;
    let mut c_loop = Box::new(MaybeUninit::<uv_loop_t>::zeroed());
    let mut timer = Box::new(MaybeUninit::<uv_timer_t>::zeroed());
    let (c_loop, timer) = (c_loop.as_mut_ptr(), timer.as_mut_ptr());
    let (mut calls, ended) = (0usize, AtomicBool::new(false));
    // SAFETY: the thread ends before the loop is closed.
    unsafe {
        assert_eq!(uv_loop_init(c_loop), 0);
        assert_eq!(uv_loop_configure(c_loop, UV_METRICS_IDLE_TIME, 0), 0);
        assert_eq!(uv_timer_init(c_loop, timer), 0);
        (*timer).base.data = (&raw mut calls).cast();
        let (address, ended) = (c_loop as usize, &ended);
        thread::scope(|scope| {
            scope.spawn(move || {
                while !ended.load(Ordering::Acquire) {
                    uv_metrics_idle_time(address as *mut uv_loop_t);
                    thread::yield_now();
                }
            });
            assert_eq!(uv_timer_start(timer, Some(expired), 1, 0), 0);
            assert_eq!(uv_run(c_loop, DEFAULT), 0);
            ended.store(true, Ordering::Release);
        });
        assert!(uv_metrics_idle_time(c_loop) > 0, "it has waited for the timer");
        assert_eq!(uv_loop_close(c_loop), 0);
    }
    assert_eq!(calls, ROUNDS);
}
