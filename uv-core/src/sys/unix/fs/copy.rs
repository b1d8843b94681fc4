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
        return Ok(()); // A copy of itself is what it is.
    }
    let copied = fill(&source, &copy, of.len(), mode, flags);
    if copied.is_err() && made {
        // Half a copy is of no use. The first error is the one to tell.
        let _ = fs::remove_file(to.as_path());
    }
    copied
}

/// Opens the file to copy to, which keeps what is in it for now. True if it is new.
fn open(to: &Name, mode: u32, flags: CopyFlags) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.write(true).mode(mode);
    match options.clone().create_new(true).open(to.as_path()) {
        Ok(copy) => Ok((copy, true)),
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Err(error) if flags.contains(CopyFlags::EXCLUSIVE) => Err(error),
        // It may also be a link to nowhere, where one is made.
        Err(_) => options.create(true).open(to.as_path()).map(|copy| (copy, false)),
    }
}

fn fill(source: &File, copy: &File, len: u64, mode: u32, flags: CopyFlags) -> io::Result<()> {
    // First of all, so that nothing is lost if cloning is a must and impossible.
    let wants_clone = flags.intersects(CopyFlags::CLONE | CopyFlags::FORCE_CLONE);
    let cloned = if wants_clone { clone(source, copy) } else { Err(unable()) };
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
        // Some mounts have no permissions to set.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        result => result,
    }
}

fn unable() -> io::Error {
    io::Error::from_raw_os_error(libc::EOPNOTSUPP)
}

cfg_if::cfg_if! {
    if #[cfg(any(target_os = "linux", target_os = "android"))] {
        /// Lets both share what they contain until one is written to.
        fn clone(source: &File, copy: &File) -> io::Result<()> {
            use std::os::fd::AsRawFd;

            let (source, copy) = (source.as_raw_fd(), copy.as_raw_fd());
            // SAFETY: no memory is passed.
            match unsafe { libc::ioctl(copy, libc::FICLONE as _, source) } {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        }
    } else {
        /// Nothing here clones onto a file that is there.
        fn clone(_: &File, _: &File) -> io::Result<()> {
            Err(unable())
        }
    }
}
