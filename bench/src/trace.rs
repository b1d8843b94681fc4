//! Counts the system calls of another process's main thread, by tracing it.
//!
//! Each call then costs two switches to the tracer, so nothing is timed meanwhile.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

/// What a stop at a system call looks like.
const AT_A_CALL: i32 = libc::SIGTRAP | 0x80;
/// C libraries disagree on the type of requests, and not all know this one.
const GET_SYSCALL_INFO: usize = 0x420e;
const ENTRY: u8 = 1;

/// A thread that traces a process until that ends.
#[derive(Debug)]
pub(crate) struct Tracer {
    calls: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Tracer {
    /// Traces a child of this process. From now on its calls are counted.
    ///
    /// # Errors
    ///
    /// The system's, where processes may not be traced.
    pub(crate) fn attach(process: u32) -> io::Result<Tracer> {
        let calls = Arc::new(AtomicU64::new(0));
        let (count, (tell, told)) = (Arc::clone(&calls), mpsc::channel());
        // Whoever attaches must do all the rest.
        let thread = thread::Builder::new().name("tracer".into()).spawn(move || {
            let process = process as libc::pid_t;
            let attached = attach(process);
            let traces = attached.is_ok();
            // Nobody waits for it any more if this fails.
            let _ = tell.send(attached);
            if traces {
                count_calls(process, &count);
            }
        })?;
        told.recv().map_err(|_| io::Error::other("the tracer has ended"))??;
        Ok(Tracer { calls, thread: Some(thread) })
    }

    /// How many calls were made since it was attached.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(SeqCst)
    }

    /// Waits for the end, once the process was told to end.
    pub(crate) fn join(mut self) {
        if let Some(thread) = self.thread.take() {
            // It does not panic; and if, there is nothing left to trace.
            let _ = thread.join();
        }
    }
}

fn attach(process: libc::pid_t) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD as usize;
    ptrace(libc::PTRACE_SEIZE as usize, process, 0, options)?;
    ptrace(libc::PTRACE_INTERRUPT as usize, process, 0, 0)?;
    stopped(process).ok_or_else(|| io::Error::other("the process is gone"))?;
    // Kernels before 5.3 cannot tell what a stop is about.
    is_entry(process)?;
    ptrace(libc::PTRACE_SYSCALL as usize, process, 0, 0)
}

fn count_calls(process: libc::pid_t, calls: &AtomicU64) {
    while let Some(signal) = stopped(process) {
        let mut deliver = 0;
        if signal == AT_A_CALL {
            calls.fetch_add(u64::from(is_entry(process).unwrap_or(false)), SeqCst);
        } else if signal != libc::SIGTRAP {
            deliver = signal as usize;
        }
        if ptrace(libc::PTRACE_SYSCALL as usize, process, 0, deliver).is_err() {
            break;
        }
    }
}

/// Waits for the next stop, and gives its signal; `None` once the process is gone.
fn stopped(process: libc::pid_t) -> Option<i32> {
    let mut status = 0;
    // SAFETY: `status` is valid for writes.
    let waited = unsafe { libc::waitpid(process, &mut status, libc::__WALL) };
    (waited == process && libc::WIFSTOPPED(status)).then(|| libc::WSTOPSIG(status))
}

/// Whether a stopped process is about to make a system call that it has not made before.
fn is_entry(process: libc::pid_t) -> io::Result<bool> {
    // The kernel's `struct ptrace_syscall_info`: the kind is its first byte, and of an entry
    // the number of the call is at the fourth word.
    let mut info = [0_u64; 16];
    let (size, place) = (size_of_val(&info), info.as_mut_ptr() as usize);
    ptrace(GET_SYSCALL_INFO, process, size, place)?;
    let restarted = info[3] == libc::SYS_restart_syscall as u64;
    Ok(info[0].to_ne_bytes()[0] == ENTRY && !restarted)
}

fn ptrace(request: usize, process: libc::pid_t, addr: usize, data: usize) -> io::Result<()> {
    // The raw call: the C library's wrapper is variadic and guesses at types.
    // SAFETY: a child of ours, and memory that outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_ptrace, request, process as usize, addr, data) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
