//! File poll handles: detect changes of a path by periodic `stat`.
//!
//! ```text
//!          start                        changed, or an error
//!  new ───▶ stat ───▶ wait ───▶ stat ───▶ call back ───▶ wait ───▶ …
//!             └ the baseline for later comparisons
//! ```

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use poll_core::{Backend, Token};

use crate::event_loop::exchange;
use crate::fs::{self, Stat};
use crate::handles::{Base, Timer, nanoseconds};
use crate::storage::InlineFnMut;
use crate::sys;
use crate::{Loop, error};

/// The shortest interval.
const MIN_INTERVAL: Duration = Duration::from_millis(1);

/// Calls `stat` on a path periodically, and calls back when the result has changed.
///
/// It works where the system reports no changes, as on network file systems, and costs one `stat`
/// per interval. Several changes within one interval are one; a change that is reverted within an
/// interval is not detected. The path need not exist, and may appear and disappear.
///
/// ```
/// use std::time::Duration;
/// use uv_core::{FsPoll, Handle, Loop, RunMode};
///
/// let path = std::env::temp_dir().join(format!("uv-core-polled-{}", std::process::id()));
/// let mut lp = Loop::with_default_backend()?;
/// let poll = FsPoll::new(&mut lp);
/// poll.start(&mut lp, &path, Duration::from_millis(1), |lp, poll, _previous, current| {
///     match current {
///         // The file does not exist yet: create it.
///         Err(_) => std::fs::write(poll.path(lp).unwrap(), "hello").unwrap(),
///         Ok(stat) => {
///             println!("{} bytes", stat.size);
///             poll.close(lp).unwrap();
///         }
///     }
/// })?;
/// lp.run(RunMode::Default)?;
/// # std::fs::remove_file(path)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "uv_fs_poll_t")]
pub struct FsPoll(pub(crate) Token);

/// The arguments of the callback: the handle, the last successful result, the current result.
type Change = (FsPoll, Stat, io::Result<Stat>);

pub(crate) struct FsPollSlot<B: Backend> {
    pub(crate) base: Base,
    /// `None` while stopped.
    watch: Option<Box<Watch>>,
    /// `None` while stopped, and while the callback runs.
    callback: Option<InlineFnMut<B, Change>>,
    /// Grows with every start: results of earlier starts are ignored.
    started: u64,
}

impl<B: Backend> fmt::Debug for FsPollSlot<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FsPollSlot").field("watch", &self.watch).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Watch {
    path: PathBuf,
    interval: Duration,
    timer: Timer,
    /// When the last `stat` was started, in the loop's time.
    stat_at: Duration,
    /// The last successful result.
    last: Stat,
    outcome: Outcome,
}

/// The outcome of the last `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// No `stat` has completed.
    None,
    Success,
    /// This error, which was delivered.
    Error(io::ErrorKind, Option<i32>),
}

impl FsPoll {
    /// A handle that is not started.
    #[doc(alias = "uv_fs_poll_init")]
    #[must_use = "the handle exists until it is closed"]
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn new<B: Backend>(lp: &mut Loop<B>) -> FsPoll {
        let base = lp.new_base();
        FsPoll(lp.fs_polls.insert(FsPollSlot { base, watch: None, callback: None, started: 0 }))
    }

    /// Calls `stat` on `path` now and after every `interval` (at least a millisecond). Calls
    /// `callback` with the last successful result and the current one whenever these differ, or
    /// `stat` fails. An error is delivered once, until the outcome changes.
    ///
    /// Compared are the file type, size, owner, permissions, flags, identity, and the times of
    /// creation, modification and status change.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing or the path contains a
    /// NUL, `EALREADY` if it is started.
    #[doc(alias = "uv_fs_poll_start")]
    pub fn start<B: Backend>(
        self,
        lp: &mut Loop<B>,
        path: impl AsRef<Path>,
        interval: Duration,
        mut callback: impl FnMut(&mut Loop<B>, FsPoll, Stat, io::Result<Stat>) + 'static,
    ) -> io::Result<()> {
        let slot = lp.fs_polls.get_mut(self.0).ok_or_else(error::stale)?;
        if slot.base.is_closing() {
            return Err(error::closing());
        }
        if slot.watch.is_some() {
            return Err(error::already());
        }
        slot.started += 1;
        start_stat(lp, self, path.as_ref())?;
        let (timer, stat_at) = (Timer::internal(lp), lp.now());
        let Some(slot) = lp.fs_polls.get_mut(self.0) else { return Ok(()) };
        slot.watch = Some(Box::new(Watch {
            path: path.as_ref().into(),
            interval: interval.max(MIN_INTERVAL),
            timer,
            stat_at,
            last: Stat::default(),
            outcome: Outcome::None,
        }));
        slot.callback =
            Some(InlineFnMut::new(move |lp: &mut Loop<B>, (poll, previous, current)| {
                callback(lp, poll, previous, current)
            }));
        slot.base.start(&mut lp.active_handles);
        Ok(())
    }

