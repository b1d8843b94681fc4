//! The process title, as `ps` shows it.

use std::io;

/// The title that was set, else the first argument.
pub(crate) fn get(kept: Option<&str>) -> io::Result<String> {
    let first = || std::env::args_os().next().unwrap_or_default().to_string_lossy().into_owned();
    Ok(kept.map_or_else(first, str::to_owned))
}

cfg_if::cfg_if! {
    if #[cfg(any(target_os = "linux", target_os = "android"))] {
        /// Sets the name of the main thread, which is that of the process, and the command line.
        /// The kernel truncates the name to 15 bytes. Without the NUL an empty title would be a
        /// write of no bytes, which changes nothing.
        pub(crate) fn set(title: &str) -> io::Result<()> {
            std::fs::write("/proc/self/comm", format!("{title}\0"))?;
            // Changing the command line needs CAP_SYS_RESOURCE; without it only the name changes.
            let _ = set_command_line(title);
            Ok(())
        }

        /// Points the kernel to another command line. Its memory is never freed: other processes
        /// may read it through `/proc` at any time.
        fn set_command_line(title: &str) -> io::Result<()> {
            let memory = memory_for(title)?;
            let end = memory.addr() + title.len() + 1;
            // The kernel refuses a start above the end. Depending on where the new memory lies,
            // one of the two orders works.
            let start_first = mm(libc::PR_SET_MM_ARG_START, memory.addr());
            mm(libc::PR_SET_MM_ARG_END, end)?;
            start_first.or_else(|_| mm(libc::PR_SET_MM_ARG_START, memory.addr()))
        }

        /// Memory that holds the title and a NUL. Memory that is large enough is reused; a longer
        /// title leaks the old one. Titles are short and seldom change.
        fn memory_for(title: &str) -> io::Result<*mut u8> {
            use std::sync::Mutex;
            use std::sync::atomic::{AtomicU8, Ordering};

            static KEPT: Mutex<&[AtomicU8]> = Mutex::new(&[]);
            let mut kept = KEPT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if kept.len() <= title.len() {
                let buffer = (title.len() + 1).max(256);
                *kept = Vec::leak((0..buffer).map(|_| AtomicU8::new(0)).collect());
            }
            let bytes = title.bytes().chain([0]);
            kept.iter().zip(bytes).for_each(|(to, byte)| to.store(byte, Ordering::Relaxed));
            Ok(kept.as_ptr().cast_mut().cast())
        }

        fn mm(what: libc::c_int, address: usize) -> io::Result<()> {
            let (what, unused) = (what as libc::c_ulong, 0 as libc::c_ulong);
            // SAFETY: the kernel stores the address as an integer and checks the mapping when a
            // process reads the command line; `memory_for` never frees its memory.
            match unsafe { libc::prctl(libc::PR_SET_MM, what, address, unused, unused) } {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        }
    } else if #[cfg(target_vendor = "apple")] {
        pub(crate) fn set(title: &str) -> io::Result<()> {
            super::threads::set_name(title)
        }
    } else {
        pub(crate) fn set(title: &str) -> io::Result<()> {
            let title = std::ffi::CString::new(title).map_err(io::Error::other)?;
            // The dash omits the program's name.
            // SAFETY: the format takes one string; both are NUL-terminated.
            unsafe { libc::setproctitle(c"-%s".as_ptr(), title.as_ptr()) };
            Ok(())
        }
    }
}
