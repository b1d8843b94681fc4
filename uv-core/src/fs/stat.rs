//! Metadata of files and file systems.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::operation::{Call, Operation};
use super::{EntryKind, File};
use crate::pool::fits_task;
use crate::sys::fs as sys;

// The largest task that programs use often must need no allocation.
const _: () = assert!(fits_task::<Call<sys::StatRequest, Stat>>());

/// A time, in seconds and nanoseconds since the Unix epoch.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// use uv_core::fs::Timestamp;
///
/// let before = Timestamp { sec: -2, nsec: 500_000_000 };
/// assert_eq!(before.to_system_time(), Some(UNIX_EPOCH - Duration::from_millis(1500)));
/// assert_eq!(Timestamp::from(UNIX_EPOCH - Duration::from_millis(1500)), before);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
// Exhaustive: a plain pair, which programs construct.
pub struct Timestamp {
    /// Seconds; negative before 1970.
    pub sec: i64,
    /// Nanoseconds to add, less than 10⁹.
    pub nsec: u32,
}

impl Timestamp {
    /// Converts into a `std` time; `None` if that cannot represent it.
    ///
    /// ```
    /// let modified = uv_core::fs::stat(".").perform()?.modified;
    /// assert!(modified.to_system_time().unwrap() <= std::time::SystemTime::now());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn to_system_time(self) -> Option<SystemTime> {
        let seconds = Duration::from_secs(self.sec.unsigned_abs());
        let second = match self.sec {
            ..0 => UNIX_EPOCH.checked_sub(seconds),
            _ => UNIX_EPOCH.checked_add(seconds),
        };
        second?.checked_add(Duration::from_nanos(self.nsec.into()))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Timestamp {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Timestamp { sec: since.as_secs() as i64, nsec: since.subsec_nanos() },
            Err(before) => {
                let before = before.duration();
                let sec = -(before.as_secs() as i64);
                match before.subsec_nanos() {
                    0 => Timestamp { sec, nsec: 0 },
                    nsec => Timestamp { sec: sec - 1, nsec: 1_000_000_000 - nsec },
                }
            }
        }
    }
}

/// The metadata of a file.
///
/// ```
/// let stat = uv_core::fs::stat("Cargo.toml").perform()?;
/// assert!(stat.is_file() && stat.size > 0);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "uv_stat_t")]
pub struct Stat {
    /// The device that contains the file.
    pub dev: u64,
    /// The type and the permissions, as on Unix. On Windows, derived from the attributes.
    pub mode: u32,
    /// The number of hard links.
    pub nlink: u64,
    /// The owner. 0 on Windows, as is `gid`.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The device that the file represents, if it is a device file.
    pub rdev: u64,
    /// The inode number.
    pub ino: u64,
    /// The length in bytes.
    pub size: u64,
    /// The preferred block size for I/O.
    pub blksize: u64,
    /// The allocated space, in blocks of 512 bytes.
    pub blocks: u64,
    /// User flags, on the BSDs and Apple's systems.
    pub flags: u32,
    /// The generation of the inode, on the BSDs and Apple's systems.
    pub generation: u32,
    /// The time of the last access.
    pub accessed: Timestamp,
    /// The time of the last modification.
    pub modified: Timestamp,
    /// The time of the last change of the data or the metadata.
    pub changed: Timestamp,
    /// The time of creation; zero or `changed` if the file system has none.
    pub created: Timestamp,
}

impl Stat {
    /// The kind of the file.
    ///
    /// ```
    /// use uv_core::fs::{self, EntryKind};
    ///
    /// assert_eq!(fs::stat(".").perform()?.kind(), EntryKind::Dir);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn kind(&self) -> EntryKind {
        match self.mode & 0o170_000 {
            0o100_000 => EntryKind::File,
            0o040_000 => EntryKind::Dir,
            0o120_000 => EntryKind::Link,
            0o010_000 => EntryKind::Fifo,
            0o140_000 => EntryKind::Socket,
            0o020_000 => EntryKind::Char,
            0o060_000 => EntryKind::Block,
            _ => EntryKind::Unknown,
        }
    }

    /// True for a directory.
    ///
    /// ```
    /// assert!(uv_core::fs::stat(".").perform()?.is_dir());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn is_dir(&self) -> bool {
        self.kind() == EntryKind::Dir
    }

    /// True for a regular file.
    ///
    /// ```
    /// assert!(uv_core::fs::stat("Cargo.toml").perform()?.is_file());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn is_file(&self) -> bool {
        self.kind() == EntryKind::File
    }

    /// True for a symbolic link, which only [`lstat`] reports.
    ///
    /// ```
    /// assert!(!uv_core::fs::stat("Cargo.toml").perform()?.is_symlink());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn is_symlink(&self) -> bool {
        self.kind() == EntryKind::Link
    }
}

