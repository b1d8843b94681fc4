//! Counts and limits of this process's descriptors.

use std::time::Duration;

use crate::{Lab, Skip, Verdict};

#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(windows)]
pub(crate) use windows::*;

/// The number of open descriptors, once threads left by earlier cases have ended: those of a pool,
/// or one that waits for an abandoned child.
pub(crate) fn settled_descriptors() -> Result<usize, Skip> {
    let mut count = open_descriptors()?;
    // Some systems open and close descriptors of their own all the time.
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(20));
        let now = open_descriptors()?;
        if now == count {
            break;
        }
        count = now;
    }
    Ok(count)
}

/// Repeats `round`, which creates and drops a loop or a backend, and asserts that no descriptor
/// leaks. For cases that run exclusively.
pub(crate) fn leaks_no_descriptor(round: impl Fn() -> Verdict) -> Verdict {
    const ROUNDS: usize = 20;
    // Windows opens and closes handles of its own meanwhile; a leak would be one per round.
    const SLACK: usize = if cfg!(windows) { ROUNDS / 2 } else { 0 };
    round()?; // Creates state that lives as long as the process.
    let before = settled_descriptors()?;
    for _ in 0..ROUNDS {
        round()?;
    }
    let after = open_descriptors()?;
    assert!(
        after <= before + SLACK,
        "{before} descriptors were open before {ROUNDS} rounds, {after} afterwards"
    );
    Ok(())
}

/// As [`leaks_no_descriptor`], with a single round, for one that takes long.
pub(crate) fn leaks_no_descriptor_once(lab: &Lab, round: impl FnOnce() -> Verdict) -> Verdict {
    // Windows opens and closes handles of its own meanwhile.
    const SLACK: usize = if cfg!(windows) { 10 } else { 0 };
    drop(lab.backend()?); // Creates state that lives as long as the process.
    let before = settled_descriptors()?;
    round()?;
    let mut after = open_descriptors()?;
    if after > before + SLACK {
        after = settled_descriptors()?;
    }
    assert!(after <= before + SLACK, "{before} descriptors were open before, {after} afterwards");
    Ok(())
}

#[cfg(unix)]
mod unix {
    use std::io;
    use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

    use super::*;

    /// A reserve for the harness, the standard streams and concurrent cases.
    const SPARE: u64 = 128;

    /// Ensures that `count` descriptors can be open, raising the limit if necessary.
    pub(crate) fn need_descriptors(count: u64) -> Result<(), Skip> {
        let mut limit = get();
        let needed = (count + SPARE) as libc::rlim_t;
        if limit.rlim_cur >= needed {
            return Ok(());
        }
        limit.rlim_cur = needed;
        if limit.rlim_max < needed {
            // Only the superuser may raise the hard limit.
            limit.rlim_max = needed;
        }
        set(&limit).map_err(|_| {
            let hard = get().rlim_max;
            Skip::because(format!("needs {needed} descriptors, and the hard limit is {hard}"))
        })
    }

    /// The number of open descriptors of this process.
    pub(crate) fn open_descriptors() -> Result<usize, Skip> {
        if let Ok(entries) = std::fs::read_dir("/proc/self/fd") {
            // One of them is the directory itself.
            return Ok(entries.count() - 1);
        }
        let highest = get().rlim_cur.min(1 << 16) as libc::c_int;
        // SAFETY: `F_GETFD` takes no pointer and fails for a closed number.
        let is_open = |fd: &libc::c_int| unsafe { libc::fcntl(*fd, libc::F_GETFD) } >= 0;
        Ok((0..highest).filter(is_open).count())
    }

