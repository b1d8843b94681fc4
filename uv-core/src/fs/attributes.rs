//! Permissions, owners and times of files.

use std::path::Path;
use std::time::SystemTime;

use super::operation::{Call, Operation};
use super::{File, Timestamp};
use crate::sys::fs as sys;
use crate::sys::fs::{Name, Owners, Times};

/// The new value of a file time.
///
/// ```
/// use std::time::UNIX_EPOCH;
/// use uv_core::fs::{SetTime, Timestamp};
///
/// assert_eq!(SetTime::from(UNIX_EPOCH), SetTime::At(Timestamp { sec: 0, nsec: 0 }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
// Exhaustive: all that `utimensat` can do to a time.
pub enum SetTime {
    /// This time.
    At(Timestamp),
    /// The time of the call.
    Now,
    /// Leaves the time unchanged.
    Omit,
}

impl From<Timestamp> for SetTime {
    fn from(time: Timestamp) -> SetTime {
        SetTime::At(time)
    }
}

impl From<SystemTime> for SetTime {
    fn from(time: SystemTime) -> SetTime {
        SetTime::At(time.into())
    }
}

fn named<T>(path: &Path, rest: T) -> std::io::Result<(Name, T)> {
    Ok((Name::new(path)?, rest))
}

/// Sets the permissions of a file (`chmod(2)`). On Windows only `0o200` has an effect: without it
/// the file is read-only.
///
/// ```
/// use uv_core::fs;
///
/// # let dir = fs::mkdtemp(std::env::temp_dir().join("chmod-XXXXXX")).perform()?;
/// # std::fs::write(dir.join("a"), "")?;
/// fs::chmod(dir.join("a"), 0o444).perform()?;
/// assert_eq!(fs::stat(dir.join("a")).perform()?.mode & 0o777, 0o444);
/// # fs::chmod(dir.join("a"), 0o644).perform()?;
/// # drop(std::fs::remove_dir_all(dir));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors.
#[doc(alias = "uv_fs_chmod")]
pub fn chmod(path: impl AsRef<Path>, mode: u32) -> Operation<Call<(Name, u32), ()>> {
    Call::try_of(named(path.as_ref(), mode), &sys::CHMOD)
}

/// As [`chmod`], for an open file (`fchmod(2)`).
///
/// ```
/// # let dir = uv_core::fs::mkdtemp(std::env::temp_dir().join("chmod-XXXXXX")).perform()?;
/// # let file = uv_core::fs::File::from(std::fs::File::create(dir.join("a"))?);
/// uv_core::fs::fchmod(&file, 0o600).perform()?;
/// # drop(std::fs::remove_dir_all(dir));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors.
#[doc(alias = "uv_fs_fchmod")]
pub fn fchmod(file: &File, mode: u32) -> Operation<Call<(File, u32), ()>> {
    Call::of((file.clone(), mode), &sys::FCHMOD)
}

/// Sets the owner and the group of a file; `None` leaves it unchanged (`chown(2)`). On Windows this
/// does nothing.
///
/// ```
/// uv_core::fs::chown("Cargo.toml", None, None).perform()?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors, such as `EPERM`.
#[doc(alias = "uv_fs_chown")]
pub fn chown(
    path: impl AsRef<Path>,
    user: Option<u32>,
    group: Option<u32>,
) -> Operation<Call<(Name, Owners), ()>> {
    Call::try_of(named(path.as_ref(), (user, group)), &sys::CHOWN)
}

/// As [`chown`], for an open file (`fchown(2)`).
///
/// ```
/// # let file = uv_core::fs::File::from(std::fs::File::open("Cargo.toml")?);
/// uv_core::fs::fchown(&file, None, None).perform()?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors, such as `EPERM`.
#[doc(alias = "uv_fs_fchown")]
pub fn fchown(
    file: &File,
    user: Option<u32>,
    group: Option<u32>,
) -> Operation<Call<(File, Owners), ()>> {
    Call::of((file.clone(), (user, group)), &sys::FCHOWN)
}

/// As [`chown`], for a symbolic link itself (`lchown(2)`).
///
/// ```
/// uv_core::fs::lchown("Cargo.toml", None, None).perform()?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors, such as `EPERM`.
#[doc(alias = "uv_fs_lchown")]
pub fn lchown(
    path: impl AsRef<Path>,
    user: Option<u32>,
    group: Option<u32>,
) -> Operation<Call<(Name, Owners), ()>> {
    Call::try_of(named(path.as_ref(), (user, group)), &sys::LCHOWN)
}

/// Sets the times of the last access and modification of a file (`utimensat(2)`).
///
/// ```
/// use uv_core::fs::{self, SetTime, Timestamp};
///
/// # let dir = fs::mkdtemp(std::env::temp_dir().join("utime-XXXXXX")).perform()?;
/// # std::fs::write(dir.join("a"), "")?;
/// let time = Timestamp { sec: 1_000_000_000, nsec: 0 };
/// fs::utime(dir.join("a"), SetTime::Omit, time).perform()?;
/// assert_eq!(fs::stat(dir.join("a")).perform()?.modified, time);
/// # drop(std::fs::remove_dir_all(dir));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors.
#[doc(alias = "uv_fs_utime")]
pub fn utime(
    path: impl AsRef<Path>,
    accessed: impl Into<SetTime>,
    modified: impl Into<SetTime>,
) -> Operation<Call<(Name, Times), ()>> {
    Call::try_of(named(path.as_ref(), (accessed.into(), modified.into())), &sys::UTIME)
}

/// As [`utime`], for an open file (`futimens(2)`).
///
/// ```
/// use uv_core::fs::{self, SetTime};
///
/// # let dir = fs::mkdtemp(std::env::temp_dir().join("utime-XXXXXX")).perform()?;
/// # let file = fs::File::from(std::fs::File::create(dir.join("a"))?);
/// fs::futime(&file, SetTime::Now, SetTime::Now).perform()?;
/// # drop(std::fs::remove_dir_all(dir));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors.
#[doc(alias = "uv_fs_futime")]
pub fn futime(
    file: &File,
    accessed: impl Into<SetTime>,
    modified: impl Into<SetTime>,
) -> Operation<Call<(File, Times), ()>> {
    Call::of((file.clone(), (accessed.into(), modified.into())), &sys::FUTIME)
}

/// As [`utime`], for a symbolic link itself.
///
/// ```
/// use uv_core::fs::{self, SetTime};
///
/// # let dir = fs::mkdtemp(std::env::temp_dir().join("utime-XXXXXX")).perform()?;
/// # std::fs::write(dir.join("a"), "")?;
/// fs::lutime(dir.join("a"), SetTime::Now, SetTime::Omit).perform()?;
/// # drop(std::fs::remove_dir_all(dir));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors.
#[doc(alias = "uv_fs_lutime")]
pub fn lutime(
    path: impl AsRef<Path>,
    accessed: impl Into<SetTime>,
    modified: impl Into<SetTime>,
) -> Operation<Call<(Name, Times), ()>> {
    Call::try_of(named(path.as_ref(), (accessed.into(), modified.into())), &sys::LUTIME)
}
