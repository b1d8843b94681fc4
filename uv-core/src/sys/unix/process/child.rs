//! The code that a child runs between its start and `execve`.
//!
//! The child may share the memory of this process, and has a copy of the starting thread only. It
//! must not allocate, lock or panic: it makes async-signal-safe calls only.
//!
//! Its descriptor table is its own (`fork`, or `clone` without `CLONE_FILES`), so closing and
//! replacing descriptors here does not affect the owners in the parent.

use std::convert::Infallible;
use std::mem::MaybeUninit;
use std::ptr;

use super::ChildEnd;
use super::plan::Plan;
use crate::handles::SIGNALS;

/// An `errno` value.
pub(super) type Errno = libc::c_int;

impl Plan {
    /// Replaces the process by the program. Returns only if that fails.
    ///
    /// To be called only in a new child, with all signals blocked: it resets signal handlers and
    /// rearranges the descriptors of the calling process.
    pub(super) fn execute(&mut self) -> Errno {
        let Err(error) = self.try_to_execute();
        error
    }

    fn try_to_execute(&mut self) -> Result<Infallible, Errno> {
        reset_handlers();
        if self.detached {
            // SAFETY: takes no pointer.
            check(unsafe { libc::setsid() })?;
        }
        self.arrange_descriptors()?;
        if let Some(directory) = &self.directory {
            // SAFETY: reads a NUL-terminated path, which `Plan` owns.
            check(unsafe { libc::chdir(directory.as_ptr()) })?;
        }
        self.change_user()?;
        unblock_signals();
        Err(self.exec())
    }

    /// Moves each descriptor to the number that the plan has for it.
    fn arrange_descriptors(&mut self) -> Result<(), Errno> {
        let count = self.ends.len() as libc::c_int;
        // First duplicates every source whose number is the target of another one.
        for (target, end) in (0..).zip(&mut self.ends) {
            if let ChildEnd::Inherit(source) | ChildEnd::Made(source) = end
                && *source < count
                && *source != target
            {
                // SAFETY: takes no pointer.
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
                    // SAFETY: takes no pointer, and the table is the child's own. The descriptor
                    // may not be open, which is an error without effect.
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
            // The groups go first, while the process still has the permission. A program must not
            // run as another user with the groups of this one.
            // SAFETY: the count is 0, so the kernel does not read the null pointer.
            let dropped = check(unsafe { ids::setgroups(0, ptr::null()) });
            if self.changes_user() {
                dropped?;
            }
        }
        if let Some(gid) = self.gid {
            // SAFETY: takes no pointer.
            check(unsafe { ids::setgid(gid) })?;
        }
        if let Some(uid) = self.uid {
            // SAFETY: takes no pointer.
            check(unsafe { ids::setuid(uid) })?;
        }
        Ok(())
    }

    /// False if the plan has the user and the group of this process: such a child does not need the
    /// permission to drop groups.
    fn changes_user(&self) -> bool {
        // SAFETY: takes no pointer.
        let user = [unsafe { libc::getuid() }, unsafe { libc::geteuid() }];
        // SAFETY: takes no pointer.
        let group = [unsafe { libc::getgid() }, unsafe { libc::getegid() }];
        self.uid.is_some_and(|uid| user != [uid; 2])
            || self.gid.is_some_and(|gid| group != [gid; 2])
    }

    /// Executes the first candidate path that exists and may be executed.
    fn exec(&self) -> Errno {
        let environment = self.environment_pointer();
        let mut result = libc::ENOENT;
        for path in &self.paths {
            // SAFETY: the path is NUL-terminated. `Strings` ends both arrays of NUL-terminated
            // strings with null, as the C library does for `environ`; the plan owns them all.
            unsafe { libc::execve(path.as_ptr(), self.arguments.as_ptr(), environment) };
            match errno() {
                libc::ENOENT | libc::ENOTDIR | libc::ENODEV | libc::ESTALE | libc::ETIMEDOUT => {}
                // Another candidate may be executable.
                libc::EACCES => result = libc::EACCES,
                error => return error,
            }
        }
        result
    }
}

/// Resets every signal to its default action: the handlers are code of the parent, and programs do
/// not expect to inherit ignored signals.
fn reset_handlers() {
    // SAFETY: a C structure of integers and pointers; zero is valid for each field and means the
    // default action, no flags and an empty mask.
    let default: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    // Linux has 64 signals except on MIPS. Each invalid number would cost a system call.
    let is_mips = cfg!(any(target_arch = "mips", target_arch = "mips64"));
    let has_64 = cfg!(target_os = "linux") && !is_mips;
    let last = if has_64 { 64 } else { SIGNALS as libc::c_int - 1 };
    for signum in 1..=last {
        // SAFETY: reads one action, a local, and writes none (null). The child has its own table of
        // actions; a signal that cannot be changed is an error.
        unsafe { libc::sigaction(signum, &default, ptr::null_mut()) };
    }
}

fn unblock_signals() {
    let mut none = MaybeUninit::uninit();
    // SAFETY: writes one set, to a local.
    unsafe { libc::sigemptyset(none.as_mut_ptr()) };
    // SAFETY: reads the set that is initialised above, and writes none (null).
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut()) };
}

