//! Listening and accepting.

use std::collections::VecDeque;
use std::io;

use poll_core::{Backend, Token};

use super::{Flags, Stream};
use crate::callback::{Once, Repeated};
use crate::crowd::Crowd;
use crate::operations::Done;
use crate::sys::Transport;
use crate::{Loop, error, sys};

/// Connections that one readiness event accepts at the most, so that many who connect do not
/// starve those who are connected; or as many as there are events in the turn, if that is more,
/// so that those do not starve who connect.
const ACCEPTS_PER_EVENT: usize = 64;

/// What a stream has besides once it listens.
pub(crate) struct Listener<B: Backend> {
    /// `None` if connections are accepted by request only, and while it runs.
    callback: Option<Repeated<B, (Token, Option<io::Error>)>>,
    /// There is a callback, even if it runs.
    has_callback: bool,
    /// A connection that the callback was told of and nobody has taken. Until then no other is
    /// accepted: they wait in the kernel.
    waiting: Option<Transport>,
    /// Connections that operations have accepted before they could be told not to.
    queue: VecDeque<Transport>,
    /// Requests to accept, which are served before the callback is.
    requests: VecDeque<Once<B, Accepted>>,
    /// Whether they come one by one.
    crowd: Crowd,
    /// The listener failed: it accepts no more.
    failed: bool,
    /// There were no more descriptors. An operation wants one before anybody connects, and would
    /// fail again at once: until a connection was accepted, the listener waits for readiness.
    exhausted: bool,
}

/// The listener, and the connection's new key.
type Accepted = (Token, io::Result<Token>);

/// The callback of a listener that has none.
pub(super) type Nobody<B, S> = fn(&mut Loop<B>, S, io::Result<()>);

impl<B: Backend> Listener<B> {
    /// Gives up what is not a request: the connection that waits and the callback.
    pub(super) fn stop(&mut self) -> impl Sized + use<B> {
        self.has_callback = false;
        (self.waiting.take(), std::mem::take(&mut self.queue), self.callback.take())
    }

    /// Connections are told to a callback, and not only asked for one by one.
    pub(super) fn has_callback(&self) -> bool {
        self.has_callback
    }

    /// True if an operation may accept.
    pub(super) fn may_operate(&self) -> bool {
        !self.exhausted
    }

    pub(super) fn wants_peers(&self) -> bool {
        let asked = self.has_callback && self.waiting.is_none();
        !self.failed && (asked || !self.requests.is_empty())
    }
}

pub(super) fn listen<S: Stream, B: Backend>(
    stream: S,
    lp: &mut Loop<B>,
    backlog: u32,
    callback: Option<impl FnMut(&mut Loop<B>, S, io::Result<()>) + 'static>,
) -> io::Result<()> {
    let key = stream.stream_key();
    S::prepare_listen(stream, lp)?;
    let slot = lp.streams.open(key)?;
    let Some(socket) = &slot.socket else { return Err(error::not_connected()) };
    socket.listen(backlog.min(i32::MAX as u32) as i32)?;
    slot.flags |= Flags::LISTENING;
    slot.update_active(&mut lp.active_handles);
    let listener = slot.listener.get_or_insert_with(|| {
        Box::new(Listener {
            callback: None,
            has_callback: false,
            waiting: None,
            queue: VecDeque::new(),
            requests: VecDeque::new(),
            crowd: Crowd::default(),
            failed: false,
            exhausted: false,
        })
    });
    listener.failed = false;
    listener.has_callback = callback.is_some();
    let queued = !listener.queue.is_empty();
    let replaced = std::mem::replace(
        &mut listener.callback,
        callback.map(|mut callback| {
            Repeated::new(move |lp: &mut Loop<B>, (key, error): (Token, Option<io::Error>)| {
                callback(lp, S::from_stream_key(key), error.map_or(Ok(()), Err));
            })
        }),
    );
    // One descriptor is kept aside, for when there is none left to accept with.
    lp.reserve.keep();
    if queued {
        lp.feed_stream(key);
    }
    let armed = lp.arm_stream(key);
    if armed.is_err()
        && let Some(slot) = lp.streams.slots.get_mut(key)
    {
        slot.flags -= Flags::LISTENING;
        slot.listener = None;
        slot.update_active(&mut lp.active_handles);
    }
    drop(replaced);
    armed
}

