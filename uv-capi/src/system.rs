//! Clocks, memory, processors and the names of the machine.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::io;
use std::ptr::null_mut;

use libc::{EFAULT, EINVAL, ENOMEM};

use crate::alloc::{allocate_array, copy_string, release};
use crate::errors::{code, last_error, of_call};
use crate::layout::{uv_cpu_info_t, uv_time64_t, uv_utsname_t};
use crate::strings::{is_buffer, write_string, write_truncated};

fn clock(id: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it fills the struct; the two clocks in use exist everywhere.
    unsafe { libc::clock_gettime(id, &mut time) };
    time
}

/// The monotonic clock in nanoseconds.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn uv_hrtime() -> u64 {
    let time = clock(libc::CLOCK_MONOTONIC);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_clock_gettime(id: c_int, time: *mut uv_time64_t) -> c_int {
    if time.is_null() {
        return -EFAULT;
    }
    let id = match id {
        0 => libc::CLOCK_MONOTONIC,
        1 => libc::CLOCK_REALTIME,
        _ => return -EINVAL,
    };
    let now = clock(id);
    *time = uv_time64_t { tv_sec: now.tv_sec, tv_fraction: now.tv_nsec as i32 };
    0
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_gettimeofday(time: *mut uv_time64_t) -> c_int {
    if time.is_null() {
        return -EINVAL;
    }
    let now = clock(libc::CLOCK_REALTIME);
    *time = uv_time64_t { tv_sec: now.tv_sec, tv_fraction: (now.tv_nsec / 1000) as i32 };
    0
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn uv_get_total_memory() -> u64 {
    uv_core::system::total_memory().unwrap_or(0)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn uv_get_free_memory() -> u64 {
    uv_core::system::free_memory().unwrap_or(0)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn uv_get_available_memory() -> u64 {
    uv_core::system::available_memory().unwrap_or(0)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn uv_get_constrained_memory() -> u64 {
    uv_core::system::constrained_memory().unwrap_or(0)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_resident_set_memory(bytes: *mut usize) -> c_int {
    match uv_core::system::resident_memory() {
        Ok(resident) => {
            *bytes = resident as usize;
            0
        }
        Err(error) => code(&error),
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_uptime(seconds: *mut f64) -> c_int {
    // Whole seconds, as libuv.
    *seconds = clock(libc::CLOCK_BOOTTIME).tv_sec as f64;
    0
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_loadavg(averages: *mut f64) {
    let loads = uv_core::system::load_average();
    std::ptr::copy_nonoverlapping(loads.as_ptr(), averages, loads.len());
}

/// `uv_rusage_t` has the fields of `rusage` in the same order, each of 64 bits.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_getrusage(usage: *mut libc::rusage) -> c_int {
    of_call(libc::getrusage(libc::RUSAGE_SELF, usage))
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_getrusage_thread(usage: *mut libc::rusage) -> c_int {
    of_call(libc::getrusage(libc::RUSAGE_THREAD, usage))
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn uv_available_parallelism() -> c_uint {
    std::thread::available_parallelism().map_or(1, |count| count.get() as c_uint)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_cpu_info(cpus: *mut *mut uv_cpu_info_t, count: *mut c_int) -> c_int {
    (*cpus, *count) = (null_mut(), 0);
    let infos = match uv_core::system::cpu_info() {
        Ok(infos) => infos,
        Err(error) => return code(&error),
    };
    let list = allocate_array::<uv_cpu_info_t>(infos.len());
    if list.is_null() {
        return -ENOMEM;
    }
    for (index, info) in infos.iter().enumerate() {
        let model = if info.model.is_empty() { "unknown" } else { info.model.as_str() };
        let times = &info.times;
        let times = [times.user, times.nice, times.system, times.idle, times.irq];
        *list.add(index) = uv_cpu_info_t {
            model: copy_string(model.as_bytes()),
            speed: info.speed_mhz as c_int,
            cpu_times: times.map(|time| time.as_millis() as u64),
        };
    }
    (*cpus, *count) = (list, infos.len() as c_int);
    0
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_free_cpu_info(cpus: *mut uv_cpu_info_t, count: c_int) {
    for index in 0..count.max(0) as usize {
        release((*cpus.add(index)).model.cast());
    }
    release(cpus.cast());
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_os_getpid() -> c_int {
    libc::getpid()
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_os_getppid() -> c_int {
    libc::getppid()
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_os_getpriority(pid: c_int, priority: *mut c_int) -> c_int {
    if priority.is_null() {
        return -EINVAL;
    }
    // -1 is a priority too.
    *libc::__errno_location() = 0;
    let result = libc::getpriority(libc::PRIO_PROCESS, pid as u32);
    if result == -1 && io::Error::last_os_error().raw_os_error() != Some(0) {
        return last_error();
    }
    *priority = result;
    0
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_os_setpriority(pid: c_int, priority: c_int) -> c_int {
    if !(-20..=19).contains(&priority) {
        return -EINVAL;
    }
    of_call(libc::setpriority(libc::PRIO_PROCESS, pid as u32, priority))
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_os_gethostname(buffer: *mut c_char, size: *mut usize) -> c_int {
    if !is_buffer(buffer, size) {
        return -EINVAL;
    }
    let mut name = [0; 256];
    if libc::gethostname(name.as_mut_ptr(), name.len() - 1) != 0 {
        return last_error();
    }
    write_string(CStr::from_ptr(name.as_ptr()).to_bytes(), buffer, size)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_os_uname(names: *mut uv_utsname_t) -> c_int {
    if names.is_null() {
        return -EINVAL;
    }
    let mut system: libc::utsname = std::mem::zeroed();
    if libc::uname(&mut system) != 0 {
        return last_error();
    }
    let names = &mut *names;
    let fields = [
        (&mut names.sysname, &system.sysname),
        (&mut names.release, &system.release),
        (&mut names.version, &system.version),
        (&mut names.machine, &system.machine),
    ];
    for (to, from) in fields {
        write_truncated(CStr::from_ptr(from.as_ptr()).to_bytes(), to.as_mut_ptr(), to.len());
    }
    0
}
