//! A forked child process that runs a part of a case.
//!
//! The child inherits every descriptor of this process, including those of concurrent cases: cases
//! that fork run exclusively.

use std::cell::Cell;
use std::io::{self, PipeReader, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::{Duration, Instant};

use crate::{Loop, Skip, Verdict};

/// Continues a loop in a forked child, or skips with the reason why its backend cannot.
pub(crate) fn after_fork(lp: &mut Loop) -> Verdict {
    match lp.fork() {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            Err(Skip::because(error.to_string()))
        }
        other => {
            other.unwrap_or_else(|error| panic!("fork: {error}"));
            Ok(())
        }
    }
}

/// A child process, killed and reaped when dropped.
#[derive(Debug)]
pub(crate) struct Child {
    pid: libc::pid_t,
    /// The pipe on which the child reports its verdict.
    verdict: PipeReader,
}

impl Child {
    /// Forks a child that runs `body` and exits.
    pub(crate) fn fork(body: impl FnOnce() -> Verdict) -> Child {
        silence_children();
        let (verdict, report) = io::pipe().expect("a pipe to the child");
        // SAFETY: other threads may hold locks that stay locked in the child. The child takes those
        // of the allocator, which `fork` handles; its panics are caught below and print nothing.
        match unsafe { libc::fork() } {
            -1 => panic!("fork: {}", io::Error::last_os_error()),
            0 => {
                drop(verdict);
                run(body, report)
            }
            pid => Child { pid, verdict },
        }
    }

    /// Waits for the child's verdict.
    ///
    /// # Panics
    ///
    /// With the child's message if it failed, or if it does not end in `limit`.
    pub(crate) fn join(mut self, limit: Duration) -> Verdict {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.try_wait() {
                break status;
            }
            assert!(started.elapsed() < limit, "the child hangs: not finished after {limit:?}");
            std::thread::sleep(Duration::from_millis(2));
        };
        let mut output = Vec::new();
        let _ = self.verdict.read_to_end(&mut output);
        let text = |output: &[u8]| String::from_utf8_lossy(output).into_owned();
        match output.split_first() {
            Some((b'P', _)) => Ok(()),
            Some((b'S', reason)) => Err(Skip::because(text(reason))),
            Some((_, message)) => panic!("in the child: {}", text(message)),
            None if libc::WIFSIGNALED(status) => {
                panic!("the child was killed by signal {}", libc::WTERMSIG(status))
            }
            None => panic!("the child ended without a verdict, status {status}"),
        }
    }

    /// Reaps the child and returns its status if it has exited.
    fn try_wait(&mut self) -> Option<libc::c_int> {
        let mut status = 0;
        // SAFETY: the pid is that of our child, which is not reaped yet; `status` outlives the
        // call.
        let reaped = unsafe { libc::waitpid(self.pid, &mut status, libc::WNOHANG) };
        if reaped != self.pid {
            return None;
        }
        self.pid = 0;
        Some(status)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.pid != 0 {
            // SAFETY: the pid is that of our child; it is not reaped, so the number is not reused.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            // SAFETY: as above; a null status pointer is allowed.
            unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
        }
    }
}

fn run(body: impl FnOnce() -> Verdict, mut report: impl Write) -> ! {
    IN_CHILD.set(true);
    // If the parent is killed, a child that hangs must end by itself.
    // SAFETY: `alarm` has no preconditions; the signal ends this process.
    unsafe { libc::alarm(crate::run::TIME_LIMIT.as_secs() as libc::c_uint) };
    let (kind, text) = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => (b'P', String::new()),
        Ok(Err(skip)) => (b'S', skip.reason().into()),
        Err(panic) => (b'F', crate::run::message(&*panic)),
    };
    let _ = report.write_all(&[&[kind], text.as_bytes()].concat());
    // SAFETY: `_exit` has no preconditions; the handlers that `exit` would run belong to the
    // parent.
    unsafe { libc::_exit(libc::c_int::from(kind == b'F')) }
}

thread_local! {
    static IN_CHILD: Cell<bool> = const { Cell::new(false) };
}

/// Panics in a child are reported to its parent. Printing them could deadlock: another thread may
/// have held the lock of the standard error stream during the fork.
fn silence_children() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IN_CHILD.get() {
                print(info);
            }
        }));
    });
}
