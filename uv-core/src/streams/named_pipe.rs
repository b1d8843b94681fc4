//! Streams over the named pipes of Windows, whose readiness is detected by overlapped operations.
//!
//! A pipe of the message type is readable when a one-byte read completes; the rest of the available
//! bytes is then read without waiting. Any other pipe is readable when a zero-byte read completes.
//! The end of file is an empty message, or the error of a pipe whose other end is closed. Bytes to
//! write are copied into memory that the operation owns, so that a write can be cancelled at any
//! time; they count as written when the kernel has taken them. A listener has several instances
//! that wait for clients.
//!
//! Closing a stream cancels its operations. The loop stays alive until they have completed; then
//! the handle is closed.

use std::io::{self, IoSlice};
use std::num::NonZeroUsize;
use std::rc::Rc;

use poll_core::{Backend, Interest, Op, RawBufs, Readiness, Token};

use super::output::send_file::Load;
use super::output::write::{advance, with_slices};
use super::request_queue::State;
use super::{Flags, arm, handle_passing, input, output};
use crate::event_loop::OpOwner;
use crate::handles::AnyHandle;
use crate::requests::WorkError;
use crate::sys::{Channel, Chunk, INSTANCES, NamedPipe, Server, Transport, Waited};
use crate::{Loop, streams};

/// An operation of a pipe in flight, with the handle and the memory that it uses.
#[derive(Debug)]
pub(crate) struct PipeOp {
    stream: Token,
    kind: PipeOpKind,
    /// Keeps the handle open.
    channel: Rc<Channel>,
    /// The backend's operation, for cancelling.
    operation: Option<Token>,
    /// The stream has given up the pipe.
    abandoned: bool,
}

/// The purpose of an operation, and its memory.
#[derive(Debug)]
enum PipeOpKind {
    /// Waits until the pipe is readable. The memory is for one byte, `None` for a zero-byte read.
    Read(Option<Box<Chunk>>),
    /// Writes the next bytes of a write request.
    Write(Token, Box<Chunk>),
    /// Writes an empty message, which ends the writing side.
    Shutdown,
    /// Waits for a client of a listener's instance.
    Connect(Rc<Server>),
}

/// Starts the operations that detect the readiness in `wanted`.
pub(super) fn arm<B: Backend>(lp: &mut Loop<B>, key: Token, wanted: Interest) -> io::Result<()> {
    let Some(slot) = lp.streams.slots.get_mut(key) else { return Ok(()) };
    slot.armed = wanted;
    let instances = slot.rare.as_ref().and_then(|rare| rare.instances);
    let instances = instances.map_or(INSTANCES, NonZeroUsize::get);
    match slot.socket.as_ref().and_then(Transport::pipe) {
        Some(NamedPipe::Listener(server)) => {
            let server = Rc::clone(server);
            if wanted.contains(Interest::READ) {
                arm_connects(lp, key, &server, instances);
            }
            Ok(())
        }
        Some(NamedPipe::End(channel)) => {
            let channel = Rc::clone(channel);
            if slot.passing.is_some() {
                channel.pass_handles();
            }
            if wanted != Interest::NONE {
                channel.check_kept()?;
            }
            if wanted.contains(Interest::WRITE) && channel.writing.get().is_none() {
                write_chunk(lp, key, &channel);
            }
            if wanted.contains(Interest::READ) && channel.reading.get().is_none() {
                arm_read(lp, key, &channel)?;
            }
            Ok(())
        }
        None => Ok(()),
    }
}

