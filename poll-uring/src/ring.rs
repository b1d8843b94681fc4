//! The ring: pushing entries, entering the kernel, taking completions, and closing.

use std::collections::VecDeque;
use std::io::{self, PipeReader, Read};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, Probe, cqueue, opcode, squeue};
use poll_core::OpKind;

use crate::setup::{self, Created};
use crate::trial::{self, Refused};
use crate::user_data::UserData;
use crate::{entries, setup_error, zero_copy};

/// How often `io_uring_enter` is tried again, a millisecond apart, when the kernel lacks memory
/// for entries (`EAGAIN`, `EBUSY`), before that becomes an error.
const MAX_RETRIES: u32 = 100;
/// The longest timeout: the kernel's seconds are signed.
const MAX_TIMEOUT_SECS: u64 = 1 << 40;

/// A completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) user_data: UserData,
    /// A result, or a negative `errno`.
    pub(crate) result: i32,
    flags: u32,
}

impl Completion {
    /// A completion that does not come from the kernel.
    pub(crate) fn synthetic(user_data: UserData, result: i32) -> Completion {
        Completion { user_data, result, flags: 0 }
    }

    /// True if the same entry will complete again.
    pub(crate) fn more(&self) -> bool {
        cqueue::more(self.flags)
    }

    /// True if the kernel will fill the rest of the provided buffer.
    pub(crate) fn buffer_more(&self) -> bool {
        cqueue::buffer_more(self.flags)
    }

    /// The provided buffer that was filled.
    pub(crate) fn buffer(&self) -> Option<u16> {
        cqueue::buffer_select(self.flags)
    }
}

impl From<cqueue::Entry> for Completion {
    fn from(entry: cqueue::Entry) -> Completion {
        let user_data = UserData::from_u64(entry.user_data());
        Completion { user_data, result: entry.result(), flags: entry.flags() }
    }
}

/// An `io_uring` instance and its capabilities.
pub(crate) struct Ring {
    /// Dropped by hand: a forked child must not unmap it, as its memory is not mapped there.
    uring: ManuallyDrop<IoUring>,
    /// The operations that the kernel implements.
    probe: Probe,
    /// The operations that restrictions forbid to the rings of the creating thread.
    refused: Refused,
    /// A bit for each kind of operation that this ring performs.
    supported: u64,
    /// The number of entries ever pushed, modulo 2³².
    pushed: u32,
    /// The number of entries that the kernel has taken, modulo 2³².
    submitted: u32,
    /// The flags of every `io_uring_enter`; see [`enter_flags`].
    enter_flags: EnterFlags,
    /// False for a `SINGLE_ISSUER` ring that no thread owns yet.
    enabled: bool,
    /// Completions that were moved out of a full queue, and synthetic ones. They are older than
    /// those in the queue.
    backlog: VecDeque<Completion>,
    /// See [`Ring::ensure_exit_pipe`].
    exit_pipe: Option<PipeReader>,
    /// See [`Ring::drain_on_drop`].
    drain_on_drop: Option<Vec<RawFd>>,
    /// The value of [`FORKS`] in the process that created the ring.
    process: u32,
}

impl Ring {
    /// Creates a ring with the best flags that this kernel has.
    pub(crate) fn new(entries: u32) -> io::Result<Ring> {
        let refused = trial::refused_here()?;
        Ring::from_created(setup::create(entries)?, refused)
    }

    fn from_created(created: Created, refused: Refused) -> io::Result<Ring> {
        let Created { uring, enabled } = created;
        let params = uring.params();
        if !params.is_feature_ext_arg() || !params.is_feature_nodrop() {
            return Err(setup_error::too_old());
        }
        let mut probe = Probe::new();
        uring.submitter().register_probe(&mut probe).map_err(setup_error::explain)?;
        let implemented = OpKind::ALL.iter().filter(|&&kind| entries::supports(&probe, kind));
        let implemented = implemented.fold(0, |all, &kind| all | bit(kind));
        let enter_flags = enter_flags(params.is_feature_no_iowait());
        Ok(Ring {
            uring: ManuallyDrop::new(uring),
            probe,
            refused,
            supported: implemented & !refused.kinds,
            pushed: 0,
            submitted: 0,
            enter_flags,
            enabled,
            backlog: VecDeque::new(),
            exit_pipe: None,
            drain_on_drop: None,
            process: this_process(),
        })
    }

