//! Listening and accepting.

use std::collections::VecDeque;
use std::io;

use poll_core::{Backend, Token};

use crate::event_loop::{Done, InFlight, exchange};
use crate::handles::apply_tcp_options;
use crate::storage::{BatchPolicy, InlineFnMut, InlineFnOnce};
use crate::streams::submit;
use crate::streams::{self, Flags, Kind, Listener, Streams, arm, handover, open};
use crate::sys::Transport;
use crate::{Loop, error, sys};

/// The maximum of connections that one readiness event accepts, so that new connections do not
/// starve established ones; or the number of events of the iteration, if that is larger, so that
/// these do not starve new connections.
const ACCEPTS_PER_EVENT: usize = 64;

/// The additional state of a stream that listens.
pub(crate) struct ListenState<B: Backend> {
    /// `None` if connections are accepted by request only, and while it runs.
    callback: Option<InlineFnMut<B, (Token, Option<io::Error>)>>,
    /// There is a callback, even if it runs.
    has_callback: bool,
    /// A connection that the callback was notified of and that was not taken. Until then no other
    /// is accepted: they wait in the kernel.
    waiting: Option<Transport>,
    /// Connections that operations have accepted before they were cancelled.
    queue: VecDeque<Transport>,
    /// Requests to accept, which are served before the callback is.
    requests: VecDeque<Token>,
    /// Requests that were cancelled and have not called back.
    cancelled: VecDeque<Token>,
    /// The error of a registration, until it is reported.
    error: Option<io::Error>,
    /// Whether an event accepts one connection or a batch.
    batch_policy: BatchPolicy,
    /// The listener failed: it accepts no more.
    failed: bool,
    /// There were no more descriptors. An operation needs one before a peer connects, and would
    /// fail again immediately: until a connection was accepted, the listener waits for readiness.
    exhausted: bool,
}

/// The listener, and the connection's new key.
type Accepted = (Token, io::Result<Token>);

/// A request to accept that has not called back.
#[derive(Debug)]
pub(in crate::streams) struct PendingAccept<B: Backend> {
    listener: Token,
    callback: InlineFnOnce<B, Accepted>,
}

/// An accept that has not called back: the key to [cancel](AcceptRequest::cancel) it.
///
/// ```
/// use uv_core::{AcceptRequest, Handle, Listener, Loop, RunMode, Tcp, TcpBindFlags, is_cancelled};
///
/// let mut lp = Loop::with_default_backend()?;
/// let server = Tcp::new(&mut lp);
/// server.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), TcpBindFlags::empty())?;
/// server.listen_without_callback(&mut lp, 1)?;
/// let request: AcceptRequest = server.accept_with(&mut lp, |_, _, client| {
///     assert!(is_cancelled(&client.unwrap_err()));
/// })?;
/// let _peer = std::net::TcpStream::connect(server.local_addr(&lp)?)?;
/// request.cancel(&mut lp)?;
/// // The connection is for the next request.
/// server.accept_with(&mut lp, |lp, server, client| {
///     client.unwrap().close(lp).unwrap();
///     server.close(lp).unwrap();
/// })?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AcceptRequest(Token);

impl AcceptRequest {
    /// Cancels the request. Its callback runs in the pending phase, with `ECANCELED`. A connection
    /// that arrives goes to the next request, to [`accept`](Listener::accept) or to the callback of
    /// [`listen`](Listener::listen), even if the backend has accepted it already.
    ///
    /// # Errors
    ///
    /// `NotFound` if the callback has run, or the request is cancelled already.
    #[doc(alias = "uv_cancel")]
    pub fn cancel<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        cancel_accept(lp, self.0)
    }
}

/// The callback of a listener that has none.
pub(in crate::streams) type NoCallback<B, S> = fn(&mut Loop<B>, S, io::Result<()>);

