//! Who watches what, by `kqueue`: a file or a directory, and a descriptor for each.
//!
//! Backends know readiness and no more, so the loop has a kqueue of its own, which is readable
//! when it has something to tell.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use poll_core::RawSource;

use crate::handles::{Notices, Watcher, What};
use crate::notify::Notifier;

/// How many changes are taken at once.
const BATCH: usize = 64;

/// All that a handle can be told of.
const NOTES: u32 = libc::NOTE_ATTRIB
    | libc::NOTE_WRITE
    | libc::NOTE_EXTEND
    | libc::NOTE_LINK
    | libc::NOTE_RENAME
    | libc::NOTE_DELETE
    | libc::NOTE_REVOKE;

/// Open for being told of changes only, where there is such a thing.
#[cfg(target_vendor = "apple")]
const OPEN_FLAGS: libc::c_int = libc::O_EVTONLY;
#[cfg(not(target_vendor = "apple"))]
const OPEN_FLAGS: libc::c_int = libc::O_NONBLOCK;

/// The watches of a loop.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    /// Made for the first that watches, and kept.
    queue: Option<OwnedFd>,
    /// By the descriptor that the kernel watches.
    watches: HashMap<RawFd, Watch>,
}

#[derive(Debug)]
struct Watch {
    watcher: Watcher,
    /// What is told: the kernel does not say which entry it was.
    name: OsString,
    is_directory: bool,
    /// Closing it ends the watch.
    _file: File,
}

impl Watching {
    pub(crate) fn source(&self) -> Option<RawSource> {
        self.queue.as_ref().map(|queue| RawSource::from_fd(queue.as_raw_fd()))
    }

    pub(crate) fn start(
        &mut self,
        watcher: Watcher,
        path: &Path,
        recursive: bool,
        _notices: &mut Notices,
        _notifier: &Arc<Notifier>,
    ) -> io::Result<()> {
        if recursive {
            let why = "kqueue does not watch recursively: watch each directory";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        if self.queue.is_none() {
            self.queue = Some(new_queue()?);
        }
        let file = OpenOptions::new().read(true).custom_flags(OPEN_FLAGS).open(path)?;
        let is_directory = file.metadata()?.is_dir();
        let fd = file.as_raw_fd();
        if let Some(queue) = &self.queue {
            watch(queue, fd)?;
        }
        // Those that end in `..` or `/` have no name: then the whole path is it.
        let name = path.file_name().unwrap_or(path.as_os_str()).to_owned();
        self.watches.insert(fd, Watch { watcher, name, is_directory, _file: file });
        Ok(())
    }

    pub(crate) fn stop(&mut self, watcher: Watcher) {
        self.watches.retain(|_, watch| watch.watcher != watcher);
    }

    /// In a forked child: queues are not inherited, and so are no watches.
    pub(crate) fn forget(&mut self) {
        *self = Watching::default();
    }

    pub(crate) fn collect(&mut self, notices: &mut Notices) -> io::Result<()> {
        let Some(queue) = &self.queue else { return Ok(()) };
        let mut changes = [const { MaybeUninit::<libc::kevent>::uninit() }; BATCH];
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let (none, to) = (ptr::null(), changes.as_mut_ptr().cast());
        // SAFETY: writes no more events than there is room for.
        let count = unsafe { libc::kevent(queue.as_raw_fd(), none, 0, to, BATCH as _, &now) };
        if count == -1 {
            let error = io::Error::last_os_error();
            let is_nothing = error.kind() == io::ErrorKind::Interrupted;
            return if is_nothing { Ok(()) } else { Err(error) };
        }
        for change in &changes[..count as usize] {
            // SAFETY: the kernel has written so many.
            let change = unsafe { change.assume_init_ref() };
            let Some(watch) = self.watches.get(&(change.ident as RawFd)) else { continue };
            let what = what(change.fflags, watch.is_directory);
            notices.push(watch.watcher, what, OsStr::new(""), &watch.name);
        }
        Ok(())
    }
}

/// To write to a directory is to change its entries.
fn what(notes: u32, is_directory: bool) -> What {
    let changes = if is_directory {
        libc::NOTE_ATTRIB
    } else {
        libc::NOTE_ATTRIB | libc::NOTE_WRITE | libc::NOTE_EXTEND | libc::NOTE_LINK
    };
    if notes & !changes == 0 { What::Changed } else { What::Renamed }
}

fn new_queue() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::kqueue() };
    if fd == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given it to us.
    let queue = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: no memory is passed.
    match unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(queue),
    }
}

fn watch(queue: &OwnedFd, fd: RawFd) -> io::Result<()> {
    // SAFETY: plain data, for which all zeros are valid.
    let mut change: libc::kevent = unsafe { std::mem::zeroed() };
    change.ident = fd as _;
    change.filter = libc::EVFILT_VNODE;
    change.flags = libc::EV_ADD | libc::EV_CLEAR;
    change.fflags = NOTES;
    let (to, no_wait) = (ptr::null_mut(), ptr::null());
    // SAFETY: reads one change.
    match unsafe { libc::kevent(queue.as_raw_fd(), &change, 1, to, 0, no_wait) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
