//! Descriptors of processes: readable from the end of the process on, and theirs alone, who
//! ever gets the number afterwards. Linux 5.4 has all that is needed.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::handles::Exit;

cfg_if::cfg_if! {
    if #[cfg(target_os = "linux")] {
        use std::mem::MaybeUninit;
        use std::os::fd::{AsFd, AsRawFd, FromRawFd};
        use std::sync::OnceLock;

        /// `P_PIDFD`, which not every C library names.
        const P_PIDFD: libc::idtype_t = 3;

        /// True if this kernel lets processes be waited for by descriptor.
        pub(super) fn is_possible() -> bool {
            static POSSIBLE: OnceLock<bool> = OnceLock::new();
            *POSSIBLE.get_or_init(|| {
                // Of this very process, which is no child of itself: a kernel that knows what
                // is asked says so.
                let of_this = open(std::process::id() as libc::pid_t);
                of_this.is_ok_and(|pidfd| {
                    let answer = try_wait(pidfd.as_fd());
                    matches!(answer, Some(Err(error)) if error.raw_os_error() == Some(libc::ECHILD))
                })
            })
        }

        /// The descriptor of a process.
        pub(super) fn open(pid: libc::pid_t) -> io::Result<OwnedFd> {
            // SAFETY: no memory is passed.
            match unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } {
                -1 => Err(io::Error::last_os_error()),
                // SAFETY: the kernel has just given it to us.
                fd => Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) }),
            }
        }

        /// How the child has ended, if it has.
        pub(super) fn try_wait(pidfd: BorrowedFd<'_>) -> Option<io::Result<Exit>> {
            let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
            let (id, flags) = (pidfd.as_raw_fd() as libc::id_t, libc::WEXITED | libc::WNOHANG);
            // SAFETY: the kernel writes one structure, which lives across the call.
            if unsafe { libc::waitid(P_PIDFD, id, info.as_mut_ptr(), flags) } == -1 {
                return Some(Err(io::Error::last_os_error()));
            }
            // SAFETY: all zeroes is valid, and what the kernel writes is.
            let info = unsafe { info.assume_init() };
            // SAFETY: what `waitid` writes has the number; it is zero if it wrote nothing.
            if unsafe { info.si_pid() } == 0 {
                return None;
            }
            // SAFETY: as above.
            let status = unsafe { info.si_status() };
            Some(Ok(match info.si_code {
                libc::CLD_EXITED => Exit { code: status.into(), signal: None },
                _ => Exit { code: 0, signal: Some(status) },
            }))
        }

        /// Sends a signal.
        pub(super) fn kill(pidfd: BorrowedFd<'_>, signum: i32) -> io::Result<()> {
            let (fd, null) = (pidfd.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
            // SAFETY: without a structure the kernel reads no memory.
            match unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signum, null, 0) } {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        }
    } else {
        pub(super) fn is_possible() -> bool {
            false
        }

        pub(super) fn open(_pid: libc::pid_t) -> io::Result<OwnedFd> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(super) fn try_wait(_pidfd: BorrowedFd<'_>) -> Option<io::Result<Exit>> {
            Some(Err(io::ErrorKind::Unsupported.into()))
        }

        pub(super) fn kill(_pidfd: BorrowedFd<'_>, _signum: i32) -> io::Result<()> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}
