//! Operations in flight, and how each becomes a submission entry.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr;

use io_uring::types::{CancelBuilder, Fd, FsyncFlags};
use io_uring::{Probe, opcode, squeue};
use poll_core::{At, Event, Op, OpKind, RawBuf, RawBufs, RawSource, Ready, Shutdown, Table, Token};

use crate::buffers::{Groups, Taker};
use crate::polls::{from_poll, to_poll};
use crate::ring::{Completion, Ring};
use crate::user_data::UserData;

/// The operations in flight.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    flights: Table<Flight>,
    /// What is kept for few of them.
    kept: Table<Kept>,
    /// Headers of operations that have ended, for those to come.
    headers: Vec<Header>,
    /// Sends of so many bytes are not copied, if any.
    pub(crate) zero_copy: Option<u32>,
    /// Sends in flight that are not copied.
    lent: Table<LentSend>,
    /// Those of them that their sockets have refused, and that nobody has at the moment.
    refused: Vec<Token>,
}

/// A send that is not copied. Not all sockets can do that: Unix domain sockets do not.
#[derive(Debug)]
struct LentSend {
    /// The same, copied.
    copied: squeue::Entry,
    /// The socket cannot: when the kernel has let go of the memory it is copied.
    refused: bool,
}

/// What must be known of an operation until its end. Each idle connection has one.
#[derive(Debug)]
struct Flight {
    kind: OpKind,
    /// What [`Op::Poll`] waits for.
    interest: Ready,
    /// Where an operation that was given a group finds buffers.
    group: u16,
    cancelled: bool,
}

impl Flight {
    #[inline]
    fn of(op: &Op, kind: OpKind) -> Flight {
        let (interest, group) = match *op {
            Op::Poll { interest, .. } => (interest, 0),
            Op::RecvMulti { group, .. } | Op::RecvMsgMulti { group, .. } => (Ready::NONE, group),
            _ => (Ready::NONE, 0),
        };
        Flight { kind, interest, group, cancelled: false }
    }

    /// True if something is kept for it.
    fn keeps(&self) -> bool {
        matches!(self.kind, OpKind::Close | OpKind::RecvMsgMulti)
    }
}

/// What is kept for an operation.
#[derive(Debug)]
enum Kept {
    /// The header of [`Op::RecvMsgMulti`], which the kernel may look at until the end.
    Header(Header),
    /// What [`Op::Close`] closes, which is nobody else's any more, and the number of its entry.
    Doomed(RawFd, u32),
}

/// A header that only says how much room to leave in front of each message.
#[derive(Debug)]
struct Header(Box<libc::msghdr>);

impl Default for Header {
    fn default() -> Header {
        // SAFETY: all of it may be zero: no address, no buffers, no control data.
        Header(Box::new(unsafe { std::mem::zeroed() }))
    }
}

// SAFETY: all pointers in the header are null.
unsafe impl Send for Header {}

impl Ops {
    pub(crate) fn is_empty(&self) -> bool {
        self.flights.is_empty()
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
        if !ring.performs(kind) {
            return Err(not_performed(kind));
        }
        // Those that are asked for most need nothing but their entry, and a way of their own to it:
        // where the ways to all entries meet, each costs as much as the largest.
        let entry = match *op {
            Op::Send { source, buf } if self.zero_copy.is_none() => send(source, buf).build(),
            Op::Read { source, bufs, offset } if bufs.count == 1 => read(source, bufs, offset),
            // SAFETY: the caller's promise.
            _ => return unsafe { self.submit_any(ring, groups, token, op) },
        };
        // SAFETY: the caller keeps what the operation names until the last completion.
        unsafe { self.queue(ring, token, Flight::of(op, kind), entry) }
    }

