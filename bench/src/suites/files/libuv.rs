//! File requests of libuv, on its pool of 4 threads.

use std::ffi::{CString, c_int};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{IN_FLIGHT, PIECE, Request, place};
use crate::clock::Stopwatch;
use crate::libuv::{self, Loop, Memory, sys};
use crate::suite::{Reading, Sample};

/// The state shared by all requests.
struct Work {
    fd: c_int,
    path: CString,
    request: Request,
    /// The number of requests left to start, and the number with a correct result.
    left: u64,
    done: u64,
}

/// A request and its buffer; the request is the first field.
#[repr(C)]
#[derive(Clone, Copy)]
struct Slot {
    raw: sys::uv_fs_t,
    buffer: [u8; PIECE],
}

pub(super) fn run(path: io::Result<&Path>, request: Request, count: u64) -> io::Result<Sample> {
    let path = path?;
    let file = std::fs::File::open(path)?;
    let path = CString::new(path.as_os_str().as_bytes())?;
    let slots = Memory::<Slot>::new(IN_FLIGHT as usize);
    let work = Work { fd: file.as_raw_fd(), path, request, left: count, done: 0 };
    let work = Box::into_raw(Box::new(work));
    let lp = Loop::new()?;
    let watch = Stopwatch::start();
    for slot in slots.iter() {
        // SAFETY: the memory belongs to the request.
        unsafe { (*slot).raw.data = work.cast() };
        start(lp.raw(), slot)?;
    }
    lp.run();
    let spent = watch.spent();
    drop(lp);
    // SAFETY: no request in flight uses it.
    let work = unsafe { Box::from_raw(work) };
    Ok(Sample::new([Reading { count: work.done, spent }; 2]))
}

fn start(lp: *mut sys::uv_loop_t, slot: *mut Slot) -> io::Result<()> {
    // SAFETY: the slot's memory is valid.
    let work = unsafe { (*slot).raw.data }.cast::<Work>();
    // SAFETY: it outlives the loop, and only this thread uses it.
    let work = unsafe { &mut *work };
    let Some(left) = work.left.checked_sub(1) else { return Ok(()) };
    work.left = left;
    let raw = slot.cast::<sys::uv_fs_t>();
    if work.request == Request::Stat {
        // SAFETY: the request is not in use, and outlives the loop.
        return libuv::check(unsafe { sys::uv_fs_stat(lp, raw, work.path.as_ptr(), Some(done)) });
    }
    // SAFETY: the slot's memory is valid, and its buffer not in use.
    let base = unsafe { &raw mut (*slot).buffer };
    // SAFETY: the call only constructs a value.
    let buf = unsafe { sys::uv_buf_init(base.cast(), PIECE as u32) };
    let at = place(left) as i64;
    // SAFETY: the request is not in use; it and its buffer outlive the loop.
    libuv::check(unsafe { sys::uv_fs_read(lp, raw, work.fd, &buf, 1, at, Some(done)) })
}

unsafe extern "C" fn done(raw: *mut sys::uv_fs_t) {
    // SAFETY: libuv passes a valid request.
    let of = unsafe { &*raw };
    let (lp, work, result) = (of.loop_, of.data.cast::<Work>(), of.result);
    let size = of.statbuf.st_size;
    // SAFETY: it outlives the loop, and only this thread uses it.
    let work = unsafe { &mut *work };
    let right = match work.request {
        Request::Read | Request::ReadOnThread => usize::try_from(result) == Ok(PIECE),
        Request::Stat => result == 0 && size > 0,
    };
    work.done += u64::from(right);
    // SAFETY: the request has completed.
    unsafe { sys::uv_fs_req_cleanup(raw) };
    // The request is the first field of its slot. A failure makes the count wrong, which the check
    // reports.
    let _ = start(lp, raw.cast());
}
