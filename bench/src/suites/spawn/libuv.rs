//! Process handles of libuv.

use std::ffi::{CString, c_char, c_int};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use crate::clock::Stopwatch;
use crate::libuv::{self, Loop, Memory, sys};
use crate::suite::{Reading, Sample};

/// The state shared by all children.
struct Work {
    program: CString,
    arguments: [*mut c_char; 2],
    /// The number of children left to start, and the number that exited successfully.
    left: u64,
    done: u64,
}

pub(super) fn run(program: &Path, children: u64) -> io::Result<Sample> {
    let process = Memory::<sys::uv_process_t>::new(1);
    let program = CString::new(program.as_os_str().as_bytes())?;
    let arguments = [program.as_ptr().cast_mut(), ptr::null_mut()];
    let work = Box::into_raw(Box::new(Work { program, arguments, left: children, done: 0 }));
    let lp = Loop::new()?;
    let watch = Stopwatch::start();
    // SAFETY: the memory belongs to the handle.
    unsafe { (*process.first()).data = work.cast() };
    spawn(lp.raw(), process.first())?;
    lp.run();
    let spent = watch.spent();
    drop(lp);
    // SAFETY: no open handle uses it.
    let work = unsafe { Box::from_raw(work) };
    Ok(Sample::new([Reading { count: work.done, spent }; 2]))
}

fn spawn(lp: *mut sys::uv_loop_t, process: *mut sys::uv_process_t) -> io::Result<()> {
    // SAFETY: the handle's memory is valid.
    let data = unsafe { (*process).data };
    // SAFETY: it outlives the loop, and only this thread uses it.
    let work = unsafe { &mut *data.cast::<Work>() };
    let Some(left) = work.left.checked_sub(1) else { return Ok(()) };
    work.left = left;
    // SAFETY: plain data; all zeros are the default options.
    let mut options: sys::uv_process_options_t = unsafe { MaybeUninit::zeroed().assume_init() };
    options.file = work.program.as_ptr();
    options.args = work.arguments.as_mut_ptr();
    options.exit_cb = Some(ended);
    // SAFETY: the handle is not in use, and the options refer to memory that outlives the call.
    let code = unsafe { sys::uv_spawn(lp, process, &raw const options) };
    // SAFETY: the handle's memory is valid; `uv_spawn` may have written over it.
    unsafe { (*process).data = data };
    libuv::check(code)
}

unsafe extern "C" fn ended(process: *mut sys::uv_process_t, status: i64, signal: c_int) {
    // SAFETY: libuv passes a valid handle.
    let data = unsafe { (*process).data };
    // SAFETY: it outlives the loop, and only this thread uses it.
    let work = unsafe { &mut *data.cast::<Work>() };
    work.done += u64::from(status == 0 && signal == 0);
    // SAFETY: the handle is open.
    unsafe { sys::uv_close(process.cast(), Some(closed)) };
}

unsafe extern "C" fn closed(handle: *mut sys::uv_handle_t) {
    // SAFETY: libuv passes the closed handle, whose loop is valid.
    let lp = unsafe { (*handle).loop_ };
    // A failure makes the count wrong, which the check reports.
    let _ = spawn(lp, handle.cast());
}
