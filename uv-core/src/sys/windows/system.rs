//! System information on Windows.

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::time::Duration;

use windows_sys::Wdk::System::SystemInformation::{
    NtQuerySystemInformation, SystemProcessorPerformanceInformation,
};
use windows_sys::Wdk::System::SystemServices::RtlGetVersion;
use windows_sys::Win32::Foundation::{CloseHandle, FILETIME, HANDLE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, PROCESSENTRY32W, Process32FirstW, Process32NextW, TH32CS_SNAPPROCESS,
};
use windows_sys::Win32::System::ProcessStatus::{K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS};
use windows_sys::Win32::System::Registry::{
    HKEY_LOCAL_MACHINE, RRF_RT_REG_DWORD, RRF_RT_REG_SZ, RegGetValueW,
};
use windows_sys::Win32::System::SystemInformation::{
    ComputerNamePhysicalDnsHostname, GetComputerNameExW, GetNativeSystemInfo, GetTickCount64,
    GlobalMemoryStatusEx, MEMORYSTATUSEX, OSVERSIONINFOW, PROCESSOR_ARCHITECTURE_AMD64,
    PROCESSOR_ARCHITECTURE_ARM, PROCESSOR_ARCHITECTURE_ARM64, PROCESSOR_ARCHITECTURE_INTEL,
    SYSTEM_INFO,
};
use windows_sys::Win32::System::Threading::{
    ABOVE_NORMAL_PRIORITY_CLASS, BELOW_NORMAL_PRIORITY_CLASS, GetCurrentProcess, GetCurrentThread,
    GetPriorityClass, GetProcessIoCounters, GetProcessTimes, GetThreadTimes, HIGH_PRIORITY_CLASS,
    IDLE_PRIORITY_CLASS, IO_COUNTERS, NORMAL_PRIORITY_CLASS, OpenProcess,
    PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_SET_INFORMATION, REALTIME_PRIORITY_CLASS,
    SetPriorityClass,
};
use windows_sys::Win32::System::WindowsProgramming::SYSTEM_PROCESSOR_PERFORMANCE_INFORMATION;

use super::{text, wide};
use crate::system::{CpuInfo, CpuTimes, MemoryLimit, ResourceUsage, Uname, priority};

/// Converts the result of a function that returns false on error.
fn check(result: i32) -> io::Result<()> {
    if result == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A handle that is closed on drop.
struct Owned(HANDLE);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: `self` owns the handle and closes it once.
        unsafe { CloseHandle(self.0) };
    }
}

fn system_info() -> SYSTEM_INFO {
    let mut info = MaybeUninit::<SYSTEM_INFO>::zeroed();
    // SAFETY: the call writes only the local structure.
    unsafe { GetNativeSystemInfo(info.as_mut_ptr()) };
    // SAFETY: plain data, for which all zeros are a valid value.
    unsafe { info.assume_init() }
}

pub(crate) fn cpu_info() -> io::Result<Vec<CpuInfo>> {
    let count = system_info().dwNumberOfProcessors.max(1) as usize;
    // SAFETY: plain data, for which all zeros are a valid value.
    let none: SYSTEM_PROCESSOR_PERFORMANCE_INFORMATION = unsafe { std::mem::zeroed() };
    let mut times = vec![none; count];
    let (size, mut written) = (size_of_val(&times[..]) as u32, 0);
    let (kind, to) = (SystemProcessorPerformanceInformation, times.as_mut_ptr().cast());
    // SAFETY: the call writes at most the size of the local memory.
    let status = unsafe { NtQuerySystemInformation(kind, to, size, &mut written) };
    if status != 0 {
        return Err(io::Error::other(format!("the system's times: status {status:#x}")));
    }
    times.truncate(written as usize / size_of_val(&none));
    let time = |of_100_ns: i64| Duration::from_nanos(of_100_ns.max(0) as u64 * 100);
    let cpus = times.iter().enumerate().map(|(number, times)| {
        let key = format!("HARDWARE\\DESCRIPTION\\System\\CentralProcessor\\{number}");
        CpuInfo {
            model: registry_text(&key, "ProcessorNameString").trim().to_owned(),
            speed_mhz: registry_number(&key, "~MHz"),
            times: CpuTimes {
                user: time(times.UserTime),
                nice: Duration::ZERO,
                // The kernel time includes the idle time.
                system: time(times.KernelTime - times.IdleTime),
                idle: time(times.IdleTime),
                // The second reserved time is the interrupt time.
                irq: time(times.Reserved1[1]),
            },
        }
    });
    Ok(cpus.collect())
}

/// A string from the registry; empty if it does not exist.
fn registry_text(key: &str, value: &str) -> String {
    let mut units = [0_u16; 256];
    let mut size = size_of_val(&units) as u32;
    let to = units.as_mut_ptr().cast();
    if registry(key, value, RRF_RT_REG_SZ, to, &mut size) { text(&units) } else { String::new() }
}