impl<B: Backend> ListenState<B> {
    /// Gives up what is not a request: the connection that waits and the callback.
    pub(in crate::streams) fn stop(&mut self) -> impl Sized + use<B> {
        self.has_callback = false;
        (self.waiting.take(), std::mem::take(&mut self.queue), self.callback.take())
    }

    /// True if connections are reported to a callback, and not only to requests.
    pub(in crate::streams) fn has_callback(&self) -> bool {
        self.has_callback
    }

    /// True if connections are accepted and not reported.
    pub(in crate::streams) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// True if neither a callback nor a request gets the next connection.
    fn is_idle(&self) -> bool {
        !self.has_callback && self.requests.is_empty() && self.queue.is_empty()
    }

    /// True if an operation may accept.
    pub(in crate::streams) fn may_operate(&self) -> bool {
        !self.exhausted
    }

    pub(in crate::streams) fn wants_peers(&self) -> bool {
        let asked = self.has_callback && self.waiting.is_none();
        !self.failed && self.error.is_none() && (asked || !self.requests.is_empty())
    }
}

pub(in crate::streams) fn listen<S: Listener, B: Backend>(
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
    let is_first = slot.listener.is_none();
    let listener = slot.listener.get_or_insert_with(|| {
        Box::new(ListenState {
            callback: None,
            has_callback: false,
            waiting: None,
            queue: VecDeque::new(),
            requests: VecDeque::new(),
            cancelled: VecDeque::new(),
            error: None,
            batch_policy: BatchPolicy::default(),
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
            InlineFnMut::new(move |lp: &mut Loop<B>, (key, error): (Token, Option<io::Error>)| {
                let stream = S::from_stream_key(lp, key);
                callback(lp, stream, error.map_or(Ok(()), Err));
            })
        }),
    );
    // One descriptor is kept aside, for when there is none left to accept with.
    lp.streams.reserve.keep();
    if queued {
        streams::schedule_pending(lp, key);
    }
    let armed = arm::update(lp, key);
    if armed.is_err()
        && let Some(slot) = lp.streams.slots.get_mut(key)
    {
        slot.flags -= Flags::LISTENING;
        slot.update_active(&mut lp.active_handles);
        let listener = slot.listener.as_mut();
        let refused = listener.map(|listener| listener.stop());
        if is_first {
            slot.listener = None;
        } else {
            // Its requests get the error.
            arm::update_or_fail(lp, key);
        }
        drop(refused);
    }
    drop(replaced);
    armed
}

#[cfg_attr(feature = "origins", track_caller)]
pub(in crate::streams) fn accept<S: Listener, B: Backend>(
    stream: S,
    lp: &mut Loop<B>,
) -> io::Result<S> {
    let (kind, socket) = take_connection(lp, stream.stream_key())?;
    let key = streams::new_stream(lp, kind, Some(socket));
    Ok(S::from_stream_key(lp, key))
}

pub(in crate::streams) fn accept_into<S: Listener, B: Backend>(
    stream: S,
    lp: &mut Loop<B>,
    client: S,
) -> io::Result<()> {
    let slot = lp.streams.open(client.stream_key())?;
    // A connect that waits has no socket yet.
    if slot.socket.is_some() || slot.flags.contains(Flags::CONNECTING) {
        return Err(error::busy());
    }
    let (_, socket) = take_connection(lp, stream.stream_key())?;
    let slot = lp.streams.open(client.stream_key())?;
    match slot.kind {
        Kind::Tcp => apply_tcp_options(slot, &socket)?,
        Kind::Pipe if slot.passing.is_some() => socket.pass_handles(),
        Kind::Pipe | Kind::Tty => {}
    }
    slot.flags |= Flags::READABLE | Flags::WRITABLE;
    slot.socket = Some(socket);
    Ok(())
}

pub(in crate::streams) fn accept_with<S: Listener, B: Backend>(
    stream: S,
    lp: &mut Loop<B>,
    callback: impl FnOnce(&mut Loop<B>, S, io::Result<S>) + 'static,
) -> io::Result<AcceptRequest> {
    let key = stream.stream_key();
    let Streams { slots, accepts, .. } = &mut lp.streams;
    let listener = open(slots, key)?.listener.as_mut().ok_or_else(error::not_listening)?;
    let complete = move |lp: &mut Loop<B>, (key, result): Accepted| {
        let stream = S::from_stream_key(lp, key);
        let accepted = result.map(|key| S::from_stream_key(lp, key));
        callback(lp, stream, accepted);
    };
    let callback = InlineFnOnce::new(complete);
    let request = accepts.insert(PendingAccept { listener: key, callback });
    listener.requests.push_back(request);
    listener.failed = false;
    let (waiting, queued) = (listener.waiting.is_some(), !listener.queue.is_empty());
    lp.active_requests += 1;
    if waiting {
        // Accepted already: this request is its.
        lp.defer(move |lp| serve_waiting(lp, key));
    } else if queued {
        streams::schedule_pending(lp, key);
    }
    if let Err(error) = arm::update(lp, key) {
        lp.active_requests -= 1;
        if let Some(listener) = lp.streams.listener(key) {
            listener.requests.pop_back();
        }
        drop(lp.streams.accepts.remove(request));
        return Err(error);
    }
    Ok(AcceptRequest(request))
}

impl<B: Backend> Streams<B> {
    fn listener(&mut self, key: Token) -> Option<&mut ListenState<B>> {
        self.slots.get_mut(key)?.listener.as_deref_mut()
    }
}

/// The connection that waits, for a new handle or an existing one.
pub(in crate::streams) fn take_connection<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
) -> io::Result<(Kind, Transport)> {
    let slot = lp.streams.open(key)?;
    let listener = slot.listener.as_ref().ok_or_else(error::not_listening)?;
    // Connections that a cancelled operation has accepted precede those that a call would return.
    if listener.is_idle() && slot.input.is_some() {
        handover::collect_input(lp, key);
    }
    let slot = lp.streams.open(key)?;
    let listener = slot.listener.as_mut().ok_or_else(error::not_listening)?;
    let quiet = !listener.has_callback;
    let waiting = match listener.waiting.take() {
        None if quiet => listener.queue.pop_front(),
        waiting => waiting,
    };
    let more = !listener.queue.is_empty();
    let socket = match waiting {
        Some(socket) => socket,
        None if !quiet => return Err(io::ErrorKind::WouldBlock.into()),
        // No callback accepts: the connection, if any, is in the kernel's queue.
        None => slot.socket.as_ref().ok_or_else(error::not_connected)?.accept()?,
    };
    let kind = slot.kind;
    if more {
        streams::schedule_pending(lp, key);
    }
    arm::update_or_fail(lp, key);
    Ok((kind, socket))
}

