//! The event loop: construction, run modes, queries.

mod callbacks;
mod close;
#[cfg(unix)]
mod embedding;
pub(crate) mod exchange;
mod fork;
mod iteration;
mod notifier;
mod operations;
mod recv_buffers;
mod sources;
mod state;
mod thread;
mod time;

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use poll_core::{Backend, Event, Open, RawSource};

use crate::backends::DefaultBackend;
use crate::handles::{
    AnyHandle, Asyncs, Closing, ErrorHandler, FailedPeer, FsEvents, FsPollSlot, OnClose, Origins,
    PollSlot, Processes, Signals, Timers, Udps, Watchers, timer, udp,
};
use crate::metrics::{Meters, Metrics};
use crate::pool::CompletionQueue;
use crate::requests::Works;
use crate::storage::{Arena, InlineFnOnce, Seed};
use crate::streams::{self, Streams, output};
use crate::{error, handles, sys};
pub use close::CloseError;
pub(crate) use notifier::{Notification, Notifier};
pub(crate) use operations::{Done, InFlight, OpOwner, OpSet, Operations};
pub(crate) use recv_buffers::{Group, Groups, Piece};
pub(crate) use sources::SourceOwner;
pub(crate) use state::States;

/// How long [`Loop::run`] runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "uv_run_mode")]
// Exhaustive: the modes of `uv_run`.
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
/// [`RunMode::Default`] also runs the timers that are due before the first iteration. That
/// iteration comes even if these timers were all that kept the loop alive.
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
///
/// A destructor of a captured value may panic when the loop drops the callback: when it is
/// replaced, stopped or closed, or goes with the loop. The panic hook reports such a panic; it
/// does not come out of the call, and changes nothing for the loop. The same is true of buffers
/// and of results of work that the loop drops.
///
/// # Loops that are exchanged in callbacks
///
/// A callback may exchange its loop for another one with [`std::mem::swap`], or drop it by an
/// assignment. [`Loop::run`] then goes on with the other loop. A request of the first loop is
/// reported when that loop is run again. The handle whose callback exchanged the loops loses its
/// callback and is stopped by its next event, as after a panic.
#[doc(alias = "uv_loop_t")]
pub struct Loop<B: Backend = DefaultBackend> {
    // First, so that it is dropped first: the kernel releases memory and descriptors before the
    // fields below, which own them, are dropped.
    pub(crate) backend: B,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) sources: Arena<SourceOwner>,
    pub(crate) operations: Operations<B>,
    /// The buffers that the backend receives into.
    pub(crate) provided: Groups,
    pub(crate) timers: Timers<B>,
    pub(crate) watchers: [Watchers<B>; 3],
    pub(crate) asyncs: Asyncs<B>,
    pub(crate) polls: Arena<PollSlot<B>>,
    /// A poll was created whose descriptor may be that of a stream too.
    pub(crate) has_unowned_polls: bool,
    pub(crate) signals: Signals<B>,
    pub(crate) processes: Processes<B>,
    pub(crate) fs_polls: Arena<FsPollSlot<B>>,
    pub(crate) streams: Streams<B>,
    pub(crate) udps: Udps<B>,
    pub(crate) fs_events: FsEvents<B>,
    pub(crate) works: Works<B>,
    /// Callbacks that are due in the next pending phase.
    pending: VecDeque<InlineFnOnce<B, ()>>,
    /// Callbacks for the pending phase that the next iteration begins with.
    next_iteration: VecDeque<InlineFnOnce<B, ()>>,
    /// The number of waits, for batching policies.
    pub(crate) iteration: u32,
    /// The source locations where the handles were created.
    pub(crate) origins: Origins,
    /// The handler of errors for which handles are closed.
    pub(crate) error_handler: Option<ErrorHandler<B>>,
    /// The connection whose error the handler has now.
    pub(crate) failed_peer: Option<FailedPeer>,
    /// What runs when handles are closed, for those that have such a callback.
    pub(crate) on_close: OnClose<B>,
    /// Values of the program, by type.
    pub(crate) states: States,
    pub(crate) closing: Vec<Closing<B>>,
    /// The handles of the current closing phase, in reverse order.
    closing_now: Vec<Closing<B>>,
    /// Handles whose close callbacks are running, or have run after an exchange of loops.
    closed: Vec<AnyHandle>,
    /// The number of exchanges of loops when this loop last checked its handles.
    exchanges: u32,
    /// The events and notifications of the last wait are not all dispatched yet. Outside of
    /// [`Loop::run`], a callback has panicked.
    dispatching: bool,
    /// How many handles are active and referenced.
    pub(crate) active_handles: usize,
    /// How many requests of handles have not called back: sends, writes, connects.
    pub(crate) active_requests: usize,
    /// The time, unless it is stale.
    now_ns: Cell<u64>,
    now_is_stale: Cell<bool>,
    /// The id of the handle that was created last: ids give the order of `walk`.
    pub(crate) last_handle_id: u32,
    stopped: bool,
    running: Rc<Cell<bool>>,
    /// The process that created the loop, or that called [`Loop::fork`] last.
    process: u32,
    meters: Arc<Meters>,
    block_sigprof: bool,
    /// True if idle time is measured, or `SIGPROF` blocked, during each wait.
    watches_wait: bool,
}

