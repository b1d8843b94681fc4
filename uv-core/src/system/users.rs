//! Users, groups, and where their files go.

use std::io;
use std::path::PathBuf;

use crate::sys;

/// A user: what [`current_user`] and [`user`] give.
///
/// ```
/// use uv_core::system::{User, current_user};
///
/// match current_user() {
///     Ok(User { name, home, .. }) => println!("{name} lives in {}", home.display()),
///     Err(error) => println!("nobody knows this user: {error}"),
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct User {
    /// The name to log in with.
    pub name: String,
    /// Its number; `None` on Windows.
    pub uid: Option<u32>,
    /// The number of its group; `None` on Windows.
    pub gid: Option<u32>,
    /// Its shell; `None` on Windows.
    pub shell: Option<PathBuf>,
    /// Its home.
    pub home: PathBuf,
    /// Its full name, or what else is written in that place; empty on Windows and Android.
    pub gecos: String,
}

/// A group of users: what [`group`] gives.
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
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its number.
    pub gid: u32,
    /// The names of those whom it was given in addition.
    pub members: Vec<String>,
}

/// The user that this process runs for (the effective one).
///
/// The home that this gives is the one in the system's books. Programs that should obey the
/// environment ask [`std::env::home_dir`].
///
/// ```no_run
/// let user = uv_core::system::current_user()?;
/// println!("{} lives in {}", user.name, user.home.display());
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `NotFound` if the system's books do not have it; the system's.
pub fn current_user() -> io::Result<User> {
    sys::users::current()
}

/// The user with this number.
///
/// ```no_run
/// assert_eq!(uv_core::system::user(0)?.name, "root");
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `NotFound` if there is none; `Unsupported` on Windows, whose users have no numbers; the
/// system's.
pub fn user(uid: u32) -> io::Result<User> {
    sys::users::user(uid)
}

/// The group with this number.
///
/// ```no_run
/// println!("{:?}", uv_core::system::group(0)?.members);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// As [`user`].
pub fn group(gid: u32) -> io::Result<Group> {
    sys::users::group(gid)
}

/// Where temporary files go: what the first of `TMPDIR`, `TMP`, `TEMP` and `TEMPDIR` says that
/// is set, else `/tmp`, without a slash at the end. On Windows, what the system says.
///
/// [`std::env::temp_dir`] obeys `TMPDIR` only.
///
/// ```
/// assert!(uv_core::system::temp_dir().is_absolute());
/// ```
pub fn temp_dir() -> PathBuf {
    sys::users::temp_dir()
}