fn cancel_accept<B: Backend>(lp: &mut Loop<B>, request: Token) -> io::Result<()> {
    let found = lp.streams.accepts.get(request).ok_or_else(error::stale_request)?;
    let key = found.listener;
    let listener = lp.streams.listener(key).ok_or_else(error::stale_request)?;
    let at = listener.requests.iter().position(|it| *it == request);
    let cancelled = at.and_then(|at| listener.requests.remove(at));
    listener.cancelled.push_back(cancelled.ok_or_else(error::stale_request)?);
    streams::schedule_pending(lp, key);
    // An operation that has accepted meanwhile leaves its connection in the queue.
    arm::update_or_fail(lp, key);
    Ok(())
}

/// The pending phase: reports the error of a registration, and cancelled requests.
#[inline]
pub(in crate::streams) fn report_accepts<B: Backend>(lp: &mut Loop<B>, key: Token) {
    let Some(listener) = lp.streams.listener(key) else { return };
    // Those that the callbacks cancel wait for the next pending phase.
    for _ in 0..listener.cancelled.len() {
        let Some(listener) = lp.streams.listener(key) else { return };
        let Some(request) = listener.cancelled.pop_front() else { break };
        complete_accept(lp, request, (key, Err(error::cancelled())));
    }
    if let Some(listener) = lp.streams.listener(key)
        && let Some(error) = listener.error.take()
    {
        listener_failed(lp, key, error);
    }
}

