//! `Accept` and `AcceptMulti`: `AcceptEx` with a socket made in advance.

use std::os::windows::io::{IntoRawSocket, OwnedSocket, RawSocket};

use poll_core::{Event, Op, RawSource, Token};
use windows_sys::Win32::Foundation::ERROR_NETNAME_DELETED;
use windows_sys::Win32::Networking::WinSock::{
    WSAECONNABORTED, WSAECONNRESET, WSAEINVAL, WSAENOTCONN,
};

use super::{ABORTED, OpResult, OpState, Ops, os_code, report};
use crate::overlapped;
use crate::slots::Slot;
use crate::sockets::{Protocol, is_listening};

/// The number of `AcceptEx` calls that one `AcceptMulti` has in flight at most. A call serves
/// one connection per wait, so the number doubles each time that a burst uses all of them.
const MAX_PENDING_ACCEPTS: usize = 32;

/// The calls of an accept operation, each with the socket that it will connect.
#[derive(Debug)]
pub(super) struct Accepting {
    protocol: Protocol,
    /// Apart from `others`, so that a single call allocates nothing.
    first: Option<(Slot, OwnedSocket)>,
    others: Vec<(Slot, OwnedSocket)>,
    /// The number of calls to keep in flight.
    target: usize,
    /// The error that ends the operation once all calls have ended.
    failure: Option<i32>,
}

impl Accepting {
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.first.iter().chain(&self.others).map(|(slot, _)| *slot)
    }

    fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    fn insert(&mut self, slot: Slot, socket: OwnedSocket) {
        match &mut self.first {
            Some(_) => self.others.push((slot, socket)),
            empty => *empty = Some((slot, socket)),
        }
    }

    fn remove(&mut self, slot: Slot) -> Option<OwnedSocket> {
        if let Some((_, socket)) = self.first.take_if(|(of, _)| *of == slot) {
            return Some(socket);
        }
        let index = self.others.iter().position(|(of, _)| *of == slot)?;
        Some(self.others.swap_remove(index).1)
    }
}

impl Ops {
    pub(super) fn begin_accept(
        &mut self,
        token: Token,
        listener: RawSource,
    ) -> Result<OpState, i32> {
        // Windows reports this error itself; under Wine 8 the call would never end.
        if !is_listening(listener.socket()).map_err(os_code)? {
            return Err(WSAEINVAL);
        }
        let protocol = Protocol::of(listener.socket()).map_err(os_code)?;
        let (first, others) = (None, Vec::new());
        let mut accepting = Accepting { protocol, first, others, target: 1, failure: None };
        self.accept(token, listener, &mut accepting)?;
        Ok(OpState::Accepting(accepting))
    }

    fn accept(
        &mut self,
        token: Token,
        listener: RawSource,
        accepting: &mut Accepting,
    ) -> Result<(), i32> {
        let socket = accepting.protocol.socket().map_err(os_code)?;
        let (slot, _) = self.call(token, listener, |extensions, memory| {
            // SAFETY: `call` has just taken the slot; `accepting` owns the socket until the call
            // ends.
            unsafe { overlapped::accept(extensions, listener.socket(), &socket, memory) }
        })?;
        accepting.insert(slot, socket);
        Ok(())
    }

    /// Handles the completion of a call.
    pub(super) fn accept_completed(
        &mut self,
        token: Token,
        op: Op,
        mut accepting: Accepting,
        slot: Slot,
        result: OpResult,
        events: &mut Vec<Event>,
    ) -> Result<OpState, OpResult> {
        let (Op::Accept { listener } | Op::AcceptMulti { listener }) = op else {
            unreachable!("only accept operations are in this state")
        };
        let cancelled = self.is_cancelled(token);
        let socket = accepting.remove(slot).expect("each call has a socket");
        match result.and_then(|_| self.accepted_socket(listener.socket(), socket)) {
            Ok(socket) if matches!(op, Op::Accept { .. }) => return Err(Ok(socket)),
            Ok(socket) => events.push(report(token, socket, None)),
            // The peer has reset the connection before it was accepted.
            Err(code) if is_per_connection(code) && !cancelled => {}
            Err(code) => {
                let first = accepting.failure.is_none();
                accepting.failure = accepting.failure.or(Some(code));
                if first && !cancelled {
                    let memory = accepting.slots().map(|slot| self.slots.memory(slot));
                    memory.for_each(|memory| overlapped::cancel(listener.handle(), memory));
                }
            }
        }
        if cancelled || accepting.failure.is_some() {
            let end = Err(accepting.failure.filter(|_| !cancelled).unwrap_or(ABORTED));
            return if accepting.len() == 0 { Err(end) } else { Ok(OpState::Accepting(accepting)) };
        }
        if accepting.len() == 0 && matches!(op, Op::AcceptMulti { .. }) {
            accepting.target = (accepting.target * 2).min(MAX_PENDING_ACCEPTS);
        }
        while accepting.len() < accepting.target {
            match self.accept(token, listener, &mut accepting) {
                Ok(()) => {}
                Err(code) if accepting.len() == 0 => return Err(Err(code)),
                Err(_) => break, // Probably out of sockets: the calls in flight go on.
            }
        }
        Ok(OpState::Accepting(accepting))
    }

    /// Returns the raw value of an accepted socket, for the caller to own.
    fn accepted_socket(&self, listener: RawSocket, socket: OwnedSocket) -> OpResult {
        if self.dropping {
            return Err(ABORTED); // Drops and so closes the socket.
        }
        overlapped::finish_accept(listener, &socket).map_err(os_code)?;
        Ok(socket.into_raw_socket() as usize)
    }

    fn is_cancelled(&self, token: Token) -> bool {
        self.submitted.get(token).is_some_and(|submitted| submitted.cancelled)
    }
}

/// True for errors of one connection, which do not affect the listener.
fn is_per_connection(code: i32) -> bool {
    // WSAENOTCONN is Wine's.
    let own = [WSAECONNRESET, WSAECONNABORTED, WSAENOTCONN, ERROR_NETNAME_DELETED as i32];
    own.contains(&code)
}

#[cfg(test)]
mod tests {
    use windows_sys::Win32::Networking::WinSock::WSAEMFILE;

    use super::*;

    #[test]
    fn errors_of_one_connection_do_not_end_an_accept() {
        assert!(is_per_connection(WSAECONNRESET));
        assert!(!is_per_connection(WSAEMFILE) && !is_per_connection(ABORTED));
    }
}
