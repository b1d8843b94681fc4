//! Child processes.

use std::ffi::{OsStr, c_char, c_int, c_uint};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use libc::{EINVAL, ESRCH};
use uv_core::{Command, PipeFlags, Process, Stdio, disable_stdio_inheritance};

use crate::descriptors::take_place;
use crate::errors::{code, of_call};
use crate::event_loop::{core, enter, sync};
use crate::handle::{any, core_of, init, is_closing, key, kind};
use crate::layout::*;
use crate::strings::{bytes, os, path};

/// The values of `uv_process_flags` that have a meaning on Unix.
const SETUID: c_uint = 1 << 0;
const SETGID: c_uint = 1 << 1;
const DETACHED: c_uint = 1 << 3;
/// These, and those of Windows.
const KNOWN: c_uint = (1 << 8) - 1;

/// The values of `uv_stdio_flags`.
const CREATE_PIPE: c_int = 0x01;
const INHERIT_FD: c_int = 0x02;
const INHERIT_STREAM: c_int = 0x04;
const KIND: c_int = CREATE_PIPE | INHERIT_FD | INHERIT_STREAM;

/// As libuv: if the program cannot be executed, the handle exists and the pipes are open.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_spawn(
    c_loop: *mut uv_loop_t,
    process: *mut uv_process_t,
    options: *const uv_process_options_t,
) -> c_int {
    let options = &*options;
    // Before anything is refused: the caller closes the handle in any case.
    let child = Process::new(core(c_loop));
    init(c_loop, process, kind::PROCESS, child);
    (*process).exit_cb = options.exit_cb;
    (*process).pid = 0;
    (*process).status = 0;
    if options.file.is_null() || options.flags & !KNOWN != 0 {
        return -EINVAL;
    }
    let command = match stdio(options) {
        Ok(stdio) => command(options).stdio(stdio),
        Err(error) => return error,
    };
    let spawned = child.spawn_into(core(c_loop), &command, move |lp, _, result| {
        let (exit, signal) = match result {
            Ok(exit) => (exit.code, exit.signal.unwrap_or(0)),
            // The program has called waitpid(2) itself, as Neovim does in its handler of SIGCHLD:
            // it has the status, and libuv does not report the end a second time.
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => return,
            Err(error) => (i64::from(code(&error)), 0),
        };
        if let Some(callback) = (*process).exit_cb {
            enter(c_loop, lp, || callback(process, exit, signal));
        }
    });
    sync(c_loop);
    match spawned {
        Ok(()) => {
            take_places(options);
            (*process).pid = child.pid(core(c_loop)).map_or(0, |pid| pid as c_int);
            0
        }
        Err(error) => code(&error),
    }
}

/// True in a process with a Python interpreter. uvloop runs Python between `fork` and `execve`
/// (`preexec_fn`), in a handler of pthread_atfork(3) that only `fork` calls: it expects a libuv
/// before 1.53.
fn runs_python() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: reads a string that ends with a NUL, and only looks for the symbol.
        let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"PyOS_AfterFork_Child".as_ptr()) };
        !symbol.is_null()
    })
}

unsafe fn command<'a>(options: &uv_process_options_t) -> Command<'a> {
    let mut command = Command::new(os(options.file));
    // As libuv, which has posix_spawn(3) for all but these.
    if options.flags & (SETUID | SETGID) != 0 || runs_python() {
        command = command.by_fork();
    }
    if !options.args.is_null() && !(*options.args).is_null() {
        command = command.arg0(os(*options.args));
        command = strings(options.args.add(1)).fold(command, |command, arg| command.arg(os(arg)));
    }
    if !options.env.is_null() {
        command = strings(options.env).fold(command.env_clear(), |command, item| {
            let item = bytes(item);
            // A variable without a value is not one.
            match item.iter().position(|&byte| byte == b'=') {
                Some(equals) => {
                    let value = &item[equals + 1..];
                    command.env(OsStr::from_bytes(&item[..equals]), OsStr::from_bytes(value))
                }
                None => command,
            }
        });
    }
    if !options.cwd.is_null() {
        command = command.current_dir(path(options.cwd));
    }
    if options.flags & SETUID != 0 {
        command = command.uid(options.uid);
    }
    if options.flags & SETGID != 0 {
        command = command.gid(options.gid);
    }
    command.detached(options.flags & DETACHED != 0)
}

/// The strings of a list that ends with null.
unsafe fn strings(list: *mut *mut c_char) -> impl Iterator<Item = *const c_char> {
    (0..).map(move |index| (*list.add(index)).cast_const()).take_while(|text| !text.is_null())
}

unsafe fn stdio<'a>(options: &uv_process_options_t) -> Result<Vec<Stdio<'a>>, c_int> {
    let count = options.stdio_count.max(0) as usize;
    (0..count).map(|index| one_stdio(&*options.stdio.add(index))).collect()
}

unsafe fn one_stdio<'a>(container: &uv_stdio_container_t) -> Result<Stdio<'a>, c_int> {
    match container.flags & KIND {
        0 => Ok(Stdio::Ignore),
        CREATE_PIPE => {
            let stream = container.data.stream;
            if stream.is_null() || (*stream).base.type_ != kind::NAMED_PIPE {
                return Err(-EINVAL);
            }
            let flags = PipeFlags::from_bits_truncate((container.flags >> 4) as u8);
            Ok(Stdio::Pipe(key(stream), flags))
        }
        INHERIT_FD if container.data.fd < 0 => Err(-EINVAL),
        INHERIT_FD => Ok(Stdio::Descriptor(BorrowedFd::borrow_raw(container.data.fd))),
        INHERIT_STREAM => Ok(Stdio::Stream(any(container.data.stream))),
        _ => Err(-EINVAL),
    }
}

/// The new pipes have descriptors.
unsafe fn take_places(options: &uv_process_options_t) {
    for index in 0..options.stdio_count.max(0) as usize {
        let container = &*options.stdio.add(index);
        if container.flags & KIND == CREATE_PIPE {
            take_place(container.data.stream);
        }
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_process_kill(process: *mut uv_process_t, signum: c_int) -> c_int {
    if is_closing(process) {
        return -ESRCH;
    }
    match key::<Process, _>(process).kill(core_of(process), signum) {
        Ok(()) => 0,
        Err(error) => code(&error),
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_process_get_pid(process: *const uv_process_t) -> c_int {
    (*process).pid
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_kill(pid: c_int, signum: c_int) -> c_int {
    of_call(libc::kill(pid, signum))
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn uv_disable_stdio_inheritance() {
    disable_stdio_inheritance();
}
