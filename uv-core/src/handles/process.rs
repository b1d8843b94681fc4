//! Process handles: run a child, be told of its end.
//!
//! A child's end comes to the loop in one of two ways. Where the kernel has descriptors of
//! processes (Linux), the child's is a source like others, readable from its end on. Elsewhere
//! a note is left: by the handler of `SIGCHLD`, or by a thread of Windows'. Only children of
//! handles are ever waited for.

mod command;
mod stdio;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;

use poll_core::{Backend, Ready, Token};

use crate::arena::Arena;
use crate::callback::Once;
use crate::handles::Base;
use crate::notify::{Notes, Notifier};
use crate::signum::SIGKILL;
use crate::sources::Owner;
use crate::sys::{self, Child, ExitWatch, Reaper};
use crate::{Loop, error};

pub use command::Command;
#[cfg(windows)]
pub(crate) use command::Environment;
pub(crate) use command::Flags as CommandFlags;
pub use stdio::{PipeFlags, Stdio};

/// A child process.
///
/// It runs from [`spawn`](Process::spawn) on. The handle is active until the child has ended,
/// which the callback is told; then it is to be closed. A child whose handle is closed before,
/// or whose loop is dropped, runs on, and is nobody's: it leaves no zombie.
///
/// ```
/// use uv_core::{Command, Handle, Loop, Process, RunMode};
///
/// let mut lp = Loop::with_default_backend()?;
/// let command = Command::new("rustc").arg("--version");
/// # #[cfg(windows)]
/// # let command = Command::new("cmd.exe").arg("/C").arg("exit 0");
/// let process = Process::spawn(&mut lp, &command, |lp, process, exit| {
///     println!("it has ended: {}", exit.unwrap());
///     process.close(lp).unwrap();
/// })?;
/// println!("it has number {}", process.pid(&lp)?);
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Process(pub(crate) Token);

/// How a child has ended.
///
/// ```
/// use uv_core::{Command, Exit, Handle, Loop, Process, RunMode};
///
/// let mut lp = Loop::with_default_backend()?;
/// let command = Command::new("rustc").arg("--version");
/// # #[cfg(windows)]
/// # let command = Command::new("cmd.exe").arg("/C").arg("exit 0");
/// Process::spawn(&mut lp, &command, |lp, process, exit| {
///     let exit: Exit = exit.unwrap();
///     assert!(exit.success());
///     assert_eq!(exit.to_string(), "code 0");
///     process.close(lp).unwrap();
/// })?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Exit {
    /// What it returned; zero if a signal has ended it.
    pub code: i64,
    /// The signal that has ended it. On Windows, the one of [`Process::kill`].
    pub signal: Option<i32>,
}

impl Exit {
    /// True if the child says that all went well.
    pub fn success(self) -> bool {
        self == Exit { code: 0, signal: None }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.signal {
            Some(signal) => write!(f, "signal {signal}"),
            None => write!(f, "code {}", self.code),
        }
    }
}

/// How a child has ended, and of which handle.
type Ended = (Process, io::Result<Exit>);

pub(crate) struct ProcessSlot<B: Backend> {
    pub(crate) base: Base,
    pid: u32,
    /// Gone once it has ended.
    child: Option<Child>,
    /// The registration of its descriptor; without one, notes tell of its end.
    source: Option<Token>,
    callback: Option<Once<B, Ended>>,
}

impl<B: Backend> fmt::Debug for ProcessSlot<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessSlot").field("pid", &self.pid).finish_non_exhaustive()
    }
}

/// The processes of a loop.
#[derive(Debug)]
pub(crate) struct Processes<B: Backend> {
    pub(crate) slots: Arena<ProcessSlot<B>>,
    watch: ExitWatch,
    /// Those who have ended and were not told. A panic that cuts the telling short leaves
    /// the rest.
    ended: VecDeque<Ended>,
    /// Waits for the children whose handles are gone.
    reaper: Reaper,
}

impl<B: Backend> Processes<B> {
    pub(crate) fn new(notifier: Arc<Notifier>) -> Processes<B> {
        Processes {
            slots: Arena::default(),
            watch: ExitWatch::new(notifier),
            ended: VecDeque::new(),
            reaper: Reaper::default(),
        }
    }
}

impl<B: Backend> Drop for Processes<B> {
    fn drop(&mut self) {
        for (_, slot) in self.slots.iter_mut() {
            if let Some(child) = slot.child.take() {
                if slot.source.is_none() {
                    self.watch.release();
                }
                self.reaper.adopt(child);
            }
        }
    }
}

