//! The affinity, priority and name of threads.

use std::io;
use std::thread::JoinHandle;

use crate::sys;
use crate::sys::threads::Thread;

/// The priority of a thread, relative to the other threads of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ThreadPriority {
    /// The lowest.
    Lowest,
    /// Below normal.
    BelowNormal,
    /// The initial priority.
    Normal,
    /// Above normal.
    AboveNormal,
    /// The highest.
    Highest,
}

/// The processors that the calling thread may run on, by number.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # if cfg!(any(target_vendor = "apple", target_os = "openbsd")) { return Ok(()); }
/// assert!(!uv_core::system::thread_affinity()?.is_empty());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// `Unsupported` on Apple's systems and OpenBSD; the system's errors.
#[doc(alias = "uv_thread_getaffinity")]
pub fn thread_affinity() -> io::Result<Vec<usize>> {
    sys::threads::affinity(Thread::current())
}

/// The processors that another thread may run on, by number.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # if cfg!(any(target_vendor = "apple", target_os = "openbsd")) { return Ok(()); }
/// use uv_core::system::{set_thread_affinity_of, thread_affinity_of};
///
/// let (stop, stopped) = std::sync::mpsc::channel::<()>();
/// let thread = std::thread::spawn(move || stopped.recv());
/// let first = thread_affinity_of(&thread)?[0];
/// set_thread_affinity_of(&thread, &[first])?;
/// assert_eq!(thread_affinity_of(&thread)?, [first]);
/// # drop(stop);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// As for [`thread_affinity`]; `ESRCH` if the thread has ended, on Linux.
#[doc(alias = "uv_thread_getaffinity")]
pub fn thread_affinity_of<T>(thread: &JoinHandle<T>) -> io::Result<Vec<usize>> {
    sys::threads::affinity(Thread::of(thread)?)
}

/// Restricts the calling thread to these processors; returns the previous ones.
///
/// ```
/// use uv_core::system::{current_cpu, set_thread_affinity, thread_affinity};
///
/// # fn main() -> std::io::Result<()> {
/// # if cfg!(not(any(target_os = "linux", windows))) { return Ok(()); }
/// let first = thread_affinity()?[0];
/// let before = set_thread_affinity(&[first])?;
/// assert_eq!(current_cpu()?, first);
/// set_thread_affinity(&before)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// `InvalidInput` if none of them exists; `Unsupported` on Apple's systems and OpenBSD; the
/// system's errors.
#[doc(alias = "uv_thread_setaffinity")]
pub fn set_thread_affinity(cpus: &[usize]) -> io::Result<Vec<usize>> {
    replace_affinity(Thread::current(), cpus)
}

/// Restricts another thread to these processors; returns the previous ones. For an example see
/// [`thread_affinity_of`].
///
/// # Errors
///
/// As for [`set_thread_affinity`]; `ESRCH` if the thread has ended, on Linux.
#[doc(alias = "uv_thread_setaffinity")]
pub fn set_thread_affinity_of<T>(thread: &JoinHandle<T>, cpus: &[usize]) -> io::Result<Vec<usize>> {
    replace_affinity(Thread::of(thread)?, cpus)
}

fn replace_affinity(thread: Thread<'_>, cpus: &[usize]) -> io::Result<Vec<usize>> {
    let before = sys::threads::affinity(thread)?;
    sys::threads::set_affinity(thread, cpus)?;
    Ok(before)
}

/// The processor that the calling thread currently runs on.
///
/// ```
/// # #[cfg(any(target_os = "linux", target_os = "freebsd", windows))]
/// println!("on processor {}", uv_core::system::current_cpu()?);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `Unsupported` on Apple's systems, NetBSD and OpenBSD; the system's errors.
#[doc(alias = "uv_thread_getcpu")]
pub fn current_cpu() -> io::Result<usize> {
    sys::threads::current_cpu()
}

/// The priority of the calling thread.
///
/// ```
/// use uv_core::system::{ThreadPriority, thread_priority};
///
/// assert!(thread_priority()? <= ThreadPriority::Highest);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors.
#[doc(alias = "uv_thread_getpriority")]
pub fn thread_priority() -> io::Result<ThreadPriority> {
    sys::threads::priority(Thread::current())
}

