//! Who watches what on macOS: directories by FSEvents, files by `kqueue`, and directories, too,
//! where FSEvents is not to be had.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use poll_core::RawSource;

use super::streams::Stream;
use super::vnodes;
use crate::handles::{Inbox, Notices, Watcher};
use crate::notify::Notifier;

/// The watches of a loop.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    streams: HashMap<Watcher, Stream>,
    inbox: Arc<Inbox>,
    vnodes: vnodes::Watching,
}

impl Watching {
    /// That of `kqueue`: streams leave notes.
    pub(crate) fn source(&self) -> Option<RawSource> {
        self.vnodes.source()
    }

    pub(crate) fn start(
        &mut self,
        watcher: Watcher,
        path: &Path,
        recursive: bool,
        notices: &mut Notices,
        notifier: &Arc<Notifier>,
    ) -> io::Result<()> {
        if std::fs::metadata(path)?.is_dir()
            && let Some(stream) = Stream::start(watcher, path, recursive, &self.inbox, notifier)
        {
            self.streams.insert(watcher, stream?);
            return Ok(());
        }
        self.vnodes.start(watcher, path, recursive, notices, notifier)
    }

    pub(crate) fn stop(&mut self, watcher: Watcher) {
        self.streams.remove(&watcher);
        self.vnodes.stop(watcher);
    }

    /// In a forked child, which has neither the streams nor the queue.
    pub(crate) fn forget(&mut self) {
        self.streams.drain().for_each(|(_, stream)| stream.forget());
        // Its lock may be held for ever, so it is left as it is.
        std::mem::forget(std::mem::take(&mut self.inbox));
        self.vnodes.forget();
    }

    pub(crate) fn collect(&mut self, notices: &mut Notices) -> io::Result<()> {
        self.inbox.empty(notices);
        self.vnodes.collect(notices)
    }
}
