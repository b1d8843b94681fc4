//! Memory that the caller frees, or that lives in the caller's structs: it comes from the allocator
//! that `uv_replace_allocator` sets. `uv-core` uses Rust's global allocator.

use std::ffi::{c_char, c_int, c_void};
use std::sync::RwLock;

type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Calloc = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);

struct Allocator {
    malloc: Malloc,
    calloc: Calloc,
    free: Free,
}

static ALLOCATOR: RwLock<Allocator> =
    RwLock::new(Allocator { malloc: libc::malloc, calloc: libc::calloc, free: libc::free });

/// The functions are copied out: they run without the lock, and may call this library.
fn allocator() -> Allocator {
    let Allocator { malloc, calloc, free } =
        *ALLOCATOR.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    Allocator { malloc, calloc, free }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_replace_allocator(
    malloc: Option<Malloc>,
    realloc: Option<Realloc>,
    calloc: Option<Calloc>,
    free: Option<Free>,
) -> c_int {
    let (Some(malloc), Some(_), Some(calloc), Some(free)) = (malloc, realloc, calloc, free) else {
        return -libc::EINVAL;
    };
    let mut allocator = ALLOCATOR.write().unwrap_or_else(std::sync::PoisonError::into_inner);
    *allocator = Allocator { malloc, calloc, free };
    0
}

/// Memory of `size` bytes, or null.
pub(crate) unsafe fn allocate(size: usize) -> *mut c_void {
    (allocator().malloc)(size)
}

/// Zeroed memory for `count` values, or null.
pub(crate) unsafe fn allocate_array<T>(count: usize) -> *mut T {
    (allocator().calloc)(count.max(1), size_of::<T>()).cast()
}

pub(crate) unsafe fn release(memory: *mut c_void) {
    // As free(3), but a replaced function may not expect null.
    if !memory.is_null() {
        (allocator().free)(memory);
    }
}

/// A copy with a final NUL, or null.
pub(crate) unsafe fn copy_string(bytes: &[u8]) -> *mut c_char {
    let copy = allocate(bytes.len() + 1).cast::<c_char>();
    if !copy.is_null() {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), copy.cast(), bytes.len());
        *copy.add(bytes.len()) = 0;
    }
    copy
}
