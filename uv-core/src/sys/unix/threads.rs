//! CPU affinity, priority and name of threads.

use std::io;
use std::marker::PhantomData;
use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;

use crate::system::ThreadPriority;

pub(crate) use affinity::{affinity, current_cpu, set_affinity};
pub(crate) use names::{name, set_name};
pub(crate) use priorities::{priority, set_priority};

cfg_if::cfg_if! {
    if #[cfg(any(target_os = "linux", target_os = "android"))] {
        /// A thread, by its number in the kernel.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Thread<'a>(libc::pid_t, PhantomData<&'a ()>);

        impl<'a> Thread<'a> {
            pub(crate) fn current() -> Thread<'a> {
                // SAFETY: takes no pointer.
                Thread(unsafe { libc::syscall(libc::SYS_gettid) } as libc::pid_t, PhantomData)
            }

            /// The thread of a handle; `ESRCH` if it has ended.
            ///
            /// The C library has its number, and no portable call to get it but this: the clock of
            /// a thread is its number and three bits for the kind of clock (linux/posix-timers.h).
            /// The library's own calls use a number of 0 for a thread that has ended, which is the
            /// calling thread.
            pub(crate) fn of<T>(handle: &'a JoinHandle<T>) -> io::Result<Thread<'a>> {
                unsafe extern "C" {
                    fn pthread_getcpuclockid(
                        thread: libc::pthread_t,
                        clock: *mut libc::clockid_t,
                    ) -> libc::c_int;
                }
                let (thread, mut clock) = (handle.as_pthread_t() as libc::pthread_t, 0);
                // SAFETY: `handle` keeps the thread from being joined or detached, so that its
                // identity is valid; the call writes to a local.
                let failed = unsafe { pthread_getcpuclockid(thread, &mut clock) };
                match !(clock >> 3) {
                    number if failed == 0 && number > 0 => Ok(Thread(number, PhantomData)),
                    _ => Err(io::Error::from_raw_os_error(libc::ESRCH)),
                }
            }
        }
    } else {
        /// A thread that runs, or that was not joined.
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct Thread<'a>(libc::pthread_t, PhantomData<&'a ()>);

        impl<'a> Thread<'a> {
            pub(crate) fn current() -> Thread<'a> {
                // SAFETY: takes no pointer.
                Thread(unsafe { libc::pthread_self() }, PhantomData)
            }

            /// The thread of a handle, which keeps its identity valid.
            pub(crate) fn of<T>(handle: &'a JoinHandle<T>) -> io::Result<Thread<'a>> {
                Ok(Thread(handle.as_pthread_t() as libc::pthread_t, PhantomData))
            }
        }
    }
}

/// Sets of processors as bitmaps of words.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
mod bits {
    use std::io;

    const BITS: usize = usize::BITS as usize;

    pub(super) fn to_list(words: &[usize]) -> Vec<usize> {
        let is_set = |cpu: &usize| words[cpu / BITS] >> (cpu % BITS) & 1 == 1;
        (0..words.len() * BITS).filter(is_set).collect()
    }

