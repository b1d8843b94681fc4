//! Pollers behind one small trait: our backends, system calls by hand, and other crates.
//!
//! The trait costs nothing: all is monomorphic, and what a poller does between the wait and
//! the list of what is ready is what one would write by hand as well.

mod bare;
#[cfg(target_os = "linux")]
pub(crate) mod epoll;
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
#[cfg(unix)]
pub(crate) use mio::Mio;
#[cfg(unix)]
pub(crate) use poll::HandPoll;
pub(crate) use polling::Polling;
#[cfg(target_os = "linux")]
pub(crate) use ring::HandUring;
#[cfg(unix)]
pub(crate) use select::HandSelect;

use crate::backends::{self, OnBackend, Which};
use crate::suite::{Entrants, Sample, Who};

/// What a source is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Until it is changed.
    Read,
    /// Until it is changed.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "only servers write, and those are measured on Linux")
    )]
    Write,
    /// Until it is reported, where there is such a choice.
    ReadOnce,
}

/// What all of them can do. Sources have numbers, which are small and chosen by the caller.
pub(crate) trait Poller {
    /// True if only changes are reported, so that what is there must be used up.
    const EDGE: bool = false;

    /// Watches a source for reading. It stays open until it is removed or the poller is gone.
    fn add(&mut self, number: usize, source: RawSource) -> io::Result<()>;
    fn change(&mut self, number: usize, source: RawSource, interest: Interest) -> io::Result<()>;
    fn remove(&mut self, number: usize, source: RawSource) -> io::Result<()>;

    /// Waits and appends the numbers of what is ready.
    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<usize>) -> io::Result<()>;
}

/// Work that any poller can do.
pub(crate) trait OnPoller: Clone + 'static {
    fn run<P: Poller>(&self, poller: P) -> io::Result<Sample>;
}

/// Enters all pollers: ours bare, by hand, mio and polling.
pub(crate) fn enter(entrants: &mut Entrants, task: &impl OnPoller) {
    backends::enter(entrants, Which::All, Who::Bare, &OnBare(task.clone()));
    #[cfg(unix)]
    {
        let (one, other) = (task.clone(), task.clone());
        entrants.enter(Who::Hand("select"), move || one.run(HandSelect::new()));
        entrants.enter(Who::Hand("poll"), move || other.run(HandPoll::default()));
    }
    #[cfg(target_os = "linux")]
    {
        let (one, other) = (task.clone(), task.clone());
        entrants.enter(Who::Hand("epoll"), move || one.run(Epoll::new()?));
        match HandUring::new() {
            Ok(_) => entrants.enter(Who::Hand("uring"), move || other.run(HandUring::new()?)),
            Err(error) => entrants.excuse(Who::Hand("uring"), error.to_string()),
        }
    }
    #[cfg(unix)]
    {
        let task = task.clone();
        entrants.enter(Who::Peer("mio"), move || task.run(Mio::new()?));
    }
    #[cfg(not(unix))]
    entrants.excuse(Who::Peer("mio"), "is compared on Unix only");
    let task = task.clone();
    entrants.enter(Who::Peer("polling"), move || task.run(Polling::new()?));
}

#[derive(Clone)]
struct OnBare<T>(T);

impl<T: OnPoller> OnBackend for OnBare<T> {
    fn run<B: poll_core::Backend>(&self, make: fn() -> io::Result<B>) -> io::Result<Sample> {
        self.0.run(Bare::new(make()?))
    }
}

/// As `poll` and `epoll_wait` take it, rounded up.
#[cfg(unix)]
fn milliseconds(timeout: Option<Duration>) -> std::ffi::c_int {
    timeout.map_or(-1, |timeout| timeout.as_nanos().div_ceil(1_000_000) as std::ffi::c_int)
}

#[cfg(unix)]
fn check(result: std::ffi::c_int) -> io::Result<std::ffi::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Calls again for as long as a signal comes in between.
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
