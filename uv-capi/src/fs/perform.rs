//! The system calls of file operations, on the fields of the request.

use std::ffi::{c_char, c_int, c_long};
use std::ptr::{addr_of_mut, null_mut};

use libc::{
    AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, EINTR, EINVAL, ENOMEM, O_CLOEXEC, timespec,
};

use super::{directory, kind, transfer};
use crate::alloc::{allocate_array, copy_string};
use crate::errors::last_error;
use crate::layout::{uv_fs_t, uv_stat_t, uv_statfs_t, uv_timespec_t};
use crate::strings::bytes;

/// The result of a call that returns a negative number for an error.
pub(super) fn result(returned: isize) -> isize {
    if returned < 0 { last_error() as isize } else { returned }
}

/// Repeats a call that a signal interrupts.
fn retry(mut call: impl FnMut() -> c_int) -> isize {
    loop {
        let returned = result(call() as isize);
        if returned != -(EINTR as isize) {
            return returned;
        }
    }
}

/// Performs a request, on the caller's thread or on one of the pool.
///
/// No reference to the whole request is made: meanwhile the loop's thread stores its key, and the
/// program may set `data`.
pub(super) unsafe fn perform(r: *mut uv_fs_t) {
    let (path, new_path) = ((*r).path, (*r).new_path);
    (*r).result = match (*r).fs_type {
        kind::OPEN => retry(|| libc::open(path, (*r).flags | O_CLOEXEC, (*r).mode)),
        kind::CLOSE => close((*r).file),
        kind::READ => transfer::read(r),
        kind::WRITE => transfer::write(r),
        kind::SENDFILE => transfer::send_file(r),
        kind::STAT => stat(r, AT_FDCWD, path, 0),
        kind::LSTAT => stat(r, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW),
        kind::FSTAT => stat(r, (*r).file, c"".as_ptr(), AT_EMPTY_PATH),
        kind::FTRUNCATE => retry(|| libc::ftruncate((*r).file, (*r).off)),
        kind::UTIME => set_times(r, AT_FDCWD, path, 0),
        kind::LUTIME => set_times(r, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW),
        kind::FUTIME => {
            let times = [time((*r).atime), time((*r).mtime)];
            retry(|| libc::futimens((*r).file, times.as_ptr()))
        }
        kind::ACCESS => retry(|| libc::access(path, (*r).flags)),
        kind::CHMOD => retry(|| libc::chmod(path, (*r).mode)),
        kind::FCHMOD => retry(|| libc::fchmod((*r).file, (*r).mode)),
        kind::FSYNC => retry(|| libc::fsync((*r).file)),
        kind::FDATASYNC => retry(|| libc::fdatasync((*r).file)),
        kind::UNLINK => retry(|| libc::unlink(path)),
        kind::RMDIR => retry(|| libc::rmdir(path)),
        kind::MKDIR => retry(|| libc::mkdir(path, (*r).mode)),
        kind::MKDTEMP => match libc::mkdtemp(path.cast_mut()).is_null() {
            true => last_error() as isize,
            false => 0,
        },
        kind::MKSTEMP => make_file(path.cast_mut()),
        kind::RENAME => retry(|| libc::rename(path, new_path)),
        kind::SCANDIR => directory::scan(r),
        kind::LINK => retry(|| libc::link(path, new_path)),
        kind::SYMLINK => retry(|| libc::symlink(path, new_path)),
        kind::READLINK => read_link(r),
        kind::REALPATH => real_path(r),
        kind::CHOWN => retry(|| libc::chown(path, (*r).uid, (*r).gid)),
        kind::FCHOWN => retry(|| libc::fchown((*r).file, (*r).uid, (*r).gid)),
        kind::LCHOWN => retry(|| libc::lchown(path, (*r).uid, (*r).gid)),
        kind::COPYFILE => transfer::copy_file(r),
        kind::OPENDIR => directory::open(r),
        kind::READDIR => directory::read(r),
        kind::CLOSEDIR => directory::close(r),
        kind::STATFS => stat_file_system(r),
        _ => -(EINVAL as isize),
    };
}

/// The descriptor is closed also if a signal interrupts the call.
unsafe fn close(fd: c_int) -> isize {
    match result(libc::close(fd) as isize) as c_int {
        error if error == -EINTR || error == -libc::EINPROGRESS => 0,
        other => other as isize,
    }
}

unsafe fn make_file(template: *mut c_char) -> isize {
    let made = match bytes(template).ends_with(b"XXXXXX") {
        true => result(libc::mkostemp(template, O_CLOEXEC) as isize),
        false => -(EINVAL as isize),
    };
    if made < 0 {
        // As libuv: no name is left to be taken for one that was made.
        *template = 0;
    }
    made
}