/// Starts an operation, which uses only the handle and the memory of its `PipeOp`.
#[allow(unsafe_code)]
fn submit<B: Backend>(
    lp: &mut Loop<B>,
    stream: Token,
    kind: PipeOpKind,
    channel: &Rc<Channel>,
    op: Op,
) -> io::Result<Token> {
    let channel = Rc::clone(channel);
    let pipe_op = PipeOp { stream, kind, channel, operation: None, abandoned: false };
    let pipe_op = lp.streams.pipe_ops.insert(pipe_op);
    // SAFETY: the entry of `pipe_ops` owns the handle and the boxed chunk that `op` refers to.
    // `done` removes it at the operation's completion; an operation that fails to start
    // uses neither.
    match unsafe { lp.perform(OpOwner::Pipe(pipe_op), op, None) } {
        Ok(operation) => {
            if let Some(pipe_op) = lp.streams.pipe_ops.get_mut(pipe_op) {
                pipe_op.operation = Some(operation.token);
            }
            Ok(pipe_op)
        }
        Err(error) => {
            drop(lp.streams.pipe_ops.remove(pipe_op));
            Err(error)
        }
    }
}

/// Waits until the pipe is readable, or schedules the read if data was read ahead.
fn arm_read<B: Backend>(lp: &mut Loop<B>, key: Token, channel: &Rc<Channel>) -> io::Result<()> {
    if channel.has_read_ahead() {
        if !channel.ready_scheduled.replace(true) {
            let channel = Rc::clone(channel);
            lp.defer(move |lp| {
                channel.ready_scheduled.set(false);
                streams::ready(lp, key, Readiness::READ);
            });
        }
        return Ok(());
    }
    let inbox = channel.take_inbox();
    let bufs = inbox.as_ref().map_or_else(|| RawBufs::filling(&mut []), |inbox| inbox.lend());
    let op = Op::Read { source: channel.source(), bufs, offset: None };
    let pipe_op = submit(lp, key, PipeOpKind::Read(inbox), channel, op)?;
    channel.reading.set(Some(pipe_op));
    Ok(())
}

/// Shuts down the writing side of a duplex pipe.
pub(super) fn shutdown<B: Backend>(lp: &mut Loop<B>, key: Token) {
    let Some(slot) = lp.streams.slots.get(key) else { return };
    let Some(NamedPipe::End(channel)) = slot.socket.as_ref().and_then(Transport::pipe) else {
        return;
    };
    let channel = Rc::clone(channel);
    if channel.writing.get().is_some() {
        return; // A write, or the shutdown itself, is in flight.
    }
    if !channel.can_end_writing() {
        let why = "a duplex pipe in byte mode cannot be shut down: close the handle instead";
        let error = io::Error::new(io::ErrorKind::Unsupported, why);
        return output::shutdown::complete(lp, key, Err(error));
    }
    let (source, bufs) = (channel.source(), RawBufs::sending(&[]));
    let op = Op::Write { source, bufs, offset: None };
    match submit(lp, key, PipeOpKind::Shutdown, &channel, op) {
        Ok(pipe_op) => channel.writing.set(Some(pipe_op)),
        Err(error) => output::shutdown::complete(lp, key, Err(error)),
    }
}

/// Starts an operation for the next bytes of the first write that has any.
fn write_chunk<B: Backend>(lp: &mut Loop<B>, key: Token, channel: &Rc<Channel>) {
    let mut chunk = channel.take_chunk();
    let write = loop {
        let Some((write, left)) = lp.streams.first_write(key) else {
            return channel.put_chunk(chunk);
        };
        if left == 0 {
            // An empty message would be the end of file.
            output::write::finish_request(lp, key, write, None);
            continue;
        }
        if lp.streams.slots.get_mut(key).is_some_and(|slot| slot.is_file(write)) {
            match output::send_file::load_file(lp, key, write, left) {
                Load::Loaded => {}
                Load::Waits => return channel.put_chunk(chunk),
                Load::Ended => {
                    output::write::finish_request(lp, key, write, None);
                    continue;
                }
                Load::Failed(error) => {
                    output::write::writing_failed(lp, key, write, error);
                    continue;
                }
            }
        }
        match fill_chunk(lp, key, write, channel, &mut chunk) {
            Ok(()) => break write,
            // No byte of it was written, so the writes behind it are not affected.
            Err(error) => output::write::finish_request(lp, key, write, Some(error)),
        }
    };
    let (source, bufs) = (channel.source(), chunk.lend());
    let op = Op::Write { source, bufs, offset: None };
    match submit(lp, key, PipeOpKind::Write(write, chunk), channel, op) {
        Ok(pipe_op) => channel.writing.set(Some(pipe_op)),
        Err(error) => output::write::writing_failed(lp, key, write, error),
    }
}

