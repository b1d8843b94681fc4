//! The loop: how it is made, run, asked and taken apart.

mod turn;

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use poll_core::{Backend, RawSource};

use crate::arena::Arena;
use crate::backends::DefaultBackend;
use crate::callback::{Argument, Lending, Once, Repeated};
use crate::handles::{
    Asyncs, Closing, FsEvents, FsPollSlot, PollSlot, Processes, Signals, Timers, Udp, UdpSlot,
    Watchers,
};
use crate::metrics::{Meters, Metrics};
use crate::notify::{Notes, Notifier};
use crate::operations::Operations;
use crate::pool::{Home, Pool};
use crate::provided::Groups;
use crate::requests::Works;
use crate::sources::Owner;
use crate::streams::{Scratch, Streams};
use crate::sys::datagrams::Datagrams;
use crate::{error, handles, sys};

/// How long [`Loop::run`] runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunMode {
    /// Until nothing is left that could call back, or [`Loop::stop`].
    Default,
    /// One iteration, which blocks if there is nothing to do yet.
    Once,
    /// One iteration, which does not block.
    NoWait,
}

/// An event loop.
///
/// It is made from any [`Backend`] and belongs to one thread; what other threads may use
/// ([`AsyncSender`](crate::AsyncSender), [`Sender`](crate::Sender),
/// [`Metrics`]) is handed out. Each iteration runs these phases:
///
/// ```text
///    ┌▶ pending ─▶ idle ─▶ prepare ─▶ poll ─▶ pending ─▶ check ─▶ closing ─▶ timers ─┐
///    └────────────────────────────────────────────────────────────────────────────────┘
/// ```
///
/// [`RunMode::Default`] also runs the timers that are due before the first iteration.
///
/// Callbacks get the loop and their handle and may do anything with both: start, stop,
/// close, replace themselves or others. No call of the API runs a callback inline.
///
/// ```
/// use std::time::Duration;
/// use uv_core::{Loop, RunMode, Timer};
///
/// let mut lp = Loop::with_default_backend()?;
/// let timer = Timer::new(&mut lp);
/// timer.start(&mut lp, Duration::from_millis(1), Duration::ZERO, |_, _| println!("tick"))?;
/// let alive = lp.run(RunMode::Default)?;
/// assert!(!alive);
/// # std::io::Result::Ok(())
/// ```
///
/// # Panics in callbacks
///
/// A panic in a callback comes out of [`Loop::run`]. The handle whose callback it was is
/// stopped and its callback dropped; everything else is as before, and the loop can be run
/// again or dropped.
pub struct Loop<B: Backend = DefaultBackend> {
    // First, so that it is dropped first: the kernel lets go of memory and descriptors
    // before their owners below go.
    pub(crate) backend: B,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) sources: Arena<Owner>,
    pub(crate) operations: Operations<B>,
    /// What the backend receives into.
    pub(crate) provided: Groups,
    pub(crate) timers: Timers<B>,
    pub(crate) watchers: [Watchers<B>; 3],
    pub(crate) asyncs: Asyncs<B>,
    pub(crate) polls: Arena<PollSlot<B>>,
    pub(crate) signals: Signals<B>,
    pub(crate) processes: Processes<B>,
    pub(crate) fs_polls: Arena<FsPollSlot<B>>,
    pub(crate) streams: Streams<B>,
    /// Where streams read into; `None` until they do, and while it is lent.
    pub(crate) scratch: Option<Box<Scratch>>,
    /// For listeners, when there are no more descriptors.
    pub(crate) reserve: sys::Reserve,
    pub(crate) udps: Arena<UdpSlot<B>>,
    /// Those with datagrams that are to be sent before the next wait.
    pub(crate) udp_outbox: Vec<Udp>,
    /// Where datagrams are received; `None` until they are, and while they are lent.
    pub(crate) datagrams: Option<Box<Datagrams>>,
    pub(crate) fs_events: FsEvents<B>,
    pub(crate) works: Works<B>,
    /// The pool that this loop was given, or the process's once it has used it.
    pub(crate) pool: Option<Pool>,
    /// Callbacks that are due in the next pending phase.
    pending: VecDeque<Once<B, ()>>,
    /// Those that are due in the pending phase that the next turn begins with.
    next_turn: VecDeque<Once<B, ()>>,
    /// How many waits there were, or a little more.
    pub(crate) turn: u32,
    pub(crate) closing: Vec<Closing<B>>,
    /// Those of the closing phase under way, the next at the end.
    closing_now: Vec<Closing<B>>,
    /// What the last wait gave, events and notes, is not handled yet. Outside of
    /// [`Loop::run`] this is so if a panic came in between.
    dispatching: bool,
    /// How many handles are active and referenced.
    pub(crate) active_handles: usize,
    /// How many requests of handles have not called back: sends, writes, connects.
    pub(crate) active_requests: usize,
    /// The time, unless it is stale.
    now_ns: Cell<u64>,
    now_is_stale: Cell<bool>,
    /// The number of the handle that was made last, to know their order.
    pub(crate) births: u32,
    stopped: bool,
    running: Rc<Cell<bool>>,
    meters: Arc<Meters>,
    block_sigprof: bool,
}

