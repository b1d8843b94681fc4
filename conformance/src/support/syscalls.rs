//! Counting the system calls of a piece of code.
//!
//! ```text
//! let calls = syscalls::count(|| backend.wait(Some(Duration::ZERO), &mut events))?.1;
//! assert!(calls.total() <= 1, "{calls:?}");
//! ```
//!
//! On Linux a tracer inspects every system call of the calling thread between two marks. It is a
//! process (a thread cannot trace its siblings) that shares this one's descriptor table, so that it
//! keeps no descriptor open. Everything that a modelled kernel does between marks of its own counts
//! as one call to that kernel.

use crate::Skip;

#[cfg(not(all(target_os = "linux", not(miri))))]
pub(crate) fn count<R>(_measured: impl FnOnce() -> R) -> Result<(R, Calls), Skip> {
    Err(Skip::because("system calls are counted on Linux only"))
}

#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) use tracer::count;

/// The number of calls of each system call.
#[derive(Clone)]
pub(crate) struct Calls {
    by_number: Box<[u32; NUMBERS]>,
}

/// System call numbers above this are counted together.
const NUMBERS: usize = 512;

impl Calls {
    /// All calls except those that manage memory or read the clock.
    pub(crate) fn total(&self) -> u32 {
        self.counted().map(|(_, count)| count).sum()
    }

    /// The numbers of waiting calls, of reads or receives, and of writes or sends.
    pub(crate) fn by_kind(&self) -> [u32; 3] {
        [WAITS, READS, WRITES].map(|kind| {
            let of_kind = self.counted().filter(|(number, _)| kind.contains(&&*name(*number)));
            of_kind.map(|(_, count)| count).sum()
        })
    }

    fn counted(&self) -> impl Iterator<Item = (usize, u32)> {
        let made = self.by_number.iter().copied().enumerate();
        made.filter(|(number, count)| *count > 0 && !UNCOUNTED.contains(&(*number as libc_long)))
    }
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("calls ")?;
        f.debug_map().entries(self.counted().map(|(number, count)| (name(number), count))).finish()
    }
}

#[allow(non_camel_case_types)]
type libc_long = std::ffi::c_long;

#[cfg(not(target_os = "linux"))]
const UNCOUNTED: [libc_long; 0] = [];

/// Memory management, with the allocator's locks, which threads of other cases may hold; and what a
/// machine may do without a call.
#[cfg(target_os = "linux")]
const UNCOUNTED: [libc_long; 9] = [
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_clock_gettime,
    libc::SYS_restart_syscall,
];

/// Calls that wait, on any backend.
const WAITS: &[&str] = &[
    "poll",
    "ppoll",
    "select",
    "pselect6",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "io_uring_enter",
    "to a modelled kernel",
];

/// Calls that read or receive.
const READS: &[&str] = &["read", "readv", "recvfrom", "recvmsg"];

/// Calls that write or send.
const WRITES: &[&str] = &["write", "writev", "sendto", "sendmsg"];

#[cfg(not(target_os = "linux"))]
fn name(number: usize) -> String {
    format!("#{number}")
}

