//! The executor: tasks of one loop, polled in its pending phase.

mod block_on;
mod join;
mod lent;
mod spawner;
mod tasks;
mod wake_queue;

/// The atomics of the wake queue, which a test replaces by a model checker's.
mod sync {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
}

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, RawWakerVTable, Waker};

use uv_core::poll_core::Backend;
use uv_core::{Async, DefaultBackend, Handle, Loop, Metrics};

pub use block_on::LoopExt;
pub use join::{JoinError, JoinHandle};
pub use spawner::{Spawned, Spawner};

use crate::io::{MemoryPool, ReceivedPool};
use crate::op::{CellPool, Waiting};
use lent::Lent;
use spawner::Inbox;
use tasks::{Next, Signal, Task, Tasks};
use wake_queue::WakeQueue;

/// The number of polls of tasks before the loop polls for I/O again.
pub const POLL_BUDGET: usize = 61;

/// A runtime: the tasks of one loop.
///
/// It is a handle that is cheap to clone, and stays on the loop's thread. Tasks run beside the
/// callbacks of the loop, in its pending phase, whenever [`Loop::run`] runs. Each task is polled at
/// most once between two polls for I/O, and at most [`POLL_BUDGET`] polls come between them. A
/// loop may have several runtimes, and a thread several loops.
///
/// [`block_on`](LoopExt::block_on) makes one for an `async` closure. [`attach`](Rt::attach) makes
/// one that lives as long as the loop:
///
/// ```
/// use std::time::Duration;
/// use uv_async::Rt;
/// use uv_core::{Loop, RunMode, Timer};
///
/// let mut lp = Loop::with_default_backend()?;
/// let rt = Rt::attach(&mut lp);
/// let task = rt.clone();
/// rt.spawn_local(async move {
///     task.sleep(Duration::from_millis(2)).await;
///     println!("from a task");
/// });
/// Timer::after(&mut lp, Duration::from_millis(1), |_, _| println!("from a callback"));
/// lp.run(RunMode::Default)?; // Returns when the task is done and the timer has fired.
/// # std::io::Result::Ok(())
/// ```
pub struct Rt<B: Backend = DefaultBackend>(Rc<Inner<B>>);

struct Inner<B: Backend> {
    lent: Lent<B>,
    tasks: RefCell<Tasks>,
    /// The task that is polled.
    current: Cell<Option<Current>>,
    signal: Arc<Signal>,
    inbox: Arc<Inbox<B>>,
    handle: Async,
    metrics: Metrics,
    /// The loop's iteration at the last pass, and the number of passes.
    last_iteration: Cell<u64>,
    passes: Cell<u64>,
    /// A pass is deferred.
    scheduled: Cell<bool>,
    /// A pass is under way.
    in_pass: Cell<bool>,
    /// The handle keeps the loop alive.
    referenced: Cell<bool>,
    /// A future of `block_on` was woken.
    root_woken: Cell<bool>,
    /// The number of calls of `block_on` under way, of which each but the first is made by the
    /// future of another.
    roots: Cell<u32>,
    /// Calls that need the loop, made while it was not lent: for the next pass or
    /// [`enter`](Rt::enter).
    deferred: RefCell<VecDeque<Deferred<B>>>,
    /// The loop or its handle is gone: tasks cannot run any more.
    detached: Cell<bool>,
    cells: CellPool,
    memory: MemoryPool,
    received: ReceivedPool,
}

/// The task that is polled, and what its waker is made of: to recognize the waker without keeping
/// it.
#[derive(Clone, Copy)]
struct Current {
    id: u32,
    data: *const (),
    vtable: &'static RawWakerVTable,
}

impl Current {
    fn new(id: u32, waker: &Waker) -> Current {
        Current { id, data: waker.data(), vtable: waker.vtable() }
    }
}

/// A call for the next pass or [`enter`](Rt::enter).
type Deferred<B> = Box<dyn FnOnce(&mut Loop<B>)>;

/// The owner of the tasks: it lives in the callback of the runtime's async handle, so that the
/// tasks go with the loop.
struct Owner<B: Backend>(Rt<B>);

impl<B: Backend> Drop for Owner<B> {
    fn drop(&mut self) {
        self.0.drop_tasks();
    }
}

