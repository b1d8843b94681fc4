//! File polls: look at a path now and then, and tell what has changed.
//!
//! ```text
//!          start                        something else, or an error
//!  new ───▶ look ───▶ wait ───▶ look ───▶ call back ───▶ wait ───▶ …
//!             └ the first look is only what others are compared with
//! ```

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use poll_core::{Backend, Token};

use crate::callback::Repeated;
use crate::fs::{self, Stat};
use crate::handles::{Base, Timer, nanoseconds};
use crate::sys;
use crate::{Loop, error};

/// The shortest interval.
const LEAST: Duration = Duration::from_millis(1);

/// Looks at a path every so often, and calls back when what is there has changed.
///
/// It works where nothing tells of changes, as on network file systems, and costs a look
/// every interval. Two changes within one interval are one; what changes and changes back
/// is not seen. The path may have nothing at it, and may come and go.
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
///         // There is nothing yet: make something.
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
pub struct FsPoll(pub(crate) Token);

/// What a callback is told: what was there when there last was something, and what is now.
type Told = (FsPoll, Stat, io::Result<Stat>);

pub(crate) struct FsPollSlot<B: Backend> {
    pub(crate) base: Base,
    /// There while started.
    watch: Option<Box<Watch>>,
    /// `None` while stopped, and while the callback runs.
    callback: Option<Repeated<B, Told>>,
    /// Grows with every start: looks of earlier ones are nobody's.
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
    /// When the last look began, in the loop's time.
    looked_at: Duration,
    /// What was there when there last was something.
    last: Stat,
    found: Found,
}

/// What the last look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// There was none.
    NotYet,
    Something,
    /// This error, which was told.
    Error(io::ErrorKind, Option<i32>),
}

impl FsPoll {
    /// A handle that is not started.
    pub fn new<B: Backend>(lp: &mut Loop<B>) -> FsPoll {
        let base = lp.new_base();
        FsPoll(lp.fs_polls.insert(FsPollSlot { base, watch: None, callback: None, started: 0 }))
    }

    /// Looks at `path` now and then every `interval`, at least a millisecond. Calls `callback`
    /// whenever what is there has changed since the last look, or cannot be looked at: with
    /// what was there when there last was something, and with what is there now. An error is
    /// told once, until there is another, or none.
    ///
    /// Changes are those of what kind of file it is, of its size, owner, permissions, flags and
    /// identity, and of the times of its making, writing and changing.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing or the path has a
    /// NUL in it, `AlreadyExists` if it is started.
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
            return Err(error::already("the handle looks at a path already: stop it first"));
        }
        slot.started += 1;
        lp.look(self, path.as_ref())?;
        let (timer, looked_at) = (Timer::internal(lp), lp.now());
        let Some(slot) = lp.fs_polls.get_mut(self.0) else { return Ok(()) };
        slot.watch = Some(Box::new(Watch {
            path: path.as_ref().into(),
            interval: interval.max(LEAST),
            timer,
            looked_at,
            last: Stat::default(),
            found: Found::NotYet,
        }));
        slot.callback = Some(Repeated::new(move |lp: &mut Loop<B>, (poll, previous, current)| {
            callback(lp, poll, previous, current)
        }));
        slot.base.start(&mut lp.active_handles);
        Ok(())
    }

    /// Stops looking, and drops the callback. A stopped handle stays so.
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
    pub fn stop<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let slot = lp.fs_polls.get_mut(self.0).ok_or_else(error::stale)?;
        slot.base.stop(&mut lp.active_handles);
        let (watch, callback) = (slot.watch.take(), slot.callback.take());
        if let Some(watch) = watch {
            lp.free_internal(watch.timer);
        }
        // Last: dropping what it captured may be anything.
        drop(callback);
        Ok(())
    }

    /// What it looks at.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is not started.
    pub fn path<B: Backend>(self, lp: &Loop<B>) -> io::Result<&Path> {
        let slot = lp.fs_polls.get(self.0).ok_or_else(error::stale)?;
        let watch = slot.watch.as_ref().ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "the handle looks at nothing: start it")
        })?;
        Ok(&watch.path)
    }
}

