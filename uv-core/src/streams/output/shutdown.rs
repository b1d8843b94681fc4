//! Shutdown of the writing side after all writes.

use std::io;

use poll_core::{Backend, Interest, Token};

use crate::storage::InlineFnOnce;
#[cfg(windows)]
use crate::streams::named_pipe;
use crate::streams::{self, Ended, Flags, Kind, Stream};
use crate::{Loop, error};

pub(in crate::streams) fn shutdown<S: Stream, B: Backend>(
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
    let complete = InlineFnOnce::new(move |lp: &mut Loop<B>, (key, result): Ended| {
        let stream = S::from_stream_key(lp, key);
        callback(lp, stream, result);
    });
    if let Some(rare) = lp.streams.rare(key) {
        rare.shutdown = Some(complete);
    }
    lp.active_requests += 1;
    streams::schedule_pending(lp, key);
    Ok(())
}

/// Shuts the stream down, if that was requested and all writes have called back.
#[inline]
pub(in crate::streams) fn drain<B: Backend>(lp: &mut Loop<B>, key: Token) {
    let Some(slot) = lp.streams.slots.get_mut(key) else { return };
    let called_back = slot.done.is_empty() && slot.completed_writes == 0;
    let busy = slot.batch.is_some() || !slot.writes.is_empty() || !called_back;
    if !slot.flags.contains(Flags::SHUTTING) || slot.flags.contains(Flags::CONNECTING) || busy {
        return;
    }
    let Some(socket) = &slot.socket else {
        // A close calls back itself; otherwise no address could be connected to.
        let closing = slot.base.is_closing();
        return if !closing {
            complete(lp, key, Err(error::not_connected()))
        };
    };
    let result = match slot.kind {
        #[cfg(windows)]
        Kind::Pipe if slot.flags.contains(Flags::READABLE) => {
            return named_pipe::shutdown(lp, key);
        }
        Kind::Pipe if !socket.is_socket() => end_one_way(lp, key),
        _ => socket.shutdown_write(),
    };
    complete(lp, key, result);
}

/// A pipe that is no socket, and that is only written, ends by being closed.
fn end_one_way<B: Backend>(lp: &mut Loop<B>, key: Token) -> io::Result<()> {
    let Some(slot) = lp.streams.slots.get_mut(key) else { return Ok(()) };
    if slot.flags.contains(Flags::READABLE) {
        let why = "read and written by one descriptor that is no socket: close the handle";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    slot.armed = Interest::NONE;
    let (source, socket) = (slot.source.take(), slot.socket.take());
    if let Some(source) = source {
        lp.unwatch(source);
    }
    #[cfg(windows)]
    let socket = named_pipe::abandon(lp, socket);
    drop(socket);
    Ok(())
}

pub(in crate::streams) fn complete<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    result: io::Result<()>,
) {
    let Some(slot) = lp.streams.slots.get_mut(key) else { return };
    slot.flags -= Flags::SHUTTING;
    let callback = slot.rare.as_mut().and_then(|rare| rare.shutdown.take());
    let Some(callback) = callback else { return };
    lp.streams.release_rare_state(key);
    lp.active_requests -= 1;
    lp.guarded(key, streams::schedule_pending, |lp| callback.call(lp, (key, result)));
}

/// The stream is closing.
pub(in crate::streams) fn cancel<B: Backend>(lp: &mut Loop<B>, key: Token) {
    complete(lp, key, Err(error::cancelled()));
}
