//! Symbolic links and junctions.

use std::fs::{self, File};
use std::io;
use std::os::windows::ffi::OsStrExt;
use std::os::windows::fs::{OpenOptionsExt, symlink_dir, symlink_file};
use std::os::windows::io::AsRawHandle;
use std::path::{Path, PathBuf};
use std::ptr;

use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT,
};
use windows_sys::Win32::System::IO::DeviceIoControl;
use windows_sys::Win32::System::Ioctl::FSCTL_SET_REPARSE_POINT;
use windows_sys::Win32::System::SystemServices::IO_REPARSE_TAG_MOUNT_POINT;

use super::{Name, Way, check, without_prefix};
use crate::fs::SymlinkKind;

pub(crate) const SYMLINK: Way<(Name, Name, SymlinkKind), ()> =
    Way::blocking(|(target, link, kind)| match kind {
        SymlinkKind::File => symlink_file(target.as_path(), link.as_path()),
        SymlinkKind::Dir => symlink_dir(target.as_path(), link.as_path()),
        SymlinkKind::Junction => junction(target.as_path(), link.as_path()),
    });

pub(crate) const READLINK: Way<Name, PathBuf> =
    Way::blocking(|name| fs::read_link(name.as_path()).map(without_prefix));

pub(crate) const REALPATH: Way<Name, PathBuf> =
    Way::blocking(|name| fs::canonicalize(name.as_path()).map(without_prefix));

/// Creates a junction: a directory with a reparse point.
fn junction(target: &Path, link: &Path) -> io::Result<()> {
    if !target.is_absolute() {
        let why = "a junction needs an absolute path: make the target absolute";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let note = note(&without_prefix(target.to_path_buf()))?;
    fs::create_dir(link)?;
    let left = leave(link, &note);
    if left.is_err() {
        // The first error is returned.
        let _ = fs::remove_dir(link);
    }
    left
}

fn leave(link: &Path, note: &[u16]) -> io::Result<()> {
    let flags = FILE_FLAG_BACKUP_SEMANTICS | FILE_FLAG_OPEN_REPARSE_POINT;
    let link = File::options().write(true).custom_flags(flags).open(link)?;
    let mut returned = 0;
    // SAFETY: the handle is open, and the buffer lives across the call, which writes only the
    // count.
    let left = unsafe {
        DeviceIoControl(
            link.as_raw_handle(),
            FSCTL_SET_REPARSE_POINT,
            note.as_ptr().cast(),
            size_of_val(note) as u32,
            ptr::null_mut(),
            0,
            &mut returned,
            ptr::null_mut(),
        )
    };
    check(left)
}

/// Builds a `REPARSE_DATA_BUFFER` of a mount point: the substitute name for the kernel and the
/// print name for users.
fn note(target: &Path) -> io::Result<Vec<u16>> {
    let slashed = |unit: u16| if unit == u16::from(b'/') { u16::from(b'\\') } else { unit };
    let print: Vec<u16> = target.as_os_str().encode_wide().map(slashed).collect();
    let substitute: Vec<u16> = r"\??\".encode_utf16().chain(print.iter().copied()).collect();

    let bytes = |units: usize| u16::try_from(2 * units).map_err(|_| too_long());
    let (name, shown) = (bytes(substitute.len())?, bytes(print.len())?);
    // Four numbers, and two NUL-terminated names.
    let data = bytes(4 + substitute.len() + 1 + print.len() + 1)?;
    let tag = IO_REPARSE_TAG_MOUNT_POINT;
    let mut note = vec![tag as u16, (tag >> 16) as u16, data, 0];
    note.extend([0, name, name + 2, shown]);
    note.extend(substitute.into_iter().chain([0]).chain(print).chain([0]));
    Ok(note)
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidFilename, "the path is too long for a junction")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_has_both_names() {
        let note = note(Path::new("C:/a")).unwrap();
        assert_eq!(note[..2], [0x0003, 0xa000]);
        assert_eq!(usize::from(note[2]), 2 * (note.len() - 4));
        assert_eq!(note[4..8], [0, 16, 18, 8]);
        let text = String::from_utf16(&note[8..]).unwrap();
        assert_eq!(text, "\\??\\C:\\a\0C:\\a\0");
    }
}