impl<B: Backend> Loop<B> {
    /// A loop over `backend`.
    #[doc(alias = "uv_loop_init")]
    #[doc(alias = "uv_loop_new")]
    pub fn new(backend: B) -> Loop<B> {
        let notifier = Arc::new(Notifier::new(backend.waker()));
        let now_ns = handles::nanoseconds(backend.now());
        // Keys of this loop are found in this loop only.
        let seed = Seed::draw();
        let operations = Operations::new(seed, &backend);
        Loop {
            backend,
            notifier: Arc::clone(&notifier),
            sources: Arena::new(seed),
            operations,
            provided: Groups::default(),
            timers: Timers::new(seed),
            watchers: [Watchers::new(seed), Watchers::new(seed), Watchers::new(seed)],
            asyncs: Asyncs::new(seed),
            polls: Arena::new(seed),
            has_unowned_polls: false,
            signals: Signals::new(seed, Arc::clone(&notifier)),
            processes: Processes::new(seed, Arc::clone(&notifier)),
            fs_polls: Arena::new(seed),
            streams: Streams::new(seed),
            udps: Udps::new(seed),
            fs_events: FsEvents::new(seed),
            works: Works::new(seed, CompletionQueue::new(Arc::clone(&notifier))),
            pending: VecDeque::new(),
            next_iteration: VecDeque::new(),
            iteration: 0,
            origins: Origins::default(),
            error_handler: None,
            failed_peer: None,
            on_close: OnClose::new(),
            states: States::default(),
            closing: Vec::new(),
            closing_now: Vec::new(),
            closed: Vec::new(),
            exchanges: exchange::count(),
            dispatching: false,
            active_handles: 0,
            active_requests: 0,
            now_ns: Cell::new(now_ns),
            now_is_stale: Cell::new(false),
            last_handle_id: 0,
            stopped: false,
            running: Rc::new(Cell::new(false)),
            process: std::process::id(),
            meters: Arc::new(Meters::default()),
            block_sigprof: false,
            watches_wait: false,
        }
    }

    /// A loop over a backend that is made without arguments: any of [`backends`](crate::backends),
    /// or one of your own that implements [`Open`].
    ///
    /// It is the same call for all of them, so a program that has an alias for its loop names its
    /// backend in one line:
    ///
    /// ```
    /// use uv_core::backends::Auto as Backend; // The one line that another backend changes.
    /// use uv_core::{RunMode, Timer};
    ///
    /// type Loop = uv_core::Loop<Backend>;
    ///
    /// fn begin(lp: &mut Loop) {
    ///     Timer::after(lp, std::time::Duration::from_millis(1), |lp, _| lp.stop());
    /// }
    ///
    /// let mut lp = Loop::open()?;
    /// begin(&mut lp);
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of making the backend.
    #[doc(alias = "uv_loop_init")]
    #[doc(alias = "uv_loop_new")]
    pub fn open() -> io::Result<Loop<B>>
    where
        B: Open,
    {
        B::open().map(Loop::new)
    }