/// Opens the null device as `target`. The numbers below are open, because descriptors are arranged
/// in their order, so that after the close `target` is the lowest free number, which `open`
/// returns.
fn open_null(target: libc::c_int) -> Result<(), Errno> {
    let mode = if target == 0 { libc::O_RDONLY } else { libc::O_RDWR };
    // SAFETY: takes no pointer, and the table is the child's own. It may not be open.
    unsafe { libc::close(target) };
    // SAFETY: reads a NUL-terminated literal.
    check(unsafe { libc::open(c"/dev/null".as_ptr(), mode) }).map(drop)
}

/// Makes `target` a duplicate of `source` that `exec` does not close.
fn place(source: libc::c_int, target: libc::c_int) -> Result<(), Errno> {
    if source == target {
        // SAFETY: takes no pointer.
        return check(unsafe { libc::fcntl(target, libc::F_SETFD, 0) }).map(drop);
    }
    // SAFETY: takes no pointer, and the table is the child's own.
    check(unsafe { libc::dup2(source, target) }).map(drop)
}

fn make_blocking(fd: libc::c_int) -> Result<(), Errno> {
    // SAFETY: takes no pointer.
    let flags = check(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    if flags & libc::O_NONBLOCK == 0 {
        return Ok(());
    }
    // SAFETY: takes no pointer.
    check(unsafe { libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK) }).map(drop)
}

fn check(result: libc::c_int) -> Result<libc::c_int, Errno> {
    if result == -1 { Err(errno()) } else { Ok(result) }
}

fn errno() -> Errno {
    super::super::signals::errno()
}

/// The raw system calls, which change the calling thread only. The functions of the C library
/// change all threads of the process, and in a child that shares memory its list is that of the
/// parent.
#[cfg(target_os = "linux")]
mod ids {
    cfg_if::cfg_if! {
        if #[cfg(any(target_arch = "x86", target_arch = "arm"))] {
            // The calls without the suffix take IDs of 16 bits.
            use libc::{SYS_setgid32 as SYS_setgid, SYS_setgroups32 as SYS_setgroups};
            use libc::SYS_setuid32 as SYS_setuid;
        } else {
            use libc::{SYS_setgid, SYS_setgroups, SYS_setuid};
        }
    }

    /// # Safety
    ///
    /// `groups` points to `count` group IDs.
    pub(super) unsafe fn setgroups(count: usize, groups: *const libc::gid_t) -> libc::c_int {
        // SAFETY: the kernel reads `count` IDs, which the caller provides.
        (unsafe { libc::syscall(SYS_setgroups, count, groups) }) as libc::c_int
    }

    /// # Safety
    ///
    /// None. It is unsafe like the C library's function, which other systems use.
    pub(super) unsafe fn setgid(gid: libc::gid_t) -> libc::c_int {
        // SAFETY: takes no pointer.
        (unsafe { libc::syscall(SYS_setgid, gid) }) as libc::c_int
    }

    /// # Safety
    ///
    /// None. It is unsafe like the C library's function, which other systems use.
    pub(super) unsafe fn setuid(uid: libc::uid_t) -> libc::c_int {
        // SAFETY: takes no pointer.
        (unsafe { libc::syscall(SYS_setuid, uid) }) as libc::c_int
    }
}

#[cfg(not(target_os = "linux"))]
mod ids {
    pub(super) use libc::{setgid, setgroups, setuid};
}
