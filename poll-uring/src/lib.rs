//! A [backend](poll_core::Backend) over Linux's `io_uring(7)`.
//!
//! ```
//! use poll_core::{Backend, Event, Mode, RawSource, Ready, Token};
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
//! // SAFETY: `socket` outlives `uring`'s interest in it.
//! unsafe { uring.register(token, RawSource::of(&socket), Ready::READ, Mode::Level) }?;
//! uring.wait(None, &mut events)?;
//! assert_eq!(events, [Event::Ready { token, ready: Ready::READ }]);
//! uring.deregister(token)?;
//! # std::io::Result::Ok(())
//! ```
//!
//! # How it works
//!
//! - `register` and `modify` are only noted. `wait` queues what has changed, submits
//!   it and sleeps, all in one `io_uring_enter`, however many changes there are (one
//!   more for each time that the submission queue is full). A `wait` with a zero
//!   timeout and nothing to submit looks at the completion queue and makes no call. It tells
//!   256 completions at the most; the next one tells the others.
//! - `Level` and `Oneshot` are a `POLL_ADD` that completes once. A level source that
//!   was reported is armed again by the next `wait`, in the call that sleeps anyway.
//!   `Edge` is a multishot `POLL_ADD`.
//! - What is wrong with a source shows late: `EBADF` is `Ready::ERROR` at the next
//!   `wait`. A regular file is always ready, as for `poll(2)`.
//! - `deregister` ends the source's poll at once, with one call, as a poll holds its
//!   file open: the peer of a socket that is closed after it would not hear of that.
//!   A source that was reported and not waited for since costs no call.
//! - A wake writes to an `eventfd(2)`, watched by a multishot poll, if the backend
//!   sleeps, and only sets a flag if not.
//! - `raw_fd` is an eventfd that every completion rings: the descriptor of a ring whose
//!   completions are made on demand does not wake who polls it. From then on each `wait`
//!   costs one call more. (Before 6.1 whoever sleeps may also be interrupted by a
//!   completion, with `EINTR`.)
//! - `has_changes` is true between an event and the next `wait` that arms a level source
//!   again, and while operations and their cancels are not submitted: wait with a zero
//!   timeout before sleeping on `raw_fd` then.
//! - `after_fork` gives the child a ring of its own, a new eventfd under the old
//!   number, and everything armed again at its next `wait`.
//! - [Operations](poll_core::Op) are one submission entry each, tried by the kernel at
//!   the next `wait`. Dropping the backend cancels them and waits for their ends, which
//!   takes as long as a disk does; what they had accepted or opened unseen is closed.
//!
//! A poll reports what a source says when something happens, without another look. So an
//! event may be untrue, once: if the condition has ended since, or if urgent data came
//! where only ordinary data was asked for. Sources must therefore be non-blocking. A
//! source registered for `PRIORITY` has every event checked, which costs a second call.
//! A multishot receive ends a piece at urgent data, as a call does, and goes on behind it.
//!
//! The kernel keeps polls in 256 lists at the most, and walks one to end a poll: with
//! tens of thousands of idle sources, `deregister` and `modify` take microseconds.
//!
//! | `POLL*` | `Ready` |
//! |---|---|
//! | `POLLIN` | `READ` |
//! | `POLLOUT` | `WRITE` |
//! | `POLLPRI` | `PRIORITY` |
//! | `POLLRDHUP` | `DISCONNECT`, if asked for |
//! | `POLLHUP` | `HANGUP`, and what was asked for of `READ` and `WRITE` |
//! | `POLLERR`, a failed poll | `ERROR`, and what was asked for of `READ` and `WRITE` |
//!
//! # Threads
//!
//! Where the kernel can, a ring belongs to one thread (`SINGLE_ISSUER`), which saves
//! interrupts and locks: the thread that first waits. A backend may be made elsewhere.
//! If it is moved later, the first call that enters the kernel makes a new ring there
//! and arms everything again (edges that hold are reported again). Only with operations
//! in flight is that an error, `ResourceBusy`: they belong to the ring's thread.
//!
//! Dropping a backend on another thread than the ring's is fine, too, and waits for
//! operations in flight. A descriptor that one of them accepts or opens during that
//! wait is left open, and so may be one that the kernel was to close, if that means to flush
//! its file: as on network file systems.
//!
//! # Platforms
//!
//! Linux on the architectures of the `io-uring` crate; elsewhere this crate is empty.
//! Features are asked for (`IORING_REGISTER_PROBE`, feature bits, `EINVAL`), never
//! derived from the release, as distributions carry some of them back.
//!
//! | Linux | what it brings |
//! |---|---|
//! | 5.11 | the minimum: `EXT_ARG` timeouts; most operations |
//! | 5.13 | multishot polls: `Edge`, and a waker that is never armed again |
//! | 5.15 | `MkdirAt`, `LinkAt`, `SymlinkAt` |
//! | 5.17 | no completions for removals that succeed |
//! | 5.19 | `AcceptMulti`; `COOP_TASKRUN`: no interrupts |
//! | 6.0 | `RecvMulti`, `RecvMsgMulti`, buffer groups |
//! | 6.1 | `SINGLE_ISSUER` with `DEFER_TASKRUN` |
//! | 6.9 | `Ftruncate` |
//! | 6.12 | buffer groups of streams are consumed incrementally |
//!
//! [`Uring::new`] fails with `Unsupported` where io_uring is missing or forbidden, as it
//! is in most containers. There is no `SQPOLL`: its thread costs more than it saves
//! under light load, and keeps the credentials of its creator.
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
use std::time::Duration;