    /// Runs the loop. Returns whether it is still [alive](Loop::is_alive).
    ///
    /// In [`RunMode::Default`] that is so only after [`stop`](Loop::stop).
    ///
    /// # Errors
    ///
    /// If a callback of this loop calls it, and what [`Backend::wait`] reports; the loop
    /// can be run again.
    #[doc(alias = "uv_run")]
    pub fn run(&mut self, mode: RunMode) -> io::Result<bool> {
        let _running = Running::begin(&self.running)?;
        if self.exchanges != exchange::count() {
            exchange::check_all(self);
        }
        let mut alive = self.is_alive();
        let mut next = mode;
        self.update_time();
        if mode == RunMode::Default && alive && !self.stopped {
            timer::run_due(self);
            if !self.is_alive() {
                // A loop that was alive iterates once, but has nothing to wait for.
                next = RunMode::NoWait;
                alive = !self.stopped;
            }
        }
        while alive && !self.stopped {
            if let Err(error) = self.iterate(next) {
                self.flush_by_calls();
                return Err(error);
            }
            if self.exchanges != exchange::count() {
                exchange::check_all(self);
            }
            alive = self.is_alive();
            next = mode;
            if mode != RunMode::Default {
                break;
            }
        }
        self.stopped = false;
        self.flush_by_calls();
        Ok(alive)
    }

    /// Sends what can be sent without waiting: the loop may not wait again.
    fn flush_by_calls(&mut self) {
        output::flush::send_by_calls(self);
        udp::flush::send_by_calls(self);
        if self.operations.has_deferred_closes() {
            streams::handover::flush_closes(self);
        }
    }

    /// Makes [`run`](Loop::run) return after the iteration under way, which does not
    /// block any more. Called before, that run does nothing and returns immediately.
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
    #[doc(alias = "uv_stop")]
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
    /// assert!(!lp.is_alive());
    /// lp.defer(|_| println!("called"));
    /// assert!(lp.is_alive());
    /// lp.run(RunMode::Default)?;
    /// assert!(!lp.is_alive());
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_loop_alive")]
    pub fn is_alive(&self) -> bool {
        self.has_active()
            || !self.pending.is_empty()
            || !self.next_iteration.is_empty()
            || !self.closing.is_empty()
            || !self.closing_now.is_empty()
    }

    fn has_active(&self) -> bool {
        self.active_handles > 0
            || self.active_requests > 0
            || self.works.active() > 0
            || self.operations.has_deferred_closes()
    }

    /// The longest time that another poller may wait for [`raw_source`](Loop::raw_source) before it
    /// runs this loop. `None` is without limit.
    ///
    /// For embedding: call it after each run with [`RunMode::NoWait`] and after each use of the
    /// loop from outside. It is zero while a callback is due, and while changes of handles and
    /// requests are not submitted to the kernel: until the next run submits them, the descriptor
    /// may not become readable. It is zero as well while a signal that came during the last poll
    /// waits for the next one, and for a loop that is not [alive](Loop::is_alive):
    /// do not ask that for its time, or the other poller spins.
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
    /// // The other loop: it waits by `poll(2)` for its own descriptors and for this loop.
    /// let Some(fd) = lp.raw_source() else { return Ok(()) }; // `select` and `poll` have none.
    /// while lp.is_alive() {
    ///     // Rounded up: a timeout that is too short would spin.
    ///     let ms = lp.backend_timeout().map_or(-1, |t| t.as_nanos().div_ceil(1_000_000) as i32);
    ///     let mut watched = libc::pollfd { fd: fd.fd(), events: libc::POLLIN, revents: 0 };
    ///     // SAFETY: there is one entry, which outlives the call.
    ///     unsafe { libc::poll(&raw mut watched, 1, ms) };
    ///     lp.run(RunMode::NoWait)?;
    /// }
    /// assert!(!timer.is_active(&lp));
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_backend_timeout")]
    pub fn backend_timeout(&mut self) -> Option<Duration> {
        let unpolled = self.has_outgoing() || self.backend.has_unflushed_changes();
        // A signal that came during the last poll has consumed its wake, and waits for the next one.
        if unpolled || self.notifier.has_any() {
            return Some(Duration::ZERO);
        }
        self.poll_timeout()
    }

