//! Resource usage of this process and its threads, and uptime.

use std::io;
use std::time::Duration;

use crate::sys;

/// The resource usage of a process or a thread. A value that the system does not count is zero.
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
#[non_exhaustive]
pub struct ResourceUsage {
    /// Time in user mode.
    pub user_time: Duration,
    /// Time in the kernel.
    pub system_time: Duration,
    /// The maximal resident memory in bytes.
    pub max_resident: u64,
    /// Page faults that needed no I/O.
    pub minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// The number of times the process was swapped out.
    pub swaps: u64,
    /// Blocks read from devices.
    pub blocks_in: u64,
    /// Blocks written to devices.
    pub blocks_out: u64,
    /// Interprocess messages sent.
    pub messages_sent: u64,
    /// Interprocess messages received.
    pub messages_received: u64,
    /// Signals received.
    pub signals: u64,
    /// Voluntary context switches, such as waits for I/O.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
}

/// The resource usage of this process.
///
/// ```
/// let used = uv_core::system::resource_usage()?;
/// println!("{:?} and {} bytes", used.user_time + used.system_time, used.max_resident);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors.
#[doc(alias = "uv_getrusage")]
pub fn resource_usage() -> io::Result<ResourceUsage> {
    sys::system::resource_usage()
}

/// The resource usage of the calling thread.
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
/// The system's errors; `Unsupported` on NetBSD and DragonFly. Apple's systems and Windows report
/// only the times.
#[doc(alias = "uv_getrusage_thread")]
pub fn thread_resource_usage() -> io::Result<ResourceUsage> {
    sys::system::thread_resource_usage()
}

/// The time since the system was started.
///
/// ```
/// assert!(uv_core::system::uptime()? > std::time::Duration::ZERO);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors.
#[doc(alias = "uv_uptime")]
pub fn uptime() -> io::Result<Duration> {
    sys::system::uptime()
}