use io_uring::opcode;
use io_uring::types::Fd;
use poll_core::{Backend, Countdown, Event, Lent, Mode, Op, OpKind, RawSource, Ready, Token};

mod buffers;
mod ops;
mod polls;
mod refusal;
mod ring;
mod user_data;
mod waker;

use buffers::Groups;
use ops::Ops;
use polls::Polls;
use ring::Ring;
use user_data::UserData;
pub use waker::Waker;

/// Submission entries of [`Uring::new`]: 16 KiB, and 128 KiB for completions.
const DEFAULT_ENTRIES: u32 = 256;

/// How many completions a wait tells at the most. What a caller does about each takes memory until
/// the next wait, and with thousands it would leave the nearest cache before that.
const AT_ONCE: usize = 256;

/// How long a dropped backend waits before it cancels again what it has cancelled: a
/// cancel can miss an operation that a kernel thread is about to take on.
const CANCEL_AGAIN: Duration = Duration::from_millis(10);

/// A backend over `io_uring(7)`: readiness, and operations that the kernel performs.
#[derive(Debug)]
pub struct Uring {
    /// The first field, and so dropped first: the kernel may use the memory of `ops` and
    /// `groups` until the ring is closed.
    ring: Ring,
    polls: Polls,
    ops: Ops,
    groups: Groups,
    waker: Waker,
    /// The poll of the waker's eventfd is in flight.
    bell_armed: bool,
    /// The ring knows of the waker's eventfd for pollers outside.
    outside_registered: bool,
}

impl Uring {
    /// Makes a backend whose submission queue has 256 entries.
    ///
    /// # Errors
    ///
    /// - `Unsupported`: io_uring is missing, too old or forbidden here; the message says
    ///   which and what to use instead, the source is the kernel's error.
    /// - `OutOfMemory`: before Linux 5.12, rings count against `RLIMIT_MEMLOCK`.
    /// - The kernel's own, such as `EMFILE`.
    pub fn new() -> io::Result<Uring> {
        Uring::with_entries(DEFAULT_ENTRIES)
    }

    /// Makes a backend whose submission queue has `entries` entries, rounded up to a
    /// power of two and to no more than 32,768. The completion queue has 32 times as many,
    /// up to 65,536.
    ///
    /// The number is not a limit on anything: a full queue costs a system call. But with
    /// fewer than 256 the kernel takes longer to end a poll among thousands.
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
            bell_armed: false,
            outside_registered: false,
        })
    }
}

