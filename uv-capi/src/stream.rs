//! Streams: what TCP, pipes and terminals have in common.

use std::ffi::{c_int, c_uint};
use std::io::{self, ErrorKind};
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::{addr_of_mut, null_mut};

use libc::{EAGAIN, EBUSY, EINVAL, ENOTCONN};
use uv_core::{Handle as _, IoBufMut, Listener as _, Pipe, Stream as _, Tcp, Tty};

use crate::descriptors::take_place;
use crate::errors::{UV_EOF, code, last_error, status};
use crate::event_loop::{CoreLoop, begin_request, core, end_request, enter, sync};
use crate::handle::{
    any, core_of, descriptor, flags, init, is_closing, key, kind, loop_of, misuse,
};
use crate::layout::*;
use crate::request::kind as request_kind;
use crate::write;

/// Evaluates an expression with the key of a stream of any kind.
macro_rules! with_stream {
    ($handle:expr, $stream:ident => $expression:expr) => {
        match (*$handle).base.type_ {
            kind::TCP => {
                let $stream: Tcp = key($handle);
                $expression
            }
            kind::NAMED_PIPE => {
                let $stream: Pipe = key($handle);
                $expression
            }
            kind::TTY => {
                let $stream: Tty = key($handle);
                $expression
            }
            other => misuse("not a stream", $handle.cast_const().cast(), other),
        }
    };
}
pub(crate) use with_stream;

/// Fills the head of a new stream.
pub(crate) unsafe fn init_stream<K: Copy>(
    c_loop: *mut uv_loop_t,
    stream: *mut uv_stream_t,
    kind: c_int,
    key: K,
) {
    init(c_loop, stream, kind, key);
    (*stream).write_queue_size = 0;
    (*stream).alloc_cb = None;
    (*stream).read_cb = None;
    (*stream).connect_req = null_mut();
    (*stream).shutdown_req = null_mut();
    (*stream).io_watcher = [0; 7];
    (*stream).connection_cb = None;
    (*stream).delayed_error = 0;
    (*stream).accepted_fd = -1;
    (*stream).queued_fds = null_mut();
}

/// Writes the public field `write_queue_size`.
#[inline]
pub(crate) unsafe fn sync_queue_size(stream: *mut uv_stream_t, lp: &CoreLoop) {
    (*stream).write_queue_size = with_stream!(stream, key => key.write_queue_size(lp));
}

/// Takes a descriptor of the caller for a stream. libuv never closes the standard descriptors, so
/// the stream gets a copy of those.
pub(crate) unsafe fn take_descriptor(
    stream: *mut uv_stream_t,
    fd: c_int,
) -> Result<OwnedFd, c_int> {
    if fd > libc::STDERR_FILENO {
        return Ok(OwnedFd::from_raw_fd(fd));
    }
    let copy = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, libc::STDERR_FILENO + 1);
    if copy < 0 {
        return Err(last_error());
    }
    (*stream).io_watcher[0] = fd as u64 + 1;
    Ok(OwnedFd::from_raw_fd(copy))
}

/// The number of writes that are in the loop's queues, or have ended there and not called back.
#[inline]
pub(crate) unsafe fn queued_writes<'a>(stream: *mut uv_stream_t) -> &'a mut u64 {
    &mut (*stream).io_watcher[1]
}

/// The standard descriptor that a stream was opened with.
pub(crate) unsafe fn standard_descriptor(stream: *const uv_stream_t) -> Option<c_int> {
    match (*stream).io_watcher[0] {
        0 => None,
        number => Some(number as c_int - 1),
    }
}

/// Prepares a connect request. Until its callback, `connect_req` names it, as in libuv.
pub(crate) unsafe fn begin_connect(
    request: *mut uv_connect_t,
    stream: *mut uv_stream_t,
    callback: StatusCallback<uv_connect_t>,
) {
    (*request).base.type_ = request_kind::CONNECT;
    (*request).handle = stream;
    (*request).cb = callback;
    take_place(stream);
    begin_request(loop_of(stream));
    (*stream).connect_req = request;
}

