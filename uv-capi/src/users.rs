//! Users, groups, the environment and directories.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;

use libc::{EINVAL, ENOENT, ENOMEM, ERANGE};

use crate::alloc::{allocate, allocate_array, copy_string, release};
use crate::errors::{code, last_error, of_call};
use crate::layout::{uv_env_item_t, uv_group_t, uv_passwd_t};
use crate::strings::{bytes, is_buffer, write_string};

/// Calls a function of the `getpwuid_r` family with buffers that grow until one suffices, and
/// `found` with the entry while its memory is valid.
unsafe fn look_up<T>(
    call: impl Fn(*mut T, *mut c_char, usize, *mut *mut T) -> c_int,
    found: impl FnOnce(&T) -> c_int,
) -> c_int {
    let mut buffer = Vec::<c_char>::with_capacity(2048);
    loop {
        let (mut entry, mut result) = (MaybeUninit::<T>::uninit(), null_mut());
        match call(entry.as_mut_ptr(), buffer.as_mut_ptr(), buffer.capacity(), &mut result) {
            libc::EINTR => {}
            ERANGE => buffer.reserve(buffer.capacity() * 2),
            0 if result.is_null() => return -ENOENT,
            0 => return found(&*result),
            error => return -error,
        }
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_os_get_passwd(passwd: *mut uv_passwd_t) -> c_int {
    uv_os_get_passwd2(passwd, libc::geteuid())
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_os_get_passwd2(passwd: *mut uv_passwd_t, uid: u32) -> c_int {
    if passwd.is_null() {
        return -EINVAL;
    }
    look_up(
        |entry, buffer, size, result| libc::getpwuid_r(uid, entry, buffer, size, result),
        |entry: &libc::passwd| {
            // One allocation, as libuv: a program may free only the first.
            let texts = [bytes(entry.pw_name), bytes(entry.pw_dir), bytes(entry.pw_shell)];
            let memory = allocate(texts.iter().map(|text| text.len() + 1).sum()).cast::<c_char>();
            if memory.is_null() {
                return -ENOMEM;
            }
            let mut end = memory;
            let [username, homedir, shell] = texts.map(|text| append(&mut end, text));
            *passwd = uv_passwd_t {
                username,
                uid: entry.pw_uid.into(),
                gid: entry.pw_gid.into(),
                shell,
                homedir,
            };
            0
        },
    )
}

/// Copies a string to `end`, and moves `end` behind it.
unsafe fn append(end: &mut *mut c_char, text: &[u8]) -> *mut c_char {
    let start = *end;
    std::ptr::copy_nonoverlapping(text.as_ptr(), start.cast(), text.len());
    *start.add(text.len()) = 0;
    *end = start.add(text.len() + 1);
    start
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_os_free_passwd(passwd: *mut uv_passwd_t) {
    if !passwd.is_null() {
        release((*passwd).username.cast());
        (*passwd).username = null_mut();
        (*passwd).shell = null_mut();
        (*passwd).homedir = null_mut();
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_os_get_group(group: *mut uv_group_t, gid: u32) -> c_int {
    if group.is_null() {
        return -EINVAL;
    }
    look_up(
        |entry, buffer, size, result| libc::getgrgid_r(gid, entry, buffer, size, result),
        |entry: &libc::group| {
            let mut names = Vec::new();
            while !(*entry.gr_mem.add(names.len())).is_null() {
                names.push(bytes(*entry.gr_mem.add(names.len())));
            }
            let name = bytes(entry.gr_name);
            let texts: usize = names.iter().chain([&name]).map(|text| text.len() + 1).sum();
            let table = (names.len() + 1) * size_of::<*mut c_char>();
            let members = allocate(table + texts).cast::<*mut c_char>();
            if members.is_null() {
                return -ENOMEM;
            }
            let mut end = members.add(names.len() + 1).cast::<c_char>();
            for (index, name) in names.iter().enumerate() {
                *members.add(index) = append(&mut end, name);
            }
            *members.add(names.len()) = null_mut();
            let groupname = append(&mut end, name);
            *group = uv_group_t { groupname, gid: entry.gr_gid.into(), members };
            0
        },
    )
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_os_free_group(group: *mut uv_group_t) {
    if !group.is_null() {
        release((*group).members.cast());
        (*group).members = null_mut();
        (*group).groupname = null_mut();
    }
}

unsafe extern "C" {
    static environ: *const *const c_char;
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_os_environ(items: *mut *mut uv_env_item_t, count: *mut c_int) -> c_int {
    (*items, *count) = (null_mut(), 0);
    let mut total = 0;
    while !(*environ.add(total)).is_null() {
        total += 1;
    }
    let list = allocate_array::<uv_env_item_t>(total);
    if list.is_null() {
        return -ENOMEM;
    }
    let mut filled = 0;
    for index in 0..total {
        let copy = copy_string(bytes(*environ.add(index)));
        if copy.is_null() {
            uv_os_free_environ(list, filled as c_int);
            return -ENOMEM;
        }
        let equals = libc::strchr(copy, c_int::from(b'='));
        if equals.is_null() {
            release(copy.cast());
            continue;
        }
        *equals = 0;
        *list.add(filled) = uv_env_item_t { name: copy, value: equals.add(1) };
        filled += 1;
    }
    (*items, *count) = (list, filled as c_int);
    0
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_os_free_environ(items: *mut uv_env_item_t, count: c_int) {
    for index in 0..count.max(0) as usize {
        release((*items.add(index)).name.cast());
    }
    release(items.cast());
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_os_getenv(
    name: *const c_char,
    buffer: *mut c_char,
    size: *mut usize,
) -> c_int {
    if name.is_null() || !is_buffer(buffer, size) {
        return -EINVAL;
    }
    let value = libc::getenv(name);
    if value.is_null() { -ENOENT } else { write_string(bytes(value), buffer, size) }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_os_setenv(name: *const c_char, value: *const c_char) -> c_int {
    if name.is_null() || value.is_null() {
        return -EINVAL;
    }
    of_call(libc::setenv(name, value, 1))
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_os_unsetenv(name: *const c_char) -> c_int {
    if name.is_null() {
        return -EINVAL;
    }
    of_call(libc::unsetenv(name))
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_os_homedir(buffer: *mut c_char, size: *mut usize) -> c_int {
    let result = uv_os_getenv(c"HOME".as_ptr(), buffer, size);
    if result != -ENOENT {
        return result;
    }
    let mut passwd = MaybeUninit::uninit();
    let mut result = uv_os_get_passwd(passwd.as_mut_ptr());
    if result == 0 {
        result = write_string(bytes((*passwd.as_ptr()).homedir), buffer, size);
        uv_os_free_passwd(passwd.as_mut_ptr());
    }
    result
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_os_tmpdir(buffer: *mut c_char, size: *mut usize) -> c_int {
    if !is_buffer(buffer, size) {
        return -EINVAL;
    }
    let names = [c"TMPDIR", c"TMP", c"TEMP", c"TEMPDIR"];
    let found =
        names.map(|name| libc::getenv(name.as_ptr())).into_iter().find(|value| !value.is_null());
    let directory = found.map_or(&b"/tmp"[..], |value| bytes(value));
    if directory.len() >= *size {
        *size = directory.len() + 1;
        return -libc::ENOBUFS;
    }
    let trimmed = match directory {
        [rest @ .., b'/'] if !rest.is_empty() => rest,
        all => all,
    };
    write_string(trimmed, buffer, size)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_cwd(buffer: *mut c_char, size: *mut usize) -> c_int {
    if !is_buffer(buffer, size) {
        return -EINVAL;
    }
    match std::env::current_dir() {
        Ok(directory) => write_string(directory.as_os_str().as_bytes(), buffer, size),
        Err(error) => code(&error),
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_chdir(directory: *const c_char) -> c_int {
    of_call(libc::chdir(directory))
}

/// Truncates the path if the buffer is too small, as libuv.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_exepath(buffer: *mut c_char, size: *mut usize) -> c_int {
    if !is_buffer(buffer, size) {
        return -EINVAL;
    }
    let mut length = 0;
    if *size > 1 {
        length = libc::readlink(c"/proc/self/exe".as_ptr(), buffer, *size - 1);
        if length < 0 {
            return last_error();
        }
    }
    *buffer.add(length as usize) = 0;
    *size = length as usize;
    0
}
