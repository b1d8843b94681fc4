//! Writes of streams, from the caller's buffers.
//!
//! Most writes are answers: a read callback makes them, and the kernel takes all bytes at once. Such
//! a write never gets to the loop. It calls back after the read callback, while its memory is in the
//! processor's caches, and a program that recycles it uses the same for the next stream.

use std::ffi::{c_int, c_uint};
use std::io::{self, IoSlice};
use std::mem::transmute_copy;
use std::ptr::{addr_of_mut, null_mut};

use libc::{EAGAIN, EBADF, EINVAL, ENOMEM, EPIPE};
use uv_core::poll_core::{Backend as _, OpKind};
use uv_core::{IoBuf, Pipe, Stream as _, Tcp, Tty, WriteRequest};

use crate::alloc::{allocate, release};
use crate::backend::CallBackend;
use crate::errors::{code, status};
use crate::event_loop::{CoreLoop, begin_request, core, end_request, enter, enter_with};
use crate::handle::{any, core_of, descriptor, is_closing, key, kind, loop_of, misuse};
use crate::layout::*;
use crate::request::kind as request_kind;
use crate::stream::{queued_writes, sync_queue_size, with_stream};

/// As libuv: more buffers are a negative number, and more bytes than the kernel takes.
const MOST_BUFFERS: c_uint = 1 << 20;
const MOST_BYTES: usize = 0x7fff_f000;

/// The word of a request that libuv 1.53 counts written bytes in.
const WRITTEN: usize = 5;
/// The word with the bytes that were written before the request was queued.
const WRITTEN_BEFORE: usize = 4;

/// The number of buffers that a request has a place for.
const SMALL: usize = 4;

/// A larger write in a read callback goes to the loop: the kernel may take a part only.
const MOST_AT_ONCE: usize = 64 * 1024;

/// The writes of the read callback that runs, which have ended and are to call back after it.
pub(crate) struct WrittenInRead {
    /// A read callback runs.
    reads: bool,
    /// The backend does not send the writes of all streams together, which is better.
    by_call: bool,
    /// Linked by `queue.next`.
    first: *mut uv_write_t,
    last: *mut uv_write_t,
}

impl WrittenInRead {
    pub(crate) fn new(backend: &CallBackend) -> WrittenInRead {
        let by_call = !backend.supports(OpKind::Send);
        WrittenInRead { reads: false, by_call, first: null_mut(), last: null_mut() }
    }

    pub(crate) fn has_any(&self) -> bool {
        !self.first.is_null()
    }

    unsafe fn push(&mut self, request: *mut uv_write_t) {
        (*request).queue.next = null_mut();
        if self.first.is_null() {
            self.first = request;
        } else {
            (*self.last).queue.next = request.cast();
        }
        self.last = request;
    }

    unsafe fn pop(&mut self) -> Option<*mut uv_write_t> {
        let first = self.first;
        if first.is_null() {
            return None;
        }
        self.first = (*first).queue.next.cast();
        Some(first)
    }
}

/// The writes of a loop. The reference is used before the next call into C, so no two are live.
#[inline]
unsafe fn written_in_read<'a>(c_loop: *mut uv_loop_t) -> &'a mut WrittenInRead {
    &mut (*(*c_loop).internal_fields).answers
}

/// Calls a read callback, and then those of its writes that have ended.
#[inline(always)] // On the path of every read.
pub(crate) unsafe fn read(c_loop: *mut uv_loop_t, lp: &mut CoreLoop, callback: impl FnOnce()) {
    // The state stays where it is while the loop runs.
    let state = (*c_loop).internal_fields;
    (*state).answers.reads = (*state).answers.by_call;
    enter_with(c_loop, state, lp, callback);
    // What these callbacks write goes to the loop, or they could go on forever.
    (*state).answers.reads = false;
    if !(*state).answers.first.is_null() {
        call_back(c_loop, lp);
    }
}

/// Calls back the writes of a read callback.
unsafe fn call_back(c_loop: *mut uv_loop_t, lp: &mut CoreLoop) {
    while let Some(request) = written_in_read(c_loop).pop() {
        end_request(c_loop);
        if let Some(callback) = (*request).cb {
            enter(c_loop, lp, || callback(request, (*request).error));
        }
    }
}

