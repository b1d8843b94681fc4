//! Work requests of libuv. Its pool has 4 threads, unless `UV_THREADPOOL_SIZE` says else.

use std::ffi::c_int;
use std::io;

use super::IN_FLIGHT;
use crate::clock::Stopwatch;
use crate::libuv::{self, Loop, Memory, sys};
use crate::suite::{Reading, Sample};

/// How many jobs are still to be queued, and how many have come back.
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
        // SAFETY: the memory is the request's.
        unsafe { (*request).data = progress.cast() };
        queue(lp.raw(), request)?;
    }
    lp.run();
    let spent = watch.spent();
    drop(lp);
    // SAFETY: no request is left that could use it.
    let progress = unsafe { Box::from_raw(progress) };
    Ok(Sample::new([Reading { count: progress.done, spent }; 2]))
}

fn queue(lp: *mut sys::uv_loop_t, request: *mut sys::uv_work_t) -> io::Result<()> {
    // SAFETY: the request's memory is valid.
    let progress = unsafe { (*request).data }.cast::<Progress>();
    // SAFETY: the progress is there until the loop is gone, and used by its thread only.
    let progress = unsafe { &mut *progress };
    let Some(left) = progress.left.checked_sub(1) else { return Ok(()) };
    progress.left = left;
    // SAFETY: the request is not in use, and is there until the loop is gone.
    libuv::check(unsafe { sys::uv_queue_work(lp, request, Some(work), Some(done)) })
}

unsafe extern "C" fn work(_: *mut sys::uv_work_t) {}

unsafe extern "C" fn done(request: *mut sys::uv_work_t, status: c_int) {
    // SAFETY: libuv gives the request.
    let of = unsafe { &*request };
    let (lp, progress) = (of.loop_, of.data.cast::<Progress>());
    // SAFETY: the progress is there until the loop is gone, and used by its thread only.
    unsafe { (*progress).done += u64::from(status == 0) };
    // If this fails the count is wrong, and that is found.
    let _ = queue(lp, request);
}
