//! System information of FreeBSD and NetBSD, from `sysctl`.

use std::io;
use std::ptr;
use std::time::Duration;

use super::sysctl::{bytes, number, page_size, text};
use crate::system::{CpuInfo, CpuTimes};

/// The counters of each processor: user, nice, system, interrupt, idle.
const STATES: usize = 5;

pub(crate) fn cpu_info() -> io::Result<Vec<CpuInfo>> {
    let count = number(c"hw.ncpu")?.clamp(1, 4096) as usize;
    let (name, model, speed) = if cfg!(target_os = "freebsd") {
        (c"kern.cp_times", c"hw.model", c"hw.clockrate")
    } else {
        (c"kern.cp_time", c"machdep.cpu_brand", c"machdep.tsc_freq")
    };
    let mut times = vec![0; count * STATES * size_of::<u64>()];
    let length = bytes(name, &mut times)?;
    // SAFETY: takes no pointer.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    let frequency = number(speed).unwrap_or(0);
    // FreeBSD counts MHz, NetBSD Hz.
    let unit = if cfg!(target_os = "freebsd") { 1 } else { 1_000_000 };
    let speed_mhz = (frequency / unit) as u32;
    // FreeBSD counts in `long`, NetBSD in 64 bits.
    let word = if cfg!(target_os = "freebsd") { size_of::<libc::c_long>() } else { 8 };
    let cpus = times[..length].chunks_exact(word * STATES).map(|of_one| {
        let [user, nice, system, irq, idle] = [0, 1, 2, 3, 4].map(|state| {
            let mut wide = [0; 8];
            wide[..word].copy_from_slice(&of_one[state * word..][..word]);
            let count = if word == 4 {
                u32::from_ne_bytes([wide[0], wide[1], wide[2], wide[3]]).into()
            } else {
                u64::from_ne_bytes(wide)
            };
            Duration::from_millis(count.saturating_mul(1_000) / ticks)
        });
        let times = CpuTimes { user, nice, system, idle, irq };
        CpuInfo { model: text(model), speed_mhz, times }
    });
    Ok(cpus.collect())
}

pub(crate) fn total_memory() -> io::Result<u64> {
    number(if cfg!(target_os = "freebsd") { c"hw.physmem" } else { c"hw.physmem64" })
}

cfg_if::cfg_if! {
    if #[cfg(target_os = "freebsd")] {
        pub(crate) fn free_memory() -> io::Result<u64> {
            Ok(number(c"vm.stats.vm.v_free_count")? * page_size())
        }

        pub(crate) fn resident_memory() -> io::Result<u64> {
            let pid = std::process::id() as libc::c_int;
            let mut path = [libc::CTL_KERN, libc::KERN_PROC, libc::KERN_PROC_PID, pid];
            // SAFETY: a C structure of integers and raw pointers; zero is valid for each field.
            let mut process: libc::kinfo_proc = unsafe { std::mem::zeroed() };
            // SAFETY: `kinfo_proc` is the structure that this path returns.
            unsafe { query(&mut path, &mut process) }?;
            Ok(process.ki_rssize as u64 * page_size())
        }
    } else {
        pub(crate) fn free_memory() -> io::Result<u64> {
            /// Index of the free page count in `struct uvmexp_sysctl`, whose fields have 64 bits.
            const FREE: usize = 4;
            // The structure grows between versions; the kernel fills the buffer as far as it goes.
            let mut answer = [0; 1024];
            bytes(c"vm.uvmexp2", &mut answer)?;
            let mut pages = [0; 8];
            pages.copy_from_slice(&answer[FREE * 8..][..8]);
            Ok(u64::from_ne_bytes(pages) * page_size())
        }

        pub(crate) fn resident_memory() -> io::Result<u64> {
            let pid = std::process::id() as libc::c_int;
            let size = size_of::<libc::kinfo_proc2>() as libc::c_int;
            let mut path =
                [libc::CTL_KERN, libc::KERN_PROC2, libc::KERN_PROC_PID, pid, size, 1];
            // SAFETY: a C structure of integers and raw pointers; zero is valid for each field.
            let mut process: libc::kinfo_proc2 = unsafe { std::mem::zeroed() };
            // SAFETY: `kinfo_proc2` is the structure that this path returns, of the size in it.
            unsafe { query(&mut path, &mut process) }?;
            Ok(process.p_vm_rssize as u64 * page_size())
        }
    }
}

/// Reads a structure by `sysctl`.
///
/// # Safety
///
/// Any bytes that the kernel returns for `path` are a valid `T`.
unsafe fn query<T>(path: &mut [libc::c_int], answer: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>();
    let (to, nothing) = (ptr::from_mut(answer).cast(), ptr::null_mut());
    // SAFETY: reads the path, and writes at most `length` bytes, the size of `answer`; the caller
    // guarantees that they are a valid `T`.
    let result = unsafe {
        libc::sysctl(path.as_mut_ptr(), path.len() as _, to, &mut length, nothing, 0)
    };
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