    /// True if this ring performs operations of this kind.
    pub(crate) fn supports(&self, kind: OpKind) -> bool {
        self.supported & bit(kind) != 0
    }

    /// True if a poll can report many times. `IORING_POLL_ADD_MULTI` has no feature bit; resource
    /// tagging came with the same release, Linux 5.13.
    pub(crate) fn has_multishot_poll(&self) -> bool {
        self.uring.params().is_feature_resource_tagging()
    }

    /// True if one cancel can match every request. `IORING_ASYNC_CANCEL_ANY` and `IORING_OP_SOCKET`
    /// came with the same release, Linux 5.19.
    pub(crate) fn has_cancel_any(&self) -> bool {
        self.probe.is_supported(opcode::Socket::CODE)
    }

    /// True if sends need not copy (6.0).
    pub(crate) fn has_zero_copy(&self) -> bool {
        self.probe.is_supported(opcode::SendZc::CODE) && !self.refused.zero_copy
    }

    /// True if completions can signal an eventfd.
    pub(crate) fn has_eventfd(&self) -> bool {
        !self.refused.eventfd
    }

    /// The number of submission entries.
    pub(crate) fn entries(&self) -> u32 {
        self.uring.params().sq_entries()
    }

    /// The sequence number of the entry that is pushed next.
    pub(crate) fn next_number(&self) -> u32 {
        self.pushed
    }

    /// True if the kernel has not taken the entry with this sequence number.
    pub(crate) fn is_unsubmitted(&self, number: u32) -> bool {
        let age = self.pushed.wrapping_sub(number);
        (1..=self.pushed.wrapping_sub(self.submitted)).contains(&age)
    }

    /// True if there are entries that the kernel has not taken.
    pub(crate) fn has_unsubmitted(&self) -> bool {
        self.pushed != self.submitted
    }

    /// True in a forked child. The ring's memory is not mapped there (`MADV_DONTFORK`): two
    /// processes that write to one queue would corrupt it.
    #[inline]
    pub(crate) fn is_of_another_process(&self) -> bool {
        self.process != FORKS.load(Ordering::Relaxed)
    }

    /// Fails in a forked child.
    pub(crate) fn check_process(&self) -> io::Result<()> {
        if self.is_of_another_process() { Err(setup_error::forked()) } else { Ok(()) }
    }

