//! Copying files.

use std::path::Path;

use super::operation::{Call, Operation};
use crate::sys::fs as sys;
use crate::sys::fs::Name;

bitflags::bitflags! {
    /// How to copy.
    ///
    /// ```
    /// use uv_core::fs::CopyFlags;
    ///
    /// let careful = CopyFlags::EXCLUSIVE | CopyFlags::CLONE;
    /// # let _ = careful;
    /// ```
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CopyFlags: u8 {
        /// Fail if there is a file already.
        const EXCLUSIVE = 1;
        /// Share what is in the file with the copy, where the file system can.
        const CLONE = 2;
        /// Share what is in the file, or fail.
        const FORCE_CLONE = 4;
    }
}

/// Copies a file and its permissions. A file that is there already gets the content. A file
/// copied onto itself stays as it is.
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
/// The system's. Then a copy that was begun is removed; a file that was there before is not,
/// and if [cloning](CopyFlags::FORCE_CLONE) is a must and impossible, is as it was.
#[doc(alias = "uv_fs_copyfile")]
pub fn copyfile(
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
    flags: CopyFlags,
) -> Operation<Call<(Name, Name, CopyFlags), ()>> {
    let names = Name::new(from.as_ref()).and_then(|from| Ok((from, Name::new(to.as_ref())?)));
    Call::try_of(names.map(|(from, to)| (from, to, flags)), &sys::COPYFILE)
}
