//! Waiting on a backend and checking its events.

use std::io;
use std::time::{Duration, Instant};

use poll_core::{Backend, BoxedBackend, Event, Interest, Mode, RawSource, Readiness, Token};

use super::sources::Source;

/// The token of a case's first source.
pub(crate) const A: Token = Token::new(0, 0);
/// The token of the second source.
pub(crate) const B: Token = Token::new(1, 0);
/// The token of the third source.
pub(crate) const C: Token = Token::new(2, 0);

/// The time to wait for an expected event. Only a failing case waits this long.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// The time to wait for an event that must not occur.
pub(crate) const SHORT: Duration = Duration::from_millis(20);

/// Registers `source`, which must outlive the registration.
pub(crate) fn register(
    backend: &mut BoxedBackend,
    token: Token,
    source: &impl Source,
    interest: Interest,
    mode: Mode,
) {
    try_register(backend, token, source.raw(), interest, mode)
        .unwrap_or_else(|error| panic!("register {token:?} for {interest:?}, {mode:?}: {error}"));
}

/// Registers a source that may be refused. It must outlive the registration.
pub(crate) fn try_register(
    backend: &mut BoxedBackend,
    token: Token,
    source: RawSource,
    interest: Interest,
    mode: Mode,
) -> io::Result<()> {
    // SAFETY: cases keep their sources open until they deregister them or drop the backend, except
    // those that check a violation of this rule.
    unsafe { backend.register(token, source, interest, mode) }
}

/// Modifies an existing registration.
pub(crate) fn modify(backend: &mut BoxedBackend, token: Token, interest: Interest, mode: Mode) {
    backend
        .modify(token, interest, mode)
        .unwrap_or_else(|error| panic!("modify {token:?} to {interest:?}, {mode:?}: {error}"));
}

/// Ends an existing registration.
pub(crate) fn deregister(backend: &mut BoxedBackend, token: Token) {
    backend.deregister(token).unwrap_or_else(|error| panic!("deregister {token:?}: {error}"));
}

/// One call of `wait`.
pub(crate) fn wait_once(backend: &mut BoxedBackend, timeout: Option<Duration>) -> Vec<Event> {
    let mut events = Vec::new();
    backend.wait(timeout, &mut events).unwrap_or_else(|error| panic!("wait: {error}"));
    assert_distinct(&events);
    events
}

/// Waits until an event is reported or the timeout expires, across wakes and signals.
pub(crate) fn wait_for(backend: &mut BoxedBackend, timeout: Duration) -> Vec<Event> {
    let started = Instant::now();
    loop {
        let left = timeout.saturating_sub(started.elapsed());
        let events = wait_once(backend, Some(left));
        if !events.is_empty() || left.is_zero() {
            return events;
        }
    }
}

/// Waits until `token` reports all of `wanted`, and returns all that it reported in that wait.
/// Events of other tokens are ignored.
pub(crate) fn await_ready(
    backend: &mut BoxedBackend,
    token: Token,
    wanted: impl Into<Readiness>,
) -> Readiness {
    let wanted = wanted.into();
    let started = Instant::now();
    let mut last = Readiness::NONE;
    while started.elapsed() < SOON {
        let events = wait_for(backend, SOON.saturating_sub(started.elapsed()));
        let ready = ready_of(&events, token);
        if ready.contains(wanted) {
            return ready;
        }
        if !ready.is_empty() {
            last = ready;
        }
        // Another source is ready, or a part of what is wanted: wait for the rest.
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{token:?} does not report {wanted:?}; its last event was {last:?}");
}

/// Asserts that a short wait reports nothing.
#[track_caller]
pub(crate) fn quiet(backend: &mut BoxedBackend) {
    let events = wait_for(backend, SHORT);
    assert!(events.is_empty(), "{events:?} was reported instead of nothing");
}

/// As [`quiet`], with the reason `why` nothing should be reported.
#[track_caller]
pub(crate) fn silent(backend: &mut BoxedBackend, why: &str) {
    let events = wait_for(backend, SHORT);
    assert!(events.is_empty(), "{events:?} was reported, but {why}");
}

/// Asserts that one wait reports nothing and lasts for its whole `timeout`.
#[track_caller]
pub(crate) fn lasts(backend: &mut BoxedBackend, timeout: Duration, why: &str) {
    let started = Instant::now();
    let events = wait_once(backend, Some(timeout));
    let elapsed = started.elapsed();
    assert!(events.is_empty(), "{events:?} was reported, but {why}");
    assert!(elapsed >= timeout, "a wait of {timeout:?} ended after {elapsed:?}, but {why}");
}

/// The readiness of `token` that a wait without blocking reports.
pub(crate) fn ready_now(backend: &mut BoxedBackend, token: Token) -> Readiness {
    ready_of(&wait_once(backend, Some(Duration::ZERO)), token)
}

/// The readiness of `token` in `events`; [`Readiness::NONE`] without an event.
pub(crate) fn ready_of(events: &[Event], token: Token) -> Readiness {
    let about = |event: &Event| match *event {
        Event::Ready { token: of, ready } if of == token => Some(ready),
        _ => None,
    };
    events.iter().find_map(about).unwrap_or(Readiness::NONE)
}

/// Asserts that no source is reported twice in one wait, and none with empty readiness.
#[track_caller]
pub(crate) fn assert_distinct(events: &[Event]) {
    let mut tokens = Vec::with_capacity(events.len());
    for event in events {
        if let Event::Ready { token, ready } = *event {
            assert!(!ready.is_empty(), "{token:?} is reported with empty readiness");
            tokens.push(token);
        }
    }
    tokens.sort_unstable();
    if let Some(pair) = tokens.windows(2).find(|pair| pair[0] == pair[1]) {
        panic!("{:?} is reported twice in one wait: {events:?}", pair[0]);
    }
}
