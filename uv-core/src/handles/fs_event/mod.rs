//! Handles that tell of changes to files and directories.

#[cfg(any(target_os = "macos", windows, test))]
mod inbox;
mod notices;

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use bitflags::bitflags;
use poll_core::{Backend, Ready, Token};

use crate::arena::Arena;
use crate::callback::{Argument, Lending};
use crate::handles::Base;
use crate::notify::Notes;
use crate::sources::Owner;
use crate::sys::watching::Watching;
use crate::{Loop, error};

#[cfg(any(target_os = "macos", windows))]
pub(crate) use inbox::Inbox;
pub(crate) use notices::{Notice, Notices, Watcher, What};

/// How often changes of the past are read before a handle starts.
const READS_BEFORE_START: usize = 64;

bitflags! {
    /// How an [`FsEvent`] watches.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FsEventFlags: u8 {
        /// Not the directory alone: all that is below it, and what will be. On Linux, macOS
        /// and Windows.
        const RECURSIVE = 1;
    }
}

/// What an [`FsEvent`] tells. A path is that of the entry, below the directory that is
/// watched; that of a file that is watched itself is its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FsNews<'a> {
    /// An entry has come, has gone or has another name. So has the watched file or directory
    /// itself, if the path is its own name.
    Renamed(&'a Path),
    /// An entry's content or attributes have changed.
    Changed(&'a Path),
    /// There was more news than the system keeps, and some of it is lost: look at everything.
    Lost,
}

/// Tells of changes to a file or to the entries of a directory.
///
/// One system call watches: `inotify` (Linux; all handles of a loop share one descriptor, and
/// those of one path one watch), `kqueue` (the BSDs and Apple's systems), FSEvents (directories
/// on macOS) or `ReadDirectoryChangesW` (Windows, with a thread for each handle).
///
/// - What systems tell differs: one change may be told several times, or several as one.
/// - **Recursive** watching follows no symbolic links. The entries of a directory that appears
///   are told one by one, since they may be older than the watch; so one may be told twice.
/// - `kqueue` does not say which entry it was: the path is the directory's own name then. It
///   does not watch recursively, and needs a descriptor for each handle.
/// - On macOS directories are watched by FSEvents, whose framework is loaded for the first of
///   them, and by `kqueue` if that fails and in a forked child. It tells with a delay of up to 50
///   milliseconds. A directory that is moved, or one above it, is [`FsNews::Lost`], too. This is
///   linted and linked in CI and its decisions are tested, but it has not run on a Mac.
/// - A directory that is removed is told by its own name; then there is no more to tell, and
///   the handle stays active until it is stopped.
/// - A watched directory that is **moved** is told by its own name, too (Windows does not tell),
///   and goes on being watched where it is. On Linux directories that are made in it from then
///   on are not: each is an error (`NotFound`) that says so. Stop, and start with the new path.
///   If a directory above it is moved, nothing is told, and new directories are not watched.
///
/// ```
/// use uv_core::{FsEvent, FsEventFlags, FsNews, Handle, Loop, RunMode};
///
/// # let directory = std::env::temp_dir().join(format!("fs-event-{}", std::process::id()));
/// # std::fs::create_dir(&directory)?;
/// let mut lp = Loop::with_default_backend()?;
/// let watch = FsEvent::new(&mut lp);
/// watch.start(&mut lp, &directory, FsEventFlags::empty(), |lp, watch, news| {
///     match news.unwrap() {
///         FsNews::Renamed(name) => println!("{} came, went or was renamed", name.display()),
///         FsNews::Changed(name) => println!("{} has changed", name.display()),
///         FsNews::Lost => println!("look at everything"),
///     }
///     watch.close(lp).unwrap();
/// })?;
/// std::fs::write(directory.join("news.txt"), "hello")?;
/// lp.run(RunMode::Default)?;
/// # std::fs::remove_dir_all(&directory)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FsEvent(pub(crate) Token);

/// The handles of a loop that tell of changes.
#[derive(Debug)]
pub(crate) struct FsEvents<B: Backend> {
    pub(crate) slots: Arena<FsEventSlot<B>>,
    watching: Watching,
    /// The registration of what `watching` reads from, once it has something.
    source: Option<Token>,
    /// How often one was started.
    starts: u64,
    /// What has not been told yet.
    notices: Notices,
}

pub(crate) struct FsEventSlot<B: Backend> {
    pub(crate) base: Base,
    /// Who watches for it, while started.
    watcher: Option<Watcher>,
    path: PathBuf,
    flags: FsEventFlags,
    /// `None` while stopped, and while the callback runs.
    callback: Option<Lending<B, News>>,
}

/// What the callback gets.
pub(crate) struct News;

impl Argument for News {
    type For<'a> = (FsEvent, io::Result<FsNews<'a>>);
}