impl<B: Backend> Rt<B> {
    /// Attaches a runtime to a loop. Its tasks run while the loop runs and keep it alive; without
    /// tasks it does not.
    ///
    /// The tasks are dropped with the loop, or by [`detach`](Rt::detach). Dropping the value
    /// changes nothing.
    pub fn attach(lp: &mut Loop<B>) -> Rt<B> {
        let owner: Rc<OnceCell<Owner<B>>> = Rc::default();
        let in_callback = Rc::clone(&owner);
        let (handle, sender) = Async::new(lp, move |lp, _| {
            if let Some(Owner(rt)) = in_callback.get() {
                rt.schedule(lp);
            }
        });
        let inbox = Arc::new(Inbox::new(sender.clone()));
        let rt = Rt(Rc::new(Inner {
            lent: Lent::new(),
            tasks: RefCell::default(),
            current: Cell::new(None),
            signal: Arc::new(Signal { queue: WakeQueue::new(), sender }),
            inbox,
            handle,
            metrics: lp.metrics(),
            last_iteration: Cell::new(u64::MAX),
            passes: Cell::new(0),
            scheduled: Cell::new(false),
            in_pass: Cell::new(false),
            referenced: Cell::new(true),
            root_woken: Cell::new(false),
            roots: Cell::new(0),
            deferred: RefCell::default(),
            detached: Cell::new(false),
            cells: CellPool::default(),
            memory: MemoryPool::default(),
            received: ReceivedPool::default(),
        }));
        drop(owner.set(Owner(rt.clone())));
        // The handle keeps the loop alive until the first pass, for tasks that are spawned before.
        rt.schedule(lp);
        rt
    }

