//! Process handles: spawn a child, and report its exit.
//!
//! The exit reaches the loop in one of two ways. Where the kernel has process descriptors (Linux
//! `pidfd`), the descriptor is a source that becomes readable at the exit. Elsewhere the loop is
//! notified by the handler of `SIGCHLD` or by a system thread of Windows. Only children of
//! handles are reaped.

mod command;
mod stdio;

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use poll_core::{Backend, Interest, Token};

use crate::event_loop::{Notification, Notifier, SourceOwner, exchange};
use crate::handles::{Base, Handle};
use crate::signum::SIGKILL;
use crate::storage::{Arena, InlineFnOnce, Seed};
use crate::sys::{self, Child, ExitWatch, Reaper};
use crate::{Loop, error};

pub use command::Command;
#[cfg(windows)]
pub(crate) use command::Environment;
pub(crate) use command::Flags as CommandFlags;
pub use stdio::{PipeFlags, Stdio};

/// A child process.
///
/// The handle is active from [`spawn`](Process::spawn) until the child exits and the callback
/// runs; close it then. If the handle is closed earlier, or the loop is dropped, the child
/// continues, and is reaped without a callback.
///
/// ```
/// use uv_core::{Command, Handle, Loop, Process, RunMode};
///
/// let mut lp = Loop::with_default_backend()?;
/// let command = Command::new("rustc").arg("--version");
/// # #[cfg(windows)]
/// # let command = Command::new("cmd.exe").arg("/C").arg("exit 0");
/// let process = Process::spawn(&mut lp, &command, |lp, process, exit| {
///     println!("exited with {}", exit.unwrap());
///     process.close(lp).unwrap();
/// })?;
/// println!("process {}", process.pid(&lp)?);
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "uv_process_t")]
pub struct Process(pub(crate) Token);

/// The exit status of a child.
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
// Exhaustive: a wait status has no more, and tests of programs construct it.
pub struct Exit {
    /// The exit code; zero if a signal has terminated the child.
    pub code: i64,
    /// The signal that has terminated the child. On Windows, the signal of [`Process::kill`].
    pub signal: Option<i32>,
}