/// Writes of a read callback: true if the request has ended, and calls back after it. Otherwise the
/// request, which has been filled, is to be queued.
#[inline]
unsafe fn write_at_once(request: *mut uv_write_t, stream: *mut uv_stream_t) -> Result<bool, c_int> {
    let c_loop = loop_of(stream);
    // One that waits, or has ended and not called back, calls back first.
    if !written_in_read(c_loop).reads || *queued_writes(stream) != 0 {
        return Ok(false);
    }
    let buffers = std::slice::from_raw_parts((*request).bufs, (*request).nbufs as usize);
    let total = match buffers {
        [buffer] => buffer.len, // Most writes have one.
        buffers => buffers.iter().map(|buffer| buffer.len).sum(),
    };
    if buffers.len() > SMALL || total == 0 || total > MOST_AT_ONCE {
        return Ok(false);
    }
    // `uv_buf_t` and `IoSlice` have the layout of `iovec`.
    let slices = std::slice::from_raw_parts(buffers.as_ptr().cast::<IoSlice<'_>>(), buffers.len());
    let lp = core(c_loop);
    let written = match with_stream!(stream, key => key.try_write_vectored(lp, slices)) {
        Ok(written) => written,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
        Err(error) => match check(stream, null_mut()) {
            // The connection has failed, which the callback reports.
            0 => {
                (*request).error = code(&error);
                0
            }
            refused => return Err(refused),
        },
    };
    if written < total && (*request).error == 0 {
        skip(request, written);
        return Ok(false);
    }
    (*request).base.reserved[WRITTEN] = written as u64;
    (*request).bufs = null_mut();
    written_in_read(c_loop).push(request);
    begin_request(c_loop);
    Ok(true)
}

/// Takes bytes that were written from the copied list of buffers.
#[cold]
unsafe fn skip(request: *mut uv_write_t, written: usize) {
    (*request).base.reserved[WRITTEN_BEFORE] = written as u64;
    let mut left = written;
    for index in 0..(*request).nbufs as usize {
        let buffer = &mut (*request).bufsml[index];
        let skipped = left.min(buffer.len);
        buffer.base = buffer.base.wrapping_byte_add(skipped);
        buffer.len -= skipped;
        left -= skipped;
    }
}

/// The buffers of a request.
struct WriteBuffers(*mut uv_write_t);

// SAFETY: libuv's contract is that the request and the memory of its buffers are not touched until
// the callback. The list of buffers is the request's own copy.
unsafe impl IoBuf for WriteBuffers {
    fn pieces(&self) -> usize {
        // SAFETY: as above.
        unsafe { (*self.0).nbufs as usize }
    }

    fn piece(&self, index: usize) -> &[u8] {
        // SAFETY: as above.
        unsafe { slice_of(&*(*self.0).bufs.add(index)) }
    }
}

/// The memory of a buffer, which may be null if it is empty.
pub(crate) unsafe fn slice_of(buffer: &uv_buf_t) -> &[u8] {
    if buffer.len == 0 {
        return &[];
    }
    std::slice::from_raw_parts(buffer.base.cast(), buffer.len)
}

/// Checks a list of buffers.
#[inline]
pub(crate) unsafe fn check_buffers(buffers: *const uv_buf_t, count: c_uint) -> c_int {
    if buffers.is_null() || count == 0 || count > MOST_BUFFERS {
        return -EINVAL;
    }
    if count == 1 {
        return if (*buffers).len > MOST_BYTES { -EINVAL } else { 0 };
    }
    let lengths = (0..count as usize).map(|index| (*buffers.add(index)).len);
    let total = lengths.fold(0, usize::saturating_add);
    if total > MOST_BYTES { -EINVAL } else { 0 }
}

/// Copies a list of buffers into the request, or into new memory if it is long. Null if there is
/// none.
#[inline]
pub(crate) unsafe fn copy_buffers(
    buffers: *const uv_buf_t,
    count: c_uint,
    small: *mut [uv_buf_t; SMALL],
) -> *mut uv_buf_t {
    if count == 1 {
        *small.cast() = *buffers; // Most lists: no call of `memcpy`.
        return small.cast();
    }
    copy_list(buffers, count as usize, small)
}

unsafe fn copy_list(
    buffers: *const uv_buf_t,
    count: usize,
    small: *mut [uv_buf_t; SMALL],
) -> *mut uv_buf_t {
    let copy: *mut uv_buf_t =
        if count <= SMALL { small.cast() } else { allocate(count * size_of::<uv_buf_t>()).cast() };
    if !copy.is_null() {
        std::ptr::copy_nonoverlapping(buffers, copy, count);
    }
    copy
}

pub(crate) unsafe fn release_buffers(buffers: *mut uv_buf_t, small: *mut [uv_buf_t; SMALL]) {
    if buffers != small.cast() {
        release(buffers.cast());
    }
}

/// What libuv checks before a write of valid buffers. `uv-core` refuses the same, so that a write
/// without a handle is tried first; this is for libuv's errors.
#[cold]
unsafe fn check(stream: *mut uv_stream_t, passed: *mut uv_stream_t) -> c_int {
    // A stream that is writable has a descriptor.
    if !with_stream!(stream, key => key.is_writable(core_of(stream))) {
        if descriptor(stream).is_none() {
            return -EBADF;
        }
        if (*stream).connect_req.is_null() {
            return -EPIPE;
        }
    }
    if !passed.is_null() {
        if (*stream).base.type_ != kind::NAMED_PIPE || !crate::pipe::is_ipc(stream) {
            return -EINVAL;
        }
        if descriptor(passed).is_none() {
            return -EBADF;
        }
    }
    0
}

/// The error of a write that `uv-core` has refused: libuv's, if it has one.
#[cold]
unsafe fn refusal(stream: *mut uv_stream_t, error: &io::Error) -> c_int {
    match check(stream, null_mut()) {
        0 => code(error),
        refused => refused,
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_write(
    request: *mut uv_write_t,
    stream: *mut uv_stream_t,
    buffers: *const uv_buf_t,
    count: c_uint,
    callback: StatusCallback<uv_write_t>,
) -> c_int {
    uv_write2(request, stream, buffers, count, null_mut(), callback)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_write2(
    request: *mut uv_write_t,
    stream: *mut uv_stream_t,
    buffers: *const uv_buf_t,
    count: c_uint,
    passed: *mut uv_stream_t,
    callback: StatusCallback<uv_write_t>,
) -> c_int {
    let mut refused = check_buffers(buffers, count);
    if refused == 0 && !passed.is_null() {
        refused = check(stream, passed);
    }
    if refused != 0 {
        return refused;
    }
    let c_loop = loop_of(stream);
    (*request).base.type_ = request_kind::WRITE;
    (*request).base.reserved = [0; 6];
    (*request).cb = callback;
    (*request).handle = stream;
    (*request).send_handle = passed;
    (*request).error = 0;
    (*request).write_index = 0;
    (*request).nbufs = count;
    (*request).bufs = copy_buffers(buffers, count, addr_of_mut!((*request).bufsml));
    if (*request).bufs.is_null() {
        return -ENOMEM;
    }
    if passed.is_null() {
        match write_at_once(request, stream) {
            Ok(true) => return 0,
            Ok(false) => {}
            Err(refused) => return refused,
        }
    }
    let lp = core(c_loop);
    let buffers = WriteBuffers(request);
    let result = if passed.is_null() {
        with_stream!(stream, key => {
            key.write(lp, buffers, |lp, _, result, buffers| written(buffers.0, lp, result))
        })
    } else {
        let handles = [any(passed)];
        key::<Pipe, _>(stream).write_with_handles(
            lp,
            buffers,
            &handles,
            |lp, _, result, buffers| {
                written(buffers.0, lp, result);
            },
        )
    };
    sync_queue_size(stream, core(c_loop));
    match result {
        Ok(write) => {
            const { assert!(size_of::<WriteRequest>() == 8) };
            (*request).base.reserved[0] = transmute_copy(&write);
            *queued_writes(stream) += 1;
            begin_request(c_loop);
            0
        }
        Err(error) => {
            release_buffers((*request).bufs, addr_of_mut!((*request).bufsml));
            refusal(stream, &error)
        }
    }
}

/// Calls back a write request.
unsafe fn written(request: *mut uv_write_t, lp: &mut CoreLoop, result: io::Result<()>) {
    let stream = (*request).handle;
    *queued_writes(stream) -= 1;
    end_request(loop_of(stream));
    // Only `uv_write` adds to an empty queue, and it counts what it adds.
    if (*stream).write_queue_size != 0 {
        sync_queue_size(stream, lp);
    }
    if result.is_ok() {
        let buffers = std::slice::from_raw_parts((*request).bufs, (*request).nbufs as usize);
        let written: u64 = buffers.iter().map(|buffer| buffer.len as u64).sum();
        (*request).base.reserved[WRITTEN] = (*request).base.reserved[WRITTEN_BEFORE] + written;
    }
    release_buffers((*request).bufs, addr_of_mut!((*request).bufsml));
    (*request).bufs = null_mut();
    let result = status(result);
    if let Some(callback) = (*request).cb {
        enter(loop_of(stream), lp, || callback(request, result));
    }
}

/// The bytes of a request that the kernel has taken. They are counted when the request ends.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_write_nwritten(request: *const uv_write_t) -> usize {
    let mut written = (*request).base.reserved[WRITTEN];
    if !(*request).bufs.is_null() {
        let write: WriteRequest = transmute_copy(&(*request).base.reserved[0]);
        if let Ok(count) = write.bytes_written(core_of((*request).handle)) {
            written = (*request).base.reserved[WRITTEN_BEFORE] + count as u64;
        }
    }
    written as usize
}

/// Cancels a write. As libuv: 0 also if it has ended already, and its callback is due.
pub(crate) unsafe fn cancel(request: *mut uv_write_t) -> c_int {
    let stream = (*request).handle;
    if is_closing(stream) {
        return -libc::EBUSY;
    }
    let write: WriteRequest = transmute_copy(&(*request).base.reserved[0]);
    if let Ok(count) = write.cancel(core_of(stream)) {
        (*request).base.reserved[WRITTEN] = (*request).base.reserved[WRITTEN_BEFORE] + count as u64;
        (*request).error = -libc::ECANCELED;
        sync_queue_size(stream, core_of(stream));
    }
    0
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_try_write(
    stream: *mut uv_stream_t,
    buffers: *const uv_buf_t,
    count: c_uint,
) -> c_int {
    uv_try_write2(stream, buffers, count, null_mut())
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_try_write2(
    stream: *mut uv_stream_t,
    buffers: *const uv_buf_t,
    count: c_uint,
    passed: *mut uv_stream_t,
) -> c_int {
    if !(*stream).connect_req.is_null() || (*stream).write_queue_size != 0 {
        return -EAGAIN;
    }
    let refused = check_buffers(buffers, count);
    if refused != 0 {
        return refused;
    }
    if !passed.is_null() {
        return try_write_handle(stream, buffers, count, passed);
    }
    // `uv_buf_t` and `IoSlice` have the layout of `iovec`.
    let slices = std::slice::from_raw_parts(buffers.cast::<IoSlice<'_>>(), count as usize);
    let lp = core_of(stream);
    match with_stream!(stream, key => key.try_write_vectored(lp, slices)) {
        Ok(count) => count as c_int,
        Err(error) => refusal(stream, &error),
    }
}

/// A handle is passed with the first bytes; a short write is what the caller expects.
#[cold]
unsafe fn try_write_handle(
    stream: *mut uv_stream_t,
    buffers: *const uv_buf_t,
    count: c_uint,
    passed: *mut uv_stream_t,
) -> c_int {
    let refused = check(stream, passed);
    if refused != 0 {
        return refused;
    }
    let buffers = std::slice::from_raw_parts(buffers, count as usize);
    let first = buffers.iter().find(|buffer| buffer.len > 0).map_or(&[][..], |it| slice_of(it));
    let pipe = key::<Pipe, _>(stream);
    match pipe.try_write_with_handles(core_of(stream), first, &[any(passed)]) {
        Ok(count) => count as c_int,
        Err(error) => code(&error),
    }
}
