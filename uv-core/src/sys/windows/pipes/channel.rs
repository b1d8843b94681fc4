//! One end of a connection.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::windows::io::OwnedHandle;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use poll_core::{RawSource, Token};

use super::calls;
use super::chunk::Chunk;
use super::frames::Incoming;
use crate::sys::Passed;

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(super) handle: OwnedHandle,
    pub(super) name: Option<Arc<Path>>,
    pub(super) is_server: bool,
    /// The operations in flight.
    pub(crate) reading: Cell<Option<Token>>,
    pub(crate) writing: Cell<Option<Token>>,
    /// Memory to write from, while no write is in flight.
    spare: RefCell<Option<Box<Chunk>>>,
    /// What was written comes in messages, though it is read as bytes. One of no bytes is the
    /// end of what its writer has to say.
    has_messages: bool,
    /// Memory for the first byte that comes, while no read is in flight.
    inbox: RefCell<Option<Box<Chunk>>>,
    ahead: Cell<Ahead>,
    /// The loop looks at `ahead` in its next pending phase.
    pub(crate) fed: Cell<bool>,
    /// It passes handles: what comes is in frames.
    incoming: RefCell<Option<Box<Incoming>>>,
    /// Who gets handles, if that was told.
    peer: Cell<Option<u32>>,
    /// It was passed to another process: two that use it would get each other's completions.
    given: Cell<bool>,
}

/// What an operation has read, and the stream has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ahead {
    #[default]
    Nothing,
    Byte(u8),
    /// There is nothing more to come.
    End,
}

impl Channel {
    pub(super) fn new(
        handle: OwnedHandle,
        name: Option<Arc<Path>>,
        is_server: bool,
    ) -> Rc<Channel> {
        let has_messages = calls::has_messages(&handle);
        let (reading, writing, spare, inbox) = Default::default();
        let (ahead, fed, incoming, peer, given) = Default::default();
        let channel = Channel {
            handle,
            name,
            is_server,
            reading,
            writing,
            spare,
            has_messages,
            inbox,
            ahead,
            fed,
            incoming,
            peer,
            given,
        };
        Rc::new(channel)
    }

    pub(crate) fn source(&self) -> RawSource {
        RawSource::of_handle(&self.handle)
    }

    pub(crate) fn take_chunk(&self) -> Box<Chunk> {
        self.spare.take().unwrap_or_default()
    }

    pub(crate) fn put_chunk(&self, mut chunk: Box<Chunk>) {
        chunk.shrink();
        *self.spare.borrow_mut() = Some(chunk);
    }

    /// Where an operation puts the first byte that comes. A read of none would not tell a
    /// message of none; other pipes have no such, and nothing is taken from them before it is
    /// asked for.
    pub(crate) fn take_inbox(&self) -> Option<Box<Chunk>> {
        self.has_messages.then(|| self.inbox.take().unwrap_or_else(Chunk::for_one_byte))
    }

    /// An operation has read.
    pub(crate) fn put_inbox(&self, inbox: Box<Chunk>, result: Result<usize, i32>) {
        // What failed does so again when it is read.
        if let Ok(count) = result {
            self.ahead.set(if count == 0 { Ahead::End } else { Ahead::Byte(inbox.first()) });
        }
        *self.inbox.borrow_mut() = Some(inbox);
    }

    /// True if there is something to read that no operation would tell of.
    pub(crate) fn has_read_ahead(&self) -> bool {
        self.ahead.get() != Ahead::Nothing
    }

    /// True if the writing side can end while the other goes on.
    pub(crate) fn can_end_writing(&self) -> bool {
        self.has_messages
    }

    /// From now on handles go over it, and bytes in frames.
    pub(crate) fn pass_handles(&self) {
        self.incoming.borrow_mut().get_or_insert_default();
    }

    /// Says which process has the other end.
    pub(in super::super) fn set_peer(&self, process: u32) {
        self.peer.set(Some(process));
    }

    /// The process that handles are made for.
    pub(super) fn peer(&self) -> io::Result<u32> {
        self.peer.get().map_or_else(|| calls::peer_process(&self.handle), Ok)
    }

    /// Reads what is there, and takes what has come with it. False if some is lost.
    pub(in super::super) fn receive_frames(
        &self,
        memory: &mut [u8],
        passed: &mut VecDeque<Passed>,
    ) -> io::Result<(usize, bool)> {
        self.pass_handles();
        let mut incoming = self.incoming.borrow_mut();
        let Some(incoming) = incoming.as_mut() else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let received = incoming.receive(memory, passed, |memory| self.receive(memory));
        if let Some(peer) = incoming.sender() {
            self.peer.set(Some(peer));
        }
        received
    }

    /// Its handle, to be passed.
    ///
    /// # Errors
    ///
    /// `ResourceBusy` if something is on its way, which the other side would miss.
    pub(super) fn passable(&self) -> io::Result<RawSource> {
        let in_flight = self.reading.get().is_some() || self.writing.get().is_some();
        if in_flight || self.has_read_ahead() {
            let why = "the pipe is being read or written: pass it before that";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        Ok(self.source())
    }

    /// It was passed on.
    pub(crate) fn give(&self) {
        self.given.set(true);
    }

    /// # Errors
    ///
    /// `BrokenPipe` if it was passed on.
    pub(crate) fn check_kept(&self) -> io::Result<()> {
        if !self.given.get() {
            return Ok(());
        }
        let why = "the pipe was passed to another process, which has it for itself: close it here";
        Err(io::Error::new(io::ErrorKind::BrokenPipe, why))
    }

    /// Reads what is there.
    pub(super) fn receive(&self, memory: &mut [u8]) -> io::Result<usize> {
        if self.has_messages && self.reading.get().is_some() {
            return Err(io::ErrorKind::WouldBlock.into()); // What that reads comes first.
        }
        match (self.ahead.get(), memory) {
            (Ahead::Nothing, memory) => calls::read_what_is_there(&self.handle, memory),
            (Ahead::End, _) | (_, []) => Ok(0),
            (Ahead::Byte(byte), [first, rest @ ..]) => {
                self.ahead.set(Ahead::Nothing);
                *first = byte;
                // If the rest fails, it will fail again.
                let more = calls::read_what_is_there(&self.handle, rest).unwrap_or(0);
                Ok(1 + more)
            }
        }
    }
}

impl Drop for Channel {
    /// Handles that have come and that nobody has asked for are this process's already.
    fn drop(&mut self) {
        const ROUNDS: usize = 64;
        if self.incoming.get_mut().is_none() {
            return;
        }
        self.reading.set(None);
        let (mut memory, mut passed) = (vec![0; calls::ROOM], VecDeque::new());
        for _ in 0..ROUNDS {
            match self.receive_frames(&mut memory, &mut passed) {
                Ok((1.., _)) => passed.clear(),
                _ => return,
            }
        }
    }
}