/// Fills a chunk with the next bytes of a write and the handles that go with them.
fn fill_chunk<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    write: Token,
    channel: &Channel,
    chunk: &mut Chunk,
) -> io::Result<()> {
    let handles = lp.streams.handles_for_chunk(key, write);
    let rights = handles
        .as_ref()
        .map(|handles| handle_passing::rights_for_chunk(lp, handles))
        .transpose()?;
    let mut fill = |bufs: &[IoSlice<'_>]| match &rights {
        Some(rights) => chunk.fill_framed(bufs, rights, channel),
        None => Ok(chunk.fill(bufs)),
    };
    let Some(slot) = lp.streams.slots.get_mut(key) else { return Ok(()) };
    if slot.is_file(write) {
        return fill(&[IoSlice::new(slot.file_bytes())]).map(drop);
    }
    let Some(request) = lp.streams.requests.get_mut(write) else { return Ok(()) };
    advance(request, 0); // Skips empty pieces.
    with_slices(request, fill).0?;
    for handle in handles.unwrap_or_default() {
        let AnyHandle::Pipe(pipe) = handle else { continue };
        let passed = lp.streams.slots.get(pipe.0);
        let passed = passed.and_then(|slot| slot.socket.as_ref()).and_then(Transport::pipe);
        if let Some(NamedPipe::End(channel)) = passed {
            channel.give();
        }
    }
    Ok(())
}

/// Makes `instances` instances wait for clients, and schedules the callback for instances that
/// are connected already.
fn arm_connects<B: Backend>(lp: &mut Loop<B>, key: Token, server: &Rc<Server>, instances: usize) {
    while server.connecting.borrow().len() < instances {
        let begun = server.instance().and_then(|instance| {
            let op = Op::ConnectNamedPipe { pipe: instance.source() };
            submit(lp, key, PipeOpKind::Connect(Rc::clone(server)), &instance, op)
        });
        match begun {
            Ok(pipe_op) => server.connecting.borrow_mut().push(pipe_op),
            // The listener works with fewer instances.
            Err(_) if !server.connecting.borrow().is_empty() => break,
            Err(error) => {
                lp.defer(move |lp| input::accept::listener_failed(lp, key, error));
                break;
            }
        }
    }
    if !server.ready.borrow().is_empty() && !server.ready_scheduled.replace(true) {
        let server = Rc::clone(server);
        lp.defer(move |lp| {
            server.ready_scheduled.set(false);
            streams::ready(lp, key, Readiness::READ);
        });
    }
}

/// Handles the completion of an operation of a pipe. True if a callback may have run.
pub(crate) fn done<B: Backend>(
    lp: &mut Loop<B>,
    pipe_op: Token,
    result: Result<usize, i32>,
) -> bool {
    let Some(op) = lp.streams.pipe_ops.remove(pipe_op) else { return false };
    let PipeOp { stream, kind, channel, abandoned, .. } = op;
    if abandoned {
        match kind {
            // A byte that was read is part of the data for the next user of the channel.
            PipeOpKind::Read(Some(inbox)) => channel.put_inbox(inbox, result),
            PipeOpKind::Write(_, mut chunk) if result.is_err() => chunk.take_back(),
            _ => {}
        }
        // The last reference closes the handle.
        drop(channel);
        lp.active_requests -= 1;
        return true;
    }
    match kind {
        PipeOpKind::Read(inbox) => {
            channel.reading.set(None);
            if let Some(inbox) = inbox {
                channel.put_inbox(inbox, result);
            }
            streams::ready(lp, stream, Readiness::READ);
        }
        PipeOpKind::Write(write, mut chunk) => {
            channel.writing.set(None);
            if result.is_err() {
                chunk.take_back();
            }
            let result = result.map(|count| chunk.own(count));
            channel.put_chunk(chunk);
            chunk_written(lp, stream, write, result);
        }
        PipeOpKind::Shutdown => {
            channel.writing.set(None);
            let ended = result.map(drop).map_err(io::Error::from_raw_os_error);
            // A peer that has closed its end needs no end of file.
            let ended = ended.or_else(|error| match error.kind() {
                io::ErrorKind::BrokenPipe => Ok(()),
                _ => Err(error),
            });
            output::shutdown::complete(lp, stream, ended);
        }
        PipeOpKind::Connect(server) => {
            server.connecting.borrow_mut().retain(|it| *it != pipe_op);
            // An instance whose client has disconnected already is dropped and replaced.
            if result.is_ok() {
                server.ready.borrow_mut().push_back(channel);
            }
            streams::ready(lp, stream, Readiness::READ);
        }
    }
    true
}

