//! The title and the priority of this process.

use std::io;
use std::sync::{Mutex, PoisonError};

use crate::sys;

/// The title, if it was set.
static TITLE: Mutex<Option<String>> = Mutex::new(None);

/// The title of this process: the last one of [`set_process_title`], otherwise its first argument.
/// On Windows, the title of the console window.
///
#[cfg_attr(not(windows), doc = "```")]
#[cfg_attr(windows, doc = "```no_run")] // There may be no console.
/// println!("{}", uv_core::system::process_title()?);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors, on Windows.
#[doc(alias = "uv_get_process_title")]
pub fn process_title() -> io::Result<String> {
    let title = TITLE.lock().unwrap_or_else(PoisonError::into_inner);
    sys::title::get(title.as_deref())
}

/// Sets the title of this process, which tools display.
///
/// - **Linux**: the name of the process, of which the kernel keeps 15 bytes (`ps -o comm`, `top`).
///   With the capability `CAP_SYS_RESOURCE` also the whole command line (`ps aux`). The memory of
///   the arguments is not overwritten, because `std` reads it in any thread.
/// - **The BSDs**: the command line, by `setproctitle`.
/// - **Apple's systems**: the name of the calling thread.
/// - **Windows**: the title of the console window.
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
/// `InvalidInput` for a title with NUL bytes; the system's errors.
#[doc(alias = "uv_set_process_title")]
pub fn set_process_title(title: &str) -> io::Result<()> {
    if title.contains('\0') {
        let why = "the title contains a NUL byte";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let mut kept = TITLE.lock().unwrap_or_else(PoisonError::into_inner);
    sys::title::set(title)?;
    *kept = Some(title.to_owned());
    Ok(())
}

/// Priorities of processes, from the lowest to the highest.
///
/// On Unix any number from 19 to -20 is valid. Windows has only these six, and rounds a number to
/// the nearest that is not higher.
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
/// assert!(rising.is_sorted_by(|low, high| low > high), "a lower number is a higher priority");
/// ```
pub mod priority {
    /// Runs when no other process is runnable.
    pub const LOW: i32 = 19;
    /// Below normal.
    pub const BELOW_NORMAL: i32 = 10;
    /// The initial priority.
    pub const NORMAL: i32 = 0;
    /// Above normal.
    pub const ABOVE_NORMAL: i32 = -7;
    /// High.
    pub const HIGH: i32 = -14;
    /// The highest priority, which needs a privilege.
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
/// The system's errors, if there is no such process or access is denied.
#[doc(alias = "uv_os_getpriority")]
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
/// `InvalidInput` for a number that is no priority; the system's errors, if there is no such process
/// or the change is not permitted.
#[doc(alias = "uv_os_setpriority")]
pub fn set_process_priority(pid: u32, priority: i32) -> io::Result<()> {
    if !(priority::HIGHEST..=priority::LOW).contains(&priority) {
        let why = format!("priorities are -20 to 19, not {priority}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    sys::system::set_process_priority(pid, priority)
}

/// The id of the parent process. On Windows the parent may have ended and its id been reused.
///
/// ```
/// assert_ne!(uv_core::system::parent_id()?, std::process::id());
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors, on Windows.
#[doc(alias = "uv_os_getppid")]
pub fn parent_id() -> io::Result<u32> {
    sys::system::parent_id()
}
