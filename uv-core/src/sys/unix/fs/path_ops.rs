//! Operations on paths: links, directories, renames and access checks.

use std::fs::{self, DirBuilder, File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use poll_core::Op;

use super::{Name, Way, retried};
use crate::fs::{Access, EntryKind, SymlinkKind};

pub(crate) const UNLINK: Way<Name, ()> = Way::either(
    |name| fs::remove_file(name.as_path()),
    |name| Op::UnlinkAt { at: name.at(), flags: 0 },
);

pub(crate) const RMDIR: Way<Name, ()> = Way::either(
    |name| fs::remove_dir(name.as_path()),
    |name| Op::UnlinkAt { at: name.at(), flags: libc::AT_REMOVEDIR },
);

pub(crate) const MKDIR: Way<(Name, u32), ()> = Way::either(
    |(name, mode)| DirBuilder::new().mode(*mode).create(name.as_path()),
    |(name, mode)| Op::MkdirAt { at: name.at(), mode: *mode },
);

pub(crate) const RENAME: Way<(Name, Name), ()> = Way::either(
    |(from, to)| fs::rename(from.as_path(), to.as_path()),
    |(from, to)| Op::RenameAt { from: from.at(), to: to.at(), flags: 0 },
);

pub(crate) const LINK: Way<(Name, Name), ()> = Way::either(
    |(from, to)| fs::hard_link(from.as_path(), to.as_path()),
    |(from, to)| Op::LinkAt { from: from.at(), to: to.at(), flags: 0 },
);

pub(crate) const SYMLINK: Way<(Name, Name, SymlinkKind), ()> = Way::either(
    |(target, link, _)| std::os::unix::fs::symlink(target.as_path(), link.as_path()),
    |(target, link, _)| Op::SymlinkAt { target: target.raw(), at: link.at() },
);

pub(crate) const READLINK: Way<Name, PathBuf> = Way::blocking(|name| fs::read_link(name.as_path()));

pub(crate) const REALPATH: Way<Name, PathBuf> =
    Way::blocking(|name| fs::canonicalize(name.as_path()));

pub(crate) const ACCESS: Way<(Name, Access), ()> = Way::blocking(|(name, access)| {
    let mut mode = libc::F_OK;
    for (wanted, bit) in
        [(Access::READ, libc::R_OK), (Access::WRITE, libc::W_OK), (Access::EXECUTE, libc::X_OK)]
    {
        if access.contains(wanted) {
            mode |= bit;
        }
    }
    // SAFETY: reads a NUL-terminated path, which `name` owns.
    retried(|| unsafe { libc::access(name.as_ptr(), mode) }).map(drop)
});

/// Creates a directory that only this user can access.
pub(crate) fn make_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Creates a file that only this user can access.
pub(crate) fn make_private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Classifies the file types that only Unix has.
pub(crate) fn special_kind(kind: FileType) -> EntryKind {
    if kind.is_fifo() {
        EntryKind::Fifo
    } else if kind.is_socket() {
        EntryKind::Socket
    } else if kind.is_char_device() {
        EntryKind::Char
    } else if kind.is_block_device() {
        EntryKind::Block
    } else {
        EntryKind::Unknown
    }
}
