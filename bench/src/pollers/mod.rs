//! Pollers behind one small trait: backends, hand-written system calls, and other crates.
//!
//! The trait has no cost: every call is monomorphic, and a hand-written loop would convert events
//! to a list in the same way.

mod bare;
#[cfg(target_os = "linux")]
pub(crate) mod epoll;
mod looped;
#[cfg(unix)]
mod mio;
#[cfg(unix)]
mod poll;
mod polling;
#[cfg(target_os = "linux")]
mod ring;
#[cfg(unix)]
mod select;

use std::io;
use std::time::Duration;

use poll_core::RawSource;

pub(crate) use bare::Bare;
#[cfg(target_os = "linux")]
pub(crate) use epoll::Epoll;
pub(crate) use looped::Looped;
#[cfg(unix)]
pub(crate) use mio::Mio;
#[cfg(target_os = "linux")]
pub(crate) use mio::MioDrain;
#[cfg(unix)]
pub(crate) use poll::HandPoll;
pub(crate) use polling::Polling;
#[cfg(target_os = "linux")]
pub(crate) use ring::HandUring;
#[cfg(unix)]
pub(crate) use select::HandSelect;

use crate::backends::{self, OnBackend, Which};
use crate::suite::{ContestantId, Entrants, Sample};

/// Set in the number of a source whose end an edge-triggered poller has reported: it is not reported
/// again, so that the source must be drained.
#[cfg_attr(not(unix), allow(dead_code, reason = "edge-triggered pollers need Unix"))]
pub(crate) const ENDED: usize = 1 << (usize::BITS - 1);

/// The interest in a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Readable, level-triggered where supported.
    Read,
    /// Writable, level-triggered where supported.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "only servers write, and they are measured on Linux")
    )]
    Write,
    /// Readable, one-shot where supported.
    ReadOnce,
}

/// A poller. The caller identifies sources by small numbers.
pub(crate) trait Poller {
    /// True if the poller is edge-triggered, so that callers must drain a source.
    const EDGE: bool = false;

    /// Watches a source for reading. The caller keeps it open until it is removed or the poller is
    /// dropped.
    fn add(&mut self, number: usize, source: RawSource) -> io::Result<()>;
    fn change(&mut self, number: usize, source: RawSource, interest: Interest) -> io::Result<()>;
    fn remove(&mut self, number: usize, source: RawSource) -> io::Result<()>;

    /// Waits and appends the numbers of ready sources, with [`ENDED`] if the poller is
    /// edge-triggered and reports ends.
    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<usize>) -> io::Result<()>;
}

/// A task for any poller.
pub(crate) trait OnPoller: Clone + 'static {
    fn run<P: Poller>(&self, poller: P) -> io::Result<Sample>;
}

/// Adds all pollers: bare backends, hand-written ones, mio and polling.
pub(crate) fn enter(entrants: &mut Entrants, task: &impl OnPoller) {
    backends::enter(entrants, Which::All, ContestantId::Bare, &OnBare(task.clone()));
    #[cfg(unix)]
    {
        let (one, other) = (task.clone(), task.clone());
        entrants.enter(ContestantId::Hand("select"), move || one.run(HandSelect::new()));
        entrants.enter(ContestantId::Hand("poll"), move || other.run(HandPoll::default()));
    }
    #[cfg(target_os = "linux")]
    {
        let (one, other) = (task.clone(), task.clone());
        entrants.enter(ContestantId::Hand("epoll"), move || one.run(Epoll::new()?));
        match HandUring::new() {
            Ok(_) => {
                entrants.enter(ContestantId::Hand("uring"), move || other.run(HandUring::new()?))
            }
            Err(error) => entrants.skip(ContestantId::Hand("uring"), error.to_string()),
        }
    }
    #[cfg(unix)]
    {
        let task = task.clone();
        entrants.enter(ContestantId::Peer("mio"), move || task.run(Mio::new()?));
    }
    #[cfg(not(unix))]
    entrants.skip(ContestantId::Peer("mio"), "is measured on Unix only");
    let task = task.clone();
    entrants.enter(ContestantId::Peer("polling"), move || task.run(Polling::new()?));
}

/// Adds the loop of uv-core on every backend, as a poller.
pub(crate) fn enter_loops(entrants: &mut Entrants, task: &impl OnPoller) {
    backends::enter(entrants, Which::All, ContestantId::Core, &OnLoop(task.clone()));
}

#[derive(Clone)]
struct OnLoop<T>(T);

impl<T: OnPoller> OnBackend for OnLoop<T> {
    fn run<B: poll_core::Backend>(&self, make: fn() -> io::Result<B>) -> io::Result<Sample> {
        self.0.run(Looped::new(make()?))
    }
}

#[derive(Clone)]
struct OnBare<T>(T);

impl<T: OnPoller> OnBackend for OnBare<T> {
    fn run<B: poll_core::Backend>(&self, make: fn() -> io::Result<B>) -> io::Result<Sample> {
        self.0.run(Bare::new(make()?))
    }
}

/// The timeout for `poll` and `epoll_wait`, rounded up.
#[cfg(unix)]
fn milliseconds(timeout: Option<Duration>) -> std::ffi::c_int {
    timeout.map_or(-1, |timeout| timeout.as_nanos().div_ceil(1_000_000) as std::ffi::c_int)
}

#[cfg(unix)]
fn check(result: std::ffi::c_int) -> io::Result<std::ffi::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Repeats a call while a signal interrupts it.
#[cfg(unix)]
fn uninterrupted(mut call: impl FnMut() -> std::ffi::c_int) -> io::Result<usize> {
    loop {
        match check(call()) {
            Ok(count) => return Ok(count as usize),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
