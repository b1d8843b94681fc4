//! The memory that a process has allocated.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicIsize, Ordering};

/// The system's allocator with a count of the bytes that are in use.
///
/// [`fuzz`](super::fuzz) checks that each program returns its memory if this is the global
/// allocator of the process.
///
/// ```
/// use conformance::fuzz::LiveMemory;
///
/// #[global_allocator]
/// static MEMORY: LiveMemory = LiveMemory;
///
/// let before = LiveMemory::bytes().unwrap();
/// let buffer = vec![0_u8; 1000];
/// assert!(LiveMemory::bytes().unwrap() >= before + 1000);
/// # drop(buffer);
/// ```
#[derive(Debug)]
pub struct LiveMemory;

static LIVE: AtomicIsize = AtomicIsize::new(0);

impl LiveMemory {
    /// The number of allocated bytes; `None` if this is not the global allocator.
    pub fn bytes() -> Option<usize> {
        // A program may not have allocated anything yet: this allocation shows whether it is counted.
        let probe = black_box(Box::new(0_u8));
        let live = LIVE.load(Ordering::Relaxed).checked_sub_unsigned(size_of_val(&*probe));
        usize::try_from(live?).ok()
    }
}

fn add(len: usize) {
    LIVE.fetch_add(len as isize, Ordering::Relaxed);
}

fn subtract(len: usize) {
    LIVE.fetch_sub(len as isize, Ordering::Relaxed);
}

// SAFETY: all calls are forwarded to the system's allocator, which upholds the contract.
unsafe impl GlobalAlloc for LiveMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller upholds the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        subtract(layout.size());
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size);
        subtract(layout.size());
        // SAFETY: the caller upholds the contract of `realloc`.
        unsafe { System.realloc(memory, layout, size) }
    }
}