    /// As [`submit`](Ops::submit).
    ///
    /// # Safety
    ///
    /// The same.
    #[inline(never)]
    unsafe fn submit_any(
        &mut self,
        ring: &mut Ring,
        groups: &mut Groups,
        token: Token,
        op: &Op,
    ) -> io::Result<()> {
        let kind = op.kind();
        if self.flights.is_taken(token) {
            return Err(already_in_flight());
        }
        let mut kept = None;
        let Some(entry) = self.entry(ring, *op, &mut kept) else {
            return Err(not_performed(kind));
        };
        let flight = Flight::of(op, kind);
        prepare_group(ring, groups, kind, flight.group)?;
        if let Some(kept) = kept {
            // What was kept for another went with it.
            let _ = self.kept.insert(token, kept);
        }
        if let Op::Send { source, buf } = *op
            && self.lends(ring, buf)
        {
            let copied = send(source, buf).build().user_data(UserData::Operation(token).to_u64());
            let _ = self.lent.insert(token, LentSend { copied, refused: false });
        }
        // SAFETY: the caller keeps what the operation names, and `kept` the header, until the
        // last completion.
        unsafe { self.queue(ring, token, flight, entry) }
    }

    /// Queues the entry of an operation.
    ///
    /// # Safety
    ///
    /// What the entry points to stays valid until its last completion.
    #[inline(never)]
    unsafe fn queue(
        &mut self,
        ring: &mut Ring,
        token: Token,
        flight: Flight,
        entry: squeue::Entry,
    ) -> io::Result<()> {
        if self.flights.insert(token, flight).is_err() {
            return Err(already_in_flight());
        }
        let entry = entry.user_data(UserData::Operation(token).to_u64());
        let queued = match ring.tether() {
            // SAFETY: the caller's promise.
            Ok(()) => unsafe { ring.push(&entry) },
            Err(error) => Err(error),
        };
        if queued.is_err() {
            self.forget(token);
        }
        queued
    }

    /// The entry for an operation, and what to keep for it. `None` for one that is not known
    /// here.
    fn entry(&mut self, ring: &Ring, op: Op, kept: &mut Option<Kept>) -> Option<squeue::Entry> {
        Some(match op {
            Op::Send { source, buf } => {
                if self.lends(ring, buf) {
                    let entry = opcode::SendZc::new(fd(source), buf.ptr.as_ptr(), buf.len);
                    entry.flags(libc::MSG_NOSIGNAL).build()
                } else {
                    send(source, buf).build()
                }
            }
            Op::RecvMulti { source, group } => opcode::RecvMulti::new(fd(source), group).build(),
            Op::RecvMsgMulti { source, group, address_len, control_len } => {
                let mut header = self.headers.pop().unwrap_or_default();
                header.0.msg_namelen = address_len;
                header.0.msg_controllen = control_len as _;
                let entry = opcode::RecvMsgMulti::new(fd(source), &*header.0, group).build();
                *kept = Some(Kept::Header(header));
                entry
            }
            Op::Close { source } => {
                *kept = Some(Kept::Doomed(source.fd(), ring.next_number()));
                opcode::Close::new(fd(source)).build()
            }
            _ => socket_entry(op).or_else(|| file_entry(op))?,
        })
    }

    /// True if a send is not to be copied.
    #[inline]
    fn lends(&self, ring: &Ring, buf: RawBuf) -> bool {
        self.zero_copy.is_some_and(|least| buf.len >= least) && ring.has(opcode::SendZc::CODE)
    }

    /// True if sends are to go again.
    pub(crate) fn any_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Has sends copied whose sockets cannot do without.
    #[cold]
    pub(crate) fn copy_refused(&mut self, ring: &mut Ring) -> io::Result<()> {
        while let Some(&token) = self.refused.last() {
            let cancelled = self.flights.get(token).is_none_or(|flight| flight.cancelled);
            match self.lent.get(token).filter(|_| !cancelled) {
                // SAFETY: whoever asked for it keeps the memory until its end, which was not told.
                Some(lent) => unsafe { ring.push(&lent.copied) }?,
                None => {
                    ring.tell(Completion::of(UserData::Operation(token), -libc::ECANCELED));
                }
            }
            self.refused.pop();
            self.lent.remove(token);
        }
        Ok(())
    }

