//! Whose files are, who may do what with them, and their times.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, fchown, lchown};

use super::{Name, Way, fd, retried};
use crate::fs::{File, SetTime, Timestamp};

pub(crate) const CHMOD: Way<(Name, u32), ()> = Way::blocking(|(name, mode)| {
    fs::set_permissions(name.as_path(), Permissions::from_mode(*mode))
});

pub(crate) const FCHMOD: Way<(File, u32), ()> =
    Way::blocking(|(file, mode)| file.0.set_permissions(Permissions::from_mode(*mode)));

/// The user and the group; `None` stays as it is.
pub(crate) type Owners = (Option<u32>, Option<u32>);

pub(crate) const CHOWN: Way<(Name, Owners), ()> =
    Way::blocking(|(name, (user, group))| chown(name.as_path(), *user, *group));

pub(crate) const FCHOWN: Way<(File, Owners), ()> =
    Way::blocking(|(file, (user, group))| fchown(&*file.0, *user, *group));

pub(crate) const LCHOWN: Way<(Name, Owners), ()> =
    Way::blocking(|(name, (user, group))| lchown(name.as_path(), *user, *group));

/// When the file was read, and when it was written.
pub(crate) type Times = (SetTime, SetTime);

pub(crate) const UTIME: Way<(Name, Times), ()> =
    Way::blocking(|(name, times)| set_times(name, *times, 0));

pub(crate) const LUTIME: Way<(Name, Times), ()> =
    Way::blocking(|(name, times)| set_times(name, *times, libc::AT_SYMLINK_NOFOLLOW));

pub(crate) const FUTIME: Way<(File, Times), ()> = Way::blocking(|(file, times)| {
    let times = [timespec(times.0), timespec(times.1)];
    // SAFETY: the kernel reads two times, which live across the call.
    retried(|| unsafe { libc::futimens(fd(file), times.as_ptr()) }).map(drop)
});

fn set_times(name: &Name, times: Times, flags: libc::c_int) -> std::io::Result<()> {
    let times = [timespec(times.0), timespec(times.1)];
    let call = || {
        // SAFETY: the path ends with a NUL; it and the two times live across the call.
        unsafe { libc::utimensat(libc::AT_FDCWD, name.as_ptr(), times.as_ptr(), flags) }
    };
    retried(call).map(drop)
}

fn timespec(time: SetTime) -> libc::timespec {
    // SAFETY: a `timespec` is numbers, which may all be zero. On some systems it has padding.
    let mut spec: libc::timespec = unsafe { std::mem::zeroed() };
    match time {
        SetTime::Now => spec.tv_nsec = libc::UTIME_NOW as _,
        SetTime::Omit => spec.tv_nsec = libc::UTIME_OMIT as _,
        SetTime::At(Timestamp { sec, nsec }) => {
            spec.tv_sec = sec as _;
            spec.tv_nsec = nsec as _;
        }
    }
    spec
}