    /// Stops polling and drops the callback. Does nothing to a stopped handle.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uv_core::{FsPoll, Handle, Loop};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let poll = FsPoll::new(&mut lp);
    /// poll.start(&mut lp, ".", Duration::from_secs(1), |_, _, _, _| println!("changed"))?;
    /// poll.stop(&mut lp)?;
    /// assert!(!poll.is_active(&lp) && poll.path(&lp).is_err());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key.
    #[doc(alias = "uv_fs_poll_stop")]
    pub fn stop<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let slot = lp.fs_polls.get_mut(self.0).ok_or_else(error::stale)?;
        slot.base.stop(&mut lp.active_handles);
        let (watch, callback) = (slot.watch.take(), slot.callback.take());
        if let Some(watch) = watch {
            lp.timers.free_internal(watch.timer);
        }
        // Last: destructors of the captured values may do anything.
        drop(callback);
        Ok(())
    }

    /// The polled path, as given to [`start`](FsPoll::start).
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is not started.
    #[doc(alias = "uv_fs_poll_getpath")]
    pub fn path<B: Backend>(self, lp: &Loop<B>) -> io::Result<&Path> {
        let slot = lp.fs_polls.get(self.0).ok_or_else(error::stale)?;
        let watch = slot.watch.as_ref().ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "the handle has no path: start it first")
        })?;
        Ok(&watch.path)
    }
}

/// Starts a `stat` of the path.
fn start_stat<B: Backend>(lp: &mut Loop<B>, poll: FsPoll, path: &Path) -> io::Result<()> {
    let started = lp.fs_polls.get(poll.0).map_or(0, |slot| slot.started);
    let done = move |lp: &mut Loop<B>, stat| stat_done(lp, poll, started, stat);
    fs::stat(path).start(lp, done).map(drop)
}

/// Handles the result of a `stat`: delivers a change, and schedules the next `stat`.
fn stat_done<B: Backend>(lp: &mut Loop<B>, poll: FsPoll, started: u64, stat: io::Result<Stat>) {
    let Some(slot) = lp.fs_polls.get_mut(poll.0) else { return };
    let Some(watch) = &mut slot.watch else { return };
    if slot.started != started {
        return; // The handle was restarted meanwhile.
    }
    // A cancelled `stat` (in a forked child) is not an outcome.
    let is_cancelled = |error: &io::Error| error.raw_os_error() == Some(sys::CANCELLED);
    let previous = watch.last;
    let changed = match &stat {
        Err(error) if is_cancelled(error) => false,
        stat => watch.record(stat),
    };
    if let Ok(stat) = stat {
        watch.last = stat;
    }
    if changed && let Some(callback) = slot.callback.take() {
        deliver_change(lp, started, callback, (poll, previous, stat));
    }
    schedule_stat(lp, poll, started);
}

fn deliver_change<B: Backend>(
    lp: &mut Loop<B>,
    started: u64,
    mut callback: InlineFnMut<B, Change>,
    change: Change,
) {
    let poll = change.0;
    lp.call_with(&mut callback, change, poll, |lp, poll| drop(poll.stop(lp)));
    match lp.fs_polls.get_mut(poll.0) {
        Some(slot) if slot.started == started && slot.watch.is_some() => {
            slot.callback.get_or_insert(callback);
        }
        Some(_) => {}
        None => exchange::note(),
    }
}

/// Stops the handles whose callbacks an exchange of loops has lost.
#[cold]
pub(crate) fn check_all<B: Backend>(lp: &mut Loop<B>) {
    let lost = |slot: &FsPollSlot<B>| slot.watch.is_some() && slot.callback.is_none();
    let keys = lp.fs_polls.iter().filter(|(_, slot)| lost(slot)).map(|(key, _)| key);
    let keys: Vec<_> = keys.collect();
    keys.into_iter().for_each(|key| drop(FsPoll(key).stop(lp)));
}

/// Starts the timer for the next `stat`, unless the handle was stopped.
fn schedule_stat<B: Backend>(lp: &mut Loop<B>, poll: FsPoll, started: u64) {
    let now = lp.now();
    let Some(slot) = lp.fs_polls.get(poll.0) else { return };
    let Some(watch) = slot.watch.as_ref().filter(|_| slot.started == started) else { return };
    // The interval is from start to start: subtract the time that the last `stat` took,
    // modulo the interval.
    let interval = nanoseconds(watch.interval);
    let took = nanoseconds(now.saturating_sub(watch.stat_at)) % interval;
    let (timer, delay) = (watch.timer, Duration::from_nanos(interval - took));
    let again = timer.start(lp, delay, Duration::ZERO, move |lp, _| {
        let now = lp.now();
        let Some(slot) = lp.fs_polls.get_mut(poll.0) else { return };
        let Some(watch) = &mut slot.watch else { return };
        watch.stat_at = now;
        let path = std::mem::take(&mut watch.path);
        let started = start_stat(lp, poll, &path);
        debug_assert!(started.is_ok(), "the first `stat` of the path started: {started:?}");
        if let Some(watch) = lp.fs_polls.get_mut(poll.0).and_then(|slot| slot.watch.as_mut()) {
            watch.path = path;
        }
    });
    debug_assert!(again.is_ok(), "the handle owns the timer: {again:?}");
}

impl Watch {
    /// Records the outcome of a `stat`; returns true if it is to be delivered.
    fn record(&mut self, stat: &io::Result<Stat>) -> bool {
        let before = self.outcome;
        match stat {
            Err(error) => {
                self.outcome = Outcome::Error(error.kind(), error.raw_os_error());
                self.outcome != before
            }
            Ok(stat) => {
                self.outcome = Outcome::Success;
                match before {
                    Outcome::None => false,
                    Outcome::Success => differ(&self.last, stat),
                    Outcome::Error(..) => true,
                }
            }
        }
    }
}

/// True if two results differ. The access time and the number of links are not compared.
fn differ(one: &Stat, other: &Stat) -> bool {
    let identity = |stat: &Stat| (stat.dev, stat.ino, stat.generation, stat.created);
    let content = |stat: &Stat| (stat.size, stat.modified, stat.changed);
    let rights = |stat: &Stat| (stat.mode, stat.uid, stat.gid, stat.flags);
    identity(one) != identity(other)
        || content(one) != content(other)
        || rights(one) != rights(other)
}
