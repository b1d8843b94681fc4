//! Who watches what, on Linux: a file, a directory, or a directory with all that is below it.
//!
//! The kernel watches single files and directories. What several handles watch is one watch
//! with several users. A tree is one watch for each of its directories: each is added before
//! its entries are looked at, so that an entry is seen by the one or by the other.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use poll_core::RawSource;

use super::inotify::{Change, Inotify, Number, next_change};
use crate::handles::{Notices, Watcher, What};
use crate::notify::Notifier;

/// Room for what is read at once: some thousand changes.
const BUFFER: usize = 64 * 1024;

/// What is told as a change; anything else as a renaming.
const CHANGED: u32 = libc::IN_ATTRIB | libc::IN_MODIFY;
/// A directory has appeared, or has gone elsewhere.
const CAME: u32 = libc::IN_CREATE | libc::IN_MOVED_TO;
const WENT: u32 = libc::IN_MOVED_FROM;

/// The watches of a loop.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    /// Made for the first that watches, and kept.
    inotify: Option<Inotify>,
    /// Who uses what the kernel watches.
    watches: HashMap<Number, Vec<User>>,
    trees: HashMap<Watcher, Tree>,
    /// Empty until something is read, and while it is being read from.
    buffer: Vec<u8>,
}

#[derive(Clone, Debug)]
struct User {
    watcher: Watcher,
    /// Where this is in the watcher's tree; empty at its root.
    folder: PathBuf,
}

/// What one handle watches.
#[derive(Debug)]
struct Tree {
    /// The root's own name, which is told when something happens to it.
    name: OsString,
    /// Its whole path, for when the working directory changes.
    root: PathBuf,
    /// It is not there any more, but elsewhere: what comes to be below it cannot be found.
    moved: bool,
    recursive: bool,
    watches: HashSet<Number>,
}

/// What adding a watch has found.
#[derive(PartialEq, Eq)]
enum Added {
    New,
    /// The watcher has it already, in this place.
    Known,
    /// The watcher has it already, in another place: by a mount, say.
    Elsewhere,
}

impl Watching {
    pub(crate) fn source(&self) -> Option<RawSource> {
        self.inotify.as_ref().map(Inotify::source)
    }

    pub(crate) fn start(
        &mut self,
        watcher: Watcher,
        path: &Path,
        recursive: bool,
        notices: &mut Notices,
        _notifier: &Arc<Notifier>,
    ) -> io::Result<()> {
        if self.inotify.is_none() {
            self.inotify = Some(Inotify::new()?);
        }
        // Those that end in `..` or `/` have no name: then the whole path is it.
        let name = path.file_name().unwrap_or(path.as_os_str()).to_owned();
        let recursive = recursive && path.is_dir();
        let root = std::path::absolute(path)?;
        let (moved, watches) = (false, HashSet::new());
        self.trees.insert(watcher, Tree { name, root, moved, recursive, watches });
        let mut started = self.add(watcher, path, Path::new(""), 0).map(drop);
        if recursive && started.is_ok() {
            started = self.add_below(watcher, PathBuf::new(), false, notices);
        }
        if started.is_err() {
            self.stop(watcher);
        }
        started
    }

    pub(crate) fn stop(&mut self, watcher: Watcher) {
        let Some(tree) = self.trees.remove(&watcher) else { return };
        for number in tree.watches {
            self.let_go(number, watcher);
        }
    }

    /// A watcher lets a watch go. The last one ends it.
    fn let_go(&mut self, number: Number, watcher: Watcher) {
        let Some(users) = self.watches.get_mut(&number) else { return };
        users.retain(|user| user.watcher != watcher);
        if users.is_empty() {
            self.watches.remove(&number);
            if let Some(inotify) = &self.inotify {
                inotify.remove(number);
            }
        }
    }

    /// In a forked child: the descriptor is the parent's too, and is left to it.
    pub(crate) fn forget(&mut self) {
        *self = Watching::default();
    }

    fn add(
        &mut self,
        watcher: Watcher,
        path: &Path,
        folder: &Path,
        more: u32,
    ) -> io::Result<Added> {
        let Some(inotify) = &self.inotify else { return Ok(Added::Known) };
        let number = inotify.add(path, more)?;
        let users = self.watches.entry(number).or_default();
        if let Some(user) = users.iter().find(|user| user.watcher == watcher) {
            return Ok(if user.folder == folder { Added::Known } else { Added::Elsewhere });
        }
        users.push(User { watcher, folder: folder.to_owned() });
        if let Some(tree) = self.trees.get_mut(&watcher) {
            tree.watches.insert(number);
        }
        Ok(Added::New)
    }

