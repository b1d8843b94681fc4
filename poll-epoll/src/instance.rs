//! The epoll instance: its system calls, and timeouts finer than a millisecond.

use std::error::Error;
use std::ffi::{c_int, c_long};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use libc::epoll_event;

/// An epoll instance, by descriptor.
#[derive(Debug)]
pub(crate) struct Instance {
    fd: OwnedFd,
    /// `epoll_pwait2` is there, as far as is known. Linux has it since 5.11, and
    /// filters older than that deny it with `EPERM`. Android's filter kills for
    /// what its libc does not call, so there it is not even tried.
    pwait2: bool,
}

impl Instance {
    pub(crate) fn new() -> io::Result<Instance> {
        // SAFETY: it takes no pointer.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        // SAFETY: a descriptor that was just made has no other owner.
        let fd = owned(fd, |fd| unsafe { OwnedFd::from_raw_fd(fd) })?;
        Ok(Instance { fd, pwait2: cfg!(target_os = "linux") })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Becomes another name of `other`'s instance, under the number that it has.
    pub(crate) fn replace_with(&mut self, other: &Instance) -> io::Result<()> {
        replace(self.fd(), other.fd())
    }

    /// `epoll_ctl`: adds, modifies or deletes `fd`, whose events will say `data`.
    pub(crate) fn ctl(&self, op: c_int, fd: RawFd, events: u32, data: u64) -> io::Result<()> {
        let mut event = epoll_event { events, u64: data };
        // SAFETY: the kernel reads `event` during the call only.
        match unsafe { libc::epoll_ctl(self.fd(), op, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Replaces the contents of `ready` with what is ready, as far as its capacity
    /// goes. Blocks for `timeout` at the most; less where the kernel counts
    /// milliseconds and has no room for that many.
    #[inline]
    pub(crate) fn wait(
        &mut self,
        timeout: Option<Duration>,
        ready: &mut Vec<epoll_event>,
    ) -> io::Result<()> {
        ready.clear();
        let count = match timeout {
            None => self.epoll_pwait(-1, ready),
            // The older call is the faster one where both can say it.
            Some(Duration::ZERO) => self.epoll_pwait(0, ready),
            Some(timeout) => self.wait_for(timeout, ready),
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        // SAFETY: the kernel has written `count` entries, no more than the capacity.
        unsafe { ready.set_len(count) };
        Ok(())
    }

    fn wait_for(&mut self, timeout: Duration, ready: &mut Vec<epoll_event>) -> c_long {
        if self.pwait2 {
            let count = self.epoll_pwait2(timeout, ready);
            if count >= 0 || !denied(&io::Error::last_os_error()) {
                return count;
            }
            self.pwait2 = false;
        }
        self.wait_for_millis(timeout, ready)
    }

    #[cold]
    fn wait_for_millis(&self, timeout: Duration, ready: &mut Vec<epoll_event>) -> c_long {
        self.epoll_pwait(millis(timeout), ready)
    }

    /// Not libc's function: glibc's is a cancellation point, which adds a fifth to
    /// the cost of a wait in a program that has threads.
    #[inline]
    fn epoll_pwait(&self, timeout_ms: c_int, ready: &mut Vec<epoll_event>) -> c_long {
        // SAFETY: the kernel writes no more entries than `ready` has room for; there
        // is no signal mask.
        unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait,
                self.fd(),
                ready.as_mut_ptr(),
                ready.capacity() as c_int,
                timeout_ms,
                ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        }
    }

    fn epoll_pwait2(&self, timeout: Duration, ready: &mut Vec<epoll_event>) -> c_long {
        /// `struct __kernel_timespec`, which is not libc's on 32-bit machines.
        #[repr(C)]
        struct Timespec {
            tv_sec: i64,
            tv_nsec: i64,
        }
        let timeout = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // SAFETY: the kernel writes no more entries than `ready` has room for, and
        // reads `timeout` during the call only; there is no signal mask.
        unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd(),
                ready.as_mut_ptr(),
                ready.capacity() as c_int,
                &raw const timeout,
                ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        }
    }
}

/// The time since the machine started. As `Instant` has it, without the arithmetic.
#[inline]
pub(crate) fn monotonic() -> Duration {
    // SAFETY: all zeros are a time.
    let mut now = unsafe { std::mem::zeroed::<libc::timespec>() };
    // SAFETY: the kernel writes to `now` during the call only.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    debug_assert_eq!(failed, 0, "every kernel with epoll has this clock");
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// A new descriptor, or why there is none.
pub(crate) fn owned<T>(fd: c_int, own: impl FnOnce(RawFd) -> T) -> io::Result<T> {
    if fd >= 0 {
        return Ok(own(fd));
    }
    Err(explained(io::Error::last_os_error()))
}

fn explained(error: io::Error) -> io::Error {
    if denied(&error) { io::Error::new(io::ErrorKind::Unsupported, Denied(error)) } else { error }
}

/// Makes the number `place` name what `fd` names; what it named before is closed.
pub(crate) fn replace(place: RawFd, fd: RawFd) -> io::Result<()> {
    // The crate libc has no `dup3` for Android.
    // SAFETY: it takes no pointer, and `place` is ours to close.
    match unsafe { libc::syscall(libc::SYS_dup3, fd, place, libc::O_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// True if the system call itself is missing or filtered out.
fn denied(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
}

/// Rounded up, as a wait may be late and never early; capped, as longer waits
/// are waited for in turns.
fn millis(timeout: Duration) -> c_int {
    timeout.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(c_int::MAX)
}

/// Why [`Epoll::new`](crate::Epoll::new) says `Unsupported`; its source is the kernel's error.
#[derive(Debug)]
struct Denied(io::Error);

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoll is denied here ({}: by seccomp?); use the poll backend", self.0)
    }
}

impl Error for Denied {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn milliseconds_are_rounded_up_and_capped() {
        assert_eq!(millis(Duration::from_nanos(1)), 1);
        assert_eq!(millis(Duration::from_millis(7)), 7);
        assert_eq!(millis(Duration::from_nanos(7_000_001)), 8);
        assert_eq!(millis(Duration::MAX), c_int::MAX);
    }

    #[test]
    fn either_call_waits_long_enough() {
        let timeout = Duration::from_micros(1_200);
        for pwait2 in [true, false] {
            let mut instance = Instance { pwait2, ..Instance::new().unwrap() };
            let (started, mut ready) = (Instant::now(), Vec::with_capacity(1));
            instance.wait(Some(timeout), &mut ready).unwrap();
            assert!(started.elapsed() >= timeout, "pwait2: {pwait2}");
            assert!(ready.is_empty());
        }
    }

    #[test]
    fn a_denied_system_call_is_unsupported_and_keeps_its_error() {
        let error = explained(io::Error::from_raw_os_error(libc::ENOSYS));
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        let source = error.get_ref().and_then(Error::source).unwrap();
        let source = source.downcast_ref::<io::Error>().unwrap();
        assert_eq!(source.raw_os_error(), Some(libc::ENOSYS));
    }
}