    /// True if a completion says that a socket cannot send without a copy, or that the memory of
    /// such a send is free: nobody is to hear of that.
    #[cold]
    fn is_refused(&mut self, token: Token, done: &Completion) -> bool {
        let Some(lent) = self.lent.get_mut(token) else { return false };
        lent.refused |= done.result == -libc::EOPNOTSUPP;
        let refused = lent.refused;
        if refused && !done.more() {
            self.refused.push(token);
        }
        refused
    }

    /// The operation is over. What was kept for it may serve the next.
    #[inline]
    fn forget(&mut self, token: Token) {
        if !self.lent.is_empty() {
            self.lent.remove(token);
        }
        if self.flights.remove(token).is_some_and(|flight| flight.keeps())
            && let Some(Kept::Header(header)) = self.kept.remove(token)
        {
            self.headers.push(header);
        }
    }

    /// Queues a cancel. True if it must reach the kernel now: an accept or a receive of messages
    /// holds its socket open, and so the address.
    pub(crate) fn cancel(&mut self, ring: &mut Ring, token: Token) -> io::Result<bool> {
        let Some(flight) = self.flights.get_mut(token) else {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no such operation in flight"));
        };
        ring.push_quietly(cancel(token))?;
        flight.cancelled = true;
        let kinds = [OpKind::Accept, OpKind::AcceptMulti, OpKind::RecvMsgMulti];
        Ok(kinds.contains(&flight.kind))
    }

    /// Queues a cancel for each operation.
    pub(crate) fn cancel_all(&mut self, ring: &mut Ring) -> io::Result<()> {
        // The kernel has none of these.
        while let Some(token) = self.refused.pop() {
            self.forget(token);
        }
        if ring.has_cancel_any() {
            return ring.push_quietly(opcode::AsyncCancel2::new(CancelBuilder::any()).build());
        }
        self.flights.iter().try_for_each(|(token, _)| ring.push_quietly(cancel(token)))
    }

    /// An operation has completed, for the last time or not.
    pub(crate) fn complete(
        &mut self,
        token: Token,
        done: Completion,
        groups: &mut Groups,
    ) -> Option<Event> {
        if !self.lent.is_empty() && self.is_refused(token, &done) {
            return None;
        }
        let flight = self.flights.get(token)?;
        let lent = groups.lend(flight.group, &done);
        let result = match usize::try_from(done.result) {
            Ok(bits) if flight.kind == OpKind::Poll => {
                Ok(flight.interest.report(from_poll(bits as u32)).bits().into())
            }
            Ok(result) => Ok(result),
            // A cancelled operation that a kernel thread was performing was interrupted.
            Err(_) if flight.cancelled && done.result == -libc::EINTR => Err(libc::ECANCELED),
            Err(_) => Err(-done.result),
        };
        let more = done.more();
        if !more {
            self.forget(token);
        }
        Some(Event::Done { token, result, more, lent })
    }

    /// As [`complete`](Ops::complete), for a result that nobody will hear of.
    pub(crate) fn abandon(&mut self, token: Token, done: Completion) {
        let Some(flight) = self.flights.get(token) else { return };
        let opens = [OpKind::Accept, OpKind::AcceptMulti, OpKind::OpenAt].contains(&flight.kind);
        if opens && done.result >= 0 {
            // SAFETY: the kernel has just made this descriptor for the operation, and
            // nobody was told of it.
            drop(unsafe { OwnedFd::from_raw_fd(done.result) });
        }
        if let Some(&Kept::Doomed(fd, _)) = self.kept.get(token)
            && done.result == -libc::ECANCELED
        {
            close(fd);
        }
        if !done.more() {
            self.forget(token);
        }
    }

    /// For a ring that will not be entered again: closes what the kernel was not told to.
    pub(crate) fn close_unsubmitted(&mut self, ring: &Ring) {
        for (_, kept) in self.kept.iter() {
            if let Kept::Doomed(fd, number) = *kept
                && ring.is_unsubmitted(number)
            {
                close(fd);
            }
        }
    }