    /// Queues an entry. It reaches the kernel at the next [`enter`](Ring::enter), or now if the
    /// queue is full.
    ///
    /// # Safety
    ///
    /// The memory that the entry points to must stay valid until its last completion.
    pub(crate) unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        self.check_process()?;
        loop {
            // SAFETY: the caller keeps the entry's memory valid until its last completion.
            if unsafe { self.uring.submission().push(entry) }.is_ok() {
                self.pushed = self.pushed.wrapping_add(1);
                return Ok(());
            }
            self.enter(0, None)?;
            if 2 * self.visible() > self.uring.params().cq_entries() as usize {
                self.fill_backlog(); // The caller goes on pushing without taking completions.
            }
        }
    }

    /// Queues an entry that points to no memory and whose completion is ignored. A success posts no
    /// completion where the kernel can omit it (5.17).
    pub(crate) fn push_ignored(&mut self, entry: squeue::Entry) -> io::Result<()> {
        let mut entry = entry.user_data(UserData::Ignored.to_u64());
        if self.uring.params().is_feature_skip_cqe_on_success() && !self.refused.skip_success {
            entry = entry.flags(squeue::Flags::SKIP_SUCCESS);
        }
        // SAFETY: the caller builds only removals and cancels, which point to no memory.
        unsafe { self.push(&entry) }
    }

    /// Adds a completion that does not come from the kernel.
    pub(crate) fn push_synthetic(&mut self, completion: Completion) {
        self.backlog.push_back(completion);
    }

    /// Submits all pushed entries and waits for `want` completions, in one system call. Makes no
    /// call if there is nothing to submit, to run or to wait for.
    ///
    /// Returns false if there are fewer completions: the timeout has expired, or a signal was
    /// delivered. (The kernel distinguishes them only if there was nothing to submit.)
    pub(crate) fn enter(&mut self, want: usize, timeout: Option<Duration>) -> io::Result<bool> {
        self.check_process()?;
        // The kernel waits for at most as many as the queue can hold.
        let want = want.min(self.uring.params().cq_entries() as usize);
        let mut retries = 0;
        loop {
            let queued = self.uring.submission().len();
            if queued == 0 && !self.has_deferred() && self.visible() >= want {
                return Ok(true);
            }
            self.enable()?;
            let entered = self.enter_once(queued, want.saturating_sub(self.backlog.len()), timeout);
            if let Ok(submitted) = entered {
                self.submitted = self.submitted.wrapping_add(submitted as u32);
            }
            match entered {
                // The kernel stopped early and did not wait: submit the remaining entries.
                Ok(submitted) if submitted < queued => continue,
                Ok(_) => return Ok(self.visible() >= want),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR | libc::ETIME) => return Ok(self.visible() >= want),
                    Some(libc::EAGAIN | libc::EBUSY) if retries < MAX_RETRIES => {
                        // The completion queue has overflowed, or there is no memory for entries:
                        // empty the queue. The caller enters again for the remaining entries.
                        self.fill_backlog();
                        if want > 0 && !self.backlog.is_empty() {
                            return Ok(true);
                        }
                        retries += 1;
                        thread::sleep(Duration::from_millis(1));
                    }
                    _ => return Err(error),
                },
            }
        }
    }

    /// Takes up to `limit` completions.
    pub(crate) fn completions(&mut self, limit: usize) -> impl Iterator<Item = Completion> + '_ {
        let first = self.backlog.len().min(limit);
        let queued = self.uring.completion().map(Completion::from).take(limit - first);
        self.backlog.drain(..first).chain(queued)
    }

    /// True if the next [`enter`](Ring::enter) returns completions without sleeping.
    pub(crate) fn has_completions(&mut self) -> bool {
        self.has_deferred() || self.visible() > 0
    }

    /// Signals `eventfd` at every completion, and when there is deferred work that will complete.
    pub(crate) fn register_eventfd(&self, eventfd: RawFd) -> io::Result<()> {
        self.check_process()?;
        self.uring.submitter().register_eventfd(eventfd)
    }

    /// Shares `count` entries from address `entries` on with the kernel, as buffer group `group`.
    ///
    /// # Safety
    ///
    /// The entries must be page-aligned and stay allocated until the ring is closed.
    pub(crate) unsafe fn register_buffers(
        &self,
        entries: u64,
        count: u16,
        group: u16,
        flags: u16,
    ) -> io::Result<()> {
        self.check_process()?;
        // SAFETY: the caller keeps the entries allocated until the ring is closed.
        unsafe { self.uring.submitter().register_buf_ring_with_flags(entries, count, group, flags) }
    }

    /// Undoes [`Ring::register_buffers`].
    pub(crate) fn unregister_buffers(&self, group: u16) -> io::Result<()> {
        self.check_process()?;
        self.uring.submitter().unregister_buf_ring(group)
    }

    /// Registers a pipe's write end with a ring that has an owner, before its first operation. EOF
    /// on the read end means that the kernel has released every request.
    ///
    /// The kernel ends the requests of a closed ring asynchronously, and only the owning thread may
    /// enter the ring to wait for that. The pipe lets any thread wait: its only write end is a
    /// registered file, which the kernel releases after the last request.
    #[inline]
    pub(crate) fn ensure_exit_pipe(&mut self) -> io::Result<()> {
        if self.exit_pipe.is_some() { Ok(()) } else { self.create_exit_pipe() }
    }

    #[cold]
    fn create_exit_pipe(&mut self) -> io::Result<()> {
        self.check_process()?;
        if self.uring.params().is_setup_single_issuer() {
            let (read, write) = io::pipe()?;
            self.uring.submitter().register_files(&[write.as_raw_fd()])?;
            self.exit_pipe = Some(read);
        }
        Ok(())
    }

    /// Makes dropping the ring wait until the kernel has released all requests and their memory.
    ///
    /// `sockets` have [zero-copy sends](crate::zero_copy) in flight: their connections are reset if
    /// that takes longer than the grace period. They must stay open until the ring is dropped.
    pub(crate) fn drain_on_drop(&mut self, sockets: Vec<RawFd>) {
        self.drain_on_drop = Some(sockets);
    }

    /// One `io_uring_enter`.
    fn enter_once(
        &self,
        queued: usize,
        want: usize,
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let submitter = self.uring.submitter();
        let (queued, want, flags) = (queued as u32, want as u32, self.enter_flags);
        let Some(timeout) = timeout.filter(|_| want > 0) else {
            // SAFETY: no argument is passed.
            return unsafe {
                submitter.enter::<SubmitArgs<'_, '_>>(queued, want, flags.bits(), None)
            };
        };
        let seconds = timeout.as_secs().min(MAX_TIMEOUT_SECS);
        let timespec = Timespec::new().sec(seconds).nsec(timeout.subsec_nanos());
        let (args, flags) = (SubmitArgs::new().timespec(&timespec), flags | EnterFlags::EXT_ARG);
        // SAFETY: `EXT_ARG` declares the type of `args`, which outlives the call.
        unsafe { submitter.enter(queued, want, flags.bits(), Some(&args)) }
    }

    /// Makes the thread that first enters the ring its owner.
    fn enable(&mut self) -> io::Result<()> {
        if !self.enabled {
            self.uring.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        Ok(())
    }

    /// True if the kernel has completions that are not in the queue yet.
    fn has_deferred(&mut self) -> bool {
        let queue = self.uring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    /// The number of completions that can be taken without a system call.
    fn visible(&mut self) -> usize {
        self.backlog.len() + self.uring.completion().len()
    }

    /// Moves the completions out of the queue.
    fn fill_backlog(&mut self) {
        self.backlog.extend(self.uring.completion().map(Completion::from));
    }

    fn fd(&self) -> RawFd {
        self.uring.as_raw_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.is_of_another_process() {
            // The ring belongs to the parent; the child has only a descriptor of it. Its memory is
            // not mapped here, and other mappings may be at its addresses.
            // SAFETY: `uring` owns the open descriptor, and is never used or dropped again.
            unsafe { libc::close(self.fd()) };
            return;
        }
        // SAFETY: `drop` runs once, and nothing uses `uring` after this line.
        unsafe { ManuallyDrop::drop(&mut self.uring) };
        if let (Some(sockets), Some(exit_pipe)) = (&self.drain_on_drop, &mut self.exit_pipe) {
            if !sockets.is_empty() && !has_ended(exit_pipe, zero_copy::GRACE) {
                zero_copy::reset_connections(sockets);
            }
            // No byte is ever written to it. `read_to_end` retries after signals.
            let _ = exit_pipe.read_to_end(&mut Vec::new());
        }
    }
}

/// Waits for the end of file of a pipe that carries no bytes. Returns false after `timeout`.
#[cold]
fn has_ended(pipe: &PipeReader, timeout: Duration) -> bool {
    let mut polled = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis() as libc::c_int;
        // SAFETY: one entry, which outlives the call; `pipe` keeps its descriptor open.
        if unsafe { libc::poll(&mut polled, 1, left) } > 0 {
            return true;
        }
        if left == 0 {
            return false;
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("fd", &self.fd())
            .field("entries", &self.entries())
            .field("single_issuer", &self.uring.params().is_setup_single_issuer())
            .field("enabled", &self.enabled)
            .finish_non_exhaustive()
    }
}

/// The flags of every `io_uring_enter`.
///
/// `GETEVENTS` always: deferred task work runs only with it. `NO_IOWAIT` where the kernel has it
/// (6.15): without it, a thread that sleeps in the ring with requests in flight is accounted as
/// waiting for a disk. An idle server then shows 100 % iowait, and the frequency governor raises
/// the clock for it.
fn enter_flags(no_iowait: bool) -> EnterFlags {
    let getevents = EnterFlags::GETEVENTS;
    if no_iowait { getevents | EnterFlags::NO_IOWAIT } else { getevents }
}

/// The bit of a kind of operation in a set.
pub(crate) const fn bit(kind: OpKind) -> u64 {
    1 << kind as u32
}

/// The number of forks between the first process that created a ring and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A number that differs between a forked child and its parent, without a system call.
fn this_process() -> u32 {
    extern "C" fn count_fork() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only adds to an atomic, which a forked child may do. If there is no
        // memory to register it, a child that uses the ring gets SIGSEGV instead of an error.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
    });
    FORKS.load(Ordering::Relaxed)
}