/// The listener cannot wait for connections: its callbacks get the error, later.
pub(in crate::streams) fn fail_later<B: Backend>(lp: &mut Loop<B>, key: Token, error: io::Error) {
    if let Some(listener) = lp.streams.listener(key) {
        listener.error = Some(error);
        streams::schedule_pending(lp, key);
    }
}

/// There are connections, or the listener has failed. Accepts one, or a batch up to a limit
/// when [several](crate::storage) arrive between two waits and are taken.
///
/// An iteration with many events may fill the next batch without the listener, and an accept
/// that finds no connection is cheap beside them. So it always tries.
#[inline]
pub(in crate::streams) fn ready<B: Backend>(lp: &mut Loop<B>, key: Token) {
    let (iteration, events) = (lp.iteration, lp.operations.events.len());
    let Some(listener) = lp.streams.listener(key) else { return };
    if !listener.batch_policy.should_batch(iteration) && events < ACCEPTS_PER_EVENT {
        accept_next(lp, key);
        return;
    }
    let most = events.max(ACCEPTS_PER_EVENT);
    let accepted = (0..most).take_while(|_| accept_next(lp, key)).count();
    if let Some(listener) = lp.streams.listener(key) {
        listener.batch_policy.found(accepted);
    }
}

/// Accepts a connection and reports it; false if there was none.
fn accept_next<B: Backend>(lp: &mut Loop<B>, key: Token) -> bool {
    let Some(slot) = lp.streams.slots.get_mut(key) else { return false };
    if !slot.wants_peers() {
        return false;
    }
    let Some(socket) = &slot.socket else { return false };
    match socket.accept() {
        Ok(accepted) => {
            if let Some(listener) = &mut slot.listener {
                listener.exhausted = false;
            }
            deliver_connection(lp, key, accepted);
            return true;
        }
        Err(error) if sys::out_of_descriptors(&error) => {
            // The waiting peers are rejected: their connections would keep the listener
            // readable.
            lp.streams.reserve.reject_pending(socket);
        }
        Err(error) if sys::is_per_connection(&error) => {}
        Err(error) => listener_failed(lp, key, error),
    }
    false
}

/// The operation that accepts has accepted a connection, or failed. True if a callback ran.
#[inline]
pub(in crate::streams) fn done<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    flight: InFlight,
    done: Done,
) -> bool {
    let accepted = match done.result {
        // One that cannot be made usable is its peer's loss.
        Ok(raw) => submit::accepted(flight, raw).map(Ok),
        Err(code) if sys::is_transient(code) => None,
        Err(code) => Some(Err(io::Error::from_raw_os_error(code))),
    };
    let Some(slot) = lp.streams.slots.get_mut(key) else { return false };
    if slot.base.is_closing() {
        return false;
    }
    match accepted {
        Some(Ok(socket)) => {
            let wanted = slot.wants_peers();
            if let Some(listener) = &mut slot.listener {
                listener.queue.push_back(socket.into());
            }
            accept_queued(lp, key);
            wanted
        }
        Some(Err(error)) if sys::out_of_descriptors(&error) => {
            if let (Some(socket), Some(listener)) = (&slot.socket, &mut slot.listener) {
                lp.streams.reserve.reject_pending(socket);
                listener.exhausted = true;
            }
            false
        }
        Some(Err(error)) if !sys::is_per_connection(&error) => {
            listener_failed(lp, key, error);
            true
        }
        _ => false,
    }
}

/// Reports the connections that were accepted, while they are taken.
#[inline]
pub(in crate::streams) fn accept_queued<B: Backend>(lp: &mut Loop<B>, key: Token) {
    while let Some(slot) = lp.streams.slots.get_mut(key)
        && slot.wants_peers()
        && let Some(listener) = &mut slot.listener
        && let Some(socket) = listener.queue.pop_front()
    {
        deliver_connection(lp, key, socket);
    }
}

