//! What a child does between its start and its program.
//!
//! It may share this process's memory and has only the thread that started it, so it may
//! neither allocate nor take a lock nor panic: only system calls.

use std::convert::Infallible;
use std::mem::MaybeUninit;
use std::ptr;

use super::ChildEnd;
use super::plan::Plan;
use crate::mailbox::SIGNALS;

/// The number of an error.
pub(super) type Errno = libc::c_int;

impl Plan {
    /// Becomes the program. Returns only if that fails.
    ///
    /// To be called only in a child that was made for it, and with all signals blocked.
    pub(super) fn execute(&mut self) -> Errno {
        let Err(error) = self.try_to_execute();
        error
    }

    fn try_to_execute(&mut self) -> Result<Infallible, Errno> {
        reset_handlers();
        if self.detached {
            // SAFETY: no memory is passed.
            check(unsafe { libc::setsid() })?;
        }
        self.arrange_descriptors()?;
        if let Some(directory) = &self.directory {
            // SAFETY: the path ends with a NUL.
            check(unsafe { libc::chdir(directory.as_ptr()) })?;
        }
        self.change_user()?;
        unblock_signals();
        Err(self.exec())
    }

    /// Makes the descriptors what they are to be.
    fn arrange_descriptors(&mut self) -> Result<(), Errno> {
        let count = self.ends.len() as libc::c_int;
        // Those whose number is to be another's go out of the way first.
        for (target, end) in (0..).zip(&mut self.ends) {
            if let ChildEnd::Inherit(source) | ChildEnd::Made(source) = end
                && *source < count
                && *source != target
            {
                // SAFETY: no memory is passed.
                *source = check(unsafe { libc::fcntl(*source, libc::F_DUPFD_CLOEXEC, count) })?;
            }
        }
        let mut null_to_write = None;
        for (target, end) in (0..).zip(&self.ends) {
            match *end {
                ChildEnd::Ignore if target < 3 => match null_to_write {
                    Some(opened) => place(opened, target)?,
                    None => {
                        open_null(target)?;
                        null_to_write = (target > 0).then_some(target);
                    }
                },
                ChildEnd::Ignore => {
                    // SAFETY: no memory is passed. It may not be open.
                    unsafe { libc::close(target) };
                }
                ChildEnd::Inherit(source) => {
                    place(source, target)?;
                    if target < 3 {
                        make_blocking(target)?;
                    }
                }
                ChildEnd::Made(source) => place(source, target)?,
            }
        }
        Ok(())
    }

    fn change_user(&self) -> Result<(), Errno> {
        if self.uid.is_some() || self.gid.is_some() {
            // First, as long as it is permitted. Who may not do it may have done without.
            // SAFETY: none are read.
            let _ = unsafe { ids::setgroups(0, ptr::null()) };
        }
        if let Some(gid) = self.gid {
            // SAFETY: no memory is passed.
            check(unsafe { ids::setgid(gid) })?;
        }
        if let Some(uid) = self.uid {
            // SAFETY: no memory is passed.
            check(unsafe { ids::setuid(uid) })?;
        }
        Ok(())
    }

    /// Tries the program at each place where it may be.
    fn exec(&self) -> Errno {
        let environment = self.environment_pointer();
        let mut result = libc::ENOENT;
        for path in &self.paths {
            // SAFETY: the path ends with a NUL, the arrays with a null.
            unsafe { libc::execve(path.as_ptr(), self.arguments.as_ptr(), environment) };
            match errno() {
                libc::ENOENT | libc::ENOTDIR | libc::ENODEV | libc::ESTALE | libc::ETIMEDOUT => {}
                // There may be another that may be run.
                libc::EACCES => result = libc::EACCES,
                error => return error,
            }
        }
        result
    }
}

