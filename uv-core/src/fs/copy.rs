//! Copying files.

use std::path::Path;

use super::operation::{Call, Operation};
use crate::sys::fs as sys;
use crate::sys::fs::Name;

bitflags::bitflags! {
    /// Options of [`copyfile`].
    ///
    /// ```
    /// use uv_core::fs::CopyFlags;
    ///
    /// let careful = CopyFlags::EXCLUSIVE | CopyFlags::CLONE;
    /// # let _ = careful;
    /// ```
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CopyFlags: u8 {
        /// Fails if the destination exists.
        const EXCLUSIVE = 1;
        /// Shares the blocks of the file with the copy, if the file system supports it.
        const CLONE = 2;
        /// Shares the blocks of the file, or fails.
        const FORCE_CLONE = 4;
    }
}

/// Copies a file and its permissions. An existing destination is overwritten. A file that is copied
/// onto itself is unchanged.
///
/// ```
/// use uv_core::fs::{self, CopyFlags};
///
/// # let dir = fs::mkdtemp(std::env::temp_dir().join("copy-XXXXXX")).perform()?;
/// let copy = dir.join("copy");
/// fs::copyfile("Cargo.toml", &copy, CopyFlags::EXCLUSIVE).perform()?;
/// assert_eq!(std::fs::read(&copy)?, std::fs::read("Cargo.toml")?);
/// # drop(std::fs::remove_dir_all(dir));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors. An incomplete copy is removed, unless the destination existed before. If
/// [cloning](CopyFlags::FORCE_CLONE) is required and impossible, an existing destination is
/// unchanged.
#[doc(alias = "uv_fs_copyfile")]
pub fn copyfile(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    flags: CopyFlags,
) -> Operation<Call<(Name, Name, CopyFlags), ()>> {
    let names = Name::new(from.as_ref()).and_then(|from| Ok((from, Name::new(to.as_ref())?)));
    Call::try_of(names.map(|(from, to)| (from, to, flags)), &sys::COPYFILE)
}