/// A number from the registry; 0 if it does not exist.
fn registry_number(key: &str, value: &str) -> u32 {
    let (mut number, mut size) = (0_u32, 4);
    registry(key, value, RRF_RT_REG_DWORD, (&raw mut number).cast(), &mut size);
    number
}

/// Reads a value of `HKEY_LOCAL_MACHINE`, if it exists: at most `size` bytes, to `to`.
fn registry(key: &str, value: &str, kind: u32, to: *mut c_void, size: &mut u32) -> bool {
    let (root, key, value) = (HKEY_LOCAL_MACHINE, wide(key), wide(value));
    let no_type = ptr::null_mut();
    // SAFETY: the names end with NUL; the callers pass memory of at least `size` bytes.
    unsafe { RegGetValueW(root, key.as_ptr(), value.as_ptr(), kind, no_type, to, size) == 0 }
}

pub(crate) fn load_average() -> [f64; 3] {
    [0.0; 3]
}

fn memory() -> io::Result<MEMORYSTATUSEX> {
    // SAFETY: plain data, for which all zeros are a valid value.
    let mut status: MEMORYSTATUSEX = unsafe { std::mem::zeroed() };
    status.dwLength = size_of::<MEMORYSTATUSEX>() as u32;
    // SAFETY: the call writes only the local structure.
    check(unsafe { GlobalMemoryStatusEx(&mut status) })?;
    Ok(status)
}

pub(crate) fn free_memory() -> io::Result<u64> {
    Ok(memory()?.ullAvailPhys)
}

pub(crate) fn total_memory() -> io::Result<u64> {
    Ok(memory()?.ullTotalPhys)
}

pub(crate) fn memory_limit() -> Option<MemoryLimit> {
    None
}

fn memory_counters() -> io::Result<PROCESS_MEMORY_COUNTERS> {
    // SAFETY: plain data, for which all zeros are a valid value.
    let mut counters: PROCESS_MEMORY_COUNTERS = unsafe { std::mem::zeroed() };
    let size = size_of::<PROCESS_MEMORY_COUNTERS>() as u32;
    // SAFETY: no memory is passed: the call returns a constant pseudo handle.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: the call writes at most the size of the local memory.
    check(unsafe { K32GetProcessMemoryInfo(process, &mut counters, size) })?;
    Ok(counters)
}

pub(crate) fn resident_memory() -> io::Result<u64> {
    Ok(memory_counters()?.WorkingSetSize as u64)
}

pub(crate) fn uptime() -> io::Result<Duration> {
    // SAFETY: no memory is passed.
    Ok(Duration::from_millis(unsafe { GetTickCount64() }))
}

/// The kernel and user times of a process or a thread, as `query` returns them.
fn times(
    query: impl FnOnce(*mut FILETIME, *mut FILETIME, *mut FILETIME, *mut FILETIME) -> i32,
) -> io::Result<(Duration, Duration)> {
    let [mut made, mut ended, mut kernel, mut user] =
        [FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 }; 4];
    check(query(&mut made, &mut ended, &mut kernel, &mut user))?;
    let time = |time: FILETIME| {
        let of_100_ns = u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime);
        Duration::from_nanos(of_100_ns.saturating_mul(100))
    };
    Ok((time(user), time(kernel)))
}

pub(crate) fn resource_usage() -> io::Result<ResourceUsage> {
    // SAFETY: no memory is passed: the call returns a constant pseudo handle.
    let process = unsafe { GetCurrentProcess() };
    let (user_time, system_time) = times(|made, ended, kernel, user| {
        // SAFETY: the call writes four local variables.
        unsafe { GetProcessTimes(process, made, ended, kernel, user) }
    })?;
    let memory = memory_counters()?;
    let mut io = MaybeUninit::<IO_COUNTERS>::zeroed();
    // SAFETY: the call writes only the local structure.
    check(unsafe { GetProcessIoCounters(process, io.as_mut_ptr()) })?;
    // SAFETY: the successful call has written the structure.
    let io = unsafe { io.assume_init() };
    Ok(ResourceUsage {
        user_time,
        system_time,
        max_resident: memory.PeakWorkingSetSize as u64,
        major_faults: memory.PageFaultCount.into(),
        blocks_in: io.ReadOperationCount,
        blocks_out: io.WriteOperationCount,
        ..ResourceUsage::default()
    })
}