    /// The backend's descriptor, for another loop to poll with the timeout of
    /// [`backend_timeout`](Loop::backend_timeout). It is readable when this loop has events.
    /// `None` where the backend has none (see [`Backend::raw_source`]).
    #[doc(alias = "uv_backend_fd")]
    pub fn raw_source(&self) -> Option<RawSource> {
        self.backend.raw_source()
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

    /// The name of the backend: that in use, if it was [chosen](crate::backends::Auto).
    ///
    /// ```
    /// use uv_core::{Loop, backends::Auto};
    ///
    /// let lp = Loop::<Auto>::open()?;
    /// println!("running on {}", lp.backend_name());
    /// assert!(Auto::NAMES.contains(&lp.backend_name()));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn backend_name(&self) -> &'static str {
        self.backend.name()
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
        self.pending.push_back(InlineFnOnce::new(move |lp: &mut Loop<B>, ()| callback(lp)));
    }

    /// As [`Loop::defer`], but not before the next iteration, even if the pending phase of this
    /// iteration runs again: the loop polls for events in between.
    ///
    /// ```
    /// use uv_core::{Loop, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.defer_to_next_iteration(|lp| lp.defer_to_next_iteration(|_| println!("the second")));
    /// assert!(lp.run(RunMode::NoWait)?, "one iteration runs only the first");
    /// assert!(!lp.run(RunMode::NoWait)?);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn defer_to_next_iteration(&mut self, callback: impl FnOnce(&mut Loop<B>) + 'static) {
        self.next_iteration.push_back(InlineFnOnce::new(move |lp: &mut Loop<B>, ()| callback(lp)));
    }

    /// Counters and idle time, for this or any other thread to read.
    #[doc(alias = "uv_metrics_info")]
    pub fn metrics(&self) -> Metrics {
        Metrics::new(Arc::clone(&self.meters))
    }

    /// Measures from now on how long the loop is idle. Costs two readings of the clock for
    /// each poll that blocks. [`Metrics`] has an example.
    #[doc(alias = "uv_loop_configure")]
    #[doc(alias = "UV_METRICS_IDLE_TIME")]
    pub fn measure_idle_time(&mut self) {
        self.meters.measure_idle_time();
        self.watches_wait = true;
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
    #[doc(alias = "uv_loop_configure")]
    #[doc(alias = "UV_LOOP_BLOCK_SIGNAL")]
    pub fn block_sigprof(&mut self) -> io::Result<()> {
        sys::SigprofBlocked::is_supported()?;
        self.block_sigprof = true;
        self.watches_wait = true;
        Ok(())
    }

    /// Keeps events that were fetched outside of the iteration: the next one dispatches them
    /// before it waits.
    pub(crate) fn keep_events(&mut self, fetched: Vec<Event>) {
        if !self.dispatching {
            self.operations.events.clear();
            self.operations.handled = 0;
        }
        self.dispatching |= !fetched.is_empty();
        self.operations.events.extend(fetched);
    }

    /// True inside [`Loop::run`]: in its callbacks.
    pub(crate) fn is_running(&self) -> bool {
        self.running.get()
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

impl<B: Backend> fmt::Debug for Loop<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loop")
            .field("backend", &self.backend.name())
            .field("handles", &self.open_handles())
            .field("active", &self.active_handles)
            .field("closing", &self.closing.len())
            .finish_non_exhaustive()
    }
}
