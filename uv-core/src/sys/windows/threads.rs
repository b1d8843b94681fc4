//! The calling thread.

use std::ffi::c_void;
use std::io;
use std::ptr;

use windows_sys::Win32::Foundation::{HANDLE, LocalFree};
use windows_sys::Win32::System::Threading::{
    GetCurrentProcess, GetCurrentProcessorNumber, GetCurrentThread, GetProcessAffinityMask,
    GetThreadDescription, GetThreadPriority, SetThreadAffinityMask, SetThreadDescription,
    SetThreadPriority, THREAD_PRIORITY_ABOVE_NORMAL, THREAD_PRIORITY_BELOW_NORMAL,
    THREAD_PRIORITY_HIGHEST, THREAD_PRIORITY_LOWEST, THREAD_PRIORITY_NORMAL,
};

use super::wide;
use crate::system::ThreadPriority;

fn thread() -> HANDLE {
    // SAFETY: a constant.
    unsafe { GetCurrentThread() }
}

/// The processors of the process, as bits.
fn process_mask() -> io::Result<usize> {
    let (mut process_mask, mut system_mask) = (0, 0);
    // SAFETY: a constant.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: writes both masks.
    match unsafe { GetProcessAffinityMask(process, &mut process_mask, &mut system_mask) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(process_mask),
    }
}

/// Sets the processors, as bits; gives those of before.
fn set_mask(mask: usize) -> io::Result<usize> {
    // SAFETY: no memory is passed.
    match unsafe { SetThreadAffinityMask(thread(), mask) } {
        0 => Err(io::Error::last_os_error()),
        before => Ok(before),
    }
}

/// The only way to ask is to set.
pub(crate) fn affinity() -> io::Result<Vec<usize>> {
    let before = set_mask(process_mask()?)?;
    set_mask(before)?;
    Ok((0..usize::BITS as usize).filter(|cpu| before >> cpu & 1 == 1).collect())
}

pub(crate) fn set_affinity(cpus: &[usize]) -> io::Result<()> {
    let known = cpus.iter().filter(|&&cpu| cpu < usize::BITS as usize);
    let mask = known.fold(0, |mask, cpu| mask | 1 << cpu) & process_mask()?;
    if mask == 0 {
        let why = "a thread needs a processor to run on, and there is none of these";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    set_mask(mask).map(drop)
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

pub(crate) fn priority() -> io::Result<ThreadPriority> {
    /// What an error looks like.
    const FAILED: i32 = i32::MAX;
    // SAFETY: no memory is passed.
    let number = unsafe { GetThreadPriority(thread()) };
    if number == FAILED {
        return Err(io::Error::last_os_error());
    }
    let above = PRIORITIES.iter().rev().find(|(_, least)| number >= *least);
    Ok(above.map_or(ThreadPriority::Lowest, |(priority, _)| *priority))
}

pub(crate) fn set_priority(priority: ThreadPriority) -> io::Result<()> {
    let number = PRIORITIES.iter().find(|(of, _)| *of == priority).map_or(0, |(_, number)| *number);
    // SAFETY: no memory is passed.
    match unsafe { SetThreadPriority(thread(), number) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The error for what a newer function returns.
fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::other(format!("failed with {result:#x}"))) } else { Ok(()) }
}

pub(crate) fn name() -> io::Result<String> {
    let mut text = ptr::null_mut();
    // SAFETY: writes where the text is.
    check(unsafe { GetThreadDescription(thread(), &mut text) })?;
    // SAFETY: the system's texts end with NUL.
    let name = unsafe { super::text_at(text) };
    // SAFETY: given to us to be freed, once.
    unsafe { LocalFree(text.cast::<c_void>()) };
    Ok(name)
}

pub(crate) fn set_name(name: &str) -> io::Result<()> {
    let name = wide(name);
    // SAFETY: reads a text that ends with NUL.
    check(unsafe { SetThreadDescription(thread(), name.as_ptr()) })
}
