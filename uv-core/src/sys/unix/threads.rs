//! The calling thread.

use std::io;

use crate::system::ThreadPriority;

pub(crate) use affinity::{affinity, current_cpu, set_affinity};
pub(crate) use names::{name, set_name};
pub(crate) use priorities::{priority, set_priority};

/// Sets of processors are maps of bits, in words.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
mod bits {
    use std::io;

    const BITS: usize = usize::BITS as usize;

    pub(super) fn to_list(words: &[usize]) -> Vec<usize> {
        let is_set = |cpu: &usize| words[cpu / BITS] >> (cpu % BITS) & 1 == 1;
        (0..words.len() * BITS).filter(is_set).collect()
    }

    /// A map of at least `words` words.
    pub(super) fn from_list(cpus: &[usize], words: usize) -> io::Result<Vec<usize>> {
        /// More processors than any kernel knows.
        const MOST: usize = 1 << 16;
        let highest = cpus.iter().copied().max().unwrap_or(0);
        if cpus.is_empty() || highest >= MOST {
            let why = "a thread needs a processor to run on, and there is none of these";
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

            use super::bits;

            pub(crate) fn affinity() -> io::Result<Vec<usize>> {
                // A kernel that knows more processors than there is room for says so.
                let mut words = vec![0; 16];
                loop {
                    let size = size_of_val(&words[..]);
                    // SAFETY: writes no more than the size given.
                    match unsafe { libc::sched_getaffinity(0, size, words.as_mut_ptr().cast()) } {
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

            pub(crate) fn set_affinity(cpus: &[usize]) -> io::Result<()> {
                let words = bits::from_list(cpus, 1)?;
                let size = size_of_val(&words[..]);
                // SAFETY: reads as much as the size given.
                match unsafe { libc::sched_setaffinity(0, size, words.as_ptr().cast()) } {
                    -1 => Err(io::Error::last_os_error()),
                    _ => Ok(()),
                }
            }

            pub(crate) fn current_cpu() -> io::Result<usize> {
                // SAFETY: no memory is passed.
                match unsafe { libc::sched_getcpu() } {
                    -1 => Err(io::Error::last_os_error()),
                    cpu => Ok(cpu as usize),
                }
            }
        }
    } else if #[cfg(target_os = "freebsd")] {
        mod affinity {
            use std::io;

            use super::{bits, check};

            const SIZE: usize = size_of::<libc::cpuset_t>();
            const WORDS: usize = SIZE / size_of::<usize>();

            pub(crate) fn affinity() -> io::Result<Vec<usize>> {
                let mut words = [0_usize; WORDS];
                // SAFETY: no memory is passed.
                let thread = unsafe { libc::pthread_self() };
                let to = words.as_mut_ptr().cast();
                // SAFETY: writes no more than the size given.
                check(unsafe { libc::pthread_getaffinity_np(thread, SIZE, to) })?;
                Ok(bits::to_list(&words))
            }

            pub(crate) fn set_affinity(cpus: &[usize]) -> io::Result<()> {
                let words = bits::from_list(cpus, WORDS)?;
                // SAFETY: no memory is passed.
                let thread = unsafe { libc::pthread_self() };
                let size = size_of_val(&words[..]);
                // SAFETY: reads as much as the size given.
                check(unsafe { libc::pthread_setaffinity_np(thread, size, words.as_ptr().cast()) })
            }

            pub(crate) fn current_cpu() -> io::Result<usize> {
                // SAFETY: no memory is passed.
                match unsafe { libc::sched_getcpu() } {
                    -1 => Err(io::Error::last_os_error()),
                    cpu => Ok(cpu as usize),
                }
            }
        }
    } else if #[cfg(target_os = "netbsd")] {
        mod affinity {
            use std::io;

            use super::check;
            use crate::system::unsupported;

            /// A set of the C library's, freed with this.
            struct Set(*mut libc::cpuset_t);

            impl Set {
                fn new() -> io::Result<Set> {
                    // SAFETY: no memory is passed.
                    let set = unsafe { libc::_cpuset_create() };
                    if set.is_null() { Err(io::Error::last_os_error()) } else { Ok(Set(set)) }
                }

                fn size(&self) -> usize {
                    // SAFETY: the set is valid.
                    unsafe { libc::_cpuset_size(self.0) }
                }
            }

            impl Drop for Set {
                fn drop(&mut self) {
                    // SAFETY: made by `_cpuset_create`, and freed once.
                    unsafe { libc::_cpuset_destroy(self.0) };
                }
            }

            pub(crate) fn affinity() -> io::Result<Vec<usize>> {
                let set = Set::new()?;
                // SAFETY: no memory is passed.
                let thread = unsafe { libc::pthread_self() };
                // SAFETY: writes the set, of its size.
                check(unsafe { libc::pthread_getaffinity_np(thread, set.size(), set.0) })?;
                // SAFETY: the set is valid, and numbers beyond it are refused.
                let is_set = |cpu: &usize| unsafe { libc::_cpuset_isset(*cpu as _, set.0) } > 0;
                let cpus: Vec<usize> = (0..set.size() * 8).filter(is_set).collect();
                if !cpus.is_empty() {
                    return Ok(cpus);
                }
                // A thread that was never bound has an empty set, and runs anywhere.
                Ok((0..std::thread::available_parallelism()?.get()).collect())
            }

            pub(crate) fn set_affinity(cpus: &[usize]) -> io::Result<()> {
                let set = Set::new()?;
                for &cpu in cpus {
                    // SAFETY: the set is valid, and numbers beyond it are refused.
                    if unsafe { libc::_cpuset_set(cpu as _, set.0) } == -1 {
                        return Err(io::Error::last_os_error());
                    }
                }
                // SAFETY: no memory is passed.
                let thread = unsafe { libc::pthread_self() };
                // SAFETY: reads the set, of its size.
                check(unsafe { libc::pthread_setaffinity_np(thread, set.size(), set.0) })
            }

            pub(crate) fn current_cpu() -> io::Result<usize> {
                Err(unsupported("on which processor a thread runs"))
            }
        }
    } else {
        mod affinity {
            use std::io;

            use crate::system::unsupported;

            pub(crate) fn affinity() -> io::Result<Vec<usize>> {
                Err(unsupported("on which processors a thread may run"))
            }

            pub(crate) fn set_affinity(_: &[usize]) -> io::Result<()> {
                Err(unsupported("threads on which processors to run"))
            }

            pub(crate) fn current_cpu() -> io::Result<usize> {
                Err(unsupported("on which processor a thread runs"))
            }
        }
    }
}

cfg_if::cfg_if! {
    if #[cfg(any(target_os = "linux", target_os = "android"))] {
        /// By the thread's own nice value, which Linux has and POSIX does not.
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

            fn thread_id() -> u32 {
                // SAFETY: no memory is passed.
                unsafe { libc::syscall(libc::SYS_gettid) as u32 }
            }

            pub(crate) fn priority() -> io::Result<ThreadPriority> {
                let nice = process_priority(thread_id())?;
                let below = NICE.iter().find(|(_, least)| nice <= *least);
                Ok(below.map_or(ThreadPriority::Lowest, |(priority, _)| *priority))
            }

            pub(crate) fn set_priority(priority: ThreadPriority) -> io::Result<()> {
                let nice = NICE.iter().find(|(of, _)| *of == priority).map_or(0, |(_, nice)| *nice);
                set_process_priority(thread_id(), nice)
            }
        }
    } else {
        /// By the place in the range of the thread's policy.
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

            /// The thread's policy, its parameters, and the least and most of them.
            fn scheduling() -> io::Result<(libc::c_int, libc::sched_param, i32, i32)> {
                let (mut policy, mut param) = (0, MaybeUninit::uninit());
                // SAFETY: no memory is passed.
                let thread = unsafe { libc::pthread_self() };
                // SAFETY: writes the policy and the parameters.
                check(unsafe {
                    libc::pthread_getschedparam(thread, &mut policy, param.as_mut_ptr())
                })?;
                // SAFETY: no memory is passed.
                let least = unsafe { libc::sched_get_priority_min(policy) };
                // SAFETY: no memory is passed.
                let most = unsafe { libc::sched_get_priority_max(policy) };
                // SAFETY: written by the call above.
                Ok((policy, unsafe { param.assume_init() }, least, most.max(least)))
            }

            pub(crate) fn priority() -> io::Result<ThreadPriority> {
                let (_, param, least, most) = scheduling()?;
                if most == least {
                    return Ok(ThreadPriority::Normal);
                }
                let place = (param.sched_priority - least) * 4 + (most - least) / 2;
                Ok(ORDER[(place / (most - least)).clamp(0, 4) as usize])
            }

            pub(crate) fn set_priority(priority: ThreadPriority) -> io::Result<()> {
                let (policy, mut param, least, most) = scheduling()?;
                let place = ORDER.iter().position(|of| *of == priority).unwrap_or(2) as i32;
                param.sched_priority = least + (most - least) * place / 4;
                // SAFETY: no memory is passed.
                let thread = unsafe { libc::pthread_self() };
                // SAFETY: reads the parameters.
                check(unsafe { libc::pthread_setschedparam(thread, policy, &param) })
            }
        }
    }
}

