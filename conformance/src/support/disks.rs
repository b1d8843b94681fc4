//! A small file system and an unprivileged user, in a child process so that others are unaffected.

use std::path::Path;

use crate::{Skip, Verdict};

#[cfg(unix)]
pub(crate) use unix::*;

/// Not available on Windows.
#[cfg(windows)]
pub(crate) fn on_a_small_disk(_size: usize, _body: impl FnOnce(&Path) -> Verdict) -> Verdict {
    Err(Skip::because("a small disk needs a mount, which Windows does not have"))
}

/// Not available on Windows.
#[cfg(windows)]
pub(crate) fn without_privileges(_body: impl FnOnce() -> Verdict) -> Verdict {
    Err(Skip::because("a process keeps its user on Windows"))
}

#[cfg(unix)]
mod unix {
    use std::io;

    use super::*;
    use crate::support::child::Child;
    use crate::support::files::Directory;
    use crate::support::observe::SOON;

    /// Runs `body` in a child with the path of an empty file system of `size` bytes. For cases that
    /// run exclusively.
    pub(crate) fn on_a_small_disk(size: usize, body: impl FnOnce(&Path) -> Verdict) -> Verdict {
        let directory = Directory::new();
        let disk = directory.path("disk");
        std::fs::create_dir(&disk).expect("a directory");
        Child::fork(|| {
            mount(&disk, size)
                .map_err(|error| Skip::because(format!("no disk can be mounted: {error}")))?;
            body(&disk)
        })
        .join(SOON)
    }

    /// Mounts a tmpfs in a mount namespace of this process.
    #[cfg(target_os = "linux")]
    fn mount(at: &Path, size: usize) -> io::Result<()> {
        let check = |result| match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        // SAFETY: the call takes no pointer; the forked child has one thread.
        let alone = check(unsafe { libc::unshare(libc::CLONE_NEWNS) });
        // SAFETY: the call takes no pointer; the forked child has one thread.
        let user = || check(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) });
        alone.or_else(|_| user())?;
        let (tmpfs, options) = (c"tmpfs".as_ptr(), format!("size={size}\0"));
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let null = std::ptr::null();
        // SAFETY: the strings are NUL-terminated and outlive the call.
        check(unsafe { libc::mount(tmpfs, c"/".as_ptr(), null, private, null.cast()) })?;
        let path = crate::support::files::c_path(at);
        // SAFETY: the strings are NUL-terminated and outlive the call.
        check(unsafe { libc::mount(tmpfs, path.as_ptr(), tmpfs, 0, options.as_ptr().cast()) })
    }

    #[cfg(not(target_os = "linux"))]
    fn mount(_at: &Path, _size: usize) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "per-process mounts need Linux"))
    }

    /// Runs `body` in an unprivileged child: root becomes the user `nobody`. For cases that run
    /// exclusively.
    pub(crate) fn without_privileges(body: impl FnOnce() -> Verdict) -> Verdict {
        const NOBODY: libc::uid_t = 65534;
        Child::fork(|| {
            // SAFETY: the call has no preconditions.
            if unsafe { libc::geteuid() } == 0 {
                // SAFETY: a length of zero means that the null pointer is not read.
                let groups = unsafe { libc::setgroups(0, std::ptr::null()) };
                // SAFETY: the call has no preconditions.
                let group = unsafe { libc::setgid(NOBODY) };
                // SAFETY: the call has no preconditions.
                let user = unsafe { libc::setuid(NOBODY) };
                if (groups, group, user) != (0, 0, 0) {
                    return Err(Skip::because("root cannot become another user here"));
                }
            }
            body()
        })
        .join(SOON)
    }
}
