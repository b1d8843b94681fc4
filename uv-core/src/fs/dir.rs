//! Reading directories.

use std::ffi::OsString;
use std::fs::{FileType, ReadDir};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::operation::{Call, Operation, Way};
use crate::sys::fs as sys;
use crate::sys::fs::Name;

/// The kind of a directory entry.
///
/// ```
/// use uv_core::fs::{self, EntryKind};
///
/// let entries = fs::scandir(".").perform()?;
/// let manifest = entries.iter().find(|entry| entry.name == "Cargo.toml").unwrap();
/// assert_eq!(manifest.kind, EntryKind::File);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EntryKind {
    /// The file system does not report the kind.
    #[default]
    Unknown,
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    Char,
    /// A block device.
    Block,
}

impl EntryKind {
    fn of(kind: FileType) -> EntryKind {
        if kind.is_file() {
            EntryKind::File
        } else if kind.is_dir() {
            EntryKind::Dir
        } else if kind.is_symlink() {
            EntryKind::Link
        } else {
            sys::special_kind(kind)
        }
    }
}

/// An entry of a directory.
///
/// ```
/// for entry in uv_core::fs::scandir(".").perform()? {
///     println!("{:?} is a {:?}", entry.name, entry.kind);
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "uv_dirent_t")]
#[non_exhaustive]
pub struct Dirent {
    /// The file name, without the path of the directory.
    pub name: OsString,
    /// The kind of file.
    pub kind: EntryKind,
}

impl Dirent {
    fn of(entry: &std::fs::DirEntry) -> Dirent {
        // The entry may have been removed since the directory was read.
        let kind = entry.file_type().map_or(EntryKind::Unknown, EntryKind::of);
        Dirent { name: entry.file_name(), kind }
    }
}

/// An open directory. Clones share it; it is closed when the last one is dropped.
///
/// ```
/// use uv_core::fs;
///
/// let dir = fs::opendir(".").perform()?;
/// loop {
///     let batch = fs::readdir(&dir, 10).perform()?;
///     if batch.is_empty() {
///         break;
///     }
///     println!("{batch:?}");
/// }
/// fs::closedir(dir).perform()?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Dir(Arc<Mutex<Entries>>);

#[derive(Debug)]
struct Entries {
    /// `None` after the last.
    rest: Option<ReadDir>,
    /// An error after entries of the same batch, reported by the next call.
    error: Option<io::Error>,
}

impl Dir {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        // A panic while the directory was read leaves the position valid.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// The next entries, up to `count`.
    fn next(&mut self, count: usize) -> io::Result<Vec<Dirent>> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let mut batch = Vec::new();
        while batch.len() < count
            && let Some(rest) = &mut self.rest
        {
            match rest.next() {
                Some(Ok(entry)) => batch.push(Dirent::of(&entry)),
                Some(Err(error)) if batch.is_empty() => return Err(error),
                Some(Err(error)) => {
                    self.error = Some(error);
                    break;
                }
                None => self.rest = None,
            }
        }
        Ok(batch)
    }
}

const OPENDIR: Way<Name, Dir> = Way::blocking(|name| {
    let entries = Entries { rest: Some(entries_of(name.as_path())?), error: None };
    Ok(Dir(Arc::new(Mutex::new(entries))))
});

const READDIR: Way<(Dir, usize), Vec<Dirent>> =
    Way::blocking(|(dir, count)| dir.lock().next(*count));

const CLOSEDIR: Way<Option<Dir>, ()> = Way::blocking(|dir| {
    drop(dir.take());
    Ok(())
});

const SCANDIR: Way<Name, Vec<Dirent>> = Way::blocking(|name| {
    let entries = entries_of(name.as_path())?;
    let mut all = entries.map(|entry| Ok(Dirent::of(&entry?))).collect::<io::Result<Vec<_>>>()?;
    all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
});

/// Opens a directory. Systems report several errors for a path that is no directory; this reports
/// `NotADirectory`.
fn entries_of(path: &Path) -> io::Result<ReadDir> {
    std::fs::read_dir(path).map_err(|error| match std::fs::metadata(path) {
        Ok(found) if !found.is_dir() && error.kind() != io::ErrorKind::NotADirectory => {
            io::ErrorKind::NotADirectory.into()
        }
        _ => error,
    })
}

/// Opens a directory (`opendir(3)`).
///
/// ```
/// let dir = uv_core::fs::opendir(".").perform()?;
/// # drop(dir);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors, such as `ENOTDIR`.
#[doc(alias = "uv_fs_opendir")]
pub fn opendir(path: impl AsRef<Path>) -> Operation<Call<Name, Dir>> {
    Call::try_of(Name::new(path.as_ref()), &OPENDIR)
}

/// Reads up to `count` entries, unordered and without `.` and `..` (`readdir(3)`). An empty batch
/// is the end.
///
/// ```
/// use uv_core::{Loop, RunMode, fs};
///
/// let mut lp = Loop::with_default_backend()?;
/// let dir = fs::opendir(".").perform()?;
/// fs::readdir(&dir, 5).start(&mut lp, |_, batch| assert!(batch.unwrap().len() <= 5))?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors. An error after some entries is reported by the next call.
#[doc(alias = "uv_fs_readdir")]
pub fn readdir(dir: &Dir, count: usize) -> Operation<Call<(Dir, usize), Vec<Dirent>>> {
    Call::of((dir.clone(), count), &READDIR)
}

/// Closes a directory (`closedir(3)`).
///
/// ```
/// let dir = uv_core::fs::opendir(".").perform()?;
/// uv_core::fs::closedir(dir).perform()?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `ResourceBusy` if another clone exists or an operation uses the directory: it is closed when
/// the last of them is dropped.
#[doc(alias = "uv_fs_closedir")]
pub fn closedir(dir: Dir) -> Operation<Call<Option<Dir>, ()>> {
    let why = "the directory is in use: it is closed when its last clone and operation are dropped";
    let arguments = match Arc::strong_count(&dir.0) {
        1 => Ok(Some(dir)),
        _ => Err(io::Error::new(io::ErrorKind::ResourceBusy, why)),
    };
    Call::try_of(arguments, &CLOSEDIR)
}

/// All entries of a directory, sorted by name, without `.` and `..` (`scandir(3)`).
///
/// ```
/// let entries = uv_core::fs::scandir(".").perform()?;
/// assert!(entries.is_sorted_by(|one, other| one.name <= other.name));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors.
#[doc(alias = "uv_fs_scandir")]
#[doc(alias = "uv_fs_scandir_next")]
pub fn scandir(path: impl AsRef<Path>) -> Operation<Call<Name, Vec<Dirent>>> {
    Call::try_of(Name::new(path.as_ref()), &SCANDIR)
}
