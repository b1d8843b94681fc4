//! This process: its title and its priority.

use std::io;
use std::sync::{Mutex, PoisonError};

use crate::sys;

/// The title, if it was set.
static TITLE: Mutex<Option<String>> = Mutex::new(None);

/// The title of this process: what [`set_process_title`] was given last, else its first
/// argument. On Windows, the title of the console's window.
///
#[cfg_attr(not(windows), doc = "```")]
#[cfg_attr(windows, doc = "```no_run")] // There may be no console.
/// println!("{}", uv_core::system::process_title()?);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's, on Windows.
pub fn process_title() -> io::Result<String> {
    let title = TITLE.lock().unwrap_or_else(PoisonError::into_inner);
    sys::title::get(title.as_deref())
}

/// Sets what tools show as this process's title.
///
/// - **Linux**: the process's name, of which the kernel keeps 15 bytes (`ps -o comm`, `top`).
///   With the capability `CAP_SYS_RESOURCE` also the command line (`ps aux`), whole. The
///   memory of the arguments is left alone: `std` reads them from there, in any thread.
/// - **The BSDs**: the command line, by `setproctitle`.
/// - **Apple's systems**: the name of the calling thread.
/// - **Windows**: the title of the console's window.
///
/// ```
/// use uv_core::system;
///
/// # #[cfg(unix)] {
/// system::set_process_title("worker: idle")?;
/// assert_eq!(system::process_title()?, "worker: idle");
/// # }
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `InvalidInput` for a title with NUL bytes; the system's.
pub fn set_process_title(title: &str) -> io::Result<()> {
    if title.contains('\0') {
        let why = "a title has no NUL bytes";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut kept = TITLE.lock().unwrap_or_else(PoisonError::into_inner);
    sys::title::set(title)?;
    *kept = Some(title.to_owned());
    Ok(())
}

/// Priorities of processes, from the lowest to the highest.
///
/// On Unix any number from 19 to -20 can be used; Windows has these six alone, and takes a
/// number for the nearest that is not higher.
///
/// ```
/// use uv_core::system::priority;
///
/// let rising = [
///     priority::LOW,
///     priority::BELOW_NORMAL,
///     priority::NORMAL,
///     priority::ABOVE_NORMAL,
///     priority::HIGH,
///     priority::HIGHEST,
/// ];
/// assert!(rising.is_sorted_by(|low, high| low > high), "as for `nice`, less is more");
/// ```
pub mod priority {
    /// Runs when nobody else wants to.
    pub const LOW: i32 = 19;
    /// Below normal.
    pub const BELOW_NORMAL: i32 = 10;
    /// As processes begin.
    pub const NORMAL: i32 = 0;
    /// Above normal.
    pub const ABOVE_NORMAL: i32 = -7;
    /// High.
    pub const HIGH: i32 = -14;
    /// Above all; not given to everybody.
    pub const HIGHEST: i32 = -20;
}

/// The [priority] of a process; 0 is the calling one.
///
/// ```
/// let mine = uv_core::system::process_priority(0)?;
/// assert!((-20..=19).contains(&mine));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's, if there is no such process or it may not be asked.
pub fn process_priority(pid: u32) -> io::Result<i32> {
    sys::system::process_priority(pid)
}

/// Sets the [priority] of a process; 0 is the calling one.
///
/// ```
/// use uv_core::system::{priority, process_priority, set_process_priority};
///
/// set_process_priority(0, priority::BELOW_NORMAL)?;
/// assert_eq!(process_priority(0)?, priority::BELOW_NORMAL);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `InvalidInput` for a number that is no priority; the system's, if there is no such process
/// or the priority may not be changed so.
pub fn set_process_priority(pid: u32, priority: i32) -> io::Result<()> {
    if !(priority::HIGHEST..=priority::LOW).contains(&priority) {
        let why = format!("priorities are 19 to -20, not {priority}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    sys::system::set_process_priority(pid, priority)
}

/// The number of the process that started this one. On Windows it may be gone, and its number
/// another's.
///
/// ```
/// assert_ne!(uv_core::system::parent_id()?, std::process::id());
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's, on Windows.
pub fn parent_id() -> io::Result<u32> {
    sys::system::parent_id()
}
