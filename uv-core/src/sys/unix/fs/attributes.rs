//! Ownership, permissions and times of files.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, fchown, lchown};

use super::{Name, Way, fd, retried};
use crate::fs::{File, SetTime, Timestamp};

pub(crate) const CHMOD: Way<(Name, u32), ()> = Way::blocking(|(name, mode)| {
    fs::set_permissions(name.as_path(), Permissions::from_mode(*mode))
});

pub(crate) const FCHMOD: Way<(File, u32), ()> =
    Way::blocking(|(file, mode)| file.std().set_permissions(Permissions::from_mode(*mode)));

/// The user and the group; `None` leaves the value unchanged.
pub(crate) type Owners = (Option<u32>, Option<u32>);

pub(crate) const CHOWN: Way<(Name, Owners), ()> =
    Way::blocking(|(name, (user, group))| chown(name.as_path(), *user, *group));

pub(crate) const FCHOWN: Way<(File, Owners), ()> =
    Way::blocking(|(file, (user, group))| fchown(file.std(), *user, *group));

pub(crate) const LCHOWN: Way<(Name, Owners), ()> =
    Way::blocking(|(name, (user, group))| lchown(name.as_path(), *user, *group));

/// Access time and modification time.
pub(crate) type Times = (SetTime, SetTime);

pub(crate) const UTIME: Way<(Name, Times), ()> =
    Way::blocking(|(name, times)| set_times(name, *times, 0));

pub(crate) const LUTIME: Way<(Name, Times), ()> =
    Way::blocking(|(name, times)| set_times(name, *times, libc::AT_SYMLINK_NOFOLLOW));

pub(crate) const FUTIME: Way<(File, Times), ()> = Way::blocking(|(file, times)| {
    let times = [timespec(times.0), timespec(times.1)];
    // SAFETY: reads two `timespec`s, the length of `times`, a local.
    retried(|| unsafe { libc::futimens(fd(file), times.as_ptr()) }).map(drop)
});

fn set_times(name: &Name, times: Times, flags: libc::c_int) -> std::io::Result<()> {
    let times = [timespec(times.0), timespec(times.1)];
    let call = || {
        // SAFETY: reads a NUL-terminated path, which `name` owns, and two `timespec`s, the length
        // of `times`, a local.
        unsafe { libc::utimensat(libc::AT_FDCWD, name.as_ptr(), times.as_ptr(), flags) }
    };
    retried(call).map(drop)
}

fn timespec(time: SetTime) -> libc::timespec {
    // A literal would not compile everywhere: on some systems there is a padding field.
    // SAFETY: a C structure of integers; zero is valid for each.
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