fn deliver_connection<B: Backend>(lp: &mut Loop<B>, key: Token, socket: Transport) {
    let Some(slot) = lp.streams.slots.get_mut(key) else { return };
    let kind = slot.kind;
    let Some(listener) = slot.listener.as_mut() else { return };
    if let Some(request) = listener.requests.pop_front() {
        let accepted = streams::new_stream(lp, kind, Some(socket));
        return complete_accept(lp, request, (key, Ok(accepted)));
    }
    listener.waiting = Some(socket);
    notify_listener(lp, key, None);
}

/// A request that came after the connection.
fn serve_waiting<B: Backend>(lp: &mut Loop<B>, key: Token) {
    if let Some(listener) = lp.streams.listener(key)
        && !listener.requests.is_empty()
        && let Some(socket) = listener.waiting.take()
    {
        deliver_connection(lp, key, socket);
        accept_queued(lp, key);
        arm::update_or_fail(lp, key);
    }
}

fn notify_listener<B: Backend>(lp: &mut Loop<B>, key: Token, error: Option<io::Error>) {
    let Some(mut callback) = lp.streams.listener(key).and_then(|listener| listener.callback.take())
    else {
        // There is none, or an exchange of loops has lost it.
        if let Some(listener) = lp.streams.listener(key) {
            listener.has_callback = false;
        }
        return;
    };
    lp.call_with(&mut callback, (key, error), key, |lp, key| {
        // Without its callback it must not go on accepting.
        if let Some(listener) = lp.streams.listener(key) {
            listener.has_callback = listener.callback.is_some();
        }
        arm::update_or_fail(lp, key);
    });
    match lp.streams.listener(key) {
        Some(listener) if listener.has_callback => {
            listener.callback.get_or_insert(callback);
        }
        Some(_) => {}
        None => exchange::note(),
    }
}

/// The error concerns the listener, not one connection: all requests and the callback get it.
pub(in crate::streams) fn listener_failed<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    error: io::Error,
) {
    let Some(listener) = lp.streams.listener(key) else { return };
    listener.failed = true;
    // Requests that these callbacks make are tried again.
    for _ in 0..listener.requests.len() {
        let Some(listener) = lp.streams.listener(key) else { return };
        let Some(request) = listener.requests.pop_front() else { break };
        let failed = (key, Err(error::same(&error)));
        end_accept(lp, request, failed, try_listener_again);
    }
    notify_listener(lp, key, Some(error));
}

/// A callback has panicked before all requests got the error: the listener will fail again.
fn try_listener_again<B: Backend>(lp: &mut Loop<B>, key: Token) {
    if let Some(listener) = lp.streams.listener(key) {
        listener.failed = false;
        arm::update_or_fail(lp, key);
    }
}

/// The listener is closing.
pub(in crate::streams) fn cancel_all<B: Backend>(lp: &mut Loop<B>, key: Token) {
    while let Some(listener) = lp.streams.listener(key)
        && let Some(request) =
            listener.cancelled.pop_front().or_else(|| listener.requests.pop_front())
    {
        complete_accept(lp, request, (key, Err(error::cancelled())));
    }
}

/// Calls back for a request. The next must not wait for another connection.
fn complete_accept<B: Backend>(lp: &mut Loop<B>, request: Token, accepted: Accepted) {
    end_accept(lp, request, accepted, streams::schedule_pending);
}

/// Calls back for a request that is in no queue. `mend` runs if the callback panics.
fn end_accept<B: Backend>(
    lp: &mut Loop<B>,
    request: Token,
    accepted: Accepted,
    mend: fn(&mut Loop<B>, Token),
) {
    let Some(PendingAccept { callback, .. }) = lp.streams.accepts.remove(request) else {
        return;
    };
    lp.active_requests -= 1;
    lp.guarded(accepted.0, mend, |lp| callback.call(lp, accepted));
}
