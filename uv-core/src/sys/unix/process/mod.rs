//! Child processes: starting, waiting and killing.
//!
//! The cost of a start must not grow with the memory of this process. On Linux the child therefore
//! shares this process's memory until `execve`, on a stack of its own, while the starting thread is
//! suspended (`start`). The code that the child runs is in `child`; all its data are prepared
//! before, in `plan`.

mod child;
mod pidfd;
mod plan;
mod posix_spawn;
mod reaper;
mod start;

use std::io::{self, IsTerminal};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use poll_core::{RawSource, Token};
use socket2::{Domain, Socket, Type};

use super::signals::{subscribe, unsubscribe};
use super::{OwnedPipe, Transport};
use crate::event_loop::{Notification, Notifier};
use crate::handles::{Command, CommandFlags, Exit, Kind, PendingSignals, PipeFlags};

pub(crate) use reaper::Reaper;

use plan::Plan;

/// The source of one of the child's descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChildEnd {
    /// The null device for the standard streams; closed from descriptor 3 on.
    Ignore,
    /// An open descriptor of this process. The standard streams are made blocking, for all
    /// processes that share the open file description.
    Inherit(RawFd),
    /// A descriptor that goes to the child unchanged.
    Made(RawFd),
}

impl ChildEnd {
    pub(crate) fn standard(number: u8) -> ChildEnd {
        ChildEnd::Inherit(number.into())
    }

    pub(crate) fn of_descriptor(fd: BorrowedFd<'_>) -> ChildEnd {
        ChildEnd::Inherit(fd.as_raw_fd())
    }

    /// The child's end of a stream of the loop, and the descriptor that was opened for it, if any:
    /// that one stays open until the child runs.
    ///
    /// Most programs expect standard streams that block, but `O_NONBLOCK` belongs to the open file
    /// description, which the loop shares. The loop's calls on a connection have `MSG_DONTWAIT`,
    /// so that a connection may block. The calls on pipes have no such flag, nor has `accept`:
    /// a pipe is opened once more where the kernel can do that, and stays non-blocking elsewhere,
    /// as listeners do.
    pub(crate) fn of_stream(
        stream: &Transport,
        listens: bool,
    ) -> io::Result<(ChildEnd, Option<OwnedPipe>)> {
        let fd = stream.as_raw_fd();
        if listens {
            return Ok((ChildEnd::Made(fd), None));
        }
        if stream.is_socket() || stream.as_fd().is_terminal() {
            return Ok((ChildEnd::Inherit(fd), None));
        }
        let own = reopen(fd);
        let end = own.as_ref().map_or(fd, |own| own.as_raw_fd());
        Ok((ChildEnd::Made(end), own))
    }

    pub(crate) fn of_made(end: &OwnedPipe) -> ChildEnd {
        ChildEnd::Made(end.as_raw_fd())
    }
}

/// Another open file description of the same pipe, which blocks; `None` where the kernel has none.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn reopen(fd: RawFd) -> Option<OwnedPipe> {
    use std::fs::OpenOptions;
    use std::os::unix::fs::OpenOptionsExt;

    // SAFETY: `fcntl` takes no pointer here; a closed descriptor is an error.
    let access = unsafe { libc::fcntl(fd, libc::F_GETFL) } & libc::O_ACCMODE;
    let reads = access != libc::O_WRONLY;
    let writes = access != libc::O_RDONLY;
    let mut options = OpenOptions::new();
    // Without the flag, opening an end of a named pipe would wait for the other end.
    options.read(reads).write(writes).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(format!("/proc/self/fd/{fd}")).ok()?;
    // SAFETY: `fcntl` takes no pointer here; a closed descriptor is an error.
    let blocking = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, 0) };
    (blocking != -1).then(|| file.into())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn reopen(_fd: RawFd) -> Option<OwnedPipe> {
    None
}

/// A pipe: the end of this process, and the end of the child, which is blocking unless `flags`
/// contain `NON_BLOCKING`.
pub(crate) fn pipe_for_child(flags: PipeFlags) -> io::Result<(Transport, OwnedPipe)> {
    let (ours, theirs) = Socket::pair(Domain::UNIX, Type::STREAM, None)?;
    ours.set_nonblocking(true)?;
    if flags.contains(PipeFlags::NON_BLOCKING) {
        theirs.set_nonblocking(true)?;
    }
    Ok((ours.into(), theirs.into()))
}

/// A child that was not reaped yet.
#[derive(Debug)]
pub(crate) struct Child {
    pid: libc::pid_t,
    /// Its process descriptor, on systems that have them.
    pidfd: Option<OwnedFd>,
}

impl Child {
    /// True if a child of this command gets a [`source`](Child::source).
    pub(crate) fn has_source(command: &Command<'_>) -> bool {
        !command.flags.contains(CommandFlags::WITHOUT_PIDFD) && pidfd::is_supported()
    }

