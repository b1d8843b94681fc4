//! Directories: all entries at once, or some at a time.

use std::ffi::{c_char, c_int};
use std::ptr::{null, null_mut};

use libc::{ENOMEM, dirent};

use crate::alloc::{allocate_array, copy_string, release};
use crate::errors::{UV_EOF, last_error};
use crate::layout::{uv_dir_t, uv_dirent_t, uv_fs_t};
use crate::strings::bytes;

unsafe extern "C" {
    fn scandir(
        directory: *const c_char,
        list: *mut *mut *mut dirent,
        filter: unsafe extern "C" fn(*const dirent) -> c_int,
        compare: unsafe extern "C" fn(*mut *const dirent, *mut *const dirent) -> c_int,
    ) -> c_int;
}

unsafe fn name_of(entry: *const dirent) -> *const c_char {
    (&raw const (*entry).d_name).cast()
}

unsafe extern "C" fn is_entry(entry: *const dirent) -> c_int {
    c_int::from(!matches!(bytes(name_of(entry)), b"." | b".."))
}

unsafe extern "C" fn compare(one: *mut *const dirent, other: *mut *const dirent) -> c_int {
    libc::strcmp(name_of(*one), name_of(*other))
}

/// The value of `uv_dirent_type_t`.
fn entry_type(kind: u8) -> c_int {
    match kind {
        libc::DT_REG => 1,
        libc::DT_DIR => 2,
        libc::DT_LNK => 3,
        libc::DT_FIFO => 4,
        libc::DT_SOCK => 5,
        libc::DT_CHR => 6,
        libc::DT_BLK => 7,
        _ => 0,
    }
}

/// Reads all entries, sorted. `nbufs` counts those that `uv_fs_scandir_next` has returned.
pub(super) unsafe fn scan(r: *mut uv_fs_t) -> isize {
    let mut list = null_mut();
    let count = scandir((*r).path, &mut list, is_entry, compare);
    (*r).nbufs = 0;
    if count < 0 {
        return last_error() as isize;
    }
    if count == 0 {
        libc::free(list.cast());
        return 0;
    }
    (*r).ptr = list.cast();
    count as isize
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_fs_scandir_next(r: *mut uv_fs_t, entry: *mut uv_dirent_t) -> c_int {
    if (*r).result < 0 {
        return (*r).result as c_int;
    }
    if (*r).ptr.is_null() {
        return UV_EOF;
    }
    let list = (*r).ptr.cast::<*mut dirent>();
    if (*r).nbufs > 0 {
        // The entry before lives until this call.
        let before = list.add((*r).nbufs as usize - 1);
        libc::free((*before).cast());
        *before = null_mut();
    }
    if (*r).nbufs as isize == (*r).result {
        libc::free(list.cast());
        (*r).ptr = null_mut();
        return UV_EOF;
    }
    let next = *list.add((*r).nbufs as usize);
    (*r).nbufs += 1;
    *entry = uv_dirent_t { name: name_of(next), type_: entry_type((*next).d_type) };
    0
}

/// Frees the entries that `uv_fs_scandir_next` has not freed.
pub(super) unsafe fn release_scan(r: *mut uv_fs_t) {
    if (*r).ptr.is_null() {
        return;
    }
    let list = (*r).ptr.cast::<*mut dirent>();
    for index in ((*r).nbufs as usize).saturating_sub(1)..(*r).result.max(0) as usize {
        libc::free((*list.add(index)).cast());
    }
    libc::free(list.cast());
    (*r).ptr = null_mut();
}

pub(super) unsafe fn open(r: *mut uv_fs_t) -> isize {
    let directory = allocate_array::<uv_dir_t>(1);
    if directory.is_null() {
        return -(ENOMEM as isize);
    }
    (*directory).dir = libc::opendir((*r).path);
    if (*directory).dir.is_null() {
        let error = last_error();
        release(directory.cast());
        return error as isize;
    }
    (*r).ptr = directory.cast();
    0
}

/// Fills the caller's list with the next entries.
pub(super) unsafe fn read(r: *mut uv_fs_t) -> isize {
    let directory = &mut *(*r).ptr.cast::<uv_dir_t>();
    let mut count = 0;
    while count < directory.nentries {
        *libc::__errno_location() = 0;
        let entry = libc::readdir(directory.dir);
        if entry.is_null() {
            let error = last_error();
            if error != 0 {
                release_names(directory, count);
                return error as isize;
            }
            break;
        }
        if is_entry(entry) == 0 {
            continue;
        }
        let name = copy_string(bytes(name_of(entry)));
        if name.is_null() {
            release_names(directory, count);
            return -(ENOMEM as isize);
        }
        *directory.dirents.add(count) = uv_dirent_t { name, type_: entry_type((*entry).d_type) };
        count += 1;
    }
    count as isize
}

unsafe fn release_names(directory: &mut uv_dir_t, count: usize) {
    for index in 0..count {
        let entry = &mut *directory.dirents.add(index);
        release(entry.name.cast_mut().cast());
        entry.name = null();
    }
}

/// Frees the names of a read.
pub(super) unsafe fn release_entries(r: *mut uv_fs_t) {
    if let Some(directory) = (*r).ptr.cast::<uv_dir_t>().as_mut() {
        release_names(directory, (*r).result.max(0) as usize);
    }
    // The directory is closed by `uv_fs_closedir`.
    (*r).ptr = null_mut();
    (*r).result = 0;
}

pub(super) unsafe fn close(r: *mut uv_fs_t) -> isize {
    let directory = (*r).ptr.cast::<uv_dir_t>();
    libc::closedir((*directory).dir);
    release(directory.cast());
    (*r).ptr = null_mut();
    0
}
