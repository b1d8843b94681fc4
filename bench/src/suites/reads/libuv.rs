//! Reads of libuv, on its pool of 4 threads.
//!
//! Its best: what it does unless it is asked for more. Compared with its ring (`libuv-uring`), which
//! has a kernel thread that polls for submissions (`SQPOLL`) and therefore an idle core to itself.

use std::ffi::c_int;
use std::io;
use std::os::fd::AsRawFd;

use super::job::{Job, PIECE, Page, Part};
use crate::clock::Stopwatch;
use crate::libuv::{self, Loop, Memory, sys};
use crate::suite::{ContestantId, Entrants, Sample};

#[cfg(target_os = "linux")]
const RING: ContestantId = ContestantId::Peer("libuv-uring");

/// A request, its part of the file and its memory; the request is the first field.
#[repr(C)]
#[derive(Clone, Copy)]
struct Slot {
    raw: sys::uv_fs_t,
    page: Page,
    part: Part,
    fd: c_int,
}

pub(super) fn enter(entrants: &mut Entrants, job: &Job) {
    job.enter(entrants, ContestantId::Peer("libuv"), |job| run(job, Loop::new));
    #[cfg(target_os = "linux")]
    match std::env::var("UV_USE_IO_URING").as_deref() {
        Ok("1") => job.enter(entrants, RING, |job| run(job, Loop::with_ring)),
        _ => entrants.skip(RING, "libuv uses its ring only if UV_USE_IO_URING=1 is set"),
    }
}

fn run(job: &Job, make: impl FnOnce() -> io::Result<Loop>) -> io::Result<Sample> {
    let file = job.open()?;
    let slots = Memory::<Slot>::new(job.depth);
    let lp = make()?;
    let watch = Stopwatch::start();
    for (number, slot) in slots.iter().enumerate() {
        // SAFETY: the memory belongs to the slot.
        unsafe { (*slot).part = job.part(number) };
        // SAFETY: the memory belongs to the slot.
        unsafe { (*slot).fd = file.as_raw_fd() };
        start(lp.raw(), slot)?;
    }
    lp.run();
    let spent = watch.spent();
    drop(lp);
    // SAFETY: no request in flight uses the slots, and every part was written.
    let done = slots.iter().map(|slot| unsafe { (*slot).part }.done).sum();
    Ok(job.sample(done, spent))
}

/// Starts the next read of a slot, if it has one.
fn start(lp: *mut sys::uv_loop_t, slot: *mut Slot) -> io::Result<()> {
    // SAFETY: the slot's memory is valid and its part written.
    let Some(offset) = unsafe { (*slot).part }.offset() else { return Ok(()) };
    // SAFETY: the slot's memory is valid, and its page not in use.
    let base = unsafe { &raw mut (*slot).page };
    // SAFETY: the call only constructs a value.
    let buf = unsafe { sys::uv_buf_init(base.cast(), PIECE as u32) };
    // SAFETY: the slot's memory is valid.
    let fd = unsafe { (*slot).fd };
    // SAFETY: the request is not in use; it and its page outlive the loop.
    libuv::check(unsafe {
        sys::uv_fs_read(lp, slot.cast(), fd, &buf, 1, offset as i64, Some(done))
    })
}

unsafe extern "C" fn done(raw: *mut sys::uv_fs_t) {
    // SAFETY: libuv passes a valid request.
    let of = unsafe { &*raw };
    let (lp, result) = (of.loop_, of.result);
    // The request is the first field of its slot.
    let slot = raw.cast::<Slot>();
    // SAFETY: the request has completed.
    unsafe { sys::uv_fs_req_cleanup(raw) };
    // SAFETY: the slot outlives the loop, and only this thread uses it now.
    let of = unsafe { &mut *slot };
    let count = usize::try_from(result).unwrap_or(0);
    of.part.got(&of.page.0[..count]);
    // A failure makes the count wrong, which the check reports.
    let _ = start(lp, slot);
}
