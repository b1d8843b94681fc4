//! Processors.

use std::io;
use std::time::Duration;

use crate::sys;

/// A processor, as the system counts them: what [`cpu_info`] gives.
///
/// ```
/// use uv_core::system::{CpuInfo, cpu_info};
///
/// let fastest: Option<CpuInfo> = cpu_info()?.into_iter().max_by_key(|cpu| cpu.speed_mhz);
/// println!("{fastest:?}");
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuInfo {
    /// What its maker calls it; empty if the system does not know.
    pub model: String,
    /// Its clock in MHz; 0 if the system does not know.
    pub speed_mhz: u32,
    /// What it spent its time on, since the system was started.
    pub times: CpuTimes,
}

/// What a processor spent its time on.
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
pub struct CpuTimes {
    /// Programs.
    pub user: Duration,
    /// Programs of low priority.
    pub nice: Duration,
    /// The kernel.
    pub system: Duration,
    /// Nothing.
    pub idle: Duration,
    /// Interrupts.
    pub irq: Duration,
}

/// The processors of this machine that are in use.
///
/// To know how many threads to start, ask [`std::thread::available_parallelism`].
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
/// The system's; `Unsupported` on OpenBSD.
pub fn cpu_info() -> io::Result<Vec<CpuInfo>> {
    sys::system::cpu_info()
}

/// How many threads wanted to run at once, on average over the last 1, 5 and 15 minutes.
/// Zeros on Windows, which does not say, and where they may not be read.
///
/// ```
/// let [one_minute, ..] = uv_core::system::load_average();
/// assert!(one_minute >= 0.0);
/// ```
pub fn load_average() -> [f64; 3] {
    sys::system::load_average()
}
