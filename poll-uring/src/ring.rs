//! The ring itself: setup, probe, push, enter, and letting go.

use std::collections::VecDeque;
use std::io::{self, PipeReader, Read};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{fmt, thread};

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{Builder, EnterFlags, IoUring, Probe, cqueue, opcode, squeue};
use poll_core::OpKind;

use crate::user_data::UserData;
use crate::{ops, refusal};

/// The largest submission queue that the kernel makes.
const MAX_ENTRIES: u32 = 1 << 15;
/// Completions per submission entry, 16 bytes each. Polls and multishot operations
/// complete without having been submitted anew. And the kernel makes its table of polls
/// by this number: 256 lists, which is the most there are, for 8,192.
const CQ_FACTOR: u32 = 32;
/// How often the kernel may refuse entries for want of memory (`EAGAIN`, `EBUSY`)
/// before that becomes an error, a millisecond each.
const MAX_REFUSALS: u32 = 100;
/// Timeouts beyond this many seconds are one: the kernel's count is signed.
const FOR_EVER: u64 = 1 << 40;

/// One completion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) user_data: UserData,
    /// A result, or a negative `errno`.
    pub(crate) result: i32,
    flags: u32,
}

impl Completion {
    /// An end that the kernel does not tell.
    pub(crate) fn of(user_data: UserData, result: i32) -> Completion {
        Completion { user_data, result, flags: 0 }
    }

    /// The same entry will complete again.
    pub(crate) fn more(&self) -> bool {
        cqueue::more(self.flags)
    }

