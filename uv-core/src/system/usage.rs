//! What was used: time, memory, and what else systems count.

use std::io;
use std::time::Duration;

use crate::sys;

/// What a process or a thread has used. What a system does not count is zero.
///
/// ```
/// use uv_core::system::{ResourceUsage, resource_usage};
///
/// let before: ResourceUsage = resource_usage()?;
/// let sum: u64 = (0..1000).sum();
/// let after = resource_usage()?;
/// assert!(after.user_time >= before.user_time);
/// println!("{sum} took {} page faults", after.minor_faults - before.minor_faults);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    /// Time in programs.
    pub user_time: Duration,
    /// Time in the kernel.
    pub system_time: Duration,
    /// The most memory that was in RAM, in bytes.
    pub max_resident: u64,
    /// Page faults that needed no I/O.
    pub minor_faults: u64,
    /// Page faults that did.
    pub major_faults: u64,
    /// How often all of it was swapped out.
    pub swaps: u64,
    /// Blocks read, by operations that had to.
    pub blocks_in: u64,
    /// Blocks written.
    pub blocks_out: u64,
    /// Messages sent between processes.
    pub messages_sent: u64,
    /// Messages received.
    pub messages_received: u64,
    /// Signals received.
    pub signals: u64,
    /// How often it gave the processor away, to wait for something.
    pub voluntary_switches: u64,
    /// How often it was taken away.
    pub involuntary_switches: u64,
}

/// What this process has used.
///
/// ```
/// let used = uv_core::system::resource_usage()?;
/// println!("{:?} and {} bytes", used.user_time + used.system_time, used.max_resident);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's.
pub fn resource_usage() -> io::Result<ResourceUsage> {
    sys::system::resource_usage()
}

/// What the calling thread has used.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # if cfg!(any(target_os = "netbsd", target_os = "dragonfly")) { return Ok(()); }
/// let used = uv_core::system::thread_resource_usage()?;
/// println!("{:?}", used.user_time);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// The system's; `Unsupported` on NetBSD and DragonFly. Apple's systems and Windows tell the
/// times alone.
pub fn thread_resource_usage() -> io::Result<ResourceUsage> {
    sys::system::thread_resource_usage()
}

/// How long the system has been up.
///
/// ```
/// assert!(uv_core::system::uptime()? > std::time::Duration::ZERO);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's.
pub fn uptime() -> io::Result<Duration> {
    sys::system::uptime()
}
