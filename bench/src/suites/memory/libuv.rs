//! Handles of libuv: memory of the program, and allocations of libuv.

use std::ffi::c_int;
use std::io;

use super::taken;
use crate::libuv::{self, Loop, Memory, sys};
use crate::suite::{Reading, Sample};

pub(super) fn handles(count: u64) -> io::Result<Sample> {
    const AN_HOUR_MS: u64 = 3_600_000;
    let timers = each(count, |lp, timer: *mut sys::uv_timer_t| {
        // SAFETY: the memory outlives the loop.
        let made = unsafe { sys::uv_timer_init(lp, timer) };
        // SAFETY: the handle is initialised.
        made.min(unsafe { sys::uv_timer_start(timer, Some(on_timer), AN_HOUR_MS, 0) })
    })?;
    let idles = each(count, |lp, idle: *mut sys::uv_idle_t| {
        // SAFETY: the memory outlives the loop.
        let made = unsafe { sys::uv_idle_init(lp, idle) };
        // SAFETY: the handle is initialised.
        made.min(unsafe { sys::uv_idle_start(idle, Some(on_idle)) })
    })?;
    let asyncs = each(count, |lp, handle: *mut sys::uv_async_t| {
        // SAFETY: the memory outlives the loop.
        unsafe { sys::uv_async_init(lp, handle, Some(on_async)) }
    })?;
    let tcps = each(count, |lp, tcp: *mut sys::uv_tcp_t| {
        // SAFETY: the memory outlives the loop.
        unsafe { sys::uv_tcp_init(lp, tcp) }
    })?;
    let udps = each(count, |lp, udp: *mut sys::uv_udp_t| {
        // SAFETY: the memory outlives the loop.
        unsafe { sys::uv_udp_init(lp, udp) }
    })?;
    Ok(Sample::new([timers, idles, asyncs, tcps, udps]))
}

/// Creates `count` handles on a new loop.
fn each<T: Copy>(
    count: u64,
    make: impl Fn(*mut sys::uv_loop_t, *mut T) -> c_int,
) -> io::Result<Reading> {
    let mut memory = None;
    let lp = Loop::new()?;
    let reading = taken(count, || {
        let memory = memory.insert(Memory::<T>::new(count as usize));
        memory.iter().try_for_each(|place| libuv::check(make(lp.raw(), place)))
    });
    // The loop is dropped before the memory of its handles.
    drop(lp);
    reading
}

unsafe extern "C" fn on_timer(_: *mut sys::uv_timer_t) {}
unsafe extern "C" fn on_idle(_: *mut sys::uv_idle_t) {}
unsafe extern "C" fn on_async(_: *mut sys::uv_async_t) {}
