//! Memory, in bytes.

use std::io;

use crate::sys;

/// How much memory programs could get without anything being swapped out.
///
/// ```
/// use uv_core::system;
///
/// assert!(system::free_memory()? <= system::total_memory()?);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's; `Unsupported` on OpenBSD.
pub fn free_memory() -> io::Result<u64> {
    sys::system::free_memory()
}

/// How much memory the machine has.
///
/// ```
/// assert!(uv_core::system::total_memory()? > 1 << 20);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's; `Unsupported` on OpenBSD.
pub fn total_memory() -> io::Result<u64> {
    sys::system::total_memory()
}

/// How much memory this process may use, if the system limits it; `None` if it does not.
///
/// On Linux that is the limit of its control group and of those around it, of either version.
/// Other systems have none that a program could ask for.
///
/// ```
/// match uv_core::system::constrained_memory() {
///     Some(limit) => println!("{limit} bytes, and not more"),
///     None => println!("as much as there is"),
/// }
/// ```
pub fn constrained_memory() -> Option<u64> {
    sys::system::memory_limit().map(|limit| limit.bytes)
}

/// How much more memory this process could get: what its limit leaves, or what is free if
/// there is no limit or not so much.
///
/// ```
/// use uv_core::system;
///
/// assert!(system::available_memory()? <= system::total_memory()?);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// As [`free_memory`].
pub fn available_memory() -> io::Result<u64> {
    let free = sys::system::free_memory()?;
    let left = sys::system::memory_limit().map(|limit| limit.bytes.saturating_sub(limit.used));
    Ok(left.map_or(free, |left| left.min(free)))
}

/// A limit on a group of processes, and how much of it they use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLimit {
    pub(crate) bytes: u64,
    pub(crate) used: u64,
}

/// How much memory this process has in RAM.
///
/// ```
/// println!("{} KiB", uv_core::system::resident_memory()? / 1024);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's; `Unsupported` on OpenBSD and DragonFly.
pub fn resident_memory() -> io::Result<u64> {
    sys::system::resident_memory()
}
