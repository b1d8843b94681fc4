//! Connecting: by an operation where the backend performs it, elsewhere by a non-blocking call
//! and readiness.

use std::io;

use poll_core::{Backend, Token};
use socket2::{SockAddr, Socket};

use crate::event_loop::{Done, InFlight, OpSet};
use crate::storage::InlineFnOnce;
use crate::streams::{Ended, Flags};
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
    /// Connects the stream's socket, unless it is connected: `callback` gets the result.
    pub(crate) fn begin_connect(
        &mut self,
        key: Token,
        connecting: Connecting,
        callback: InlineFnOnce<B, Ended>,
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
        if let Some(rare) = self.streams.rare(key) {
            (rare.connect, rare.connected) = (Some(callback), known);
        }
        if at_once {
            self.schedule_pending(key);
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

    /// A connect was not begun: no callback runs.
    fn forget_connect(&mut self, key: Token) {
        let slot = self.streams.slots.get_mut(key);
        if let Some(rare) = slot.and_then(|slot| slot.rare.as_mut()) {
            (rare.connect, rare.connected, rare.address) = (None, None, None);
        }
        self.streams.release_rare_state(key);
    }

    /// Begins to connect.
    fn start_connect(&mut self, key: Token, address: SockAddr) -> io::Result<Connecting> {
        let slot = self.streams.open(key)?;
        if !self.operations.performs(OpSet::CONNECT) || !slot.operates() {
            let socket = slot.socket.as_deref().ok_or_else(error::not_connected)?;
            return call(socket, &address);
        }
        // The operation has its own copy.
        if let Some(rare) = self.streams.rare(key) {
            rare.address = Some(address.clone());
        }
        let started = self.submit_connect(key, address).ok_or_else(error::not_connected)?;
        match (started, self.streams.slots.get_mut(key)) {
            (Ok(flight), Some(slot)) => {
                slot.output = Some(flight);
                Ok(Connecting::UnderWay)
            }
            _ => {
                // This loop connects by calls from now on.
                self.operations.disable_op(OpSet::CONNECT);
                self.call_connect(key)
            }
        }
    }

    /// Connects by a call what an operation did not.
    fn call_connect(&mut self, key: Token) -> io::Result<Connecting> {
        let slot = self.streams.open(key)?;
        let address = slot.rare.as_ref().and_then(|rare| rare.address.as_ref());
        match (slot.socket.as_deref(), address) {
            (Some(socket), Some(address)) => call(socket, address),
            _ => Err(error::not_connected()),
        }
    }

    /// The operation that connects is over.
    pub(in crate::streams) fn connect_done(&mut self, key: Token, flight: InFlight, done: Done) {
        let closing = self.streams.slots.get(key).is_none_or(|slot| slot.base.is_closing());
        if closing {
            return self.flight_ended(key);
        }
        let result = match done.result {
            Ok(_) => Ok(()),
            // It was not cancelled: this is a forked child, whose parent had begun it.
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
    pub(in crate::streams) fn connect_ready(&mut self, key: Token) {
        let Some(slot) = self.streams.slots.get_mut(key) else { return };
        let Some(socket) = &slot.socket else { return };
        let result = match socket.take_error() {
            Ok(None) => Ok(()),
            Ok(Some(error)) | Err(error) => Err(error),
        };
        self.connect_ended(key, result);
        self.write_connected(key);
    }

    /// A stream that was connecting without a socket has one that is connected, or gets none.
    pub(crate) fn connect_resolved(&mut self, key: Token, result: io::Result<()>) {
        self.connect_ended(key, result);
        self.write_connected(key);
        self.rearm_stream(key);
    }

    fn connect_ended(&mut self, key: Token, result: io::Result<()>) {
        let slot = self.streams.slots.get_mut(key);
        if let Some(rare) = slot.and_then(|slot| slot.rare.as_mut()) {
            rare.connected.get_or_insert(result);
        }
        self.complete_connect(key);
    }

    /// Calls back for a connect whose result is known.
    pub(in crate::streams) fn complete_connect(&mut self, key: Token) {
        let Some(slot) = self.streams.slots.get_mut(key) else { return };
        let Some(rare) = &mut slot.rare else { return };
        let Some(result) = rare.connected.take() else { return };
        let callback = rare.connect.take();
        rare.address = None;
        slot.flags -= Flags::CONNECTING;
        let failed = result.is_err();
        if failed {
            slot.flags -= Flags::READABLE | Flags::WRITABLE;
        }
        self.streams.release_rare_state(key);
        if failed {
            self.stop_reading(key);
            // The writes that were queued meanwhile call back after it.
            self.cancel_transfers(key);
        }
        let Some(callback) = callback else { return };
        self.active_requests -= 1;
        self.guarded(key, Loop::schedule_pending, |lp| callback.call(lp, (key, result)));
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
