//! Hand-written io_uring for readiness: a one-shot poll of each source, re-armed after it fired.

use std::io;
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use poll_core::RawSource;

use super::{Interest, Poller};

const ENTRIES: u32 = 4_096;
/// The queue size: more than the number of sources.
const COMPLETIONS: u32 = 65_536;
/// The user data of removals, whose completions are ignored.
const NOBODY: u64 = u64::MAX;

/// The state of a source.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    fd: i32,
    flags: u32,
    once: bool,
    /// Incremented by every change, so that completions of earlier polls are ignored.
    generation: u32,
}

pub(crate) struct HandUring {
    ring: IoUring,
    watched: Vec<Watched>,
    /// Sources that fired in the last wait and must be re-armed.
    fired: Vec<usize>,
}

impl HandUring {
    pub(crate) fn new() -> io::Result<HandUring> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_defer_taskrun()
            .setup_cqsize(COMPLETIONS)
            .build(ENTRIES)?;
        Ok(HandUring { ring, watched: Vec::new(), fired: Vec::new() })
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: polls and their removals use no memory.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }

    fn ask(&mut self, number: usize) -> io::Result<()> {
        let Watched { fd, flags, .. } = self.watched[number];
        let data = self.data(number);
        self.push(&opcode::PollAdd::new(Fd(fd), flags).build().user_data(data))
    }

    fn data(&self, number: usize) -> u64 {
        u64::from(self.watched[number].generation) << 32 | number as u64
    }

    /// Cancels the poll of a source. A late completion has an old generation.
    fn forget(&mut self, number: usize) -> io::Result<()> {
        let data = self.data(number);
        self.watched[number].generation = self.watched[number].generation.wrapping_add(1);
        self.fired.retain(|fired| *fired != number);
        self.push(&opcode::PollRemove::new(data).build().user_data(NOBODY))
    }
}

impl Poller for HandUring {
    fn add(&mut self, number: usize, source: RawSource) -> io::Result<()> {
        self.watched.resize(self.watched.len().max(number + 1), Watched::default());
        let watched = &mut self.watched[number];
        (watched.fd, watched.flags, watched.once) = (source.fd(), libc::POLLIN as u32, false);
        self.ask(number)
    }

    fn change(&mut self, number: usize, _: RawSource, interest: Interest) -> io::Result<()> {
        self.forget(number)?;
        let watched = &mut self.watched[number];
        watched.flags = match interest {
            Interest::Read | Interest::ReadOnce => libc::POLLIN as u32,
            Interest::Write => libc::POLLOUT as u32,
        };
        watched.once = interest == Interest::ReadOnce;
        self.ask(number)
    }

    fn remove(&mut self, number: usize, _: RawSource) -> io::Result<()> {
        self.forget(number)
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<usize>) -> io::Result<()> {
        for number in std::mem::take(&mut self.fired) {
            self.ask(number)?;
        }
        let before = ready.len();
        loop {
            let time = timeout.map(Timespec::from);
            let args = SubmitArgs::new();
            let args = time.iter().fold(args, |args, time| args.timespec(time));
            match self.ring.submitter().submit_with_args(1, &args) {
                Err(error) if error.raw_os_error() == Some(libc::ETIME) => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) => {}
                result => drop(result?),
            }
            for entry in self.ring.completion() {
                let number = (entry.user_data() & u64::from(u32::MAX)) as usize;
                let generation = (entry.user_data() >> 32) as u32;
                let Some(watched) = self.watched.get(number) else { continue };
                if watched.generation == generation && entry.result() > 0 {
                    ready.push(number);
                    if !watched.once {
                        self.fired.push(number);
                    }
                }
            }
            // Completions of removals do not end the wait.
            if ready.len() > before || timeout.is_some() {
                return Ok(());
            }
        }
    }
}
