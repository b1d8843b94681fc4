//! File event handles: change notification for files and directories.

mod queue;
#[cfg(any(target_os = "macos", windows, test))]
mod thread_queue;

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use bitflags::bitflags;
use poll_core::{Backend, Interest, Token};

use crate::event_loop::{Notification, SourceOwner, exchange};
use crate::handles::Base;
use crate::storage::{Arena, Argument, InlineFnMutRef, Seed};
use crate::sys::watch::Watching;
use crate::{Loop, error};

pub(crate) use queue::{Notice, Notices, Watcher, What};
#[cfg(any(target_os = "macos", windows))]
pub(crate) use thread_queue::Inbox;

/// The limit of reads that collect earlier changes before a handle starts.
const READS_BEFORE_START: usize = 64;

bitflags! {
    /// How an [`FsEvent`] watches.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[doc(alias = "uv_fs_event_flags")]
    pub struct FsEventFlags: u8 {
        /// Watches the whole tree below the directory, including new directories. Linux, macOS
        /// and Windows only.
        const RECURSIVE = 1;
    }
}

/// An event of an [`FsEvent`]. Paths are relative to the watched directory; the path of a watched
/// file is its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "uv_fs_event")]
// Exhaustive: a program that ignores one of these kinds misses changes.
pub enum FsEventKind<'a> {
    /// An entry was created, removed or renamed; or the watched file or directory itself, if the
    /// path is its own name.
    #[doc(alias = "UV_RENAME")]
    Rename(&'a Path),
    /// The content or the attributes of an entry have changed.
    #[doc(alias = "UV_CHANGE")]
    Change(&'a Path),
    /// The system's event queue has overflowed and events were lost: rescan the directory.
    Overflow,
}

/// Reports changes of a file or of the entries of a directory.
///
/// The mechanism is `inotify` (Linux; all handles of a loop share one descriptor, and
/// those of one path one watch), `kqueue` (the BSDs and Apple's systems), FSEvents (directories
/// on macOS) or `ReadDirectoryChangesW` (Windows, with a thread for each handle).
///
/// - Systems differ: one change may be reported several times, or several changes as one.
/// - **Recursive** watching follows no symbolic links. The entries of a new directory are
///   reported one by one, because they may precede its watch; one may be reported twice.
/// - `kqueue` does not identify the entry: the path is the directory's own name then. It does not
///   watch recursively, and needs a descriptor per handle.
/// - macOS watches directories by FSEvents, whose framework is loaded on first use, and by
///   `kqueue` if that fails and in a forked child. Events have a delay of up to 50 milliseconds.
///   A move of the directory or one above it is also [`FsEventKind::Overflow`]. This code is
///   linted and linked in CI and its decisions are tested, but it has not run on a Mac.
/// - The removal of the watched directory is reported by its own name. No more events follow, and
///   the handle stays active until it is stopped.
/// - A **move** of the watched directory is reported by its own name (not on Windows), and it is
///   watched at its new path. On Linux, directories created in it later are not watched: each
///   is an error (`NotFound`). Stop, and start with the new path. A move of a directory above it
///   is not reported, and new directories are not watched.
///
/// ```
/// use uv_core::{FsEvent, FsEventFlags, FsEventKind, Handle, Loop, RunMode};
///
/// # let directory = std::env::temp_dir().join(format!("fs-event-{}", std::process::id()));
/// # std::fs::create_dir(&directory)?;
/// let mut lp = Loop::with_default_backend()?;
/// let watch = FsEvent::new(&mut lp);
/// watch.start(&mut lp, &directory, FsEventFlags::empty(), |lp, watch, event| {
///     match event.unwrap() {
///         FsEventKind::Rename(name) => println!("{} appeared or vanished", name.display()),
///         FsEventKind::Change(name) => println!("{} has changed", name.display()),
///         FsEventKind::Overflow => println!("rescan"),
///     }
///     watch.close(lp).unwrap();
/// })?;
/// std::fs::write(directory.join("event.txt"), "hello")?;
/// lp.run(RunMode::Default)?;
/// # std::fs::remove_dir_all(&directory)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "uv_fs_event_t")]
pub struct FsEvent(pub(crate) Token);

/// The file event handles of a loop.
#[derive(Debug)]
pub(crate) struct FsEvents<B: Backend> {
    pub(crate) slots: Arena<FsEventSlot<B>>,
    watching: Watching,
    /// The registration of the descriptor of `watching`, once it has one.
    source: Option<Token>,
    /// The number of starts of all handles.
    starts: u64,
    /// Events that have not been delivered.
    notices: Notices,
}

pub(crate) struct FsEventSlot<B: Backend> {
    pub(crate) base: Base,
    /// The current start; `None` while stopped.
    watcher: Option<Watcher>,
    /// As the caller wrote it.
    path: PathBuf,
    /// The same file after a change of the working directory: a forked child watches it again.
    absolute: PathBuf,
    flags: FsEventFlags,
    /// `None` while stopped, and while the callback runs.
    callback: Option<InlineFnMutRef<B, FsEventArgument>>,
}

/// The argument of the callback.
pub(crate) struct FsEventArgument;

impl Argument for FsEventArgument {
    type For<'a> = (FsEvent, io::Result<FsEventKind<'a>>);
}

