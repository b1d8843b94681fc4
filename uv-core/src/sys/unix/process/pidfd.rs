//! Process descriptors (pidfd), which become readable when the process exits. Unlike a process ID,
//! a pidfd is never reused for another process. Needs Linux 5.4 for `waitid(P_PIDFD)`.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::handles::Exit;

cfg_if::cfg_if! {
    if #[cfg(target_os = "linux")] {
        use std::mem::MaybeUninit;
        use std::os::fd::{AsFd, AsRawFd, FromRawFd};
        use std::sync::OnceLock;

        /// `P_PIDFD`, which not every C library defines.
        const P_PIDFD: libc::idtype_t = 3;

        /// True if this kernel can wait for a process by its descriptor.
        pub(super) fn is_supported() -> bool {
            static POSSIBLE: OnceLock<bool> = OnceLock::new();
            *POSSIBLE.get_or_init(|| {
                // Waits for this process itself, which is not its own child: a kernel that supports
                // `P_PIDFD` returns `ECHILD`, others `EINVAL`.
                let of_this = open(std::process::id() as libc::pid_t);
                of_this.is_ok_and(|pidfd| {
                    let answer = try_wait(pidfd.as_fd());
                    matches!(answer, Some(Err(error)) if error.raw_os_error() == Some(libc::ECHILD))
                })
            })
        }

        /// `pidfd_open(2)`.
        pub(super) fn open(pid: libc::pid_t) -> io::Result<OwnedFd> {
            // SAFETY: takes no pointer.
            match unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } {
                -1 => Err(io::Error::last_os_error()),
                // SAFETY: the call has returned a new descriptor, which nothing else owns.
                fd => Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) }),
            }
        }

        /// Reaps the child if it has exited.
        pub(super) fn try_wait(pidfd: BorrowedFd<'_>) -> Option<io::Result<Exit>> {
            let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
            let (id, flags) = (pidfd.as_raw_fd() as libc::id_t, libc::WEXITED | libc::WNOHANG);
            // SAFETY: writes one `siginfo_t`, to a local of that type.
            if unsafe { libc::waitid(P_PIDFD, id, info.as_mut_ptr(), flags) } == -1 {
                return Some(Err(io::Error::last_os_error()));
            }
            // SAFETY: zeroed, and zero is valid for its integers; the kernel has written the rest.
            let info = unsafe { info.assume_init() };
            // SAFETY: `waitid` fills the fields of `SIGCHLD`, to which the process ID belongs. It
            // stays 0 if no child has exited.
            if unsafe { info.si_pid() } == 0 {
                return None;
            }
            // SAFETY: `waitid` fills the fields of `SIGCHLD`, to which the status belongs.
            let status = unsafe { info.si_status() };
            Some(Ok(match info.si_code {
                libc::CLD_EXITED => Exit { code: status.into(), signal: None },
                _ => Exit { code: 0, signal: Some(status) },
            }))
        }

        /// `pidfd_send_signal(2)`.
        pub(super) fn kill(pidfd: BorrowedFd<'_>, signum: i32) -> io::Result<()> {
            let (fd, null) = (pidfd.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
            // SAFETY: the only pointer is null, so the kernel reads no `siginfo_t`.
            match unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signum, null, 0) } {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        }
    } else {
        pub(super) fn is_supported() -> bool {
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
