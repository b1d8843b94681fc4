//! Loops, and the way from `uv-core`'s callbacks into C and back.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::ptr::{addr_of_mut, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{EBUSY, EINVAL, ENOMEM, ENOSYS};
use uv_core::{Async, Handle as _, Loop, Metrics, RunMode};

use crate::alloc::{allocate, release};
use crate::async_handle;
use crate::backend::{self, CallBackend};
use crate::descriptors::Places;
use crate::errors::{code, status};
use crate::handle::{flags, kind};
use crate::layout::{uv__queue, uv_handle_t, uv_loop_t, uv_metrics_t, uv_walk_cb};
use crate::system::uv_hrtime;
use crate::write::WrittenInRead;

/// The loop under every `uv_loop_t`.
pub type CoreLoop = Loop<CallBackend>;

/// What a loop has besides the caller's memory. No reference to all of it is made: other threads may
/// use `metrics` at any time.
pub struct LoopState {
    /// The `&mut` that is valid now: the outermost, or that of the callback that runs.
    current: *mut CoreLoop,
    own: *mut CoreLoop,
    /// From the backend's clock to the monotonic clock, in nanoseconds, modulo 2⁶⁴.
    clock_offset: u64,
    /// The loop's number of active handles when `active_handles` was last written.
    counted: usize,
    /// `active_handles` without what the program has added to it.
    written: usize,
    /// `active_handles` when it was last compared with `written`.
    compared: c_uint,
    /// Keeps the loop alive while the program has added to `active_handles`.
    hold: Option<Async>,
    holds: bool,
    /// For threads that read the idle time.
    metrics: Metrics,
    /// The writes that call back after the read callback that runs.
    pub(crate) answers: WrittenInRead,
    pub(crate) places: Places,
}

/// The loop of a handle or request.
///
/// The reference is used before the next call into C, so no two are live.
pub(crate) unsafe fn core<'a>(c_loop: *mut uv_loop_t) -> &'a mut CoreLoop {
    &mut *(*(*c_loop).internal_fields).current
}

/// Calls C, which may call this library: until it returns, `lp` is the loop's only reference.
#[inline]
pub(crate) unsafe fn enter<R>(
    c_loop: *mut uv_loop_t,
    lp: &mut CoreLoop,
    call: impl FnOnce() -> R,
) -> R {
    enter_with(c_loop, (*c_loop).internal_fields, lp, call)
}

/// As [`enter`], with the loop's state.
#[inline]
pub(crate) unsafe fn enter_with<R>(
    c_loop: *mut uv_loop_t,
    state: *mut LoopState,
    lp: &mut CoreLoop,
    call: impl FnOnce() -> R,
) -> R {
    let before = (*state).current;
    sync_with(c_loop, state, lp.active_handles());
    (*state).current = lp;
    let result = call();
    // A loop cannot be closed while it runs, so its state is still there.
    if (*c_loop).active_handles != (*state).compared {
        compare_active_handles(c_loop);
    }
    (*state).current = before;
    result
}

/// Writes the public field `active_handles`. What a program has added to it stays.
#[inline]
pub(crate) unsafe fn sync(c_loop: *mut uv_loop_t) {
    let state = (*c_loop).internal_fields;
    sync_with(c_loop, state, (*(*state).current).active_handles());
}

/// As [`sync`], with the loop's state and its number of active handles.
#[inline]
unsafe fn sync_with(c_loop: *mut uv_loop_t, state: *mut LoopState, counted: usize) {
    if counted != (*state).counted {
        write_active_handles(c_loop, counted);
    }
}

#[inline]
unsafe fn write_active_handles(c_loop: *mut uv_loop_t, counted: usize) {
    let state = (*c_loop).internal_fields;
    let change = counted.wrapping_sub((*state).counted);
    (*state).counted = counted;
    (*state).written = (*state).written.wrapping_add(change);
    (*state).compared = (*state).compared.wrapping_add(change as c_uint);
    (*c_loop).active_handles = (*c_loop).active_handles.wrapping_add(change as c_uint);
}

