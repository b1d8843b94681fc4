//! Users and groups.

use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::ptr;

use crate::system::{Group, User};

pub(crate) fn current() -> io::Result<User> {
    // SAFETY: no memory is passed.
    user(unsafe { libc::geteuid() })
}

pub(crate) fn user(uid: u32) -> io::Result<User> {
    look_up(
        format!("there is no user {uid}"),
        |entry: *mut libc::passwd, room, found| {
            let (memory, length) = (room.as_mut_ptr().cast(), room.len());
            // SAFETY: writes the entry, its texts into the room, and where it is.
            unsafe { libc::getpwuid_r(uid, entry, memory, length, found) }
        },
        |entry| User {
            name: text(entry.pw_name).into_string_lossy(),
            uid: Some(entry.pw_uid),
            gid: Some(entry.pw_gid),
            shell: Some(text(entry.pw_shell)).filter(|it| !it.is_empty()).map(PathBuf::from),
            home: PathBuf::from(text(entry.pw_dir)),
            #[cfg(not(target_os = "android"))]
            gecos: text(entry.pw_gecos).into_string_lossy(),
            #[cfg(target_os = "android")]
            gecos: String::new(),
        },
    )
}

pub(crate) fn group(gid: u32) -> io::Result<Group> {
    look_up(
        format!("there is no group {gid}"),
        |entry: *mut libc::group, room, found| {
            let (memory, length) = (room.as_mut_ptr().cast(), room.len());
            // SAFETY: writes the entry, its texts into the room, and where it is.
            unsafe { libc::getgrgid_r(gid, entry, memory, length, found) }
        },
        |entry| Group {
            name: text(entry.gr_name).into_string_lossy(),
            gid: entry.gr_gid,
            members: texts(entry.gr_mem).map(Lossy::into_string_lossy).collect(),
        },
    )
}

/// Looks an entry up with ever more room for its texts.
fn look_up<T, R>(
    missing: String,
    call: impl Fn(*mut T, &mut [u8], *mut *mut T) -> libc::c_int,
    read: impl Fn(&T) -> R,
) -> io::Result<R> {
    const ENOUGH: usize = 1 << 22;
    let mut room = vec![0; 2048];
    loop {
        let (mut entry, mut found) = (MaybeUninit::<T>::uninit(), ptr::null_mut());
        match call(entry.as_mut_ptr(), &mut room, &mut found) {
            0 if found.is_null() => return Err(io::Error::new(io::ErrorKind::NotFound, missing)),
            // SAFETY: the call has written it, and its texts are in the room.
            0 => return Ok(read(unsafe { entry.assume_init_ref() })),
            libc::EINTR => {}
            libc::ERANGE if room.len() < ENOUGH => room.resize(room.len() * 2, 0),
            // Some systems say this of what they do not have.
            libc::ENOENT | libc::ESRCH => {
                return Err(io::Error::new(io::ErrorKind::NotFound, missing));
            }
            code => return Err(io::Error::from_raw_os_error(code)),
        }
    }
}

/// A text of an entry; empty if it is missing.
fn text(from: *const libc::c_char) -> OsString {
    if from.is_null() {
        return OsString::new();
    }
    // SAFETY: the texts of an entry end with NUL, and live as long as its room.
    OsStr::from_bytes(unsafe { CStr::from_ptr(from) }.to_bytes()).to_owned()
}

/// A list of texts that ends with null.
fn texts(mut list: *mut *mut libc::c_char) -> impl Iterator<Item = OsString> {
    std::iter::from_fn(move || {
        // SAFETY: null, or an element of the list, of which the last is null.
        let first = *unsafe { list.as_ref() }?;
        if first.is_null() {
            return None;
        }
        // SAFETY: not at the end yet.
        list = unsafe { list.add(1) };
        Some(text(first))
    })
}

trait Lossy {
    fn into_string_lossy(self) -> String;
}

impl Lossy for OsString {
    fn into_string_lossy(self) -> String {
        String::from_utf8_lossy(&self.into_vec()).into_owned()
    }
}

pub(crate) fn temp_dir() -> PathBuf {
    let default = if cfg!(target_os = "android") { "/data/local/tmp" } else { "/tmp" };
    let variables = ["TMPDIR", "TMP", "TEMP", "TEMPDIR"].into_iter();
    let said = variables.filter_map(std::env::var_os).find(|value| !value.is_empty());
    let mut path = said.unwrap_or_else(|| default.into()).into_vec();
    if path.len() > 1 && path.ends_with(b"/") {
        path.pop();
    }
    PathBuf::from(OsString::from_vec(path))
}