/// Completes or continues a write after one of its operations.
fn chunk_written<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    write: Token,
    result: Result<usize, i32>,
) {
    let request = lp.streams.requests.get_mut(write);
    // A write that was cancelled meanwhile has its result already.
    if let Some(request) = request.filter(|it| it.state == State::Writing) {
        match result {
            Ok(count) => {
                let (count, all) = (count.min(request.left), count >= request.left);
                let Some(slot) = lp.streams.slots.get_mut(key) else { return };
                if slot.is_file(write) {
                    lp.streams.file_sent(key, write, count);
                } else {
                    advance(request, count);
                    slot.write_queue_size -= count;
                }
                if all {
                    output::write::finish_request(lp, key, write, None);
                }
            }
            Err(code) => {
                output::write::writing_failed(lp, key, write, io::Error::from_raw_os_error(code));
            }
        }
    }
    output::write::complete_requests(lp, key);
    output::shutdown::drain(lp, key);
    arm::update_or_fail(lp, key);
}

/// Cancels the operations of a pipe that its stream gives up. `done` handles their
/// completions without the stream.
pub(super) fn abandon<B: Backend>(
    lp: &mut Loop<B>,
    transport: Option<Transport>,
) -> Option<Transport> {
    match transport.as_ref().and_then(Transport::pipe) {
        Some(NamedPipe::End(channel)) => {
            for pipe_op in [channel.reading.take(), channel.writing.take()] {
                abandon_op(lp, pipe_op);
            }
        }
        Some(NamedPipe::Listener(server)) => {
            for pipe_op in server.connecting.take() {
                abandon_op(lp, Some(pipe_op));
            }
        }
        None => {}
    }
    transport
}

/// Cancels an operation whose stream gives up its pipe, and keeps the loop alive until it
/// completes.
fn abandon_op<B: Backend>(lp: &mut Loop<B>, pipe_op: Option<Token>) {
    let Some(pipe_op) = pipe_op.and_then(|key| lp.streams.pipe_ops.get_mut(key)) else {
        return;
    };
    pipe_op.abandoned = true;
    lp.active_requests += 1;
    if let Some(operation) = pipe_op.operation {
        // An error means that it has completed already and its event is pending.
        let _ = lp.backend.cancel(operation);
    }
}

/// Handles the result of a connect that had to wait for a free instance.
pub(crate) fn opened<B: Backend>(lp: &mut Loop<B>, key: Token, waited: Result<Waited, WorkError>) {
    let opened = match waited {
        Ok(waited) => waited.transport(),
        Err(_) => Err(crate::error::cancelled()),
    };
    let Ok(slot) = lp.streams.open(key) else { return };
    if !slot.flags.contains(Flags::CONNECTING) {
        return;
    }
    let opened = opened.map(|transport| slot.socket = Some(transport));
    if let Some(rare) = &mut slot.rare {
        rare.waits_for_instance = None;
        rare.connected = Some(opened);
    }
    streams::schedule_pending(lp, key);
}
