//! Watching of files: by the kernel's notifications, and by repeated stats.

use std::ffi::{CString, c_char, c_int, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::ptr::{null, null_mut};
use std::time::Duration;

use libc::{EFAULT, EINVAL, ENOENT};
use uv_core::fs::{Stat, Timestamp};
use uv_core::{FsEvent, FsEventFlags, FsEventKind, FsPoll, Handle as _};

use crate::alloc::{copy_string, release};
use crate::errors::{code, status};
use crate::event_loop::{core, enter, sync};
use crate::handle::{core_of, init, is_closing, key, kind, loop_of};
use crate::layout::*;
use crate::strings::{bytes, is_buffer, path, write_string};

/// The values of `uv_fs_event`.
const RENAME: c_int = 1;
const CHANGE: c_int = 2;

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_fs_event_init(
    c_loop: *mut uv_loop_t,
    event: *mut uv_fs_event_t,
) -> c_int {
    let key = FsEvent::new(core(c_loop));
    init(c_loop, event, kind::FS_EVENT, key);
    (*event).path = null_mut();
    (*event).cb = None;
    (*event).wd = -1;
    0
}

/// `UV_FS_EVENT_RECURSIVE` has no effect on Linux, as in libuv.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_fs_event_start(
    event: *mut uv_fs_event_t,
    callback: uv_fs_event_cb,
    name: *const c_char,
    _flags: c_uint,
) -> c_int {
    let (c_loop, key) = (loop_of(event), key::<FsEvent, _>(event));
    if is_closing(event) || key.is_active(core(c_loop)) {
        return -EINVAL;
    }
    // What the kernel says of such names.
    if name.is_null() {
        return -EFAULT;
    }
    if *name == 0 {
        return -ENOENT;
    }
    (*event).cb = callback;
    let flags = FsEventFlags::empty();
    let result = key.start(core(c_loop), path(name), flags, move |lp, _, change| {
        let (file, events, status) = match change {
            Ok(FsEventKind::Rename(file)) => (Some(file), RENAME, 0),
            Ok(FsEventKind::Change(file)) => (Some(file), CHANGE, 0),
            // libuv does not report that the kernel's queue has overflowed.
            Ok(_) => return,
            Err(error) => (None, 0, code(&error)),
        };
        let file = file.and_then(|file| CString::new(file.as_os_str().as_bytes()).ok());
        if let Some(callback) = (*event).cb {
            let file = file.as_ref().map_or(null(), |file| file.as_ptr());
            enter(c_loop, lp, || callback(event, file, events, status));
        }
    });
    if result.is_ok() {
        forget_path(event);
        (*event).path = copy_string(bytes(name));
    }
    sync(c_loop);
    status(result)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_fs_event_stop(event: *mut uv_fs_event_t) -> c_int {
    if is_closing(event) {
        return 0;
    }
    let result = key::<FsEvent, _>(event).stop(core_of(event));
    forget_path(event);
    sync(loop_of(event));
    status(result)
}

/// Frees the path that the struct has.
pub(crate) unsafe fn forget_path(event: *mut uv_fs_event_t) {
    release((*event).path.cast());
    (*event).path = null_mut();
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_fs_event_getpath(
    event: *mut uv_fs_event_t,
    buffer: *mut c_char,
    size: *mut usize,
) -> c_int {
    if !is_buffer(buffer, size) {
        return -EINVAL;
    }
    if (*event).path.is_null() {
        *size = 0;
        return -EINVAL;
    }
    write_string(bytes((*event).path), buffer, size)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_fs_poll_init(c_loop: *mut uv_loop_t, poll: *mut uv_fs_poll_t) -> c_int {
    let key = FsPoll::new(core(c_loop));
    init(c_loop, poll, kind::FS_POLL, key);
    (*poll).poll_ctx = None;
    0
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_fs_poll_start(
    poll: *mut uv_fs_poll_t,
    callback: uv_fs_poll_cb,
    name: *const c_char,
    milliseconds: c_uint,
) -> c_int {
    let (c_loop, key) = (loop_of(poll), key::<FsPoll, _>(poll));
    if is_closing(poll) {
        return -EINVAL;
    }
    if key.is_active(core(c_loop)) {
        return 0;
    }
    (*poll).poll_ctx = callback;
    let interval = Duration::from_millis(milliseconds.max(1).into());
    let result = key.start(core(c_loop), path(name), interval, move |lp, _, before, now| {
        let (status, now) = match now {
            Ok(now) => (0, stat_of(&now)),
            Err(error) => (code(&error), uv_stat_t::default()),
        };
        let before = stat_of(&before);
        if let Some(callback) = (*poll).poll_ctx {
            enter(c_loop, lp, || callback(poll, status, &before, &now));
        }
    });
    sync(c_loop);
    status(result)
}

fn stat_of(stat: &Stat) -> uv_stat_t {
    let time = |time: Timestamp| uv_timespec_t { tv_sec: time.sec, tv_nsec: time.nsec.into() };
    uv_stat_t {
        st_dev: stat.dev,
        st_mode: stat.mode.into(),
        st_nlink: stat.nlink,
        st_uid: stat.uid.into(),
        st_gid: stat.gid.into(),
        st_rdev: stat.rdev,
        st_ino: stat.ino,
        st_size: stat.size,
        st_blksize: stat.blksize,
        st_blocks: stat.blocks,
        st_flags: stat.flags.into(),
        st_gen: stat.generation.into(),
        st_atim: time(stat.accessed),
        st_mtim: time(stat.modified),
        st_ctim: time(stat.changed),
        st_birthtim: time(stat.created),
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_fs_poll_stop(poll: *mut uv_fs_poll_t) -> c_int {
    if is_closing(poll) {
        return 0;
    }
    let result = key::<FsPoll, _>(poll).stop(core_of(poll));
    sync(loop_of(poll));
    status(result)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_fs_poll_getpath(
    poll: *mut uv_fs_poll_t,
    buffer: *mut c_char,
    size: *mut usize,
) -> c_int {
    if !is_buffer(buffer, size) {
        return -EINVAL;
    }
    match key::<FsPoll, _>(poll).path(core_of(poll)) {
        Ok(watched) => write_string(watched.as_os_str().as_bytes(), buffer, size),
        Err(_) => {
            *size = 0;
            -EINVAL
        }
    }
}
