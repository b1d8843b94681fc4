//! Copying a file.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};

use super::{Name, Way};
use crate::fs::CopyFlags;

pub(crate) const COPYFILE: Way<(Name, Name, CopyFlags), ()> =
    Way::blocking(|(from, to, flags)| copy(from, to, *flags));

fn copy(from: &Name, to: &Name, flags: CopyFlags) -> io::Result<()> {
    let source = File::open(from.as_path())?;
    let of = source.metadata()?;
    let mode = of.permissions().mode() & 0o7777;
    let (copy, made) = open(to, mode, flags)?;
    let there = copy.metadata()?;
    if (of.dev(), of.ino()) == (there.dev(), there.ino()) {
        return Ok(()); // Source and destination are one file.
    }
    let copied = fill(&source, &copy, of.len(), mode, flags);
    if copied.is_err() && made {
        // Removes the partial copy. The error of the copy is the one to report.
        let _ = fs::remove_file(to.as_path());
    }
    copied
}

/// Opens the destination without truncating it. The flag is true if the file was created.
fn open(to: &Name, mode: u32, flags: CopyFlags) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.write(true).mode(mode);
    match options.clone().create_new(true).open(to.as_path()) {
        Ok(copy) => Ok((copy, true)),
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Err(error) if flags.contains(CopyFlags::EXCLUSIVE) => Err(error),
        // The path may also be a dangling symbolic link, whose target is created.
        Err(_) => options.create(true).open(to.as_path()).map(|copy| (copy, false)),
    }
}

fn fill(source: &File, copy: &File, len: u64, mode: u32, flags: CopyFlags) -> io::Result<()> {
    // Cloning goes first: if it is required and fails, the destination is still unchanged.
    let wants_clone = flags.intersects(CopyFlags::CLONE | CopyFlags::FORCE_CLONE);
    let cloned = if wants_clone { clone(source, copy) } else { Err(clone_unsupported()) };
    if flags.contains(CopyFlags::FORCE_CLONE) {
        cloned?;
        copy.set_len(len)?;
    } else if cloned.is_ok() {
        copy.set_len(len)?;
    } else {
        copy.set_len(0)?;
        io::copy(&mut &*source, &mut &*copy)?;
    }
    match copy.set_permissions(fs::Permissions::from_mode(mode)) {
        // Some file systems have no permissions, and refuse to set them.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        result => result,
    }
}

fn clone_unsupported() -> io::Error {
    io::Error::from_raw_os_error(libc::EOPNOTSUPP)
}

cfg_if::cfg_if! {
    if #[cfg(any(target_os = "linux", target_os = "android"))] {
        /// Makes both files share their blocks, copy-on-write (`FICLONE`, Linux 4.5).
        fn clone(source: &File, copy: &File) -> io::Result<()> {
            use std::os::fd::AsRawFd;

            let (source, copy) = (source.as_raw_fd(), copy.as_raw_fd());
            // SAFETY: takes no pointer.
            match unsafe { libc::ioctl(copy, libc::FICLONE as _, source) } {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        }
    } else {
        /// These systems cannot clone into an existing file.
        fn clone(_: &File, _: &File) -> io::Result<()> {
            Err(clone_unsupported())
        }
    }
}