impl Loop<DefaultBackend> {
    /// A loop over the backend that the Cargo features choose.
    ///
    /// # Errors
    ///
    /// Those of making the backend.
    pub fn with_default_backend() -> io::Result<Loop<DefaultBackend>> {
        DefaultBackend::new().map(Loop::new)
    }
}

impl<B: Backend> Loop<B> {
    /// A loop over `backend`.
    pub fn new(backend: B) -> Loop<B> {
        let notifier = Arc::new(Notifier::new(backend.waker()));
        let now_ns = handles::nanoseconds(backend.now());
        let operations = Operations::new(&backend);
        Loop {
            backend,
            notifier: Arc::clone(&notifier),
            sources: Arena::default(),
            operations,
            provided: Groups::default(),
            timers: Timers::new(),
            watchers: [Watchers::default(), Watchers::default(), Watchers::default()],
            asyncs: Asyncs::default(),
            polls: Arena::default(),
            signals: Signals::new(Arc::clone(&notifier)),
            processes: Processes::new(Arc::clone(&notifier)),
            fs_polls: Arena::default(),
            streams: Streams::default(),
            scratch: None,
            reserve: sys::Reserve::default(),
            udps: Arena::default(),
            udp_outbox: Vec::new(),
            datagrams: None,
            fs_events: FsEvents::default(),
            works: Works::new(Home::new(Arc::clone(&notifier))),
            pool: None,
            pending: VecDeque::new(),
            next_turn: VecDeque::new(),
            turn: 0,
            closing: Vec::new(),
            closing_now: Vec::new(),
            dispatching: false,
            active_handles: 0,
            active_requests: 0,
            now_ns: Cell::new(now_ns),
            now_is_stale: Cell::new(false),
            births: 0,
            stopped: false,
            running: Rc::new(Cell::new(false)),
            meters: Arc::new(Meters::default()),
            block_sigprof: false,
        }
    }

    /// Runs the loop. Returns whether it is still [alive](Loop::alive).
    ///
    /// In [`RunMode::Default`] that is so only after [`stop`](Loop::stop).
    ///
    /// # Errors
    ///
    /// If a callback of this loop calls it, and what [`Backend::wait`] reports; the loop
    /// can be run again.
    pub fn run(&mut self, mode: RunMode) -> io::Result<bool> {
        let _running = Running::begin(&self.running)?;
        let mut alive = self.alive();
        self.update_time();
        if mode == RunMode::Default && alive && !self.stopped {
            self.run_timers();
            alive = self.alive();
        }
        while alive && !self.stopped {
            if let Err(error) = self.iterate(mode) {
                self.empty_outboxes();
                return Err(error);
            }
            alive = self.alive();
            if mode != RunMode::Default {
                break;
            }
        }
        self.stopped = false;
        self.empty_outboxes();
        Ok(alive)
    }

    /// Sends what can be sent, as nobody knows when the loop will wait again.
    fn empty_outboxes(&mut self) {
        self.empty_outbox();
        self.empty_udp_outbox();
    }

