//! Metadata of files and file systems.

use std::fs::{self, File as Std};
use std::io;
use std::mem;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::AsRawHandle;
use std::ptr;

use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, FILE_ATTRIBUTE_DIRECTORY, FILE_ATTRIBUTE_READONLY, FILE_BASIC_INFO,
    FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT, FILE_READ_ATTRIBUTES,
    FILE_STANDARD_INFO, FILE_TYPE_CHAR, FILE_TYPE_PIPE, FileBasicInfo, FileStandardInfo,
    GetDiskFreeSpaceExW, GetDiskFreeSpaceW, GetFileInformationByHandle,
    GetFileInformationByHandleEx, GetFileType,
};

use super::{Name, Way, check, wide, without_prefix};
use crate::fs::{File, Stat, StatFs, Timestamp};

const S_IFLNK: u32 = 0o120_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFCHR: u32 = 0o020_000;
const S_IFIFO: u32 = 0o010_000;

/// The subject of a stat.
#[derive(Debug)]
pub enum StatRequest {
    /// A path, following links.
    Path(Name),
    /// A path, not following a link.
    Link(Name),
    /// An open file.
    File(File),
}

impl StatRequest {
    pub(crate) fn of_path(name: Name) -> StatRequest {
        StatRequest::Path(name)
    }

    pub(crate) fn of_link(name: Name) -> StatRequest {
        StatRequest::Link(name)
    }

    pub(crate) fn of_file(file: File) -> StatRequest {
        StatRequest::File(file)
    }
}

pub(crate) const STAT: Way<StatRequest, Stat> = Way::blocking(|asking| match asking {
    StatRequest::Path(name) => stat(&open(name, 0)?),
    StatRequest::File(file) => stat(file.std()),
    StatRequest::Link(name) => {
        if !fs::symlink_metadata(name.as_path())?.is_symlink() {
            return stat(&open(name, 0)?);
        }
        let mut link = stat(&open(name, FILE_FLAG_OPEN_REPARSE_POINT)?)?;
        let target = without_prefix(fs::read_link(name.as_path())?);
        link.mode = S_IFLNK | (link.mode & 0o777);
        link.size = target.as_os_str().len() as u64;
        Ok(link)
    }
});

/// Opens a file or a directory to read its metadata.
pub(super) fn open(name: &Name, flags: u32) -> io::Result<Std> {
    let mut options = Std::options();
    options.access_mode(FILE_READ_ATTRIBUTES).custom_flags(FILE_FLAG_BACKUP_SEMANTICS | flags);
    options.open(name.as_path())
}

/// The device and the file number.
pub(super) fn identity(file: &Std) -> io::Result<(u64, u64)> {
    let of = information(file)?;
    let index = u64::from(of.nFileIndexHigh) << 32 | u64::from(of.nFileIndexLow);
    Ok((of.dwVolumeSerialNumber.into(), index))
}

fn information(file: &Std) -> io::Result<BY_HANDLE_FILE_INFORMATION> {
    let mut of = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: the caller keeps the handle open, and the call writes only the local structure.
    check(unsafe { GetFileInformationByHandle(file.as_raw_handle(), &mut of) })?;
    Ok(of)
}

fn stat(file: &Std) -> io::Result<Stat> {
    // SAFETY: the caller keeps the handle open.
    match unsafe { GetFileType(file.as_raw_handle()) } {
        FILE_TYPE_CHAR => return Ok(Stat { mode: S_IFCHR | 0o666, nlink: 1, ..Stat::default() }),
        FILE_TYPE_PIPE => return Ok(Stat { mode: S_IFIFO | 0o666, nlink: 1, ..Stat::default() }),
        _ => {}
    }
    let of = information(file)?;
    let (dev, ino) = identity(file)?;
    let mut basic = FILE_BASIC_INFO::default();
    let size = mem::size_of::<FILE_BASIC_INFO>() as u32;
    let out = (&raw mut basic).cast();
    // SAFETY: the caller keeps the handle open, and the call writes only the local structure.
    let asked =
        unsafe { GetFileInformationByHandleEx(file.as_raw_handle(), FileBasicInfo, out, size) };
    check(asked)?;
    let mut standard = FILE_STANDARD_INFO::default();
    let size = mem::size_of::<FILE_STANDARD_INFO>() as u32;
    let out = (&raw mut standard).cast();
    // SAFETY: the caller keeps the handle open, and the call writes only the local structure.
    let asked =
        unsafe { GetFileInformationByHandleEx(file.as_raw_handle(), FileStandardInfo, out, size) };
    check(asked)?;

    let directory = of.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY != 0;
    let read_only = of.dwFileAttributes & FILE_ATTRIBUTE_READONLY != 0;
    let size = u64::from(of.nFileSizeHigh) << 32 | u64::from(of.nFileSizeLow);
    Ok(Stat {
        dev,
        mode: if directory { S_IFDIR } else { S_IFREG } | if read_only { 0o444 } else { 0o666 },
        nlink: of.nNumberOfLinks.into(),
        ino,
        size: if directory { 0 } else { size },
        blksize: 4096,
        blocks: standard.AllocationSize as u64 / 512,
        accessed: time(basic.LastAccessTime),
        modified: time(basic.LastWriteTime),
        changed: time(basic.ChangeTime),
        created: time(basic.CreationTime),
        ..Stat::default()
    })
}

/// Converts a file time: units of 100 ns since 1601.
fn time(ticks: i64) -> Timestamp {
    const PER_SECOND: i64 = 10_000_000;
    const FROM_1601_TO_1970: i64 = 11_644_473_600;
    Timestamp {
        sec: ticks.div_euclid(PER_SECOND) - FROM_1601_TO_1970,
        nsec: ticks.rem_euclid(PER_SECOND) as u32 * 100,
    }
}

pub(crate) const STATFS: Way<Name, StatFs> = Way::blocking(|name| {
    let path = without_prefix(fs::canonicalize(name.as_path())?);
    let dir = if path.is_dir() { &*path } else { path.parent().unwrap_or(&path) };
    let root = path.ancestors().last().unwrap_or(&path);

    let (mut free_to_us, mut total, mut free) = (0, 0, 0);
    let wide_dir = wide(dir);
    // SAFETY: the path ends with NUL, and the call writes only local variables.
    let asked =
        unsafe { GetDiskFreeSpaceExW(wide_dir.as_ptr(), &mut free_to_us, &mut total, &mut free) };
    check(asked)?;
    let (mut sectors, mut bytes) = (0_u32, 0_u32);
    let wide_root = wide(root);
    // SAFETY: the path ends with NUL, and the call writes only local variables.
    let asked = unsafe {
        GetDiskFreeSpaceW(
            wide_root.as_ptr(),
            &mut sectors,
            &mut bytes,
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
    // A network share may not report it.
    let cluster = match check(asked) {
        Ok(()) => (u64::from(sectors) * u64::from(bytes)).max(1),
        Err(_) => 4096,
    };
    Ok(StatFs {
        bsize: cluster,
        frsize: cluster,
        blocks: total / cluster,
        bfree: free / cluster,
        bavail: free_to_us / cluster,
        ..StatFs::default()
    })
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_1970() {
        assert_eq!(time(116_444_736_000_000_000), Timestamp { sec: 0, nsec: 0 });
        assert_eq!(time(116_444_736_000_000_000 - 1), Timestamp { sec: -1, nsec: 999_999_900 });
        assert_eq!(time(116_444_736_000_000_000 + 15), Timestamp { sec: 0, nsec: 1500 });
    }
}
