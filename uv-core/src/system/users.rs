//! Users, groups and the directory for temporary files.

use std::io;
use std::path::PathBuf;

use crate::sys;

/// A user, as returned by [`current_user`] and [`user`].
///
/// ```
/// use uv_core::system::{User, current_user};
///
/// match current_user() {
///     Ok(User { name, home, .. }) => println!("the home directory of {name} is {}", home.display()),
///     Err(error) => println!("unknown user: {error}"),
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct User {
    /// The login name.
    pub name: String,
    /// The user id; `None` on Windows.
    pub uid: Option<u32>,
    /// The id of the primary group; `None` on Windows.
    pub gid: Option<u32>,
    /// The login shell; `None` on Windows.
    pub shell: Option<PathBuf>,
    /// The home directory.
    pub home: PathBuf,
    /// The GECOS field, usually the full name; empty on Windows and Android.
    pub gecos: String,
}

/// A group of users, as returned by [`group`].
///
/// ```
/// use uv_core::system::{Group, group};
///
/// match group(0) {
///     Ok(Group { name, members, .. }) => println!("{name} has {} members", members.len()),
///     Err(error) => println!("{error}"),
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Group {
    /// The name.
    pub name: String,
    /// The group id.
    pub gid: u32,
    /// The names of the users for which this is a supplementary group.
    pub members: Vec<String>,
}

/// The effective user of this process.
///
/// The home directory is that of the user database. For the one of the environment, use
/// [`std::env::home_dir`].
///
/// ```no_run
/// let user = uv_core::system::current_user()?;
/// println!("the home directory of {} is {}", user.name, user.home.display());
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `NotFound` if the user database has no entry; the system's errors.
#[doc(alias = "uv_os_get_passwd")]
pub fn current_user() -> io::Result<User> {
    sys::users::current()
}

/// The user with this id.
///
/// ```no_run
/// assert_eq!(uv_core::system::user(0)?.name, "root");
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `NotFound` if there is none; `Unsupported` on Windows, whose users have no numeric ids; the
/// system's errors.
#[doc(alias = "uv_os_get_passwd2")]
pub fn user(uid: u32) -> io::Result<User> {
    sys::users::user(uid)
}

/// The group with this id.
///
/// ```no_run
/// println!("{:?}", uv_core::system::group(0)?.members);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// As [`user`].
#[doc(alias = "uv_os_get_group")]
pub fn group(gid: u32) -> io::Result<Group> {
    sys::users::group(gid)
}

/// The directory for temporary files: the value of the first of `TMPDIR`, `TMP`, `TEMP` and
/// `TEMPDIR` that is set, otherwise `/tmp`, without a trailing slash. On Windows, the directory
/// that the system reports.
///
/// [`std::env::temp_dir`] reads only `TMPDIR`.
///
/// ```
/// assert!(uv_core::system::temp_dir().is_absolute());
/// ```
#[doc(alias = "uv_os_tmpdir")]
pub fn temp_dir() -> PathBuf {
    sys::users::temp_dir()
}
