//! File copy.

use std::io;

use windows_sys::Win32::Storage::FileSystem::CopyFileW;

use super::{Name, Way, check, identity, open};
use crate::fs::CopyFlags;

pub(crate) const COPYFILE: Way<(Name, Name, CopyFlags), ()> = Way::blocking(|(from, to, flags)| {
    if flags.contains(CopyFlags::FORCE_CLONE) {
        let why = "Windows does not clone files: copy without FORCE_CLONE";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    let exclusive = flags.contains(CopyFlags::EXCLUSIVE);
    if !exclusive && is_the_same(from, to).unwrap_or(false) {
        return Ok(()); // Source and destination are the same file.
    }
    let (from, to) = (from.wide(), to.wide());
    // SAFETY: the paths end with NUL and live across the call.
    check(unsafe { CopyFileW(from.as_ptr(), to.as_ptr(), exclusive.into()) })
});

fn is_the_same(from: &Name, to: &Name) -> io::Result<bool> {
    Ok(identity(&open(from, 0)?)? == identity(&open(to, 0)?)?)
}