    /// Starts a child.
    pub(crate) fn spawn(command: &Command<'_>, ends: &[ChildEnd]) -> io::Result<Child> {
        let plan = Plan::new(command, ends)?;
        start::start(plan, command.flags, Child::has_source(command))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// A descriptor that becomes readable when the child exits.
    pub(crate) fn source(&self) -> Option<RawSource> {
        self.pidfd.as_ref().map(|pidfd| RawSource::from_fd(pidfd.as_raw_fd()))
    }

    /// Reaps the child if it has exited. Must not be called again after that: the process ID may
    /// have been reused.
    pub(crate) fn try_wait(&mut self) -> Option<io::Result<Exit>> {
        match &self.pidfd {
            Some(pidfd) => pidfd::try_wait(pidfd.as_fd()),
            None => wait(self.pid, libc::WNOHANG).transpose(),
        }
    }

    pub(crate) fn kill(&mut self, signum: i32) -> io::Result<()> {
        match &self.pidfd {
            Some(pidfd) => pidfd::kill(pidfd.as_fd(), signum),
            // The child was not reaped, so its process ID is not reused.
            None => kill(self.pid, signum),
        }
    }
}

/// Waits for a child; `None` if it is running and `flags` contain `WNOHANG`.
fn wait(pid: libc::pid_t, flags: libc::c_int) -> io::Result<Option<Exit>> {
    let mut status = MaybeUninit::uninit();
    loop {
        // SAFETY: writes one `int`, to a local of that type.
        match unsafe { libc::waitpid(pid, status.as_mut_ptr(), flags) } {
            0 => return Ok(None),
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            // SAFETY: `waitpid` has returned a process, so it has written the status.
            _ => return Ok(Some(exit_of(unsafe { status.assume_init() }))),
        }
    }
}

fn exit_of(status: libc::c_int) -> Exit {
    if libc::WIFSIGNALED(status) {
        return Exit { code: 0, signal: Some(libc::WTERMSIG(status)) };
    }
    Exit { code: libc::WEXITSTATUS(status).into(), signal: None }
}

pub(crate) fn kill(pid: i32, signum: i32) -> io::Result<()> {
    // SAFETY: takes no pointer.
    match unsafe { libc::kill(pid, signum) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The error for signalling a process that has exited.
pub(crate) fn no_such_process() -> io::Error {
    io::Error::from_raw_os_error(libc::ESRCH)
}

/// The error for a child of another process: after a fork, children stay the parent's.
pub(crate) fn not_our_child() -> io::Error {
    io::Error::from_raw_os_error(libc::ECHILD)
}

/// Sets close-on-exec for the descriptors that this process has inherited.
pub(crate) fn disable_stdio_inheritance() {
    // As libuv: the first 16 descriptors, and then up to the first that is not open.
    for fd in 0.. {
        // SAFETY: takes no pointer; a descriptor that is not open is an error.
        let marked = unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        if marked == -1 && fd > 15 {
            return;
        }
    }
}

/// Notifies the loop of exits of children without a process descriptor, by `SIGCHLD`.
#[derive(Debug)]
pub(crate) struct ExitWatch {
    notifier: Arc<Notifier>,
    /// Receives the signal. Created for the first child, and kept.
    mailbox: Option<Arc<PendingSignals>>,
    /// The number of such children. The signal is subscribed to while it is not 0.
    children: usize,
}

impl ExitWatch {
    pub(crate) fn new(notifier: Arc<Notifier>) -> ExitWatch {
        ExitWatch { notifier, mailbox: None, children: 0 }
    }

    /// Counts a child that is about to start.
    pub(crate) fn prepare(&mut self) -> io::Result<()> {
        if self.children == 0 {
            let notifier = &self.notifier;
            let mailbox = self.mailbox.get_or_insert_with(|| {
                PendingSignals::new(Arc::clone(notifier), Notification::CHILD)
            });
            subscribe(mailbox, libc::SIGCHLD, Kind::Regular)?;
        }
        self.children += 1;
        Ok(())
    }

    /// Does nothing: `SIGCHLD` needs no registration of a child that has started.
    pub(crate) fn begin(&mut self, _child: &mut Child, _key: Token) -> io::Result<()> {
        Ok(())
    }

    /// Uncounts a child that has exited or could not be started.
    pub(crate) fn release(&mut self) {
        self.children -= 1;
        if let Some(mailbox) = &self.mailbox
            && self.children == 0
        {
            // Fails for an invalid signal number only, which `prepare` has excluded.
            let _ = unsubscribe(mailbox, libc::SIGCHLD, Kind::Regular);
        }
    }

    /// True if any child may have exited. `SIGCHLD` does not name the child, so no key is added.
    pub(crate) fn take(&mut self, _over: &mut Vec<Token>) -> bool {
        self.children > 0
    }
}
