//! Opening, closing, and what concerns an open file as a whole.

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

/// What opening takes.
#[derive(Debug)]
pub struct Opening {
    name: Name,
    options: OpenOptions,
}

impl Opening {
    pub(crate) fn new(path: &Path, options: OpenOptions) -> io::Result<Opening> {
        options.check()?;
        Ok(Opening { name: Name::new(path)?, options })
    }
}

pub(crate) const OPEN: Way<Opening, File> = Way::blocking(|Opening { name, options }| {
    let mut open = Std::options();
    open.read(options.read).write(options.write).append(options.append);
    open.create(options.create).create_new(options.create_new).truncate(options.truncate);
    // With this flag directories can be opened.
    open.custom_flags(FILE_FLAG_BACKUP_SEMANTICS | options.custom as u32);
    if (options.create || options.create_new) && options.mode & 0o200 == 0 {
        open.attributes(FILE_ATTRIBUTE_READONLY);
    }
    open.open(name.as_path()).map(File::from)
});

pub(crate) fn close(file: Std) -> io::Result<()> {
    // SAFETY: the handle was given up for this.
    check(unsafe { CloseHandle(file.into_raw_handle()) })
}

/// Somebody else closes it.
pub(crate) fn forget(file: Std) {
    let _ = file.into_raw_handle();
}

pub(crate) const FSYNC: Way<File, ()> = Way::blocking(|file| file.0.sync_all());

pub(crate) const FDATASYNC: Way<File, ()> = Way::blocking(|file| file.0.sync_data());

pub(crate) const FTRUNCATE: Way<(File, u64), ()> =
    Way::blocking(|(file, len)| file.0.set_len(*len));
