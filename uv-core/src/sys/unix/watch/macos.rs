//! Watches on macOS: directories by FSEvents, files by kqueue, which also takes directories if
//! FSEvents is not available.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use poll_core::RawSource;

use super::fsevents::Stream;
use super::kqueue;
use crate::event_loop::Notifier;
use crate::handles::{Inbox, Notices, Watcher};

/// The watches of a loop.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    streams: HashMap<Watcher, Stream>,
    inbox: Arc<Inbox>,
    vnodes: kqueue::Watching,
}

impl Watching {
    /// The source of the kqueue. Streams use the inbox and the notifier instead.
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

    /// For a forked child, which inherits neither the streams nor the kqueue.
    pub(crate) fn forget(&mut self) {
        self.streams.drain().for_each(|(_, stream)| stream.forget());
        // A thread of the parent may have held its lock, so the inbox is leaked.
        std::mem::forget(std::mem::take(&mut self.inbox));
        self.vnodes.forget();
    }

    pub(crate) fn collect(&mut self, notices: &mut Notices) -> io::Result<()> {
        self.inbox.empty(notices);
        self.vnodes.collect(notices)
    }
}
