//! An allocator that can count allocations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

static COUNTS: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicI64 = AtomicI64::new(0);

/// The system's allocator with counters, which cost one load of a flag while they are off.
///
/// The program installs it; so do tests of scenarios that count allocations.
#[derive(Debug)]
pub struct Counting;

/// Starts or stops counting.
pub fn count(on: bool) {
    COUNTS.store(on, Relaxed);
}

/// The number of allocations since the last call.
pub fn take() -> u64 {
    ALLOCATIONS.swap(0, Relaxed)
}

/// The growth of the bytes in use since the counting began.
pub fn live() -> i64 {
    LIVE.load(Relaxed)
}

#[inline]
pub(crate) fn note(asked: u64, bytes: i64) {
    if COUNTS.load(Relaxed) {
        ALLOCATIONS.fetch_add(asked, Relaxed);
        LIVE.fetch_add(bytes, Relaxed);
    }
}

// SAFETY: every method forwards to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as i64);
        // SAFETY: the caller keeps the conditions of the inner call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as i64);
        // SAFETY: the caller keeps the conditions of the inner call.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note(0, -(layout.size() as i64));
        // SAFETY: the caller keeps the conditions of the inner call.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(1, size as i64 - layout.size() as i64);
        // SAFETY: the caller keeps the conditions of the inner call.
        unsafe { System.realloc(memory, layout, size) }
    }
}