    /// The ring is gone: has each operation told that it was cancelled, by the new one.
    pub(crate) fn start_over(&mut self, ring: &mut Ring) {
        self.refused.clear();
        self.lent = Table::default();
        for (token, _) in self.flights.iter() {
            ring.tell(Completion::of(UserData::Operation(token), -libc::ECANCELED));
        }
    }
}

/// Closes the descriptor of a close that the kernel has not performed.
fn close(fd: RawFd) {
    // SAFETY: whoever asked for the close has given the descriptor away.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}

/// Makes sure that the kernel has the group that an operation takes buffers of.
fn prepare_group(ring: &Ring, groups: &mut Groups, kind: OpKind, group: u16) -> io::Result<()> {
    match kind {
        OpKind::RecvMulti => groups.prepare(ring, group, Taker::Streams),
        OpKind::RecvMsgMulti => groups.prepare(ring, group, Taker::Messages),
        _ => Ok(()),
    }
}

fn cancel(token: Token) -> squeue::Entry {
    opcode::AsyncCancel::new(UserData::Operation(token).to_u64()).build()
}

/// True if the kernel performs operations of this kind.
pub(crate) fn supports(probe: &Probe, kind: OpKind) -> bool {
    is_performed(kind, |code| probe.is_supported(code))
}

/// True if a kernel that has these operations performs those of this kind.
fn is_performed(kind: OpKind, has: impl Fn(u8) -> bool) -> bool {
    let needed = needed(kind);
    !needed.is_empty() && needed.iter().all(|&code| has(code))
}

/// The kernel's operations that a kind needs. Multishot variants are flags, for which
/// there is no probe: an operation that came with the same release vouches for them.
fn needed(kind: OpKind) -> &'static [u8] {
    match kind {
        OpKind::Accept => &[opcode::Accept::CODE],
        // `IORING_ACCEPT_MULTISHOT` and `IORING_OP_SOCKET` came with Linux 5.19.
        OpKind::AcceptMulti => &[opcode::Accept::CODE, opcode::Socket::CODE],
        OpKind::Connect => &[opcode::Connect::CODE],
        OpKind::Recv => &[opcode::Recv::CODE],
        // `IORING_RECV_MULTISHOT` and `IORING_OP_SEND_ZC` came with Linux 6.0.
        OpKind::RecvMulti => &[opcode::Recv::CODE, opcode::SendZc::CODE],
        OpKind::RecvMsg => &[opcode::RecvMsg::CODE],
        OpKind::RecvMsgMulti => &[opcode::RecvMsg::CODE, opcode::SendZc::CODE],
        OpKind::Send => &[opcode::Send::CODE],
        OpKind::SendMsg => &[opcode::SendMsg::CODE],
        OpKind::Shutdown => &[opcode::Shutdown::CODE],
        OpKind::Poll => &[opcode::PollAdd::CODE],
        OpKind::Read => &[opcode::Readv::CODE, opcode::Read::CODE],
        OpKind::Write => &[opcode::Writev::CODE, opcode::Write::CODE],
        OpKind::Fsync => &[opcode::Fsync::CODE],
        OpKind::Ftruncate => &[opcode::Ftruncate::CODE],
        OpKind::OpenAt => &[opcode::OpenAt::CODE],
        OpKind::Close => &[opcode::Close::CODE],
        OpKind::Statx => &[opcode::Statx::CODE],
        OpKind::UnlinkAt => &[opcode::UnlinkAt::CODE],
        OpKind::RenameAt => &[opcode::RenameAt::CODE],
        OpKind::MkdirAt => &[opcode::MkDirAt::CODE],
        OpKind::LinkAt => &[opcode::LinkAt::CODE],
        OpKind::SymlinkAt => &[opcode::SymlinkAt::CODE],
        _ => &[],
    }
}

#[cold]
fn already_in_flight() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "an operation with this token is in flight")
}

#[cold]
fn not_performed(kind: OpKind) -> io::Error {
    let why = format!("this kernel does not perform {kind:?}: use readiness instead");
    io::Error::new(io::ErrorKind::Unsupported, why)
}

