//! The user, and where its files go.

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

/// Room for any path that these functions give.
const ROOM: usize = 32_768;

pub(crate) fn current() -> io::Result<User> {
    let mut name = [0_u16; 257];
    let mut length = name.len() as u32;
    // SAFETY: writes no more than the length given.
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
    // SAFETY: a constant.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: writes the token.
    if unsafe { OpenProcessToken(process, TOKEN_READ, &mut token) } == 0 {
        return Err(io::Error::last_os_error());
    }
    let (mut path, mut length) = (vec![0_u16; ROOM], ROOM as u32);
    // SAFETY: the token is open; writes no more than the length given.
    let found = unsafe { GetUserProfileDirectoryW(token, path.as_mut_ptr(), &mut length) };
    let error = io::Error::last_os_error();
    // SAFETY: ours, and closed once.
    unsafe { CloseHandle(token) };
    if found == 0 { Err(error) } else { Ok(path_of(&path)) }
}

fn path_of(units: &[u16]) -> PathBuf {
    let end = units.iter().position(|&unit| unit == 0).unwrap_or(units.len());
    PathBuf::from(OsString::from_wide(&units[..end]))
}

pub(crate) fn user(_uid: u32) -> io::Result<User> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "users of Windows have no numbers"))
}

pub(crate) fn group(_gid: u32) -> io::Result<Group> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "groups of Windows have no numbers"))
}

pub(crate) fn temp_dir() -> PathBuf {
    let mut path = vec![0_u16; ROOM];
    // SAFETY: writes no more than the length given.
    let length = unsafe { GetTempPathW(ROOM as u32, path.as_mut_ptr()) } as usize;
    let units = &path[..length.min(ROOM)];
    // The root of a drive keeps its slash.
    let backslash = u16::from(b'\\');
    let keep = units.len() - usize::from(units.len() > 3 && units.ends_with(&[backslash]));
    path_of(&units[..keep])
}