impl Uring {
    /// Has [`Op::Send`] of this many bytes or more sent without a copy, from the memory itself;
    /// `None`, the default, has all of them copied.
    ///
    /// Such a send ends only when the network has let go of the memory: its first `Done` says
    /// how it went, its last that the memory is free. It pays for large sends through network
    /// cards that can take memory where it lies. To the same machine the kernel copies all the
    /// same, later, and the send costs more. Kernels before 6.0 copy always, and so do sockets
    /// that cannot do otherwise, of which Unix domain sockets are some; there a send costs two.
    ///
    /// ```
    /// # let mut uring = match poll_uring::Uring::new() {
    /// #     Err(error) if error.kind() == std::io::ErrorKind::Unsupported => return Ok(()),
    /// #     other => other?,
    /// # };
    /// uring.set_zero_copy(Some(64 * 1024));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn set_zero_copy(&mut self, at_least: Option<u32>) {
        self.ops.zero_copy = at_least;
    }
}

impl Backend for Uring {
    type Waker = Waker;

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    unsafe fn register(
        &mut self,
        token: Token,
        source: RawSource,
        interest: Ready,
        mode: Mode,
    ) -> io::Result<()> {
        self.check_mode(mode)?;
        self.polls.register(token, source, interest, mode)
    }

    fn modify(&mut self, token: Token, interest: Ready, mode: Mode) -> io::Result<()> {
        self.check_mode(mode)?;
        self.polls.modify(token, interest, mode)
    }

