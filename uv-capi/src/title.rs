//! The title of the process.
//!
//! As libuv, a title overwrites the arguments: `uv_setup_args` copies them, and the kernel shows
//! what is in their original memory.

use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::alloc::{allocate, release};
use crate::strings::bytes;

struct Arguments {
    /// The copy that the program uses.
    copy: *mut *mut c_char,
    /// The original memory, which has the title.
    title: *mut c_char,
    length: usize,
    capacity: usize,
}

// SAFETY: the memory is the process's, and used under the lock.
unsafe impl Send for Arguments {}

static ARGUMENTS: Mutex<Arguments> =
    Mutex::new(Arguments { copy: null_mut(), title: null_mut(), length: 0, capacity: 0 });

fn arguments() -> MutexGuard<'static, Arguments> {
    ARGUMENTS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_setup_args(count: c_int, argv: *mut *mut c_char) -> *mut *mut c_char {
    let Ok(count @ 1..) = usize::try_from(count) else { return argv };
    let lengths = (0..count).map(|index| bytes(*argv.add(index)).len() + 1);
    let table = (count + 1) * size_of::<*mut c_char>();
    let copy = allocate(table + lengths.clone().sum::<usize>()).cast::<*mut c_char>();
    if copy.is_null() {
        return argv;
    }
    let mut text = copy.add(count + 1).cast::<c_char>();
    let mut end = *argv;
    for (index, length) in lengths.enumerate() {
        std::ptr::copy_nonoverlapping(*argv.add(index), text, length);
        *copy.add(index) = text;
        text = text.add(length);
        end = (*argv.add(index)).add(length);
    }
    *copy.add(count) = null_mut();
    *arguments() = Arguments {
        copy,
        title: *argv,
        length: bytes(*argv).len(),
        // The kernel puts the arguments one after the other.
        capacity: (end as usize).saturating_sub(*argv as usize),
    };
    copy
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_set_process_title(title: *const c_char) -> c_int {
    let mut arguments = arguments();
    if arguments.copy.is_null() {
        return -libc::ENOBUFS;
    }
    let title = bytes(title);
    let length = title.len().min(arguments.capacity.saturating_sub(1));
    std::ptr::copy_nonoverlapping(title.as_ptr(), arguments.title.cast(), length);
    std::ptr::write_bytes(arguments.title.add(length), 0, arguments.capacity - length);
    arguments.length = length;
    // The name of the thread, of which the kernel keeps 15 bytes. Only for display.
    libc::prctl(libc::PR_SET_NAME, arguments.title);
    0
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_get_process_title(buffer: *mut c_char, size: usize) -> c_int {
    if buffer.is_null() || size == 0 {
        return -libc::EINVAL;
    }
    let arguments = arguments();
    if arguments.copy.is_null() || size <= arguments.length {
        return -libc::ENOBUFS;
    }
    std::ptr::copy_nonoverlapping(arguments.title, buffer, arguments.length);
    *buffer.add(arguments.length) = 0;
    0
}

/// Frees the copy: `uv_library_shutdown`.
pub(crate) unsafe fn forget_arguments() {
    let mut arguments = arguments();
    release(arguments.copy.cast());
    arguments.copy = null_mut();
}