#[inline(never)]
fn socket_entry(op: Op) -> Option<squeue::Entry> {
    Some(match op {
        Op::Poll { source, interest } => {
            opcode::PollAdd::new(fd(source), to_poll(interest)).build()
        }
        Op::Accept { listener } => {
            opcode::Accept::new(fd(listener), ptr::null_mut(), ptr::null_mut())
                .flags(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK)
                .build()
        }
        Op::AcceptMulti { listener } => opcode::AcceptMulti::new(fd(listener))
            .flags(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK)
            .build(),
        Op::Connect { source, address } => {
            opcode::Connect::new(fd(source), address.ptr.as_ptr().cast(), address.len).build()
        }
        Op::Recv { source, buf } => {
            opcode::Recv::new(fd(source), buf.ptr.as_ptr(), buf.len).build()
        }
        Op::RecvMsg { source, message, flags } => {
            let message = message.0.as_ptr().cast();
            opcode::RecvMsg::new(fd(source), message).flags(flags as u32).build()
        }
        Op::SendMsg { source, message, flags } => {
            let flags = (flags | libc::MSG_NOSIGNAL) as u32;
            opcode::SendMsg::new(fd(source), message.0.as_ptr().cast()).flags(flags).build()
        }
        Op::Shutdown { source, how } => {
            let how = match how {
                Shutdown::Read => libc::SHUT_RD,
                Shutdown::Write => libc::SHUT_WR,
                Shutdown::Both => libc::SHUT_RDWR,
            };
            opcode::Shutdown::new(fd(source), how).build()
        }
        _ => return None,
    })
}

/// A peer that has gone is `EPIPE`, never a signal.
fn send(source: RawSource, buf: RawBuf) -> opcode::Send {
    opcode::Send::new(fd(source), buf.ptr.as_ptr(), buf.len).flags(libc::MSG_NOSIGNAL)
}

#[inline]
fn read(source: RawSource, bufs: RawBufs, offset: Option<u64>) -> squeue::Entry {
    match only(bufs) {
        Some((buf, len)) => {
            opcode::Read::new(fd(source), buf, len).offset(position(offset)).build()
        }
        None => opcode::Readv::new(fd(source), bufs.ptr.as_ptr().cast(), bufs.count)
            .offset(position(offset))
            .build(),
    }
}

#[inline(never)]
fn file_entry(op: Op) -> Option<squeue::Entry> {
    Some(match op {
        Op::Read { source, bufs, offset } => read(source, bufs, offset),
        Op::Write { source, bufs, offset } => match only(bufs) {
            Some((buf, len)) => {
                opcode::Write::new(fd(source), buf, len).offset(position(offset)).build()
            }
            None => opcode::Writev::new(fd(source), bufs.ptr.as_ptr().cast(), bufs.count)
                .offset(position(offset))
                .build(),
        },
        Op::Fsync { source, data_only } => {
            let flags = if data_only { FsyncFlags::DATASYNC } else { FsyncFlags::empty() };
            opcode::Fsync::new(fd(source)).flags(flags).build()
        }
        Op::Ftruncate { source, len } => opcode::Ftruncate::new(fd(source), len).build(),
        Op::OpenAt { at, flags, mode } => opcode::OpenAt::new(dir(at), at.path.0.as_ptr())
            .flags(flags | libc::O_CLOEXEC)
            .mode(mode)
            .build(),
        Op::Statx { at, flags, mask, out } => {
            opcode::Statx::new(dir(at), at.path.0.as_ptr(), out.as_ptr().cast())
                .flags(flags)
                .mask(mask)
                .build()
        }
        Op::UnlinkAt { at, flags } => {
            opcode::UnlinkAt::new(dir(at), at.path.0.as_ptr()).flags(flags).build()
        }
        Op::RenameAt { from, to, flags } => {
            let (old, new) = (from.path.0.as_ptr(), to.path.0.as_ptr());
            opcode::RenameAt::new(dir(from), old, dir(to), new).flags(flags).build()
        }
        Op::MkdirAt { at, mode } => {
            opcode::MkDirAt::new(dir(at), at.path.0.as_ptr()).mode(mode).build()
        }
        Op::LinkAt { from, to, flags } => {
            let (old, new) = (from.path.0.as_ptr(), to.path.0.as_ptr());
            opcode::LinkAt::new(dir(from), old, dir(to), new).flags(flags).build()
        }
        Op::SymlinkAt { target, at } => {
            opcode::SymlinkAt::new(dir(at), target.0.as_ptr(), at.path.0.as_ptr()).build()
        }
        _ => return None,
    })
}

