//! Reaps children whose handles were closed, so that they leave no zombies.
//!
//! A thread waits for them, as the loop may not run again. It exists only while there are such
//! children.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::Child;

/// How often children without a process descriptor are checked.
const POLL_INTERVAL_MS: libc::c_int = 200;

/// The children of a loop whose handles were closed.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Children that the thread has not taken over yet.
    new: Vec<Child>,
    /// Wakes the thread. The thread runs while this is `Some`.
    wake: Option<PipeWriter>,
}

impl Reaper {
    /// Takes over a child.
    pub(crate) fn adopt(&mut self, mut child: Child) {
        if child.try_wait().is_some() {
            return;
        }
        let mut shared = lock(&self.shared);
        let woken = !shared.new.is_empty();
        shared.new.push(child);
        match &mut shared.wake {
            // One wake for all pending children, so that the pipe never fills up.
            Some(_) if woken => {}
            Some(wake) => drop(wake.write_all(&[0])),
            // If the thread cannot be started, the children wait for the next attempt.
            None => drop(self.start(&mut shared)),
        }
    }

    fn start(&self, shared: &mut Shared) -> io::Result<()> {
        let (reader, writer) = io::pipe()?;
        let theirs = Arc::clone(&self.shared);
        thread::Builder::new().name("uv-reaper".into()).spawn(move || reap(&theirs, reader))?;
        shared.wake = Some(writer);
        Ok(())
    }

    /// For a forked child: the children belong to the parent, and the thread does not exist here.
    /// It may have held the lock, so the shared state is leaked.
    pub(crate) fn forget(&mut self) {
        std::mem::forget(std::mem::take(&mut self.shared));
    }
}

fn reap(shared: &Mutex<Shared>, mut wake: PipeReader) {
    let mut children: Vec<Child> = Vec::new();
    let mut polled: Vec<libc::pollfd> = Vec::new();
    loop {
        {
            let mut shared = lock(shared);
            children.append(&mut shared.new);
            children.retain_mut(|child| child.try_wait().is_none());
            if children.is_empty() {
                shared.wake = None;
                return;
            }
        }
        polled.clear();
        polled.push(readable(wake.as_raw_fd()));
        polled.extend(children.iter().filter_map(|it| Some(readable(it.source()?.fd()))));
        let all_have_sources = polled.len() == children.len() + 1;
        let timeout = if all_have_sources { -1 } else { POLL_INTERVAL_MS };
        // SAFETY: reads and writes `polled.len()` elements of `polled`, a local that outlives the
        // call.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout) };
        if polled.first().is_some_and(|wake| wake.revents != 0) {
            let _ = wake.read(&mut [0; 16]);
        }
    }
}

fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Locks, and ignores poison: a panic leaves the list with or without a child, both valid.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