/// The metadata of a file system. Counts are in blocks of `frsize`.
///
/// ```
/// let space = uv_core::fs::statfs(".").perform()?;
/// println!("{} bytes are free", space.bavail * space.frsize);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "uv_statfs_t")]
pub struct StatFs {
    /// The type, a number of the system. 0 on Windows and NetBSD.
    pub kind: u64,
    /// The preferred block size for I/O.
    pub bsize: u64,
    /// The size of the blocks that the counts are in.
    pub frsize: u64,
    /// The number of blocks.
    pub blocks: u64,
    /// The number of free blocks.
    pub bfree: u64,
    /// The number of blocks that are free for unprivileged users.
    pub bavail: u64,
    /// The maximal number of files; 0 if it is unlimited or unknown.
    pub files: u64,
    /// The number of files that can be added.
    pub ffree: u64,
}

/// Reads the metadata of a file, following symbolic links (`stat(2)`).
///
/// ```
/// use uv_core::{Loop, RunMode, fs};
///
/// let mut lp = Loop::with_default_backend()?;
/// fs::stat("Cargo.toml").start(&mut lp, |_, stat| println!("{} bytes", stat.unwrap().size))?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors.
#[doc(alias = "uv_fs_stat")]
pub fn stat(path: impl AsRef<Path>) -> Operation<Call<sys::StatRequest, Stat>> {
    Call::try_of(sys::Name::new(path.as_ref()).map(sys::StatRequest::of_path), &sys::STAT)
}

/// Reads the metadata of a file, or of a symbolic link itself (`lstat(2)`).
///
/// ```
/// let stat = uv_core::fs::lstat("Cargo.toml").perform()?;
/// assert!(!stat.is_symlink());
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors.
#[doc(alias = "uv_fs_lstat")]
pub fn lstat(path: impl AsRef<Path>) -> Operation<Call<sys::StatRequest, Stat>> {
    Call::try_of(sys::Name::new(path.as_ref()).map(sys::StatRequest::of_link), &sys::STAT)
}

/// Reads the metadata of an open file (`fstat(2)`).
///
/// ```
/// use uv_core::fs;
///
/// let file = fs::open("Cargo.toml", fs::OpenOptions::new().read(true)).perform()?;
/// assert_eq!(fs::fstat(&file).perform()?.ino, fs::stat("Cargo.toml").perform()?.ino);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors.
#[doc(alias = "uv_fs_fstat")]
pub fn fstat(file: &File) -> Operation<Call<sys::StatRequest, Stat>> {
    Call::of(sys::StatRequest::of_file(file.clone()), &sys::STAT)
}

/// Reads the metadata of the file system that contains a file (`statfs(2)`).
///
/// ```
/// let space = uv_core::fs::statfs(".").perform()?;
/// assert!(space.bfree <= space.blocks);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors.
#[doc(alias = "uv_fs_statfs")]
pub fn statfs(path: impl AsRef<Path>) -> Operation<Call<sys::Name, StatFs>> {
    Call::try_of(sys::Name::new(path.as_ref()), &sys::STATFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversion_to_system_time_and_back_is_lossless() {
        for time in [
            Timestamp { sec: 0, nsec: 0 },
            Timestamp { sec: 5, nsec: 999_999_900 },
            Timestamp { sec: -1, nsec: 100 },
            Timestamp { sec: -7, nsec: 0 },
        ] {
            assert_eq!(Timestamp::from(time.to_system_time().unwrap()), time);
        }
    }
}