    /// A duplicate of `source` whose number is `at_least` or more.
    pub(crate) fn high_descriptor(
        source: &impl AsRawFd,
        at_least: libc::c_int,
    ) -> Result<OwnedFd, Skip> {
        need_descriptors(at_least as u64)?;
        // SAFETY: the source is open, and `F_DUPFD_CLOEXEC` takes no pointer.
        let fd = unsafe { libc::fcntl(source.as_raw_fd(), libc::F_DUPFD_CLOEXEC, at_least) };
        assert!(fd >= 0, "F_DUPFD_CLOEXEC: {}", io::Error::last_os_error());
        // SAFETY: `fcntl` has just created `fd`, which has no other owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Runs `body` while no descriptor can be opened. For cases that run exclusively.
    pub(crate) fn without_descriptors<R>(body: impl FnOnce() -> R) -> Result<R, Skip> {
        // All numbers below the lowest free one are in use, so that is the limit to set.
        let lowest_free = lowest_free()?;
        let before = get();
        let restore = Restore(before);
        set(&libc::rlimit { rlim_cur: lowest_free as libc::rlim_t, ..before })
            .map_err(|error| Skip::because(format!("the limit cannot be lowered: {error}")))?;
        let result = body();
        drop(restore);
        Ok(result)
    }

    /// Runs `body` while only `count` more descriptors can be opened. For cases that run
    /// exclusively.
    pub(crate) fn with_few_descriptors<R>(
        count: usize,
        body: impl FnOnce() -> R,
    ) -> Result<R, Skip> {
        // The limit is set low enough to be reached, since operations started earlier go by the
        // limit of that time.
        let before = get();
        let restore = Restore(before);
        let limit = lowest_free()? as usize + count;
        set(&libc::rlimit { rlim_cur: limit as libc::rlim_t, ..before })
            .map_err(|error| Skip::because(format!("the limit cannot be lowered: {error}")))?;
        let result = body();
        drop(restore);
        Ok(result)
    }

    /// Opens descriptors until none is left.
    pub(crate) fn exhaust_descriptors() -> impl Sized {
        let stdin = io::stdin();
        std::iter::from_fn(|| stdin.as_fd().try_clone_to_owned().ok()).collect::<Vec<_>>()
    }

    /// Restores the limit on drop.
    struct Restore(libc::rlimit);

    impl Drop for Restore {
        fn drop(&mut self) {
            let _ = set(&self.0);
        }
    }

    fn lowest_free() -> Result<libc::c_int, Skip> {
        let stdin = io::stdin().as_raw_fd();
        // SAFETY: `F_DUPFD_CLOEXEC` takes no pointer and fails for a closed number.
        let probe = unsafe { libc::fcntl(stdin, libc::F_DUPFD_CLOEXEC, 0) };
        if probe < 0 {
            return Err(Skip::because("standard input is closed"));
        }
        // SAFETY: `fcntl` has just created `probe`, which has no other owner.
        drop(unsafe { OwnedFd::from_raw_fd(probe) });
        Ok(probe)
    }

    fn get() -> libc::rlimit {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` outlives the call, which writes it.
        let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
        assert_eq!(result, 0, "getrlimit: {}", io::Error::last_os_error());
        limit
    }

    fn set(limit: &libc::rlimit) -> io::Result<()> {
        // SAFETY: `limit` is a valid `rlimit` that outlives the call, which only reads it.
        match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, limit) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(windows)]
mod windows {
    use windows_sys::Win32::System::Threading::{GetCurrentProcess, GetProcessHandleCount};

    use super::*;

    /// Windows limits handles by memory only.
    pub(crate) fn need_descriptors(_count: u64) -> Result<(), Skip> {
        Ok(())
    }

    /// The number of open handles of this process.
    pub(crate) fn open_descriptors() -> Result<usize, Skip> {
        let mut count = 0;
        // SAFETY: `GetCurrentProcess` has no preconditions.
        let process = unsafe { GetCurrentProcess() };
        // SAFETY: the pseudo-handle is always valid, and `count` outlives the call.
        match unsafe { GetProcessHandleCount(process, &mut count) } {
            0 => Err(Skip::because("this system does not count handles")),
            _ => Ok(count as usize),
        }
    }

    /// Windows has no limit to reach.
    pub(crate) fn without_descriptors<R>(_body: impl FnOnce() -> R) -> Result<R, Skip> {
        Err(Skip::because("Windows has no limit on handles to reach"))
    }

    /// Windows has no limit to lower.
    pub(crate) fn with_few_descriptors<R>(
        _count: usize,
        _body: impl FnOnce() -> R,
    ) -> Result<R, Skip> {
        Err(Skip::because("Windows has no limit on handles to reach"))
    }

    /// Windows has no limit to reach.
    pub(crate) fn exhaust_descriptors() -> impl Sized {}
}