    /// A bitmap of at least `words` words.
    pub(super) fn from_list(cpus: &[usize], words: usize) -> io::Result<Vec<usize>> {
        /// More processors than any kernel supports.
        const MAX_CPUS: usize = 1 << 16;
        let highest = cpus.iter().copied().max().unwrap_or(0);
        if cpus.is_empty() || highest >= MAX_CPUS {
            let why = "the set of processors is empty or has a number above 65535";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut map = vec![0; words.max(highest / BITS + 1)];
        cpus.iter().for_each(|cpu| map[cpu / BITS] |= 1 << (cpu % BITS));
        Ok(map)
    }
}

cfg_if::cfg_if! {
    if #[cfg(any(target_os = "linux", target_os = "android"))] {
        mod affinity {
            use std::io;

            use super::{Thread, bits};

            pub(crate) fn affinity(thread: Thread<'_>) -> io::Result<Vec<usize>> {
                // The kernel refuses (EINVAL) a bitmap that is smaller than its own.
                let mut words = vec![0; 16];
                loop {
                    let size = size_of_val(&words[..]);
                    // SAFETY: writes at most `size` bytes, the size of `words`.
                    match unsafe {
                        libc::sched_getaffinity(thread.0, size, words.as_mut_ptr().cast())
                    } {
                        -1 => {
                            let error = io::Error::last_os_error();
                            if error.kind() != io::ErrorKind::InvalidInput || words.len() > 1024 {
                                return Err(error);
                            }
                            words.resize(words.len() * 2, 0);
                        }
                        _ => return Ok(bits::to_list(&words)),
                    }
                }
            }

            pub(crate) fn set_affinity(thread: Thread<'_>, cpus: &[usize]) -> io::Result<()> {
                let words = bits::from_list(cpus, 1)?;
                let size = size_of_val(&words[..]);
                // SAFETY: reads `size` bytes, the size of `words`.
                match unsafe { libc::sched_setaffinity(thread.0, size, words.as_ptr().cast()) } {
                    -1 => Err(io::Error::last_os_error()),
                    _ => Ok(()),
                }
            }

            pub(crate) fn current_cpu() -> io::Result<usize> {
                // SAFETY: takes no pointer.
                match unsafe { libc::sched_getcpu() } {
                    -1 => Err(io::Error::last_os_error()),
                    cpu => Ok(cpu as usize),
                }
            }
        }
    } else if #[cfg(target_os = "freebsd")] {
        mod affinity {
            use std::io;

            use super::{Thread, bits, check};

            const SIZE: usize = size_of::<libc::cpuset_t>();
            const WORDS: usize = SIZE / size_of::<usize>();

            pub(crate) fn affinity(thread: Thread<'_>) -> io::Result<Vec<usize>> {
                let mut words = [0_usize; WORDS];
                let to = words.as_mut_ptr().cast();
                // SAFETY: writes at most `SIZE` bytes, the size of `words`; the thread is valid.
                check(unsafe { libc::pthread_getaffinity_np(thread.0, SIZE, to) })?;
                Ok(bits::to_list(&words))
            }

            pub(crate) fn set_affinity(thread: Thread<'_>, cpus: &[usize]) -> io::Result<()> {
                let words = bits::from_list(cpus, WORDS)?;
                let size = size_of_val(&words[..]);
                // SAFETY: reads `size` bytes, the size of `words`; the thread is valid.
                check(unsafe {
                    libc::pthread_setaffinity_np(thread.0, size, words.as_ptr().cast())
                })
            }

            pub(crate) fn current_cpu() -> io::Result<usize> {
                // SAFETY: takes no pointer.
                match unsafe { libc::sched_getcpu() } {
                    -1 => Err(io::Error::last_os_error()),
                    cpu => Ok(cpu as usize),
                }
            }
        }
    } else if #[cfg(target_os = "netbsd")] {
        mod affinity {
            use std::io;

            use super::{Thread, check};
            use crate::system::unsupported;

            /// Owns a set that `_cpuset_create` has allocated.
            struct Set(*mut libc::cpuset_t);

            impl Set {
                fn new() -> io::Result<Set> {
                    // SAFETY: takes no pointer.
                    let set = unsafe { libc::_cpuset_create() };
                    if set.is_null() { Err(io::Error::last_os_error()) } else { Ok(Set(set)) }
                }

                fn size(&self) -> usize {
                    // SAFETY: `Set::new` allocated the set, and only `drop` frees it.
                    unsafe { libc::_cpuset_size(self.0) }
                }
            }

            impl Drop for Set {
                fn drop(&mut self) {
                    // SAFETY: `Set::new` allocated the set, and only this frees it.
                    unsafe { libc::_cpuset_destroy(self.0) };
                }
            }

            pub(crate) fn affinity(thread: Thread<'_>) -> io::Result<Vec<usize>> {
                let set = Set::new()?;
                // SAFETY: writes the set, which has the size passed and stays allocated in `set`;
                // the thread is valid.
                check(unsafe { libc::pthread_getaffinity_np(thread.0, set.size(), set.0) })?;
                // SAFETY: reads the set, which `set` keeps; a number beyond it returns -1.
                let is_set = |cpu: &usize| unsafe { libc::_cpuset_isset(*cpu as _, set.0) } > 0;
                let cpus: Vec<usize> = (0..set.size() * 8).filter(is_set).collect();
                if !cpus.is_empty() {
                    return Ok(cpus);
                }
                // A thread without an affinity has an empty set and runs on any processor.
                Ok((0..std::thread::available_parallelism()?.get()).collect())
            }

            pub(crate) fn set_affinity(thread: Thread<'_>, cpus: &[usize]) -> io::Result<()> {
                let set = Set::new()?;
                for &cpu in cpus {
                    // SAFETY: changes the set, which `set` keeps; a number beyond it returns -1.
                    if unsafe { libc::_cpuset_set(cpu as _, set.0) } == -1 {
                        return Err(io::Error::last_os_error());
                    }
                }
                // SAFETY: reads the set, which has the size passed and stays allocated in `set`;
                // the thread is valid.
                check(unsafe { libc::pthread_setaffinity_np(thread.0, set.size(), set.0) })
            }

            pub(crate) fn current_cpu() -> io::Result<usize> {
                Err(unsupported("the processor that a thread runs on"))
            }
        }
    } else {
        mod affinity {
            use std::io;

            use super::Thread;
            use crate::system::unsupported;

            pub(crate) fn affinity(_: Thread<'_>) -> io::Result<Vec<usize>> {
                Err(unsupported("the CPU affinity of a thread"))
            }

            pub(crate) fn set_affinity(_: Thread<'_>, _: &[usize]) -> io::Result<()> {
                let why = "this system has no CPU affinity of threads";
                Err(io::Error::new(io::ErrorKind::Unsupported, why))
            }

            pub(crate) fn current_cpu() -> io::Result<usize> {
                Err(unsupported("the processor that a thread runs on"))
            }
        }
    }
}

