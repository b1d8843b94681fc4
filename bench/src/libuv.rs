//! Safe wrappers around the measured parts of libuv.

use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

pub(crate) use libuv_sys2 as sys;

/// The version of the linked library.
pub(crate) fn version() -> String {
    // SAFETY: the call returns a static string.
    let version = unsafe { sys::uv_version_string() };
    // SAFETY: the static string ends with NUL.
    unsafe { CStr::from_ptr(version) }.to_string_lossy().into_owned()
}

/// Converts a return code of libuv.
pub(crate) fn check(code: c_int) -> io::Result<()> {
    if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(()) }
}

/// Memory for handles or requests.
///
/// libuv keeps pointers into it: declare it before the [`Loop`], which is then dropped
/// first and closes the handles.
pub(crate) struct Memory<T> {
    first: *mut MaybeUninit<T>,
    count: usize,
}

impl<T: Copy> Memory<T> {
    /// Zeroed memory for `count` items, already touched.
    pub(crate) fn new(count: usize) -> Memory<T> {
        let mut memory = Box::<[T]>::new_uninit_slice(count);
        for place in &mut memory {
            *place = MaybeUninit::zeroed();
        }
        Memory { first: Box::into_raw(memory).cast(), count }
    }

    /// Memory for `count` items as the allocator returns it: its pages may be untouched.
    pub(crate) fn untouched(count: usize) -> Memory<T> {
        let memory = Box::<[T]>::new_uninit_slice(count);
        Memory { first: Box::into_raw(memory).cast(), count }
    }

    /// Pointers to all items.
    pub(crate) fn iter(&self) -> impl Iterator<Item = *mut T> {
        let first = self.first.cast::<T>();
        (0..self.count).map(move |index| first.wrapping_add(index))
    }

    /// The pointer to the first item.
    pub(crate) fn first(&self) -> *mut T {
        self.first.cast()
    }
}

impl<T> Drop for Memory<T> {
    fn drop(&mut self) {
        let memory = ptr::slice_from_raw_parts_mut(self.first, self.count);
        // SAFETY: `new` made the pointer from a box of this type.
        drop(unsafe { Box::from_raw(memory) });
    }
}

/// A libuv loop.
pub(crate) struct Loop(*mut sys::uv_loop_t);

impl Loop {
    pub(crate) fn new() -> io::Result<Loop> {
        allocator::count();
        let raw = Box::into_raw(Box::new(MaybeUninit::<sys::uv_loop_t>::zeroed())).cast();
        let lp = Loop(raw);
        // SAFETY: the boxed memory has a stable address until the drop.
        let code = unsafe { sys::uv_loop_init(raw) };
        if let Err(error) = check(code) {
            std::mem::forget(lp);
            return Err(error);
        }
        Ok(lp)
    }

    /// A loop with a ring for its file requests. libuv uses it only if the environment has
    /// `UV_USE_IO_URING=1`, too.
    #[cfg(target_os = "linux")]
    pub(crate) fn with_ring() -> io::Result<Loop> {
        let lp = Loop::new()?;
        let option = sys::uv_loop_option_UV_LOOP_USE_IO_URING_SQPOLL;
        // SAFETY: the loop is initialised, and the option has no argument.
        check(unsafe { sys::uv_loop_configure(lp.raw(), option) })?;
        Ok(lp)
    }

    pub(crate) fn raw(&self) -> *mut sys::uv_loop_t {
        self.0
    }

    /// Runs until no handle is active or the loop is stopped.
    pub(crate) fn run(&self) {
        // SAFETY: the loop is initialised, and in use by this thread only.
        unsafe { sys::uv_run(self.0, sys::uv_run_mode_UV_RUN_DEFAULT) };
    }

    /// Runs one iteration, which blocks until an event arrives.
    #[cfg(target_os = "linux")]
    pub(crate) fn run_once(&self) {
        // SAFETY: the loop is initialised, and in use by this thread only.
        unsafe { sys::uv_run(self.0, sys::uv_run_mode_UV_RUN_ONCE) };
    }

    /// Runs one iteration that does not block.
    pub(crate) fn run_no_wait(&self) {
        // SAFETY: the loop is initialised, and in use by this thread only.
        unsafe { sys::uv_run(self.0, sys::uv_run_mode_UV_RUN_NOWAIT) };
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // SAFETY: the loop is initialised; `close` only closes.
        unsafe { sys::uv_walk(self.0, Some(close), ptr::null_mut()) };
        self.run();
        // SAFETY: every handle is closed.
        let closed = unsafe { sys::uv_loop_close(self.0) };
        debug_assert_eq!(closed, 0, "a handle or a request is still open");
        // SAFETY: `new` made the pointer from a box of this type, and the closed loop does not use
        // it.
        drop(unsafe { Box::from_raw(self.0.cast::<MaybeUninit<sys::uv_loop_t>>()) });
    }
}

unsafe extern "C" fn close(handle: *mut sys::uv_handle_t, _: *mut c_void) {
    // SAFETY: `uv_walk` passes open handles.
    let closing = unsafe { sys::uv_is_closing(handle) };
    if closing == 0 {
        // SAFETY: the handle is open.
        unsafe { sys::uv_close(handle, None) };
    }
}

/// The allocator for libuv, which counts its allocations with all others.
mod allocator {
    use std::ffi::c_void;
    use std::sync::Once;

    use super::sys;
    use crate::allocations::note;

    /// Installs the allocator. libuv must not have allocated before.
    pub(super) fn count() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: this is the first call into libuv, and the four functions share one heap.
            unsafe {
                sys::uv_replace_allocator(Some(malloc), Some(realloc), Some(calloc), Some(free))
            };
        });
    }

    #[cfg(target_os = "linux")]
    fn size(memory: *mut c_void) -> i64 {
        // SAFETY: null, or memory of the C library's heap.
        unsafe { libc::malloc_usable_size(memory) as i64 }
    }

    #[cfg(not(target_os = "linux"))]
    fn size(_: *mut c_void) -> i64 {
        0
    }

    unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
        // SAFETY: no memory is passed.
        let memory = unsafe { libc::malloc(bytes) };
        note(1, size(memory));
        memory
    }

    unsafe extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
        // SAFETY: no memory is passed.
        let memory = unsafe { libc::calloc(count, bytes) };
        note(1, size(memory));
        memory
    }

    unsafe extern "C" fn realloc(memory: *mut c_void, bytes: usize) -> *mut c_void {
        let before = size(memory);
        // SAFETY: libuv passes null or memory from this allocator.
        let memory = unsafe { libc::realloc(memory, bytes) };
        note(1, size(memory) - before);
        memory
    }

    unsafe extern "C" fn free(memory: *mut c_void) {
        note(0, -size(memory));
        // SAFETY: libuv passes null or memory from this allocator.
        unsafe { libc::free(memory) };
    }
}