impl<B: Backend> fmt::Debug for FsEventSlot<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FsEventSlot").field("path", &self.path).finish_non_exhaustive()
    }
}

impl<B: Backend> Default for FsEvents<B> {
    fn default() -> Self {
        FsEvents {
            slots: Arena::default(),
            watching: Watching::default(),
            source: None,
            starts: 0,
            notices: Notices::default(),
        }
    }
}

impl FsEvent {
    /// A handle that is not started.
    pub fn new<B: Backend>(lp: &mut Loop<B>) -> FsEvent {
        let slot = FsEventSlot {
            base: lp.new_base(),
            watcher: None,
            path: PathBuf::new(),
            flags: FsEventFlags::empty(),
            callback: None,
        };
        FsEvent(lp.fs_events.slots.insert(slot))
    }

    /// Calls `callback` whenever the file at `path`, or an entry of the directory there,
    /// changes from now on. A symbolic link is followed.
    ///
    /// The callback gets an error when the system fails to watch on: when a new directory
    /// below cannot be watched, say. It goes on with what can be.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, and if there is nothing at `path`; `InvalidInput` if the
    /// handle is closing or watches already; `Unsupported` for recursive watching where the
    /// system has none; `QuotaExceeded` if the system's limit on watches is reached; the
    /// system's. The handle is then as it was.
    pub fn start<B: Backend>(
        self,
        lp: &mut Loop<B>,
        path: impl AsRef<Path>,
        flags: FsEventFlags,
        mut callback: impl FnMut(&mut Loop<B>, FsEvent, io::Result<FsNews<'_>>) + 'static,
    ) -> io::Result<()> {
        let slot = lp.fs_events.slots.get(self.0).ok_or_else(error::stale)?;
        if slot.base.is_closing() {
            return Err(error::closing());
        }
        if slot.watcher.is_some() {
            let why = "the handle watches already: stop it before it is started again";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let path = path.as_ref().to_owned();
        let watcher = lp.watch_path(self, &path, flags)?;
        let slot = lp.fs_events.slots.get_mut(self.0).ok_or_else(error::stale)?;
        slot.watcher = Some(watcher);
        (slot.path, slot.flags) = (path, flags);
        slot.callback = Some(Lending::new(
            move |lp: &mut Loop<B>, (handle, news): (FsEvent, io::Result<FsNews<'_>>)| {
                callback(lp, handle, news)
            },
        ));
        slot.base.start(&mut lp.active_handles);
        Ok(())
    }

    /// Stops watching, at once, and drops the callback. A stopped handle stays so.
    ///
    /// ```
    /// use uv_core::{FsEvent, FsEventFlags, Handle, Loop};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let watch = FsEvent::new(&mut lp);
    /// watch.start(&mut lp, ".", FsEventFlags::empty(), |_, _, _| println!("changed"))?;
    /// watch.stop(&mut lp)?;
    /// assert!(!watch.is_active(&lp) && watch.path(&lp).is_none());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key.
    pub fn stop<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let events = &mut lp.fs_events;
        let slot = events.slots.get_mut(self.0).ok_or_else(error::stale)?;
        slot.base.stop(&mut lp.active_handles);
        let callback = slot.callback.take();
        if let Some(watcher) = slot.watcher.take() {
            events.watching.stop(watcher);
        }
        // Last: dropping what it captured may be anything.
        drop(callback);
        Ok(())
    }

    /// The path that it watches, as it was given to [`start`](FsEvent::start); `None` while
    /// stopped.
    ///
    /// ```
    /// use std::path::Path;
    /// use uv_core::{FsEvent, FsEventFlags, Loop};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let watch = FsEvent::new(&mut lp);
    /// assert_eq!(watch.path(&lp), None);
    /// watch.start(&mut lp, ".", FsEventFlags::empty(), |_, _, _| {})?;
    /// assert_eq!(watch.path(&lp), Some(Path::new(".")));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn path<B: Backend>(self, lp: &Loop<B>) -> Option<&Path> {
        let slot = lp.fs_events.slots.get(self.0)?;
        slot.watcher.map(|_| &*slot.path)
    }
}