    /// There is room left in the buffer, where the kernel goes on.
    pub(crate) fn buffer_goes_on(&self) -> bool {
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

/// An `io_uring` and what is known about it.
pub(crate) struct Ring {
    /// Dropped by hand: in a forked child its memory is not there to be unmapped.
    uring: ManuallyDrop<IoUring>,
    probe: Probe,
    /// A bit for each kind of operation that the kernel performs.
    performs: u64,
    /// How many entries were ever pushed, modulo 2³².
    pushed: u32,
    /// How many of them the kernel has taken.
    submitted: u32,
    /// False for a `SINGLE_ISSUER` ring that no thread owns yet.
    enabled: bool,
    /// Completions taken out of the ring to make room, to be told before its own.
    stash: VecDeque<Completion>,
    /// See [`Ring::tether`].
    tether: Option<PipeReader>,
    /// Dropping must outlast whatever is in flight.
    outlast: bool,
    /// The value of [`FORKS`] in the process that made the ring.
    process: u32,
}

impl Ring {
    /// Makes a ring in the best way that this kernel has.
    pub(crate) fn new(entries: u32) -> io::Result<Ring> {
        let entries = entries.clamp(1, MAX_ENTRIES);
        let (uring, enabled) = setup(entries).map_err(refusal::explain)?;
        let params = uring.params();
        if !params.is_feature_ext_arg() || !params.is_feature_nodrop() {
            return Err(refusal::too_old());
        }
        let mut probe = Probe::new();
        uring.submitter().register_probe(&mut probe).map_err(refusal::explain)?;
        let performed = OpKind::ALL.iter().filter(|&&kind| ops::supports(&probe, kind));
        let performs = performed.fold(0, |all, &kind| all | bit(kind));
        Ok(Ring {
            uring: ManuallyDrop::new(uring),
            probe,
            performs,
            pushed: 0,
            submitted: 0,
            enabled,
            stash: VecDeque::new(),
            tether: None,
            outlast: false,
            process: this_process(),
        })
    }

    /// True if the kernel has this operation.
    pub(crate) fn has(&self, opcode: u8) -> bool {
        self.probe.is_supported(opcode)
    }

    /// True if the kernel performs operations of this kind.
    pub(crate) fn performs(&self, kind: OpKind) -> bool {
        self.performs & bit(kind) != 0
    }

    /// The number of the entry that is pushed next.
    pub(crate) fn next_number(&self) -> u32 {
        self.pushed
    }

    /// True if the kernel has not seen the entry of that number.
    pub(crate) fn is_unsubmitted(&self, number: u32) -> bool {
        let age = self.pushed.wrapping_sub(number);
        (1..=self.pushed.wrapping_sub(self.submitted)).contains(&age)
    }

    /// True if there are entries that the kernel has not seen.
    pub(crate) fn has_unsubmitted(&self) -> bool {
        self.pushed != self.submitted
    }

    /// True if a poll can report many times. Both came with Linux 5.13.
    pub(crate) fn has_multishot_poll(&self) -> bool {
        self.uring.params().is_feature_resource_tagging()
    }

    /// True if one cancel can match everything. Both came with Linux 5.19.
    pub(crate) fn has_cancel_any(&self) -> bool {
        self.has(opcode::Socket::CODE)
    }

    fn fd(&self) -> RawFd {
        self.uring.as_raw_fd()
    }

    pub(crate) fn entries(&self) -> u32 {
        self.uring.params().sq_entries()
    }

    /// True in a forked child. The ring's memory is not mapped there (`MADV_DONTFORK`):
    /// two processes that write to one queue would corrupt it.
    #[inline]
    pub(crate) fn is_of_another_process(&self) -> bool {
        self.process != FORKS.load(Ordering::Relaxed)
    }

    /// Queues an entry. The kernel learns of it at the next [`enter`](Ring::enter), or
    /// now if the queue is full.
    ///
    /// # Safety
    ///
    /// What the entry points to must stay valid until its last completion.
    pub(crate) unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        self.check_process()?;
        loop {
            // SAFETY: the caller keeps what the entry points to.
            if unsafe { self.uring.submission().push(entry) }.is_ok() {
                self.pushed = self.pushed.wrapping_add(1);
                return Ok(());
            }
            self.enter(0, None)?;
            if 2 * self.visible() > self.uring.params().cq_entries() as usize {
                self.stash(); // Pushing goes on, and nobody reaps meanwhile.
            }
        }
    }

    /// Queues an entry whose completion interests nobody, and that points to no memory.
    pub(crate) fn push_quietly(&mut self, entry: squeue::Entry) -> io::Result<()> {
        let mut entry = entry.user_data(UserData::Nobody.to_u64());
        if self.uring.params().is_feature_skip_cqe_on_success() {
            entry = entry.flags(squeue::Flags::SKIP_SUCCESS);
        }
        // SAFETY: the entry points to no memory.
        unsafe { self.push(&entry) }
    }

    /// Submits all that was pushed and waits for `want` completions. One system call;
    /// none if there is nothing to submit, to run or to wait for.
    ///
    /// False if there are fewer: the time is over, or a signal has come. (The kernel
    /// tells which only if there was nothing to submit.)
    pub(crate) fn enter(&mut self, want: usize, timeout: Option<Duration>) -> io::Result<bool> {
        self.check_process()?;
        // The kernel waits for no more than what the queue can hold.
        let want = want.min(self.uring.params().cq_entries() as usize);
        let mut refusals = 0;
        loop {
            let queued = self.uring.submission().len();
            if queued == 0 && !self.has_work() && self.visible() >= want {
                return Ok(true);
            }
            self.enable()?;
            let entered = self.enter_once(queued, want.saturating_sub(self.stash.len()), timeout);
            if let Ok(submitted) = entered {
                self.submitted = self.submitted.wrapping_add(submitted as u32);
            }
            match entered {
                // The kernel stopped early and did not wait: the rest goes in again.
                Ok(submitted) if submitted < queued => continue,
                Ok(_) => return Ok(self.visible() >= want),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR | libc::ETIME) => return Ok(self.visible() >= want),
                    Some(libc::EAGAIN | libc::EBUSY) if refusals < MAX_REFUSALS => {
                        // It has too many completions to tell, or no memory for entries:
                        // take what there is. The caller comes back for the rest.
                        self.stash();
                        if want > 0 && !self.stash.is_empty() {
                            return Ok(true);
                        }
                        refusals += 1;
                        thread::sleep(Duration::from_millis(1));
                    }
                    _ => return Err(error),
                },
            }
        }
    }

    /// Takes so many completions, or all that there are.
    pub(crate) fn completions(&mut self, most: usize) -> impl Iterator<Item = Completion> + '_ {
        let stashed = self.stash.len().min(most);
        let queued = self.uring.completion().map(Completion::from).take(most - stashed);
        self.stash.drain(..stashed).chain(queued)
    }

    /// Has `eventfd` rung by every completion, and by what will be one once entered.
    pub(crate) fn register_eventfd(&self, eventfd: RawFd) -> io::Result<()> {
        self.check_process()?;
        self.uring.submitter().register_eventfd(eventfd)
    }

    /// Adds an end that the kernel does not tell.
    pub(crate) fn tell(&mut self, completion: Completion) {
        self.stash.push_back(completion);
    }

    /// Ties the end of the ring to a pipe, before the first operation is submitted.
    ///
    /// A closed ring ends its requests in the kernel's own time, and no other thread
    /// than its owner may ask it to or wait for it. So a ring that has an owner also
    /// holds, as a registered file, the only writing end of a pipe: the kernel puts
    /// it after the last request, and then the reading end sees the end of file.
    #[inline]
    pub(crate) fn tether(&mut self) -> io::Result<()> {
        if self.tether.is_some() { Ok(()) } else { self.make_tether() }
    }

    #[cold]
    fn make_tether(&mut self) -> io::Result<()> {
        self.check_process()?;
        if self.uring.params().is_setup_single_issuer() {
            let (read, write) = io::pipe()?;
            self.uring.submitter().register_files(&[write.as_raw_fd()])?;
            self.tether = Some(read);
        }
        Ok(())
    }

    /// From now on, dropping the ring waits until the kernel has let go of all memory.
    pub(crate) fn outlast(&mut self) {
        self.outlast = true;
    }

    /// Shares `count` entries from `entries` on with the kernel, as buffer group `group`.
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
        // SAFETY: the caller keeps the entries.
        unsafe { self.uring.submitter().register_buf_ring_with_flags(entries, count, group, flags) }
    }

    /// Ends what [`Ring::register_buffers`] began.
    pub(crate) fn unregister_buffers(&self, group: u16) -> io::Result<()> {
        self.check_process()?;
        self.uring.submitter().unregister_buf_ring(group)
    }

    /// One `io_uring_enter`. Always `GETEVENTS`, as deferred work runs only with it.
    fn enter_once(
        &self,
        queued: usize,
        want: usize,
        timeout: Option<Duration>,
    ) -> io::Result<usize> {
        let submitter = self.uring.submitter();
        let (queued, want, flags) = (queued as u32, want as u32, EnterFlags::GETEVENTS);
        let Some(timeout) = timeout.filter(|_| want > 0) else {
            // SAFETY: no argument is passed.
            return unsafe {
                submitter.enter::<SubmitArgs<'_, '_>>(queued, want, flags.bits(), None)
            };
        };
        let seconds = timeout.as_secs().min(FOR_EVER);
        let timespec = Timespec::new().sec(seconds).nsec(timeout.subsec_nanos());
        let (args, flags) = (SubmitArgs::new().timespec(&timespec), flags | EnterFlags::EXT_ARG);
        // SAFETY: `EXT_ARG` says what `args` is, and it outlives the call.
        unsafe { submitter.enter(queued, want, flags.bits(), Some(&args)) }
    }

    /// Gives the ring to the thread that first enters it.
    fn enable(&mut self) -> io::Result<()> {
        if !self.enabled {
            self.uring.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        Ok(())
    }

    /// True if the next [`enter`](Ring::enter) will find completions at once.
    pub(crate) fn has_news(&mut self) -> bool {
        self.has_work() || self.visible() > 0
    }

    /// True if the kernel has completions that are not in the queue yet.
    fn has_work(&mut self) -> bool {
        let queue = self.uring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    fn visible(&mut self) -> usize {
        self.stash.len() + self.uring.completion().len()
    }

    fn stash(&mut self) {
        self.stash.extend(self.uring.completion().map(Completion::from));
    }

    pub(crate) fn check_process(&self) -> io::Result<()> {
        if self.is_of_another_process() { Err(refusal::forked()) } else { Ok(()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.is_of_another_process() {
            // The parent's ring lives on; here there is only a descriptor of it. What is
            // mapped at its memory's addresses now, if anything, belongs to someone else.
            // SAFETY: the descriptor is open, and `uring` is never used or dropped again.
            unsafe { libc::close(self.fd()) };
            return;
        }
        // SAFETY: dropped here and nowhere else, and not used after.
        unsafe { ManuallyDrop::drop(&mut self.uring) };
        if self.outlast
            && let Some(tether) = &mut self.tether
        {
            // Nobody writes to it. An error could only be a signal: `read_to_end` goes on.
            let _ = tether.read_to_end(&mut Vec::new());
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

const fn bit(kind: OpKind) -> u64 {
    1 << kind as u32
}

/// Tries the best flags first. What a kernel does not know is `EINVAL`. True if the
/// ring is enabled already.
fn setup(entries: u32) -> io::Result<(IoUring, bool)> {
    let unknown = |error: &io::Error| error.raw_os_error() == Some(libc::EINVAL);
    // 6.1. Completions are made when this thread asks for them, without interrupts. The
    // ring belongs to one thread, which is not known yet: hence disabled.
    let mut best = common(entries);
    best.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_submit_all();
    match best.setup_r_disabled().build(entries) {
        Err(error) if unknown(&error) => {}
        other => return Ok((other?, false)),
    }
    // 5.19. Completions are made at this thread's next system call, whatever it is.
    let mut plainer = common(entries);
    plainer.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all();
    match plainer.build(entries) {
        Err(error) if unknown(&error) => {}
        other => return Ok((other?, true)),
    }
    Ok((common(entries).build(entries)?, true))
}

fn common(entries: u32) -> Builder {
    let mut builder = IoUring::builder();
    builder.dontfork().setup_cqsize((entries * CQ_FACTOR).min(2 * MAX_ENTRIES));
    builder
}

/// How many forks lie between the first process that made a ring and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Tells a forked child from its parent without a system call.
fn this_process() -> u32 {
    extern "C" fn in_the_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler only adds to an atomic. If there is no memory to note it,
        // children are told nothing, and touching the ring there ends them.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
    });
    FORKS.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nop(ring: &mut Ring) {
        let entry = opcode::Nop::new().build().user_data(UserData::Poll(7).to_u64());
        // SAFETY: the entry points to no memory.
        unsafe { ring.push(&entry) }.unwrap();
    }

    #[test]
    fn a_full_submission_queue_loses_nothing() {
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
    fn nothing_to_do_makes_no_system_call() {
        let mut ring = Ring::new(2).unwrap();
        assert!(ring.enter(0, None).unwrap());
        // The first system call would have enabled it.
        assert!(ring.enabled != ring.uring.params().is_setup_single_issuer());
    }

    #[test]
    fn a_wait_that_is_cut_short_says_so_even_after_a_submission() {
        let mut ring = Ring::new(2).unwrap();
        nop(&mut ring);
        assert!(!ring.enter(2, Some(Duration::from_millis(1))).unwrap());
        assert_eq!(ring.completions(usize::MAX).count(), 1);
    }

    #[test]
    fn sizes_are_clamped() {
        assert_eq!(Ring::new(0).unwrap().entries(), 1);
        assert_eq!(Ring::new(5).unwrap().entries(), 8);
    }
}
