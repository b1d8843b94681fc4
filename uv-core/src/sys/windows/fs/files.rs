//! Open, close, sync and truncate.

use std::fs::File as Std;
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::IntoRawHandle;
use std::path::Path;

use windows_sys::Win32::Foundation::CloseHandle;
use windows_sys::Win32::Storage::FileSystem::{
    FILE_ATTRIBUTE_READONLY, FILE_FLAG_BACKUP_SEMANTICS,
};

use super::{Name, Way, check};
use crate::fs::{File, OpenOptions};

/// The arguments of an open.
#[derive(Debug)]
pub struct OpenRequest {
    name: Name,
    options: OpenOptions,
}

impl OpenRequest {
    pub(crate) fn new(path: &Path, options: OpenOptions) -> io::Result<OpenRequest> {
        options.check()?;
        Ok(OpenRequest { name: Name::new(path)?, options })
    }
}

pub(crate) const OPEN: Way<OpenRequest, File> = Way::blocking(|OpenRequest { name, options }| {
    let mut open = Std::options();
    open.read(options.read).write(options.write).append(options.append);
    open.create(options.create).create_new(options.create_new).truncate(options.truncate);
    // This flag permits to open directories.
    open.custom_flags(FILE_FLAG_BACKUP_SEMANTICS | options.custom as u32);
    if (options.create || options.create_new) && options.mode & 0o200 == 0 {
        open.attributes(FILE_ATTRIBUTE_READONLY);
    }
    open.open(name.as_path()).map(File::from)
});

pub(crate) fn close(file: Std) -> io::Result<()> {
    // SAFETY: the caller transferred the ownership of the handle.
    check(unsafe { CloseHandle(file.into_raw_handle()) })
}

/// The owner of the handle closes it.
pub(crate) fn forget(file: Std) {
    let _ = file.into_raw_handle();
}

pub(crate) const FSYNC: Way<File, ()> = Way::blocking(|file| file.std().sync_all());

pub(crate) const FDATASYNC: Way<File, ()> = Way::blocking(|file| file.std().sync_data());

pub(crate) const FTRUNCATE: Way<(File, u64), ()> =
    Way::blocking(|(file, len)| file.std().set_len(*len));