impl<B: Backend> fmt::Debug for FsEventSlot<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FsEventSlot").field("path", &self.path).finish_non_exhaustive()
    }
}

impl<B: Backend> FsEvents<B> {
    pub(crate) fn new(seed: Seed) -> FsEvents<B> {
        FsEvents {
            slots: Arena::new(seed),
            watching: Watching::default(),
            source: None,
            starts: 0,
            notices: Notices::default(),
        }
    }
}

impl FsEvent {
    /// A handle that is not started.
    #[doc(alias = "uv_fs_event_init")]
    #[must_use = "the handle exists until it is closed"]
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn new<B: Backend>(lp: &mut Loop<B>) -> FsEvent {
        let slot = FsEventSlot {
            base: lp.new_base(),
            watcher: None,
            path: PathBuf::new(),
            absolute: PathBuf::new(),
            flags: FsEventFlags::empty(),
            callback: None,
        };
        FsEvent(lp.fs_events.slots.insert(slot))
    }

    /// Calls `callback` whenever the file at `path`, or an entry of the directory there,
    /// changes from now on. A symbolic link is followed.
    ///
    /// The callback gets an error if watching fails later, for example when a new directory
    /// cannot be watched. The rest is still watched.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, and if `path` does not exist; `InvalidInput` if the handle is
    /// closing; `EALREADY` if it is started; `Unsupported` for recursive watching where the system
    /// lacks it; `QuotaExceeded` at the system's limit of watches; the system's errors. The handle
    /// is unchanged then.
    #[doc(alias = "uv_fs_event_start")]
    pub fn start<B: Backend>(
        self,
        lp: &mut Loop<B>,
        path: impl AsRef<Path>,
        flags: FsEventFlags,
        mut callback: impl FnMut(&mut Loop<B>, FsEvent, io::Result<FsEventKind<'_>>) + 'static,
    ) -> io::Result<()> {
        let slot = lp.fs_events.slots.get(self.0).ok_or_else(error::stale)?;
        if slot.base.is_closing() {
            return Err(error::closing());
        }
        if slot.watcher.is_some() {
            return Err(error::already());
        }
        let path = path.as_ref().to_owned();
        let watcher = watch_path(lp, self, &path, flags)?;
        let slot = lp.fs_events.slots.get_mut(self.0).ok_or_else(error::stale)?;
        slot.watcher = Some(watcher);
        slot.absolute = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
        (slot.path, slot.flags) = (path, flags);
        slot.callback = Some(InlineFnMutRef::new(
            move |lp: &mut Loop<B>, (handle, event): (FsEvent, io::Result<FsEventKind<'_>>)| {
                callback(lp, handle, event)
            },
        ));
        slot.base.start(&mut lp.active_handles);
        Ok(())
    }

    /// Stops watching immediately, and drops the callback. Does nothing to a stopped handle.
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
    #[doc(alias = "uv_fs_event_stop")]
    pub fn stop<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let events = &mut lp.fs_events;
        let slot = events.slots.get_mut(self.0).ok_or_else(error::stale)?;
        slot.base.stop(&mut lp.active_handles);
        let callback = slot.callback.take();
        if let Some(watcher) = slot.watcher.take() {
            events.watching.stop(watcher);
        }
        // Last: destructors of the captured values may do anything.
        drop(callback);
        Ok(())
    }

    /// The watched path, as given to [`start`](FsEvent::start); `None` while stopped.
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
    #[doc(alias = "uv_fs_event_getpath")]
    pub fn path<B: Backend>(self, lp: &Loop<B>) -> Option<&Path> {
        let slot = lp.fs_events.slots.get(self.0)?;
        slot.watcher.map(|_| &*slot.path)
    }
}

impl<B: Backend> FsEvents<B> {
    /// Collects events from the system. An error is delivered to all started handles.
    fn collect(&mut self) {
        let FsEvents { slots, watching, notices, .. } = self;
        if let Err(error) = watching.collect(notices) {
            for watcher in slots.iter().filter_map(|(_, slot)| slot.watcher) {
                let error = io::Error::new(error.kind(), error.to_string());
                notices.push(watcher, What::Failed(error), OsStr::new(""), OsStr::new(""));
            }
        }
    }
}

