//! What Unix says of itself; the rest each system has its own way for.

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
                mod elsewhere;
                pub(crate) use elsewhere::{cpu_info, free_memory, resident_memory, total_memory};
            }
        }
    }
}

/// What the systems without Linux's `/proc` have in common.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod without_proc {
    use std::io;
    use std::time::Duration;

    use crate::system::MemoryLimit;

    pub(crate) fn load_average() -> [f64; 3] {
        let mut averages = [0.0; 3];
        // SAFETY: writes as many numbers as there is room for.
        match unsafe { libc::getloadavg(averages.as_mut_ptr(), 3) } {
            3 => averages,
            _ => [0.0; 3],
        }
    }

    /// The clock that begins when the system does.
    pub(crate) fn uptime() -> io::Result<Duration> {
        super::clock(libc::CLOCK_MONOTONIC)
    }

    pub(crate) fn memory_limit() -> Option<MemoryLimit> {
        None
    }
}

/// A text in memory that a system call has filled, up to its NUL.
pub(crate) fn text(bytes: &[u8]) -> String {
    let text = CStr::from_bytes_until_nul(bytes).map_or(bytes, CStr::to_bytes);
    String::from_utf8_lossy(text).into_owned()
}

fn clock(id: libc::clockid_t) -> io::Result<Duration> {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: writes one time.
    if unsafe { libc::clock_gettime(id, time.as_mut_ptr()) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: written by the call.
    let time = unsafe { time.assume_init() };
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

pub(crate) fn uname() -> io::Result<Uname> {
    let mut names = MaybeUninit::<libc::utsname>::uninit();
    // SAFETY: writes the structure.
    if unsafe { libc::uname(names.as_mut_ptr()) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: written by the call.
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
    // Names of hosts have up to 255 bytes, and a NUL.
    let mut name = [0_u8; 256];
    // SAFETY: writes no more than the length given.
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
            // The kernel is Linux, whatever the headers say.
            const RUSAGE_THREAD: libc::c_int = 1;
            usage_of(RUSAGE_THREAD)
        }
    } else if #[cfg(target_vendor = "apple")] {
        pub(crate) use apple::thread_resource_usage;
    } else {
        pub(crate) fn thread_resource_usage() -> io::Result<ResourceUsage> {
            Err(crate::system::unsupported("what a thread has used"))
        }
    }
}

fn usage_of(who: libc::c_int) -> io::Result<ResourceUsage> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: writes the structure.
    if unsafe { libc::getrusage(who, usage.as_mut_ptr()) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: written by the call.
    let usage = unsafe { usage.assume_init() };
    /// Apple counts bytes, the others KiB.
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
    // -1 is a priority as well as a failure: only `errno` tells them apart.
    set_errno(0);
    // SAFETY: no memory is passed.
    let priority = unsafe { libc::getpriority(libc::PRIO_PROCESS, pid as _) };
    match io::Error::last_os_error() {
        error if priority == -1 && error.raw_os_error() != Some(0) => Err(error),
        _ => Ok(priority),
    }
}

pub(crate) fn set_process_priority(pid: u32, priority: i32) -> io::Result<()> {
    // SAFETY: no memory is passed.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, pid as _, priority) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

pub(crate) fn parent_id() -> io::Result<u32> {
    Ok(std::os::unix::process::parent_id())
}
