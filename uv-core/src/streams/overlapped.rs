//! Streams over the pipes of Windows, which tell by operations what they are ready for.
//!
//! A read of one byte ends when there is something to read, or the end of it; what is there is
//! then read at once. A pipe without messages is read for no byte at all. The end is a message of
//! no bytes, or that the other side is closed. Bytes to write are copied into memory of the pipe's own, so that a write
//! can be given up at any time, and count as written when the kernel has taken them. A listener
//! has several instances wait for clients.
//!
//! What is in flight when its stream is closed is cancelled; the loop stays alive until that
//! has ended, and then the handle is closed.

use std::io;
use std::num::NonZeroUsize;
use std::rc::Rc;

use poll_core::{Backend, Op, RawBufs, Ready, Token};

use super::Flags;
use super::transfers::State;
use super::write::{advance, with_slices};
use crate::Loop;
use crate::handles::AnyHandle;
use crate::operations::Asker;
use crate::requests::WorkError;
use crate::sys::{Channel, Chunk, INSTANCES, NamedPipe, Server, Transport, Waited};

/// An operation of a pipe that is in flight, and what it names.
#[derive(Debug)]
pub(crate) struct Flight {
    stream: Token,
    aim: Aim,
    /// Keeps the handle open.
    channel: Rc<Channel>,
    /// By which it can be cancelled.
    operation: Option<Token>,
    /// Its stream is gone.
    left: bool,
}

/// What an operation is for.
#[derive(Debug)]
enum Aim {
    /// Of the first byte that comes.
    Read(Option<Box<Chunk>>),
    /// Of the first bytes of a write that are not written.
    Write(Token, Box<Chunk>),
    /// Of a message of no bytes: the writing side ends.
    End,
    Connect(Rc<Server>),
}

