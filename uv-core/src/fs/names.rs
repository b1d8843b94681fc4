//! Names of files: making, removing, changing, following them.

use std::path::{Path, PathBuf};

use super::operation::{Call, Operation};
use crate::sys::fs as sys;
use crate::sys::fs::Name;

bitflags::bitflags! {
    /// What a file may be used for; nothing asks whether it exists.
    ///
    /// ```
    /// use uv_core::fs::{self, Access};
    ///
    /// fs::access("Cargo.toml", Access::empty()).perform()?;
    /// fs::access("Cargo.toml", Access::READ | Access::WRITE).perform()?;
    /// # std::io::Result::Ok(())
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u8 {
        /// To be executed, or a directory searched. Always true on Windows.
        const EXECUTE = 1;
        /// To be written.
        const WRITE = 2;
        /// To be read.
        const READ = 4;
    }
}

/// What kind of symbolic link to make; Unix has one kind.
///
/// ```
/// assert_eq!(uv_core::fs::SymlinkKind::default(), uv_core::fs::SymlinkKind::File);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SymlinkKind {
    /// To a file.
    #[default]
    File,
    /// To a directory.
    Dir,
    /// To a directory on this machine, given by its absolute path: a junction, for which
    /// Windows asks no privilege.
    Junction,
}

/// The type of an operation on two names.
type OnTwo<T = ()> = Operation<Call<(Name, Name), T>>;

fn two(from: &Path, to: &Path) -> std::io::Result<(Name, Name)> {
    Ok((Name::new(from)?, Name::new(to)?))
}

/// Removes a name, and the file with its last name (`unlink(2)`).
///
/// ```
/// # let dir = uv_core::fs::mkdtemp(std::env::temp_dir().join("names-XXXXXX")).perform()?;
/// # std::fs::write(dir.join("a"), "")?;
/// uv_core::fs::unlink(dir.join("a")).perform()?;
/// # drop(std::fs::remove_dir_all(dir));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's, such as `EISDIR` or `EPERM` for a directory.
#[doc(alias = "uv_fs_unlink")]
pub fn unlink(path: impl AsRef<Path>) -> Operation<Call<Name, ()>> {
    Call::try_of(Name::new(path.as_ref()), &sys::UNLINK)
}

/// Makes a directory with these permissions, less the umask (`mkdir(2)`).
///
/// ```
/// # let dir = uv_core::fs::mkdtemp(std::env::temp_dir().join("names-XXXXXX")).perform()?;
/// uv_core::fs::mkdir(dir.join("inner"), 0o755).perform()?;
/// # drop(std::fs::remove_dir_all(dir));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's.
#[doc(alias = "uv_fs_mkdir")]
pub fn mkdir(path: impl AsRef<Path>, mode: u32) -> Operation<Call<(Name, u32), ()>> {
    Call::try_of(Name::new(path.as_ref()).map(|name| (name, mode)), &sys::MKDIR)
}

/// Removes an empty directory (`rmdir(2)`).
///
/// ```
/// # let dir = uv_core::fs::mkdtemp(std::env::temp_dir().join("names-XXXXXX")).perform()?;
/// uv_core::fs::rmdir(dir).perform()?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's, such as `ENOTEMPTY`.
#[doc(alias = "uv_fs_rmdir")]
pub fn rmdir(path: impl AsRef<Path>) -> Operation<Call<Name, ()>> {
    Call::try_of(Name::new(path.as_ref()), &sys::RMDIR)
}

/// Gives a file another name, which replaces a file of that name (`rename(2)`).
///
/// ```
/// # let dir = uv_core::fs::mkdtemp(std::env::temp_dir().join("names-XXXXXX")).perform()?;
/// # std::fs::write(dir.join("a"), "")?;
/// uv_core::fs::rename(dir.join("a"), dir.join("b")).perform()?;
/// # drop(std::fs::remove_dir_all(dir));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's, such as `EXDEV` if that is on another file system.
#[doc(alias = "uv_fs_rename")]
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> OnTwo {
    Call::try_of(two(from.as_ref(), to.as_ref()), &sys::RENAME)
}

/// Gives a file a second name (`link(2)`).
///
/// ```
/// use uv_core::fs;
///
/// # let dir = fs::mkdtemp(std::env::temp_dir().join("names-XXXXXX")).perform()?;
/// # std::fs::write(dir.join("a"), "")?;
/// fs::link(dir.join("a"), dir.join("b")).perform()?;
/// assert_eq!(fs::stat(dir.join("a")).perform()?.nlink, 2);
/// # drop(std::fs::remove_dir_all(dir));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's.
#[doc(alias = "uv_fs_link")]
pub fn link(from: impl AsRef<Path>, to: impl AsRef<Path>) -> OnTwo {
    Call::try_of(two(from.as_ref(), to.as_ref()), &sys::LINK)
}

/// Makes a symbolic link at `link` that says `target` (`symlink(2)`).
///
/// ```
/// use uv_core::fs::{self, SymlinkKind};
///
/// # let dir = fs::mkdtemp(std::env::temp_dir().join("names-XXXXXX")).perform()?;
/// # if cfg!(unix) {
/// fs::symlink("target", dir.join("link"), SymlinkKind::File).perform()?;
/// assert_eq!(fs::readlink(dir.join("link")).perform()?.as_os_str(), "target");
/// # }
/// # drop(std::fs::remove_dir_all(dir));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's.
#[doc(alias = "uv_fs_symlink")]
pub fn symlink(
    target: impl AsRef<Path>,
    link: impl AsRef<Path>,
    kind: SymlinkKind,
) -> Operation<Call<(Name, Name, SymlinkKind), ()>> {
    let names = two(target.as_ref(), link.as_ref());
    Call::try_of(names.map(|(target, link)| (target, link, kind)), &sys::SYMLINK)
}

/// Reads what a symbolic link says (`readlink(2)`); on Windows also a junction, without the
/// prefix `\\?\`.
///
/// ```
/// let wrong = uv_core::fs::readlink("Cargo.toml").perform();
/// assert!(wrong.is_err(), "no symbolic link");
/// ```
///
/// # Errors
///
/// The system's, such as `EINVAL` for what is no link.
#[doc(alias = "uv_fs_readlink")]
pub fn readlink(path: impl AsRef<Path>) -> Operation<Call<Name, PathBuf>> {
    Call::try_of(Name::new(path.as_ref()), &sys::READLINK)
}

/// The absolute path of a file, without symbolic links (`realpath(3)`); on Windows without
/// the prefix `\\?\`.
///
/// ```
/// let path = uv_core::fs::realpath(".").perform()?;
/// assert!(path.is_absolute());
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's, such as `ELOOP`.
#[doc(alias = "uv_fs_realpath")]
pub fn realpath(path: impl AsRef<Path>) -> Operation<Call<Name, PathBuf>> {
    Call::try_of(Name::new(path.as_ref()), &sys::REALPATH)
}

/// Asks whether this process may do something with a file (`access(2)`). By the time that it
/// tries it may be otherwise.
///
/// ```
/// use uv_core::fs::{self, Access};
///
/// assert!(fs::access("Cargo.toml", Access::READ).perform().is_ok());
/// assert!(fs::access("no such file", Access::empty()).perform().is_err());
/// ```
///
/// # Errors
///
/// `EACCES` if not (on Windows `EPERM`), and the system's.
#[doc(alias = "uv_fs_access")]
pub fn access(path: impl AsRef<Path>, access: Access) -> Operation<Call<(Name, Access), ()>> {
    Call::try_of(Name::new(path.as_ref()).map(|name| (name, access)), &sys::ACCESS)
}
