//! Shutting down the writing side, when all is written.

use std::io;

use poll_core::{Backend, Ready, Token};

use super::{Ended, Flags, Kind, Stream};
use crate::callback::Once;
use crate::{Loop, error};

pub(super) fn shutdown<S: Stream, B: Backend>(
    stream: S,
    lp: &mut Loop<B>,
    callback: impl FnOnce(&mut Loop<B>, S, io::Result<()>) + 'static,
) -> io::Result<()> {
    let key = stream.stream_key();
    let slot = lp.streams.slots.get_mut(key).ok_or_else(error::stale)?;
    if slot.base.is_closing() || !slot.flags.contains(Flags::WRITABLE) {
        return Err(error::not_connected());
    }
    slot.flags -= Flags::WRITABLE;
    slot.flags |= Flags::SHUTTING;
    let told = Once::new(move |lp: &mut Loop<B>, (key, result): Ended| {
        callback(lp, S::from_stream_key(key), result);
    });
    if let Some(errands) = lp.streams.errands(key) {
        errands.shutdown = Some(told);
    }
    lp.active_requests += 1;
    lp.feed_stream(key);
    Ok(())
}

impl<B: Backend> Loop<B> {
    /// Shuts down a stream that is to be, once all is written and told.
    pub(super) fn drain_stream(&mut self, key: Token) {
        let Some(slot) = self.streams.slots.get_mut(key) else { return };
        let Some(socket) = &slot.socket else { return };
        let busy = slot.batch.is_some() || !slot.writes.is_empty() || !slot.done.is_empty();
        if !slot.flags.contains(Flags::SHUTTING) || slot.flags.contains(Flags::CONNECTING) || busy {
            return;
        }
        let result = match slot.kind {
            #[cfg(windows)]
            Kind::Pipe if slot.flags.contains(Flags::READABLE) => return self.end_pipe(key),
            Kind::Pipe if !socket.is_socket() => self.end_one_way(key),
            _ => socket.end_writing(),
        };
        self.tell_shutdown(key, result);
    }

    /// A pipe that is no socket, and that is only written, ends by being closed.
    fn end_one_way(&mut self, key: Token) -> io::Result<()> {
        let Some(slot) = self.streams.slots.get_mut(key) else { return Ok(()) };
        if slot.flags.contains(Flags::READABLE) {
            let why = "read and written by one descriptor that is no socket: close the handle";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        slot.armed = Ready::NONE;
        let (source, socket) = (slot.source.take(), slot.socket.take());
        if let Some(source) = source {
            self.unwatch(source);
        }
        #[cfg(windows)]
        let socket = self.leave_pipe(socket);
        drop(socket);
        Ok(())
    }

    pub(super) fn tell_shutdown(&mut self, key: Token, result: io::Result<()>) {
        let Some(slot) = self.streams.slots.get_mut(key) else { return };
        slot.flags -= Flags::SHUTTING;
        let callback = slot.errands.as_mut().and_then(|errands| errands.shutdown.take());
        let Some(callback) = callback else { return };
        self.streams.end_errand(key);
        self.active_requests -= 1;
        self.guarded(key, Loop::feed_stream, |lp| callback.call(lp, (key, result)));
    }

    /// The stream is closing.
    pub(super) fn cancel_shutdown(&mut self, key: Token) {
        self.tell_shutdown(key, Err(error::cancelled()));
    }
}
