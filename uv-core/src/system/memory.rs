//! Memory of the machine and of this process, in bytes.

use std::io;

use crate::sys;

/// The memory that programs can allocate without swapping.
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
/// The system's errors; `Unsupported` on OpenBSD.
#[doc(alias = "uv_get_free_memory")]
pub fn free_memory() -> io::Result<u64> {
    sys::system::free_memory()
}

/// The memory of the machine.
///
/// ```
/// assert!(uv_core::system::total_memory()? > 1 << 20);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors; `Unsupported` on OpenBSD.
#[doc(alias = "uv_get_total_memory")]
pub fn total_memory() -> io::Result<u64> {
    sys::system::total_memory()
}

/// The memory limit of this process; `None` if there is no limit.
///
/// On Linux this is the lowest limit of its control group and its ancestors, of version 1 or 2.
/// Other systems have no such limit that a program can read.
///
/// ```
/// match uv_core::system::constrained_memory() {
///     Some(limit) => println!("at most {limit} bytes"),
///     None => println!("no limit"),
/// }
/// ```
#[doc(alias = "uv_get_constrained_memory")]
pub fn constrained_memory() -> Option<u64> {
    sys::system::memory_limit().map(|limit| limit.bytes)
}

/// The memory that this process can still allocate: the rest of its limit, or the free memory if
/// that is less or there is no limit.
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
#[doc(alias = "uv_get_available_memory")]
pub fn available_memory() -> io::Result<u64> {
    let free = sys::system::free_memory()?;
    let left = sys::system::memory_limit().map(|limit| limit.bytes.saturating_sub(limit.used));
    Ok(left.map_or(free, |left| left.min(free)))
}

/// The memory limit of a group of processes, and their usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLimit {
    pub(crate) bytes: u64,
    pub(crate) used: u64,
}

/// The resident memory of this process.
///
/// ```
/// println!("{} KiB", uv_core::system::resident_memory()? / 1024);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors; `Unsupported` on OpenBSD and DragonFly.
#[doc(alias = "uv_resident_set_memory")]
pub fn resident_memory() -> io::Result<u64> {
    sys::system::resident_memory()
}