    fn deregister(&mut self, token: Token) -> io::Result<()> {
        if self.polls.deregister(token)? {
            // The source is forgotten whatever the kernel says to this; an end that
            // cannot be submitted now is tried again by the next wait.
            let _ = self.here(|uring| {
                uring.polls.send_off(&mut uring.ring)?;
                uring.ring.enter(0, None)
            });
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        self.ring.check_process()?;
        let before = events.len();
        let countdown = Countdown::start(timeout);
        let mut left = timeout;
        self.polls.begin_turn();
        loop {
            self.here(Uring::flush)?;
            let sleeps = left != Some(Duration::ZERO) && self.waker.sleep();
            let want = if sleeps { 1 + self.polls.noise() } else { 0 };
            let entered = self.ring.enter(want, left);
            self.reap(events);
            let woken = self.waker.wake_up();
            let (whole, mut again) = match entered {
                Err(error) if refusal::is_moved(&error) => {
                    self.start_over().map(|()| (true, true))?
                }
                other => (other?, false),
            };
            again |= self.polls.has_doubts() || self.ops.any_refused();
            let over = left == Some(Duration::ZERO) && !again;
            if woken || !whole || over || events.len() > before {
                self.settle_outside();
                return Ok(());
            }
            // What came was not for the caller: sleep for the time left.
            left = countdown.left();
        }
    }

    fn supports(&self, kind: OpKind) -> bool {
        self.ring.performs(kind)
    }

    unsafe fn submit(&mut self, token: Token, op: Op) -> io::Result<()> {
        // SAFETY: the caller promises to this what that asks for.
        let submitted = unsafe { self.ops.submit(&mut self.ring, &mut self.groups, token, &op) };
        match submitted {
            Err(error) if refusal::is_moved(&error) => {
                self.start_over()?;
                // SAFETY: as above.
                unsafe { self.ops.submit(&mut self.ring, &mut self.groups, token, &op) }
            }
            other => other,
        }
    }

    fn cancel(&mut self, token: Token) -> io::Result<()> {
        self.here(|uring| {
            if uring.ops.cancel(&mut uring.ring, token)? {
                uring.ring.enter(0, None)?;
            }
            Ok(())
        })
    }

    unsafe fn provide(
        &mut self,
        group: u16,
        memory: NonNull<u8>,
        size: u32,
        count: u16,
    ) -> io::Result<()> {
        if !self.supports(OpKind::RecvMulti) {
            let why = "this kernel has no multishot receives (6.0) to provide buffers for";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        // SAFETY: the memory is there until it is withdrawn, or the ring is closed, as the
        // backend does when it is dropped.
        unsafe { self.groups.provide(group, memory, size, count) }
    }

    fn recycle(&mut self, lent: Lent) {
        self.groups.recycle(lent);
    }

    fn withdraw(&mut self, group: u16) -> io::Result<()> {
        if !self.ops.is_empty() {
            let why = "operations in flight may take buffers: cancel them and wait for their ends";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        self.here(|uring| uring.groups.withdraw(&uring.ring, group))
    }

    fn raw_fd(&self) -> Option<RawSource> {
        let outside = self.waker.open_outside().ok()?;
        // Until the ring is told of it, nothing but this makes it readable.
        if self.waker.watch() || !self.outside_registered {
            waker::ring(outside).ok()?;
        }
        Some(RawSource::of(outside))
    }

    fn has_changes(&self) -> bool {
        let unknown_outside = !self.outside_registered && self.waker.outside().is_some();
        let queued = self.polls.has_changes() || self.ops.any_refused();
        queued || self.ring.has_unsubmitted() || unknown_outside
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

    /// Queues what has changed since the last wait.
    fn flush(&mut self) -> io::Result<()> {
        if !self.bell_armed {
            let multishot = self.ring.has_multishot_poll();
            let poll = opcode::PollAdd::new(Fd(self.waker.fd()), libc::POLLIN as u32);
            let poll = poll.multi(multishot).build().user_data(UserData::Bell.to_u64());
            // SAFETY: a poll points to no memory.
            unsafe { self.ring.push(&poll) }?;
            self.bell_armed = true;
        }
        if !self.outside_registered
            && let Some(outside) = self.waker.outside()
        {
            self.ring.register_eventfd(outside.as_raw_fd())?;
            self.outside_registered = true;
        }
        if self.ops.any_refused() {
            self.ops.copy_refused(&mut self.ring)?;
        }
        self.polls.flush(&mut self.ring)
    }

    /// Leaves the eventfd for pollers outside readable only if there is more to tell.
    fn settle_outside(&mut self) {
        if let Some(outside) = self.waker.outside() {
            waker::drain(outside);
            // Whatever came before it was drained must ring again.
            if self.ring.has_news() || self.waker.watch() {
                // It fails only if it has been rung too often.
                let _ = waker::ring(outside);
            }
        }
    }

    /// Tells completions, if not too many: then the next wait finds the others.
    fn reap(&mut self, events: &mut Vec<Event>) {
        for done in self.ring.completions(AT_ONCE) {
            match done.user_data {
                UserData::Poll(slot) => self.polls.complete(slot, done, events),
                UserData::Operation(token) => {
                    events.extend(self.ops.complete(token, done, &mut self.groups));
                }
                UserData::Bell if !done.more() => {
                    self.waker.drain();
                    self.bell_armed = false;
                }
                UserData::Bell | UserData::Nobody => {}
            }
        }
    }

    /// Does what needs the ring; if that belongs to another thread, with a new one.
    fn here<R>(&mut self, mut act: impl FnMut(&mut Uring) -> io::Result<R>) -> io::Result<R> {
        match act(self) {
            Err(error) if refusal::is_moved(&error) => {
                self.start_over()?;
                act(self)
            }
            other => other,
        }
    }

    /// Leaves the ring of another thread for one of this thread's own.
    fn start_over(&mut self) -> io::Result<()> {
        if self.ops.is_empty() { self.replace_ring() } else { Err(refusal::moved()) }
    }

    /// Continues with a new ring, and tells operations in flight that they are cancelled.
    fn replace_ring(&mut self) -> io::Result<()> {
        let mut ring = Ring::new(self.ring.entries())?;
        self.groups.share(&ring)?;
        self.ops.start_over(&mut ring);
        self.polls.start_over();
        (self.bell_armed, self.outside_registered) = (false, false);
        self.ring = ring;
        Ok(())
    }

    /// Cancels all operations and waits for their ends.
    fn end_operations(&mut self) -> io::Result<()> {
        let mut quiet = true;
        while !self.ops.is_empty() {
            if quiet {
                self.ops.cancel_all(&mut self.ring)?;
            }
            let entered = self.ring.enter(1, Some(CANCEL_AGAIN));
            for done in self.ring.completions(usize::MAX) {
                if let UserData::Operation(token) = done.user_data {
                    self.ops.abandon(token, done);
                }
            }
            quiet = !entered?;
        }
        Ok(())
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if !self.ring.is_of_another_process() && self.end_operations().is_err() {
            // This is not the ring's thread. Closing the ring cancels, too.
            self.ops.close_unsubmitted(&self.ring);
            self.ring.outlast();
        }
    }
}