impl<B: Backend> Loop<B> {
    fn watch_path(
        &mut self,
        handle: FsEvent,
        path: &Path,
        flags: FsEventFlags,
    ) -> io::Result<Watcher> {
        // What has come already is for those who watched before: all of it, unless somebody
        // makes changes faster than they can be read.
        for _ in 0..READS_BEFORE_START {
            let count = self.fs_events.notices.len();
            self.collect_changes();
            if self.fs_events.notices.len() == count {
                break;
            }
        }
        if !self.fs_events.notices.is_empty() {
            self.notifier.notify(Notes::CHANGES)?;
        }
        self.fs_events.starts += 1;
        let watcher = Watcher { key: handle.0, started: self.fs_events.starts };
        let FsEvents { watching, notices, .. } = &mut self.fs_events;
        let recursive = flags.contains(FsEventFlags::RECURSIVE);
        watching.start(watcher, path, recursive, notices, &self.notifier)?;
        if self.fs_events.source.is_none()
            && let Some(raw) = self.fs_events.watching.source()
        {
            match self.watch_for(Owner::FsEvents, raw, Ready::READ) {
                Ok(source) => self.fs_events.source = Some(source),
                Err(error) => {
                    self.fs_events.watching.stop(watcher);
                    return Err(error);
                }
            }
        }
        Ok(watcher)
    }

    /// Takes what the system has to tell. If that fails, everybody is told so.
    fn collect_changes(&mut self) {
        let FsEvents { slots, watching, notices, .. } = &mut self.fs_events;
        if let Err(error) = watching.collect(notices) {
            for watcher in slots.iter().filter_map(|(_, slot)| slot.watcher) {
                let error = io::Error::new(error.kind(), error.to_string());
                notices.push(watcher, What::Failed(error), OsStr::new(""), OsStr::new(""));
            }
        }
    }

    /// Tells what has changed; returns how many calls that took.
    pub(crate) fn tell_changes(&mut self) -> usize {
        self.collect_changes();
        let mut called = 0;
        // What comes while these are told waits for the next turn.
        for _ in 0..self.fs_events.notices.len() {
            let Some(notice) = self.fs_events.notices.pop() else { break };
            called += usize::from(self.tell_change(notice));
        }
        if !self.fs_events.notices.is_empty() {
            // If waking fails they are found when the loop next looks.
            let _ = self.notifier.notify(Notes::CHANGES);
        }
        called
    }

    /// Calls the handle, unless one that was called before has stopped it.
    fn tell_change(&mut self, notice: Notice) -> bool {
        let Notice { watcher, what, path } = notice;
        let handle = FsEvent(watcher.key);
        let slot = self.fs_events.slots.get_mut(handle.0);
        let slot = slot.filter(|slot| slot.watcher == Some(watcher));
        let Some(mut callback) = slot.and_then(|slot| slot.callback.take()) else { return false };
        let news = match what {
            What::Renamed => Ok(FsNews::Renamed(&path)),
            What::Changed => Ok(FsNews::Changed(&path)),
            What::Lost => Ok(FsNews::Lost),
            What::Failed(error) => Err(error),
        };
        self.call_with(&mut callback, (handle, news), handle, |lp, handle| {
            drop(handle.stop(lp));
            // The rest must not wait for the next change.
            drop(lp.notifier.notify(Notes::CHANGES));
        });
        if let Some(slot) = self.fs_events.slots.get_mut(handle.0)
            && slot.watcher == Some(watcher)
        {
            slot.callback.get_or_insert(callback);
        }
        self.fs_events.notices.reuse(path);
        true
    }

    /// In a forked child: what the parent reads from is the parent's, so all watch anew.
    pub(crate) fn watch_anew(&mut self) {
        if let Some(source) = self.fs_events.source.take() {
            self.unwatch(source);
        }
        self.fs_events.watching.forget();
        self.fs_events.notices.clear();
        let slots = self.fs_events.slots.iter();
        let started = slots.filter(|(_, slot)| slot.watcher.is_some());
        let started: Vec<Token> = started.map(|(key, _)| key).collect();
        for key in started {
            let Some(slot) = self.fs_events.slots.get(key) else { continue };
            let (path, flags, old) = (slot.path.clone(), slot.flags, slot.watcher);
            let anew = self.watch_path(FsEvent(key), &path, flags);
            let Some(slot) = self.fs_events.slots.get_mut(key) else { continue };
            match (anew, old) {
                (Ok(watcher), _) => slot.watcher = Some(watcher),
                (Err(error), Some(old)) => {
                    let (notices, no_path) = (&mut self.fs_events.notices, OsStr::new(""));
                    notices.push(old, What::Failed(error), no_path, no_path);
                    // If waking fails it is found when the loop next looks.
                    let _ = self.notifier.notify(Notes::CHANGES);
                }
                (Err(_), None) => {}
            }
        }
    }
}
