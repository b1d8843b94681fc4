//! Counts the system calls of another process with `ptrace(2)`: those of its main thread while it
//! serves, or those of all threads from start to exit.
//!
//! Each traced call costs two context switches, so nothing is timed during a trace.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

/// The stop signal at a system call.
const AT_A_CALL: i32 = libc::SIGTRAP | 0x80;
/// Not every C library defines this request, and their types differ.
const GET_SYSCALL_INFO: usize = 0x420e;
const ENTRY: u8 = 1;

/// A thread that traces a process until it exits.
#[derive(Debug)]
pub(crate) struct Tracer {
    calls: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Tracer {
    /// Attaches to a child of this process and starts counting its calls.
    ///
    /// # Errors
    ///
    /// That of `ptrace(2)`, where tracing is not permitted.
    pub(crate) fn attach(process: u32) -> io::Result<Tracer> {
        let calls = Arc::new(AtomicU64::new(0));
        let (count, (report, attachment)) = (Arc::clone(&calls), mpsc::channel());
        // Only the thread that attached can make further requests.
        let thread = thread::Builder::new().name("tracer".into()).spawn(move || {
            let process = process as libc::pid_t;
            let attached = attach(process);
            let traces = attached.is_ok();
            // Fails only if the receiver was dropped.
            let _ = report.send(attached);
            if traces {
                count_calls(process, &count);
            }
        })?;
        attachment.recv().map_err(|_| io::Error::other("the tracer thread has exited"))??;
        Ok(Tracer { calls, thread: Some(thread) })
    }

    /// The number of calls since the attachment.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(SeqCst)
    }

    /// Waits for the exit of the process, which must have been killed before.
    pub(crate) fn join(mut self) {
        if let Some(thread) = self.thread.take() {
            // The thread does not panic, and the result of a panic would not matter.
            let _ = thread.join();
        }
    }
}

/// Runs a program until it exits, and counts the system calls of all its threads.
///
/// # Errors
///
/// That of `ptrace(2)`, where tracing is not permitted, and an error if the program fails.
pub(crate) fn count_all(command: &mut Command) -> io::Result<u64> {
    let trace_me = || ptrace(libc::PTRACE_TRACEME as usize, 0, 0, 0);
    // SAFETY: the closure makes one system call, which is async-signal-safe.
    let child = unsafe { command.pre_exec(trace_me) }.spawn()?;
    let main = child.id() as libc::pid_t;
    // A traced program stops once at `execve`.
    stopped(main).ok_or_else(|| io::Error::other("the traced program did not start"))?;
    let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
    ptrace(libc::PTRACE_SETOPTIONS as usize, main, 0, options as usize)?;
    ptrace(libc::PTRACE_SYSCALL as usize, main, 0, 0)?;
    let mut calls = 0;
    loop {
        let mut status = 0;
        // `__WNOTHREAD`: other threads of this process may wait for their own children.
        // SAFETY: `status` is valid for writes.
        let thread = unsafe { libc::waitpid(-1, &mut status, libc::__WALL | libc::__WNOTHREAD) };
        if thread < 0 {
            return Err(io::Error::last_os_error());
        }
        if libc::WIFSTOPPED(status) {
            let signal = libc::WSTOPSIG(status);
            if signal == AT_A_CALL {
                calls += u64::from(is_entry(thread)?);
            }
            // A new thread starts with SIGSTOP, and its creator stops with SIGTRAP.
            let own = [AT_A_CALL, libc::SIGTRAP, libc::SIGSTOP].contains(&signal);
            let deliver = if own { 0 } else { signal as usize };
            // The thread may exit before it is resumed; its exit status follows.
            let _ = ptrace(libc::PTRACE_SYSCALL as usize, thread, 0, deliver);
        } else if thread == main {
            let ended = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
            let why = || io::Error::other(format!("the program failed (status {status:#x})"));
            return ended.then_some(calls).ok_or_else(why);
        }
    }
}

fn attach(process: libc::pid_t) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD as usize;
    ptrace(libc::PTRACE_SEIZE as usize, process, 0, options)?;
    ptrace(libc::PTRACE_INTERRUPT as usize, process, 0, 0)?;
    stopped(process).ok_or_else(|| io::Error::other("the traced process has exited"))?;
    // `PTRACE_GET_SYSCALL_INFO` needs Linux 5.3.
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

/// Waits for the next stop, and returns its signal; `None` once the process has exited.
fn stopped(process: libc::pid_t) -> Option<i32> {
    let mut status = 0;
    // SAFETY: `status` is valid for writes.
    let waited = unsafe { libc::waitpid(process, &mut status, libc::__WALL) };
    (waited == process && libc::WIFSTOPPED(status)).then(|| libc::WSTOPSIG(status))
}

/// Whether a stopped process is at the entry of a new system call.
fn is_entry(process: libc::pid_t) -> io::Result<bool> {
    // `struct ptrace_syscall_info`: the first byte is the kind; for an entry, the fourth word is
    // the number of the call.
    let mut info = [0_u64; 16];
    let (size, place) = (size_of_val(&info), info.as_mut_ptr() as usize);
    ptrace(GET_SYSCALL_INFO, process, size, place)?;
    let restarted = info[3] == libc::SYS_restart_syscall as u64;
    Ok(info[0].to_ne_bytes()[0] == ENTRY && !restarted)
}

fn ptrace(request: usize, process: libc::pid_t, addr: usize, data: usize) -> io::Result<()> {
    // The raw call: the C library's wrapper is variadic.
    // SAFETY: the pointer and the size describe memory that outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_ptrace, request, process as usize, addr, data) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
