//! Watches on Linux by inotify: a file, a directory, or a directory tree.
//!
//! inotify watches single files and directories. Handles that watch the same inode share one watch.
//! A tree has one watch for each of its directories. A directory is watched before its entries are
//! listed, so that a new entry is found by the listing or reported by an event.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use poll_core::RawSource;

use super::inotify_calls::{Change, Inotify, Number, next_change};
use crate::event_loop::Notifier;
use crate::handles::{Notices, Watcher, What};

/// Bytes that one read returns: some thousand events.
const BUFFER: usize = 64 * 1024;

/// Events that are reported as a change; all others are reported as a rename.
const CHANGED: u32 = libc::IN_ATTRIB | libc::IN_MODIFY;
/// A directory has appeared in, or was moved out of, a watched directory.
const APPEARED: u32 = libc::IN_CREATE | libc::IN_MOVED_TO;
const MOVED_AWAY: u32 = libc::IN_MOVED_FROM;

/// The watches of a loop.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    /// Opened for the first watch, and kept.
    inotify: Option<Inotify>,
    /// The handles that use each watch of the kernel.
    watches: HashMap<Number, Vec<User>>,
    trees: HashMap<Watcher, Tree>,
    /// The read buffer. Empty until the first read, and taken while its events are handled.
    buffer: Vec<u8>,
}

#[derive(Clone, Debug)]
struct User {
    watcher: Watcher,
    /// The path of the watched directory in the watcher's tree; empty at the root.
    folder: PathBuf,
}

/// The watches of one handle.
#[derive(Debug)]
struct Tree {
    /// The root's own name, for events of the root itself.
    name: OsString,
    /// The absolute path, which stays valid when the working directory changes.
    root: PathBuf,
    /// The root was moved, so `root` is stale and new subdirectories cannot be opened by path.
    moved: bool,
    recursive: bool,
    watches: HashSet<Number>,
}

/// The result of adding a watch.
#[derive(PartialEq, Eq)]
enum Added {
    New,
    /// The watcher has this watch already, at the same path.
    Known,
    /// The watcher has this watch already, at another path: by a bind mount, for example.
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
        // A path that ends in `..` or `/` has no file name: the whole path is used.
        let name = path.file_name().unwrap_or(path.as_os_str()).to_owned();
        let recursive = recursive && path.is_dir();
        let root = std::path::absolute(path)?;
        let (moved, watches) = (false, HashSet::new());
        self.trees.insert(watcher, Tree { name, root, moved, recursive, watches });
        let mut started = self.add(watcher, path, Path::new(""), 0).map(drop);
        if recursive && started.is_ok() {
            started = self.add_subtree(watcher, PathBuf::new(), false, notices);
        }
        if started.is_err() {
            self.stop(watcher);
        }
        started
    }

    pub(crate) fn stop(&mut self, watcher: Watcher) {
        let Some(tree) = self.trees.remove(&watcher) else { return };
        for number in tree.watches {
            self.release(number, watcher);
        }
    }

    /// Removes a watcher from a watch, and the watch with its last user.
    fn release(&mut self, number: Number, watcher: Watcher) {
        let Some(users) = self.watches.get_mut(&number) else { return };
        users.retain(|user| user.watcher != watcher);
        if users.is_empty() {
            self.watches.remove(&number);
            if let Some(inotify) = &self.inotify {
                inotify.remove(number);
            }
        }
    }

    /// For a forked child: closes its copy of the descriptor. The parent's watches stay.
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

    /// Adds a directory of a tree and all its subdirectories. If `report` is set, the entries of
    /// directories that were not watched before get a notice.
    fn add_subtree(
        &mut self,
        watcher: Watcher,
        folder: PathBuf,
        report: bool,
        notices: &mut Notices,
    ) -> io::Result<()> {
        let Some(tree) = self.trees.get(&watcher) else { return Ok(()) };
        if tree.moved {
            let why = "the watched directory was moved: stop, and start with its new path";
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        let mut left = vec![(tree.root.join(&folder), folder)];
        while let Some((path, folder)) = left.pop() {
            let mut added = Added::Known;
            // `start` has added the root, which may be a symbolic link.
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
                if report && added == Added::New {
                    notices.push(watcher, What::Renamed, folder.as_os_str(), &name);
                }
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    left.push((path.join(&name), folder.join(&name)));
                }
            }
        }
        Ok(())
    }

    /// Reads pending events and pushes a notice for each.
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
                // The parent's watch reports events of a subdirectory itself.
                true => {}
            }
        }
        if mask & libc::IN_ISDIR != 0 && mask & (APPEARED | MOVED_AWAY) != 0 && !name.is_empty() {
            self.on_directory(number, mask, name, notices);
        }
    }

    /// Extends or prunes trees after a directory has appeared or was moved away.
    fn on_directory(&mut self, number: Number, mask: u32, name: &OsStr, notices: &mut Notices) {
        let Some(users) = self.watches.get(&number) else { return };
        let recursive = |user: &&User| self.trees.get(&user.watcher).is_some_and(|it| it.recursive);
        let users: Vec<User> = users.iter().filter(recursive).cloned().collect();
        for User { watcher, folder } in users {
            let place = folder.join(name);
            if mask & MOVED_AWAY != 0 {
                // Its subdirectories have moved with it.
                self.remove(watcher, |folder| folder.starts_with(&place));
            } else if let Err(error) = self.add_subtree(watcher, place.clone(), true, notices) {
                fail(watcher, error, &place, notices);
            }
        }
    }

    /// Removes the directories that match from a tree.
    fn remove(&mut self, watcher: Watcher, matches: impl Fn(&Path) -> bool) {
        let Some(tree) = self.trees.get_mut(&watcher) else { return };
        let watches = &self.watches;
        let gone = tree.watches.extract_if(|number| {
            let users = watches.get(number).map_or(&[][..], |users| users);
            users.iter().any(|user| user.watcher == watcher && matches(&user.folder))
        });
        let gone: Vec<Number> = gone.collect();
        for number in gone {
            self.release(number, watcher);
        }
    }

    /// The kernel has removed a watch: its file or directory was deleted.
    fn on_end(&mut self, number: Number) {
        let Some(users) = self.watches.remove(&number) else { return };
        for user in users {
            if let Some(tree) = self.trees.get_mut(&user.watcher) {
                tree.watches.remove(&number);
            }
        }
    }

    /// The kernel's queue has overflowed. The lost events may have been of directories, so the
    /// trees are rebuilt.
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
            if let Err(error) = self.add_subtree(watcher, PathBuf::new(), false, notices) {
                fail(watcher, error, Path::new(""), notices);
            }
        }
    }
}

/// True if the directory was removed or replaced between its listing and the watch.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP))
}

/// Pushes a notice that a subdirectory cannot be watched, with the cause.
fn fail(watcher: Watcher, error: io::Error, folder: &Path, notices: &mut Notices) {
    let why = format!("{} cannot be watched: {error}", folder.display());
    let error = io::Error::new(error.kind(), why);
    notices.push(watcher, What::Failed(error), folder.as_os_str(), OsStr::new(""));
}