#[cfg(test)]
pub(crate) mod tests {
    use io_uring::register::Restriction;

    use super::*;

    /// The operations and registrations of a ring that may do nothing else.
    #[derive(Clone)]
    pub(crate) struct Allowed {
        pub(crate) operations: Vec<u8>,
        pub(crate) registrations: Vec<u8>,
        pub(crate) flags: squeue::Flags,
    }

    impl Allowed {
        fn apply(&self, submitter: &io_uring::Submitter<'_>) -> io::Result<()> {
            let operations = self.operations.iter().map(|&code| Restriction::sqe_op(code));
            let registrations = self.registrations.iter().map(|&op| Restriction::register_op(op));
            let flags = Restriction::sqe_flags_allowed(self.flags.bits());
            let mut all: Vec<_> = operations.chain(registrations).chain([flags]).collect();
            submitter.register_restrictions(&mut all)
        }
    }

    impl Ring {
        /// A ring that is restricted, as is every ring of its thread.
        pub(crate) fn restricted(entries: u32, allowed: &Allowed) -> io::Result<Ring> {
            let refused = trial::run(|submitter| allowed.apply(submitter))?.check()?;
            let ring = Ring::from_created(setup::create(entries)?, refused)?;
            allowed.apply(&ring.uring.submitter())?;
            Ok(ring)
        }
    }

