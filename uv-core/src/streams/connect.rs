//! Connecting.

use std::io;

use poll_core::{Backend, Token};

use super::{Ended, Flags};
use crate::Loop;
use crate::callback::Once;

impl<B: Backend> Loop<B> {
    /// The stream's socket is connecting: `callback` is told how that goes. `known` is how it
    /// went, if that is known already.
    pub(crate) fn begin_connect(
        &mut self,
        key: Token,
        known: Option<io::Result<()>>,
        callback: Once<B, Ended>,
    ) -> io::Result<()> {
        let slot = self.streams.open(key)?;
        slot.flags |= Flags::CONNECTING | Flags::READABLE | Flags::WRITABLE;
        slot.connect = Some(callback);
        let at_once = known.is_some();
        slot.connected = known;
        self.active_requests += 1;
        if at_once {
            self.feed_stream(key);
        }
        let armed = self.arm_stream(key);
        if armed.is_err()
            && let Some(slot) = self.streams.slots.get_mut(key)
        {
            slot.flags -= Flags::CONNECTING | Flags::READABLE | Flags::WRITABLE;
            self.active_requests -= 1;
            (slot.connect, slot.connected) = (None, None);
        }
        armed
    }

    /// The socket is writable: it is connected, or has failed to.
    pub(super) fn connect_ready(&mut self, key: Token) {
        let Some(slot) = self.streams.slots.get_mut(key) else { return };
        let Some(socket) = &slot.socket else { return };
        let result = match socket.take_error() {
            Ok(None) => Ok(()),
            Ok(Some(error)) | Err(error) => Err(error),
        };
        slot.connected.get_or_insert(result);
        self.tell_connected(key);
        self.write_connected(key);
    }

    /// Calls back for a connect whose end is known.
    pub(super) fn tell_connected(&mut self, key: Token) {
        let Some(slot) = self.streams.slots.get_mut(key) else { return };
        let Some(result) = slot.connected.take() else { return };
        slot.flags -= Flags::CONNECTING;
        let failed = result.is_err();
        let callback = slot.connect.take();
        if failed {
            slot.flags -= Flags::READABLE | Flags::WRITABLE;
            self.stop_reading(key);
        }
        let Some(callback) = callback else { return };
        self.active_requests -= 1;
        let mend = |lp: &mut Loop<B>, key| lp.feed_stream(key);
        self.guarded(key, mend, |lp| callback.call(lp, (key, result)));
        if failed {
            // Those that were queued meanwhile are told after it.
            self.cancel_transfers(key);
        }
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
