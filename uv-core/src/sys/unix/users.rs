//! Users and groups, from the system's databases.

use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::ptr;

use crate::system::{Group, User};

pub(crate) fn current() -> io::Result<User> {
    // SAFETY: takes no pointer.
    user(unsafe { libc::geteuid() })
}

pub(crate) fn user(uid: u32) -> io::Result<User> {
    look_up(
        format!("no user has the number {uid}"),
        |entry: *mut libc::passwd, buffer, found| {
            let (memory, length) = (buffer.as_mut_ptr().cast(), buffer.len());
            // SAFETY: `look_up` passes pointers to locals. The call writes the entry and the result
            // pointer, and at most `length` bytes of strings, the size of `buffer`.
            unsafe { libc::getpwuid_r(uid, entry, memory, length, found) }
        },
        |entry| {
            // SAFETY: `look_up` passes an entry that `getpwuid_r` has filled: each string is null
            // or NUL-terminated, and `look_up` keeps the buffer that it lies in.
            let text = |from| unsafe { text(from) };
            User {
                name: text(entry.pw_name).into_string_lossy(),
                uid: Some(entry.pw_uid),
                gid: Some(entry.pw_gid),
                shell: Some(text(entry.pw_shell)).filter(|it| !it.is_empty()).map(PathBuf::from),
                home: PathBuf::from(text(entry.pw_dir)),
                #[cfg(not(target_os = "android"))]
                gecos: text(entry.pw_gecos).into_string_lossy(),
                #[cfg(target_os = "android")]
                gecos: String::new(),
            }
        },
    )
}

pub(crate) fn group(gid: u32) -> io::Result<Group> {
    look_up(
        format!("no group has the number {gid}"),
        |entry: *mut libc::group, buffer, found| {
            let (memory, length) = (buffer.as_mut_ptr().cast(), buffer.len());
            // SAFETY: `look_up` passes pointers to locals. The call writes the entry and the result
            // pointer, and at most `length` bytes of strings, the size of `buffer`.
            unsafe { libc::getgrgid_r(gid, entry, memory, length, found) }
        },
        |entry| {
            // SAFETY: `look_up` passes an entry that `getgrgid_r` has filled: each string is null
            // or NUL-terminated, and `look_up` keeps the buffer that it lies in.
            let text = |from| unsafe { text(from) };
            Group {
                name: text(entry.gr_name).into_string_lossy(),
                gid: entry.gr_gid,
                // SAFETY: `look_up` passes an entry that `getgrgid_r` has filled.
                members: unsafe { texts(entry.gr_mem) }.map(Lossy::into_string_lossy).collect(),
            }
        },
    )
}

/// Looks an entry up, and doubles the buffer for its strings until they fit.
fn look_up<T, R>(
    missing: String,
    call: impl Fn(*mut T, &mut [u8], *mut *mut T) -> libc::c_int,
    read: impl Fn(&T) -> R,
) -> io::Result<R> {
    const MAX_BUFFER: usize = 1 << 22;
    let mut buffer = vec![0; 2048];
    loop {
        let (mut entry, mut found) = (MaybeUninit::<T>::uninit(), ptr::null_mut());
        match call(entry.as_mut_ptr(), &mut buffer, &mut found) {
            0 if found.is_null() => return Err(io::Error::new(io::ErrorKind::NotFound, missing)),
            // SAFETY: the call has succeeded and found an entry, so it has written it. Its strings
            // are in `buffer`, which outlives `read`.
            0 => return Ok(read(unsafe { entry.assume_init_ref() })),
            libc::EINTR => {}
            libc::ERANGE if buffer.len() < MAX_BUFFER => buffer.resize(buffer.len() * 2, 0),
            // Some systems return these for an unknown number.
            libc::ENOENT | libc::ESRCH => {
                return Err(io::Error::new(io::ErrorKind::NotFound, missing));
            }
            code => return Err(io::Error::from_raw_os_error(code)),
        }
    }
}

/// Copies a string of an entry; empty if the pointer is null.
///
/// # Safety
///
/// `from` is null or points to a NUL-terminated string that is not written during the call.
unsafe fn text(from: *const libc::c_char) -> OsString {
    if from.is_null() {
        return OsString::new();
    }
    // SAFETY: not null, hence a NUL-terminated string by the caller's contract.
    OsStr::from_bytes(unsafe { CStr::from_ptr(from) }.to_bytes()).to_owned()
}

/// Copies the strings of a list that ends with a null pointer.
///
/// # Safety
///
/// `list` is null or points to an array of NUL-terminated strings that ends with null. The array is
/// not freed before the iterator.
unsafe fn texts(mut list: *mut *mut libc::c_char) -> impl Iterator<Item = OsString> {
    std::iter::from_fn(move || {
        // SAFETY: null or an element of the array: the iterator stops at the last one.
        let first = *unsafe { list.as_ref() }?;
        if first.is_null() {
            return None;
        }
        // SAFETY: the element is not null, so the array has another after it.
        list = unsafe { list.add(1) };
        // SAFETY: a string of the array, which the caller keeps.
        Some(unsafe { text(first) })
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
    let configured = variables.filter_map(std::env::var_os).find(|value| !value.is_empty());
    let mut path = configured.unwrap_or_else(|| default.into()).into_vec();
    if path.len() > 1 && path.ends_with(b"/") {
        path.pop();
    }
    PathBuf::from(OsString::from_vec(path))
}
