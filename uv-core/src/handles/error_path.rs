//! One path for errors: the handle is closed, unless the error is that of a datagram, and the loop's
//! handler gets the error.

use std::io;
use std::net::SocketAddr;

use poll_core::Backend;

use crate::Loop;
use crate::handles::{AnyHandle, Handle as _, Tcp};
use crate::storage::InlineFnMut;

/// The handler of errors: which handle failed, and why.
pub(crate) type ErrorHandler<B> = InlineFnMut<B, (AnyHandle, io::Error)>;

/// A connection that has failed, and its peer.
pub(crate) type FailedPeer = (Tcp, SocketAddr);

impl<B: Backend> Loop<B> {
    /// Sets the handler of the errors for which handles are closed by [`fail`](crate::Handle::fail):
    /// by [`attempt`](crate::Handle::attempt), [`send`](crate::Stream::send),
    /// [`on_read`](crate::Stream::on_read), [`Tcp::listen_on`](crate::Tcp::listen_on) and
    /// the like; and of the errors of datagrams, which close nothing:
    /// [`Udp::send_to`](crate::Udp::send_to), [`Udp::on_recv`](crate::Udp::on_recv). Replaces the
    /// previous handler. Without a handler the errors are dropped.
    ///
    /// It runs in the pending phase, before the close callback of the handle. The handle is closing
    /// by then, but [`Tcp::peer_addr`](crate::Tcp::peer_addr) still gives the peer inside the
    /// handler, unless the system had forgotten it: most do when the peer resets a connection.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Timer};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.on_error(|_, handle, error| println!("{handle} is closed: {error}"));
    /// let timer = Timer::new(&mut lp);
    /// timer.attempt(&mut lp, |_| {
    ///     std::fs::read("/no/such/file")?;
    ///     Ok(())
    /// });
    /// assert!(timer.is_closing(&lp));
    /// lp.run(RunMode::Default)?; // timer 0 is closed: No such file or directory
    /// # std::io::Result::Ok(())
    /// ```
    pub fn on_error(
        &mut self,
        mut handler: impl FnMut(&mut Loop<B>, AnyHandle, io::Error) + 'static,
    ) {
        let handler = move |lp: &mut Loop<B>, (handle, error)| handler(lp, handle, error);
        drop(self.error_handler.replace(ErrorHandler::new(handler)));
    }
}

/// The peer of a connection that is about to be closed because of an error.
pub(crate) fn peer_of<B: Backend>(lp: &Loop<B>, handle: AnyHandle) -> Option<FailedPeer> {
    match handle {
        AnyHandle::Tcp(tcp) if !tcp.is_closing(lp) => Some((tcp, tcp.peer_addr(lp).ok()?)),
        _ => None,
    }
}

/// Reports an error to the handler in the pending phase, because no call runs a callback
/// inline.
pub(crate) fn report_later<B: Backend>(
    lp: &mut Loop<B>,
    handle: AnyHandle,
    error: io::Error,
    peer: Option<FailedPeer>,
) {
    lp.defer(move |lp| report(lp, handle, error, peer));
}

fn report<B: Backend>(
    lp: &mut Loop<B>,
    handle: AnyHandle,
    error: io::Error,
    peer: Option<FailedPeer>,
) {
    let Some(mut handler) = lp.error_handler.take() else { return };
    lp.failed_peer = peer;
    // A handler that panics is dropped, as the callback of any handle is.
    handler.call(lp, (handle, error));
    lp.failed_peer = None;
    lp.error_handler.get_or_insert(handler);
}