impl<B: Backend> Loop<B> {
    /// Begins to look at a path.
    fn look(&mut self, poll: FsPoll, path: &Path) -> io::Result<()> {
        let started = self.fs_polls.get(poll.0).map_or(0, |slot| slot.started);
        let seen = move |lp: &mut Loop<B>, stat| lp.looked(poll, started, stat);
        fs::stat(path).start(self, seen).map(drop)
    }

    /// A look has ended: tells what is new, and sets out for the next.
    fn looked(&mut self, poll: FsPoll, started: u64, stat: io::Result<Stat>) {
        let Some(slot) = self.fs_polls.get_mut(poll.0) else { return };
        let Some(watch) = &mut slot.watch else { return };
        if slot.started != started {
            return; // Stopped, and started anew, meanwhile.
        }
        // In a forked child, say, nobody has looked.
        let is_cancelled = |error: &io::Error| error.raw_os_error() == Some(sys::CANCELLED);
        let previous = watch.last;
        let is_news = match &stat {
            Err(error) if is_cancelled(error) => false,
            stat => watch.is_news(stat),
        };
        if let Ok(stat) = stat {
            watch.last = stat;
        }
        if is_news && let Some(callback) = slot.callback.take() {
            self.tell_of_change(started, callback, (poll, previous, stat));
        }
        self.look_later(poll, started);
    }

    fn tell_of_change(&mut self, started: u64, mut callback: Repeated<B, Told>, told: Told) {
        let poll = told.0;
        self.call_with(&mut callback, told, poll, |lp, poll| drop(poll.stop(lp)));
        if let Some(slot) = self.fs_polls.get_mut(poll.0)
            && slot.started == started
            && slot.watch.is_some()
        {
            slot.callback.get_or_insert(callback);
        }
    }

    /// Sets the timer for the next look, unless the handle was stopped.
    fn look_later(&mut self, poll: FsPoll, started: u64) {
        let now = self.now();
        let Some(slot) = self.fs_polls.get(poll.0) else { return };
        let Some(watch) = slot.watch.as_ref().filter(|_| slot.started == started) else { return };
        // The interval is from look to look: less what the last one took, in whole intervals.
        let interval = nanoseconds(watch.interval);
        let took = nanoseconds(now.saturating_sub(watch.looked_at)) % interval;
        let (timer, delay) = (watch.timer, Duration::from_nanos(interval - took));
        let again = timer.start(self, delay, Duration::ZERO, move |lp, _| {
            let now = lp.now();
            let Some(slot) = lp.fs_polls.get_mut(poll.0) else { return };
            let Some(watch) = &mut slot.watch else { return };
            watch.looked_at = now;
            let path = std::mem::take(&mut watch.path);
            let looks = lp.look(poll, &path);
            debug_assert!(looks.is_ok(), "it was looked at before: {looks:?}");
            if let Some(watch) = lp.fs_polls.get_mut(poll.0).and_then(|slot| slot.watch.as_mut()) {
                watch.path = path;
            }
        });
        debug_assert!(again.is_ok(), "the timer is the handle's: {again:?}");
    }
}

impl Watch {
    /// True if it is to be told. Remembers what was found, though not what it was.
    fn is_news(&mut self, stat: &io::Result<Stat>) -> bool {
        let before = self.found;
        match stat {
            Err(error) => {
                self.found = Found::Error(error.kind(), error.raw_os_error());
                self.found != before
            }
            Ok(stat) => {
                self.found = Found::Something;
                match before {
                    Found::NotYet => false,
                    Found::Something => differ(&self.last, stat),
                    Found::Error(..) => true,
                }
            }
        }
    }
}

/// What counts as a change. Reading a file is none, and neither is another name for it.
fn differ(one: &Stat, other: &Stat) -> bool {
    let identity = |stat: &Stat| (stat.dev, stat.ino, stat.generation, stat.born);
    let content = |stat: &Stat| (stat.size, stat.modified, stat.changed);
    let rights = |stat: &Stat| (stat.mode, stat.uid, stat.gid, stat.flags);
    identity(one) != identity(other)
        || content(one) != content(other)
        || rights(one) != rights(other)
}
