//! One end of a pipe connection.

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
use super::frames;
use crate::sys::Passed;
use crate::sys::pipe_frames::Incoming;

/// One end of a pipe connection.
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
    /// The pipe is of the message type, though it is read as bytes. An empty message is the end
    /// of file.
    has_messages: bool,
    /// Memory for a read of one byte, while no read is in flight.
    inbox: RefCell<Option<Box<Chunk>>>,
    ahead: Cell<Ahead>,
    /// The loop checks `ahead` in its next pending phase.
    pub(crate) ready_scheduled: Cell<bool>,
    /// The state of the frame parser, if the pipe passes handles.
    incoming: RefCell<Option<Box<Incoming>>>,
    /// The process at the other end, if known.
    peer: Cell<Option<u32>>,
    /// The handle was passed to another process: two users would get each other's completions.
    given: Cell<bool>,
}

/// A result that an operation has read ahead of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Ahead {
    #[default]
    Nothing,
    Byte(u8),
    /// The end of file.
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
        let (ahead, ready_scheduled, incoming, peer, given) = Default::default();
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
            ready_scheduled,
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

    /// Memory for a one-byte read operation that waits for readiness. A zero-byte read would not
    /// detect an empty message. `None` for other pipes, which have no empty messages: there a
    /// zero-byte read waits without consuming data.
    pub(crate) fn take_inbox(&self) -> Option<Box<Chunk>> {
        self.has_messages.then(|| self.inbox.take().unwrap_or_else(Chunk::for_one_byte))
    }

    /// Stores the result of a one-byte read.
    pub(crate) fn put_inbox(&self, inbox: Box<Chunk>, result: Result<usize, i32>) {
        // An error is dropped: the next read fails with it again.
        if let Ok(count) = result {
            self.ahead.set(if count == 0 { Ahead::End } else { Ahead::Byte(inbox.first()) });
        }
        *self.inbox.borrow_mut() = Some(inbox);
    }

    /// True if a byte or the end of file was read ahead: no operation will report it again.
    pub(crate) fn has_read_ahead(&self) -> bool {
        self.ahead.get() != Ahead::Nothing
    }

    /// True if the writing side can be shut down on its own.
    pub(crate) fn can_end_writing(&self) -> bool {
        self.has_messages
    }

    /// Switches to frames, which carry handles and bytes.
    pub(crate) fn pass_handles(&self) {
        self.incoming.borrow_mut().get_or_insert_default();
    }

    /// Sets the process at the other end.
    pub(in super::super) fn set_peer(&self, process: u32) {
        self.peer.set(Some(process));
    }

    /// The process to duplicate handles into.
    pub(super) fn peer(&self) -> io::Result<u32> {
        self.peer.get().map_or_else(|| calls::peer_process(&self.handle), Ok)
    }

    /// Reads the available bytes, and appends the handles of their frames. False if handles were
    /// lost.
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
        let received = frames::receive(incoming, memory, passed, |memory| self.receive(memory));
        if let Some(peer) = incoming.sender() {
            self.peer.set(Some(peer));
        }
        received
    }

    /// The handle, to be passed to another process.
    ///
    /// # Errors
    ///
    /// `ResourceBusy` if an operation is in flight or data was read ahead, which the other process
    /// would miss.
    pub(super) fn passable(&self) -> io::Result<RawSource> {
        let in_flight = self.reading.get().is_some() || self.writing.get().is_some();
        if in_flight || self.has_read_ahead() {
            let why = "the pipe is being read or written: pass it before the first read or write";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        Ok(self.source())
    }

    /// Marks the pipe as passed to another process.
    pub(crate) fn give(&self) {
        self.given.set(true);
    }

    /// # Errors
    ///
    /// `BrokenPipe` if the pipe was passed to another process.
    pub(crate) fn check_kept(&self) -> io::Result<()> {
        if !self.given.get() {
            return Ok(());
        }
        let why = "the pipe was passed to another process, which owns it now: close it here";
        Err(io::Error::new(io::ErrorKind::BrokenPipe, why))
    }

    /// Reads the available bytes.
    pub(super) fn receive(&self, memory: &mut [u8]) -> io::Result<usize> {
        if self.has_messages && self.reading.get().is_some() {
            return Err(io::ErrorKind::WouldBlock.into()); // The operation in flight reads first.
        }
        match (self.ahead.get(), memory) {
            (Ahead::Nothing, memory) => calls::read_available(&self.handle, memory),
            (Ahead::End, _) | (_, []) => Ok(0),
            (Ahead::Byte(byte), [first, rest @ ..]) => {
                self.ahead.set(Ahead::Nothing);
                *first = byte;
                // An error is dropped: the next read fails with it again.
                let more = calls::read_available(&self.handle, rest).unwrap_or(0);
                Ok(1 + more)
            }
        }
    }
}

impl Drop for Channel {
    /// Receives and closes handles that the peer has already duplicated into this process.
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