/// Calls back a connect request. A close cancels it, whatever its result is.
pub(crate) unsafe fn end_connect(request: *mut uv_connect_t, lp: &mut CoreLoop, result: c_int) {
    let stream = (*request).handle;
    let result = if is_closing(stream) { -libc::ECANCELED } else { result };
    (*stream).connect_req = null_mut();
    end_request(loop_of(stream));
    sync_queue_size(stream, lp);
    if let Some(callback) = (*request).cb {
        enter(loop_of(stream), lp, || callback(request, result));
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_listen(
    stream: *mut uv_stream_t,
    backlog: c_int,
    callback: StatusCallback<uv_stream_t>,
) -> c_int {
    if is_closing(stream) {
        return -EINVAL;
    }
    let c_loop = loop_of(stream);
    (*stream).connection_cb = callback;
    let backlog = backlog.max(0) as u32;
    let connection = move |lp: &mut CoreLoop, result: io::Result<()>| {
        if let Some(callback) = (*stream).connection_cb {
            enter(c_loop, lp, || callback(stream, status(result)));
        }
    };
    let result = match (*stream).base.type_ {
        kind::TCP => key::<Tcp, _>(stream)
            .listen(core(c_loop), backlog, move |lp, _, result| connection(lp, result)),
        kind::NAMED_PIPE if crate::pipe::is_ipc(stream) || descriptor(stream).is_none() => {
            return -EINVAL;
        }
        kind::NAMED_PIPE => {
            key::<Pipe, _>(stream)
                .listen(core(c_loop), backlog, move |lp, _, result| connection(lp, result))
        }
        _ => return -EINVAL,
    };
    take_place(stream);
    sync(c_loop);
    status(result)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_accept(server: *mut uv_stream_t, client: *mut uv_stream_t) -> c_int {
    let lp = core_of(server);
    let result = match ((*server).base.type_, (*client).base.type_) {
        (kind::NAMED_PIPE, _) if crate::pipe::is_ipc(server) => accept_passed(server, client),
        (kind::TCP, kind::TCP) => {
            status(key::<Tcp, _>(server).accept_into(lp, key::<Tcp, _>(client)))
        }
        (kind::NAMED_PIPE, kind::NAMED_PIPE) => {
            status(key::<Pipe, _>(server).accept_into(lp, key::<Pipe, _>(client)))
        }
        _ => -EINVAL,
    };
    if result == 0 {
        take_place(client);
    }
    result
}

/// Opens a handle with a descriptor that was passed over a pipe.
unsafe fn accept_passed(server: *mut uv_stream_t, client: *mut uv_stream_t) -> c_int {
    let (lp, pipe) = (core_of(server), key::<Pipe, _>(server));
    if pipe.pending_count(lp) == 0 {
        return -EAGAIN;
    }
    if any(client).raw_source(lp).is_ok() {
        return -EBUSY;
    }
    let passed = match pipe.take_pending(lp) {
        Ok(passed) => passed,
        Err(error) => return code(&error),
    };
    status(match (*client).base.type_ {
        kind::TCP => key::<Tcp, _>(client).open(lp, passed),
        kind::NAMED_PIPE => key::<Pipe, _>(client).open(lp, passed),
        kind::UDP => return crate::udp::open(client.cast(), passed),
        _ => return -EINVAL,
    })
}

/// Memory that `alloc_cb` has returned for one read.
struct ReadBuffer(uv_buf_t);

// SAFETY: libuv's contract of `alloc_cb` is that the memory is the library's until `read_cb`, and
// its place and size do not change.
unsafe impl IoBufMut for ReadBuffer {
    fn memory(&mut self) -> &mut [u8] {
        if self.0.base.is_null() {
            return &mut [];
        }
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.0.base.cast(), self.0.len) }
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_read_start(
    stream: *mut uv_stream_t,
    alloc: uv_alloc_cb,
    read: uv_read_cb,
) -> c_int {
    if stream.is_null() || alloc.is_none() || read.is_none() || is_closing(stream) {
        return -EINVAL;
    }
    let c_loop = loop_of(stream);
    // uvloop sets the bit to be notified when nothing reads from a pipe that it writes to.
    if (*stream).base.flags & flags::READABLE != 0 {
        // Without a descriptor, reading is refused below.
        let _ = with_stream!(stream, key => key.assume_readable(core(c_loop)));
    }
    let result = with_stream!(stream, key => {
        key.read_start_with(
            core(c_loop),
            move |lp, _, suggested| allocate_buffer(stream, lp, suggested),
            move |lp, _, result, buffer| deliver(stream, lp, result, &buffer.0),
        )
    });
    if result.is_ok() {
        (*stream).alloc_cb = alloc;
        (*stream).read_cb = read;
        take_place(stream);
    }
    sync(c_loop);
    status(result)
}

#[inline(always)] // On the path of every read, as `deliver`.
unsafe fn allocate_buffer(
    stream: *mut uv_stream_t,
    lp: &mut CoreLoop,
    suggested: usize,
) -> ReadBuffer {
    let mut buffer = uv_buf_t { base: null_mut(), len: 0 };
    if let Some(alloc) = (*stream).alloc_cb {
        let out = addr_of_mut!(buffer);
        enter(loop_of(stream), lp, || alloc(stream.cast(), suggested, out));
    }
    ReadBuffer(buffer)
}

#[inline(always)]
unsafe fn deliver(
    stream: *mut uv_stream_t,
    lp: &mut CoreLoop,
    result: io::Result<usize>,
    buffer: &uv_buf_t,
) {
    let count = match result {
        Ok(0) => UV_EOF as isize,
        Ok(count) => count as isize,
        Err(error) => failed_read(error),
    };
    // Only `uv_write` adds to an empty queue, and it counts what it adds.
    if (*stream).write_queue_size != 0 {
        sync_queue_size(stream, lp);
    }
    if let Some(read) = (*stream).read_cb {
        write::read(loop_of(stream), lp, || read(stream, count, buffer));
    }
}

#[cold]
fn failed_read(error: io::Error) -> isize {
    match error.kind() {
        // The buffer is returned unused.
        ErrorKind::WouldBlock => 0,
        _ => code(&error) as isize,
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_read_stop(stream: *mut uv_stream_t) -> c_int {
    if !is_closing(stream) {
        // As libuv: it is no error if the stream does not read.
        let _ = with_stream!(stream, key => key.read_stop(core_of(stream)));
        sync(loop_of(stream));
    }
    0
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_shutdown(
    request: *mut uv_shutdown_t,
    stream: *mut uv_stream_t,
    callback: StatusCallback<uv_shutdown_t>,
) -> c_int {
    if is_closing(stream) {
        return -ENOTCONN;
    }
    let c_loop = loop_of(stream);
    let end = move |lp: &mut CoreLoop, result: io::Result<()>| {
        (*stream).base.flags &= !flags::SHUTTING;
        (*stream).shutdown_req = null_mut();
        end_request(c_loop);
        let result = status(result);
        if let Some(callback) = (*request).cb {
            enter(c_loop, lp, || callback(request, result));
        }
    };
    let result = with_stream!(stream, key => {
        key.shutdown(core(c_loop), move |lp, _, result| end(lp, result))
    });
    if result.is_ok() {
        (*request).base.type_ = request_kind::SHUTDOWN;
        (*request).handle = stream;
        (*request).cb = callback;
        (*stream).shutdown_req = request;
        (*stream).base.flags |= flags::SHUTTING;
        begin_request(c_loop);
    }
    status(result)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_is_readable(stream: *const uv_stream_t) -> c_int {
    let is_readable = !is_closing(stream)
        && with_stream!(stream.cast_mut(), key => key.is_readable(core_of(stream)));
    c_int::from(is_readable)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_is_writable(stream: *const uv_stream_t) -> c_int {
    let is_writable = !is_closing(stream)
        && with_stream!(stream.cast_mut(), key => key.is_writable(core_of(stream)));
    c_int::from(is_writable)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_stream_set_blocking(
    stream: *mut uv_stream_t,
    blocking: c_int,
) -> c_int {
    if descriptor(stream).is_none() {
        return -libc::EBADF;
    }
    status(with_stream!(stream, key => key.set_blocking(core_of(stream), blocking != 0)))
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_stream_get_write_queue_size(stream: *const uv_stream_t) -> usize {
    (*stream).write_queue_size
}

/// Sets `O_NONBLOCK` on the descriptors of a new pair whose flags ask for it.
pub(crate) unsafe fn set_pair_flags(fds: *const c_int, flags: [c_int; 2]) -> c_int {
    /// `UV_NONBLOCK_PIPE`.
    const NONBLOCK: c_int = 0x40;
    for (index, flags) in flags.into_iter().enumerate() {
        let fd = *fds.add(index);
        if flags & NONBLOCK != 0
            && libc::fcntl(fd, libc::F_SETFL, libc::fcntl(fd, libc::F_GETFL) | libc::O_NONBLOCK) < 0
        {
            let error = last_error();
            libc::close(*fds);
            libc::close(*fds.add(1));
            return error;
        }
    }
    0
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_buf_init(base: *mut std::ffi::c_char, len: c_uint) -> uv_buf_t {
    uv_buf_t { base, len: len as usize }
}
