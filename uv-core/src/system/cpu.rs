//! Information about processors.

use std::io;
use std::time::Duration;

use crate::sys;

/// A logical processor, as returned by [`cpu_info`].
///
/// ```
/// use uv_core::system::{CpuInfo, cpu_info};
///
/// let fastest: Option<CpuInfo> = cpu_info()?.into_iter().max_by_key(|cpu| cpu.speed_mhz);
/// println!("{fastest:?}");
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[doc(alias = "uv_cpu_info_t")]
#[non_exhaustive]
pub struct CpuInfo {
    /// The model name; empty if it is unknown.
    pub model: String,
    /// The clock rate in MHz; 0 if it is unknown.
    pub speed_mhz: u32,
    /// The times since the system was started.
    pub times: CpuTimes,
}

/// The times that a processor spent in each state.
///
/// ```
/// use std::time::Duration;
/// use uv_core::system::{CpuTimes, cpu_info};
///
/// fn busy(times: &CpuTimes) -> Duration {
///     times.user + times.nice + times.system + times.irq
/// }
///
/// for cpu in cpu_info()? {
///     println!("busy for {:?}, idle for {:?}", busy(&cpu.times), cpu.times.idle);
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuTimes {
    /// In user mode.
    pub user: Duration,
    /// In user mode at low priority.
    pub nice: Duration,
    /// In the kernel.
    pub system: Duration,
    /// Idle.
    pub idle: Duration,
    /// In interrupt handlers.
    pub irq: Duration,
}

/// The processors of this machine that are online.
///
/// For the number of threads to start, use [`std::thread::available_parallelism`].
///
/// ```
/// for cpu in uv_core::system::cpu_info()? {
///     println!("{} at {} MHz, idle for {:?}", cpu.model, cpu.speed_mhz, cpu.times.idle);
/// }
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors; `Unsupported` on OpenBSD.
#[doc(alias = "uv_cpu_info")]
pub fn cpu_info() -> io::Result<Vec<CpuInfo>> {
    sys::system::cpu_info()
}

/// The load averages: the mean number of runnable threads over the last 1, 5 and 15 minutes.
/// Zeros on Windows, which has none, and where reading them is forbidden.
///
/// ```
/// let [one_minute, ..] = uv_core::system::load_average();
/// assert!(one_minute >= 0.0);
/// ```
#[doc(alias = "uv_loadavg")]
pub fn load_average() -> [f64; 3] {
    sys::system::load_average()
}
