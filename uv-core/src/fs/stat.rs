//! Asking about files and file systems.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::operation::{Call, Operation};
use super::{EntryKind, File};
use crate::pool::fits_task;
use crate::sys::fs as sys;

// The largest of those that are done often.
const _: () = assert!(fits_task::<Call<sys::Asking, Stat>>());

/// A moment, in seconds and nanoseconds since the start of 1970.
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
pub struct Timestamp {
    /// Seconds, which are negative before 1970.
    pub sec: i64,
    /// Nanoseconds to add, below a thousand million.
    pub nsec: u32,
}

impl Timestamp {
    /// As `std` has it; `None` if it is out of its range.
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

/// What is known about a file.
///
/// ```
/// let stat = uv_core::fs::stat("Cargo.toml").perform()?;
/// assert!(stat.is_file() && stat.size > 0);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// The device that it is on.
    pub dev: u64,
    /// Its type and permissions, as Unix has them. On Windows, made up of its attributes.
    pub mode: u32,
    /// How many names it has.
    pub nlink: u64,
    /// Whose it is. 0 on Windows, as is `gid`.
    pub uid: u32,
    /// The group whose it is.
    pub gid: u32,
    /// The device that it is, if it is one.
    pub rdev: u64,
    /// Its number on its device.
    pub ino: u64,
    /// Its length in bytes.
    pub size: u64,
    /// The size of a block that is good to read and write.
    pub blksize: u64,
    /// How much room it takes, in blocks of 512 bytes.
    pub blocks: u64,
    /// User flags, on BSD and Apple's systems.
    pub flags: u32,
    /// How often its number was used before, on BSD and Apple's systems.
    pub generation: u32,
    /// When it was last read.
    pub accessed: Timestamp,
    /// When it was last written.
    pub modified: Timestamp,
    /// When it or what is known about it last changed.
    pub changed: Timestamp,
    /// When it was made; zero, or `changed`, where that is not known.
    pub born: Timestamp,
}

impl Stat {
    /// What kind of file it is.
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

    /// True of a directory.
    ///
    /// ```
    /// assert!(uv_core::fs::stat(".").perform()?.is_dir());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn is_dir(&self) -> bool {
        self.kind() == EntryKind::Dir
    }

    /// True of a regular file.
    ///
    /// ```
    /// assert!(uv_core::fs::stat("Cargo.toml").perform()?.is_file());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn is_file(&self) -> bool {
        self.kind() == EntryKind::File
    }

    /// True of a symbolic link, which only [`lstat`] finds.
    ///
    /// ```
    /// assert!(!uv_core::fs::stat("Cargo.toml").perform()?.is_symlink());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn is_symlink(&self) -> bool {
        self.kind() == EntryKind::Link
    }
}

/// What is known about a file system. Sizes are in blocks of `bsize`, but where `frsize`
/// differs.
///
/// ```
/// let space = uv_core::fs::statfs(".").perform()?;
/// println!("{} bytes are free", space.bavail * space.frsize);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatFs {
    /// Which one it is: a number of the system's. 0 on Windows and NetBSD.
    pub kind: u64,
    /// The size of a block that is good to read and write.
    pub bsize: u64,
    /// The size of a block that the counts are in.
    pub frsize: u64,
    /// How many blocks there are.
    pub blocks: u64,
    /// How many are free.
    pub bfree: u64,
    /// How many are free for who is not privileged.
    pub bavail: u64,
    /// How many files there can be, 0 if that is not limited or not known.
    pub files: u64,
    /// How many more there can be.
    pub ffree: u64,
}

/// Asks about a file, or what a symbolic link leads to (`stat(2)`).
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
/// The system's.
#[doc(alias = "uv_fs_stat")]
pub fn stat(path: impl AsRef<Path>) -> Operation<Call<sys::Asking, Stat>> {
    Call::try_of(sys::Name::new(path.as_ref()).map(sys::Asking::about), &sys::STAT)
}

/// Asks about a file, or about a symbolic link itself (`lstat(2)`).
///
/// ```
/// let stat = uv_core::fs::lstat("Cargo.toml").perform()?;
/// assert!(!stat.is_symlink());
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's.
#[doc(alias = "uv_fs_lstat")]
pub fn lstat(path: impl AsRef<Path>) -> Operation<Call<sys::Asking, Stat>> {
    Call::try_of(sys::Name::new(path.as_ref()).map(sys::Asking::about_link), &sys::STAT)
}

/// Asks about an open file (`fstat(2)`).
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
/// The system's.
#[doc(alias = "uv_fs_fstat")]
pub fn fstat(file: &File) -> Operation<Call<sys::Asking, Stat>> {
    Call::of(sys::Asking::about_file(file.clone()), &sys::STAT)
}

/// Asks about the file system that a file is on (`statfs(2)`).
///
/// ```
/// let space = uv_core::fs::statfs(".").perform()?;
/// assert!(space.bfree <= space.blocks);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's.
#[doc(alias = "uv_fs_statfs")]
pub fn statfs(path: impl AsRef<Path>) -> Operation<Call<sys::Name, StatFs>> {
    Call::try_of(sys::Name::new(path.as_ref()), &sys::STATFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_there_and_back() {
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