    fn nop(ring: &mut Ring) {
        let entry = opcode::Nop::new().build().user_data(UserData::Poll(7).to_u64());
        // SAFETY: the entry points to no memory.
        unsafe { ring.push(&entry) }.unwrap();
    }

    #[test]
    fn full_submission_queue_loses_no_entry() {
        let mut ring = Ring::new(2).unwrap();
        (0..1000).for_each(|_| nop(&mut ring));
        assert!(ring.enter(1, None).unwrap());
        let mut seen = 0;
        while seen < 1000 {
            let now = ring.completions(usize::MAX).count();
            assert!(now > 0, "only {seen} completions");
            seen += now;
            ring.enter(0, None).unwrap();
        }
    }

    #[test]
    fn enter_without_work_makes_no_system_call() {
        let mut ring = Ring::new(2).unwrap();
        assert!(ring.enter(0, None).unwrap());
        // The first system call would have enabled it.
        assert!(ring.enabled != ring.uring.params().is_setup_single_issuer());
    }

    #[test]
    fn expired_timeout_is_reported_even_after_a_submission() {
        let mut ring = Ring::new(2).unwrap();
        nop(&mut ring);
        assert!(!ring.enter(2, Some(Duration::from_millis(1))).unwrap());
        assert_eq!(ring.completions(usize::MAX).count(), 1);
    }

    #[test]
    fn no_iowait_is_set_exactly_where_the_kernel_has_it() {
        assert!(enter_flags(true).contains(EnterFlags::GETEVENTS | EnterFlags::NO_IOWAIT));
        assert_eq!(enter_flags(false), EnterFlags::GETEVENTS);
        let ring = Ring::new(2).unwrap();
        let has = ring.uring.params().is_feature_no_iowait();
        assert_eq!(ring.enter_flags.contains(EnterFlags::NO_IOWAIT), has);
    }
}
