//! File operations: one function for each, synchronous without a callback, on the pool with one.

mod directory;
mod perform;
mod transfer;

pub use directory::uv_fs_scandir_next;

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::{addr_of_mut, null, null_mut};

use libc::{ECANCELED, EINVAL, ENOMEM};
use uv_core::WorkKind;

use crate::alloc::{allocate, copy_string, release};
use crate::event_loop::enter;
use crate::layout::*;
use crate::request::kind as request_kind;
use crate::strings::bytes;
use crate::write::{copy_buffers, release_buffers};

/// The values of `uv_fs_type`.
pub mod kind {
    use std::ffi::c_int;

    pub const OPEN: c_int = 1;
    pub const CLOSE: c_int = 2;
    pub const READ: c_int = 3;
    pub const WRITE: c_int = 4;
    pub const SENDFILE: c_int = 5;
    pub const STAT: c_int = 6;
    pub const LSTAT: c_int = 7;
    pub const FSTAT: c_int = 8;
    pub const FTRUNCATE: c_int = 9;
    pub const UTIME: c_int = 10;
    pub const FUTIME: c_int = 11;
    pub const ACCESS: c_int = 12;
    pub const CHMOD: c_int = 13;
    pub const FCHMOD: c_int = 14;
    pub const FSYNC: c_int = 15;
    pub const FDATASYNC: c_int = 16;
    pub const UNLINK: c_int = 17;
    pub const RMDIR: c_int = 18;
    pub const MKDIR: c_int = 19;
    pub const MKDTEMP: c_int = 20;
    pub const RENAME: c_int = 21;
    pub const SCANDIR: c_int = 22;
    pub const LINK: c_int = 23;
    pub const SYMLINK: c_int = 24;
    pub const READLINK: c_int = 25;
    pub const CHOWN: c_int = 26;
    pub const FCHOWN: c_int = 27;
    pub const REALPATH: c_int = 28;
    pub const COPYFILE: c_int = 29;
    pub const LCHOWN: c_int = 30;
    pub const OPENDIR: c_int = 31;
    pub const READDIR: c_int = 32;
    pub const CLOSEDIR: c_int = 33;
    pub const STATFS: c_int = 34;
    pub const MKSTEMP: c_int = 35;
    pub const LUTIME: c_int = 36;
}

/// As libuv: more bytes than the kernel takes in one call.
const MOST_BYTES: usize = 0x7fff_f000;

type FsCallback = Callback<uv_fs_t>;

unsafe fn init(c_loop: *mut uv_loop_t, request: *mut uv_fs_t, kind: c_int, callback: FsCallback) {
    (*request).base.type_ = request_kind::FS;
    (*request).fs_type = kind;
    (*request).loop_ = c_loop;
    (*request).cb = callback;
    (*request).result = 0;
    (*request).ptr = null_mut();
    (*request).path = null();
    (*request).new_path = null();
    (*request).bufs = null_mut();
    (*request).nbufs = 0;
}

/// Performs a request, or queues it if it has a callback.
unsafe fn submit(c_loop: *mut uv_loop_t, request: *mut uv_fs_t) -> c_int {
    if (*request).cb.is_none() {
        perform::perform(request);
        return (*request).result as c_int;
    }
    crate::work::queue(c_loop, request, WorkKind::Cpu, perform::perform, move |lp, cancelled| {
        if cancelled {
            (*request).result = -(ECANCELED as isize);
        }
        if let Some(callback) = (*request).cb {
            enter(c_loop, lp, || callback(request));
        }
    })
}

/// A copy of the path, if the request has a callback: the caller's is valid during the call only.
unsafe fn set_path(request: *mut uv_fs_t, path: *const c_char) -> c_int {
    if path.is_null() {
        return -EINVAL;
    }
    (*request).path = if (*request).cb.is_none() { path } else { copy_string(bytes(path)) };
    if (*request).path.is_null() { -ENOMEM } else { 0 }
}

/// Both paths, in one copy.
unsafe fn set_paths(request: *mut uv_fs_t, path: *const c_char, new_path: *const c_char) -> c_int {
    if path.is_null() || new_path.is_null() {
        return -EINVAL;
    }
    if (*request).cb.is_none() {
        (*request).path = path;
        (*request).new_path = new_path;
        return 0;
    }
    let (first, second) = (libc::strlen(path) + 1, libc::strlen(new_path) + 1);
    let copy = allocate(first + second).cast::<c_char>();
    if copy.is_null() {
        return -ENOMEM;
    }
    std::ptr::copy_nonoverlapping(path, copy, first);
    std::ptr::copy_nonoverlapping(new_path, copy.add(first), second);
    (*request).path = copy;
    (*request).new_path = copy.add(first);
    0
}

