//! Children: how they are started, waited for and killed.
//!
//! Starting one must not cost more the more memory this process has, so on Linux the child
//! runs in this process's memory until it executes its program, on a stack of its own while
//! this thread is stopped (`start`). What it does there is in `child`, and all that it needs is
//! put together before, in `plan`.

mod child;
mod pidfd;
mod plan;
mod posix;
mod reaper;
mod start;

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use poll_core::{RawSource, Token};
use socket2::{Domain, Socket, Type};

use super::signals::{subscribe, unsubscribe};
use super::{OwnedPipe, Transport};
use crate::handles::{Command, CommandFlags, Exit, PipeFlags};
use crate::mailbox::{Kind, Mailbox};
use crate::notify::{Notes, Notifier};

pub(crate) use reaper::Reaper;

use plan::Plan;

/// What a child has as one of its descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChildEnd {
    /// The null device, or nothing from the fourth on.
    Ignore,
    /// A descriptor of this process, which is open. The first three are made to block.
    Inherit(RawFd),
    /// One that was made for the child.
    Made(RawFd),
}

impl ChildEnd {
    pub(crate) fn standard(number: u8) -> ChildEnd {
        ChildEnd::Inherit(number.into())
    }

    pub(crate) fn of_descriptor(fd: BorrowedFd<'_>) -> ChildEnd {
        ChildEnd::Inherit(fd.as_raw_fd())
    }

    pub(crate) fn of_stream(stream: &Transport) -> io::Result<ChildEnd> {
        Ok(ChildEnd::Inherit(stream.as_raw_fd()))
    }

    pub(crate) fn of_made(end: &OwnedPipe) -> ChildEnd {
        ChildEnd::Made(end.as_raw_fd())
    }
}

/// A pipe: this process's end, and the child's, which blocks unless it is not to.
pub(crate) fn pipe_for_child(flags: PipeFlags) -> io::Result<(Transport, OwnedPipe)> {
    let (ours, theirs) = Socket::pair(Domain::UNIX, Type::STREAM, None)?;
    ours.set_nonblocking(true)?;
    if flags.contains(PipeFlags::NON_BLOCKING) {
        theirs.set_nonblocking(true)?;
    }
    Ok((ours.into(), theirs.into()))
}

/// A child that was not waited for yet.
#[derive(Debug)]
pub(crate) struct Child {
    pid: libc::pid_t,
    /// Its descriptor, where there are such.
    pidfd: Option<OwnedFd>,
}

impl Child {
    /// True if a child of this command will have a [`source`](Child::source).
    pub(crate) fn has_source(command: &Command<'_>) -> bool {
        !command.flags.contains(CommandFlags::WITHOUT_PIDFD) && pidfd::is_possible()
    }

    /// Starts a child.
    pub(crate) fn spawn(command: &Command<'_>, ends: &[ChildEnd]) -> io::Result<Child> {
        let plan = Plan::new(command, ends)?;
        start::start(plan, command.flags, Child::has_source(command))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid as u32
    }

    /// What becomes readable when the child ends.
    pub(crate) fn source(&self) -> Option<RawSource> {
        self.pidfd.as_ref().map(|pidfd| RawSource::from_fd(pidfd.as_raw_fd()))
    }

    /// How the child has ended, if it has. Not to be asked again then: the number may be
    /// another's.
    pub(crate) fn try_wait(&mut self) -> Option<io::Result<Exit>> {
        match &self.pidfd {
            Some(pidfd) => pidfd::try_wait(pidfd.as_fd()),
            None => wait(self.pid, libc::WNOHANG).transpose(),
        }
    }

    pub(crate) fn kill(&mut self, signum: i32) -> io::Result<()> {
        match &self.pidfd {
            Some(pidfd) => pidfd::kill(pidfd.as_fd(), signum),
            // It was not waited for, so the number is still its own.
            None => kill(self.pid, signum),
        }
    }
}

/// Waits for a child; `None` if it has not ended and `flags` say not to wait for that.
fn wait(pid: libc::pid_t, flags: libc::c_int) -> io::Result<Option<Exit>> {
    let mut status = MaybeUninit::uninit();
    loop {
        // SAFETY: the kernel writes one `int`, which lives across the call.
        match unsafe { libc::waitpid(pid, status.as_mut_ptr(), flags) } {
            0 => return Ok(None),
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            // SAFETY: written by the call.
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
    // SAFETY: no memory is passed.
    match unsafe { libc::kill(pid, signum) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// What a process is told of that has ended.
pub(crate) fn no_such_process() -> io::Error {
    io::Error::from_raw_os_error(libc::ESRCH)
}

/// What is told of a child that is another process's.
pub(crate) fn not_our_child() -> io::Error {
    io::Error::from_raw_os_error(libc::ECHILD)
}

/// Marks the descriptors that were inherited as not to be inherited on.
pub(crate) fn disable_stdio_inheritance() {
    // As many as programs usually get, and on as long as there is no gap.
    for fd in 0.. {
        // SAFETY: no memory is passed; a number that is not open is an error.
        let marked = unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        if marked == -1 && fd > 15 {
            return;
        }
    }
}

/// Tells the loop of the ends of children without a descriptor, by `SIGCHLD`.
#[derive(Debug)]
pub(crate) struct ExitWatch {
    notifier: Arc<Notifier>,
    /// Where the signal is told, once it was needed.
    mailbox: Option<Arc<Mailbox>>,
    /// How many children there are; none is no handler.
    children: usize,
}

impl ExitWatch {
    pub(crate) fn new(notifier: Arc<Notifier>) -> ExitWatch {
        ExitWatch { notifier, mailbox: None, children: 0 }
    }

    /// One more child is about to start.
    pub(crate) fn prepare(&mut self) -> io::Result<()> {
        if self.children == 0 {
            let notifier = &self.notifier;
            let mailbox = self
                .mailbox
                .get_or_insert_with(|| Mailbox::new(Arc::clone(notifier), Notes::CHILD));
            subscribe(mailbox, libc::SIGCHLD, Kind::Regular)?;
        }
        self.children += 1;
        Ok(())
    }

    /// It has started.
    pub(crate) fn begin(&mut self, _child: &mut Child, _key: Token) -> io::Result<()> {
        Ok(())
    }

    /// One child less: it has ended, or could not be started.
    pub(crate) fn release(&mut self) {
        self.children -= 1;
        if let Some(mailbox) = &self.mailbox
            && self.children == 0
        {
            // It was subscribed to with the same number, which therefore exists.
            let _ = unsubscribe(mailbox, libc::SIGCHLD, Kind::Regular);
        }
    }

    /// Adds the keys of children that have ended; true if any may have.
    pub(crate) fn take(&mut self, _over: &mut Vec<Token>) -> bool {
        self.children > 0
    }
}
