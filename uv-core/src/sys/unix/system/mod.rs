//! System information: the calls that all Unix systems share, and a module for each system.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use super::signals::set_errno;
use crate::system::{ResourceUsage, Uname};

cfg_if::cfg_if! {
    if #[cfg(any(target_os = "linux", target_os = "android"))] {
        mod linux;
        pub(crate) use linux::{
            cpu_info, free_memory, load_average, memory_limit, resident_memory, total_memory,
            uptime,
        };
    } else {
        pub(crate) use without_proc::{load_average, memory_limit, uptime};
        cfg_if::cfg_if! {
            if #[cfg(target_vendor = "apple")] {
                mod apple;
                mod sysctl;
                pub(crate) use apple::{cpu_info, free_memory, resident_memory, total_memory};
            } else if #[cfg(any(target_os = "freebsd", target_os = "netbsd"))] {
                mod bsd;
                mod sysctl;
                pub(crate) use bsd::{cpu_info, free_memory, resident_memory, total_memory};
            } else {
                mod unsupported;
                pub(crate) use unsupported::{cpu_info, free_memory, resident_memory, total_memory};
            }
        }
    }
}

/// The calls of systems without Linux's `/proc`.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod without_proc {
    use std::io;
    use std::time::Duration;

    use crate::system::MemoryLimit;

    pub(crate) fn load_average() -> [f64; 3] {
        let mut averages = [0.0; 3];
        // SAFETY: writes at most 3 numbers, the length of `averages`.
        match unsafe { libc::getloadavg(averages.as_mut_ptr(), 3) } {
            3 => averages,
            _ => [0.0; 3],
        }
    }

    /// The monotonic clock, which starts with the system.
    pub(crate) fn uptime() -> io::Result<Duration> {
        super::clock(libc::CLOCK_MONOTONIC)
    }

    pub(crate) fn memory_limit() -> Option<MemoryLimit> {
        None
    }
}

/// The string in a buffer that a system call has filled, up to its NUL.
pub(crate) fn text(bytes: &[u8]) -> String {
    let text = CStr::from_bytes_until_nul(bytes).map_or(bytes, CStr::to_bytes);
    String::from_utf8_lossy(text).into_owned()
}

fn clock(id: libc::clockid_t) -> io::Result<Duration> {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: writes one `timespec`, to a local of that type.
    if unsafe { libc::clock_gettime(id, time.as_mut_ptr()) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has succeeded, so it has written the value.
    let time = unsafe { time.assume_init() };
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

pub(crate) fn uname() -> io::Result<Uname> {
    let mut names = MaybeUninit::<libc::utsname>::uninit();
    // SAFETY: writes one `utsname`, to a local of that type.
    if unsafe { libc::uname(names.as_mut_ptr()) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has succeeded, so it has written the value.
    let names = unsafe { names.assume_init() };
    let text = |field: &[libc::c_char]| {
        text(&field.iter().map(|c| c.to_ne_bytes()[0]).collect::<Vec<_>>())
    };
    Ok(Uname {
        sysname: text(&names.sysname),
        release: text(&names.release),
        version: text(&names.version),
        machine: text(&names.machine),
    })
}

pub(crate) fn hostname() -> io::Result<String> {
    // A host name has up to 255 bytes, and a NUL.
    let mut name = [0_u8; 256];
    // SAFETY: writes at most `name.len()` bytes.
    match unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(text(&name)),
    }
}

pub(crate) fn resource_usage() -> io::Result<ResourceUsage> {
    usage_of(libc::RUSAGE_SELF)
}

cfg_if::cfg_if! {
    if #[cfg(any(target_os = "linux", target_os = "freebsd", target_os = "openbsd"))] {
        pub(crate) fn thread_resource_usage() -> io::Result<ResourceUsage> {
            usage_of(libc::RUSAGE_THREAD)
        }
    } else if #[cfg(target_os = "android")] {
        pub(crate) fn thread_resource_usage() -> io::Result<ResourceUsage> {
            // Linux has it since 2.6.26; Android's headers do not define it.
            const RUSAGE_THREAD: libc::c_int = 1;
            usage_of(RUSAGE_THREAD)
        }
    } else if #[cfg(target_vendor = "apple")] {
        pub(crate) use apple::thread_resource_usage;
    } else {
        pub(crate) fn thread_resource_usage() -> io::Result<ResourceUsage> {
            Err(crate::system::unsupported("the resource usage of a thread"))
        }
    }
}

fn usage_of(who: libc::c_int) -> io::Result<ResourceUsage> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: writes one `rusage`, to a local of that type.
    if unsafe { libc::getrusage(who, usage.as_mut_ptr()) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has succeeded, so it has written the value.
    let usage = unsafe { usage.assume_init() };
    /// Apple's systems count bytes, the others KiB.
    const UNIT: u64 = if cfg!(target_vendor = "apple") { 1 } else { 1024 };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1_000);
    Ok(ResourceUsage {
        user_time: time(usage.ru_utime),
        system_time: time(usage.ru_stime),
        max_resident: usage.ru_maxrss as u64 * UNIT,
        minor_faults: usage.ru_minflt as u64,
        major_faults: usage.ru_majflt as u64,
        swaps: usage.ru_nswap as u64,
        blocks_in: usage.ru_inblock as u64,
        blocks_out: usage.ru_oublock as u64,
        messages_sent: usage.ru_msgsnd as u64,
        messages_received: usage.ru_msgrcv as u64,
        signals: usage.ru_nsignals as u64,
        voluntary_switches: usage.ru_nvcsw as u64,
        involuntary_switches: usage.ru_nivcsw as u64,
    })
}

pub(crate) fn process_priority(pid: u32) -> io::Result<i32> {
    // -1 is also a valid priority: only `errno` distinguishes it from a failure.
    set_errno(0);
    // SAFETY: takes no pointer.
    let priority = unsafe { libc::getpriority(libc::PRIO_PROCESS, pid as _) };
    match io::Error::last_os_error() {
        error if priority == -1 && error.raw_os_error() != Some(0) => Err(error),
        _ => Ok(priority),
    }
}

pub(crate) fn set_process_priority(pid: u32, priority: i32) -> io::Result<()> {
    // SAFETY: takes no pointer.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, pid as _, priority) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

pub(crate) fn parent_id() -> io::Result<u32> {
    Ok(std::os::unix::process::parent_id())
}
