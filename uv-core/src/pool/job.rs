//! A job: the memory that carries a closure to a worker and its result back.
//!
//! Jobs are blocks of fixed size that a loop reuses. The inline storage of a block holds the
//! closure until it has run, then its result; larger values are boxed.
//!
//! ```text
//!          taken by a worker           has run
//!   QUEUED ─────────────────▶ RUNNING ─────────▶ DONE     the storage holds the result
//!     │ cancelled by the loop
//!     └─────────────────────▶ CANCELLED                   the storage is empty
//! ```
//!
//! A job has up to two holders: the loop with the request, and the pool until a worker has taken
//! the job from the queue and returned it. The last holder frees it or reuses it.
//!
//! A job [without a loop](super::Pool::run_detached) is freed by the worker that returns it.
//!
//! A job with a [`Task`] keeps it in the storage in every state. A backend may perform the task
//! instead of the pool; then the loop is the only holder:
//!
//! ```text
//!          accepted by the backend
//!   LENT ──────────────────────────▶ SUBMITTED ──▶ (the loop takes the task out)
//! ```

#![allow(unsafe_code)]

use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use poll_core::{Op, Token};

use super::completion_queue::CompletionQueue;
use super::queue::WorkKind;
use super::task::{Running, Task};
use crate::storage::{self, contain};
use crate::sync::{AtomicPtr, AtomicU8};

/// The inline storage of a job, large enough for the task of [`fs::stat`](crate::fs::stat()).
type InlineStorage = storage::InlineStorage<[u64; 55]>;

/// True if such a task needs no allocation.
pub(crate) const fn fits_task<A: Task>() -> bool {
    InlineStorage::fits::<Running<A>>()
}

/// The operations on the stored value of a job, whose type is erased.
struct VTable {
    /// Replaces the closure by its result; performs the task.
    run: unsafe fn(*mut InlineStorage),
    /// Drops the closure; keeps the task.
    cancel: unsafe fn(*mut InlineStorage),
    /// Drops the result, or the task.
    drop_done: unsafe fn(*mut InlineStorage),
    /// Drops the task of a cancelled job.
    drop_cancelled: unsafe fn(*mut InlineStorage),
    /// Performs the task if that does not block.
    try_run: unsafe fn(*mut InlineStorage) -> bool,
    is_short: unsafe fn(*mut InlineStorage) -> bool,
    op: unsafe fn(*mut InlineStorage) -> Option<Op>,
    submitted: unsafe fn(*mut InlineStorage),
    step: unsafe fn(*mut InlineStorage, Result<usize, i32>) -> bool,
}

impl VTable {
    /// For a closure, which no backend performs.
    const fn of_closure<W: FnOnce() -> T, T>() -> VTable {
        VTable {
            run: run_closure::<W, T>,
            cancel: drop_stored::<W>,
            drop_done: drop_stored::<thread::Result<T>>,
            drop_cancelled: do_nothing,
            try_run: always_false,
            is_short: always_false,
            op: no_op,
            submitted: do_nothing,
            step: no_step,
        }
    }

    const fn of_task<A: Task>() -> VTable {
        VTable {
            run: run_task::<A>,
            cancel: do_nothing,
            drop_done: drop_stored::<Running<A>>,
            drop_cancelled: drop_stored::<Running<A>>,
            try_run: try_run::<A>,
            is_short: is_short::<A>,
            op: op::<A>,
            submitted: submitted::<A>,
            step: step::<A>,
        }
    }
}

unsafe fn do_nothing(_storage: *mut InlineStorage) {}

unsafe fn always_false(_storage: *mut InlineStorage) -> bool {
    false
}

unsafe fn no_op(_storage: *mut InlineStorage) -> Option<Op> {
    None
}

unsafe fn no_step(_storage: *mut InlineStorage, _result: Result<usize, i32>) -> bool {
    true
}