fn watch_path<B: Backend>(
    lp: &mut Loop<B>,
    handle: FsEvent,
    path: &Path,
    flags: FsEventFlags,
) -> io::Result<Watcher> {
    // Earlier changes are for the handles that are started already. They are all collected,
    // unless changes occur faster than they can be read.
    for _ in 0..READS_BEFORE_START {
        let count = lp.fs_events.notices.len();
        lp.fs_events.collect();
        if lp.fs_events.notices.len() == count {
            break;
        }
    }
    if !lp.fs_events.notices.is_empty() {
        lp.notifier.notify(Notification::CHANGES)?;
    }
    lp.fs_events.starts += 1;
    let watcher = Watcher { key: handle.0, started: lp.fs_events.starts };
    let FsEvents { watching, notices, .. } = &mut lp.fs_events;
    let recursive = flags.contains(FsEventFlags::RECURSIVE);
    watching.start(watcher, path, recursive, notices, &lp.notifier)?;
    if lp.fs_events.source.is_none()
        && let Some(raw) = lp.fs_events.watching.source()
    {
        match lp.watch_for(SourceOwner::FsEvents, raw, Interest::READ) {
            Ok(source) => lp.fs_events.source = Some(source),
            Err(error) => {
                lp.fs_events.watching.stop(watcher);
                return Err(error);
            }
        }
    }
    Ok(watcher)
}

/// Delivers file events; returns the number of calls.
pub(crate) fn deliver_all<B: Backend>(lp: &mut Loop<B>) -> usize {
    lp.fs_events.collect();
    let mut called = 0;
    // Events that are queued by callbacks wait for the next iteration.
    for _ in 0..lp.fs_events.notices.len() {
        let Some(notice) = lp.fs_events.notices.pop() else { break };
        called += usize::from(deliver(lp, notice));
    }
    if !lp.fs_events.notices.is_empty() {
        // If the wake-up fails, the loop finds them at its next iteration.
        let _ = lp.notifier.notify(Notification::CHANGES);
    }
    called
}

/// Calls the handle, unless an earlier callback has stopped it.
fn deliver<B: Backend>(lp: &mut Loop<B>, notice: Notice) -> bool {
    let Notice { watcher, what, path } = notice;
    let handle = FsEvent(watcher.key);
    let slot = lp.fs_events.slots.get_mut(handle.0);
    let slot = slot.filter(|slot| slot.watcher == Some(watcher));
    let Some(slot) = slot else { return false };
    let Some(mut callback) = slot.callback.take() else {
        drop(handle.stop(lp)); // An exchange of loops has lost the callback.
        return false;
    };
    let event = match what {
        What::Renamed => Ok(FsEventKind::Rename(&path)),
        What::Changed => Ok(FsEventKind::Change(&path)),
        What::Lost => Ok(FsEventKind::Overflow),
        What::Failed(error) => Err(error),
    };
    lp.call_with(&mut callback, (handle, event), handle, |lp, handle| {
        drop(handle.stop(lp));
        // After a panic, the remaining events must not wait for the next change.
        drop(lp.notifier.notify(Notification::CHANGES));
    });
    match lp.fs_events.slots.get_mut(handle.0) {
        Some(slot) if slot.watcher == Some(watcher) => {
            slot.callback.get_or_insert(callback);
        }
        Some(_) => {}
        None => exchange::note(),
    }
    lp.fs_events.notices.reuse(path);
    true
}

/// Restarts all watches in a forked child: the inherited descriptors belong to the parent.
pub(crate) fn watch_again<B: Backend>(lp: &mut Loop<B>) {
    if let Some(source) = lp.fs_events.source.take() {
        lp.unwatch(source);
    }
    lp.fs_events.watching.forget();
    lp.fs_events.notices.clear();
    let slots = lp.fs_events.slots.iter();
    let started = slots.filter(|(_, slot)| slot.watcher.is_some());
    let started: Vec<Token> = started.map(|(key, _)| key).collect();
    for key in started {
        let Some(slot) = lp.fs_events.slots.get(key) else { continue };
        let (path, flags, old) = (slot.absolute.clone(), slot.flags, slot.watcher);
        let anew = watch_path(lp, FsEvent(key), &path, flags);
        let Some(slot) = lp.fs_events.slots.get_mut(key) else { continue };
        match (anew, old) {
            (Ok(watcher), _) => slot.watcher = Some(watcher),
            (Err(error), Some(old)) => {
                let (notices, no_path) = (&mut lp.fs_events.notices, OsStr::new(""));
                notices.push(old, What::Failed(error), no_path, no_path);
                // If the wake-up fails, the loop finds it at its next iteration.
                let _ = lp.notifier.notify(Notification::CHANGES);
            }
            (Err(_), None) => {}
        }
    }
}
