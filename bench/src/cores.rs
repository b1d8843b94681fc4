//! CPU affinity.

use std::io;

/// The cores of a server and of its clients: two different ones, if this process may use two.
pub fn server_and_clients() -> Option<(usize, usize)> {
    let mut cores = allowed().into_iter();
    Some((cores.next()?, cores.next()?))
}

#[cfg(target_os = "linux")]
fn allowed() -> Vec<usize> {
    let set = affinity();
    // SAFETY: the set is initialised, and the core is below `CPU_SETSIZE`.
    (0..libc::CPU_SETSIZE as usize).filter(|core| unsafe { libc::CPU_ISSET(*core, &set) }).collect()
}

#[cfg(target_os = "linux")]
fn affinity() -> libc::cpu_set_t {
    // SAFETY: plain data, for which all zeros are a valid value.
    let mut set = unsafe { std::mem::zeroed::<libc::cpu_set_t>() };
    // SAFETY: `set` is valid for writes of its size. If it fails, the set stays empty.
    unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
    set
}

#[cfg(not(target_os = "linux"))]
fn allowed() -> Vec<usize> {
    Vec::new()
}

/// Pins the calling thread to one core until drop.
#[derive(Debug)]
pub struct Pinned {
    #[cfg(target_os = "linux")]
    before: Box<libc::cpu_set_t>,
}

#[cfg(target_os = "linux")]
impl Pinned {
    /// Pins this thread and the threads that it starts.
    ///
    /// # Errors
    ///
    /// If the process may not use this core.
    pub fn to(core: usize) -> io::Result<Pinned> {
        let before = Box::new(affinity());
        // SAFETY: plain data, for which all zeros are a valid value.
        let mut set = unsafe { std::mem::zeroed::<libc::cpu_set_t>() };
        // SAFETY: the core number comes from an affinity set, so it is below `CPU_SETSIZE`.
        unsafe { libc::CPU_SET(core, &mut set) };
        apply(&set)?;
        Ok(Pinned { before })
    }
}

#[cfg(target_os = "linux")]
impl Drop for Pinned {
    fn drop(&mut self) {
        // The old set was valid before, so this does not fail.
        let _ = apply(&self.before);
    }
}

#[cfg(target_os = "linux")]
fn apply(set: &libc::cpu_set_t) -> io::Result<()> {
    // SAFETY: `set` is valid for reads of its size.
    match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(target_os = "linux"))]
impl Pinned {
    /// Pins this thread, on Linux only.
    ///
    /// # Errors
    ///
    /// `Unsupported` elsewhere.
    pub fn to(_: usize) -> io::Result<Pinned> {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "threads can be pinned on Linux only: run without --core",
        ))
    }
}