/// The stored task.
///
/// # Safety
///
/// `storage` holds a `Running<A>` that [`put`](InlineStorage::put) has stored, and nothing else uses it during `'a`.
unsafe fn running<'a, A: Task>(storage: *mut InlineStorage) -> &'a mut Running<A> {
    // SAFETY: the caller guarantees that a `Running<A>` is stored.
    let running = unsafe { InlineStorage::locate::<Running<A>>(storage) };
    // SAFETY: the caller guarantees exclusive access during `'a`.
    unsafe { &mut *running }
}

/// # Safety
///
/// As for [`running`], during the call. The same holds for the next five functions.
unsafe fn run_task<A: Task>(storage: *mut InlineStorage) {
    // SAFETY: guaranteed by the caller.
    unsafe { running::<A>(storage) }.run();
}

unsafe fn try_run<A: Task>(storage: *mut InlineStorage) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { running::<A>(storage) }.try_run()
}

unsafe fn is_short<A: Task>(storage: *mut InlineStorage) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { running::<A>(storage) }.task.is_short()
}

unsafe fn op<A: Task>(storage: *mut InlineStorage) -> Option<Op> {
    // SAFETY: guaranteed by the caller.
    unsafe { running::<A>(storage) }.task.op()
}

unsafe fn submitted<A: Task>(storage: *mut InlineStorage) {
    // SAFETY: guaranteed by the caller.
    unsafe { running::<A>(storage) }.task.submitted();
}

unsafe fn step<A: Task>(storage: *mut InlineStorage, result: Result<usize, i32>) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { running::<A>(storage) }.step(result)
}

/// # Safety
///
/// `storage` holds a `W`, and nothing else uses it during the call.
unsafe fn run_closure<W: FnOnce() -> T, T>(storage: *mut InlineStorage) {
    // SAFETY: guaranteed by the caller.
    let work = unsafe { InlineStorage::take::<W>(storage) };
    let result: thread::Result<T> = catch_unwind(AssertUnwindSafe(work));
    // SAFETY: the storage is empty now, and the caller guarantees exclusive access.
    unsafe { InlineStorage::put(storage, result) }
}

/// # Safety
///
/// `storage` holds a `V`, and nothing else uses it.
unsafe fn drop_stored<V>(storage: *mut InlineStorage) {
    // SAFETY: guaranteed by the caller.
    contain(|| unsafe { InlineStorage::drop_value::<V>(storage) });
}

// The states of a job. The state decides which thread may use the storage.
const QUEUED: u8 = 0;
const RUNNING: u8 = 1;
const DONE: u8 = 2;
const CANCELLED: u8 = 3;
const LENT: u8 = 4;
const SUBMITTED: u8 = 5;

struct Block {
    state: AtomicU8,
    /// The number of holders: the loop, the pool.
    holders: AtomicU8,
    /// The next job in an [`MpscStack`](super::mpsc_stack::MpscStack).
    next: AtomicPtr<Block>,
    kind: UnsafeCell<WorkKind>,
    short: UnsafeCell<bool>,
    request: UnsafeCell<Token>,
    vtable: UnsafeCell<&'static VTable>,
    storage: UnsafeCell<InlineStorage>,
    /// Of the loop that allocated the block, or of none; it never changes.
    completions: Arc<CompletionQueue>,
}

/// A pointer to a job. It is not reference-counted: a holder releases the job explicitly.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Job(NonNull<Block>);

// SAFETY: `fill` and `fill_with_task` accept only `Send` closures, results and tasks. The atomic
// `state` decides which thread may use the storage.
unsafe impl Send for Job {}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Job").field(&self.0).finish()
    }
}

/// The outcome of a job with a closure.
pub(crate) enum Outcome<T> {
    Returned(T),
    Panicked(Box<dyn Any + Send>),
    Cancelled,
}

