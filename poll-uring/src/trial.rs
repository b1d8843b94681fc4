//! Which operations a ring of this thread refuses.
//!
//! `IORING_REGISTER_PROBE` reports what the kernel implements. It does not report what a ring may
//! do: restrictions (`IORING_REGISTER_RESTRICTIONS`; a thread can pass them on to its rings and
//! children, with cBPF filters, from Linux 7.0) let an operation complete with `EACCES`. So each
//! kind of operation is tried once, on descriptor -1 and in one `io_uring_enter`: `EACCES` is a
//! refusal, anything else (`EBADF`, or `EFAULT` for a path) is not.
//!
//! The trial has a ring of its own, as entering the backend's ring would tie that to this thread.
//! A ring costs about 0.1 ms, so a thread tries once. Restrictions that a thread takes on after
//! its first ring are not seen here.

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;

use io_uring::types::{Fd, SubmitArgs};
use io_uring::{Builder, EnterFlags, IoUring, Submitter, opcode, squeue};
use poll_core::OpKind;

use crate::ring::bit;
use crate::setup_error;

/// The submission entries of the ring of a trial: enough for all kinds, in two pages.
const ENTRIES: u32 = 64;
/// No file has this descriptor.
const NO_FD: Fd = Fd(-1);

/// The requests that the rings of a thread reject with `EACCES`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    /// A bit for each kind of operation.
    pub(crate) kinds: u64,
    /// `SEND_ZC`.
    pub(crate) zero_copy: bool,
    /// The flag `IOSQE_CQE_SKIP_SUCCESS`.
    pub(crate) skip_success: bool,
    /// `IORING_REGISTER_EVENTFD`.
    pub(crate) eventfd: bool,
    /// Something without which there is no backend: polls and their removal, cancels, and
    /// registered files.
    essential: bool,
}

/// The request that an entry of the trial represents.
#[derive(Clone, Copy, Debug)]
enum Subject {
    Kind(OpKind),
    ZeroCopy,
    SkipSuccess,
    Essential,
}

/// Tries which requests the rings of this thread reject.
///
/// # Errors
///
/// `Unsupported` if they refuse what the backend cannot do without.
pub(crate) fn refused_here() -> io::Result<Refused> {
    thread_local!(static REFUSED: Cell<Option<Refused>> = const { Cell::new(None) });
    let refused = match REFUSED.get() {
        Some(refused) => refused,
        None => run(|_| Ok(())).map_err(setup_error::explain)?,
    };
    REFUSED.set(Some(refused));
    refused.check()
}

impl Refused {
    /// # Errors
    ///
    /// `Unsupported` if something is refused that the backend cannot do without.
    pub(crate) fn check(self) -> io::Result<Refused> {
        if self.essential { Err(setup_error::restricted()) } else { Ok(self) }
    }

    fn add(&mut self, subject: Subject) {
        match subject {
            Subject::Kind(kind) => self.kinds |= bit(kind),
            Subject::ZeroCopy => self.zero_copy = true,
            Subject::SkipSuccess => self.skip_success = true,
            Subject::Essential => self.essential = true,
        }
    }
}

/// Tries everything on a new ring, after `restrict` has seen it. Refuses nothing where the kernel
/// is too old (before 5.18) to restrict a ring from outside.
pub(crate) fn run(restrict: impl FnOnce(&Submitter<'_>) -> io::Result<()>) -> io::Result<Refused> {
    let mut builder: Builder = IoUring::builder();
    builder.dontfork().setup_cqsize(2 * ENTRIES).setup_r_disabled().setup_submit_all();
    let mut uring = match builder.build(ENTRIES) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(Refused::default()),
        other => other?,
    };
    restrict(&uring.submitter())?;
    uring.submitter().register_enable_rings()?;
    let mut refused = Refused::default();
    try_registrations(&uring.submitter(), &mut refused);

    // SAFETY: all zeros are an empty header: no address, no buffers, no control data.
    let header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    let trials = trials(&header);
    for (index, (_, entry)) in trials.iter().enumerate() {
        let entry = entry.clone().user_data(index as u64);
        // SAFETY: the kernel reads `header` while it takes the entry, in the call below. The other
        // entries point to no memory.
        unsafe { uring.submission().push(&entry) }.expect("ENTRIES are enough");
    }
    let (count, flags) = (trials.len() as u32, EnterFlags::GETEVENTS.bits());
    // SAFETY: no argument is passed.
    unsafe { uring.submitter().enter::<SubmitArgs<'_, '_>>(count, count, flags, None) }?;
    for done in uring.completion() {
        if done.result() == -libc::EACCES
            && let Some((subject, _)) = trials.get(done.user_data() as usize)
        {
            refused.add(*subject);
        }
    }
    Ok(refused)
}

