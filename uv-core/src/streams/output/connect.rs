//! Connecting: by an operation where the backend performs it, elsewhere by a non-blocking call
//! and readiness.

use std::io;

use poll_core::{Backend, Token};
use socket2::{SockAddr, Socket};

use crate::event_loop::{Done, InFlight, OpSet};
use crate::storage::InlineFnOnce;
use crate::streams::output::{shutdown, write};
use crate::streams::{self, Ended, Flags, Streams, arm, input, submit};
use crate::sys::{self, code};
use crate::{Loop, error};

/// How far a connect is that a stream is asked for.
pub(crate) enum Connecting {
    /// Nothing was done for it yet.
    To(SockAddr),
    /// The kernel is at it.
    UnderWay,
    Known(io::Result<()>),
}

impl<B: Backend> Streams<B> {
    /// A connect was not begun: no callback runs.
    fn forget_connect(&mut self, key: Token) {
        let slot = self.slots.get_mut(key);
        if let Some(rare) = slot.and_then(|slot| slot.rare.as_mut()) {
            (rare.connect, rare.connected, rare.address) = (None, None, None);
        }
        self.release_rare_state(key);
    }

    /// Connects by a call what an operation did not.
    fn call_connect(&mut self, key: Token) -> io::Result<Connecting> {
        let slot = self.open(key)?;
        let address = slot.rare.as_ref().and_then(|rare| rare.address.as_ref());
        match (slot.socket.as_deref(), address) {
            (Some(socket), Some(address)) => call(socket, address),
            _ => Err(error::not_connected()),
        }
    }
}

/// Connects the stream's socket, unless it is connected: `callback` gets the result.
pub(crate) fn begin<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    connecting: Connecting,
    callback: InlineFnOnce<B, Ended>,
) -> io::Result<()> {
    let begun = match connecting {
        Connecting::To(address) => {
            start(lp, key, address).inspect_err(|_| lp.streams.forget_connect(key))?
        }
        other => other,
    };
    let slot = lp.streams.open(key)?;
    slot.flags |= Flags::CONNECTING | Flags::READABLE | Flags::WRITABLE;
    lp.active_requests += 1;
    let known = match begun {
        Connecting::Known(result) => Some(result),
        _ => None,
    };
    let at_once = known.is_some();
    if let Some(rare) = lp.streams.rare(key) {
        (rare.connect, rare.connected) = (Some(callback), known);
    }
    if at_once {
        streams::schedule_pending(lp, key);
    }
    let armed = arm::update(lp, key);
    if armed.is_err()
        && let Some(slot) = lp.streams.slots.get_mut(key)
    {
        slot.flags -= Flags::CONNECTING | Flags::READABLE | Flags::WRITABLE;
        lp.active_requests -= 1;
        lp.streams.forget_connect(key);
    }
    armed
}

/// Begins to connect.
fn start<B: Backend>(lp: &mut Loop<B>, key: Token, address: SockAddr) -> io::Result<Connecting> {
    let slot = lp.streams.open(key)?;
    if !lp.operations.performs(OpSet::CONNECT) || !slot.operates() {
        let socket = slot.socket.as_deref().ok_or_else(error::not_connected)?;
        return call(socket, &address);
    }
    // The operation has its own copy.
    if let Some(rare) = lp.streams.rare(key) {
        rare.address = Some(address.clone());
    }
    let started = submit::connect(lp, key, address).ok_or_else(error::not_connected)?;
    match (started, lp.streams.slots.get_mut(key)) {
        (Ok(flight), Some(slot)) => {
            slot.output = Some(flight);
            Ok(Connecting::UnderWay)
        }
        _ => {
            // This loop connects by calls from now on.
            lp.operations.disable_op(OpSet::CONNECT);
            lp.streams.call_connect(key)
        }
    }
}

