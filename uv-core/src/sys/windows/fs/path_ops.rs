//! Operations on paths: create, remove, rename, link, access.

use std::fs::{self, File, FileType, OpenOptions};
use std::io;
use std::os::windows::fs::FileTypeExt;
use std::path::Path;

use windows_sys::Win32::Foundation::ERROR_ACCESS_DENIED;

use super::{Name, Way};
use crate::fs::{Access, EntryKind};

/// As on Unix: removes read-only files too, and treats a link to a directory as a file.
pub(crate) const UNLINK: Way<Name, ()> = Way::blocking(|name| {
    let path = name.as_path();
    let denied = match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => error,
        result => return result,
    };
    let of = fs::symlink_metadata(path)?;
    if of.file_type().is_symlink_dir() {
        return fs::remove_dir(path);
    }
    let mut permissions = of.permissions();
    if of.is_dir() || !permissions.readonly() {
        return Err(denied);
    }
    #[allow(clippy::permissions_set_readonly_false, reason = "Windows has this bit alone")]
    permissions.set_readonly(false);
    fs::set_permissions(path, permissions)?;
    fs::remove_file(path)
});

pub(crate) const RMDIR: Way<Name, ()> = Way::blocking(|name| fs::remove_dir(name.as_path()));

pub(crate) const MKDIR: Way<(Name, u32), ()> =
    Way::blocking(|(name, _)| fs::create_dir(name.as_path()));

pub(crate) const RENAME: Way<(Name, Name), ()> =
    Way::blocking(|(from, to)| fs::rename(from.as_path(), to.as_path()));

pub(crate) const LINK: Way<(Name, Name), ()> =
    Way::blocking(|(from, to)| fs::hard_link(from.as_path(), to.as_path()));

/// Checks the read-only attribute: the only permission that Windows reports without opening.
pub(crate) const ACCESS: Way<(Name, Access), ()> = Way::blocking(|(name, access)| {
    let of = fs::symlink_metadata(name.as_path())?;
    if access.contains(Access::WRITE) && of.permissions().readonly() && !of.is_dir() {
        return Err(io::Error::from_raw_os_error(ERROR_ACCESS_DENIED as i32));
    }
    Ok(())
});

/// The directory inherits its access rights from its parent.
pub(crate) fn make_private_dir(path: &Path) -> io::Result<()> {
    fs::create_dir(path)
}

/// The file inherits its access rights from its directory.
pub(crate) fn make_private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

/// Windows directories have no other entry types.
pub(crate) fn special_kind(_kind: FileType) -> EntryKind {
    EntryKind::Unknown
}
