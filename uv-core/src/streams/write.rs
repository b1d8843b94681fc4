//! Writing: at once if nothing is queued, in order always, told later.

use std::io::{self, IoSlice};

use poll_core::{Backend, OpKind, Token};

use super::stored::Stored;
use super::transfers::{State, Transfer};
use super::{Flags, Stream, StreamSlot, uninterrupted};
use crate::buffers::IoBuf;
use crate::handles::AnyHandle;
use crate::sys::Transport;
use crate::{Loop, error, sys};

/// Requests that one readiness event writes, so that one busy stream does not starve the rest.
const WRITES_PER_EVENT: usize = 32;

/// Pieces that one system call takes: 1 KiB of stack.
const PIECES_PER_CALL: usize = 64;

/// Pieces that kernels take at the most.
const MAX_PIECES: usize = 1024;

/// A write that has not called back: the key to [cancel](Write::cancel) it.
///
/// ```
/// use uv_core::{Handle, Loop, RunMode, Stream, Tcp, Write, is_cancelled};
///
/// let mut lp = Loop::with_default_backend()?;
/// let (one, other) = Tcp::pair(&mut lp)?;
/// let much = vec![0; 64 << 20]; // More than the kernel takes while nobody reads.
/// let write: Write = one.write(&mut lp, much, move |lp, one, result, _| {
///     assert!(is_cancelled(&result.unwrap_err()));
///     one.close(lp).unwrap();
///     other.close(lp).unwrap();
/// })?;
/// let written = write.cancel(&mut lp)?;
/// assert!(written < 64 << 20);
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Write(Token);

impl Write {
    /// Gives up what has not been written yet; returns how many bytes have. The callback
    /// comes all the same, in the pending phase, with `ECANCELED` and the buffer; it does not
    /// wait for the writes before it.
    ///
    /// If the backend is writing it at this moment, what leaves meanwhile is not in that number,
    /// and the callback says `Ok` if that was all.
    ///
    /// The peer of a write that is cancelled halfway sees the next one follow the first half.
    ///
    /// # Errors
    ///
    /// `NotFound` if it has called back, or is about to because all of it is written.
    pub fn cancel<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<usize> {
        lp.cancel_transfer(self.0, State::Writing)
    }
}

pub(super) fn write<S: Stream, B: Backend, T: IoBuf>(
    stream: S,
    lp: &mut Loop<B>,
    buf: T,
    callback: impl FnOnce(&mut Loop<B>, S, io::Result<()>, T) + 'static,
) -> io::Result<Write> {
    let told = move |lp: &mut Loop<B>, key, result, buf| {
        callback(lp, S::from_stream_key(key), result, buf);
    };
    lp.queue_write(stream.stream_key(), Stored::writing(buf, told), &[]).map(Write)
}

/// As [`write`], and passes handles with the first byte.
pub(crate) fn write_with_handles<S: Stream, B: Backend, T: IoBuf>(
    stream: S,
    lp: &mut Loop<B>,
    buf: T,
    handles: &[AnyHandle],
    callback: impl FnOnce(&mut Loop<B>, S, io::Result<()>, T) + 'static,
) -> io::Result<Write> {
    let key = stream.stream_key();
    let size = (0..buf.pieces()).map(|index| buf.piece(index).len()).sum();
    lp.check_passing(key, handles, size)?;
    let told = move |lp: &mut Loop<B>, key, result, buf| {
        callback(lp, S::from_stream_key(key), result, buf);
    };
    lp.queue_write(key, Stored::writing(buf, told), handles).map(Write)
}

/// How far a write came.
pub(super) enum Progress {
    Complete,
    Blocked,
    /// The stream is broken.
    Failed(io::Error),
    /// This write cannot go, of which nothing has left: those behind it can.
    Refused(io::Error),
}

