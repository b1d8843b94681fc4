//! Affinity, priority and name of threads.

use std::ffi::c_void;
use std::io;
use std::os::windows::io::AsRawHandle;
use std::ptr;
use std::thread::JoinHandle;

use windows_sys::Win32::Foundation::{HANDLE, LocalFree};
use windows_sys::Win32::System::Threading::{
    GetCurrentProcess, GetCurrentProcessorNumber, GetCurrentThread, GetProcessAffinityMask,
    GetThreadDescription, GetThreadPriority, SetThreadAffinityMask, SetThreadDescription,
    SetThreadPriority, THREAD_PRIORITY_ABOVE_NORMAL, THREAD_PRIORITY_BELOW_NORMAL,
    THREAD_PRIORITY_HIGHEST, THREAD_PRIORITY_LOWEST, THREAD_PRIORITY_NORMAL,
};

use super::wide;
use crate::system::ThreadPriority;

/// An open handle of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thread<'a>(HANDLE, std::marker::PhantomData<&'a ()>);

impl<'a> Thread<'a> {
    pub(crate) fn current() -> Thread<'a> {
        // SAFETY: no memory is passed: the call returns a constant pseudo handle.
        Thread(unsafe { GetCurrentThread() }, std::marker::PhantomData)
    }

    pub(crate) fn of<T>(handle: &'a JoinHandle<T>) -> io::Result<Thread<'a>> {
        Ok(Thread(handle.as_raw_handle(), std::marker::PhantomData))
    }
}

/// The affinity mask of the process.
fn process_mask() -> io::Result<usize> {
    let (mut process_mask, mut system_mask) = (0, 0);
    // SAFETY: no memory is passed: the call returns a constant pseudo handle.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: the call writes both masks to local variables.
    match unsafe { GetProcessAffinityMask(process, &mut process_mask, &mut system_mask) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(process_mask),
    }
}

/// Sets the affinity mask of the thread and returns the previous one.
fn set_mask(thread: Thread<'_>, mask: usize) -> io::Result<usize> {
    // SAFETY: no memory is passed; the handle is open.
    match unsafe { SetThreadAffinityMask(thread.0, mask) } {
        0 => Err(io::Error::last_os_error()),
        before => Ok(before),
    }
}

/// Windows has no call that reads the mask: it is set and restored.
pub(crate) fn affinity(thread: Thread<'_>) -> io::Result<Vec<usize>> {
    let before = set_mask(thread, process_mask()?)?;
    set_mask(thread, before)?;
    Ok((0..usize::BITS as usize).filter(|cpu| before >> cpu & 1 == 1).collect())
}

pub(crate) fn set_affinity(thread: Thread<'_>, cpus: &[usize]) -> io::Result<()> {
    let known = cpus.iter().filter(|&&cpu| cpu < usize::BITS as usize);
    let mask = known.fold(0, |mask, cpu| mask | 1 << cpu) & process_mask()?;
    if mask == 0 {
        let why = "the affinity is empty: name at least one processor that the process may use";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    set_mask(thread, mask).map(drop)
}

pub(crate) fn current_cpu() -> io::Result<usize> {
    // SAFETY: no memory is passed.
    Ok(unsafe { GetCurrentProcessorNumber() } as usize)
}

const PRIORITIES: [(ThreadPriority, i32); 5] = [
    (ThreadPriority::Lowest, THREAD_PRIORITY_LOWEST),
    (ThreadPriority::BelowNormal, THREAD_PRIORITY_BELOW_NORMAL),
    (ThreadPriority::Normal, THREAD_PRIORITY_NORMAL),
    (ThreadPriority::AboveNormal, THREAD_PRIORITY_ABOVE_NORMAL),
    (ThreadPriority::Highest, THREAD_PRIORITY_HIGHEST),
];

pub(crate) fn priority(thread: Thread<'_>) -> io::Result<ThreadPriority> {
    /// The return value for an error, `THREAD_PRIORITY_ERROR_RETURN`.
    const FAILED: i32 = i32::MAX;
    // SAFETY: no memory is passed; the handle is open.
    let number = unsafe { GetThreadPriority(thread.0) };
    if number == FAILED {
        return Err(io::Error::last_os_error());
    }
    let above = PRIORITIES.iter().rev().find(|(_, least)| number >= *least);
    Ok(above.map_or(ThreadPriority::Lowest, |(priority, _)| *priority))
}

pub(crate) fn set_priority(thread: Thread<'_>, priority: ThreadPriority) -> io::Result<()> {
    let number = PRIORITIES.iter().find(|(of, _)| *of == priority).map_or(0, |(_, number)| *number);
    // SAFETY: no memory is passed; the handle is open.
    match unsafe { SetThreadPriority(thread.0, number) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Converts an `HRESULT`.
fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::other(format!("failed with {result:#x}"))) } else { Ok(()) }
}

pub(crate) fn name(thread: Thread<'_>) -> io::Result<String> {
    let mut text = ptr::null_mut();
    // SAFETY: the call writes one pointer to a local variable; the handle is open.
    check(unsafe { GetThreadDescription(thread.0, &mut text) })?;
    // SAFETY: the system returned a NUL-terminated string.
    let name = unsafe { super::text_at(text) };
    // SAFETY: the call transferred the allocation to this function, which frees it once.
    unsafe { LocalFree(text.cast::<c_void>()) };
    Ok(name)
}

pub(crate) fn set_name(name: &str) -> io::Result<()> {
    let name = wide(name);
    // SAFETY: the string ends with NUL and lives across the call.
    check(unsafe { SetThreadDescription(Thread::current().0, name.as_ptr()) })
}
