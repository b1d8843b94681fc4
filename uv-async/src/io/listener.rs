//! Listeners.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use uv_core::poll_core::Backend;
use uv_core::{AcceptRequest, AnyHandle, DefaultBackend, is_cancelled};

use super::kept::Kept;
use super::stream::IoStream;
use crate::Rt;
use crate::op::Op;

/// A listening socket: [`TcpListener`](crate::TcpListener), [`PipeListener`](crate::PipeListener).
///
/// It owns its handle and closes it on drop.
pub struct IoListener<S: uv_core::Listener, B: Backend = DefaultBackend> {
    rt: Rt<B>,
    key: Option<S>,
    /// What the requests of dropped accepts have accepted.
    kept: Rc<Kept<io::Result<IoStream<S, B>>>>,
}

impl<S: uv_core::Listener, B: Backend> IoListener<S, B> {
    /// The listener of a handle that [listens](uv_core::Listener::listen_without_callback)
    /// without a callback. It owns the handle from here on.
    pub fn from_key(rt: &Rt<B>, key: S) -> IoListener<S, B> {
        IoListener { rt: rt.clone(), key: Some(key), kept: Rc::default() }
    }

    /// Gives the handle up, with the connections that were accepted and not taken.
    ///
    /// If an accept was dropped outside of tasks and of [`Rt::enter`], call this inside of one:
    /// otherwise a connection that arrives until the loop's next iteration is closed.
    pub fn into_key(mut self) -> (S, Vec<IoStream<S, B>>) {
        let accepted = self.kept.take_all().into_iter().filter_map(Result::ok).collect();
        let Some(key) = self.key.take() else { unreachable!("the key is there until a drop") };
        (key, accepted)
    }

    /// The handle.
    pub fn key(&self) -> S {
        let Some(key) = self.key else { unreachable!("the key is there until a drop") };
        key
    }

    /// The runtime.
    pub fn rt(&self) -> &Rt<B> {
        &self.rt
    }

    /// Accepts a connection.
    ///
    /// ```
    /// use uv_async::{LoopExt, TcpListener, TcpStream};
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let listener = TcpListener::bind(&rt, "127.0.0.1:0".parse().unwrap())?;
    ///     let client = TcpStream::connect(&rt, listener.local_addr()?).await?;
    ///     let server = listener.accept().await?;
    ///     assert_eq!(server.peer_addr()?, client.local_addr()?);
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The kernel's: `EMFILE`, for example. The listener goes on.
    ///
    /// # Cancel safety
    ///
    /// No connection is lost: one that arrives for a dropped accept is for the next one.
    pub async fn accept(&self) -> io::Result<IoStream<S, B>> {
        if let Some(accepted) = self.kept.take() {
            return accepted;
        }
        let mut accepting = self.start()?;
        poll_fn(|cx| accepting.poll(cx)).await
    }

    fn start(&self) -> io::Result<Accepting<'_, S, B>> {
        let ((completer, op), key) = (self.rt.op(), self.key());
        let request = self.rt.with(|lp| {
            key.accept_with(lp, move |lp, _, accepted| {
                // A connection for a future that is gone was not accepted: see `cancel`.
                if let Some(Ok(connection)) = completer.complete(lp, accepted) {
                    drop(connection.close(lp));
                }
            })
        })?;
        Ok(Accepting { listener: self, op, request, number: self.kept.begin() })
    }

    /// The connections, one after the other. With the feature `stream` it is a stream.
    ///
    /// ```
    /// use uv_async::{LoopExt, TcpListener, TcpStream};
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let listener = TcpListener::bind(&rt, "127.0.0.1:0".parse().unwrap())?;
    ///     let _client = TcpStream::connect(&rt, listener.local_addr()?).await?;
    ///     let mut incoming = listener.incoming();
    ///     let _server = incoming.next().await?;
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn incoming(&self) -> Incoming<'_, S, B> {
        Incoming { listener: self, accepting: None }
    }
}

