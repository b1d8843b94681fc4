//! Waits for children that nobody will ask for any more, so that they leave no zombies.
//!
//! A thread does it, as the loop may not run again. There is none while there is no such child.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::Child;

/// How often children without a descriptor are looked at.
const LOOK_EVERY_MS: libc::c_int = 200;

/// The children of a loop whose handles are gone.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Those that the thread has not taken over yet.
    new: Vec<Child>,
    /// Wakes the thread. There is one while this is here.
    bell: Option<PipeWriter>,
}

impl Reaper {
    /// Takes a child over.
    pub(crate) fn adopt(&mut self, mut child: Child) {
        if child.try_wait().is_some() {
            return;
        }
        let mut shared = lock(&self.shared);
        let rung = !shared.new.is_empty();
        shared.new.push(child);
        match &mut shared.bell {
            // Once for all that wait, so that the pipe is never full.
            Some(_) if rung => {}
            Some(bell) => drop(bell.write_all(&[0])),
            // If there can be no thread, they stay for the next time.
            None => drop(self.start(&mut shared)),
        }
    }

    fn start(&self, shared: &mut Shared) -> io::Result<()> {
        let (reader, writer) = io::pipe()?;
        let theirs = Arc::clone(&self.shared);
        thread::Builder::new().name("uv-reaper".into()).spawn(move || reap(&theirs, reader))?;
        shared.bell = Some(writer);
        Ok(())
    }

    /// In a forked child: the children are the parent's, and the thread is not here. Its lock
    /// may be held for ever, so it is left as it is.
    pub(crate) fn forget(&mut self) {
        std::mem::forget(std::mem::take(&mut self.shared));
    }
}

fn reap(shared: &Mutex<Shared>, mut bell: PipeReader) {
    let mut children: Vec<Child> = Vec::new();
    let mut polled: Vec<libc::pollfd> = Vec::new();
    loop {
        {
            let mut shared = lock(shared);
            children.append(&mut shared.new);
            children.retain_mut(|child| child.try_wait().is_none());
            if children.is_empty() {
                shared.bell = None;
                return;
            }
        }
        polled.clear();
        polled.push(readable(bell.as_raw_fd()));
        polled.extend(children.iter().filter_map(|it| Some(readable(it.source()?.fd()))));
        let all_have_sources = polled.len() == children.len() + 1;
        let timeout = if all_have_sources { -1 } else { LOOK_EVERY_MS };
        // SAFETY: the kernel reads and writes the array, which lives across the call.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout) };
        if polled.first().is_some_and(|bell| bell.revents != 0) {
            let _ = bell.read(&mut [0; 16]);
        }
    }
}

fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Who panicked has added a child or not: both are fine.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