    /// Drops all tasks and closes the runtime's handle. Afterwards spawned tasks are dropped
    /// immediately.
    ///
    /// ```
    /// use uv_async::Rt;
    /// use uv_core::{Loop, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let rt = Rt::attach(&mut lp);
    /// rt.spawn_local(std::future::pending::<()>());
    /// rt.detach(&mut lp);
    /// assert!(!lp.run(RunMode::Default)?);
    /// assert!(lp.close().is_ok(), "nothing is left");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn detach(&self, lp: &mut Loop<B>) {
        self.enter(lp, || self.drop_tasks());
        self.run_deferred(lp);
        // An error means that it was closed, by the callback's panic or by the program.
        let _ = self.0.handle.close(lp);
    }

    /// Calls `f` with the loop.
    ///
    /// Every method of handles is reachable this way from a task.
    ///
    /// ```
    /// use uv_async::LoopExt;
    /// use uv_core::{Handle, Loop, Timer};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let timer = rt.with(Timer::new);
    ///     rt.with(|lp| timer.close(lp)).unwrap();
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Panics
    ///
    /// Outside of tasks of this runtime, and inside another call of this method.
    #[track_caller]
    pub fn with<R>(&self, f: impl FnOnce(&mut Loop<B>) -> R) -> R {
        match self.try_with(f) {
            Some(result) => result,
            None => panic!("the loop is not lent: call `with` in a task, and not inside `with`"),
        }
    }

    /// As [`with`](Rt::with), but `None` where that would panic.
    pub fn try_with<R>(&self, f: impl FnOnce(&mut Loop<B>) -> R) -> Option<R> {
        self.0.lent.with(f)
    }

    /// Lends the loop while `f` runs, so that it can do what tasks can: for callbacks.
    ///
    /// ```
    /// use uv_async::Rt;
    /// use uv_core::{Loop, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let rt = Rt::attach(&mut lp);
    /// lp.defer(move |lp| {
    ///     rt.enter(lp, || rt.spawn_local(async { println!("spawned by a callback") }));
    /// });
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn enter<R>(&self, lp: &mut Loop<B>, f: impl FnOnce() -> R) -> R {
        // What was dropped before is cancelled and closed before what `f` starts.
        self.run_deferred(lp);
        self.0.lent.lend(lp, f)
    }

    /// Spawns a task. It is polled for the first time in a later pass, not by this call.
    ///
    /// In a callback call it inside [`enter`](Rt::enter): the task then keeps the loop alive from
    /// here on, otherwise from its first poll on.
    ///
    /// ```
    /// use uv_async::LoopExt;
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let sum = lp.block_on(async |rt| {
    ///     let (one, two) = (rt.spawn_local(async { 1 }), rt.spawn_local(async { 2 }));
    ///     one.await.unwrap() + two.await.unwrap()
    /// })?;
    /// assert_eq!(sum, 3);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn spawn_local<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        let (task, handle) = join::pair(future);
        if self.0.detached.get() {
            drop(task); // The handle reports that it was cancelled.
            return handle;
        }
        let (id, header) = self.0.tasks.borrow_mut().insert(&self.0.signal, Some(Box::pin(task)));
        let woken = self.try_with(|lp| {
            self.wake_task(lp, id);
            self.update_reference(lp);
        });
        if woken.is_none() {
            std::task::Wake::wake_by_ref(&header);
        }
        handle.with_header(header)
    }

    /// The number of tasks that are not done.
    pub fn task_count(&self) -> usize {
        self.0.tasks.borrow().live()
    }

    /// A spawner for other threads.
    pub fn spawner(&self) -> Spawner<B> {
        Spawner::new(Arc::clone(&self.0.inbox))
    }

    pub(crate) fn cells(&self) -> &CellPool {
        &self.0.cells
    }

    pub(crate) fn memory(&self) -> &MemoryPool {
        &self.0.memory
    }

    pub(crate) fn received(&self) -> &ReceivedPool {
        &self.0.received
    }

    /// The task that is polled, if `waker` is its own.
    pub(crate) fn current_task(&self, waker: &Waker) -> Option<u32> {
        let Current { id, data, vtable } = self.0.current.get()?;
        (data == waker.data() && std::ptr::eq(vtable, waker.vtable())).then_some(id)
    }

    /// Wakes a task by its id, from the loop's thread: no queue of other threads is involved.
    #[inline]
    pub(crate) fn wake_task(&self, lp: &mut Loop<B>, id: u32) {
        let is_due = self.0.scheduled.get() | self.0.in_pass.get();
        if self.0.tasks.borrow_mut().make_ready(id) && !is_due {
            self.schedule(lp);
        }
    }

    /// Wakes a task by its id, without the loop.
    pub(crate) fn wake_task_later(&self, id: u32) {
        let header = self.0.tasks.borrow().header(id).map(Arc::clone);
        if let Some(header) = header {
            std::task::Wake::wake(header);
        }
    }

    /// Wakes what waits, by the loop if it is lent.
    pub(crate) fn with_or_wake_later(&self, waiting: Waiting) {
        let mut waiting = Some(waiting);
        self.try_with(|lp| waiting.take().unwrap_or_default().wake(self, lp));
        waiting.unwrap_or_default().wake_later(self);
    }

    /// Calls `f` with the loop: now if it is lent, otherwise when it is lent next, in the next pass at
    /// the latest. Not at all once the loop is gone.
    pub(crate) fn with_or_defer(&self, f: impl FnOnce(&mut Loop<B>) + 'static) {
        let mut f = Some(f);
        let done = self.try_with(|lp| {
            if let Some(f) = f.take() {
                f(lp);
            }
        });
        if done.is_none() && !self.0.detached.get() {
            if let Some(f) = f.take() {
                self.0.deferred.borrow_mut().push_back(Box::new(f));
            }
            // An error means that the loop is gone.
            let _ = self.0.signal.sender.send();
        }
    }

    /// Defers a pass, unless one is deferred: to the pending phase of this iteration, or of the
    /// next if this iteration had one.
    fn schedule(&self, lp: &mut Loop<B>) {
        if self.0.scheduled.replace(true) {
            return;
        }
        let rt = self.clone();
        if self.0.metrics.loop_count() == self.0.last_iteration.get() {
            lp.defer_to_next_iteration(move |lp| rt.pass(lp));
        } else {
            lp.defer(move |lp| rt.pass(lp));
        }
    }

    /// Polls the tasks that are due.
    fn pass(&self, lp: &mut Loop<B>) {
        let inner = &*self.0;
        inner.scheduled.set(false);
        // A callback that exchanges loops can run the other one inside of a pass: the outer pass
        // polls what is due, or schedules another.
        if inner.in_pass.replace(true) {
            return;
        }
        let _ended = SetFalse(&inner.in_pass);
        inner.last_iteration.set(inner.metrics.loop_count());
        inner.passes.set(inner.passes.get() + 1);
        self.enter(lp, || {
            inner.inbox.spawn_all(self);
            self.poll_ready();
        });
        self.run_deferred(lp);
        self.update_reference(lp);
        if inner.root_woken.get() {
            lp.stop();
        }
        self.end_drain(lp);
    }

    /// Lets wakers notify the loop again, unless a pass is due.
    #[inline]
    fn end_drain(&self, lp: &mut Loop<B>) {
        let rest = self.0.tasks.borrow().any_ready() | self.0.inbox.has_any();
        if rest || !self.0.signal.queue.end_drain() {
            self.schedule(lp);
        }
    }

    #[inline]
    fn poll_ready(&self) {
        let inner = &*self.0;
        let (pass, before) = (inner.passes.get(), inner.current.get());
        let mut budget = POLL_BUDGET;
        // Before the first poll: from here on wakers need not notify the loop.
        self.take_woken();
        while budget > 0 {
            let mut tasks = inner.tasks.borrow_mut();
            match tasks.next(pass) {
                Next::Poll(id) => {
                    let Some(task) = tasks.take(id) else { continue };
                    drop(tasks);
                    budget -= 1;
                    self.poll_task(id, task);
                }
                Next::Root => inner.root_woken.set(true),
                Next::Drop(id) => {
                    let Some(task) = tasks.take(id) else { continue };
                    drop(tasks);
                    self.end_task(id, task);
                }
                Next::Nothing => {
                    drop(tasks);
                    if !self.take_woken() {
                        break;
                    }
                }
            }
        }
        inner.current.set(before);
        inner.tasks.borrow_mut().end_pass();
    }

    /// Moves the queue of wakers to the ready tasks. False if it was empty.
    #[inline]
    fn take_woken(&self) -> bool {
        let queue = &self.0.signal.queue;
        let any = queue.begin_drain();
        if any {
            self.0.tasks.borrow_mut().take_woken(queue);
        }
        any
    }

    #[inline]
    fn poll_task(&self, id: u32, mut task: Task) {
        let inner = &*self.0;
        inner.current.set(Some(Current::new(id, &task.waker)));
        let mut cx = Context::from_waker(&task.waker);
        let polled = catch_unwind(AssertUnwindSafe(|| task.future.as_mut().poll(&mut cx)));
        if let Ok(Poll::Pending) = polled {
            let orphan = inner.tasks.borrow_mut().put_back(id, task);
            if orphan.is_some() {
                contain(|| drop(orphan));
            }
        } else {
            contain(|| drop(polled)); // The payload of a panic may panic once more.
            self.end_task(id, task);
        }
    }

    /// Drops a task that is done or aborted. The future itself has reported a panic to its handle.
    #[inline(never)]
    fn end_task(&self, id: u32, task: Task) {
        self.0.current.set(None);
        self.0.tasks.borrow_mut().finish(id, &task.waker);
        contain(|| drop(task));
    }

    #[inline]
    fn run_deferred(&self, lp: &mut Loop<B>) {
        if !self.0.deferred.borrow().is_empty() {
            self.run_all_deferred(lp);
        }
    }

    #[cold]
    fn run_all_deferred(&self, lp: &mut Loop<B>) {
        loop {
            let next = self.0.deferred.borrow_mut().pop_front();
            let Some(call) = next else { break };
            call(lp);
        }
    }

    /// Lets the handle keep the loop alive while there are tasks.
    #[inline]
    fn update_reference(&self, lp: &mut Loop<B>) {
        let live = self.task_count() > 0;
        if self.0.referenced.get() != live {
            self.reference(lp, live);
        }
    }

    #[cold]
    fn reference(&self, lp: &mut Loop<B>, live: bool) {
        self.0.referenced.set(live);
        let handle = self.0.handle;
        // An error means that the handle is gone, and with it the tasks.
        let _ = if live { handle.reference(lp) } else { handle.unreference(lp) };
    }

    /// Drops all tasks: now, and those that destructors spawn.
    fn drop_tasks(&self) {
        self.0.detached.set(true);
        let tasks = self.0.tasks.borrow_mut().clear();
        tasks.into_iter().for_each(|task| contain(|| drop(task)));
        let calls = self.0.inbox.close();
        contain(|| drop(calls));
        if self.try_with(|_| ()).is_none() {
            let deferred = self.0.deferred.take();
            contain(|| drop(deferred));
        }
    }
}

/// Sets a flag to false at the end of a scope, also by a panic.
struct SetFalse<'a>(&'a Cell<bool>);

impl Drop for SetFalse<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Runs destructors of the program's values. The panic hook reports their panics; the executor
/// goes on.
pub(crate) fn contain(destructors: impl FnOnce()) {
    let Err(payload) = catch_unwind(AssertUnwindSafe(destructors)) else { return };
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // A payload whose destructor panics: the payload of that panic may do so again.
        std::mem::forget(second);
    }
}

impl<B: Backend> Clone for Rt<B> {
    fn clone(&self) -> Rt<B> {
        Rt(Rc::clone(&self.0))
    }
}

impl<B: Backend> fmt::Debug for Rt<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rt").field("tasks", &self.task_count()).finish_non_exhaustive()
    }
}