impl Job {
    /// Allocates an empty job.
    pub(crate) fn allocate(completions: &Arc<CompletionQueue>) -> Job {
        const EMPTY: VTable = VTable::of_closure::<fn(), ()>();
        let block = Block {
            state: AtomicU8::new(CANCELLED),
            holders: AtomicU8::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            kind: UnsafeCell::new(WorkKind::Cpu),
            short: UnsafeCell::new(false),
            request: UnsafeCell::new(Token::new(0, 0)),
            vtable: UnsafeCell::new(&EMPTY),
            storage: UnsafeCell::new(InlineStorage::empty()),
            completions: Arc::clone(completions),
        };
        Job(NonNull::from(Box::leak(Box::new(block))))
    }

    fn block(&self) -> &Block {
        // SAFETY: only holders have a `Job`, and a holder keeps the block allocated.
        unsafe { self.0.as_ref() }
    }

    /// Stores a closure in a job without other holders. The loop and the pool hold it from now on.
    pub(crate) fn fill<W, T>(&self, kind: WorkKind, request: Token, work: W)
    where
        W: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.fill_with(kind, request, work, const { &VTable::of_closure::<W, T>() });
        self.queue();
    }

    /// Stores a task in a job without other holders. The caller [queues](Job::queue) it or
    /// [completes](Job::try_complete) it next.
    pub(crate) fn fill_with_task<A: Task>(&self, request: Token, task: A) {
        let vtable = const { &VTable::of_task::<A>() };
        self.fill_with(WorkKind::Cpu, request, Running::new(task), vtable);
    }

    /// Stores a task as [`fill_with_task`](Job::fill_with_task), for the backend. Returns the
    /// operation to submit, or `None` if no operation performs the task.
    pub(crate) fn fill_and_lend<A: Task>(&self, request: Token, task: A) -> Option<Op> {
        self.fill_with_task(request, task);
        // SAFETY: the storage holds such a task, and the loop is the only holder.
        let op = unsafe { op::<A>(self.block().storage.get()) }?;
        self.block().holders.store(1, Ordering::Relaxed);
        self.block().state.store(LENT, Ordering::Relaxed);
        Some(op)
    }

    #[inline]
    fn fill_with<V>(&self, kind: WorkKind, request: Token, value: V, vtable: &'static VTable) {
        let block = self.block();
        debug_assert_eq!(block.holders.load(Ordering::Relaxed), 0);
        // SAFETY: the block has no holder but the caller.
        unsafe { *block.kind.get() = kind };
        // SAFETY: the block has no holder but the caller.
        unsafe { *block.request.get() = request };
        // SAFETY: the block has no holder but the caller.
        unsafe { *block.vtable.get() = vtable };
        // SAFETY: the block has no holder but the caller, and its storage is empty.
        unsafe { InlineStorage::put(block.storage.get(), value) };
    }

    /// Prepares the job for the pool: from now on the loop and the pool hold it.
    pub(crate) fn queue(&self) {
        let block = self.block();
        // SAFETY: `vtable` matches the stored value, and no worker has the job yet.
        let short = unsafe { (self.vtable().is_short)(block.storage.get()) };
        // SAFETY: no worker has the job yet, and the queue reads this later.
        unsafe { *block.short.get() = short };
        block.holders.store(2, Ordering::Relaxed);
        // The pool's mutex or its submission queue publishes these writes to the worker.
        block.state.store(QUEUED, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.block().state.load(Ordering::Relaxed) == CANCELLED
    }

    /// For the loop: performs the task if that does not block. If it is true, the task is complete
    /// and the loop is the only holder.
    pub(crate) fn try_complete(&self) -> bool {
        // SAFETY: `vtable` matches the stored value, and no worker has the job yet.
        let done = unsafe { (self.vtable().try_run)(self.block().storage.get()) };
        if done {
            self.set_done();
        }
        done
    }

    /// Marks the task as complete, with the loop as the only holder.
    fn set_done(&self) {
        self.block().holders.store(1, Ordering::Relaxed);
        self.block().state.store(DONE, Ordering::Relaxed);
    }

    /// The operation that performs the task, or its next part. Its memory stays valid as long as
    /// the task is in the job.
    pub(crate) fn op(&self) -> Option<Op> {
        // SAFETY: `vtable` matches the stored value, and no worker has the job yet.
        unsafe { (self.vtable().op)(self.block().storage.get()) }
    }

    /// The backend has accepted the operation.
    pub(crate) fn submitted(&self) {
        self.block().state.store(SUBMITTED, Ordering::Relaxed);
        // SAFETY: `vtable` matches the stored value, and the loop is the only holder.
        unsafe { (self.vtable().submitted)(self.block().storage.get()) }
    }

    /// Passes the result of an operation to the task. True if the task is complete.
    pub(crate) fn step(&self, result: Result<usize, i32>) -> bool {
        // SAFETY: `vtable` matches the stored value, and the loop is the only holder.
        unsafe { (self.vtable().step)(self.block().storage.get(), result) }
    }

    /// Completes the task with this error: neither a pool nor the backend can perform it.
    pub(crate) fn fail(&self, code: i32) {
        self.step(Err(code));
        self.set_done();
    }

    /// For the loop, after the job was returned, cancelled or performed: moves the task out.
    ///
    /// # Safety
    ///
    /// `A` is the type that the job was filled with; called once.
    pub(crate) unsafe fn take_task<A: Task>(&self) -> Running<A> {
        // Acquires the writes of the worker that has run the task, if one has.
        self.block().state.load(Ordering::Acquire);
        // SAFETY: the storage holds a `Running<A>` by the caller's guarantee, and neither a worker
        // nor the backend uses it any more.
        unsafe { InlineStorage::take(self.block().storage.get()) }
    }

    pub(crate) fn kind(&self) -> WorkKind {
        // SAFETY: written only by `fill_with`, when the block has no other holder.
        unsafe { *self.block().kind.get() }
    }

    /// True if [`try_run`](Job::try_run) takes only a few microseconds.
    pub(crate) fn is_short(&self) -> bool {
        // SAFETY: written only by `queue`, before the pool has the job.
        unsafe { *self.block().short.get() }
    }

    pub(crate) fn request(&self) -> Token {
        // SAFETY: written only by `fill_with`, when the block has no other holder.
        unsafe { *self.block().request.get() }
    }

    fn vtable(&self) -> &'static VTable {
        // SAFETY: written only by `fill_with`, when the block has no other holder.
        unsafe { *self.block().vtable.get() }
    }

    /// The completion queue of the loop that the job belongs to, or of jobs without one.
    pub(crate) fn completions(&self) -> &Arc<CompletionQueue> {
        &self.block().completions
    }

    /// The next job in a stack; meaningless outside of one.
    pub(super) fn next(&self) -> Option<Job> {
        NonNull::new(self.block().next.load(Ordering::Relaxed)).map(Job)
    }

    pub(super) fn set_next(&self, next: Option<Job>) {
        let next = next.map_or(ptr::null_mut(), |job| job.0.as_ptr());
        self.block().next.store(next, Ordering::Relaxed);
    }

    /// The pointer that the head of a stack stores.
    pub(super) fn into_raw(self) -> *mut () {
        self.0.as_ptr().cast()
    }

    /// The reverse of [`into_raw`](Job::into_raw); `None` for null.
    pub(super) fn from_raw(raw: *mut ()) -> Option<Job> {
        NonNull::new(raw).map(|block| Job(block.cast()))
    }

    /// For a worker that has taken the job from the queue: starts it. False if it was cancelled;
    /// then the worker no longer holds it.
    pub(crate) fn start(self) -> bool {
        let (state, after) = (&self.block().state, Ordering::Acquire);
        let started = state.compare_exchange(QUEUED, RUNNING, Ordering::AcqRel, after).is_ok();
        if !started {
            self.release();
        }
        started
    }

    /// For the worker that has started the job: runs it.
    pub(crate) fn run(&self) {
        // SAFETY: the stored value has not run, and in state RUNNING only this worker uses it.
        unsafe { (self.vtable().run)(self.block().storage.get()) };
        self.block().state.store(DONE, Ordering::Release);
    }

    /// For the worker that has started the job: runs it if that does not block. If it is false,
    /// the job is still to be run.
    pub(crate) fn try_run(&self) -> bool {
        // SAFETY: the stored value has not run, and in state RUNNING only this worker uses it.
        let done = unsafe { (self.vtable().try_run)(self.block().storage.get()) };
        if done {
            self.block().state.store(DONE, Ordering::Release);
        }
        done
    }

    /// For the loop: cancels the job if it has not started.
    pub(crate) fn cancel(&self) -> bool {
        let block = self.block();
        let from = |state| {
            block.state.compare_exchange(state, CANCELLED, Ordering::AcqRel, Ordering::Acquire)
        };
        let cancelled = from(QUEUED).is_ok() || from(LENT).is_ok();
        if cancelled {
            // SAFETY: the stored value has not run, and in state CANCELLED no worker uses it.
            unsafe { (self.vtable().cancel)(block.storage.get()) };
        }
        cancelled
    }

    /// For the loop in a forked child, where no thread will run the job: makes it impossible to
    /// cancel. False if the backend has accepted it and will complete it.
    pub(crate) fn abandon_after_fork(&self) -> bool {
        let state = &self.block().state;
        match state.load(Ordering::Relaxed) {
            SUBMITTED => return false,
            LENT => state.store(CANCELLED, Ordering::Relaxed),
            // A thread of the parent may have been using the captures: they are leaked.
            QUEUED => state.store(RUNNING, Ordering::Relaxed),
            _ => {}
        }
        true
    }

    /// For a loop whose backend was dropped: cancels a job that the backend had accepted.
    pub(crate) fn abandon(&self) -> bool {
        let block = self.block();
        let (before, after) = (SUBMITTED, CANCELLED);
        block.state.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// For the loop, after the job was returned or cancelled: moves the outcome out.
    ///
    /// # Safety
    ///
    /// `T` is the result type that the job was filled with; called once.
    pub(crate) unsafe fn take_outcome<T>(&self) -> Outcome<T> {
        match self.block().state.load(Ordering::Acquire) {
            DONE => {
                // SAFETY: in state DONE the storage holds a result, of that type by the caller's
                // guarantee, and the worker no longer uses it.
                match unsafe {
                    InlineStorage::take::<thread::Result<T>>(self.block().storage.get())
                } {
                    Ok(value) => Outcome::Returned(value),
                    Err(panic) => Outcome::Panicked(panic),
                }
            }
            _ => Outcome::Cancelled,
        }
    }

    /// For the loop: drops the stored value of a job that was returned or cancelled and whose
    /// request is gone.
    pub(crate) fn drop_result(&self) {
        let drop = match self.block().state.load(Ordering::Acquire) {
            DONE => self.vtable().drop_done,
            CANCELLED => self.vtable().drop_cancelled,
            _ => return,
        };
        // SAFETY: in these states the storage holds the value that the function drops, and no
        // worker uses it.
        unsafe { drop(self.block().storage.get()) };
    }

    /// For a worker that returns the job: from now on the loop is the only holder.
    pub(crate) fn mark_returned(&self) {
        self.block().holders.store(1, Ordering::Relaxed);
    }

    /// For the loop: releases a job with empty storage. True if it may be reused, false if the pool
    /// still holds it and will free it.
    pub(crate) fn release_from_loop(&self) -> bool {
        let holders = &self.block().holders;
        // No holder can be added, so an only holder needs no read-modify-write. Most jobs were
        // returned and have one.
        if holders.load(Ordering::Acquire) == 1 {
            holders.store(0, Ordering::Relaxed);
            return true;
        }
        holders.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Releases the job; frees the block if it has no other holder.
    fn release(self) {
        if self.block().holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.free();
        }
    }

    /// Frees a job with empty storage and no other holder.
    pub(crate) fn free(self) {
        // SAFETY: `allocate` made the pointer by `Box::leak`, and the caller is the last holder.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