#[cfg(target_os = "linux")]
fn name(number: usize) -> String {
    const NAMES: [(libc_long, &str); 17] = [
        (libc::SYS_read, "read"),
        (libc::SYS_readv, "readv"),
        (libc::SYS_write, "write"),
        (libc::SYS_writev, "writev"),
        (libc::SYS_close, "close"),
        (libc::SYS_ppoll, "ppoll"),
        (libc::SYS_pselect6, "pselect6"),
        (libc::SYS_epoll_ctl, "epoll_ctl"),
        (libc::SYS_epoll_pwait, "epoll_pwait"),
        (libc::SYS_epoll_pwait2, "epoll_pwait2"),
        (libc::SYS_io_uring_enter, "io_uring_enter"),
        (libc::SYS_io_uring_register, "io_uring_register"),
        (libc::SYS_recvfrom, "recvfrom"),
        (libc::SYS_recvmsg, "recvmsg"),
        (libc::SYS_sendto, "sendto"),
        (libc::SYS_sendmsg, "sendmsg"),
        (libc::SYS_getpriority, "to a modelled kernel"),
    ];
    #[cfg(target_arch = "x86_64")]
    const OLD: [(libc_long, &str); 3] = [
        (libc::SYS_poll, "poll"),
        (libc::SYS_select, "select"),
        (libc::SYS_epoll_wait, "epoll_wait"),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    const OLD: [(libc_long, &str); 0] = [];
    let known = NAMES.iter().chain(&OLD).find(|(known, _)| *known as usize == number);
    known.map_or_else(|| format!("#{number}"), |(_, name)| name.to_string())
}

#[cfg(all(target_os = "linux", not(miri)))]
mod tracer {
    use std::io::{self, PipeReader, PipeWriter, Read};
    use std::os::fd::AsRawFd;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::{mem, ptr};

    use super::*;

    /// A `getpriority` of these non-existent user ids marks the start and the end of counting.
    const START: u64 = 0x7a11_0001;
    const STOP: u64 = 0x7a11_0002;
    /// Calls between these marks, including the marks, count as one call to a modelled kernel.
    const ENTER: u64 = 0x7a11_0003;
    const LEAVE: u64 = 0x7a11_0004;

    /// Runs `measured` on this thread and counts its system calls.
    ///
    /// # Errors
    ///
    /// A skip where this process may not be traced.
    pub(crate) fn count<R>(measured: impl FnOnce() -> R) -> Result<(R, Calls), Skip> {
        let (mut from_tracer, to_us) = io::pipe().expect("a pipe from the tracer");
        let (wait, go) = io::pipe().expect("a pipe to the tracer");
        // SAFETY: `gettid` has no preconditions.
        let thread = unsafe { libc::gettid() };
        let tracer = start(thread, &wait, &to_us);
        // Where Yama restricts tracing, a process may name its tracer.
        // SAFETY: the call takes no pointer, and a failure is harmless.
        unsafe { libc::prctl(libc::PR_SET_PTRACER, tracer as libc::c_ulong, 0, 0, 0) };
        io::Write::write_all(&mut { &go }, b"g").expect("the tracer starts");

        let mut attached = [0; 4];
        from_tracer.read_exact(&mut attached).expect("the tracer's answer");
        let error = i32::from_ne_bytes(attached);
        if error != 0 {
            reap(tracer);
            let error = io::Error::from_raw_os_error(error);
            return Err(Skip::because(format!("this process may not be traced: {error}")));
        }
        mark(START);
        let result = catch_unwind(AssertUnwindSafe(measured));
        mark(STOP);
        let mut counts = [0; NUMBERS * 4];
        from_tracer.read_exact(&mut counts).expect("the tracer's counts");
        reap(tracer);

        let mut by_number = Box::new([0; NUMBERS]);
        for (count, bytes) in by_number.iter_mut().zip(counts.chunks_exact(4)) {
            *count = u32::from_ne_bytes(bytes.try_into().expect("four bytes"));
        }
        Ok((result.unwrap_or_else(|panic| resume_unwind(panic)), Calls { by_number }))
    }

    fn mark(mark: u64) {
        // SAFETY: the call takes no pointer; it fails for these user ids, which is intended.
        unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_USER, mark) };
    }

    /// Starts the tracer of `thread`, with a copy of this memory and a shared descriptor table.
    fn start(thread: libc::pid_t, wait: &PipeReader, to_us: &PipeWriter) -> libc::pid_t {
        let flags = libc::CLONE_FILES | libc::SIGCHLD;
        // SAFETY: without `CLONE_VM` this is a fork: the child has its own copy of the stack, and
        // it makes only system calls until it exits.
        match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
            -1 => panic!("clone: {}", io::Error::last_os_error()),
            0 => trace(thread, wait.as_raw_fd(), to_us.as_raw_fd()),
            pid => pid as libc::pid_t,
        }
    }

    fn reap(tracer: libc::pid_t) {
        // SAFETY: the tracer is our child and not reaped yet; a null status pointer is allowed.
        unsafe { libc::waitpid(tracer, ptr::null_mut(), libc::__WALL) };
    }

    /// The tracer: reports whether it could attach, then its counts.
    fn trace(thread: libc::pid_t, wait: libc::c_int, to_us: libc::c_int) -> ! {
        let mut byte = 0u8;
        // SAFETY: `byte` outlives the call, which writes at most one byte.
        unsafe { libc::read(wait, (&raw mut byte).cast(), 1) };
        let error = attach(thread);
        write_all(to_us, &error.to_ne_bytes());
        if error == 0 {
            let counts = count_until_stop(thread);
            // SAFETY: the array is plain integers, readable as bytes, and the length is its own.
            let bytes = unsafe {
                std::slice::from_raw_parts(counts.as_ptr().cast(), mem::size_of_val(&counts))
            };
            write_all(to_us, bytes);
        }
        // SAFETY: `_exit` has no preconditions.
        unsafe { libc::_exit(0) }
    }

    fn write_all(to_us: libc::c_int, bytes: &[u8]) {
        // A pipe accepts this size atomically.
        // SAFETY: pointer and length are those of `bytes`.
        unsafe { libc::write(to_us, bytes.as_ptr().cast(), bytes.len()) };
    }

    /// Attaches and lets the thread run to its next system call.
    fn attach(thread: libc::pid_t) -> i32 {
        let seize =
            ptrace(libc::PTRACE_SEIZE as usize, thread, 0, libc::PTRACE_O_TRACESYSGOOD as usize);
        if seize != 0 || ptrace(libc::PTRACE_INTERRUPT as usize, thread, 0, 0) != 0 {
            return io::Error::last_os_error().raw_os_error().unwrap_or(libc::EPERM);
        }
        if stopped(thread).is_none() {
            return libc::ESRCH;
        }
        // Kernels before 5.3 have no PTRACE_GET_SYSCALL_INFO.
        let mut info = SyscallInfo::default();
        if syscall_info(thread, &mut info) < 0 {
            let error = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            ptrace(libc::PTRACE_DETACH as usize, thread, 0, 0);
            return error;
        }
        ptrace(libc::PTRACE_SYSCALL as usize, thread, 0, 0);
        0
    }

    fn count_until_stop(thread: libc::pid_t) -> [u32; NUMBERS] {
        let mut counts = [0; NUMBERS];
        let (mut counting, mut modelled) = (false, false);
        while let Some(signal) = stopped(thread) {
            let mut deliver = 0;
            if signal == libc::SIGTRAP | 0x80 {
                let mut info = SyscallInfo::default();
                syscall_info(thread, &mut info);
                if info.op == PTRACE_SYSCALL_INFO_ENTRY {
                    let marked = info.number == libc::SYS_getpriority as u64;
                    match info.args[1] {
                        START if marked => counting = true,
                        STOP if marked => {
                            ptrace(libc::PTRACE_DETACH as usize, thread, 0, 0);
                            break;
                        }
                        LEAVE if marked => modelled = false,
                        _ if modelled || !counting => {}
                        mark => {
                            counts[(info.number as usize).min(NUMBERS - 1)] += 1;
                            modelled = marked && mark == ENTER;
                        }
                    }
                }
            } else if signal != libc::SIGTRAP {
                deliver = signal as usize;
            }
            ptrace(libc::PTRACE_SYSCALL as usize, thread, 0, deliver);
        }
        counts
    }

    /// Waits for the thread's next stop and returns its signal; `None` once the thread has exited.
    fn stopped(thread: libc::pid_t) -> Option<libc::c_int> {
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        let waited = unsafe { libc::waitpid(thread, &mut status, libc::__WALL) };
        (waited == thread && libc::WIFSTOPPED(status)).then(|| libc::WSTOPSIG(status))
    }

    /// C libraries disagree on the type of requests, and not all define this one.
    const PTRACE_GET_SYSCALL_INFO: usize = 0x420e;
    const PTRACE_SYSCALL_INFO_ENTRY: u8 = 1;

    /// The kernel's `struct ptrace_syscall_info`, up to the fields of an entry.
    #[repr(C)]
    #[derive(Default)]
    struct SyscallInfo {
        op: u8,
        pad: [u8; 3],
        arch: u32,
        instruction_pointer: u64,
        stack_pointer: u64,
        number: u64,
        args: [u64; 6],
        /// Newer kernels may fill more.
        rest: [u64; 4],
    }

    fn syscall_info(thread: libc::pid_t, info: &mut SyscallInfo) -> libc::c_long {
        let size = mem::size_of::<SyscallInfo>();
        ptrace(PTRACE_GET_SYSCALL_INFO, thread, size, &raw mut *info as usize)
    }

    fn ptrace(request: usize, thread: libc::pid_t, addr: usize, data: usize) -> libc::c_long {
        // The raw system call: the C library's wrapper is variadic.
        // SAFETY: the thread is a stopped tracee, and `data` points to memory that outlives the
        // call.
        unsafe { libc::syscall(libc::SYS_ptrace, request, thread as usize, addr, data) }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn memory_management_is_not_counted() {
            let ((), calls) = match count(|| {
                for _ in 0..3 {
                    // SAFETY: the call has no preconditions.
                    unsafe { libc::syscall(libc::SYS_getppid) };
                }
                drop(std::hint::black_box(vec![0u8; 64 << 20]));
            }) {
                Ok(counted) => counted,
                Err(skip) => return eprintln!("skip: {}", skip.reason()),
            };
            assert_eq!(calls.by_number[libc::SYS_getppid as usize], 3);
            assert_eq!((calls.total(), calls.by_kind()), (3, [0; 3]), "{calls:?}");
        }

        #[test]
        fn calls_are_counted_by_kind() {
            let (mut reader, mut writer) = io::pipe().expect("a pipe");
            let talk = || {
                let mut memory = [0; 4];
                for piece in [&b"one"[..], b"two"] {
                    io::Write::write_all(&mut writer, piece).expect("a pipe that takes it");
                }
                reader.read(&mut memory).and_then(|_| reader.read(&mut memory)).expect("a piece");
                // SAFETY: zero descriptors are passed, so the null pointer is not read.
                unsafe { libc::poll(ptr::null_mut(), 0, 0) };
            };
            match count(talk) {
                Ok(((), calls)) => assert_eq!(calls.by_kind(), [1, 2, 2], "{calls:?}"),
                Err(skip) => eprintln!("skip: {}", skip.reason()),
            }
        }

        #[test]
        fn a_modelled_kernel_call_counts_once() {
            let call_modelled = || {
                mark(ENTER);
                // SAFETY: the call has no preconditions.
                unsafe { libc::syscall(libc::SYS_getppid) };
                mark(LEAVE);
            };
            match count(|| (0..3).for_each(|_| call_modelled())) {
                Ok(((), calls)) => assert_eq!(calls.total(), 3, "{calls:?}"),
                Err(skip) => eprintln!("skip: {}", skip.reason()),
            }
        }

        #[test]
        fn a_panic_ends_the_trace() {
            for _ in 0..2 {
                let panic = catch_unwind(|| {
                    count(|| resume_unwind(Box::new("on purpose")))
                        .map(|(never, _): (std::convert::Infallible, _)| never)
                });
                match panic {
                    Ok(Err(skip)) => eprintln!("skip: {}", skip.reason()),
                    Ok(Ok(never)) => match never {},
                    Err(panic) => assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose")),
                }
            }
        }
    }
}
