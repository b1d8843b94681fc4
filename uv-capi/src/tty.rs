//! Terminals.

use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd};

use libc::{EINVAL, ENOTSUP};
use uv_core::{Handle as _, HandleKind, Pipe, Tty, TtyMode, guess_handle};

use crate::descriptors::take_place;
use crate::errors::{code, status};
use crate::event_loop::{core, queue_remove};
use crate::handle::{core_of, flags, key, kind};
use crate::layout::{uv_loop_t, uv_tty_t};
use crate::stream::{init_stream, take_descriptor};

/// A descriptor of the caller, for the time of a call.
struct Borrowed(c_int);

impl AsFd for Borrowed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the caller keeps the descriptor open during the call, and it is not -1.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_tty_init(
    c_loop: *mut uv_loop_t,
    tty: *mut uv_tty_t,
    fd: c_int,
    _readable: c_int,
) -> c_int {
    if fd < 0 {
        return -EINVAL;
    }
    match guess_handle(&Borrowed(fd)) {
        HandleKind::Tty => {}
        // As libuv, which refuses what epoll refuses.
        HandleKind::File | HandleKind::Unknown => return -EINVAL,
        _ => return open_stream(c_loop, tty, fd),
    }
    let terminal = match Tty::new(core(c_loop), &Borrowed(fd)) {
        Ok(terminal) => terminal,
        Err(error) => return code(&error),
    };
    init_stream(c_loop, tty.cast(), kind::TTY, terminal);
    (*tty).mode = 0;
    let own = terminal.raw_source(core(c_loop)).map(|source| source.fd());
    if own.is_ok_and(|fd| libc::fcntl(fd, libc::F_GETFL) & libc::O_NONBLOCK == 0) {
        (*tty).stream.base.flags |= flags::BLOCKING_WRITES;
    }
    take_place(tty);
    0
}

/// A terminal handle of a pipe or a socket, whose stream is a pipe's in the loop. Its key serves as a
/// terminal's, because the loop keeps all streams in one arena.
unsafe fn open_stream(c_loop: *mut uv_loop_t, tty: *mut uv_tty_t, fd: c_int) -> c_int {
    let pipe = Pipe::new(core(c_loop));
    init_stream(c_loop, tty.cast(), kind::TTY, pipe);
    (*tty).mode = 0;
    let result = match take_descriptor(tty.cast(), fd) {
        Ok(owned) => status(pipe.open(core(c_loop), owned)),
        Err(error) => error,
    };
    if result == 0 {
        take_place(tty);
    } else {
        // The handle does not exist: it is not to be closed by the caller.
        queue_remove(&raw mut (*tty).stream.base.handle_queue);
        let _ = pipe.close(core(c_loop));
    }
    result
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_tty_set_mode(tty: *mut uv_tty_t, mode: c_int) -> c_int {
    let wanted = match mode {
        0 => TtyMode::Normal,
        1 => TtyMode::Raw,
        2 => TtyMode::Io,
        3 => TtyMode::RawVt,
        _ => return -EINVAL,
    };
    let result = status(key::<Tty, _>(tty).set_mode(core_of(tty), wanted));
    if result == 0 {
        (*tty).mode = mode;
    }
    result
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_tty_reset_mode() -> c_int {
    status(Tty::reset_mode())
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_tty_get_winsize(
    tty: *mut uv_tty_t,
    width: *mut c_int,
    height: *mut c_int,
) -> c_int {
    match key::<Tty, _>(tty).window_size(core_of(tty)) {
        Ok(size) => {
            *width = c_int::from(size.columns);
            *height = c_int::from(size.rows);
            0
        }
        Err(error) => code(&error),
    }
}

/// A setting of Windows.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn uv_tty_set_vterm_state(_state: c_int) {}

/// A setting of Windows.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_tty_get_vterm_state(_state: *mut c_int) -> c_int {
    -ENOTSUP
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_guess_handle(fd: c_int) -> c_int {
    if fd < 0 {
        return kind::UNKNOWN;
    }
    match guess_handle(&Borrowed(fd)) {
        HandleKind::Tty => kind::TTY,
        HandleKind::Tcp => kind::TCP,
        HandleKind::Udp => kind::UDP,
        HandleKind::Pipe => kind::NAMED_PIPE,
        HandleKind::File => kind::FILE,
        _ => kind::UNKNOWN,
    }
}
