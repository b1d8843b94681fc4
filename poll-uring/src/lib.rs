//! A [backend](poll_core::Backend) over Linux's `io_uring(7)`.
//!
//! A ring is two queues in memory that the kernel shares: submission entries and completions.
//! Readiness is a `POLL_ADD` for each source (`polls.rs`), operations are one entry each (`ops.rs`,
//! `entries.rs`), and `wait` submits everything and sleeps in one `io_uring_enter` (`ring.rs`).
//!
//! ```
//! use poll_core::{Backend, Event, Mode, RawSource, Interest, Readiness, Token};
//! use poll_uring::Uring;
//!
//! # let mut uring = match Uring::new() {
//! #     Err(error) if error.kind() == std::io::ErrorKind::Unsupported => return Ok(()),
//! #     other => other?,
//! # };
//! # /*
//! let mut uring = Uring::new()?;
//! # */
//! let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! socket.send_to(b"hello", socket.local_addr()?)?;
//!
//! let (token, mut events) = (Token::new(0, 0), Vec::new());
//! // SAFETY: `socket` stays open until it is deregistered.
//! unsafe { uring.register(token, RawSource::of(&socket), Interest::READ, Mode::Level) }?;
//! uring.wait(None, &mut events)?;
//! assert_eq!(events, [Event::Ready { token, ready: Readiness::READ }]);
//! uring.deregister(token)?;
//! # std::io::Result::Ok(())
//! ```
#![doc = include_str!("../docs/backend.md")]
#![cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64",
        target_arch = "loongarch64",
        target_arch = "powerpc64"
    )
))]

use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use io_uring::opcode;
use io_uring::types::Fd;
use poll_core::{
    Backend, BufferLease, Deadline, Event, Interest, Mode, Op, OpKind, Open, RawSource, Token,
};

mod buffers;
mod entries;
mod listener;
mod ops;
mod polls;
mod ring;
mod setup;
mod setup_error;
mod trial;
mod user_data;
mod waker;
mod zero_copy;

use buffers::Groups;
use ops::Ops;
use polls::Polls;
use ring::Ring;
use user_data::UserData;
pub use waker::Waker;

/// Submission entries of [`Uring::new`]: 16 KiB, and up to 128 KiB for completions.
const DEFAULT_ENTRIES: u32 = 256;

/// The most completions that one wait reports. The caller's work for each takes memory until the
/// next wait; with thousands that would exceed the nearest cache.
const MAX_BATCH: usize = 256;

/// How long a dropped backend waits before it cancels again: a cancel can miss an operation that a
/// kernel thread is about to start.
const CANCEL_INTERVAL: Duration = Duration::from_millis(10);

/// A backend over `io_uring(7)`: readiness, and operations that the kernel performs.
#[derive(Debug)]
pub struct Uring {
    /// The first field, so it is dropped first: the kernel may use the memory of `ops` and `groups`
    /// until the ring is closed.
    ring: Ring,
    /// Registered sources and their polls.
    polls: Polls,
    /// Operations in flight.
    ops: Ops,
    /// Memory for multishot receives.
    groups: Groups,
    /// Shared with all clones that [`Backend::waker`] returns.
    waker: Waker,
    /// The poll of the waker's eventfd is in flight.
    waker_armed: bool,
    /// The eventfd for external pollers is registered with the ring.
    external_registered: bool,
}

impl Uring {
    /// Creates a backend whose submission queue has 256 entries.
    ///
    /// # Errors
    ///
    /// - `Unsupported`: io_uring is missing, too old, forbidden or restricted. The message names the
    ///   cause and the alternative; the source is the kernel's error.
    /// - `OutOfMemory`: the ring does not fit into `RLIMIT_MEMLOCK`; the message names the limit.
    ///   See [the limits](crate#limits).
    /// - The kernel's own, such as `EMFILE`.
    pub fn new() -> io::Result<Uring> {
        Uring::with_entries(DEFAULT_ENTRIES)
    }

