//! Work requests of libuv. Its pool has 4 threads, unless `UV_THREADPOOL_SIZE` is set.

use std::ffi::c_int;
use std::io;

use super::IN_FLIGHT;
use crate::clock::Stopwatch;
use crate::libuv::{self, Loop, Memory, sys};
use crate::suite::{Reading, Sample};

/// The number of jobs left to queue, and the number that completed.
struct Progress {
    left: u64,
    done: u64,
}

pub(super) fn run(jobs: u64) -> io::Result<Sample> {
    let requests = Memory::<sys::uv_work_t>::new(IN_FLIGHT as usize);
    let progress = Box::into_raw(Box::new(Progress { left: jobs, done: 0 }));
    let lp = Loop::new()?;
    let watch = Stopwatch::start();
    for request in requests.iter() {
        // SAFETY: the memory belongs to the request.
        unsafe { (*request).data = progress.cast() };
        queue(lp.raw(), request)?;
    }
    lp.run();
    let spent = watch.spent();
    drop(lp);
    // SAFETY: no request in flight uses it.
    let progress = unsafe { Box::from_raw(progress) };
    Ok(Sample::new([Reading { count: progress.done, spent }; 2]))
}

fn queue(lp: *mut sys::uv_loop_t, request: *mut sys::uv_work_t) -> io::Result<()> {
    // SAFETY: the request's memory is valid.
    let progress = unsafe { (*request).data }.cast::<Progress>();
    // SAFETY: the progress outlives the loop, and only this thread uses it.
    let progress = unsafe { &mut *progress };
    let Some(left) = progress.left.checked_sub(1) else { return Ok(()) };
    progress.left = left;
    // SAFETY: the request is not in use, and outlives the loop.
    libuv::check(unsafe { sys::uv_queue_work(lp, request, Some(work), Some(done)) })
}

unsafe extern "C" fn work(_: *mut sys::uv_work_t) {}

unsafe extern "C" fn done(request: *mut sys::uv_work_t, status: c_int) {
    // SAFETY: libuv passes a valid request.
    let of = unsafe { &*request };
    let (lp, progress) = (of.loop_, of.data.cast::<Progress>());
    // SAFETY: the progress outlives the loop, and only this thread uses it.
    unsafe { (*progress).done += u64::from(status == 0) };
    // A failure makes the count wrong, which the check reports.
    let _ = queue(lp, request);
}