/// No signal is handled or ignored any more: handlers are not the child's, and programs
/// expect not to inherit what is ignored.
fn reset_handlers() {
    // SAFETY: all zeroes is a valid `sigaction`: the default action, no flags, no mask.
    let default: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    // Linux has 64 of them, but on MIPS; to try numbers that are none costs a call each.
    let is_mips = cfg!(any(target_arch = "mips", target_arch = "mips64"));
    let has_64 = cfg!(target_os = "linux") && !is_mips;
    let last = if has_64 { 64 } else { SIGNALS as libc::c_int - 1 };
    for signum in 1..=last {
        // SAFETY: reads one action. Numbers that cannot be changed are errors.
        unsafe { libc::sigaction(signum, &default, ptr::null_mut()) };
    }
}

fn unblock_signals() {
    let mut none = MaybeUninit::uninit();
    // SAFETY: initialises the set.
    unsafe { libc::sigemptyset(none.as_mut_ptr()) };
    // SAFETY: reads one set; `how` is valid, so it does not fail.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut()) };
}

/// Makes `target` the null device. Its number is free then, and most of the time the lowest
/// that is, which is what is opened.
fn open_null(target: libc::c_int) -> Result<(), Errno> {
    let mode = if target == 0 { libc::O_RDONLY } else { libc::O_RDWR };
    // SAFETY: no memory is passed. It may not be open.
    unsafe { libc::close(target) };
    // SAFETY: the path ends with a NUL.
    let fd = check(unsafe { libc::open(c"/dev/null".as_ptr(), mode) })?;
    if fd != target {
        place(fd, target)?;
        // SAFETY: it was opened above.
        unsafe { libc::close(fd) };
    }
    Ok(())
}

/// Makes `target` the same as `source`, and stay open in the program.
fn place(source: libc::c_int, target: libc::c_int) -> Result<(), Errno> {
    if source == target {
        // SAFETY: no memory is passed.
        return check(unsafe { libc::fcntl(target, libc::F_SETFD, 0) }).map(drop);
    }
    // SAFETY: no memory is passed.
    check(unsafe { libc::dup2(source, target) }).map(drop)
}

fn make_blocking(fd: libc::c_int) -> Result<(), Errno> {
    // SAFETY: no memory is passed.
    let flags = check(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    if flags & libc::O_NONBLOCK == 0 {
        return Ok(());
    }
    // SAFETY: no memory is passed.
    check(unsafe { libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK) }).map(drop)
}

fn check(result: libc::c_int) -> Result<libc::c_int, Errno> {
    if result == -1 { Err(errno()) } else { Ok(result) }
}

fn errno() -> Errno {
    super::super::signals::errno()
}

/// The kernel's own calls, which are about the calling thread. The C library's change all
/// threads of the process, and it would take the parent's for the child's.
#[cfg(target_os = "linux")]
mod ids {
    cfg_if::cfg_if! {
        if #[cfg(any(target_arch = "x86", target_arch = "arm"))] {
            // The old calls have numbers of 16 bits.
            use libc::{SYS_setgid32 as SYS_setgid, SYS_setgroups32 as SYS_setgroups};
            use libc::SYS_setuid32 as SYS_setuid;
        } else {
            use libc::{SYS_setgid, SYS_setgroups, SYS_setuid};
        }
    }

    /// # Safety
    ///
    /// There are as many groups as said.
    pub(super) unsafe fn setgroups(count: usize, groups: *const libc::gid_t) -> libc::c_int {
        // SAFETY: the caller's promise.
        (unsafe { libc::syscall(SYS_setgroups, count, groups) }) as libc::c_int
    }

    /// # Safety
    ///
    /// None is needed.
    pub(super) unsafe fn setgid(gid: libc::gid_t) -> libc::c_int {
        // SAFETY: no memory is passed.
        (unsafe { libc::syscall(SYS_setgid, gid) }) as libc::c_int
    }

    /// # Safety
    ///
    /// None is needed.
    pub(super) unsafe fn setuid(uid: libc::uid_t) -> libc::c_int {
        // SAFETY: no memory is passed.
        (unsafe { libc::syscall(SYS_setuid, uid) }) as libc::c_int
    }
}

#[cfg(not(target_os = "linux"))]
mod ids {
    pub(super) use libc::{setgid, setgroups, setuid};
}
