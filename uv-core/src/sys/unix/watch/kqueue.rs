//! Watches by kqueue (`EVFILT_VNODE`): one open descriptor for each file or directory.
//!
//! Backends report readiness only, so the loop has a kqueue of its own for watches, and polls that:
//! it is readable while it has events.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use poll_core::RawSource;

use crate::event_loop::Notifier;
use crate::handles::{Notices, Watcher, What};

/// The most events that one call takes.
const BATCH: usize = 64;

/// The events that handles report.
const NOTES: u32 = libc::NOTE_ATTRIB
    | libc::NOTE_WRITE
    | libc::NOTE_EXTEND
    | libc::NOTE_LINK
    | libc::NOTE_RENAME
    | libc::NOTE_DELETE
    | libc::NOTE_REVOKE;

/// Apple's `O_EVTONLY` opens a file for notifications only, and does not prevent an unmount.
#[cfg(target_vendor = "apple")]
const OPEN_FLAGS: libc::c_int = libc::O_EVTONLY;
#[cfg(not(target_vendor = "apple"))]
const OPEN_FLAGS: libc::c_int = libc::O_NONBLOCK;

/// The watches of a loop.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    /// Opened for the first watch, and kept.
    queue: Option<Queue>,
    /// By the watched descriptor.
    watches: HashMap<RawFd, Watch>,
}

#[derive(Debug)]
struct Watch {
    watcher: Watcher,
    /// The name in notices: kqueue does not report which entry of a directory changed.
    name: OsString,
    is_directory: bool,
    /// Closing it removes the watch.
    _file: File,
}

impl Watching {
    pub(crate) fn source(&self) -> Option<RawSource> {
        self.queue.as_ref().map(|queue| RawSource::from_fd(queue.fd))
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
            self.queue = Some(Queue::new()?);
        }
        let file = OpenOptions::new().read(true).custom_flags(OPEN_FLAGS).open(path)?;
        let is_directory = file.metadata()?.is_dir();
        let fd = file.as_raw_fd();
        if let Some(queue) = &self.queue {
            queue.watch(fd)?;
        }
        // A path that ends in `..` or `/` has no file name: the whole path is used.
        let name = path.file_name().unwrap_or(path.as_os_str()).to_owned();
        self.watches.insert(fd, Watch { watcher, name, is_directory, _file: file });
        Ok(())
    }

    pub(crate) fn stop(&mut self, watcher: Watcher) {
        self.watches.retain(|_, watch| watch.watcher != watcher);
    }

    /// For a forked child: kqueues are not inherited, so there are no watches. The files are
    /// inherited, and are closed.
    pub(crate) fn forget(&mut self) {
        *self = Watching::default();
    }

    pub(crate) fn collect(&mut self, notices: &mut Notices) -> io::Result<()> {
        let Some(queue) = &self.queue else { return Ok(()) };
        let mut changes = [const { MaybeUninit::<libc::kevent>::uninit() }; BATCH];
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let (none, to) = (ptr::null(), changes.as_mut_ptr().cast());
        // SAFETY: the change list has length 0, the kernel writes at most `BATCH` events, the
        // length of `changes`, and the timeout is a local that outlives the call.
        let count = unsafe { libc::kevent(queue.fd, none, 0, to, BATCH as _, &now) };
        if count == -1 {
            let error = io::Error::last_os_error();
            let is_nothing = error.kind() == io::ErrorKind::Interrupted;
            return if is_nothing { Ok(()) } else { Err(error) };
        }
        for change in &changes[..count as usize] {
            // SAFETY: the kernel has written the first `count` events.
            let change = unsafe { change.assume_init_ref() };
            let Some(watch) = self.watches.get(&(change.ident as RawFd)) else { continue };
            let what = what(change.fflags, watch.is_directory);
            notices.push(watch.watcher, what, OsStr::new(""), &watch.name);
        }
        Ok(())
    }
}

/// Classifies an event. A write to a directory changes its entries, so it is a rename.
fn what(notes: u32, is_directory: bool) -> What {
    let changes = if is_directory {
        libc::NOTE_ATTRIB
    } else {
        libc::NOTE_ATTRIB | libc::NOTE_WRITE | libc::NOTE_EXTEND | libc::NOTE_LINK
    };
    if notes & !changes == 0 { What::Changed } else { What::Renamed }
}

/// A kernel queue of this process.
#[derive(Debug)]
struct Queue {
    fd: RawFd,
    /// The process that made the queue. A forked child does not inherit it: there the number is
    /// unused or names another file, and must not be closed.
    pid: u32,
}

impl Queue {
    /// `kqueue(2)`, close-on-exec.
    fn new() -> io::Result<Queue> {
        // SAFETY: takes no pointer.
        let fd = unsafe { libc::kqueue() };
        if fd == -1 {
            return Err(io::Error::last_os_error());
        }
        let queue = Queue { fd, pid: std::process::id() };
        // SAFETY: takes no pointer.
        match unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(queue),
        }
    }

    /// Adds a knote for changes of an open file.
    fn watch(&self, fd: RawFd) -> io::Result<()> {
        // SAFETY: a C structure of integers and a raw pointer; zero is valid for each field.
        let mut change: libc::kevent = unsafe { std::mem::zeroed() };
        change.ident = fd as _;
        change.filter = libc::EVFILT_VNODE;
        change.flags = libc::EV_ADD | libc::EV_CLEAR;
        change.fflags = NOTES;
        let (to, no_wait) = (ptr::null_mut(), ptr::null());
        // SAFETY: reads one change, a local that outlives the call, and writes no events (length
        // 0).
        match unsafe { libc::kevent(self.fd, &change, 1, to, 0, no_wait) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            // SAFETY: takes no pointer. `Queue::new` opened the descriptor in this process, and
            // only this closes it.
            unsafe { libc::close(self.fd) };
        }
    }
}