impl Process {
    /// Runs a program, and calls `callback` when it has ended.
    ///
    /// The callback gets an error if how the child ended is not known, because something else
    /// in this process has waited for it, or has `SIGCHLD` ignored (`ECHILD`).
    ///
    /// On Unix the child has default signal handlers and no signal blocked. The time that it
    /// takes to start one does not depend on how much memory this process has, except where
    /// `uid`, `gid`, `detached` or `current_dir` need a `fork`, which is not so on Linux.
    ///
    /// # Errors
    ///
    /// What keeps the program from running is told at once: that it is not there or may not be
    /// run, that the directory is not there, that descriptors or processes have run out. Then
    /// there is no handle, no child and no pipe. `InvalidInput` for a name, an argument or a
    /// variable with a NUL in it; `NotFound` for a stale key of a stream, `NotConnected` for a
    /// stream without connection, `ResourceBusy` for a pipe that has one; `Unsupported` for what
    /// this system cannot do.
    pub fn spawn<B: Backend>(
        lp: &mut Loop<B>,
        command: &Command<'_>,
        callback: impl FnOnce(&mut Loop<B>, Process, io::Result<Exit>) + 'static,
    ) -> io::Result<Process> {
        let given = lp.prepare_stdio(&command.stdio)?;
        let (child, is_prepared) = lp.start_child(command, &given.ends)?;
        let pid = child.pid();
        let base = lp.new_base();
        let told = move |lp: &mut Loop<B>, (process, exit)| callback(lp, process, exit);
        let process = Process(lp.processes.slots.insert(ProcessSlot {
            base,
            pid,
            child: Some(child),
            source: None,
            callback: Some(Once::new(told)),
        }));
        match lp.watch_child(process, is_prepared) {
            Ok(()) => {
                lp.open_made_pipes(given, pid);
                Ok(process)
            }
            Err(error) => {
                lp.disown_child(process);
                Err(error)
            }
        }
    }

    /// The number of the process, also when it has ended: then another may have it.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key.
    pub fn pid<B: Backend>(self, lp: &Loop<B>) -> io::Result<u32> {
        lp.processes.slots.get(self.0).map(|slot| slot.pid).ok_or_else(error::stale)
    }

    /// Sends a signal to the child. Number 0 sends none, and tells whether it is there.
    ///
    /// On Windows `SIGINT`, `SIGTERM` and `SIGKILL` end the process, and others are
    /// `Unsupported`.
    ///
    #[cfg_attr(unix, doc = "```")]
    #[cfg_attr(not(unix), doc = "```ignore")]
    /// use uv_core::{Command, Handle, Loop, Process, RunMode, signum};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let command = Command::new("sleep").arg("1000");
    /// let process = Process::spawn(&mut lp, &command, |lp, process, exit| {
    ///     assert_eq!(exit.unwrap().signal, Some(signum::SIGKILL));
    ///     assert!(process.kill(lp, signum::SIGKILL).is_err(), "it is gone");
    ///     process.close(lp).unwrap();
    /// })?;
    /// process.kill(&mut lp, signum::SIGKILL)?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key; no such process (`ESRCH`; on Windows `NotFound`) once it
    /// has ended, whoever has its number now; `InvalidInput` for what is no signal, and the
    /// kernel's.
    pub fn kill<B: Backend>(self, lp: &mut Loop<B>, signum: i32) -> io::Result<()> {
        let slot = lp.processes.slots.get_mut(self.0).ok_or_else(error::stale)?;
        slot.child.as_mut().ok_or_else(sys::no_such_process)?.kill(signum)
    }
}

/// Sends a signal to a process, by its number, as [`Process::kill`] does.
///
/// On Unix zero and negative numbers mean process groups, see `kill(2)`; on Windows zero means
/// this process.
///
/// ```
/// let this = std::process::id() as i32;
/// uv_core::kill(this, 0)?; // It is there.
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// As of [`Process::kill`].
pub fn kill(pid: i32, signum: i32) -> io::Result<()> {
    sys::kill(pid, signum)
}

/// Sees to it that children do not inherit the descriptors that this process has inherited
/// itself, unless they are given to them.
///
/// To be called early: what is opened by others later is their affair. Everything that this
/// crate opens is closed in children by itself.
///
/// ```
/// uv_core::disable_stdio_inheritance();
/// ```
pub fn disable_stdio_inheritance() {
    sys::disable_stdio_inheritance();
}

impl<B: Backend> Loop<B> {
    /// Starts a child; true if notes will tell of its end.
    fn start_child(
        &mut self,
        command: &Command<'_>,
        ends: &[sys::ChildEnd],
    ) -> io::Result<(Child, bool)> {
        if Child::has_source(command) {
            return Child::spawn(command, ends).map(|child| (child, false));
        }
        // Before the child is there, so that its end is not missed.
        self.processes.watch.prepare()?;
        match Child::spawn(command, ends) {
            Ok(child) => Ok((child, true)),
            Err(error) => {
                self.processes.watch.release();
                Err(error)
            }
        }
    }