unsafe fn set_copy(
    request: *mut uv_fs_t,
    path: *const c_char,
    new_path: *const c_char,
    flags: c_int,
) -> c_int {
    if flags & !transfer::COPY_FLAGS != 0 {
        return -EINVAL;
    }
    (*request).flags = flags;
    set_paths(request, path, new_path)
}

/// The template is copied in any case: the result overwrites it.
unsafe fn set_template(request: *mut uv_fs_t, template: *const c_char) -> c_int {
    if template.is_null() {
        return -EINVAL;
    }
    (*request).path = copy_string(bytes(template));
    if (*request).path.is_null() { -ENOMEM } else { 0 }
}

unsafe fn set_file(request: *mut uv_fs_t, file: c_int) -> c_int {
    (*request).file = file;
    0
}

unsafe fn set_buffers(
    request: *mut uv_fs_t,
    file: c_int,
    buffers: *const uv_buf_t,
    count: c_uint,
    offset: i64,
) -> c_int {
    if buffers.is_null() || count == 0 {
        return -EINVAL;
    }
    let lengths = (0..count as usize).map(|index| (*buffers.add(index)).len);
    if lengths.fold(0, usize::saturating_add) > MOST_BYTES {
        return -EINVAL;
    }
    (*request).file = file;
    (*request).off = offset;
    (*request).nbufs = count;
    (*request).bufs = copy_buffers(buffers, count, addr_of_mut!((*request).bufsml));
    if (*request).bufs.is_null() { -ENOMEM } else { 0 }
}

unsafe fn set_sendfile(
    request: *mut uv_fs_t,
    output: c_int,
    input: c_int,
    offset: i64,
    length: usize,
) -> c_int {
    if length > MOST_BYTES {
        return -EINVAL;
    }
    (*request).flags = output;
    (*request).file = input;
    (*request).off = offset;
    (*request).bufsml[0].len = length;
    0
}

unsafe fn set_directory(request: *mut uv_fs_t, directory: *mut uv_dir_t) -> c_int {
    if directory.is_null() {
        return -EINVAL;
    }
    (*request).ptr = directory.cast();
    0
}

/// A directory that is open, with memory for entries.
unsafe fn set_entries(request: *mut uv_fs_t, directory: *mut uv_dir_t) -> c_int {
    if directory.is_null() || (*directory).dir.is_null() || (*directory).dirents.is_null() {
        return -EINVAL;
    }
    set_directory(request, directory)
}

/// Defines the operations: on what, which a function checks and sets, and the arguments that are only
/// stored, with their fields.
macro_rules! operations {
    ($($name:ident $kind:ident $on:ident ($($argument:ident: $type:ty $(as $as:ty)? => $field:ident),*);)*) => {
        $( operations! { @ $on $name $kind ($($argument: $type $(as $as)? => $field),*) } )*
    };
    (@ path $($rest:tt)*) => {
        operations! { @@ set_path (path: *const c_char) $($rest)* }
    };
    (@ paths $($rest:tt)*) => {
        operations! { @@ set_paths (path: *const c_char, new_path: *const c_char) $($rest)* }
    };
    (@ copy $($rest:tt)*) => {
        operations! {
            @@ set_copy (path: *const c_char, new_path: *const c_char, flags: c_int) $($rest)*
        }
    };
    (@ template $($rest:tt)*) => {
        operations! { @@ set_template (template: *const c_char) $($rest)* }
    };
    (@ file $($rest:tt)*) => {
        operations! { @@ set_file (file: c_int) $($rest)* }
    };
    (@ buffers $($rest:tt)*) => {
        operations! {
            @@ set_buffers
            (file: c_int, buffers: *const uv_buf_t, count: c_uint, offset: i64) $($rest)*
        }
    };
    (@ sendfile $($rest:tt)*) => {
        operations! {
            @@ set_sendfile (output: c_int, input: c_int, offset: i64, length: usize) $($rest)*
        }
    };
    (@ directory $($rest:tt)*) => {
        operations! { @@ set_directory (directory: *mut uv_dir_t) $($rest)* }
    };
    (@ entries $($rest:tt)*) => {
        operations! { @@ set_entries (directory: *mut uv_dir_t) $($rest)* }
    };
    (@@ $set:ident ($($on:ident: $on_type:ty),*) $name:ident $kind:ident
        ($($argument:ident: $type:ty $(as $as:ty)? => $field:ident),*)
    ) => {
        #[cfg_attr(feature = "export", unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            c_loop: *mut uv_loop_t,
            request: *mut uv_fs_t,
            $($on: $on_type,)*
            $($argument: $type,)*
            callback: FsCallback,
        ) -> c_int {
            if request.is_null() {
                return -EINVAL;
            }
            init(c_loop, request, kind::$kind, callback);
            let invalid = $set(request, $($on),*);
            if invalid != 0 {
                return invalid;
            }
            $( (*request).$field = $argument $(as $as)?; )*
            submit(c_loop, request)
        }
    };
}

