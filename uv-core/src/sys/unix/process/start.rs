//! The system calls that start a child.
//!
//! | call | systems | used |
//! |---|---|---|
//! | `clone` with shared memory | Linux | always |
//! | `posix_spawn` | others | if it supports the whole plan |
//! | `fork` | others | otherwise |
//!
//! The cost of the first two does not depend on the memory of this process.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::super::signals::AllBlocked;
use super::plan::Plan;
use super::{Child, pidfd, posix_spawn};
use crate::handles::CommandFlags;

/// Starts a child. Returns when its program runs, or with the error that prevented it.
pub(super) fn start(mut plan: Plan, flags: CommandFlags, with_pidfd: bool) -> io::Result<Child> {
    let prefers_posix = flags.contains(CommandFlags::BY_POSIX_SPAWN) || !cfg!(target_os = "linux");
    if flags.contains(CommandFlags::BY_FORK) {
        return fork(&mut plan, with_pidfd);
    }
    if prefers_posix && posix_spawn::supports(&plan) {
        let pid = posix_spawn::spawn(&plan)?;
        return Ok(Child { pid, pidfd: pidfd_of(pid, with_pidfd) });
    }
    cfg_if::cfg_if! {
        if #[cfg(target_os = "linux")] {
            shared_memory::start(&mut plan, with_pidfd)
        } else {
            fork(&mut plan, with_pidfd)
        }
    }
}

/// Opens the process descriptor of a child that was started without one.
fn pidfd_of(pid: libc::pid_t, wanted: bool) -> Option<OwnedFd> {
    if wanted { pidfd::open(pid).ok() } else { None }
}

fn fork(plan: &mut Plan, with_pidfd: bool) -> io::Result<Child> {
    // `exec` closes the write end. Before that, the child writes its error to it.
    let (reader, low) = io::pipe()?;
    let above = plan.ends.len() as libc::c_int;
    // SAFETY: takes no pointer.
    let writer = match unsafe { libc::fcntl(low.as_raw_fd(), libc::F_DUPFD_CLOEXEC, above) } {
        -1 => return Err(io::Error::last_os_error()),
        // SAFETY: the call has returned a new descriptor, which nothing else owns.
        fd => unsafe { OwnedFd::from_raw_fd(fd) },
    };
    drop(low);
    let blocked = AllBlocked::new();
    // SAFETY: takes no pointer. The child of a process with threads may make async-signal-safe
    // calls only, which `Plan::execute` keeps to until `execve` or `_exit`.
    let pid = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            let error = plan.execute().to_ne_bytes();
            // SAFETY: reads `error.len()` bytes of `error`, a local.
            unsafe { libc::write(writer.as_raw_fd(), error.as_ptr().cast(), error.len()) };
            // SAFETY: takes no pointer; ends the child without running exit handlers.
            unsafe { libc::_exit(127) }
        }
        pid => pid,
    };
    drop(blocked);
    drop(writer);
    let mut error = [0; size_of::<libc::c_int>()];
    match File::from(OwnedFd::from(reader)).read_exact(&mut error) {
        // End of file: the program runs, or the child was killed before.
        Err(_) => Ok(Child { pid, pidfd: pidfd_of(pid, with_pidfd) }),
        Ok(()) => {
            // The child exits by itself. If other code has reaped it already, this fails
            // harmlessly.
            let _ = super::wait(pid, 0);
            Err(io::Error::from_raw_os_error(libc::c_int::from_ne_bytes(error)))
        }
    }
}

#[cfg(target_os = "linux")]
mod shared_memory {
    use std::cell::Cell;
    use std::ptr;

    use super::*;

    thread_local! {
        /// The stack of the last child that this thread has started, for the next.
        static SPARE: Cell<Option<Stack>> = const { Cell::new(None) };
    }

    /// The argument of the child, and its error if `execve` fails.
    struct Start<'a> {
        plan: &'a mut Plan,
        error: libc::c_int,
    }

    pub(super) fn start(plan: &mut Plan, with_pidfd: bool) -> io::Result<Child> {
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        let stack = spare.map_or_else(Stack::new, Ok)?;
        let mut start = Start { plan, error: 0 };
        let mut pidfd: libc::c_int = -1;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let flags = if with_pidfd { flags | libc::CLONE_PIDFD } else { flags };
        // A signal handler in the child would change the memory of this process.
        let blocked = AllBlocked::new();
        let argument = (&raw mut start).cast();
        // SAFETY: `stack` was taken out of `SPARE`, so only this child uses it. `CLONE_VFORK`
        // suspends this thread until the child has called `execve` or exited: `start` and `stack`
        // live that long, and nothing else uses them. The child makes async-signal-safe calls only
        // (`Plan::execute`). The kernel writes one `int` to `pidfd`.
        let pid = unsafe { libc::clone(run, stack.top(), flags, argument, &raw mut pidfd) };
        let failed = (pid == -1).then(io::Error::last_os_error);
        drop(blocked);
        // The child has its own memory now, or has exited, so the stack can be reused. While the
        // thread ends, `SPARE` is not available and the stack is freed.
        let _ = SPARE.try_with(|spare| spare.set(Some(stack)));
        if let Some(error) = failed {
            return Err(error);
        }
        let pidfd = match pidfd {
            -1 => None,
            // SAFETY: `clone` has written a new descriptor, which nothing else owns.
            fd => Some(unsafe { OwnedFd::from_raw_fd(fd) }),
        };
        if start.error != 0 {
            // The child exits by itself. If other code has reaped it already, this fails
            // harmlessly.
            let _ = super::super::wait(pid, 0);
            return Err(io::Error::from_raw_os_error(start.error));
        }
        Ok(Child { pid, pidfd })
    }

    extern "C" fn run(argument: *mut libc::c_void) -> libc::c_int {
        // SAFETY: `start` passes a pointer to its local and is suspended until this returns or
        // executes a program, so the reference is exclusive.
        let start = unsafe { &mut *argument.cast::<Start<'_>>() };
        start.error = start.plan.execute();
        // SAFETY: takes no pointer; ends the child without running exit handlers.
        unsafe { libc::_exit(127) }
    }

    /// The stack of a child until `execve`, with guard pages below.
    struct Stack {
        bottom: *mut libc::c_void,
    }

    const STACK: usize = 64 << 10;
    /// At least one page of any system.
    const GUARD: usize = 64 << 10;

    impl Stack {
        fn new() -> io::Result<Stack> {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: without an address and `MAP_FIXED` the kernel chooses unused addresses.
            let bottom =
                unsafe { libc::mmap(ptr::null_mut(), GUARD + STACK, access, flags, -1, 0) };
            if bottom == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let stack = Stack { bottom };
            // SAFETY: the range is the start of the mapping above, which nothing uses yet.
            match unsafe { libc::mprotect(bottom, GUARD, libc::PROT_NONE) } {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(stack),
            }
        }

        /// The highest address: the stack grows downwards.
        fn top(&self) -> *mut libc::c_void {
            self.bottom.wrapping_byte_add(GUARD + STACK)
        }
    }

    impl Drop for Stack {
        fn drop(&mut self) {
            // SAFETY: the range is the mapping of `new`, and only this unmaps it. A child that used
            // it has executed its program or exited: `start` was suspended until then.
            unsafe { libc::munmap(self.bottom, GUARD + STACK) };
        }
    }
}