unsafe fn stat(r: *mut uv_fs_t, directory: c_int, path: *const c_char, flags: c_int) -> isize {
    let mut found: libc::statx = std::mem::zeroed();
    /// `STATX_BASIC_STATS | STATX_BTIME`.
    const ALL: u32 = 0xfff;
    if libc::statx(directory, path, flags, ALL, &mut found) != 0 {
        // Sandboxes of old systems refuse a call that they do not know.
        return match -last_error() {
            libc::ENOSYS | libc::EPERM => stat_without_birth(r, directory, path, flags),
            error => -(error as isize),
        };
    }
    let time = |time: libc::statx_timestamp| uv_timespec_t {
        tv_sec: time.tv_sec,
        tv_nsec: time.tv_nsec as c_long,
    };
    (*r).statbuf = uv_stat_t {
        st_dev: libc::makedev(found.stx_dev_major, found.stx_dev_minor),
        st_mode: found.stx_mode.into(),
        st_nlink: found.stx_nlink.into(),
        st_uid: found.stx_uid.into(),
        st_gid: found.stx_gid.into(),
        st_rdev: libc::makedev(found.stx_rdev_major, found.stx_rdev_minor),
        st_ino: found.stx_ino,
        st_size: found.stx_size,
        st_blksize: found.stx_blksize.into(),
        st_blocks: found.stx_blocks,
        st_flags: 0,
        st_gen: 0,
        st_atim: time(found.stx_atime),
        st_mtim: time(found.stx_mtime),
        st_ctim: time(found.stx_ctime),
        st_birthtim: time(found.stx_btime),
    };
    (*r).ptr = addr_of_mut!((*r).statbuf).cast();
    0
}

unsafe fn stat_without_birth(
    r: *mut uv_fs_t,
    directory: c_int,
    path: *const c_char,
    flags: c_int,
) -> isize {
    let mut found: libc::stat = std::mem::zeroed();
    if libc::fstatat(directory, path, &mut found, flags) != 0 {
        return last_error() as isize;
    }
    let changed = uv_timespec_t { tv_sec: found.st_ctime, tv_nsec: found.st_ctime_nsec };
    (*r).statbuf = uv_stat_t {
        st_dev: found.st_dev,
        st_mode: found.st_mode.into(),
        st_nlink: found.st_nlink as u64,
        st_uid: found.st_uid.into(),
        st_gid: found.st_gid.into(),
        st_rdev: found.st_rdev,
        st_ino: found.st_ino,
        st_size: found.st_size as u64,
        st_blksize: found.st_blksize as u64,
        st_blocks: found.st_blocks as u64,
        st_flags: 0,
        st_gen: 0,
        st_atim: uv_timespec_t { tv_sec: found.st_atime, tv_nsec: found.st_atime_nsec },
        st_mtim: uv_timespec_t { tv_sec: found.st_mtime, tv_nsec: found.st_mtime_nsec },
        st_ctim: changed,
        // As libuv, where the kernel does not report it.
        st_birthtim: changed,
    };
    (*r).ptr = addr_of_mut!((*r).statbuf).cast();
    0
}

unsafe fn set_times(
    r: *const uv_fs_t,
    directory: c_int,
    path: *const c_char,
    flags: c_int,
) -> isize {
    let times = [time((*r).atime), time((*r).mtime)];
    retry(|| libc::utimensat(directory, path, times.as_ptr(), flags))
}

/// A time of the caller in seconds; infinity is now, and no number leaves it unchanged.
#[inline(never)] // It is rare, and the function that performs every operation is smaller without it.
fn time(seconds: f64) -> timespec {
    if seconds.is_infinite() {
        return timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW };
    }
    if seconds.is_nan() {
        return timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT };
    }
    // Microseconds, as libuv: a double has no exact nanoseconds.
    let whole = seconds.floor();
    if whole.abs() >= i64::MAX as f64 {
        return timespec { tv_sec: 0, tv_nsec: -1 }; // Which the kernel refuses.
    }
    let microseconds = ((seconds - whole) * 1e6).round() as i64;
    timespec {
        tv_sec: whole as i64 + microseconds / 1_000_000,
        tv_nsec: microseconds % 1_000_000 * 1000,
    }
}

unsafe fn read_link(r: *mut uv_fs_t) -> isize {
    let mut target = vec![0u8; libc::PATH_MAX as usize];
    let length = result(libc::readlink((*r).path, target.as_mut_ptr().cast(), target.len()));
    if length < 0 {
        return length;
    }
    (*r).ptr = copy_string(&target[..length as usize]).cast();
    if (*r).ptr.is_null() { -(ENOMEM as isize) } else { 0 }
}

unsafe fn real_path(r: *mut uv_fs_t) -> isize {
    let resolved = libc::realpath((*r).path, null_mut());
    if resolved.is_null() {
        return last_error() as isize;
    }
    (*r).ptr = copy_string(bytes(resolved)).cast();
    libc::free(resolved.cast());
    if (*r).ptr.is_null() { -(ENOMEM as isize) } else { 0 }
}

unsafe fn stat_file_system(r: *mut uv_fs_t) -> isize {
    let mut found: libc::statfs = std::mem::zeroed();
    if libc::statfs((*r).path, &mut found) != 0 {
        return last_error() as isize;
    }
    let out = allocate_array::<uv_statfs_t>(1);
    if out.is_null() {
        return -(ENOMEM as isize);
    }
    *out = uv_statfs_t {
        f_type: found.f_type as u64,
        f_bsize: found.f_bsize as u64,
        f_blocks: found.f_blocks,
        f_bfree: found.f_bfree,
        f_bavail: found.f_bavail,
        f_files: found.f_files,
        f_ffree: found.f_ffree,
        f_frsize: found.f_frsize as u64,
        f_spare: [0; 3],
    };
    (*r).ptr = out.cast();
    0
}