/// The only buffer of a list that has one: for it the kernel need not read the list.
fn only(bufs: RawBufs) -> Option<(*mut u8, u32)> {
    if bufs.count != 1 {
        return None;
    }
    // SAFETY: whoever submits keeps the list valid until the operation has ended.
    let buf = unsafe { bufs.ptr.cast::<libc::iovec>().read() };
    Some((buf.iov_base.cast(), u32::try_from(buf.iov_len).ok()?))
}

fn fd(source: RawSource) -> Fd {
    Fd(source.fd())
}

fn dir(at: At) -> Fd {
    Fd(at.dir.map_or(libc::AT_FDCWD, RawSource::fd))
}

/// All ones is the current position.
fn position(offset: Option<u64>) -> u64 {
    offset.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_of_linux_names_what_it_needs() {
        let of_linux = OpKind::ALL.iter().filter(|&&kind| kind != OpKind::ConnectNamedPipe);
        assert!(of_linux.into_iter().all(|&kind| !needed(kind).is_empty()));
    }

    /// What a kernel performs that has these operations.
    fn performed(has: impl Fn(u8) -> bool) -> Vec<OpKind> {
        OpKind::ALL.iter().copied().filter(|kind| is_performed(*kind, &has)).collect()
    }

    #[test]
    fn older_kernels_perform_less() {
        let all = performed(|_| true);
        assert_eq!(all.len(), OpKind::ALL.len() - 1, "all but what is of Windows");
        assert_eq!(performed(|_| false), [], "a kernel whose probe knows nothing");
        let missing = |without: &[u8]| -> Vec<OpKind> {
            let left = performed(|code| !without.contains(&code));
            all.iter().copied().filter(|kind| !left.contains(kind)).collect()
        };
        // Linux 5.19, where receives had no multishot yet, and 5.18, nor had accepts.
        let receives = [OpKind::RecvMulti, OpKind::RecvMsgMulti];
        assert!(receives.iter().all(|kind| missing(&[opcode::SendZc::CODE]).contains(kind)));
        assert_eq!(missing(&[opcode::SendZc::CODE]).len(), 2);
        assert_eq!(missing(&[opcode::Socket::CODE]), [OpKind::AcceptMulti]);
        // Without the operation itself none of its kinds is performed.
        let accepts = missing(&[opcode::Accept::CODE]);
        assert!(accepts.contains(&OpKind::Accept) && accepts.contains(&OpKind::AcceptMulti));
        assert_eq!(missing(&[opcode::Ftruncate::CODE]), [OpKind::Ftruncate], "Linux 6.8");
        // Vectored reads are older than those of one buffer (5.6): both are needed.
        assert_eq!(missing(&[opcode::Read::CODE]), [OpKind::Read]);
        assert_eq!(missing(&[opcode::Readv::CODE]), [OpKind::Read]);
    }

    #[test]
    fn a_kernel_that_was_not_probed_performs_nothing() {
        assert!(OpKind::ALL.iter().all(|kind| !supports(&Probe::new(), *kind)));
    }

    #[test]
    fn paths_start_from_their_directory_or_the_current_one() {
        let path = poll_core::RawPath::of(c"x");
        assert_eq!(dir(At { dir: None, path }).0, libc::AT_FDCWD);
        assert_eq!(dir(At { dir: Some(RawSource::from_fd(7)), path }).0, 7);
    }

    #[test]
    fn no_offset_is_the_current_position() {
        assert_eq!(position(None) as i64, -1);
        assert_eq!(position(Some(3)), 3);
    }
}