/// A completion of the operation that connects.
pub(in crate::streams) fn done<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    flight: InFlight,
    done: Done,
) {
    let closing = lp.streams.slots.get(key).is_none_or(|slot| slot.base.is_closing());
    if closing {
        return arm::flight_ended(lp, key);
    }
    let result = match done.result {
        Ok(_) => Ok(()),
        // It was not cancelled: this is a forked child, whose parent had begun it.
        Err(sys::ABORTED) if !flight.cancelled => match lp.streams.call_connect(key) {
            Ok(Connecting::Known(result)) => result,
            Ok(_) => return arm::update_or_fail(lp, key),
            Err(error) if error.raw_os_error() == Some(code::EISCONN) => Ok(()),
            Err(error) => Err(error),
        },
        Err(code) => Err(io::Error::from_raw_os_error(code)),
    };
    ended(lp, key, result);
    shutdown::drain(lp, key);
    // Bytes that were written meanwhile are sent with those of other streams.
    arm::update_or_fail(lp, key);
}

/// The socket is writable: it is connected, or has failed to. A socket without an error may as well
/// be connecting still, if the backend reported a readiness that does not hold.
pub(in crate::streams) fn ready<B: Backend>(lp: &mut Loop<B>, key: Token) {
    let Some(slot) = lp.streams.slots.get_mut(key) else { return };
    let Some(socket) = &slot.socket else { return };
    let result = match socket.take_error() {
        Ok(None) if !sys::is_writable(socket) => return, // The readiness is reported again.
        Ok(None) => Ok(()),
        Ok(Some(error)) | Err(error) => Err(error),
    };
    ended(lp, key, result);
    write_connected(lp, key);
}

/// A stream that was connecting without a socket has one that is connected, or gets none.
pub(crate) fn resolved<B: Backend>(lp: &mut Loop<B>, key: Token, result: io::Result<()>) {
    ended(lp, key, result);
    write_connected(lp, key);
    arm::update_or_fail(lp, key);
}

fn ended<B: Backend>(lp: &mut Loop<B>, key: Token, result: io::Result<()>) {
    let slot = lp.streams.slots.get_mut(key);
    if let Some(rare) = slot.and_then(|slot| slot.rare.as_mut()) {
        rare.connected.get_or_insert(result);
    }
    complete(lp, key);
}

/// Calls back for a connect whose result is known.
pub(in crate::streams) fn complete<B: Backend>(lp: &mut Loop<B>, key: Token) {
    let Some(slot) = lp.streams.slots.get_mut(key) else { return };
    let Some(rare) = &mut slot.rare else { return };
    let Some(result) = rare.connected.take() else { return };
    let callback = rare.connect.take();
    rare.address = None;
    slot.flags -= Flags::CONNECTING;
    let failed = result.is_err();
    if failed {
        slot.flags -= Flags::READABLE | Flags::WRITABLE;
    }
    lp.streams.release_rare_state(key);
    if failed {
        input::read::stop_reading(lp, key);
        // The writes that were queued meanwhile call back after it.
        write::cancel_requests(lp, key);
    }
    let Some(callback) = callback else { return };
    lp.active_requests -= 1;
    lp.guarded(key, streams::schedule_pending, |lp| callback.call(lp, (key, result)));
}

/// Writes what was queued while connecting.
fn write_connected<B: Backend>(lp: &mut Loop<B>, key: Token) {
    let connected = lp.streams.slots.get(key).is_some_and(|slot| !slot.writes.is_empty());
    if connected {
        write::ready(lp, key);
    } else {
        shutdown::drain(lp, key);
    }
}

/// Connects a socket that does not block. A refusal is reported by the callback.
fn call(socket: &Socket, address: &SockAddr) -> io::Result<Connecting> {
    match socket.connect(address) {
        Ok(()) => Ok(Connecting::Known(Ok(()))),
        Err(error) if sys::is_connecting(&error) => Ok(Connecting::UnderWay),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            Ok(Connecting::Known(Err(error)))
        }
        Err(error) => Err(error),
    }
}
