//! Prefaulting of memory that is about to be written.

use std::mem::MaybeUninit;

/// Populates the pages of `memory` with one call (`MADV_POPULATE_WRITE`, Linux 5.14). Older kernels
/// refuse it, and each page faults when it is written first.
#[cfg(target_os = "linux")]
pub(crate) fn fault_in<T>(memory: &mut [MaybeUninit<T>]) {
    if cfg!(miri) {
        return;
    }
    // SAFETY: takes no pointer.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as usize;
    let start = memory.as_mut_ptr().cast::<libc::c_void>();
    let before = start.addr() % page;
    let len = before + size_of_val(memory);
    // SAFETY: `memory` is borrowed exclusively, so the pages that it lies in are mapped. The call
    // faults them in and preserves their content, also the bytes before `memory` in its first page.
    unsafe { libc::madvise(start.wrapping_byte_sub(before), len, libc::MADV_POPULATE_WRITE) };
}

/// Without such a call each page faults when it is written first.
#[cfg(not(target_os = "linux"))]
pub(crate) fn fault_in<T>(_: &mut [MaybeUninit<T>]) {}