mod names {
    use std::ffi::CString;

    use super::*;

    /// The longest that is asked for; longer ones are cut off.
    const ROOM: usize = 64;

    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn name() -> io::Result<String> {
        let mut name = [0_u8; ROOM];
        // SAFETY: writes 16 bytes.
        match unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(crate::sys::system::text(&name)),
        }
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn set_name(name: &str) -> io::Result<()> {
        let name = CString::new(name).map_err(io::Error::other)?;
        // SAFETY: reads a text that ends with NUL.
        match unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn name() -> io::Result<String> {
        let mut name = [0_u8; ROOM];
        // SAFETY: no memory is passed.
        let thread = unsafe { libc::pthread_self() };
        cfg_if::cfg_if! {
            if #[cfg(any(target_vendor = "apple", target_os = "netbsd"))] {
                let to = name.as_mut_ptr().cast();
                // SAFETY: writes no more than the length given.
                super::check(unsafe { libc::pthread_getname_np(thread, to, ROOM) })?;
            } else {
                // SAFETY: writes no more than the length given.
                unsafe { libc::pthread_get_name_np(thread, name.as_mut_ptr().cast(), ROOM) };
            }
        }
        Ok(crate::sys::system::text(&name))
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn set_name(name: &str) -> io::Result<()> {
        let mut name = name.as_bytes().to_vec();
        // What NetBSD keeps is the least; others have room for more.
        name.truncate(if cfg!(target_os = "netbsd") { 31 } else { ROOM - 1 });
        let name = CString::new(name).map_err(io::Error::other)?;
        cfg_if::cfg_if! {
            if #[cfg(target_vendor = "apple")] {
                // SAFETY: reads a text that ends with NUL.
                super::check(unsafe { libc::pthread_setname_np(name.as_ptr()) })
            } else {
                // SAFETY: no memory is passed.
                let thread = unsafe { libc::pthread_self() };
                cfg_if::cfg_if! {
                    if #[cfg(target_os = "netbsd")] {
                        let to = name.as_ptr().cast_mut().cast();
                        // SAFETY: the format takes one text, which ends with NUL.
                        super::check(unsafe {
                            libc::pthread_setname_np(thread, c"%s".as_ptr(), to)
                        })
                    } else {
                        // SAFETY: reads a text that ends with NUL.
                        unsafe { libc::pthread_set_name_np(thread, name.as_ptr()) };
                        Ok(())
                    }
                }
            }
        }
    }
}

/// The error of a function that returns it.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn check(code: libc::c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}
