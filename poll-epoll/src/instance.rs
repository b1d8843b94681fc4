//! An epoll instance and its system calls.

use std::error::Error;
use std::ffi::{c_int, c_long};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use libc::epoll_event;

/// An epoll instance.
#[derive(Debug)]
pub(crate) struct Instance {
    fd: OwnedFd,
    /// `epoll_pwait2` has not failed yet. Linux has it since 5.11, and seccomp filters that
    /// are older deny it with `EPERM`. Android's filter kills a process for system calls
    /// that its libc does not make, so it is not tried there.
    pwait2: bool,
}

impl Instance {
    pub(crate) fn new() -> io::Result<Instance> {
        // SAFETY: `epoll_create1` takes no pointer.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        // SAFETY: `owned` passes only a descriptor that `epoll_create1` has just returned, so
        // it is open and has no other owner.
        let fd = owned(fd, |fd| unsafe { OwnedFd::from_raw_fd(fd) })?;
        Ok(Instance { fd, pwait2: cfg!(target_os = "linux") })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Makes this descriptor number refer to the instance of `other`.
    pub(crate) fn replace_with(&mut self, other: &Instance) -> io::Result<()> {
        replace(self.fd(), other.fd())
    }

    /// `epoll_ctl(2)`: adds, modifies or deletes `fd`, whose events carry `data`.
    pub(crate) fn ctl(&self, op: c_int, fd: RawFd, events: u32, data: u64) -> io::Result<()> {
        let mut event = epoll_event { events, u64: data };
        // SAFETY: `event` is a local variable that the kernel reads during the call only.
        match unsafe { libc::epoll_ctl(self.fd(), op, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// `epoll_pwait2(2)` or `epoll_pwait(2)`: replaces the contents of `ready` with pending
    /// events, up to its capacity. Blocks for `timeout` at most; without `epoll_pwait2`, for
    /// `i32::MAX` milliseconds at most.
    #[inline]
    pub(crate) fn wait(
        &mut self,
        timeout: Option<Duration>,
        ready: &mut Vec<epoll_event>,
    ) -> io::Result<()> {
        ready.clear();
        let count = match timeout {
            None => self.epoll_pwait(-1, ready),
            // The older call reads no `timespec`, and so is the faster one.
            Some(Duration::ZERO) => self.epoll_pwait(0, ready),
            Some(timeout) => self.wait_for(timeout, ready),
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        // SAFETY: the kernel has initialized the first `count` entries; `count` is at most the
        // capacity, which the call was given as `maxevents`.
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

    /// Not libc's function: glibc's is a cancellation point, which adds a fifth to the cost of
    /// a wait in a program that has threads.
    #[inline]
    fn epoll_pwait(&self, timeout_ms: c_int, ready: &mut Vec<epoll_event>) -> c_long {
        // SAFETY: the kernel writes at most `maxevents` entries, the capacity of `ready`, during
        // the call only; a null signal mask is allowed.
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
        /// `struct __kernel_timespec`, which differs from libc's on 32-bit machines.
        #[repr(C)]
        struct Timespec {
            tv_sec: i64,
            tv_nsec: i64,
        }
        let timeout = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // SAFETY: the kernel writes at most `maxevents` entries, the capacity of `ready`, and
        // reads the local `timeout`, both during the call only; a null signal mask is allowed.
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

/// Converts the result of a system call that creates a descriptor.
pub(crate) fn owned<T>(fd: c_int, own: impl FnOnce(RawFd) -> T) -> io::Result<T> {
    if fd >= 0 {
        return Ok(own(fd));
    }
    Err(with_remedy(io::Error::last_os_error()))
}

fn with_remedy(error: io::Error) -> io::Error {
    if denied(&error) { io::Error::new(io::ErrorKind::Unsupported, Denied(error)) } else { error }
}

/// `dup3(fd, number, O_CLOEXEC)`: makes `number` refer to the file of `fd`, and closes the
/// file that it referred to.
pub(crate) fn replace(number: RawFd, fd: RawFd) -> io::Result<()> {
    // The crate libc has no `dup3` for Android.
    // SAFETY: `dup3` takes no pointer. The callers own `number`, so no other code depends on
    // the file that is closed.
    match unsafe { libc::syscall(libc::SYS_dup3, fd, number, libc::O_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// True if the system call itself is missing or denied by a seccomp filter.
fn denied(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
}

/// Rounds up, as a wait may be late and never early. Caps the result: `Epoll::wait` calls
/// again for the time left.
fn millis(timeout: Duration) -> c_int {
    timeout.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(c_int::MAX)
}

/// The `Unsupported` error of [`Epoll::new`](crate::Epoll::new); its source is the kernel's.
#[derive(Debug)]
struct Denied(io::Error);

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoll is disabled here ({}: a seccomp filter?); use the poll backend", self.0)
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
    fn both_system_calls_block_for_the_whole_timeout() {
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
    fn denied_system_call_is_unsupported_with_its_errno_as_source() {
        let error = with_remedy(io::Error::from_raw_os_error(libc::ENOSYS));
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        let source = error.get_ref().and_then(Error::source).unwrap();
        let source = source.downcast_ref::<io::Error>().unwrap();
        assert_eq!(source.raw_os_error(), Some(libc::ENOSYS));
    }
}