    /// Creates a backend whose submission queue has `entries` entries, rounded up to a power of two
    /// and limited to 32,768. The completion queue has 32 times as many, up to 65,536, or down to
    /// twice as many where [locked memory is limited](crate#limits).
    ///
    /// The number limits nothing: a full queue costs a system call. But with fewer than 256 entries
    /// the kernel takes longer to remove one of thousands of polls.
    ///
    /// # Errors
    ///
    /// As for [`Uring::new`].
    pub fn with_entries(entries: u32) -> io::Result<Uring> {
        Ok(Uring {
            ring: Ring::new(entries)?,
            polls: Polls::default(),
            ops: Ops::default(),
            groups: Groups::default(),
            waker: Waker::new()?,
            waker_armed: false,
            external_registered: false,
        })
    }

    /// Sends an [`Op::Send`] of `min_bytes` or more without a copy, from the caller's memory.
    /// `None`, the default, copies all sends.
    ///
    /// Such a send ends only when the network has released the memory: its first `Done` has the
    /// result, its last reports that the memory is free. It pays for large sends through network
    /// cards with scatter-gather. To the same machine the kernel copies anyway, later, and the send
    /// costs more. Kernels before 6.0 always copy. Sockets without zero-copy sends, such as Unix
    /// domain sockets, copy as well; there each send costs two entries.
    ///
    /// A TCP socket releases the memory when its peer has acknowledged it, and a peer can delay
    /// that without limit. A cancel does not end it. Dropping the backend waits for one second, and
    /// then resets the connections whose sends still hold memory: what their peers have not
    /// received is lost.
    ///
    /// ```
    /// # let mut uring = match poll_uring::Uring::new() {
    /// #     Err(error) if error.kind() == std::io::ErrorKind::Unsupported => return Ok(()),
    /// #     other => other?,
    /// # };
    /// uring.set_zero_copy(Some(64 * 1024));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn set_zero_copy(&mut self, min_bytes: Option<u32>) {
        self.ops.zero_copy.min_bytes = min_bytes;
    }
}

impl Open for Uring {
    /// As [`Uring::new`].
    fn open() -> io::Result<Uring> {
        Uring::new()
    }
}

// SAFETY: results, buffer numbers and final completions are the kernel's own, matched to slots by
// `ops` and `buffers`; each slot is freed with its last completion. `deregister` and `drop` remove
// what the ring holds before they return, and a new descriptor is reported once.
unsafe impl Backend for Uring {
    type Waker = Waker;

    fn name(&self) -> &'static str {
        "uring"
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    unsafe fn register(
        &mut self,
        token: Token,
        source: RawSource,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        self.check_mode(mode)?;
        self.polls.register(token, source, interest, mode)
    }

    fn modify(&mut self, token: Token, interest: Interest, mode: Mode) -> io::Result<()> {
        self.check_mode(mode)?;
        self.polls.modify(token, interest, mode)
    }

    fn deregister(&mut self, token: Token) -> io::Result<()> {
        if self.polls.deregister(token)? {
            // The registration is removed even if this fails. A removal that cannot be
            // submitted now is submitted by the next wait.
            let _ = self.with_ring(|uring| {
                uring.polls.submit_removals(&mut uring.ring)?;
                uring.ring.enter(0, None)
            });
        }
        Ok(())
    }

