//! Operations on paths: links, directories, renames, access checks.

use std::path::{Path, PathBuf};

use super::operation::{Call, Operation};
use crate::sys::fs as sys;
use crate::sys::fs::Name;

bitflags::bitflags! {
    /// The kinds of access that [`access`] checks; empty only checks that the file exists.
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
        /// Execute a file, or search a directory. Always allowed on Windows.
        const EXECUTE = 1;
        /// Write.
        const WRITE = 2;
        /// Read.
        const READ = 4;
    }
}

/// The kind of a symbolic link, on Windows. Unix has one kind.
///
/// ```
/// assert_eq!(uv_core::fs::SymlinkKind::default(), uv_core::fs::SymlinkKind::File);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SymlinkKind {
    /// To a file.
    #[default]
    File,
    /// To a directory.
    Dir,
    /// To a local directory, given by its absolute path: a junction, which needs no privilege on
    /// Windows.
    Junction,
}

/// An operation on two paths.
type OnTwo<T = ()> = Operation<Call<(Name, Name), T>>;

fn two(from: &Path, to: &Path) -> std::io::Result<(Name, Name)> {
    Ok((Name::new(from)?, Name::new(to)?))
}

/// Removes a link to a file, and the file with its last link (`unlink(2)`).
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
/// The system's errors, such as `EISDIR` or `EPERM` for a directory.
#[doc(alias = "uv_fs_unlink")]
pub fn unlink(path: impl AsRef<Path>) -> Operation<Call<Name, ()>> {
    Call::try_of(Name::new(path.as_ref()), &sys::UNLINK)
}

/// Creates a directory with these permissions, less the umask (`mkdir(2)`).
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
/// The system's errors.
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
/// The system's errors, such as `ENOTEMPTY`.
#[doc(alias = "uv_fs_rmdir")]
pub fn rmdir(path: impl AsRef<Path>) -> Operation<Call<Name, ()>> {
    Call::try_of(Name::new(path.as_ref()), &sys::RMDIR)
}

/// Renames a file, and replaces an existing file of that name (`rename(2)`).
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
/// The system's errors, such as `EXDEV` for a path on another file system.
#[doc(alias = "uv_fs_rename")]
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> OnTwo {
    Call::try_of(two(from.as_ref(), to.as_ref()), &sys::RENAME)
}

/// Creates a hard link (`link(2)`).
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
/// The system's errors.
#[doc(alias = "uv_fs_link")]
pub fn link(from: impl AsRef<Path>, to: impl AsRef<Path>) -> OnTwo {
    Call::try_of(two(from.as_ref(), to.as_ref()), &sys::LINK)
}

/// Creates a symbolic link `link` to `target` (`symlink(2)`).
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
/// The system's errors.
#[doc(alias = "uv_fs_symlink")]
pub fn symlink(
    target: impl AsRef<Path>,
    link: impl AsRef<Path>,
    kind: SymlinkKind,
) -> Operation<Call<(Name, Name, SymlinkKind), ()>> {
    let names = two(target.as_ref(), link.as_ref());
    Call::try_of(names.map(|(target, link)| (target, link, kind)), &sys::SYMLINK)
}

/// Reads the target of a symbolic link (`readlink(2)`); on Windows also of a junction, without the
/// prefix `\\?\`.
///
/// ```
/// let wrong = uv_core::fs::readlink("Cargo.toml").perform();
/// assert!(wrong.is_err(), "no symbolic link");
/// ```
///
/// # Errors
///
/// The system's errors, such as `EINVAL` for a file that is no link.
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
/// The system's errors, such as `ELOOP`.
#[doc(alias = "uv_fs_realpath")]
pub fn realpath(path: impl AsRef<Path>) -> Operation<Call<Name, PathBuf>> {
    Call::try_of(Name::new(path.as_ref()), &sys::REALPATH)
}

/// Checks whether this process may access a file (`access(2)`). The answer may be outdated by the
/// time of the access.
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
/// `EACCES` if not (on Windows `EPERM`), and the system's errors.
#[doc(alias = "uv_fs_access")]
pub fn access(path: impl AsRef<Path>, access: Access) -> Operation<Call<(Name, Access), ()>> {
    Call::try_of(Name::new(path.as_ref()).map(|name| (name, access)), &sys::ACCESS)
}