    /// Adds a directory of a tree and those below. If they are `news`, all that is in those
    /// that were not watched yet is told.
    fn add_below(
        &mut self,
        watcher: Watcher,
        folder: PathBuf,
        news: bool,
        notices: &mut Notices,
    ) -> io::Result<()> {
        let Some(tree) = self.trees.get(&watcher) else { return Ok(()) };
        if tree.moved {
            let why = "the directory that is watched has moved: start anew with its new path";
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        let mut left = vec![(tree.root.join(&folder), folder)];
        while let Some((path, folder)) = left.pop() {
            let mut added = Added::Known;
            // The root was added by its own rules: it may be a link.
            if !folder.as_os_str().is_empty() {
                let more = libc::IN_ONLYDIR | libc::IN_DONT_FOLLOW;
                added = match self.add(watcher, &path, &folder, more) {
                    Err(error) if is_gone(&error) => continue,
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                        fail(watcher, error, &folder, notices);
                        continue;
                    }
                    added => added?,
                };
            }
            if added == Added::Elsewhere {
                continue;
            }
            let entries = match fs::read_dir(&path) {
                Err(error) if is_gone(&error) => continue,
                Err(error) => {
                    fail(watcher, error, &folder, notices);
                    continue;
                }
                Ok(entries) => entries,
            };
            for entry in entries.flatten() {
                let name = entry.file_name();
                if news && added == Added::New {
                    notices.push(watcher, What::Renamed, folder.as_os_str(), &name);
                }
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    left.push((path.join(&name), folder.join(&name)));
                }
            }
        }
        Ok(())
    }

    /// Reads what the kernel has to tell.
    pub(crate) fn collect(&mut self, notices: &mut Notices) -> io::Result<()> {
        let Some(inotify) = &self.inotify else { return Ok(()) };
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(BUFFER, 0);
        let result = inotify.read(&mut buffer).map(|count| {
            let mut rest = &buffer[..count];
            while let Some(change) = next_change(&mut rest) {
                self.on_change(change, notices);
            }
        });
        self.buffer = buffer;
        result
    }

    fn on_change(&mut self, change: Change<'_>, notices: &mut Notices) {
        let Change { number, mask, name } = change;
        if mask & libc::IN_Q_OVERFLOW != 0 {
            return self.on_overflow(notices);
        }
        if mask & libc::IN_IGNORED != 0 {
            return self.on_end(number);
        }
        let Some(users) = self.watches.get(&number) else { return };
        let is_change = mask & !(CHANGED | libc::IN_ISDIR) == 0;
        let what = || if is_change { What::Changed } else { What::Renamed };
        for User { watcher, folder } in users {
            let Some(tree) = self.trees.get_mut(watcher) else { continue };
            let at_root = folder.as_os_str().is_empty();
            tree.moved |= at_root && mask & libc::IN_MOVE_SELF != 0;
            match name.is_empty() {
                false => notices.push(*watcher, what(), folder.as_os_str(), name),
                true if at_root => notices.push(*watcher, what(), OsStr::new(""), &tree.name),
                // What happens to a directory below is told by the one that it is in.
                true => {}
            }
        }
        if mask & libc::IN_ISDIR != 0 && mask & (CAME | WENT) != 0 && !name.is_empty() {
            self.on_directory(number, mask, name, notices);
        }
    }

    /// A directory has come or gone: trees grow or shrink.
    fn on_directory(&mut self, number: Number, mask: u32, name: &OsStr, notices: &mut Notices) {
        let Some(users) = self.watches.get(&number) else { return };
        let recursive = |user: &&User| self.trees.get(&user.watcher).is_some_and(|it| it.recursive);
        let users: Vec<User> = users.iter().filter(recursive).cloned().collect();
        for User { watcher, folder } in users {
            let place = folder.join(name);
            if mask & WENT != 0 {
                // It is elsewhere now, and so is all that is below it.
                self.remove(watcher, |folder| folder.starts_with(&place));
            } else if let Err(error) = self.add_below(watcher, place.clone(), true, notices) {
                fail(watcher, error, &place, notices);
            }
        }
    }

    /// Removes directories from a tree.
    fn remove(&mut self, watcher: Watcher, goes: impl Fn(&Path) -> bool) {
        let Some(tree) = self.trees.get_mut(&watcher) else { return };
        let watches = &self.watches;
        let gone = tree.watches.extract_if(|number| {
            let users = watches.get(number).map_or(&[][..], |users| users);
            users.iter().any(|user| user.watcher == watcher && goes(&user.folder))
        });
        let gone: Vec<Number> = gone.collect();
        for number in gone {
            self.let_go(number, watcher);
        }
    }

    /// The kernel has ended a watch: what it watched is gone.
    fn on_end(&mut self, number: Number) {
        let Some(users) = self.watches.remove(&number) else { return };
        for user in users {
            if let Some(tree) = self.trees.get_mut(&user.watcher) {
                tree.watches.remove(&number);
            }
        }
    }

    /// Changes were lost. Among them may have been directories that came, went or moved, so
    /// trees are built anew.
    fn on_overflow(&mut self, notices: &mut Notices) {
        let all = self.trees.iter();
        let all: Vec<(Watcher, bool)> =
            all.map(|(watcher, tree)| (*watcher, tree.recursive && !tree.moved)).collect();
        for (watcher, grows) in all {
            notices.push(watcher, What::Lost, OsStr::new(""), OsStr::new(""));
            if !grows {
                continue;
            }
            self.remove(watcher, |folder| !folder.as_os_str().is_empty());
            if let Err(error) = self.add_below(watcher, PathBuf::new(), false, notices) {
                fail(watcher, error, Path::new(""), notices);
            }
        }
    }
}

/// True if what was to be watched was a moment ago, and is not any more.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP))
}

/// Tells that a directory below cannot be watched, and why.
fn fail(watcher: Watcher, error: io::Error, folder: &Path, notices: &mut Notices) {
    let why = format!("{} cannot be watched: {error}", folder.display());
    let error = io::Error::new(error.kind(), why);
    notices.push(watcher, What::Failed(error), folder.as_os_str(), OsStr::new(""));
}
