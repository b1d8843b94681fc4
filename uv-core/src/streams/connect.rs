//! Connecting: by an operation where the backend performs it, by a call elsewhere, whose end is
//! waited for.

use std::io;
use std::ptr::NonNull;

use poll_core::{Backend, Op, RawAddr, RawSource, Token};
use socket2::{SockAddr, Socket};

use super::{Ended, Flags};
use crate::callback::Once;
use crate::operations::{Asker, Done, Flight, Performs};
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

impl<B: Backend> Loop<B> {
    /// Has the stream's socket connected, unless it is already: `callback` is told how that goes.
    pub(crate) fn begin_connect(
        &mut self,
        key: Token,
        connecting: Connecting,
        callback: Once<B, Ended>,
    ) -> io::Result<()> {
        let begun = match connecting {
            Connecting::To(address) => {
                self.start_connect(key, address).inspect_err(|_| self.forget_connect(key))?
            }
            other => other,
        };
        let slot = self.streams.open(key)?;
        slot.flags |= Flags::CONNECTING | Flags::READABLE | Flags::WRITABLE;
        self.active_requests += 1;
        let known = match begun {
            Connecting::Known(result) => Some(result),
            _ => None,
        };
        let at_once = known.is_some();
        if let Some(errands) = self.streams.errands(key) {
            (errands.connect, errands.connected) = (Some(callback), known);
        }
        if at_once {
            self.feed_stream(key);
        }
        let armed = self.arm_stream(key);
        if armed.is_err()
            && let Some(slot) = self.streams.slots.get_mut(key)
        {
            slot.flags -= Flags::CONNECTING | Flags::READABLE | Flags::WRITABLE;
            self.active_requests -= 1;
            self.forget_connect(key);
        }
        armed
    }

    /// A connect was not begun: nothing is told.
    fn forget_connect(&mut self, key: Token) {
        let slot = self.streams.slots.get_mut(key);
        if let Some(errands) = slot.and_then(|slot| slot.errands.as_mut()) {
            (errands.connect, errands.connected, errands.address) = (None, None, None);
        }
        self.streams.end_errand(key);
    }

    /// Begins to connect.
    fn start_connect(&mut self, key: Token, address: SockAddr) -> io::Result<Connecting> {
        let slot = self.streams.open(key)?;
        if !self.operations.performs(Performs::CONNECT) || !slot.operates() {
            let socket = slot.socket.as_deref().ok_or_else(error::not_connected)?;
            return call(socket, &address);
        }
        let source = slot.socket.as_deref().map(RawSource::of);
        let errands = self.streams.errands(key);
        let address = errands.and_then(|errands| raw(errands.address.insert(address)));
        let (Some(source), Some(address)) = (source, address) else {
            return Err(error::not_connected());
        };
        let op = Op::Connect { source, address };
        let started = self.perform(Asker::StreamOutput(key), op, None);
        match (started, self.streams.slots.get_mut(key)) {
            (Ok(flight), Some(slot)) => {
                slot.output = Some(flight);
                Ok(Connecting::UnderWay)
            }
            _ => {
                // This loop connects by calls from now on.
                self.operations.give_up(Performs::CONNECT);
                self.call_connect(key)
            }
        }
    }

    /// Connects by a call what an operation did not.
    fn call_connect(&mut self, key: Token) -> io::Result<Connecting> {
        let slot = self.streams.open(key)?;
        let address = slot.errands.as_ref().and_then(|errands| errands.address.as_ref());
        match (slot.socket.as_deref(), address) {
            (Some(socket), Some(address)) => call(socket, address),
            _ => Err(error::not_connected()),
        }
    }

    /// The operation that connects is over.
    pub(super) fn connect_done(&mut self, key: Token, flight: Flight, done: Done) {
        let closing = self.streams.slots.get(key).is_none_or(|slot| slot.base.is_closing());
        if closing {
            return self.flight_ended(key);
        }
        let result = match done.result {
            Ok(_) => Ok(()),
            // Nobody has asked it to end: this is a forked child, whose parent had begun it.
            Err(sys::ABORTED) if !flight.cancelled => match self.call_connect(key) {
                Ok(Connecting::Known(result)) => result,
                Ok(_) => return self.rearm_stream(key),
                Err(error) if error.raw_os_error() == Some(code::EISCONN) => Ok(()),
                Err(error) => Err(error),
            },
            Err(code) => Err(io::Error::from_raw_os_error(code)),
        };
        self.connect_ended(key, result);
        self.drain_stream(key);
        // What was written meanwhile is sent with what others write.
        self.rearm_stream(key);
    }

    /// The socket is writable: it is connected, or has failed to.
    pub(super) fn connect_ready(&mut self, key: Token) {
        let Some(slot) = self.streams.slots.get_mut(key) else { return };
        let Some(socket) = &slot.socket else { return };
        let result = match socket.take_error() {
            Ok(None) => Ok(()),
            Ok(Some(error)) | Err(error) => Err(error),
        };
        self.connect_ended(key, result);
        self.write_connected(key);
    }

    fn connect_ended(&mut self, key: Token, result: io::Result<()>) {
        let slot = self.streams.slots.get_mut(key);
        if let Some(errands) = slot.and_then(|slot| slot.errands.as_mut()) {
            errands.connected.get_or_insert(result);
        }
        self.tell_connected(key);
    }

    /// Calls back for a connect whose end is known.
    pub(super) fn tell_connected(&mut self, key: Token) {
        let Some(slot) = self.streams.slots.get_mut(key) else { return };
        let Some(errands) = &mut slot.errands else { return };
        let Some(result) = errands.connected.take() else { return };
        let callback = errands.connect.take();
        errands.address = None; // No operation has it any more.
        slot.flags -= Flags::CONNECTING;
        let failed = result.is_err();
        if failed {
            slot.flags -= Flags::READABLE | Flags::WRITABLE;
        }
        self.streams.end_errand(key);
        if failed {
            self.stop_reading(key);
            // Those that were queued meanwhile are told after it.
            self.cancel_transfers(key);
        }
        let Some(callback) = callback else { return };
        self.active_requests -= 1;
        self.guarded(key, Loop::feed_stream, |lp| callback.call(lp, (key, result)));
    }

    /// Writes what was queued while connecting.
    fn write_connected(&mut self, key: Token) {
        let connected = self.streams.slots.get(key).is_some_and(|slot| !slot.writes.is_empty());
        if connected {
            self.write_ready(key);
        } else {
            self.drain_stream(key);
        }
    }
}

/// Connects a socket that does not block. That nobody listens is told later.
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

/// An address as the backend is lent it.
fn raw(address: &SockAddr) -> Option<RawAddr> {
    let ptr = NonNull::new(address.as_ptr().cast_mut().cast())?;
    Some(RawAddr { ptr, len: address.len() as _ })
}
