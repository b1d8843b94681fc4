//! The ways to start a child.
//!
//! | | where | when |
//! |---|---|---|
//! | `clone` with the memory of this process | Linux | always |
//! | `posix_spawn` | other systems | if it can do all that is asked for |
//! | `fork` | other systems | else |
//!
//! The first two cost the same however much memory this process has.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::super::signals::AllBlocked;
use super::plan::Plan;
use super::{Child, pidfd, posix};
use crate::handles::CommandFlags;

/// Starts a child. Returns when its program runs, or with what keeps it from that.
pub(super) fn start(mut plan: Plan, flags: CommandFlags, with_pidfd: bool) -> io::Result<Child> {
    let prefers_posix = flags.contains(CommandFlags::BY_POSIX_SPAWN) || !cfg!(target_os = "linux");
    if flags.contains(CommandFlags::BY_FORK) {
        return fork(&mut plan, with_pidfd);
    }
    if prefers_posix && posix::can_do(&plan) {
        let pid = posix::spawn(&plan)?;
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

/// The descriptor of a child that was started without.
fn pidfd_of(pid: libc::pid_t, wanted: bool) -> Option<OwnedFd> {
    if wanted { pidfd::open(pid).ok() } else { None }
}

fn fork(plan: &mut Plan, with_pidfd: bool) -> io::Result<Child> {
    // It is closed by the program, and before that tells what keeps it from running.
    let (reader, low) = io::pipe()?;
    let above = plan.ends.len() as libc::c_int;
    // SAFETY: no memory is passed.
    let writer = match unsafe { libc::fcntl(low.as_raw_fd(), libc::F_DUPFD_CLOEXEC, above) } {
        -1 => return Err(io::Error::last_os_error()),
        // SAFETY: the kernel has just given it to us.
        fd => unsafe { OwnedFd::from_raw_fd(fd) },
    };
    drop(low);
    let blocked = AllBlocked::new();
    // SAFETY: the child makes only system calls until it executes its program or exits.
    let pid = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            let error = plan.execute().to_ne_bytes();
            // SAFETY: the memory is there, and of that length.
            unsafe { libc::write(writer.as_raw_fd(), error.as_ptr().cast(), error.len()) };
            // SAFETY: ends the child and nothing else.
            unsafe { libc::_exit(127) }
        }
        pid => pid,
    };
    drop(blocked);
    drop(writer);
    let mut error = [0; size_of::<libc::c_int>()];
    match File::from(OwnedFd::from(reader)).read_exact(&mut error) {
        // The end of file: the program runs, or the child was killed before.
        Err(_) => Ok(Child { pid, pidfd: pidfd_of(pid, with_pidfd) }),
        Ok(()) => {
            // It exits by itself. If somebody else has waited for it, all the better.
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

    /// What the child has to say if it cannot execute its program.
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
        // A handler that ran in the child would change this process's memory.
        let blocked = AllBlocked::new();
        let argument = (&raw mut start).cast();
        // SAFETY: the stack is the child's alone, and this thread stops until the child has
        // executed its program or exited: till then all that it is given is there. It makes
        // only system calls. The kernel writes one `int` for the descriptor.
        let pid = unsafe { libc::clone(run, stack.top(), flags, argument, &raw mut pidfd) };
        let failed = (pid == -1).then(io::Error::last_os_error);
        drop(blocked);
        // The child has memory of its own now, or is gone. A thread that ends keeps none.
        let _ = SPARE.try_with(|spare| spare.set(Some(stack)));
        if let Some(error) = failed {
            return Err(error);
        }
        let pidfd = match pidfd {
            -1 => None,
            // SAFETY: the kernel has just given it to us.
            fd => Some(unsafe { OwnedFd::from_raw_fd(fd) }),
        };
        if start.error != 0 {
            // It exits by itself. If somebody else has waited for it, all the better.
            let _ = super::super::wait(pid, 0);
            return Err(io::Error::from_raw_os_error(start.error));
        }
        Ok(Child { pid, pidfd })
    }

    extern "C" fn run(argument: *mut libc::c_void) -> libc::c_int {
        // SAFETY: `start` passes this, and is stopped meanwhile.
        let start = unsafe { &mut *argument.cast::<Start<'_>>() };
        start.error = start.plan.execute();
        // SAFETY: ends the child and nothing else.
        unsafe { libc::_exit(127) }
    }

    /// Where the child lives until it has memory of its own, with a page below that nothing
    /// may touch.
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
            // SAFETY: asks for new memory.
            let bottom =
                unsafe { libc::mmap(ptr::null_mut(), GUARD + STACK, access, flags, -1, 0) };
            if bottom == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let stack = Stack { bottom };
            // SAFETY: the memory is ours, and nobody uses it.
            match unsafe { libc::mprotect(bottom, GUARD, libc::PROT_NONE) } {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(stack),
            }
        }

        /// Where the stack begins, as it grows downwards.
        fn top(&self) -> *mut libc::c_void {
            self.bottom.wrapping_byte_add(GUARD + STACK)
        }
    }

    impl Drop for Stack {
        fn drop(&mut self) {
            // SAFETY: the memory is ours, and the child that used it has its own or is gone.
            unsafe { libc::munmap(self.bottom, GUARD + STACK) };
        }
    }
}
