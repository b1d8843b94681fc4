//! Permissions, owners and times of files.

use std::fs::{self, File as Std, FileTimes};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::time::SystemTime;

use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT, FILE_WRITE_ATTRIBUTES,
};

use super::{Name, Way};
use crate::fs::{File, SetTime};

/// Sets or clears the read-only attribute, the only permission of Windows.
fn with_mode(mut permissions: fs::Permissions, mode: u32) -> fs::Permissions {
    permissions.set_readonly(mode & 0o200 == 0);
    permissions
}

pub(crate) const CHMOD: Way<(Name, u32), ()> = Way::blocking(|(name, mode)| {
    let permissions = fs::metadata(name.as_path())?.permissions();
    fs::set_permissions(name.as_path(), with_mode(permissions, *mode))
});

pub(crate) const FCHMOD: Way<(File, u32), ()> = Way::blocking(|(file, mode)| {
    let permissions = file.std().metadata()?.permissions();
    file.std().set_permissions(with_mode(permissions, *mode))
});

/// The user and the group; `None` keeps the current one.
pub(crate) type Owners = (Option<u32>, Option<u32>);

/// Does nothing: Windows has no numeric owners.
pub(crate) const CHOWN: Way<(Name, Owners), ()> = Way::blocking(|_| Ok(()));

/// Does nothing: Windows has no numeric owners.
pub(crate) const FCHOWN: Way<(File, Owners), ()> = Way::blocking(|_| Ok(()));

/// Does nothing: Windows has no numeric owners.
pub(crate) const LCHOWN: Way<(Name, Owners), ()> = Way::blocking(|_| Ok(()));

/// The times of the last access and the last write.
pub(crate) type Times = (SetTime, SetTime);

pub(crate) const UTIME: Way<(Name, Times), ()> =
    Way::blocking(|(name, times)| set_times(&open(name, 0)?, *times));

pub(crate) const LUTIME: Way<(Name, Times), ()> =
    Way::blocking(|(name, times)| set_times(&open(name, FILE_FLAG_OPEN_REPARSE_POINT)?, *times));

pub(crate) const FUTIME: Way<(File, Times), ()> =
    Way::blocking(|(file, times)| set_times(file.std(), *times));

fn open(name: &Name, flags: u32) -> io::Result<Std> {
    let mut options = Std::options();
    options.access_mode(FILE_WRITE_ATTRIBUTES).custom_flags(FILE_FLAG_BACKUP_SEMANTICS | flags);
    options.open(name.as_path())
}

fn set_times(file: &Std, (accessed, modified): Times) -> io::Result<()> {
    let mut times = FileTimes::new();
    if let Some(time) = moment(accessed)? {
        times = times.set_accessed(time);
    }
    if let Some(time) = moment(modified)? {
        times = times.set_modified(time);
    }
    file.set_times(times)
}

fn moment(time: SetTime) -> io::Result<Option<SystemTime>> {
    match time {
        SetTime::Omit => Ok(None),
        SetTime::Now => Ok(Some(SystemTime::now())),
        SetTime::At(time) => match time.to_system_time() {
            Some(time) => Ok(Some(time)),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the time is outside the range of Windows file times, which starts in 1601",
            )),
        },
    }
}
