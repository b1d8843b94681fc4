//! Operations in flight: submission, cancellation, completion.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use io_uring::types::CancelBuilder;
use io_uring::{opcode, squeue};
use poll_core::{Event, Interest, Op, OpKind, Table, Token};

use crate::buffers::{Consumer, Groups};
use crate::entries;
use crate::polls::from_poll;
use crate::ring::{Completion, Ring};
use crate::user_data::UserData;
use crate::zero_copy::ZeroCopy;

/// The operations in flight.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    submitted: Table<Submitted>,
    /// Additional state, which few operations have.
    attached: Table<Attached>,
    /// A free list of message headers.
    headers: Vec<Header>,
    pub(crate) zero_copy: ZeroCopy,
}

/// The state of an operation in flight. Small, as each idle connection has one.
#[derive(Debug)]
struct Submitted {
    kind: OpKind,
    /// The interest of [`Op::Poll`].
    interest: Interest,
    /// The buffer group of a multishot receive.
    group: u16,
    cancelled: bool,
}

impl Submitted {
    #[inline]
    fn new(op: &Op, kind: OpKind) -> Submitted {
        let (interest, group) = match *op {
            Op::Poll { interest, .. } => (interest, 0),
            Op::RecvMulti { group, .. } | Op::RecvMsgMulti { group, .. } => (Interest::NONE, group),
            _ => (Interest::NONE, 0),
        };
        Submitted { kind, interest, group, cancelled: false }
    }

    /// True if it has an entry in [`Ops::attached`].
    fn has_attached(&self) -> bool {
        matches!(self.kind, OpKind::Close | OpKind::RecvMsgMulti)
    }
}

/// Additional state of an operation in flight.
#[derive(Debug)]
enum Attached {
    /// The header of [`Op::RecvMsgMulti`], which the kernel reads until the last completion.
    Header(Header),
    /// The descriptor of [`Op::Close`], which the operation owns, and the sequence number of its
    /// entry.
    PendingClose(RawFd, u32),
}

/// A message header that only reserves space for the address and the control data.
#[derive(Debug)]
struct Header(Box<libc::msghdr>);

impl Default for Header {
    fn default() -> Header {
        // SAFETY: all zeros are an empty header: no address, no buffers, no control data.
        Header(Box::new(unsafe { std::mem::zeroed() }))
    }
}

// SAFETY: all pointers in the header are null; `Ops::entry` writes only lengths.
unsafe impl Send for Header {}

impl Ops {
    pub(crate) fn is_empty(&self) -> bool {
        self.submitted.is_empty()
    }

    /// Queues an operation.
    ///
    /// # Safety
    ///
    /// As for [`Backend::submit`](poll_core::Backend::submit).
    pub(crate) unsafe fn submit(
        &mut self,
        ring: &mut Ring,
        groups: &mut Groups,
        token: Token,
        op: &Op,
    ) -> io::Result<()> {
        let kind = op.kind();
        if !ring.supports(kind) {
            return Err(unsupported(kind));
        }
        // Fast path: building the entry here avoids copying its 64 bytes through the general match.
        // `bench count`: fs-read/uring takes 8 % more instructions without it.
        let entry = match *op {
            Op::Send { source, buf } if self.zero_copy.min_bytes.is_none() => {
                entries::send(source, buf)
            }
            Op::Read { source, bufs, offset } if bufs.count == 1 => {
                entries::read(source, bufs, offset)
            }
            // SAFETY: the caller keeps the promises of `Backend::submit`, which this asks for.
            _ => return unsafe { self.submit_any(ring, groups, token, op) },
        };
        // SAFETY: the caller keeps the operation's memory valid until the last completion.
        unsafe { self.queue(ring, token, Submitted::new(op, kind), entry) }
    }

