//! Waiting on a backend and looking at what it reports.

use std::io;
use std::time::{Duration, Instant};

use poll_core::{Backend, Event, Mode, RawSource, Ready, Token};

use super::sources::Source;

/// Tokens for the sources of a case.
pub(crate) const A: Token = Token::new(0, 0);
/// The second source's.
pub(crate) const B: Token = Token::new(1, 0);
/// The third source's.
pub(crate) const C: Token = Token::new(2, 0);

/// How long to wait for what must come. Only a failing case waits this long.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// How long to wait for what must not come.
pub(crate) const SHORT: Duration = Duration::from_millis(20);

/// Registers `source`, which must outlive the registration.
pub(crate) fn register<T: Backend>(
    backend: &mut T,
    token: Token,
    source: &impl Source,
    interest: Ready,
    mode: Mode,
) {
    try_register(backend, token, source.raw(), interest, mode)
        .unwrap_or_else(|error| panic!("register {token:?} for {interest:?}, {mode:?}: {error}"));
}

/// Registers what may be refused. The source must outlive the registration.
pub(crate) fn try_register<T: Backend>(
    backend: &mut T,
    token: Token,
    source: RawSource,
    interest: Ready,
    mode: Mode,
) -> io::Result<()> {
    // SAFETY: cases keep their sources open until they deregister them or drop
    // the backend, except those that check what happens otherwise.
    unsafe { backend.register(token, source, interest, mode) }
}

/// Changes a registration that exists.
pub(crate) fn modify<T: Backend>(backend: &mut T, token: Token, interest: Ready, mode: Mode) {
    backend
        .modify(token, interest, mode)
        .unwrap_or_else(|error| panic!("modify {token:?} to {interest:?}, {mode:?}: {error}"));
}

/// Ends a registration that exists.
pub(crate) fn deregister<T: Backend>(backend: &mut T, token: Token) {
    backend.deregister(token).unwrap_or_else(|error| panic!("deregister {token:?}: {error}"));
}

/// One wait, as it is.
pub(crate) fn wait_once<T: Backend>(backend: &mut T, timeout: Option<Duration>) -> Vec<Event> {
    let mut events = Vec::new();
    backend.wait(timeout, &mut events).unwrap_or_else(|error| panic!("wait: {error}"));
    assert_distinct(&events);
    events
}

/// Waits until something is reported or the time is over, through wakes and signals.
pub(crate) fn wait_for<T: Backend>(backend: &mut T, timeout: Duration) -> Vec<Event> {
    let started = Instant::now();
    loop {
        let left = timeout.saturating_sub(started.elapsed());
        let events = wait_once(backend, Some(left));
        if !events.is_empty() || left.is_zero() {
            return events;
        }
    }
}

/// Waits until `token` reports all of `wanted`, and gives all that it reported then.
/// What other tokens report meanwhile is passed over.
pub(crate) fn await_ready<T: Backend>(backend: &mut T, token: Token, wanted: Ready) -> Ready {
    let started = Instant::now();
    let mut last = Ready::NONE;
    while started.elapsed() < SOON {
        let events = wait_for(backend, SOON.saturating_sub(started.elapsed()));
        let ready = ready_of(&events, token);
        if ready.contains(wanted) {
            return ready;
        }
        if !ready.is_empty() {
            last = ready;
        }
        // Something else is ready, or a part of what is wanted: let the rest arrive.
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{token:?} does not become {wanted:?}; it last reported {last:?}");
}

/// Asserts that a short wait reports nothing.
#[track_caller]
pub(crate) fn quiet<T: Backend>(backend: &mut T) {
    let events = wait_for(backend, SHORT);
    assert!(events.is_empty(), "nothing should be reported, but {events:?} was");
}

/// As [`quiet`], saying `why` nothing should be reported.
#[track_caller]
pub(crate) fn silent<T: Backend>(backend: &mut T, why: &str) {
    let events = wait_for(backend, SHORT);
    assert!(events.is_empty(), "{events:?} was reported, but {why}");
}

/// Asserts that one wait reports nothing and lasts its whole `timeout`.
#[track_caller]
pub(crate) fn lasts<T: Backend>(backend: &mut T, timeout: Duration, why: &str) {
    let started = Instant::now();
    let events = wait_once(backend, Some(timeout));
    let elapsed = started.elapsed();
    assert!(events.is_empty(), "{events:?} was reported, but {why}");
    assert!(elapsed >= timeout, "a wait of {timeout:?} ended after {elapsed:?}, but {why}");
}

/// What a wait that does not block reports of `token`: what holds by now.
pub(crate) fn ready_now<T: Backend>(backend: &mut T, token: Token) -> Ready {
    ready_of(&wait_once(backend, Some(Duration::ZERO)), token)
}

/// What `events` say about `token`; [`Ready::NONE`] if nothing.
pub(crate) fn ready_of(events: &[Event], token: Token) -> Ready {
    let about = |event: &Event| match *event {
        Event::Ready { token: of, ready } if of == token => Some(ready),
        _ => None,
    };
    events.iter().find_map(about).unwrap_or(Ready::NONE)
}

/// Asserts that no source is reported twice in one wait, and none for nothing.
#[track_caller]
pub(crate) fn assert_distinct(events: &[Event]) {
    let mut tokens = Vec::with_capacity(events.len());
    for event in events {
        if let Event::Ready { token, ready } = *event {
            assert!(!ready.is_empty(), "{token:?} is reported for nothing");
            tokens.push(token);
        }
    }
    tokens.sort_unstable();
    if let Some(pair) = tokens.windows(2).find(|pair| pair[0] == pair[1]) {
        panic!("{:?} is reported twice in one wait: {events:?}", pair[0]);
    }
}
