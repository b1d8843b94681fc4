//! The current user, its home directory and the directory for temporary files.

use std::ffi::OsString;
use std::io;
use std::os::windows::ffi::OsStringExt;
use std::path::PathBuf;
use std::ptr;

use windows_sys::Win32::Foundation::CloseHandle;
use windows_sys::Win32::Security::TOKEN_READ;
use windows_sys::Win32::Storage::FileSystem::GetTempPathW;
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};
use windows_sys::Win32::System::WindowsProgramming::GetUserNameW;
use windows_sys::Win32::UI::Shell::GetUserProfileDirectoryW;

use super::text;
use crate::system::{Group, User};

/// The maximum length of a path, in UTF-16 units.
const MAX_PATH_UNITS: usize = 32_768;

pub(crate) fn current() -> io::Result<User> {
    let mut name = [0_u16; 257];
    let mut length = name.len() as u32;
    // SAFETY: the call writes at most the length of the local buffer.
    if unsafe { GetUserNameW(name.as_mut_ptr(), &mut length) } == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(User {
        name: text(&name),
        uid: None,
        gid: None,
        shell: None,
        home: home()?,
        gecos: String::new(),
    })
}

fn home() -> io::Result<PathBuf> {
    let mut token = ptr::null_mut();
    // SAFETY: no memory is passed: the call returns a constant pseudo handle.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: the call writes the token to a local variable.
    if unsafe { OpenProcessToken(process, TOKEN_READ, &mut token) } == 0 {
        return Err(io::Error::last_os_error());
    }
    let (mut path, mut length) = (vec![0_u16; MAX_PATH_UNITS], MAX_PATH_UNITS as u32);
    // SAFETY: the token is open, and the call writes at most the length of the local buffer.
    let found = unsafe { GetUserProfileDirectoryW(token, path.as_mut_ptr(), &mut length) };
    let error = io::Error::last_os_error();
    // SAFETY: this function owns the token and closes it once.
    unsafe { CloseHandle(token) };
    if found == 0 { Err(error) } else { Ok(path_of(&path)) }
}

fn path_of(units: &[u16]) -> PathBuf {
    let end = units.iter().position(|&unit| unit == 0).unwrap_or(units.len());
    PathBuf::from(OsString::from_wide(&units[..end]))
}

pub(crate) fn user(_uid: u32) -> io::Result<User> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "Windows users have no numeric id: use the current user",
    ))
}

pub(crate) fn group(_gid: u32) -> io::Result<Group> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "Windows groups have no numeric id"))
}

pub(crate) fn temp_dir() -> PathBuf {
    let mut path = vec![0_u16; MAX_PATH_UNITS];
    // SAFETY: the call writes at most the length of the local buffer.
    let length = unsafe { GetTempPathW(MAX_PATH_UNITS as u32, path.as_mut_ptr()) } as usize;
    let units = &path[..length.min(MAX_PATH_UNITS)];
    // The trailing slash of a drive's root is part of the path.
    let backslash = u16::from(b'\\');
    let keep = units.len() - usize::from(units.len() > 3 && units.ends_with(&[backslash]));
    path_of(&units[..keep])
}