impl<B: Backend> StreamSlot<B> {
    /// Why it cannot be written at once.
    #[cold]
    fn why_not_written(&self) -> io::Error {
        if self.base.is_closing() {
            error::closing()
        } else if self.flags.contains(Flags::CONNECTING) {
            io::ErrorKind::WouldBlock.into()
        } else if self.socket.is_none() {
            error::not_connected()
        } else if !self.flags.contains(Flags::WRITABLE) {
            io::ErrorKind::BrokenPipe.into()
        } else {
            io::ErrorKind::WouldBlock.into()
        }
    }
}

impl<B: Backend> Loop<B> {
    fn queue_write(
        &mut self,
        key: Token,
        stored: Stored<B>,
        handles: &[AnyHandle],
    ) -> io::Result<Token> {
        let later = self.sends_later(key);
        let (slot, transfers) = self.streams.open_with_transfers(key)?;
        // One that is connecting may have none yet.
        if slot.socket.is_none() && !slot.flags.contains(Flags::CONNECTING) {
            return Err(error::not_connected());
        }
        if !slot.flags.contains(Flags::WRITABLE) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let pieces = stored.pieces();
        if pieces == 0 {
            let why = "a write needs a buffer: a list of none was given";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let size = (0..pieces).map(|index| stored.piece(index).len()).sum();
        let mut transfer = Transfer::new(stored, key, State::Writing, size);

        let queued = !slot.writes.is_empty() || slot.write_queue_size > 0;
        let idle = !queued && !later && !slot.flags.contains(Flags::CONNECTING);
        let mut progress = match &slot.socket {
            Some(socket) if idle && handles.is_empty() => {
                push(socket, &mut transfer, slot.flags.contains(Flags::BLOCKING))
            }
            _ => Progress::Blocked,
        };
        slot.write_queue_size += transfer.left;
        let write = transfers.insert(transfer);
        slot.writes.push(transfers, write);
        self.active_requests += 1;
        if let Some(passing) = &mut slot.passing
            && !handles.is_empty()
        {
            passing.queue(write, handles.into());
            if idle {
                progress = self.push_first(key, write);
            }
        }
        match progress {
            Progress::Complete => self.finish_transfer(key, write, None),
            Progress::Failed(error) | Progress::Refused(error) => {
                self.finish_transfer(key, write, Some(error));
            }
            Progress::Blocked => {
                if let Err(error) = self.arm_stream(key) {
                    self.finish_transfer(key, write, Some(error));
                }
            }
        }
        Ok(write)
    }

    /// Moves a transfer from its list to that of those that are to call back.
    pub(super) fn finish_transfer(
        &mut self,
        key: Token,
        transfer: Token,
        error: Option<io::Error>,
    ) {
        let transfers = &mut self.streams.transfers;
        let Some(slot) = self.streams.slots.get_mut(key) else { return };
        let Some(state) = transfers.get(transfer).map(|transfer| transfer.state) else { return };
        match state {
            State::Writing => slot.writes.unlink(transfers, transfer),
            State::Reading => slot.reads.unlink(transfers, transfer),
            State::Done => return,
        }
        slot.done.push(transfers, transfer);
        if let Some(transfer) = transfers.get_mut(transfer) {
            transfer.state = State::Done;
            transfer.error = error;
        }
        self.feed_stream(key);
    }

    /// Cancels a request; returns how many bytes it had moved.
    pub(super) fn cancel_transfer(&mut self, transfer: Token, state: State) -> io::Result<usize> {
        let found = self.streams.transfers.get(transfer).filter(|it| it.state == state);
        let found = found.ok_or_else(error::stale_request)?;
        let (key, moved, lent) = (found.stream, found.moved, found.lent);
        if lent || self.is_being_read(key, transfer) {
            self.cancel_lent(key, transfer)?;
            return Ok(moved);
        }
        self.finish_transfer(key, transfer, Some(error::cancelled()));
        self.rearm_stream(key);
        Ok(moved)
    }

    /// An operation reads into the buffer of this request.
    fn is_being_read(&self, key: Token, transfer: Token) -> bool {
        self.streams.slots.get(key).is_some_and(|slot| {
            slot.reads.first() == Some(transfer)
                && slot.input.is_some_and(|flight| flight.kind == OpKind::Recv)
        })
    }

    /// Cancels a request whose buffer an operation has: it is over when that is.
    fn cancel_lent(&mut self, key: Token, transfer: Token) -> io::Result<()> {
        let Some(request) = self.streams.transfers.get_mut(transfer) else { return Ok(()) };
        if std::mem::replace(&mut request.cancelled, true) {
            return Err(error::stale_request());
        }
        match request.state {
            State::Reading => self.cancel_input(key),
            _ => self.cancel_output(key),
        }
        Ok(())
    }

    /// The stream is closing: all requests that wait are cancelled, writes before reads.
    pub(super) fn cancel_transfers(&mut self, key: Token) {
        while let Some(slot) = self.streams.slots.get(key)
            && let Some(transfer) = slot.writes.first().or(slot.reads.first())
        {
            self.finish_transfer(key, transfer, Some(error::cancelled()));
        }
    }

    /// The writes in the queue have nowhere to go.
    pub(super) fn fail_writes(&mut self, key: Token, error: impl Fn() -> io::Error) {
        while let Some(slot) = self.streams.slots.get(key)
            && let Some(write) = slot.writes.first()
        {
            self.finish_transfer(key, write, Some(error()));
        }
    }

    /// There is room to write.
    pub(super) fn write_ready(&mut self, key: Token) {
        self.push_writes(key);
        self.tell_done(key);
        self.drain_stream(key);
    }

    /// Writes what can be written now, unless an operation is at it.
    pub(super) fn push_writes(&mut self, key: Token) {
        let busy = self.streams.slots.get(key).is_none_or(|slot| slot.output.is_some());
        if busy || !self.push_batch(key) {
            return;
        }
        for _ in 0..WRITES_PER_EVENT {
            let Some(slot) = self.streams.slots.get(key) else { return };
            if slot.flags.contains(Flags::CONNECTING) {
                return;
            }
            let Some(write) = slot.writes.first() else { break };
            let progress = self.push_first(key, write);
            match progress {
                Progress::Complete => self.finish_transfer(key, write, None),
                Progress::Blocked => break,
                Progress::Refused(error) => self.finish_transfer(key, write, Some(error)),
                Progress::Failed(error) => {
                    self.writing_failed(key, write, error);
                    break;
                }
            }
        }
    }

    /// A write has failed, and with it those that are queued behind: they would follow half a
    /// write, if anything.
    pub(super) fn writing_failed(&mut self, key: Token, write: Token, error: io::Error) {
        let behind = error::same(&error);
        self.finish_transfer(key, write, Some(error));
        self.fail_writes(key, || error::same(&behind));
    }

    /// Writes as much of the first write as goes now.
    fn push_first(&mut self, key: Token, write: Token) -> Progress {
        let Some(slot) = self.streams.slots.get_mut(key) else { return Progress::Blocked };
        let Some(transfer) = self.streams.transfers.get_mut(write) else {
            return Progress::Blocked;
        };
        let Some(socket) = &slot.socket else { return Progress::Blocked };
        let before = transfer.left;
        if slot.passing.is_none() {
            let progress = push(socket, transfer, slot.flags.contains(Flags::BLOCKING));
            slot.write_queue_size -= before - transfer.left;
            return progress;
        }
        let progress = self.push_with_handles(key, write);
        if let Some(slot) = self.streams.slots.get_mut(key)
            && let Some(transfer) = self.streams.transfers.get(write)
        {
            slot.write_queue_size -= before - transfer.left;
        }
        progress
    }

    /// Calls back for the requests that are done by now.
    pub(super) fn tell_done(&mut self, key: Token) {
        let Some(slot) = self.streams.slots.get(key) else { return };
        // Those that the callbacks below add wait for the next pending phase.
        let Some(last) = slot.done.last() else { return };
        loop {
            let Some(slot) = self.streams.slots.get_mut(key) else { return };
            let Some(first) = slot.done.first() else { return };
            slot.done.unlink(&mut self.streams.transfers, first);
            let Some(transfer) = self.streams.transfers.remove(first) else { return };
            slot.write_queue_size -= transfer.left;
            self.active_requests -= 1;
            let Transfer { stored, moved, error, .. } = transfer;
            let result = error.map_or(Ok(moved), Err);
            // The rest must not wait for more to be done.
            self.guarded(key, Loop::feed_stream, |lp| stored.tell(lp, key, result));
            if first == last {
                return;
            }
        }
    }

    #[inline]
    pub(super) fn try_write(&self, key: Token, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        send(self.idle_writer(key)?, &bufs[..bufs.len().min(MAX_PIECES)])
    }

    /// The socket of a stream that can be written, and where nothing waits to be.
    #[inline]
    pub(super) fn idle_writer(&self, key: Token) -> io::Result<&Transport> {
        let slot = self.streams.slots.get(key).ok_or_else(error::stale)?;
        // One that is closing is not writable.
        let writable = slot.flags & (Flags::WRITABLE | Flags::CONNECTING) == Flags::WRITABLE;
        match &slot.socket {
            Some(socket) if writable && slot.writes.is_empty() && slot.write_queue_size == 0 => {
                Ok(socket)
            }
            _ => Err(slot.why_not_written()),
        }
    }
}

/// Writes as much as goes now.
pub(super) fn push<B: Backend>(
    socket: &Transport,
    transfer: &mut Transfer<B>,
    blocking: bool,
) -> Progress {
    while transfer.left > 0 {
        let (result, offered) = with_slices(transfer, |bufs| send(socket, bufs));
        match result {
            Ok(sent) => {
                advance(transfer, sent);
                if sent < offered && !blocking {
                    return Progress::Blocked;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Progress::Blocked,
            Err(error) => return Progress::Failed(error),
        }
    }
    Progress::Complete
}

/// Has `send` write what is next, of several pieces at once; returns how that went, and how
/// much was offered.
pub(super) fn with_slices<B: Backend>(
    transfer: &Transfer<B>,
    send: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
) -> (io::Result<usize>, usize) {
    let pieces = transfer.stored.pieces();
    if pieces - transfer.piece == 1 {
        let bytes = &transfer.stored.piece(transfer.piece)[transfer.offset..];
        return (send(&[IoSlice::new(bytes)]), bytes.len());
    }
    let mut slices = [IoSlice::new(&[]); PIECES_PER_CALL];
    let (mut count, mut offered, mut skip) = (0, 0, transfer.offset);
    for (slice, index) in slices.iter_mut().zip(transfer.piece..pieces) {
        *slice = IoSlice::new(&transfer.stored.piece(index)[skip..]);
        skip = 0;
        offered += slice.len();
        count += 1;
    }
    (send(&slices[..count]), offered)
}

/// Moves on to the first byte that is not written.
pub(super) fn advance<B: Backend>(transfer: &mut Transfer<B>, sent: usize) {
    transfer.moved += sent;
    transfer.left -= sent;
    if transfer.left == 0 {
        return;
    }
    transfer.offset += sent;
    loop {
        let len = transfer.stored.piece(transfer.piece).len();
        if transfer.offset < len {
            return;
        }
        transfer.offset -= len;
        transfer.piece += 1;
    }
}

/// One system call, unless a signal interrupts it. A lack of kernel memory for now is as good as
/// a full socket.
#[inline]
pub(super) fn send(socket: &Transport, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    match uninterrupted(|| socket.send(bufs)) {
        Ok(sent) => Ok(sent),
        Err(error) => Err(why_not_sent(error)),
    }
}

#[cold]
fn why_not_sent(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(sys::NO_BUFFER) => io::ErrorKind::WouldBlock.into(),
        _ => error,
    }
}