/// Tries the registrations that the backend makes, with arguments that the kernel does not take.
fn try_registrations(submitter: &Submitter<'_>, refused: &mut Refused) {
    let is_refused = |result: io::Result<()>| {
        result.is_err_and(|error| error.raw_os_error() == Some(libc::EACCES))
    };
    if is_refused(submitter.register_files(&[])) {
        refused.add(Subject::Essential);
    }
    refused.eventfd = is_refused(submitter.register_eventfd(NO_FD.0 as RawFd));
    // SAFETY: a group of no entries is refused before the kernel uses the address.
    if is_refused(unsafe { submitter.register_buf_ring_with_flags(0, 0, 0, 0) }) {
        refused.add(Subject::Kind(OpKind::RecvMulti));
        refused.add(Subject::Kind(OpKind::RecvMsgMulti));
    }
}

/// Entries that fail without an effect.
fn trials(header: &libc::msghdr) -> Vec<(Subject, squeue::Entry)> {
    let poll = || opcode::PollAdd::new(NO_FD, libc::POLLIN as u32);
    let cancel = || opcode::AsyncCancel::new(u64::MAX).build();
    let mut trials = vec![
        (Subject::Essential, poll().build()),
        (Subject::Essential, poll().multi(true).build()),
        (Subject::Essential, opcode::PollRemove::new(u64::MAX).build()),
        (Subject::Essential, cancel()),
        (Subject::SkipSuccess, cancel().flags(squeue::Flags::SKIP_SUCCESS)),
        (Subject::ZeroCopy, opcode::SendZc::new(NO_FD, ptr::null(), 0).build()),
    ];
    trials.extend(socket_trials(header).map(|(kind, entry)| (Subject::Kind(kind), entry)));
    trials.extend(file_trials().map(|(kind, entry)| (Subject::Kind(kind), entry)));
    trials
}

fn socket_trials(header: &libc::msghdr) -> [(OpKind, squeue::Entry); 11] {
    let (none, message) = (ptr::null_mut(), ptr::from_ref(header));
    [
        (OpKind::Accept, opcode::Accept::new(NO_FD, ptr::null_mut(), ptr::null_mut()).build()),
        (OpKind::AcceptMulti, opcode::AcceptMulti::new(NO_FD).build()),
        (OpKind::Connect, opcode::Connect::new(NO_FD, ptr::null(), 0).build()),
        (OpKind::Recv, opcode::Recv::new(NO_FD, none, 0).build()),
        (OpKind::RecvMulti, opcode::RecvMulti::new(NO_FD, 0).build()),
        (OpKind::RecvMsg, opcode::RecvMsg::new(NO_FD, message.cast_mut()).build()),
        (OpKind::RecvMsgMulti, opcode::RecvMsgMulti::new(NO_FD, message, 0).build()),
        (OpKind::Send, opcode::Send::new(NO_FD, none, 0).build()),
        (OpKind::SendMsg, opcode::SendMsg::new(NO_FD, message).build()),
        (OpKind::Shutdown, opcode::Shutdown::new(NO_FD, libc::SHUT_WR).build()),
        (OpKind::Poll, opcode::PollAdd::new(NO_FD, libc::POLLIN as u32).build()),
    ]
}

fn file_trials() -> [(OpKind, squeue::Entry); 14] {
    let (none, path) = (ptr::null_mut(), ptr::null());
    [
        (OpKind::Read, opcode::Read::new(NO_FD, none, 0).build()),
        (OpKind::Read, opcode::Readv::new(NO_FD, ptr::null(), 0).build()),
        (OpKind::Write, opcode::Write::new(NO_FD, none, 0).build()),
        (OpKind::Write, opcode::Writev::new(NO_FD, ptr::null(), 0).build()),
        (OpKind::Fsync, opcode::Fsync::new(NO_FD).build()),
        (OpKind::Ftruncate, opcode::Ftruncate::new(NO_FD, 0).build()),
        (OpKind::OpenAt, opcode::OpenAt::new(NO_FD, path).build()),
        (OpKind::Close, opcode::Close::new(NO_FD).build()),
        (OpKind::Statx, opcode::Statx::new(NO_FD, path, ptr::null_mut()).build()),
        (OpKind::UnlinkAt, opcode::UnlinkAt::new(NO_FD, path).build()),
        (OpKind::RenameAt, opcode::RenameAt::new(NO_FD, path, NO_FD, path).build()),
        (OpKind::MkdirAt, opcode::MkDirAt::new(NO_FD, path).build()),
        (OpKind::LinkAt, opcode::LinkAt::new(NO_FD, path, NO_FD, path).build()),
        (OpKind::SymlinkAt, opcode::SymlinkAt::new(NO_FD, path, path).build()),
    ]
}