impl<S: uv_core::Listener, B: Backend> Drop for IoListener<S, B> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.rt.with_or_defer(move |lp| drop(key.close(lp)));
        }
    }
}

impl<S: uv_core::Listener, B: Backend> fmt::Debug for IoListener<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key: Option<AnyHandle> = self.key.map(Into::into);
        f.debug_struct("IoListener").field("key", &key).finish_non_exhaustive()
    }
}

/// An accept in flight.
struct Accepting<'a, S: uv_core::Listener, B: Backend> {
    listener: &'a IoListener<S, B>,
    op: Op<B, io::Result<S>>,
    request: AcceptRequest,
    number: u32,
}

impl<S: uv_core::Listener, B: Backend> Accepting<'_, S, B> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<IoStream<S, B>>> {
        let IoListener { rt, kept, .. } = self.listener;
        // First, because it came first. The drop keeps a connection of this request.
        if let Some(accepted) = kept.take() {
            return Poll::Ready(accepted);
        }
        let accepted = Pin::new(&mut self.op).poll(cx);
        if accepted.is_pending() {
            kept.wait(self.number, rt, cx);
        }
        accepted.map(|accepted| accepted.map(|key| IoStream::from_key(rt, key)))
    }
}

impl<S: uv_core::Listener, B: Backend> Drop for Accepting<'_, S, B> {
    fn drop(&mut self) {
        let IoListener { rt, kept, .. } = self.listener;
        let number = self.number;
        if !self.op.is_pending() || keep(&mut self.op, rt, kept) {
            return kept.end(number);
        }
        let (request, kept) = (self.request, Rc::clone(kept));
        // The request may be complete before the loop is lent: the cell stays until then.
        let (mut op, inside) = (self.op.detach(), rt.clone());
        rt.with_or_defer(move |lp| {
            if !keep(&mut op, &inside, &kept) {
                drop(request.cancel(lp));
            }
            kept.end(number);
        });
    }
}

/// Keeps the outcome of an accept whose future is gone, if it is complete.
fn keep<S: uv_core::Listener, B: Backend>(
    op: &mut Op<B, io::Result<S>>,
    rt: &Rt<B>,
    kept: &Kept<io::Result<IoStream<S, B>>>,
) -> bool {
    let Some(accepted) = op.take() else { return false };
    if !accepted.as_ref().is_err_and(is_cancelled) {
        kept.put(rt, accepted.map(|key| IoStream::from_key(rt, key)));
    }
    true
}

/// The connections of [`IoListener::incoming`].
pub struct Incoming<'a, S: uv_core::Listener, B: Backend> {
    listener: &'a IoListener<S, B>,
    accepting: Option<Accepting<'a, S, B>>,
}

impl<S: uv_core::Listener, B: Backend> Incoming<'_, S, B> {
    /// The next connection.
    ///
    /// # Errors
    ///
    /// As [`IoListener::accept`].
    ///
    /// # Cancel safety
    ///
    /// No connection is lost: the next call gets it, and once this value is dropped, the next
    /// [`accept`](IoListener::accept).
    pub async fn next(&mut self) -> io::Result<IoStream<S, B>> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// As [`next`](Incoming::next), for implementations of futures.
    ///
    /// # Errors
    ///
    /// As [`IoListener::accept`].
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<IoStream<S, B>>> {
        if let Some(accepted) = self.listener.kept.take() {
            return Poll::Ready(accepted);
        }
        let accepting = match &mut self.accepting {
            Some(accepting) => accepting,
            none => none.insert(self.listener.start()?),
        };
        let accepted = std::task::ready!(accepting.poll(cx));
        self.accepting = None;
        Poll::Ready(accepted)
    }
}

impl<S: uv_core::Listener, B: Backend> fmt::Debug for Incoming<'_, S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming").field("listener", self.listener).finish_non_exhaustive()
    }
}
