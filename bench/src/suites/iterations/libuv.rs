//! Iterations of libuv.

use std::ffi::c_int;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use super::Registered;
use crate::clock::Stopwatch;
use crate::libuv::{self, Loop, Memory, sys};
use crate::suite::{Reading, Sample};

/// The data of the idle handle.
struct Iterations {
    counted: u64,
    wanted: u64,
}

pub(super) fn run(registered: Registered, wanted: u64) -> io::Result<Sample> {
    let (idle, poll) = (Memory::<sys::uv_idle_t>::new(1), Memory::<sys::uv_poll_t>::new(1));
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let lp = Loop::new()?;
    if registered == Registered::QuietSocket {
        // SAFETY: the memory and the socket outlive the loop.
        let code = unsafe { sys::uv_poll_init(lp.raw(), poll.first(), socket.as_raw_fd()) };
        libuv::check(code)?;
        let readable = sys::uv_poll_event_UV_READABLE as c_int;
        // SAFETY: the handle is initialised.
        libuv::check(unsafe { sys::uv_poll_start(poll.first(), readable, Some(ready)) })?;
    }
    let iterations = Box::into_raw(Box::new(Iterations { counted: 0, wanted }));
    // SAFETY: the memory outlives the loop.
    libuv::check(unsafe { sys::uv_idle_init(lp.raw(), idle.first()) })?;
    // SAFETY: the handle is initialised.
    unsafe { (*idle.first()).data = iterations.cast() };
    // SAFETY: the handle is initialised, and the data outlives its use.
    libuv::check(unsafe { sys::uv_idle_start(idle.first(), Some(iterated)) })?;
    let watch = Stopwatch::start();
    lp.run();
    let spent = watch.spent();
    // SAFETY: the handle is initialised.
    unsafe { sys::uv_idle_stop(idle.first()) };
    // SAFETY: the stopped handle no longer uses it.
    let iterations = unsafe { Box::from_raw(iterations) };
    Ok(Sample::new([Reading { count: iterations.counted, spent }]))
}

unsafe extern "C" fn ready(_: *mut sys::uv_poll_t, _: c_int, _: c_int) {}

unsafe extern "C" fn iterated(idle: *mut sys::uv_idle_t) {
    // SAFETY: libuv passes a valid handle.
    let idle = unsafe { &*idle };
    // SAFETY: the data was set before the start and lives until the stop.
    let iterations = unsafe { &mut *idle.data.cast::<Iterations>() };
    iterations.counted += 1;
    if iterations.counted == iterations.wanted {
        // SAFETY: the loop is running.
        unsafe { sys::uv_stop(idle.loop_) };
    }
}
