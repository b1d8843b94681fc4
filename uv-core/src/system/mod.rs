//! Information about the system and this process.
//!
//! ```
//! use uv_core::system;
//!
//! let machine = system::uname()?;
//! println!("{} {} on {}", machine.sysname, machine.release, system::hostname()?);
//! println!("{} of {} bytes are free", system::free_memory()?, system::total_memory()?);
//! # std::io::Result::Ok(())
//! ```
//!
//! `std` has the rest: the working directory, the environment, the home directory, the path of the
//! executable, the process id, clocks, the available parallelism. The [table](crate::libuv) names
//! the functions.

mod cpu;
mod interfaces;
mod memory;
mod process;
mod threads;
mod usage;
mod users;

use std::io;

use crate::sys;

pub use cpu::{CpuInfo, CpuTimes, cpu_info, load_average};
pub use interfaces::{
    InterfaceAddress, interface_addresses, interface_identifier, interface_index, interface_name,
    socket_addr_v6,
};
pub(crate) use memory::MemoryLimit;
pub use memory::{
    available_memory, constrained_memory, free_memory, resident_memory, total_memory,
};
pub use process::{
    parent_id, priority, process_priority, process_title, set_process_priority, set_process_title,
};
pub use threads::{
    ThreadPriority, current_cpu, set_thread_affinity, set_thread_affinity_of, set_thread_name,
    set_thread_priority, set_thread_priority_of, thread_affinity, thread_affinity_of, thread_name,
    thread_name_of, thread_priority, thread_priority_of,
};
pub use usage::{ResourceUsage, resource_usage, thread_resource_usage, uptime};
pub use users::{Group, User, current_user, group, temp_dir, user};

/// The name and version of the system, as returned by [`uname`].
///
/// ```
/// use uv_core::system::{Uname, uname};
///
/// let Uname { sysname, release, machine, .. } = uname()?;
/// println!("{sysname} {release} on {machine}");
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "uv_utsname_t")]
#[non_exhaustive]
pub struct Uname {
    /// The system: `Linux`, `FreeBSD`, `Darwin`, `Windows_NT`.
    pub sysname: String,
    /// Its release: `6.1.0`.
    pub release: String,
    /// The version of that release.
    pub version: String,
    /// The machine: `x86_64`.
    pub machine: String,
}

/// The name and version of this system.
///
/// ```
/// let system = uv_core::system::uname()?;
/// # #[cfg(target_os = "linux")]
/// assert_eq!(system.sysname, "Linux");
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors.
#[doc(alias = "uv_os_uname")]
pub fn uname() -> io::Result<Uname> {
    sys::system::uname()
}

/// The host name of this machine.
///
/// ```
/// println!("this is {}", uv_core::system::hostname()?);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors.
#[doc(alias = "uv_os_gethostname")]
pub fn hostname() -> io::Result<String> {
    sys::system::hostname()
}

/// The error of a function that this system does not support.
#[cfg(not(any(target_os = "freebsd", windows)))]
pub(crate) fn unsupported(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("this system does not report {what}"))
}
