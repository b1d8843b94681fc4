//! Memory before it is used.

use std::mem::MaybeUninit;

/// Has the system give memory that will be written soon, all of it at once. Nothing changes if
/// it cannot do that: it gives each page when that is written first.
#[cfg(target_os = "linux")]
pub(crate) fn fault_in<T>(room: &mut [MaybeUninit<T>]) {
    if cfg!(miri) {
        return;
    }
    // SAFETY: asking takes no memory.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as usize;
    let start = room.as_mut_ptr().cast::<libc::c_void>();
    let before = start.addr() % page;
    let len = before + size_of_val(room);
    // Since Linux 5.14.
    // SAFETY: the pages that the room is in are there, and what is in them stays.
    unsafe { libc::madvise(start.wrapping_byte_sub(before), len, libc::MADV_POPULATE_WRITE) };
}

/// Systems that cannot be asked give each page when it is written first.
#[cfg(not(target_os = "linux"))]
pub(crate) fn fault_in<T>(_: &mut [MaybeUninit<T>]) {}
