//! System information of Apple's systems, from Mach and `sysctl`.

#![expect(deprecated, reason = "libc recommends the mach2 crate, which is one more dependency")]

use std::io;
use std::ptr;
use std::time::Duration;

use super::sysctl::{number, page_size, text};
use crate::system::{CpuInfo, CpuTimes, ResourceUsage};

/// The result of a Mach call.
fn check(result: libc::kern_return_t) -> io::Result<()> {
    match result {
        libc::KERN_SUCCESS => Ok(()),
        code => Err(io::Error::other(format!("a Mach call failed with code {code}"))),
    }
}

fn host() -> libc::mach_port_t {
    // SAFETY: takes no pointer.
    unsafe { libc::mach_host_self() }
}

fn task() -> libc::mach_port_t {
    // SAFETY: reads a variable of the C library, which is set before `main` and never changed.
    unsafe { libc::mach_task_self() }
}

pub(crate) fn cpu_info() -> io::Result<Vec<CpuInfo>> {
    let (mut count, mut length, mut list) = (0, 0, ptr::null_mut());
    let kind = libc::PROCESSOR_CPU_LOAD_INFO;
    // SAFETY: writes the two counts and the list pointer, to locals of their types.
    check(unsafe {
        libc::host_processor_info(host(), kind, &mut count, &mut list, &mut length)
    })?;
    // SAFETY: the call has allocated a list of `count` entries, which belongs to this process until
    // `vm_deallocate` below; `loads` is not used after that.
    let loads = unsafe {
        std::slice::from_raw_parts(list.cast::<libc::processor_cpu_load_info>(), count as usize)
    };
    // SAFETY: takes no pointer.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
    let time = |count: u32| Duration::from_millis(u64::from(count) * 1_000 / ticks);
    let model = text(c"machdep.cpu.brand_string");
    // In hertz; not available on Apple silicon.
    let speed_mhz = (number(c"hw.cpufrequency").unwrap_or(0) / 1_000_000) as u32;
    let cpus = loads.iter().map(|load| {
        let [user, system, idle, nice] = load.cpu_ticks.map(time);
        let times = CpuTimes { user, nice, system, idle, irq: Duration::ZERO };
        CpuInfo { model: model.clone(), speed_mhz, times }
    });
    let cpus = cpus.collect();
    let size = length as usize * size_of::<libc::integer_t>();
    // SAFETY: frees the list that `host_processor_info` has allocated, with its size, once. The
    // results were copied out above.
    unsafe { libc::vm_deallocate(task(), list.addr(), size) };
    Ok(cpus)
}

pub(crate) fn total_memory() -> io::Result<u64> {
    number(c"hw.memsize")
}

pub(crate) fn free_memory() -> io::Result<u64> {
    // SAFETY: a C structure of integers; zero is valid for each.
    let mut memory: libc::vm_statistics64 = unsafe { std::mem::zeroed() };
    let mut length = libc::HOST_VM_INFO64_COUNT;
    let to = (&raw mut memory).cast();
    // SAFETY: writes at most `length` integers, the size of `memory`.
    check(unsafe { libc::host_statistics64(host(), libc::HOST_VM_INFO64, to, &mut length) })?;
    Ok((u64::from(memory.free_count) + u64::from(memory.inactive_count)) * page_size())
}

pub(crate) fn resident_memory() -> io::Result<u64> {
    // SAFETY: a C structure of integers; zero is valid for each.
    let mut info: libc::mach_task_basic_info = unsafe { std::mem::zeroed() };
    let mut length = libc::MACH_TASK_BASIC_INFO_COUNT;
    let (kind, to) = (libc::MACH_TASK_BASIC_INFO, (&raw mut info).cast());
    // SAFETY: writes at most `length` integers, the size of `info`.
    check(unsafe { libc::task_info(task(), kind, to, &mut length) })?;
    Ok(info.resident_size)
}

pub(crate) fn thread_resource_usage() -> io::Result<ResourceUsage> {
    // SAFETY: a C structure of integers; zero is valid for each.
    let mut info: libc::thread_basic_info = unsafe { std::mem::zeroed() };
    let mut length = libc::THREAD_BASIC_INFO_COUNT;
    // SAFETY: takes no pointer.
    let thread = unsafe { libc::pthread_self() };
    // SAFETY: takes the calling thread, which exists during the call.
    let thread = unsafe { libc::pthread_mach_thread_np(thread) };
    let (kind, to) = (libc::THREAD_BASIC_INFO as _, (&raw mut info).cast());
    // SAFETY: writes at most `length` integers, the size of `info`.
    check(unsafe { libc::thread_info(thread, kind, to, &mut length) })?;
    let time = |time: libc::time_value_t| {
        Duration::new(time.seconds as u64, time.microseconds as u32 * 1_000)
    };
    Ok(ResourceUsage {
        user_time: time(info.user_time),
        system_time: time(info.system_time),
        ..ResourceUsage::default()
    })
}