operations! {
    uv_fs_open OPEN path (flags: c_int => flags, mode: c_int as c_uint => mode);
    uv_fs_stat STAT path ();
    uv_fs_lstat LSTAT path ();
    uv_fs_unlink UNLINK path ();
    uv_fs_rmdir RMDIR path ();
    uv_fs_mkdir MKDIR path (mode: c_int as c_uint => mode);
    uv_fs_utime UTIME path (accessed: f64 => atime, modified: f64 => mtime);
    uv_fs_lutime LUTIME path (accessed: f64 => atime, modified: f64 => mtime);
    uv_fs_access ACCESS path (mode: c_int => flags);
    uv_fs_chmod CHMOD path (mode: c_int as c_uint => mode);
    uv_fs_scandir SCANDIR path (flags: c_int => flags);
    uv_fs_readlink READLINK path ();
    uv_fs_realpath REALPATH path ();
    uv_fs_chown CHOWN path (uid: u32 => uid, gid: u32 => gid);
    uv_fs_lchown LCHOWN path (uid: u32 => uid, gid: u32 => gid);
    uv_fs_opendir OPENDIR path ();
    uv_fs_statfs STATFS path ();

    uv_fs_mkdtemp MKDTEMP template ();
    uv_fs_mkstemp MKSTEMP template ();

    uv_fs_rename RENAME paths ();
    uv_fs_link LINK paths ();
    uv_fs_symlink SYMLINK paths (flags: c_int => flags);
    uv_fs_copyfile COPYFILE copy ();

    uv_fs_close CLOSE file ();
    uv_fs_fstat FSTAT file ();
    uv_fs_ftruncate FTRUNCATE file (length: i64 => off);
    uv_fs_futime FUTIME file (accessed: f64 => atime, modified: f64 => mtime);
    uv_fs_fchmod FCHMOD file (mode: c_int as c_uint => mode);
    uv_fs_fsync FSYNC file ();
    uv_fs_fdatasync FDATASYNC file ();
    uv_fs_fchown FCHOWN file (uid: u32 => uid, gid: u32 => gid);

    uv_fs_read READ buffers ();
    uv_fs_write WRITE buffers ();
    uv_fs_sendfile SENDFILE sendfile ();

    uv_fs_readdir READDIR entries ();
    uv_fs_closedir CLOSEDIR directory ();
}

/// Frees what a request has allocated. A second call does nothing.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_fs_req_cleanup(request: *mut uv_fs_t) {
    if request.is_null() {
        return;
    }
    let kind = (*request).fs_type;
    let owns_path = (*request).cb.is_some() || matches!(kind, kind::MKDTEMP | kind::MKSTEMP);
    if owns_path {
        release((*request).path.cast_mut().cast());
    }
    (*request).path = null();
    (*request).new_path = null();
    match kind {
        kind::READDIR => directory::release_entries(request),
        kind::SCANDIR => directory::release_scan(request),
        _ => {}
    }
    if !(*request).bufs.is_null() {
        release_buffers((*request).bufs, addr_of_mut!((*request).bufsml));
        (*request).bufs = null_mut();
    }
    let points_into_request = (*request).ptr == addr_of_mut!((*request).statbuf).cast();
    if kind != kind::OPENDIR && !points_into_request {
        release((*request).ptr);
    }
    (*request).ptr = null_mut();
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_fs_get_type(request: *const uv_fs_t) -> c_int {
    (*request).fs_type
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_fs_get_result(request: *const uv_fs_t) -> isize {
    (*request).result
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_fs_get_ptr(request: *const uv_fs_t) -> *mut c_void {
    (*request).ptr
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_fs_get_path(request: *const uv_fs_t) -> *const c_char {
    (*request).path
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_fs_get_statbuf(request: *mut uv_fs_t) -> *mut uv_stat_t {
    addr_of_mut!((*request).statbuf)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_fs_get_system_error(request: *const uv_fs_t) -> c_int {
    -(*request).result as c_int
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn uv_get_osfhandle(fd: c_int) -> c_int {
    fd
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn uv_open_osfhandle(fd: c_int) -> c_int {
    fd
}