    #[inline(never)] // In `Auto`, another backend's wait would pay for this one's frame.
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        self.ring.check_process()?;
        let before = events.len();
        let countdown = Deadline::start(timeout);
        let mut left = timeout;
        self.polls.begin_wait();
        loop {
            self.with_ring(Uring::flush)?;
            let sleeps = left != Some(Duration::ZERO) && self.waker.prepare_park();
            let want = if sleeps { 1 + self.polls.expected_removals() } else { 0 };
            let entered = self.ring.enter(want, left);
            self.reap(events);
            let woken = self.waker.unpark();
            let (complete, mut again) = match entered {
                Err(error) if setup_error::is_wrong_thread(&error) => {
                    self.restart().map(|()| (true, true))?
                }
                other => (other?, false),
            };
            again |= self.polls.take_needs_repoll() || self.ops.zero_copy.has_refused();
            let expired = left == Some(Duration::ZERO) && !again;
            if woken || !complete || expired || events.len() > before {
                self.update_external();
                return Ok(());
            }
            // The completions were internal: sleep for the remaining time.
            left = countdown.left();
        }
    }

    fn supports(&self, kind: OpKind) -> bool {
        self.ring.supports(kind)
    }

    unsafe fn submit(&mut self, token: Token, op: Op) -> io::Result<()> {
        // SAFETY: the caller keeps the promises of `Backend::submit`, which `Ops::submit` asks for.
        let submitted = unsafe { self.ops.submit(&mut self.ring, &mut self.groups, token, &op) };
        match submitted {
            Err(error) if setup_error::is_wrong_thread(&error) => {
                self.restart()?;
                // SAFETY: the caller keeps the promises of `Backend::submit`, and the failed call
                // has queued nothing.
                unsafe { self.ops.submit(&mut self.ring, &mut self.groups, token, &op) }
            }
            other => other,
        }
    }

    fn cancel(&mut self, token: Token) -> io::Result<()> {
        self.with_ring(|uring| {
            if uring.ops.cancel(&mut uring.ring, token)? {
                uring.ring.enter(0, None)?;
            }
            Ok(())
        })
    }

    unsafe fn register_buffers(
        &mut self,
        group: u16,
        memory: NonNull<u8>,
        size: u32,
        count: u16,
    ) -> io::Result<()> {
        if !self.supports(OpKind::RecvMulti) && !self.supports(OpKind::RecvMsgMulti) {
            let why = "this ring has no multishot receives (Linux 6.0, or restricted), which alone \
                       use buffer groups: receive into memory of your own";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        // SAFETY: the caller keeps the memory until the group is unregistered or the backend is dropped,
        // which closes the ring.
        unsafe { self.groups.register_buffers(group, memory, size, count) }
    }

    fn release_buffer(&mut self, lease: BufferLease) {
        self.groups.release_buffer(lease);
    }

    fn unregister_buffers(&mut self, group: u16) -> io::Result<()> {
        if !self.ops.is_empty() {
            let why = "operations in flight may use buffers: cancel them and wait for their ends";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        self.with_ring(|uring| uring.groups.unregister_buffers(&uring.ring, group))
    }

    fn raw_source(&self) -> Option<RawSource> {
        if !self.ring.has_eventfd() {
            return None;
        }
        let external = self.waker.open_external().ok()?;
        // Until the next wait registers the eventfd with the ring, completions do not signal it.
        if self.waker.notify_always() || !self.external_registered {
            waker::signal(external).ok()?;
        }
        Some(RawSource::of(external))
    }

    fn has_unflushed_changes(&self) -> bool {
        let unregistered = !self.external_registered && self.waker.external().is_some();
        let queued = self.polls.has_unflushed_changes() || self.ops.zero_copy.has_refused();
        queued || self.ring.has_unsubmitted() || unregistered
    }

    fn after_fork(&mut self) -> io::Result<()> {
        if self.ring.is_of_another_process() {
            self.waker.after_fork()?;
            self.replace_ring()?;
        }
        Ok(())
    }
}

impl Uring {
    fn check_mode(&self, mode: Mode) -> io::Result<()> {
        if mode == Mode::Edge && !self.ring.has_multishot_poll() {
            let why = "this kernel has no multishot polls (5.13) for edge mode: use Level";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        Ok(())
    }

    /// Queues all changes since the last wait.
    fn flush(&mut self) -> io::Result<()> {
        if !self.waker_armed {
            let multishot = self.ring.has_multishot_poll();
            let poll = opcode::PollAdd::new(Fd(self.waker.fd()), libc::POLLIN as u32);
            let poll = poll.multi(multishot).build().user_data(UserData::Waker.to_u64());
            // SAFETY: a poll points to no memory.
            unsafe { self.ring.push(&poll) }?;
            self.waker_armed = true;
        }
        if !self.external_registered
            && let Some(external) = self.waker.external()
        {
            self.ring.register_eventfd(external.as_raw_fd())?;
            self.external_registered = true;
        }
        if self.ops.zero_copy.has_refused() {
            self.ops.submit_refused(&mut self.ring)?;
        }
        self.polls.flush(&mut self.ring)
    }

    /// Leaves the eventfd for external pollers readable only if the next wait has completions to
    /// report.
    fn update_external(&mut self) {
        if let Some(external) = self.waker.external() {
            waker::drain(external);
            // A completion or a wake before the drain must be signalled again.
            if self.ring.has_completions() || self.waker.notify_always() {
                // An eventfd that is open and non-blocking accepts every signal.
                let _ = waker::signal(external);
            }
        }
    }

    /// Reports completions, up to [`MAX_BATCH`]: the next wait reports the others.
    fn reap(&mut self, events: &mut Vec<Event>) {
        for done in self.ring.completions(MAX_BATCH) {
            match done.user_data {
                UserData::Poll(slot) => self.polls.complete(slot, done, events),
                UserData::Operation(token) => {
                    events.extend(self.ops.complete(token, done, &mut self.groups));
                }
                UserData::Waker if !done.more() => {
                    self.waker.drain();
                    self.waker_armed = false;
                }
                UserData::Waker | UserData::Ignored => {}
            }
        }
    }

    /// Runs `act`, and runs it again with a new ring if the ring belongs to another thread.
    fn with_ring<R>(&mut self, mut act: impl FnMut(&mut Uring) -> io::Result<R>) -> io::Result<R> {
        match act(self) {
            Err(error) if setup_error::is_wrong_thread(&error) => {
                self.restart()?;
                act(self)
            }
            other => other,
        }
    }

    /// Replaces the ring of another thread by a new one, if there are no operations in flight.
    fn restart(&mut self) -> io::Result<()> {
        if self.ops.is_empty() { self.replace_ring() } else { Err(setup_error::wrong_thread()) }
    }

    /// Continues with a new ring. Operations in flight complete with `ECANCELED`.
    fn replace_ring(&mut self) -> io::Result<()> {
        let mut ring = Ring::new(self.ring.entries())?;
        self.groups.register_all(&ring)?;
        self.ops.restart(&mut ring);
        self.polls.restart();
        (self.waker_armed, self.external_registered) = (false, false);
        self.ring = ring;
        Ok(())
    }

    /// Cancels all operations and waits for their ends.
    ///
    /// Zero-copy sends end when their peers have received the bytes: after a grace period their
    /// connections are reset, so that the wait does not depend on a peer.
    fn end_operations(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + zero_copy::GRACE;
        let (mut idle, mut reset) = (true, false);
        while !self.ops.is_empty() {
            if idle {
                self.ops.cancel_all(&mut self.ring)?;
            }
            let entered = self.ring.enter(1, Some(CANCEL_INTERVAL));
            for done in self.ring.completions(usize::MAX) {
                if let UserData::Operation(token) = done.user_data {
                    self.ops.discard(token, done);
                }
            }
            idle = !entered?;
            if !reset && Instant::now() >= deadline {
                zero_copy::reset_connections(&self.ops.zero_copy.sockets());
                reset = true;
            }
        }
        Ok(())
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if !self.ring.is_of_another_process() && self.end_operations().is_err() {
            // The ring belongs to another thread. Closing it cancels the operations as well.
            self.ops.close_unsubmitted(&self.ring);
            self.ring.drain_on_drop(self.ops.zero_copy.sockets());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use io_uring::squeue;

    use super::*;
    use crate::ring::tests::Allowed;

    /// `IORING_REGISTER_FILES`, `IORING_REGISTER_EVENTFD` and `IORING_REGISTER_PBUF_RING`.
    const REGISTRATIONS: [u8; 3] = [2, 4, 22];

    /// The operations that readiness needs, and sends.
    fn allowed() -> Allowed {
        Allowed {
            operations: vec![
                opcode::PollAdd::CODE,
                opcode::PollRemove::CODE,
                opcode::AsyncCancel::CODE,
                opcode::Send::CODE,
            ],
            registrations: REGISTRATIONS.to_vec(),
            flags: squeue::Flags::SKIP_SUCCESS | squeue::Flags::BUFFER_SELECT,
        }
    }

    fn restricted(allowed: &Allowed) -> io::Result<Uring> {
        let mut uring = Uring::new()?;
        uring.ring = Ring::restricted(8, allowed)?;
        Ok(uring)
    }

    fn supported(uring: &Uring) -> Vec<OpKind> {
        OpKind::ALL.iter().copied().filter(|&kind| uring.supports(kind)).collect()
    }

    #[test]
    fn restricted_ring_supports_only_allowed_operations() {
        let mut uring = restricted(&allowed()).unwrap();
        assert_eq!(supported(&uring), [OpKind::Send, OpKind::Poll]);
        assert!(supported(&Uring::new().unwrap()).len() > 2, "this thread is not restricted");

        // Readiness and the allowed operation work, and a refused one is an error.
        let (socket, mut events) = (UdpSocket::bind("127.0.0.1:0").unwrap(), Vec::new());
        socket.connect(socket.local_addr().unwrap()).unwrap();
        let (token, source) = (Token::new(0, 0), RawSource::of(&socket));
        // SAFETY: the socket stays open until the backend is dropped.
        unsafe { uring.register(token, source, Interest::READ, Mode::Level) }.unwrap();
        let buf = poll_core::RawBuf::sending(b"hello");
        // SAFETY: the memory is static, and the socket stays open until the backend is dropped.
        unsafe { uring.submit(token, Op::Send { source, buf }) }.unwrap();
        while events.len() < 2 {
            uring.wait(None, &mut events).unwrap();
        }
        let sent = Event::Done { token, result: Ok(5), more: false, lease: None };
        let ready = Event::Ready { token, ready: poll_core::Readiness::READ };
        assert!(events.contains(&sent) && events.contains(&ready), "{events:?}");
        uring.deregister(token).unwrap();
        let mut memory = [0; 8];
        let buf = poll_core::RawBuf::filling(&mut memory);
        // SAFETY: the memory and the socket outlive the backend.
        let error = unsafe { uring.submit(token, Op::Recv { source, buf }) }.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    }

    #[test]
    fn restricted_flags_and_registrations_are_detected() {
        let mut few = allowed();
        few.operations.extend([opcode::Recv::CODE, opcode::SendZc::CODE]);
        let all = restricted(&few).unwrap();
        assert!(all.supports(OpKind::RecvMulti) && all.ring.has_zero_copy());
        few.flags = squeue::Flags::SKIP_SUCCESS;
        assert!(!restricted(&few).unwrap().supports(OpKind::RecvMulti), "no BUFFER_SELECT");
        few.flags = squeue::Flags::BUFFER_SELECT;
        few.registrations = vec![REGISTRATIONS[0]];
        let mut uring = restricted(&few).unwrap();
        assert!(!uring.supports(OpKind::RecvMulti), "no buffer groups");
        assert!(uring.raw_source().is_none(), "no eventfd");
        uring.wait(Some(Duration::ZERO), &mut Vec::new()).unwrap();
    }

    #[test]
    fn ring_without_polls_is_an_error_that_names_the_restriction() {
        let mut none = allowed();
        none.operations.retain(|&code| code != opcode::PollAdd::CODE);
        let error = restricted(&none).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().contains("EACCES") && error.to_string().contains("epoll"));
        let mut no_files = allowed();
        no_files.registrations.clear();
        assert_eq!(restricted(&no_files).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
}