pub(super) fn accept<S: Stream, B: Backend>(stream: S, lp: &mut Loop<B>) -> io::Result<S> {
    let key = stream.stream_key();
    let slot = lp.streams.open(key)?;
    let listener = slot.listener.as_mut().ok_or_else(error::not_listening)?;
    let quiet = !listener.has_callback;
    let waiting = listener.waiting.take();
    let waiting = match waiting {
        None if quiet => listener.queue.pop_front(),
        waiting => waiting,
    };
    let more = !listener.queue.is_empty();
    let socket = match waiting {
        Some(socket) => socket,
        None if listener.has_callback => return Err(io::ErrorKind::WouldBlock.into()),
        // Nobody else looks for connections: the kernel knows whether there is one.
        None => slot.socket.as_ref().ok_or_else(error::not_connected)?.accept()?,
    };
    let kind = slot.kind;
    if more {
        lp.feed_stream(key);
    }
    lp.rearm_stream(key);
    Ok(S::from_stream_key(lp.new_stream(kind, Some(socket))))
}

pub(super) fn accept_with<S: Stream, B: Backend>(
    stream: S,
    lp: &mut Loop<B>,
    callback: impl FnOnce(&mut Loop<B>, S, io::Result<S>) + 'static,
) -> io::Result<()> {
    let key = stream.stream_key();
    let slot = lp.streams.open(key)?;
    let listener = slot.listener.as_mut().ok_or_else(error::not_listening)?;
    let told = move |lp: &mut Loop<B>, (key, result): Accepted| {
        callback(lp, S::from_stream_key(key), result.map(S::from_stream_key));
    };
    listener.requests.push_back(Once::new(told));
    listener.failed = false;
    let (waiting, queued) = (listener.waiting.is_some(), !listener.queue.is_empty());
    lp.active_requests += 1;
    if waiting {
        // Accepted already: this request is its.
        lp.defer(move |lp| lp.serve_waiting(key));
    } else if queued {
        lp.feed_stream(key);
    }
    if let Err(error) = lp.arm_stream(key) {
        lp.active_requests -= 1;
        let slot = lp.streams.slots.get_mut(key);
        drop(slot.and_then(|slot| slot.listener.as_mut()?.requests.pop_back()));
        return Err(error);
    }
    Ok(())
}

impl<B: Backend> Loop<B> {
    fn listener(&mut self, key: Token) -> Option<&mut Listener<B>> {
        self.streams.slots.get_mut(key)?.listener.as_deref_mut()
    }

    /// There are connections, or the listener has failed. Accepts one while they come one by
    /// one, and all, up to a limit, when [many](crate::crowd) come at a time and are taken.
    ///
    /// In a turn with many events there may be so many others that the listener is not among the
    /// next ones, and to look in vain costs little beside them. So it always looks.
    pub(super) fn accept_ready(&mut self, key: Token) {
        let (turn, events) = (self.turn, self.operations.events.len());
        let Some(listener) = self.listener(key) else { return };
        if !listener.crowd.is_to_look(turn) && events < ACCEPTS_PER_EVENT {
            self.accept_next(key);
            return;
        }
        let most = events.max(ACCEPTS_PER_EVENT);
        let accepted = (0..most).take_while(|_| self.accept_next(key)).count();
        if let Some(listener) = self.listener(key) {
            listener.crowd.found(accepted);
        }
    }

    /// Accepts a connection and tells of it; false if none came of it.
    fn accept_next(&mut self, key: Token) -> bool {
        let Some(slot) = self.streams.slots.get_mut(key) else { return false };
        if !slot.wants_peers() {
            return false;
        }
        let Some(socket) = &slot.socket else { return false };
        match socket.accept() {
            Ok(accepted) => {
                if let Some(listener) = &mut slot.listener {
                    listener.exhausted = false;
                }
                self.accepted(key, accepted);
                return true;
            }
            Err(error) if sys::out_of_descriptors(&error) => {
                // Those who wait are turned away: better than to keep them and to spin.
                self.reserve.turn_away(socket);
            }
            Err(error) if sys::is_ones_own(&error) => {}
            Err(error) => self.listener_failed(key, error),
        }
        false
    }