cfg_if::cfg_if! {
    if #[cfg(any(target_os = "linux", target_os = "android"))] {
        /// Priorities by the nice value, which Linux has per thread (POSIX: per process).
        mod priorities {
            use super::*;
            use crate::sys::system::{process_priority, set_process_priority};

            const NICE: [(ThreadPriority, i32); 5] = [
                (ThreadPriority::Highest, -20),
                (ThreadPriority::AboveNormal, -7),
                (ThreadPriority::Normal, 0),
                (ThreadPriority::BelowNormal, 10),
                (ThreadPriority::Lowest, 19),
            ];

            pub(crate) fn priority(thread: Thread<'_>) -> io::Result<ThreadPriority> {
                let nice = process_priority(thread.0 as u32)?;
                let below = NICE.iter().find(|(_, least)| nice <= *least);
                Ok(below.map_or(ThreadPriority::Lowest, |(priority, _)| *priority))
            }

            pub(crate) fn set_priority(
                thread: Thread<'_>,
                priority: ThreadPriority,
            ) -> io::Result<()> {
                let nice = NICE.iter().find(|(of, _)| *of == priority).map_or(0, |(_, nice)| *nice);
                set_process_priority(thread.0 as u32, nice)
            }
        }
    } else {
        /// Priorities by the position in the range of the thread's scheduling policy.
        mod priorities {
            use std::mem::MaybeUninit;

            use super::*;

            const ORDER: [ThreadPriority; 5] = [
                ThreadPriority::Lowest,
                ThreadPriority::BelowNormal,
                ThreadPriority::Normal,
                ThreadPriority::AboveNormal,
                ThreadPriority::Highest,
            ];

            /// The thread's policy, its parameters, and the lowest and highest priority.
            fn scheduling(
                thread: Thread<'_>,
            ) -> io::Result<(libc::c_int, libc::sched_param, i32, i32)> {
                let (mut policy, mut param) = (0, MaybeUninit::uninit());
                // SAFETY: writes the policy and the parameters, to locals of their types; the
                // thread is valid.
                check(unsafe {
                    libc::pthread_getschedparam(thread.0, &mut policy, param.as_mut_ptr())
                })?;
                // SAFETY: takes no pointer.
                let least = unsafe { libc::sched_get_priority_min(policy) };
                // SAFETY: takes no pointer.
                let most = unsafe { libc::sched_get_priority_max(policy) };
                // SAFETY: the call has succeeded, so it has written the value.
                Ok((policy, unsafe { param.assume_init() }, least, most.max(least)))
            }

            pub(crate) fn priority(thread: Thread<'_>) -> io::Result<ThreadPriority> {
                let (_, param, least, most) = scheduling(thread)?;
                if most == least {
                    return Ok(ThreadPriority::Normal);
                }
                let place = (param.sched_priority - least) * 4 + (most - least) / 2;
                Ok(ORDER[(place / (most - least)).clamp(0, 4) as usize])
            }

            pub(crate) fn set_priority(
                thread: Thread<'_>,
                priority: ThreadPriority,
            ) -> io::Result<()> {
                let (policy, mut param, least, most) = scheduling(thread)?;
                let place = ORDER.iter().position(|of| *of == priority).unwrap_or(2) as i32;
                param.sched_priority = least + (most - least) * place / 4;
                // SAFETY: reads the parameters, an initialised local; the thread is valid.
                check(unsafe { libc::pthread_setschedparam(thread.0, policy, &param) })
            }
        }
    }
}

