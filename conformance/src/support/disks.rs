//! A small disk, and a user without privileges: in a child, so that nobody else is concerned.

use std::path::Path;

use crate::{Skip, Verdict};

#[cfg(unix)]
pub(crate) use unix::*;

/// There is none.
#[cfg(windows)]
pub(crate) fn on_a_small_disk(_size: usize, _body: impl FnOnce(&Path) -> Verdict) -> Verdict {
    Err(Skip::because("a small disk takes a mount, which Windows has not"))
}

/// Everybody has some.
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

    /// Runs `body` in a child with the path of an empty disk of `size` bytes. For cases that
    /// run alone.
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

    /// Mounts a file system in memory where only this process and its threads see it.
    #[cfg(target_os = "linux")]
    fn mount(at: &Path, size: usize) -> io::Result<()> {
        let check = |result| match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        // SAFETY: this process has one thread.
        let alone = check(unsafe { libc::unshare(libc::CLONE_NEWNS) });
        // SAFETY: this process has one thread.
        let user = || check(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) });
        alone.or_else(|_| user())?;
        let (tmpfs, options) = (c"tmpfs".as_ptr(), format!("size={size}\0"));
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let null = std::ptr::null();
        // SAFETY: the paths end with a NUL and live across the call.
        check(unsafe { libc::mount(tmpfs, c"/".as_ptr(), null, private, null.cast()) })?;
        let path = crate::support::files::c_path(at);
        // SAFETY: the paths and the options end with a NUL and live across the call.
        check(unsafe { libc::mount(tmpfs, path.as_ptr(), tmpfs, 0, options.as_ptr().cast()) })
    }

    #[cfg(not(target_os = "linux"))]
    fn mount(_at: &Path, _size: usize) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "only Linux mounts for one process"))
    }

    /// Runs `body` in a child that is an ordinary user: root becomes nobody. For cases that
    /// run alone.
    pub(crate) fn without_privileges(body: impl FnOnce() -> Verdict) -> Verdict {
        const NOBODY: libc::uid_t = 65534;
        Child::fork(|| {
            // SAFETY: it has no preconditions.
            if unsafe { libc::geteuid() } == 0 {
                // SAFETY: no list is passed.
                let groups = unsafe { libc::setgroups(0, std::ptr::null()) };
                // SAFETY: it has no preconditions.
                let group = unsafe { libc::setgid(NOBODY) };
                // SAFETY: it has no preconditions.
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