    /// The operation that accepts has accepted a connection, or failed.
    pub(super) fn accept_done(&mut self, key: Token, done: Done) {
        let accepted = match done.result {
            // One that cannot be made usable is its peer's loss.
            Ok(raw) => sys::accepted(raw).ok().map(Ok),
            Err(code) if sys::is_passing(code) => None,
            Err(code) => Some(Err(io::Error::from_raw_os_error(code))),
        };
        let Some(slot) = self.streams.slots.get_mut(key) else { return };
        if slot.base.is_closing() {
            self.operations.told_nobody += 1;
            return;
        }
        match accepted {
            Some(Ok(socket)) => {
                self.operations.told_nobody += usize::from(!slot.wants_peers());
                if let Some(listener) = &mut slot.listener {
                    listener.queue.push_back(socket.into());
                }
                self.accept_queued(key);
            }
            Some(Err(error)) if sys::out_of_descriptors(&error) => {
                if let (Some(socket), Some(listener)) = (&slot.socket, &mut slot.listener) {
                    self.reserve.turn_away(socket);
                    listener.exhausted = true;
                }
                self.operations.told_nobody += 1;
            }
            Some(Err(error)) if !sys::is_ones_own(&error) => self.listener_failed(key, error),
            _ => self.operations.told_nobody += 1,
        }
    }

    /// Tells of the connections that are there, while they are taken.
    pub(super) fn accept_queued(&mut self, key: Token) {
        while let Some(slot) = self.streams.slots.get_mut(key)
            && slot.wants_peers()
            && let Some(listener) = &mut slot.listener
            && let Some(socket) = listener.queue.pop_front()
        {
            self.accepted(key, socket);
        }
    }

    fn accepted(&mut self, key: Token, socket: Transport) {
        let Some(slot) = self.streams.slots.get_mut(key) else { return };
        let kind = slot.kind;
        let Some(listener) = slot.listener.as_mut() else { return };
        if let Some(request) = listener.requests.pop_front() {
            self.active_requests -= 1;
            let accepted = self.new_stream(kind, Some(socket));
            return self.tell_accepted(request, (key, Ok(accepted)));
        }
        listener.waiting = Some(socket);
        self.tell_listener(key, None);
    }

    /// A request that came after the connection.
    fn serve_waiting(&mut self, key: Token) {
        if let Some(listener) = self.listener(key)
            && !listener.requests.is_empty()
            && let Some(socket) = listener.waiting.take()
        {
            self.accepted(key, socket);
            self.accept_queued(key);
            self.rearm_stream(key);
        }
    }

    fn tell_listener(&mut self, key: Token, error: Option<io::Error>) {
        let Some(mut callback) = self.listener(key).and_then(|listener| listener.callback.take())
        else {
            return;
        };
        self.call_with(&mut callback, (key, error), key, |lp, key| {
            // Without its callback it must not go on accepting.
            if let Some(listener) = lp.listener(key) {
                listener.has_callback = listener.callback.is_some();
            }
            lp.rearm_stream(key);
        });
        if let Some(listener) = self.listener(key)
            && listener.has_callback
        {
            listener.callback.get_or_insert(callback);
        }
    }

    /// The error is not one connection's: nothing will come any more. Whoever waits is told.
    pub(super) fn listener_failed(&mut self, key: Token, error: io::Error) {
        let Some(listener) = self.listener(key) else { return };
        listener.failed = true;
        // Those that are asked for from now on are tried anew.
        for _ in 0..listener.requests.len() {
            let Some(listener) = self.listener(key) else { return };
            let Some(request) = listener.requests.pop_front() else { break };
            self.active_requests -= 1;
            let failed = (key, Err(error::same(&error)));
            self.guarded(key, Loop::try_listener_again, |lp| request.call(lp, failed));
        }
        self.tell_listener(key, Some(error));
    }

    /// Not all could be told that the listener has failed: it will fail again.
    fn try_listener_again(&mut self, key: Token) {
        if let Some(listener) = self.listener(key) {
            listener.failed = false;
            self.rearm_stream(key);
        }
    }

    /// The listener is closing.
    pub(super) fn cancel_accepts(&mut self, key: Token) {
        while let Some(listener) = self.listener(key)
            && let Some(request) = listener.requests.pop_front()
        {
            self.active_requests -= 1;
            self.tell_accepted(request, (key, Err(error::cancelled())));
        }
    }

    /// Calls back for a request. The next must not wait for another connection.
    fn tell_accepted(&mut self, request: Once<B, Accepted>, accepted: Accepted) {
        self.guarded(accepted.0, Loop::feed_stream, |lp| request.call(lp, accepted));
    }
}