mod names {
    use std::ffi::CString;

    use super::*;

    /// The buffer size for a name and its NUL; longer names are truncated.
    const NAME_SIZE: usize = 64;

    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn name(thread: Thread<'_>) -> io::Result<String> {
        let mut name = [0_u8; NAME_SIZE];
        if thread.0 != Thread::current().0 {
            // `PR_GET_NAME` is of the calling thread only.
            let name = std::fs::read(format!("/proc/self/task/{}/comm", thread.0));
            let name = name.map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => io::Error::from_raw_os_error(libc::ESRCH),
                _ => error,
            })?;
            return Ok(String::from_utf8_lossy(name.trim_ascii_end()).into_owned());
        }
        // SAFETY: `PR_GET_NAME` writes 16 bytes; `name` has `NAME_SIZE`.
        match unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(crate::sys::system::text(&name)),
        }
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn set_name(name: &str) -> io::Result<()> {
        let name = CString::new(name).map_err(io::Error::other)?;
        // SAFETY: reads a NUL-terminated string, which `CString` guarantees.
        match unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn name(thread: Thread<'_>) -> io::Result<String> {
        let mut name = [0_u8; NAME_SIZE];
        cfg_if::cfg_if! {
            if #[cfg(any(target_vendor = "apple", target_os = "netbsd"))] {
                let to = name.as_mut_ptr().cast();
                // SAFETY: writes at most `NAME_SIZE` bytes, the size of `name`; the thread is valid.
                super::check(unsafe { libc::pthread_getname_np(thread.0, to, NAME_SIZE) })?;
            } else {
                let to = name.as_mut_ptr().cast();
                // SAFETY: writes at most `NAME_SIZE` bytes, the size of `name`; the thread is valid.
                unsafe { libc::pthread_get_name_np(thread.0, to, NAME_SIZE) };
            }
        }
        Ok(crate::sys::system::text(&name))
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn set_name(name: &str) -> io::Result<()> {
        let mut name = name.as_bytes().to_vec();
        // NetBSD refuses names of more than 31 bytes; the others accept longer ones.
        name.truncate(if cfg!(target_os = "netbsd") { 31 } else { NAME_SIZE - 1 });
        let name = CString::new(name).map_err(io::Error::other)?;
        cfg_if::cfg_if! {
            if #[cfg(target_vendor = "apple")] {
                // SAFETY: reads a NUL-terminated string, which `CString` guarantees.
                super::check(unsafe { libc::pthread_setname_np(name.as_ptr()) })
            } else {
                // SAFETY: takes no pointer.
                let thread = unsafe { libc::pthread_self() };
                cfg_if::cfg_if! {
                    if #[cfg(target_os = "netbsd")] {
                        let to = name.as_ptr().cast_mut().cast();
                        // SAFETY: the format takes one string; both are NUL-terminated.
                        super::check(unsafe {
                            libc::pthread_setname_np(thread, c"%s".as_ptr(), to)
                        })
                    } else {
                        // SAFETY: reads a NUL-terminated string, which `CString` guarantees.
                        unsafe { libc::pthread_set_name_np(thread, name.as_ptr()) };
                        Ok(())
                    }
                }
            }
        }
    }
}

/// The result of a function that returns its error number.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn check(code: libc::c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}
