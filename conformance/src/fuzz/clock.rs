//! A backend decorator with a virtual clock.

use std::io;
use std::time::Duration;

use poll_core::{Backend, Event, delegate_backend};

/// Any backend whose time passes only while it waits, and then without delay.
///
/// A wait with nothing to report ends immediately, as if its timeout had passed. So the order of
/// timers, and of all that happens between them, does not depend on the machine.
#[derive(Debug)]
pub(super) struct VirtualClock<B> {
    inner: B,
    now: Duration,
}

impl<B: Backend> VirtualClock<B> {
    pub(super) fn new(inner: B) -> VirtualClock<B> {
        VirtualClock { inner, now: Duration::from_secs(1) }
    }
}

// SAFETY: calls and events are those of `inner`, which keeps the promises.
unsafe impl<B: Backend> Backend for VirtualClock<B> {
    delegate_backend! { self => self.inner, Waker = B::Waker, except { wait, now } }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        let before = events.len();
        self.inner.wait(Some(Duration::ZERO), events)?;
        if events.len() == before {
            self.now += timeout.unwrap_or_default();
        }
        Ok(())
    }

    fn now(&self) -> Duration {
        self.now
    }
}