    /// Makes [`run`](Loop::run) return after the iteration under way, which does not
    /// block any more. Called before, that run does nothing and returns at once.
    ///
    /// ```
    /// use uv_core::{Idle, Loop, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let idle = Idle::new(&mut lp);
    /// idle.start(&mut lp, |lp, _| lp.stop())?;
    /// assert!(lp.run(RunMode::Default)?, "there is an idle handle left");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// True while something could call back: an active handle that is referenced, a
    /// request, a deferred callback, a handle that is closing.
    ///
    /// ```
    /// use uv_core::{Loop, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// assert!(!lp.alive());
    /// lp.defer(|_| println!("called"));
    /// assert!(lp.alive());
    /// lp.run(RunMode::Default)?;
    /// assert!(!lp.alive());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn alive(&self) -> bool {
        self.has_active()
            || !self.pending.is_empty()
            || !self.next_turn.is_empty()
            || !self.closing.is_empty()
            || !self.closing_now.is_empty()
    }

    fn has_active(&self) -> bool {
        self.active_handles > 0
            || self.active_requests > 0
            || self.works.active() > 0
            || self.operations.any_lingers()
    }

    /// The loop's time: since some fixed moment, and the same from the timers to the poll
    /// and from the poll to the timers.
    ///
    /// Timers count from it. It is read when it is first asked for after the poll, so that
    /// loops without timers do not pay for a clock.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (before, a_moment) = (lp.now(), Duration::from_millis(2));
    /// std::thread::sleep(a_moment);
    /// assert_eq!(lp.now(), before);
    /// lp.update_time();
    /// assert!(lp.now() >= before + a_moment);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns_cached())
    }

    /// Makes the loop's time that of the clock; after a callback that took long, say. The example
    /// of [`now`](Loop::now) does so.
    pub fn update_time(&mut self) {
        self.now_is_stale.set(true);
    }

    /// The backend's clock, read now. Has nothing to do with the time of day.
    ///
    /// ```
    /// use uv_core::{Loop, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.defer(|lp| {
    ///     let begun = lp.hrtime();
    ///     let sum: u64 = (0..1000).sum();
    ///     println!("{sum} took {:?}", lp.hrtime() - begun);
    /// });
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn hrtime(&self) -> Duration {
        self.backend.now()
    }

    pub(crate) fn now_ns(&mut self) -> u64 {
        self.now_ns_cached()
    }

    pub(crate) fn now_ns_cached(&self) -> u64 {
        if self.now_is_stale.get() {
            self.read_clock();
        }
        self.now_ns.get()
    }

    #[cold]
    fn read_clock(&self) {
        self.now_is_stale.set(false);
        self.now_ns.set(handles::nanoseconds(self.backend.now()));
    }

    /// How long another poller may sleep on [`raw_fd`](Loop::raw_fd) before it runs this loop:
    /// `None` is for ever.
    ///
    /// For embedding: after each run with [`RunMode::NoWait`], and after each use of the loop
    /// from outside, ask again. It is zero while something is due, and also while the kernel
    /// has not been told all that handles and requests want of it, which the next run does:
    /// until then the descriptor may stay silent.
    ///
    #[cfg_attr(unix, doc = "```")]
    #[cfg_attr(not(unix), doc = "```ignore")]
    /// use std::time::Duration;
    /// use uv_core::{Handle, Loop, RunMode, Timer};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let timer = Timer::new(&mut lp);
    /// timer.start(&mut lp, Duration::from_millis(2), Duration::ZERO, |_, _| println!("due"))?;
    ///
    /// // The other loop: it waits by `poll(2)`, for what it likes and for this one.
    /// let Some(fd) = lp.raw_fd() else { return Ok(()) }; // `select` and `poll` have none.
    /// while lp.alive() {
    ///     // Rounded up, so as not to come too early, again and again.
    ///     let ms = lp.backend_timeout().map_or(-1, |t| t.as_nanos().div_ceil(1_000_000) as i32);
    ///     let mut watched = libc::pollfd { fd: fd.fd(), events: libc::POLLIN, revents: 0 };
    ///     // SAFETY: there is one entry, which outlives the call.
    ///     unsafe { libc::poll(&raw mut watched, 1, ms) };
    ///     lp.run(RunMode::NoWait)?;
    /// }
    /// assert!(!timer.is_active(&lp));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn backend_timeout(&mut self) -> Option<Duration> {
        if self.has_outgoing() || self.backend.has_changes() {
            return Some(Duration::ZERO);
        }
        self.poll_timeout()
    }

    /// The backend's descriptor, to watch in another loop for as long as
    /// [`backend_timeout`](Loop::backend_timeout) says: readable when this one has something
    /// to do. `None` where the backend has none (see [`Backend::raw_fd`]).
    pub fn raw_fd(&self) -> Option<RawSource> {
        self.backend.raw_fd()
    }

    /// The backend.
    ///
    /// ```
    /// use uv_core::Loop;
    /// use uv_core::poll_core::{Backend, OpKind};
    ///
    /// let lp = Loop::with_default_backend()?;
    /// println!("files are read by the backend: {}", lp.backend().supports(OpKind::Read));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Calls `callback` in the next pending phase; the loop stays alive for it.
    ///
    /// ```
    /// use uv_core::{Loop, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.defer(|_| println!("soon, but not now"));
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn defer(&mut self, callback: impl FnOnce(&mut Loop<B>) + 'static) {
        self.pending.push_back(Once::new(move |lp: &mut Loop<B>, ()| callback(lp)));
    }

    /// As [`Loop::defer`], but not before the next turn, however many rounds the pending phase
    /// of this one has.
    pub(crate) fn defer_to_next_turn(&mut self, callback: impl FnOnce(&mut Loop<B>) + 'static) {
        self.next_turn.push_back(Once::new(move |lp: &mut Loop<B>, ()| callback(lp)));
    }

    /// Counters and idle time, for this or any other thread to read.
    pub fn metrics(&self) -> Metrics {
        Metrics::new(Arc::clone(&self.meters))
    }

    /// Measures from now on how long the loop is idle. Costs two readings of the clock for
    /// each poll that blocks. [`Metrics`] has an example.
    pub fn measure_idle_time(&mut self) {
        self.meters.measure_idle_time();
    }

    /// Blocks `SIGPROF` while the loop waits, so that a sampling profiler does not wake it.
    ///
    /// ```
    /// let mut lp = uv_core::Loop::with_default_backend()?;
    /// let blocked = lp.block_sigprof();
    /// assert_eq!(blocked.is_ok(), cfg!(unix));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `Unsupported` on Windows, which has no such signal.
    pub fn block_sigprof(&mut self) -> io::Result<()> {
        sys::SigprofBlocked::is_possible()?;
        self.block_sigprof = true;
        Ok(())
    }

    /// Takes the loop apart and gives the backend back.
    ///
    /// ```
    /// use uv_core::{Busy, Handle, Loop, RunMode, Timer};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let timer = Timer::new(&mut lp);
    /// let busy: Busy<_> = lp.close().unwrap_err();
    /// assert_eq!(busy.to_string(), "the loop is busy: 1 handles are open");
    ///
    /// let mut lp = busy.into_loop();
    /// timer.close(&mut lp)?;
    /// lp.run(RunMode::Default)?;
    /// let backend = lp.close().expect("all handles are closed");
    /// let another = Loop::new(backend);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Busy`], with the loop in it, while a handle is open: even one that is not active,
    /// even one whose close callback has not run. Dropping a loop closes what is open,
    /// without calling back.
    pub fn close(mut self) -> Result<B, Busy<B>> {
        if self.alive() || self.open_handles() > 0 {
            return Err(Busy(Box::new(self)));
        }
        self.provided.withdraw(&mut self.backend);
        Ok(self.backend)
    }

    /// Makes the loop work in a child of `fork`: handles go on there as in the parent.
    ///
    /// Sends and signals from before the fork are the parent's. So are the pool's threads and
    /// what the backend performs for it: work and operations on files that were not done by
    /// then count as cancelled here. And so are its children: how they end is not known here,
    /// and their handles are told that.
    ///
    /// What waits for a socket goes on in both: connects, reads, accepts, receives, and writes
    /// and sends of which the parent knows of no end. Who is first has what comes, and what
    /// both write arrives twice: so one of the two should close the handle before it runs.
    ///
    #[cfg_attr(unix, doc = "```")]
    #[cfg_attr(not(unix), doc = "```ignore")]
    /// use uv_core::{Loop, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.defer(|_| println!("{} is here", std::process::id()));
    ///
    /// // SAFETY: the child goes on with its own copy of the only thread.
    /// match unsafe { libc::fork() } {
    ///     0 => {
    ///         let ran = lp.fork().and_then(|()| lp.run(RunMode::Default));
    ///         // SAFETY: nothing of the child's is left to be done.
    ///         unsafe { libc::_exit(i32::from(ran.is_err())) }
    ///     }
    ///     child => {
    ///         lp.run(RunMode::Default)?;
    ///         let mut status = -1;
    ///         // SAFETY: `status` outlives the call.
    ///         unsafe { libc::waitpid(child, &raw mut status, 0) };
    ///         assert_eq!(status, 0);
    ///     }
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Backend::after_fork`].
    pub fn fork(&mut self) -> io::Result<()> {
        self.backend.after_fork()?;
        self.notifier.forget();
        self.forget_sends();
        self.signals.forget_caught();
        self.forget_children();
        self.works.forget_threads();
        self.watch_anew();
        // Its lock may be held by a thread that is not here: it is left as it is.
        std::mem::forget(self.pool.take());
        if self.works.active() > 0 {
            self.notifier.notify(Notes::WORK)?;
        }
        self.notifier.notify(Notes::CHILD)?;
        self.operations.forget_readiness();
        self.dispatching = !self.operations.events.is_empty();
        Ok(())
    }

    /// True inside [`Loop::run`]: in its callbacks.
    pub(crate) fn is_running(&self) -> bool {
        self.running.get()
    }

    /// Calls back. If the callback panics, `mend` puts things in order before the panic
    /// goes on.
    pub(crate) fn call<A: Copy + 'static>(
        &mut self,
        callback: &mut Repeated<B, A>,
        argument: A,
        mend: fn(&mut Loop<B>, A),
    ) {
        self.call_with(callback, argument, argument, mend);
    }

    /// As [`Loop::call`], for an argument that `mend` cannot have a copy of.
    #[inline]
    pub(crate) fn call_with<A: Argument, K: Copy>(
        &mut self,
        callback: &mut Lending<B, A>,
        argument: A::For<'_>,
        key: K,
        mend: fn(&mut Loop<B>, K),
    ) {
        self.guarded(key, mend, |lp| callback.call(lp, argument));
    }

    /// Calls what may panic; then `mend` puts things in order before the panic goes on.
    #[inline]
    pub(crate) fn guarded<K: Copy>(
        &mut self,
        key: K,
        mend: fn(&mut Loop<B>, K),
        call: impl FnOnce(&mut Loop<B>),
    ) {
        let guard = Mend { lp: self, key, mend };
        call(&mut *guard.lp);
        std::mem::forget(guard);
    }
}

/// Runs only if a callback panics.
struct Mend<'a, B: Backend, K: Copy> {
    lp: &'a mut Loop<B>,
    key: K,
    mend: fn(&mut Loop<B>, K),
}

impl<B: Backend, K: Copy> Drop for Mend<'_, B, K> {
    fn drop(&mut self) {
        (self.mend)(self.lp, self.key);
    }
}

/// The loop is running until this is dropped, by a return or by a panic.
struct Running(Rc<Cell<bool>>);

impl Running {
    fn begin(running: &Rc<Cell<bool>>) -> io::Result<Running> {
        if running.replace(true) {
            return Err(error::running());
        }
        Ok(Running(Rc::clone(running)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// A loop that cannot be [closed](Loop::close) because handles are open: see there for an example.
pub struct Busy<B: Backend>(Box<Loop<B>>);

impl<B: Backend> Busy<B> {
    /// The loop.
    pub fn into_loop(self) -> Loop<B> {
        *self.0
    }
}

impl<B: Backend> fmt::Debug for Busy<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Busy").field(&self.0).finish()
    }
}

impl<B: Backend> fmt::Display for Busy<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the loop is busy: {} handles are open", self.0.open_handles())
    }
}

impl<B: Backend> std::error::Error for Busy<B> {}

impl<B: Backend> fmt::Debug for Loop<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loop")
            .field("handles", &self.open_handles())
            .field("active", &self.active_handles)
            .field("closing", &self.closing.len())
            .finish_non_exhaustive()
    }
}