    /// [`submit`](Ops::submit) for every kind of operation.
    ///
    /// # Safety
    ///
    /// As for [`Backend::submit`](poll_core::Backend::submit).
    unsafe fn submit_any(
        &mut self,
        ring: &mut Ring,
        groups: &mut Groups,
        token: Token,
        op: &Op,
    ) -> io::Result<()> {
        let kind = op.kind();
        if self.submitted.is_taken(token) {
            return Err(already_in_flight());
        }
        let mut attached = None;
        let Some(entry) = self.entry(ring, *op, &mut attached) else {
            return Err(unsupported(kind));
        };
        let submitted = Submitted::new(op, kind);
        prepare_group(ring, groups, kind, submitted.group)?;
        if let Some(attached) = attached {
            // The token is free, so no other operation's state is there.
            let _ = self.attached.insert(token, attached);
        }
        if let Op::Send { source, buf } = *op
            && self.zero_copy.applies(ring, buf)
        {
            let user_data = UserData::Operation(token).to_u64();
            let copying = entries::send(source, buf).user_data(user_data);
            self.zero_copy.insert(token, source.fd(), copying);
        }
        // SAFETY: the caller keeps the operation's memory valid until the last completion, and
        // `attached` the header.
        unsafe { self.queue(ring, token, submitted, entry) }
    }

    /// Queues the entry of an operation.
    ///
    /// # Safety
    ///
    /// The memory that the entry points to stays valid until its last completion.
    unsafe fn queue(
        &mut self,
        ring: &mut Ring,
        token: Token,
        submitted: Submitted,
        entry: squeue::Entry,
    ) -> io::Result<()> {
        if self.submitted.insert(token, submitted).is_err() {
            return Err(already_in_flight());
        }
        let entry = entry.user_data(UserData::Operation(token).to_u64());
        let queued = match ring.ensure_exit_pipe() {
            // SAFETY: the caller keeps the entry's memory valid until its last completion.
            Ok(()) => unsafe { ring.push(&entry) },
            Err(error) => Err(error),
        };
        if queued.is_err() {
            self.remove(token);
        }
        queued
    }

    /// The entry of an operation, and its additional state. `None` for an unknown operation.
    fn entry(
        &mut self,
        ring: &Ring,
        op: Op,
        attached: &mut Option<Attached>,
    ) -> Option<squeue::Entry> {
        Some(match op {
            Op::Send { source, buf } if self.zero_copy.applies(ring, buf) => {
                entries::send_zero_copy(source, buf)
            }
            Op::RecvMsgMulti { source, group, address_len, control_len } => {
                let mut header = self.headers.pop().unwrap_or_default();
                header.0.msg_namelen = address_len;
                header.0.msg_controllen = control_len as _;
                let entry = entries::recv_msg_multi(source, &header.0, group);
                *attached = Some(Attached::Header(header));
                entry
            }
            Op::Close { source } => {
                *attached = Some(Attached::PendingClose(source.fd(), ring.next_number()));
                entries::close(source)
            }
            _ => entries::socket(op).or_else(|| entries::file(op))?,
        })
    }

    /// Queues sends again, with a copy, whose sockets have refused to send without.
    #[cold]
    pub(crate) fn submit_refused(&mut self, ring: &mut Ring) -> io::Result<()> {
        while let Some((token, copying)) = self.zero_copy.next_refused() {
            let cancelled = self.submitted.get(token).is_none_or(|op| op.cancelled);
            match copying.filter(|_| !cancelled) {
                // SAFETY: the submitter keeps the memory valid until the last event, which was not
                // reported yet.
                Some(entry) => unsafe { ring.push(entry) }?,
                None => ring.push_synthetic(cancelled_completion(token)),
            }
            self.zero_copy.remove_refused();
        }
        Ok(())
    }

    /// Forgets an operation that has ended.
    #[inline]
    fn remove(&mut self, token: Token) {
        self.zero_copy.remove(token);
        if self.submitted.remove(token).is_some_and(|op| op.has_attached())
            && let Some(Attached::Header(header)) = self.attached.remove(token)
        {
            self.headers.push(header);
        }
    }

    /// Queues a cancel. Returns true if it must reach the kernel now: an accept or a receive of
    /// messages holds its socket open, and so its address in use.
    pub(crate) fn cancel(&mut self, ring: &mut Ring, token: Token) -> io::Result<bool> {
        let Some(op) = self.submitted.get_mut(token) else {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no such operation in flight"));
        };
        ring.push_ignored(entries::cancel(token))?;
        op.cancelled = true;
        let kinds = [OpKind::Accept, OpKind::AcceptMulti, OpKind::RecvMsgMulti];
        Ok(kinds.contains(&op.kind))
    }