impl<B: Backend> Loop<B> {
    /// Starts the operations that say when the pipe is ready for what it waits for.
    pub(super) fn arm_pipe(&mut self, key: Token, wanted: Ready) -> io::Result<()> {
        let Some(slot) = self.streams.slots.get_mut(key) else { return Ok(()) };
        slot.armed = wanted;
        let instances = slot.errands.as_ref().and_then(|errands| errands.instances);
        let instances = instances.map_or(INSTANCES, NonZeroUsize::get);
        match slot.socket.as_ref().and_then(Transport::pipe) {
            Some(NamedPipe::Listener(server)) => {
                let server = Rc::clone(server);
                if wanted.contains(Ready::READ) {
                    self.await_clients(key, &server, instances);
                }
                Ok(())
            }
            Some(NamedPipe::End(channel)) => {
                let channel = Rc::clone(channel);
                if slot.passing.is_some() {
                    channel.pass_handles();
                }
                if wanted != Ready::NONE {
                    channel.check_kept()?;
                }
                if wanted.contains(Ready::WRITE) && channel.writing.get().is_none() {
                    self.write_chunk(key, &channel);
                }
                if wanted.contains(Ready::READ) && channel.reading.get().is_none() {
                    self.await_bytes(key, &channel)?;
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Starts an operation, which names nothing but what its flight owns.
    fn take_off(
        &mut self,
        stream: Token,
        aim: Aim,
        channel: &Rc<Channel>,
        op: Op,
    ) -> io::Result<Token> {
        let channel = Rc::clone(channel);
        let flight = Flight { stream, aim, channel, operation: None, left: false };
        let flight = self.streams.flights.insert(flight);
        // The flight keeps the handle open, and the chunk where it is.
        match self.perform(Asker::Pipe(flight), op, None) {
            Ok(operation) => {
                if let Some(flight) = self.streams.flights.get_mut(flight) {
                    flight.operation = Some(operation.token);
                }
                Ok(flight)
            }
            Err(error) => {
                drop(self.streams.flights.remove(flight));
                Err(error)
            }
        }
    }

    /// Waits for something to read, unless it is there already.
    fn await_bytes(&mut self, key: Token, channel: &Rc<Channel>) -> io::Result<()> {
        if channel.has_read_ahead() {
            if !channel.fed.replace(true) {
                let channel = Rc::clone(channel);
                self.defer(move |lp| {
                    channel.fed.set(false);
                    lp.stream_ready(key, Ready::READ);
                });
            }
            return Ok(());
        }
        let inbox = channel.take_inbox();
        let bufs = inbox.as_ref().map_or_else(|| RawBufs::filling(&mut []), |inbox| inbox.lend());
        let op = Op::Read { source: channel.source(), bufs, offset: None };
        let flight = self.take_off(key, Aim::Read(inbox), channel, op)?;
        channel.reading.set(Some(flight));
        Ok(())
    }

    /// Ends the writing side of a pipe that goes both ways.
    pub(super) fn end_pipe(&mut self, key: Token) {
        let Some(slot) = self.streams.slots.get(key) else { return };
        let Some(NamedPipe::End(channel)) = slot.socket.as_ref().and_then(Transport::pipe) else {
            return;
        };
        let channel = Rc::clone(channel);
        if channel.writing.get().is_some() {
            return; // It is at it.
        }
        if !channel.can_end_writing() {
            let why = "both ways by one handle, of a pipe without messages: close the handle";
            let error = io::Error::new(io::ErrorKind::Unsupported, why);
            return self.tell_shutdown(key, Err(error));
        }
        let (source, bufs) = (channel.source(), RawBufs::sending(&[]));
        match self.take_off(key, Aim::End, &channel, Op::Write { source, bufs, offset: None }) {
            Ok(flight) => channel.writing.set(Some(flight)),
            Err(error) => self.tell_shutdown(key, Err(error)),
        }
    }

    /// Writes the beginning of what is to be written.
    fn write_chunk(&mut self, key: Token, channel: &Rc<Channel>) {
        let mut chunk = channel.take_chunk();
        let write = loop {
            let Some((write, left)) = self.first_write(key) else {
                return channel.put_chunk(chunk);
            };
            if left == 0 {
                self.finish_transfer(key, write, None); // No bytes would be the end.
                continue;
            }
            match self.fill_chunk(key, write, channel, &mut chunk) {
                Ok(()) => break write,
                // Nothing of it has left: those behind are none the worse.
                Err(error) => self.finish_transfer(key, write, Some(error)),
            }
        };
        let (source, bufs) = (channel.source(), chunk.lend());
        let op = Op::Write { source, bufs, offset: None };
        match self.take_off(key, Aim::Write(write, chunk), channel, op) {
            Ok(flight) => channel.writing.set(Some(flight)),
            Err(error) => self.writing_failed(key, write, error),
        }
    }

    /// Fills a chunk with what is next of a write, and what goes with it.
    fn fill_chunk(
        &mut self,
        key: Token,
        write: Token,
        channel: &Channel,
        chunk: &mut Chunk,
    ) -> io::Result<()> {
        let handles = self.handles_due(key, write);
        let rights = handles.as_ref().map(|handles| self.rights_due(handles)).transpose()?;
        let Some(transfer) = self.streams.transfers.get_mut(write) else { return Ok(()) };
        advance(transfer, 0); // Past pieces that are empty.
        let filled = with_slices(transfer, |bufs| match &rights {
            Some(rights) => chunk.fill_framed(bufs, rights, channel),
            None => Ok(chunk.fill(bufs)),
        });
        filled.0?;
        for handle in handles.unwrap_or_default() {
            let AnyHandle::Pipe(pipe) = handle else { continue };
            let passed = self.streams.slots.get(pipe.0);
            let passed = passed.and_then(|slot| slot.socket.as_ref()).and_then(Transport::pipe);
            if let Some(NamedPipe::End(channel)) = passed {
                channel.give();
            }
        }
        Ok(())
    }

    /// Has as many instances wait for clients as there should be, and sees to those that have
    /// one already.
    fn await_clients(&mut self, key: Token, server: &Rc<Server>, instances: usize) {
        while server.connecting.borrow().len() < instances {
            let begun = server.instance().and_then(|instance| {
                let op = Op::ConnectNamedPipe { pipe: instance.source() };
                self.take_off(key, Aim::Connect(Rc::clone(server)), &instance, op)
            });
            match begun {
                Ok(flight) => server.connecting.borrow_mut().push(flight),
                // Fewer are enough.
                Err(_) if !server.connecting.borrow().is_empty() => break,
                Err(error) => {
                    self.defer(move |lp| lp.listener_failed(key, error));
                    break;
                }
            }
        }
        if !server.ready.borrow().is_empty() && !server.fed.replace(true) {
            let server = Rc::clone(server);
            self.defer(move |lp| {
                server.fed.set(false);
                lp.stream_ready(key, Ready::READ);
            });
        }
    }

    /// An operation of a pipe has ended.
    pub(crate) fn pipe_done(&mut self, flight: Token, result: Result<usize, i32>) {
        let Some(landed) = self.streams.flights.remove(flight) else { return };
        let Flight { stream, aim, channel, left, .. } = landed;
        if left {
            match aim {
                // If it has read something, that is part of what is there.
                Aim::Read(Some(inbox)) => channel.put_inbox(inbox, result),
                Aim::Write(_, mut chunk) if result.is_err() => chunk.take_back(),
                _ => {}
            }
            // Now the handle is closed, and the memory free.
            drop(channel);
            self.active_requests -= 1;
            return;
        }
        match aim {
            Aim::Read(inbox) => {
                channel.reading.set(None);
                if let Some(inbox) = inbox {
                    channel.put_inbox(inbox, result);
                }
                self.stream_ready(stream, Ready::READ);
            }
            Aim::Write(write, mut chunk) => {
                channel.writing.set(None);
                if result.is_err() {
                    chunk.take_back();
                }
                let result = result.map(|count| chunk.own(count));
                channel.put_chunk(chunk);
                self.chunk_written(stream, write, result);
            }
            Aim::End => {
                channel.writing.set(None);
                let ended = result.map(drop).map_err(io::Error::from_raw_os_error);
                // Who is gone need not be told.
                let ended = ended.or_else(|error| match error.kind() {
                    io::ErrorKind::BrokenPipe => Ok(()),
                    _ => Err(error),
                });
                self.tell_shutdown(stream, ended);
            }
            Aim::Connect(server) => {
                server.connecting.borrow_mut().retain(|it| *it != flight);
                // One whose client has gone already is of no use, and is followed by another.
                if result.is_ok() {
                    server.ready.borrow_mut().push_back(channel);
                }
                self.stream_ready(stream, Ready::READ);
            }
        }
    }

    fn chunk_written(&mut self, key: Token, write: Token, result: Result<usize, i32>) {
        let transfer = self.streams.transfers.get_mut(write);
        // One that was cancelled meanwhile has been told already.
        if let Some(transfer) = transfer.filter(|it| it.state == State::Writing) {
            match result {
                Ok(count) => {
                    let (count, all) = (count.min(transfer.left), count >= transfer.left);
                    advance(transfer, count);
                    if let Some(slot) = self.streams.slots.get_mut(key) {
                        slot.write_queue_size -= count;
                    }
                    if all {
                        self.finish_transfer(key, write, None);
                    }
                }
                Err(code) => {
                    self.writing_failed(key, write, io::Error::from_raw_os_error(code));
                }
            }
        }
        self.tell_done(key);
        self.drain_stream(key);
        self.rearm_stream(key);
    }

    /// The stream gives its pipe up: what is in flight is cancelled, and ends by itself.
    pub(super) fn leave_pipe(&mut self, transport: Option<Transport>) -> Option<Transport> {
        match transport.as_ref().and_then(Transport::pipe) {
            Some(NamedPipe::End(channel)) => {
                for flight in [channel.reading.take(), channel.writing.take()] {
                    self.leave_flight(flight);
                }
            }
            Some(NamedPipe::Listener(server)) => {
                for flight in server.connecting.take() {
                    self.leave_flight(Some(flight));
                }
            }
            None => {}
        }
        transport
    }

    fn leave_flight(&mut self, flight: Option<Token>) {
        let Some(flight) = flight.and_then(|key| self.streams.flights.get_mut(key)) else { return };
        flight.left = true;
        self.active_requests += 1;
        if let Some(operation) = flight.operation {
            // If it is over already, its end is on its way.
            let _ = self.backend.cancel(operation);
        }
    }

    /// An instance became free that a connect had to wait for, or none did.
    pub(crate) fn pipe_opened(&mut self, key: Token, waited: Result<Waited, WorkError>) {
        let opened = match waited {
            Ok(waited) => waited.transport(),
            Err(_) => Err(crate::error::cancelled()),
        };
        let Ok(slot) = self.streams.open(key) else { return };
        if !slot.flags.contains(Flags::CONNECTING) {
            return;
        }
        let opened = opened.map(|transport| slot.socket = Some(transport));
        if let Some(errands) = &mut slot.errands {
            errands.waits_for_instance = None;
            errands.connected = Some(opened);
        }
        self.feed_stream(key);
    }
}
