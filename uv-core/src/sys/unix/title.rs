//! The title of the process.

use std::io;

/// The title that was set, else the first argument.
pub(crate) fn get(kept: Option<&str>) -> io::Result<String> {
    let first = || std::env::args_os().next().unwrap_or_default().to_string_lossy().into_owned();
    Ok(kept.map_or_else(first, str::to_owned))
}

cfg_if::cfg_if! {
    if #[cfg(any(target_os = "linux", target_os = "android"))] {
        /// The name of the first thread is the process's. Its file takes any length, of which
        /// the kernel keeps 15 bytes; without the NUL an empty title would be no write at all.
        pub(crate) fn set(title: &str) -> io::Result<()> {
            std::fs::write("/proc/self/comm", format!("{title}\0"))?;
            // The command line needs a privilege: without, the name is what there is.
            let _ = set_command_line(title);
            Ok(())
        }

        /// Tells the kernel that the command line is elsewhere: in memory that is kept for
        /// ever, since others may be reading it through `/proc` at any time.
        fn set_command_line(title: &str) -> io::Result<()> {
            let memory = memory_for(title)?;
            let end = memory.addr() + title.len() + 1;
            // The start must never lie behind the end: whichever way it goes, one order works.
            let start_first = mm(libc::PR_SET_MM_ARG_START, memory.addr());
            mm(libc::PR_SET_MM_ARG_END, end)?;
            start_first.or_else(|_| mm(libc::PR_SET_MM_ARG_START, memory.addr()))
        }

        /// Memory with the title and a NUL in it. Titles are short and seldom change: what is
        /// large enough is used again, the rest is left as it is.
        fn memory_for(title: &str) -> io::Result<*mut u8> {
            use std::sync::Mutex;
            use std::sync::atomic::{AtomicU8, Ordering};

            static KEPT: Mutex<&[AtomicU8]> = Mutex::new(&[]);
            let mut kept = KEPT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if kept.len() <= title.len() {
                let room = (title.len() + 1).max(256);
                *kept = Vec::leak((0..room).map(|_| AtomicU8::new(0)).collect());
            }
            let bytes = title.bytes().chain([0]);
            kept.iter().zip(bytes).for_each(|(to, byte)| to.store(byte, Ordering::Relaxed));
            Ok(kept.as_ptr().cast_mut().cast())
        }

        fn mm(what: libc::c_int, address: usize) -> io::Result<()> {
            let what = what as libc::c_ulong;
            // SAFETY: the kernel notes an address, and reads there only what is mapped.
            match unsafe { libc::prctl(libc::PR_SET_MM, what, address, 0 as libc::c_ulong, 0 as libc::c_ulong) } {
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
            // SAFETY: the format takes one text, which ends with NUL. The dash leaves the
            // program's name out.
            unsafe { libc::setproctitle(c"-%s".as_ptr(), title.as_ptr()) };
            Ok(())
        }
    }
}