impl Exit {
    /// True for exit code 0 without a signal.
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

/// A handle and the exit status of its child.
type Exited = (Process, io::Result<Exit>);

pub(crate) struct ProcessSlot<B: Backend> {
    pub(crate) base: Base,
    pid: u32,
    /// `None` once the child has exited.
    child: Option<Child>,
    /// The registration of its `pidfd`; without one, a notification reports the exit.
    source: Option<Token>,
    callback: Option<InlineFnOnce<B, Exited>>,
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
    /// Exits whose callbacks have not run. After a panic, delivery continues here.
    exited: VecDeque<Exited>,
    /// Reaps the children whose handles were closed.
    reaper: Reaper,
}

impl<B: Backend> Processes<B> {
    pub(crate) fn new(seed: Seed, notifier: Arc<Notifier>) -> Processes<B> {
        Processes {
            slots: Arena::new(seed),
            watch: ExitWatch::new(notifier),
            exited: VecDeque::new(),
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
    /// Runs a program, and calls `callback` when it has exited.
    ///
    /// The callback gets an error (`ECHILD`) if the exit status is unknown, because other code of
    /// this process has reaped the child or ignores `SIGCHLD`.
    ///
    /// On Unix the child has default signal handlers and no blocked signals. The time of a spawn
    /// does not depend on the memory size of this process, except on systems other than Linux
    /// where `uid`, `gid`, `detached` or `current_dir` need a `fork`.
    ///
    /// # Errors
    ///
    /// The system's errors, reported immediately: the program does not exist or is not executable,
    /// the directory does not exist, descriptors or processes are exhausted. No handle, child or
    /// pipe is created then. `InvalidInput` for a name, an argument or a variable that contains a
    /// NUL; `NotFound` for a stale key of a stream, `EBADF` for a stream without a socket, `EBUSY`
    /// for a pipe that has one; `Unsupported` for options that this system lacks. They drop the
    /// callback: see [`spawn_with`](Process::spawn_with).
    #[doc(alias = "uv_spawn")]
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn spawn<B: Backend>(
        lp: &mut Loop<B>,
        command: &Command<'_>,
        callback: impl FnOnce(&mut Loop<B>, Process, io::Result<Exit>) + 'static,
    ) -> io::Result<Process> {
        let process = Process::new(lp);
        match process.start(lp, command, false, callback) {
            Ok(()) => Ok(process),
            Err(error) => {
                lp.processes.slots.remove(process.0);
                Err(error)
            }
        }
    }

    /// As [`spawn`](Process::spawn), but the callback gets every error: it runs once, when the child
    /// has exited or because there is none, and closes the handle.
    ///
    /// If the program cannot be run, the [process id](Process::pid) is 0, and the pipes of
    /// [`Stdio::Pipe`] are open and at their end, as by [`spawn_into`](Process::spawn_into).
    ///
    /// ```
    /// use uv_core::{Command, Handle, Loop, Process, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let missing = Command::new("/no/such/program");
    /// let process = Process::spawn_with(&mut lp, &missing, |lp, process, exit| {
    ///     match exit {
    ///         Ok(exit) => println!("it has ended: {exit}"),
    ///         Err(error) => println!("it did not run: {error}"),
    ///     }
    ///     process.close_if_open(lp);
    /// });
    /// assert_eq!(process.pid(&lp)?, 0);
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_spawn")]
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn spawn_with<B: Backend>(
        lp: &mut Loop<B>,
        command: &Command<'_>,
        callback: impl FnOnce(&mut Loop<B>, Process, io::Result<Exit>) + 'static,
    ) -> Process {
        let process = Process::new(lp);
        let callback = Rc::new(Cell::new(Some(callback)));
        let exited = Rc::clone(&callback);
        let started = process.start(lp, command, true, move |lp, process, exit| {
            if let Some(callback) = exited.take() {
                callback(lp, process, exit);
            }
        });
        if let Err(error) = started
            && let Some(callback) = callback.take()
        {
            // A handle that is closed meanwhile calls back no more, as one with a child.
            lp.defer(move |lp| match process.is_closing(lp) {
                true => drop(callback),
                false => callback(lp, process, Err(error)),
            });
        }
        process
    }

    /// A handle without a process: for callers whose handle exists before the program runs.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, Process};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let process = Process::new(&mut lp);
    /// assert!(!process.is_active(&lp));
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_spawn")]
    #[must_use = "the handle exists until it is closed"]
    pub fn new<B: Backend>(lp: &mut Loop<B>) -> Process {
        let base = lp.new_base();
        Process(lp.processes.slots.insert(ProcessSlot {
            base,
            pid: 0,
            child: None,
            source: None,
            callback: None,
        }))
    }

    /// As [`spawn`](Process::spawn), with a handle of [`Process::new`] that had no process yet.
    ///
    /// If the program cannot be run, the handle stays as it is, and the pipes of
    /// [`Stdio::Pipe`] are open and at their end.
    ///
    /// ```
    /// use uv_core::{Command, Loop, Process};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let process = Process::new(&mut lp);
    /// let missing = Command::new("/no/such/program");
    /// assert!(process.spawn_into(&mut lp, &missing, |_, _, _| {}).is_err());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`spawn`](Process::spawn); `NotFound` for a stale key, `InvalidInput` if the handle
    /// is closing, `EBUSY` if it has or had a process.
    #[doc(alias = "uv_spawn")]
    pub fn spawn_into<B: Backend>(
        self,
        lp: &mut Loop<B>,
        command: &Command<'_>,
        callback: impl FnOnce(&mut Loop<B>, Process, io::Result<Exit>) + 'static,
    ) -> io::Result<()> {
        self.start(lp, command, true, callback)
    }

    /// Runs a program. `keeps_pipes` opens the created pipes also if that fails.
    fn start<B: Backend>(
        self,
        lp: &mut Loop<B>,
        command: &Command<'_>,
        keeps_pipes: bool,
        callback: impl FnOnce(&mut Loop<B>, Process, io::Result<Exit>) + 'static,
    ) -> io::Result<()> {
        let slot = lp.processes.slots.get(self.0).ok_or_else(error::stale)?;
        if slot.base.is_closing() {
            return Err(error::closing());
        }
        if slot.pid != 0 {
            return Err(error::busy());
        }
        let given = stdio::prepare(lp, &command.stdio)?;
        let (child, is_prepared) = match lp.processes.start_child(command, &given.ends) {
            Ok(started) => started,
            Err(error) => {
                if keeps_pipes {
                    stdio::open_created_pipes(lp, given, 0);
                }
                return Err(error);
            }
        };
        let pid = child.pid();
        let exited = move |lp: &mut Loop<B>, (process, exit)| callback(lp, process, exit);
        if let Some(slot) = lp.processes.slots.get_mut(self.0) {
            slot.pid = pid;
            slot.child = Some(child);
            slot.callback = Some(InlineFnOnce::new(exited));
        }
        match watch(lp, self, is_prepared) {
            Ok(()) => {
                stdio::open_created_pipes(lp, given, pid);
                Ok(())
            }
            Err(error) => {
                lp.processes.disown(&mut lp.active_handles, self);
                Err(error)
            }
        }
    }

    /// The process id. After the exit, the system may reuse it.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key.
    #[doc(alias = "uv_process_get_pid")]
    pub fn pid<B: Backend>(self, lp: &Loop<B>) -> io::Result<u32> {
        lp.processes.slots.get(self.0).map(|slot| slot.pid).ok_or_else(error::stale)
    }

    /// Sends a signal to the child. Signal 0 only checks whether the child exists.
    ///
    /// On Windows `SIGINT`, `SIGTERM` and `SIGKILL` terminate the process; other signals are
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
    ///     assert!(process.kill(lp, signum::SIGKILL).is_err(), "it has exited");
    ///     process.close(lp).unwrap();
    /// })?;
    /// process.kill(&mut lp, signum::SIGKILL)?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key; `ESRCH` (on Windows `NotFound`) after the exit, even if the id
    /// is reused; `InvalidInput` for an invalid signal number; the kernel's errors.
    #[doc(alias = "uv_process_kill")]
    pub fn kill<B: Backend>(self, lp: &mut Loop<B>, signum: i32) -> io::Result<()> {
        let slot = lp.processes.slots.get_mut(self.0).ok_or_else(error::stale)?;
        slot.child.as_mut().ok_or_else(sys::no_such_process)?.kill(signum)
    }
}

/// Sends a signal to a process by its id, as [`Process::kill`] does.
///
/// On Unix zero and negative ids mean process groups, see `kill(2)`; on Windows zero means this
/// process.
///
/// The id is of any integer type, such as that of [`Process::pid`] and [`std::process::id`].
///
/// ```
/// uv_core::kill(std::process::id(), 0)?; // It exists.
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// As [`Process::kill`], and `InvalidInput` for a number that is no process id.
#[doc(alias = "uv_kill")]
pub fn kill(pid: impl TryInto<i32>, signum: i32) -> io::Result<()> {
    let Ok(pid) = pid.try_into() else {
        let why = "the number is too large for a process id";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    };
    sys::kill(pid, signum)
}

/// Prevents children from inheriting the descriptors that this process has inherited, except those
/// of their [`Stdio`].
///
/// Call it early: descriptors that other code opens later are not affected. Descriptors that this
/// crate opens are never inherited.
///
/// ```
/// uv_core::disable_stdio_inheritance();
/// ```
#[doc(alias = "uv_disable_stdio_inheritance")]
pub fn disable_stdio_inheritance() {
    sys::disable_stdio_inheritance();
}

impl<B: Backend> Processes<B> {
    /// Starts a child; returns true if a notification will report its exit.
    fn start_child(
        &mut self,
        command: &Command<'_>,
        ends: &[sys::ChildEnd],
    ) -> io::Result<(Child, bool)> {
        if Child::has_source(command) {
            return Child::spawn(command, ends).map(|child| (child, false));
        }
        // Before the spawn, so that the exit is not missed.
        self.watch.prepare()?;
        match Child::spawn(command, ends) {
            Ok(child) => Ok((child, true)),
            Err(error) => {
                self.watch.release();
                Err(error)
            }
        }
    }

    /// Kills a child that cannot be watched, and frees its handle.
    fn disown(&mut self, active: &mut usize, process: Process) {
        let Some(slot) = self.slots.get_mut(process.0) else { return };
        slot.base.stop(active);
        let callback = slot.callback.take();
        if let Some(mut child) = slot.child.take() {
            let _ = child.kill(SIGKILL);
            self.reaper.adopt(child);
        }
        // Last: destructors of the captured values may do anything.
        drop(callback);
    }
}

/// Starts to watch for the exit of the child.
fn watch<B: Backend>(lp: &mut Loop<B>, process: Process, is_prepared: bool) -> io::Result<()> {
    let Some(slot) = lp.processes.slots.get_mut(process.0) else { return Ok(()) };
    slot.base.start(&mut lp.active_handles);
    let Some(child) = &mut slot.child else { return Ok(()) };
    if is_prepared {
        return lp.processes.watch.begin(child, process.0);
    }
    if let Some(raw) = child.source()
        && let Ok(source) = lp.watch_for(SourceOwner::Process(process), raw, Interest::READ)
    {
        if let Some(slot) = lp.processes.slots.get_mut(process.0) {
            slot.source = Some(source);
        }
        return Ok(());
    }
    // Descriptors are exhausted, or the backend has no space for a source: fall back to
    // notifications.
    lp.processes.watch.prepare()?;
    // The child may have exited already. If the wake-up fails, the loop finds it at its next
    // iteration.
    drop(lp.notifier.notify(Notification::CHILD));
    Ok(())
}

/// Handles readability of a `pidfd`: the child has exited.
pub(crate) fn ready<B: Backend>(lp: &mut Loop<B>, process: Process) {
    if let Some(exit) = reap(lp, process.0) {
        deliver_exit(lp, process, exit);
    }
}

/// Runs the callbacks of children that have exited; returns the number of calls.
pub(crate) fn run_ended<B: Backend>(lp: &mut Loop<B>) -> usize {
    let mut candidates = Vec::new();
    let all = lp.processes.watch.take(&mut candidates);
    if all {
        let slots = lp.processes.slots.iter();
        candidates.extend(slots.filter(|(_, slot)| slot.source.is_none()).map(|(key, _)| key));
    }
    // All are reaped before the first callback runs, so that none is missed if one panics.
    for key in candidates {
        if let Some(exit) = reap(lp, key) {
            lp.processes.exited.push_back((Process(key), exit));
        }
    }
    let mut called = 0;
    while let Some((process, exit)) = lp.processes.exited.pop_front() {
        called += 1;
        let notifier = Arc::as_ptr(&lp.notifier);
        // After a panic the remaining exits must not wait for another exit.
        let child = Notification::CHILD;
        lp.guarded(child, Loop::notify_itself, |lp| deliver_exit(lp, process, exit));
        if notifier != Arc::as_ptr(&lp.notifier) {
            exchange::note();
        }
    }
    called
}

/// Reaps a child, and returns its exit status if it has exited. The system may reuse its id
/// from then on.
fn reap<B: Backend>(lp: &mut Loop<B>, key: Token) -> Option<io::Result<Exit>> {
    let exit = lp.processes.slots.get_mut(key)?.child.as_mut()?.try_wait()?;
    drop(stop_watching(lp, Process(key)));
    Some(exit)
}

/// Stops the handle and runs its callback.
fn deliver_exit<B: Backend>(lp: &mut Loop<B>, process: Process, exit: io::Result<Exit>) {
    let Some(slot) = lp.processes.slots.get_mut(process.0) else { return };
    slot.base.stop(&mut lp.active_handles);
    if let Some(callback) = slot.callback.take() {
        callback.call(lp, (process, exit));
    }
}

/// Takes the child out of its slot and stops watching it.
fn stop_watching<B: Backend>(lp: &mut Loop<B>, process: Process) -> Option<Child> {
    let slot = lp.processes.slots.get_mut(process.0)?;
    let child = slot.child.take()?;
    match slot.source.take() {
        Some(source) => lp.unwatch(source),
        None => lp.processes.watch.release(),
    }
    Some(child)
}

/// Fails all handles in a forked child: their children belong to the parent.
pub(crate) fn forget_all<B: Backend>(lp: &mut Loop<B>) {
    lp.processes.reaper.forget();
    let keys: Vec<_> = lp.processes.slots.iter().map(|(key, _)| key).collect();
    for process in keys.into_iter().map(Process) {
        if stop_watching(lp, process).is_some() {
            lp.processes.exited.push_back((process, Err(sys::not_our_child())));
        }
    }
}

/// Hands a running child of a closing handle to the reaper.
pub(crate) fn abandon<B: Backend>(lp: &mut Loop<B>, process: Process) {
    if let Some(child) = stop_watching(lp, process) {
        lp.processes.reaper.adopt(child);
    }
    if let Some(slot) = lp.processes.slots.get_mut(process.0) {
        // Last: destructors of the captured values may do anything.
        drop(slot.callback.take());
    }
}