    /// Has the loop told of the child's end.
    fn watch_child(&mut self, process: Process, is_prepared: bool) -> io::Result<()> {
        let Some(slot) = self.processes.slots.get_mut(process.0) else { return Ok(()) };
        slot.base.start(&mut self.active_handles);
        let Some(child) = &mut slot.child else { return Ok(()) };
        if is_prepared {
            return self.processes.watch.begin(child, process.0);
        }
        if let Some(raw) = child.source()
            && let Ok(source) = self.watch_for(Owner::Process(process), raw, Ready::READ)
        {
            if let Some(slot) = self.processes.slots.get_mut(process.0) {
                slot.source = Some(source);
            }
            return Ok(());
        }
        // There are no more descriptors, or the backend has no room for one: then it goes as
        // without.
        self.processes.watch.prepare()?;
        // It may have ended meanwhile. If waking fails that is found when the loop next looks.
        drop(self.notifier.notify(Notes::CHILD));
        Ok(())
    }

    /// A child that cannot be watched is not to run.
    fn disown_child(&mut self, process: Process) {
        let Some(slot) = self.processes.slots.remove(process.0) else { return };
        let mut base = slot.base;
        base.stop(&mut self.active_handles);
        if let Some(mut child) = slot.child {
            let _ = child.kill(SIGKILL);
            self.processes.reaper.adopt(child);
        }
    }

    /// The descriptor of a child is readable: it has ended.
    pub(crate) fn process_ready(&mut self, process: Process) {
        if let Some(exit) = self.end_of(process.0) {
            self.tell_end(process, exit);
        }
    }

    /// Calls back for the children that have ended; returns how many those were.
    pub(crate) fn run_ended_children(&mut self) -> usize {
        let mut over = Vec::new();
        let all = self.processes.watch.take(&mut over);
        if all {
            let slots = self.processes.slots.iter();
            over.extend(slots.filter(|(_, slot)| slot.source.is_none()).map(|(key, _)| key));
        }
        // All are waited for before any is told, so that none is missed if one panics.
        for key in over {
            if let Some(exit) = self.end_of(key) {
                self.processes.ended.push_back((Process(key), exit));
            }
        }
        let mut told = 0;
        while let Some((process, exit)) = self.processes.ended.pop_front() {
            told += 1;
            let again = NotifyOnPanic { lp: self };
            again.lp.tell_end(process, exit);
            std::mem::forget(again);
        }
        told
    }

    /// How a child has ended, if it has. Then it is gone, and its number may be another's.
    fn end_of(&mut self, key: Token) -> Option<io::Result<Exit>> {
        let exit = self.processes.slots.get_mut(key)?.child.as_mut()?.try_wait()?;
        drop(self.stop_watching_child(Process(key)));
        Some(exit)
    }

    /// The handle stops, and its callback is told.
    fn tell_end(&mut self, process: Process, exit: io::Result<Exit>) {
        let Some(slot) = self.processes.slots.get_mut(process.0) else { return };
        slot.base.stop(&mut self.active_handles);
        if let Some(callback) = slot.callback.take() {
            callback.call(self, (process, exit));
        }
    }

    /// Takes the child out of its slot, and ends the watch.
    fn stop_watching_child(&mut self, process: Process) -> Option<Child> {
        let slot = self.processes.slots.get_mut(process.0)?;
        let child = slot.child.take()?;
        match slot.source.take() {
            Some(source) => self.unwatch(source),
            None => self.processes.watch.release(),
        }
        Some(child)
    }

    /// In a forked child the children are the parent's: their handles are told so.
    pub(crate) fn forget_children(&mut self) {
        self.processes.reaper.forget();
        let keys: Vec<_> = self.processes.slots.iter().map(|(key, _)| key).collect();
        for process in keys.into_iter().map(Process) {
            if self.stop_watching_child(process).is_some() {
                self.processes.ended.push_back((process, Err(sys::not_our_child())));
            }
        }
    }

    /// Closing: a child that runs is nobody's from now on.
    pub(crate) fn stop_process(&mut self, process: Process) {
        if let Some(child) = self.stop_watching_child(process) {
            self.processes.reaper.adopt(child);
        }
        if let Some(slot) = self.processes.slots.get_mut(process.0) {
            // Last: dropping what it captured may be anything.
            drop(slot.callback.take());
        }
    }
}

/// The rest of those who have ended must not wait for more to end.
struct NotifyOnPanic<'a, B: Backend> {
    lp: &'a mut Loop<B>,
}

impl<B: Backend> Drop for NotifyOnPanic<'_, B> {
    fn drop(&mut self) {
        // If waking fails the rest is found when the loop next looks.
        let _ = self.lp.notifier.notify(Notes::CHILD);
    }
}
