//! Accepting: `AcceptEx` with a socket made in advance, again and again if asked to.

use std::os::windows::io::{IntoRawSocket, OwnedSocket, RawSocket};

use poll_core::{Event, Op, RawSource, Token};
use windows_sys::Win32::Foundation::ERROR_NETNAME_DELETED;
use windows_sys::Win32::Networking::WinSock::{
    WSAECONNABORTED, WSAECONNRESET, WSAEINVAL, WSAENOTCONN,
};

use super::{ABORTED, Course, End, Ops, code, report};
use crate::calls;
use crate::slots::Slot;
use crate::sockets::{Protocol, listens};

/// How many calls may wait for connections at a time. A call serves one connection per
/// wait; there are as many as bursts of connections have shown to be of use.
const WIDEST: usize = 32;

/// The calls of an operation that accepts, each with the socket that it will connect.
#[derive(Debug)]
pub(super) struct Accepting {
    protocol: Protocol,
    /// A single one needs no list, and so no memory.
    first: Option<(Slot, OwnedSocket)>,
    others: Vec<(Slot, OwnedSocket)>,
    /// How many there should be.
    width: usize,
    /// Why the operation ends when all calls have.
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
    ) -> Result<Course, i32> {
        // Windows says so itself, but under Wine the call would wait for ever.
        if !listens(listener.socket()).map_err(code)? {
            return Err(WSAEINVAL);
        }
        let protocol = Protocol::of(listener.socket()).map_err(code)?;
        let (first, others) = (None, Vec::new());
        let mut accepting = Accepting { protocol, first, others, width: 1, failure: None };
        self.accept(token, listener, &mut accepting)?;
        Ok(Course::Accepting(accepting))
    }

    fn accept(
        &mut self,
        token: Token,
        listener: RawSource,
        accepting: &mut Accepting,
    ) -> Result<(), i32> {
        let socket = accepting.protocol.socket().map_err(code)?;
        let (slot, _) = self.call(token, listener, |extensions, memory| {
            // SAFETY: the slot was just taken.
            unsafe { calls::accept(extensions, listener.socket(), &socket, memory) }
        })?;
        accepting.insert(slot, socket);
        Ok(())
    }

    /// A call has ended.
    pub(super) fn accepted(
        &mut self,
        token: Token,
        op: Op,
        mut accepting: Accepting,
        slot: Slot,
        result: End,
        events: &mut Vec<Event>,
    ) -> Result<Course, End> {
        let (Op::Accept { listener } | Op::AcceptMulti { listener }) = op else {
            unreachable!("only these accept")
        };
        let cancelled = self.is_cancelled(token);
        let socket = accepting.remove(slot).expect("each call has a socket");
        match result.and_then(|_| self.connected(listener.socket(), socket)) {
            Ok(socket) if matches!(op, Op::Accept { .. }) => return Err(Ok(socket)),
            Ok(socket) => events.push(report(token, socket, None)),
            // The peer has gone already, which is not the listener's fault.
            Err(code) if is_ones_own(code) && !cancelled => {}
            Err(code) => {
                let first = accepting.failure.is_none();
                accepting.failure = accepting.failure.or(Some(code));
                if first && !cancelled {
                    let memory = accepting.slots().map(|slot| self.slots.memory(slot));
                    memory.for_each(|memory| calls::cancel(listener.handle(), memory));
                }
            }
        }
        if cancelled || accepting.failure.is_some() {
            let end = Err(accepting.failure.filter(|_| !cancelled).unwrap_or(ABORTED));
            return if accepting.len() == 0 { Err(end) } else { Ok(Course::Accepting(accepting)) };
        }
        if accepting.len() == 0 && matches!(op, Op::AcceptMulti { .. }) {
            accepting.width = (accepting.width * 2).min(WIDEST);
        }
        while accepting.len() < accepting.width {
            match self.accept(token, listener, &mut accepting) {
                Ok(()) => {}
                Err(code) if accepting.len() == 0 => return Err(Err(code)),
                Err(_) => break, // Out of sockets, perhaps: those that wait go on.
            }
        }
        Ok(Course::Accepting(accepting))
    }

    /// A socket that was connected, for the caller to own.
    fn connected(&self, listener: RawSocket, socket: OwnedSocket) -> End {
        if self.abandoned {
            return Err(ABORTED); // Which closes it.
        }
        calls::finish_accept(listener, &socket).map_err(code)?;
        Ok(socket.into_raw_socket() as usize)
    }

    fn is_cancelled(&self, token: Token) -> bool {
        self.flights.get(token).is_some_and(|flight| flight.cancelled)
    }
}

/// True for errors that say nothing of the listener.
pub(super) fn is_ones_own(code: i32) -> bool {
    // The last but one is Wine's.
    let own = [WSAECONNRESET, WSAECONNABORTED, WSAENOTCONN, ERROR_NETNAME_DELETED as i32];
    own.contains(&code)
}