/// Counts a request in the public field `active_reqs`.
#[inline]
pub(crate) unsafe fn begin_request(c_loop: *mut uv_loop_t) {
    let count = &raw mut (*c_loop).active_reqs[0];
    *count = (*count).wrapping_add(1);
}

/// Ends a request that was counted. As libuv, before its callback.
#[inline]
pub(crate) unsafe fn end_request(c_loop: *mut uv_loop_t) {
    let count = &raw mut (*c_loop).active_reqs[0];
    *count = (*count).wrapping_sub(1);
}

/// Keeps the loop alive if the program has added to `active_handles`, as libuv would.
#[inline]
unsafe fn update_hold(c_loop: *mut uv_loop_t) {
    if (*c_loop).active_handles != (*(*c_loop).internal_fields).compared {
        compare_active_handles(c_loop);
    }
}

#[cold]
unsafe fn compare_active_handles(c_loop: *mut uv_loop_t) {
    let state = (*c_loop).internal_fields;
    (*state).compared = (*c_loop).active_handles;
    let holds = (*state).compared as usize > (*state).written;
    if holds == (*state).holds {
        return;
    }
    let lp = &mut *(*state).current;
    let before = lp.active_handles();
    let hold = (*state).hold.unwrap_or_else(|| {
        let (hold, _) = Async::new(lp, |_, _| {});
        // A handle that was just made is in its loop.
        let _ = hold.unreference(lp);
        hold
    });
    (*state).hold = Some(hold);
    // The handle exists as long as the loop.
    let _ = if holds { hold.reference(lp) } else { hold.unreference(lp) };
    (*state).holds = holds;
    // It counts for the loop, not for the program.
    (*state).counted = (*state).counted.wrapping_add(lp.active_handles()).wrapping_sub(before);
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_loop_init(c_loop: *mut uv_loop_t) -> c_int {
    if c_loop.is_null() {
        return -EINVAL;
    }
    let data = (*c_loop).data;
    std::ptr::write_bytes(c_loop, 0, 1);
    (*c_loop).data = data;
    let backend = match backend::new() {
        Ok(backend) => backend,
        Err(error) => return code(&error),
    };
    // From the allocator that a program can replace, so that it can make this fail.
    let state = allocate(size_of::<LoopState>()).cast::<LoopState>();
    if state.is_null() {
        return -ENOMEM;
    }
    let own = Box::into_raw(Box::new(Loop::new(backend)));
    state.write(LoopState {
        current: own,
        own,
        clock_offset: uv_hrtime().wrapping_sub((*own).hrtime().as_nanos() as u64),
        counted: 0,
        written: 0,
        compared: 0,
        hold: None,
        holds: false,
        metrics: (*own).metrics(),
        answers: WrittenInRead::new((*own).backend()),
        places: Places::new(),
    });
    (*c_loop).internal_fields = state;
    queue_init(addr_of_mut!((*c_loop).handle_queue));
    (*c_loop).backend_fd = -1;
    0
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_loop_close(c_loop: *mut uv_loop_t) -> c_int {
    let state = (*c_loop).internal_fields;
    if state.is_null() {
        return 0;
    }
    if !queue_is_empty(addr_of_mut!((*c_loop).handle_queue)) || (*(*state).current).is_alive() {
        return -EBUSY;
    }
    drop(Box::from_raw((*state).own));
    std::ptr::drop_in_place(state);
    release(state.cast());
    let data = (*c_loop).data;
    std::ptr::write_bytes(c_loop.cast::<u8>(), 0xff, size_of::<uv_loop_t>());
    (*c_loop).data = data;
    (*c_loop).internal_fields = null_mut();
    if c_loop == DEFAULT.0.get().cast() {
        HAS_DEFAULT.store(false, Ordering::Release);
    }
    0
}

struct DefaultLoop(UnsafeCell<MaybeUninit<uv_loop_t>>);

// SAFETY: the memory is a loop of C, which a program uses on one thread at a time.
unsafe impl Sync for DefaultLoop {}

static DEFAULT: DefaultLoop = DefaultLoop(UnsafeCell::new(MaybeUninit::zeroed()));
static HAS_DEFAULT: AtomicBool = AtomicBool::new(false);

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_default_loop() -> *mut uv_loop_t {
    let default = DEFAULT.0.get().cast();
    if !HAS_DEFAULT.load(Ordering::Acquire) {
        if uv_loop_init(default) != 0 {
            return null_mut();
        }
        HAS_DEFAULT.store(true, Ordering::Release);
    }
    default
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_loop_new() -> *mut uv_loop_t {
    let c_loop = allocate(size_of::<uv_loop_t>()).cast::<uv_loop_t>();
    if c_loop.is_null() {
        return null_mut();
    }
    (*c_loop).data = null_mut();
    if uv_loop_init(c_loop) != 0 {
        release(c_loop.cast());
        return null_mut();
    }
    c_loop
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_loop_delete(c_loop: *mut uv_loop_t) {
    let is_default = c_loop == DEFAULT.0.get().cast();
    if uv_loop_close(c_loop) == 0 && !is_default {
        release(c_loop.cast());
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn uv_loop_size() -> usize {
    size_of::<uv_loop_t>()
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_loop_get_data(c_loop: *const uv_loop_t) -> *mut c_void {
    (*c_loop).data
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_loop_set_data(c_loop: *mut uv_loop_t, data: *mut c_void) {
    (*c_loop).data = data;
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_run(c_loop: *mut uv_loop_t, mode: c_int) -> c_int {
    let mode = match mode {
        0 => RunMode::Default,
        1 => RunMode::Once,
        _ => RunMode::NoWait,
    };
    update_hold(c_loop);
    let result = core(c_loop).run(mode);
    (*c_loop).stop_flag = 0;
    sync(c_loop);
    match result {
        Ok(alive) => c_int::from(alive),
        Err(error) => {
            // As libuv, whose poll aborts too: the program has no way to go on.
            eprintln!("uv_run: {error}");
            std::process::abort()
        }
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_loop_alive(c_loop: *const uv_loop_t) -> c_int {
    let c_loop = c_loop.cast_mut();
    update_hold(c_loop);
    let is_alive = core(c_loop).is_alive() || (*(*c_loop).internal_fields).answers.has_any();
    c_int::from(is_alive)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_stop(c_loop: *mut uv_loop_t) {
    (*c_loop).stop_flag = 1;
    core(c_loop).stop();
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_now(c_loop: *const uv_loop_t) -> u64 {
    let c_loop = c_loop.cast_mut();
    let (now, offset) = (core(c_loop).now(), (*(*c_loop).internal_fields).clock_offset);
    let nanoseconds = now.as_secs() * 1_000_000_000 + u64::from(now.subsec_nanos());
    nanoseconds.wrapping_add(offset) / 1_000_000
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_update_time(c_loop: *mut uv_loop_t) {
    core(c_loop).update_time();
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_backend_fd(c_loop: *const uv_loop_t) -> c_int {
    let c_loop = c_loop.cast_mut();
    // Not before it is asked for: a loop that others may poll wakes and waits by system calls
    // that it otherwise does without.
    (*c_loop).backend_fd = core(c_loop).raw_source().map_or(-1, |source| source.fd());
    (*c_loop).backend_fd
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_backend_timeout(c_loop: *const uv_loop_t) -> c_int {
    let c_loop = c_loop.cast_mut();
    update_hold(c_loop);
    if (*c_loop).stop_flag != 0 || (*(*c_loop).internal_fields).answers.has_any() {
        return 0;
    }
    match core(c_loop).backend_timeout() {
        Some(timeout) => timeout.as_nanos().div_ceil(1_000_000).min(c_int::MAX as u128) as c_int,
        None => -1,
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_loop_fork(c_loop: *mut uv_loop_t) -> c_int {
    let result = status(core(c_loop).fork());
    let head = addr_of_mut!((*c_loop).handle_queue);
    let mut node = (*head).next;
    while node != head {
        let handle = handle_of(node);
        if (*handle).type_ == kind::ASYNC {
            async_handle::forget_senders(handle.cast());
        }
        node = (*node).next;
    }
    if (*c_loop).backend_fd >= 0 {
        uv_backend_fd(c_loop);
    }
    result
}

const UV_LOOP_BLOCK_SIGNAL: c_int = 0;
const UV_METRICS_IDLE_TIME: c_int = 1;
const UV_LOOP_USE_IO_URING_SQPOLL: c_int = 2;

/// libuv's function is variadic; every option has at most one `int`, which is passed as here.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_loop_configure(
    c_loop: *mut uv_loop_t,
    option: c_int,
    argument: c_int,
) -> c_int {
    match option {
        UV_LOOP_BLOCK_SIGNAL if argument == libc::SIGPROF => status(core(c_loop).block_sigprof()),
        UV_LOOP_BLOCK_SIGNAL => -EINVAL,
        UV_METRICS_IDLE_TIME => {
            core(c_loop).measure_idle_time();
            0
        }
        // The backend is chosen by `UV_BACKEND`, and its rings have no polling thread.
        UV_LOOP_USE_IO_URING_SQPOLL => 0,
        _ => -ENOSYS,
    }
}

/// Can be called by any thread.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_metrics_idle_time(c_loop: *mut uv_loop_t) -> u64 {
    (*(*c_loop).internal_fields).metrics.idle_time().as_nanos() as u64
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_metrics_info(c_loop: *mut uv_loop_t, info: *mut uv_metrics_t) -> c_int {
    let metrics = &(*(*c_loop).internal_fields).metrics;
    (*info).loop_count = metrics.loop_count();
    (*info).events = metrics.events();
    (*info).events_waiting = metrics.events_waiting();
    0
}

pub(crate) unsafe fn queue_init(queue: *mut uv__queue) {
    *queue = uv__queue { next: queue, prev: queue };
}

pub(crate) unsafe fn queue_push(head: *mut uv__queue, node: *mut uv__queue) {
    *node = uv__queue { next: head, prev: (*head).prev };
    (*(*node).prev).next = node;
    (*head).prev = node;
}

pub(crate) unsafe fn queue_remove(node: *mut uv__queue) {
    (*(*node).prev).next = (*node).next;
    (*(*node).next).prev = (*node).prev;
}

pub(crate) unsafe fn queue_is_empty(head: *mut uv__queue) -> bool {
    (*head).next == head
}

/// The handle whose `handle_queue` is `node`.
pub(crate) unsafe fn handle_of(node: *mut uv__queue) -> *mut uv_handle_t {
    node.byte_sub(offset_of!(uv_handle_t, handle_queue)).cast()
}

/// The queue is moved away, and each handle is put back before its call: a callback may close any
/// handle, and those it makes are not visited.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_walk(
    c_loop: *mut uv_loop_t,
    callback: uv_walk_cb,
    argument: *mut c_void,
) {
    let head = addr_of_mut!((*c_loop).handle_queue);
    let Some(callback) = callback else { return };
    if queue_is_empty(head) {
        return;
    }
    let mut moved = *head;
    let rest = addr_of_mut!(moved);
    (*(*rest).next).prev = rest;
    (*(*rest).prev).next = rest;
    queue_init(head);
    while !queue_is_empty(rest) {
        let node = (*rest).next;
        queue_remove(node);
        queue_push(head, node);
        let handle = handle_of(node);
        if (*handle).flags & flags::INTERNAL == 0 {
            callback(handle, argument);
        }
    }
}