    /// Queues a cancel for each operation.
    pub(crate) fn cancel_all(&mut self, ring: &mut Ring) -> io::Result<()> {
        // The kernel has released these: they would have been submitted again.
        while let Some((token, _)) = self.zero_copy.next_refused() {
            self.zero_copy.remove_refused();
            self.remove(token);
        }
        if ring.has_cancel_any() {
            return ring.push_ignored(opcode::AsyncCancel2::new(CancelBuilder::any()).build());
        }
        self.submitted.iter().try_for_each(|(token, _)| ring.push_ignored(entries::cancel(token)))
    }

    /// Translates a completion of an operation, which may be its last.
    pub(crate) fn complete(
        &mut self,
        token: Token,
        done: Completion,
        groups: &mut Groups,
    ) -> Option<Event> {
        if self.zero_copy.is_refused(token, &done) {
            return None;
        }
        let op = self.submitted.get(token)?;
        let lease = groups.lend(op.group, &done);
        let result = match usize::try_from(done.result) {
            Ok(bits) if op.kind == OpKind::Poll => {
                Ok(op.interest.report(from_poll(bits as u32)).bits().into())
            }
            Ok(result) => Ok(result),
            // A cancel interrupts an operation that runs in a kernel thread. An interrupted change
            // of a directory may have been made.
            Err(_) if op.cancelled && done.result == -libc::EINTR && !changes_names(op.kind) => {
                Err(libc::ECANCELED)
            }
            Err(_) => Err(-done.result),
        };
        let more = done.more();
        if !more {
            self.remove(token);
        }
        Some(Event::Done { token, result, more, lease })
    }

    /// [`complete`](Ops::complete) for a backend that is being dropped: closes what the operation
    /// has opened, and what it has failed to close.
    pub(crate) fn discard(&mut self, token: Token, done: Completion) {
        let Some(op) = self.submitted.get(token) else { return };
        let opens = [OpKind::Accept, OpKind::AcceptMulti, OpKind::OpenAt].contains(&op.kind);
        if opens && done.result >= 0 {
            // SAFETY: the kernel has created this descriptor for the operation, and no event has
            // reported it, so it has no other owner.
            drop(unsafe { OwnedFd::from_raw_fd(done.result) });
        }
        if let Some(&Attached::PendingClose(fd, _)) = self.attached.get(token)
            && done.result == -libc::ECANCELED
        {
            close(fd);
        }
        if !done.more() {
            self.remove(token);
        }
    }

    /// Closes the descriptors of closes that the kernel has not taken, for a ring that will not be
    /// entered again.
    pub(crate) fn close_unsubmitted(&mut self, ring: &Ring) {
        for (_, attached) in self.attached.iter() {
            if let Attached::PendingClose(fd, number) = *attached
                && ring.is_unsubmitted(number)
            {
                close(fd);
            }
        }
    }

    /// Completes every operation with `ECANCELED` on a new ring: the old one is gone.
    pub(crate) fn restart(&mut self, ring: &mut Ring) {
        self.zero_copy.clear();
        for (token, _) in self.submitted.iter() {
            ring.push_synthetic(cancelled_completion(token));
        }
    }
}

/// True for operations that a file system may have performed although they were interrupted.
fn changes_names(kind: OpKind) -> bool {
    use OpKind::{Ftruncate, LinkAt, MkdirAt, RenameAt, SymlinkAt, UnlinkAt};
    matches!(kind, Ftruncate | LinkAt | MkdirAt | RenameAt | SymlinkAt | UnlinkAt)
}

fn cancelled_completion(token: Token) -> Completion {
    Completion::synthetic(UserData::Operation(token), -libc::ECANCELED)
}

/// Closes the descriptor of an [`Op::Close`] that the kernel has not performed.
fn close(fd: RawFd) {
    // SAFETY: the submitter of an `Op::Close` gives the descriptor away, and the kernel has not
    // closed it.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}

/// Registers the buffer group of an operation with the kernel, if it has one.
fn prepare_group(ring: &Ring, groups: &mut Groups, kind: OpKind, group: u16) -> io::Result<()> {
    match kind {
        OpKind::RecvMulti => groups.prepare(ring, group, Consumer::Streams),
        OpKind::RecvMsgMulti => groups.prepare(ring, group, Consumer::Messages),
        _ => Ok(()),
    }
}

#[cold]
fn already_in_flight() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "an operation with this token is in flight")
}

#[cold]
fn unsupported(kind: OpKind) -> io::Error {
    let why = format!("this ring does not perform {kind:?} (missing or restricted): use readiness");
    io::Error::new(io::ErrorKind::Unsupported, why)
}