/// The priority of another thread.
///
/// ```
/// use uv_core::system::{ThreadPriority, set_thread_priority_of, thread_priority_of};
///
/// let (stop, stopped) = std::sync::mpsc::channel::<()>();
/// let thread = std::thread::spawn(move || stopped.recv());
/// set_thread_priority_of(&thread, ThreadPriority::Lowest)?;
/// # #[cfg(any(target_os = "linux", windows))]
/// assert_eq!(thread_priority_of(&thread)?, ThreadPriority::Lowest);
/// # drop(stop);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors; `ESRCH` if the thread has ended, on Linux.
#[doc(alias = "uv_thread_getpriority")]
pub fn thread_priority_of<T>(thread: &JoinHandle<T>) -> io::Result<ThreadPriority> {
    sys::threads::priority(Thread::of(thread)?)
}

/// Sets the priority of the calling thread.
///
/// On Linux this is its nice value, which only privileged threads may lower again. Elsewhere it is
/// its position in the range of its scheduling policy. If that range has one value, all priorities
/// are equal.
///
/// ```
/// use uv_core::system::{ThreadPriority, set_thread_priority};
///
/// std::thread::spawn(|| set_thread_priority(ThreadPriority::Lowest)).join().unwrap()?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors, if the change is not permitted.
#[doc(alias = "uv_thread_setpriority")]
pub fn set_thread_priority(priority: ThreadPriority) -> io::Result<()> {
    sys::threads::set_priority(Thread::current(), priority)
}

/// Sets the priority of another thread. For an example see [`thread_priority_of`].
///
/// # Errors
///
/// The system's errors, if the change is not permitted; `ESRCH` if the thread has ended, on Linux.
#[doc(alias = "uv_thread_setpriority")]
pub fn set_thread_priority_of<T>(
    thread: &JoinHandle<T>,
    priority: ThreadPriority,
) -> io::Result<()> {
    sys::threads::set_priority(Thread::of(thread)?, priority)
}

/// The name that the system has for the calling thread.
///
/// ```
/// use uv_core::system::{set_thread_name, thread_name};
///
/// # #[cfg(any(target_os = "linux", target_os = "freebsd"))] {
/// set_thread_name("listener")?;
/// assert_eq!(thread_name()?, "listener");
/// # }
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors; `Unsupported` on versions without thread names.
#[doc(alias = "uv_thread_getname")]
pub fn thread_name() -> io::Result<String> {
    sys::threads::name(Thread::current())
}

/// The name that the system has for another thread.
///
/// ```
/// use std::thread::Builder;
/// use uv_core::system::thread_name_of;
///
/// let (ready, is_ready) = std::sync::mpsc::channel::<()>();
/// let (stop, stopped) = std::sync::mpsc::channel::<()>();
/// let thread = Builder::new().name("listener".into()).spawn(move || {
///     ready.send(()).unwrap();
///     stopped.recv()
/// })?;
/// is_ready.recv().unwrap();
/// # #[cfg(any(target_os = "linux", target_os = "freebsd"))]
/// assert_eq!(thread_name_of(&thread)?, "listener");
/// # drop(stop);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// As for [`thread_name`]; `ESRCH` if the thread has ended, on Linux.
#[doc(alias = "uv_thread_getname")]
pub fn thread_name_of<T>(thread: &JoinHandle<T>) -> io::Result<String> {
    sys::threads::name(Thread::of(thread)?)
}

/// Names the calling thread, for debuggers and profilers. A name that is longer than the system
/// allows (15 bytes on Linux) is truncated.
///
/// To name a new thread, use [`std::thread::Builder::name`].
///
/// ```
/// # #[cfg(unix)]
/// uv_core::system::set_thread_name("a name that is too long for Linux")?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `InvalidInput` for a name with NUL bytes; the system's errors.
#[doc(alias = "uv_thread_setname")]
pub fn set_thread_name(name: &str) -> io::Result<()> {
    if name.contains('\0') {
        let why = "the thread name contains a NUL byte";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    sys::threads::set_name(name)
}