pub(crate) fn thread_resource_usage() -> io::Result<ResourceUsage> {
    // SAFETY: no memory is passed: the call returns a constant pseudo handle.
    let thread = unsafe { GetCurrentThread() };
    let (user_time, system_time) = times(|made, ended, kernel, user| {
        // SAFETY: the call writes four local variables.
        unsafe { GetThreadTimes(thread, made, ended, kernel, user) }
    })?;
    Ok(ResourceUsage { user_time, system_time, ..ResourceUsage::default() })
}

pub(crate) fn uname() -> io::Result<Uname> {
    // SAFETY: plain data, for which all zeros are a valid value.
    let mut version: OSVERSIONINFOW = unsafe { std::mem::zeroed() };
    version.dwOSVersionInfoSize = size_of::<OSVERSIONINFOW>() as u32;
    // SAFETY: the call writes only the local structure, and cannot fail.
    unsafe { RtlGetVersion(&mut version) };
    let OSVERSIONINFOW { dwMajorVersion, dwMinorVersion, dwBuildNumber, .. } = version;
    // SAFETY: every member of this union is plain data.
    let machine = unsafe { system_info().Anonymous.Anonymous }.wProcessorArchitecture;
    let machine = match machine {
        PROCESSOR_ARCHITECTURE_AMD64 => "x86_64",
        PROCESSOR_ARCHITECTURE_ARM64 => "arm64",
        PROCESSOR_ARCHITECTURE_ARM => "arm",
        PROCESSOR_ARCHITECTURE_INTEL => "i686",
        _ => "unknown",
    };
    let key = "SOFTWARE\\Microsoft\\Windows NT\\CurrentVersion";
    Ok(Uname {
        sysname: "Windows_NT".into(),
        release: format!("{dwMajorVersion}.{dwMinorVersion}.{dwBuildNumber}"),
        version: registry_text(key, "ProductName"),
        machine: machine.into(),
    })
}

pub(crate) fn hostname() -> io::Result<String> {
    let mut name = [0_u16; 256];
    let mut length = name.len() as u32;
    let kind = ComputerNamePhysicalDnsHostname;
    // SAFETY: the call writes at most the length of the local buffer.
    check(unsafe { GetComputerNameExW(kind, name.as_mut_ptr(), &mut length) })?;
    Ok(text(&name))
}

/// Priority classes, from the lowest to the highest.
const CLASSES: [(i32, u32); 6] = [
    (priority::LOW, IDLE_PRIORITY_CLASS),
    (priority::BELOW_NORMAL, BELOW_NORMAL_PRIORITY_CLASS),
    (priority::NORMAL, NORMAL_PRIORITY_CLASS),
    (priority::ABOVE_NORMAL, ABOVE_NORMAL_PRIORITY_CLASS),
    (priority::HIGH, HIGH_PRIORITY_CLASS),
    (priority::HIGHEST, REALTIME_PRIORITY_CLASS),
];

fn open_process(pid: u32, rights: u32) -> io::Result<Owned> {
    let pid = if pid == 0 { std::process::id() } else { pid };
    // SAFETY: no memory is passed.
    let process = unsafe { OpenProcess(rights, 0, pid) };
    if process.is_null() { Err(io::Error::last_os_error()) } else { Ok(Owned(process)) }
}

pub(crate) fn process_priority(pid: u32) -> io::Result<i32> {
    let process = open_process(pid, PROCESS_QUERY_LIMITED_INFORMATION)?;
    // SAFETY: the handle is open until the end of the function.
    let class = unsafe { GetPriorityClass(process.0) };
    check(class as i32)?;
    let of = CLASSES.iter().find(|(_, of)| *of == class);
    Ok(of.map_or(priority::NORMAL, |(priority, _)| *priority))
}

pub(crate) fn set_process_priority(pid: u32, wanted: i32) -> io::Result<()> {
    let process = open_process(pid, PROCESS_SET_INFORMATION)?;
    let not_higher = CLASSES.iter().rev().find(|(priority, _)| wanted <= *priority);
    let class = not_higher.map_or(IDLE_PRIORITY_CLASS, |(_, class)| *class);
    // SAFETY: the handle is open until the end of the function.
    check(unsafe { SetPriorityClass(process.0, class) })
}

pub(crate) fn parent_id() -> io::Result<u32> {
    // SAFETY: no memory is passed.
    let list = unsafe { CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0) };
    if list == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    let list = Owned(list);
    // SAFETY: plain data, for which all zeros are a valid value.
    let mut entry: PROCESSENTRY32W = unsafe { std::mem::zeroed() };
    entry.dwSize = size_of::<PROCESSENTRY32W>() as u32;
    // SAFETY: the call writes only the local entry.
    check(unsafe { Process32FirstW(list.0, &mut entry) })?;
    while entry.th32ProcessID != std::process::id() {
        // SAFETY: the call writes only the local entry.
        check(unsafe { Process32NextW(list.0, &mut entry) })?;
    }
    Ok(entry.th32ParentProcessID)
}
