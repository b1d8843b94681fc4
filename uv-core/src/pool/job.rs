//! A job: the memory that carries a closure to a worker and its result back.
//!
//! Jobs are blocks of fixed size that a loop uses again and again. A block holds the
//! closure until it has run, then its result; what does not fit is boxed.
//!
//! ```text
//!             a worker takes it            has run it
//!   QUEUED ───────────────────▶ RUNNING ─────────────▶ DONE     the room holds the result
//!     │ the loop cancels it
//!     └───────────────────────▶ CANCELLED                       the room is empty
//! ```
//!
//! Two hold a job: the loop whose request it is, and the pool until it has been taken
//! from the queue and handed back. The last to let go frees it, or uses it again.
//!
//! A job that is a [`Task`] keeps it in its room all the time, whatever its state. Instead of
//! the pool the backend may perform it; then the loop alone holds the job:
//!
//! ```text
//!             the backend takes it
//!   LENT ───────────────────────▶ SUBMITTED ──▶ (the loop takes the task out)
//! ```

#![allow(unsafe_code)]

use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use std::thread;

use poll_core::{Op, Token};

use super::home::Home;
use super::queue::Lane;
use super::task::{Running, Task};

/// Where a closure or its result lives, or a task: as large as one that asks about a file.
type Room = MaybeUninit<[u64; 55]>;

/// True if a `V` lives in the room itself; else its box does.
const fn fits<V>() -> bool {
    size_of::<V>() <= size_of::<Room>() && align_of::<V>() <= align_of::<Room>()
}

/// True if such a task costs no allocation.
pub(crate) const fn fits_task<A: Task>() -> bool {
    fits::<Running<A>>()
}

/// Puts a value into an empty room.
///
/// # Safety
///
/// `room` is valid and nobody else uses it.
unsafe fn put<V>(room: *mut Room, value: V) {
    if fits::<V>() {
        // SAFETY: it fits; the caller's promise.
        unsafe { room.cast::<V>().write(value) }
    } else {
        // SAFETY: a pointer fits; the caller's promise.
        unsafe { room.cast::<Box<V>>().write(Box::new(value)) }
    }
}

/// Takes the value out of a room.
///
/// # Safety
///
/// `room` is valid, holds a `V` that [`put`] put there, and nobody else uses it.
unsafe fn take<V>(room: *mut Room) -> V {
    if fits::<V>() {
        // SAFETY: the caller's promise.
        unsafe { room.cast::<V>().read() }
    } else {
        // SAFETY: the caller's promise.
        *unsafe { room.cast::<Box<V>>().read() }
    }
}

/// Where the value in a room is.
///
/// # Safety
///
/// `room` is valid and holds a `V` that [`put`] put there.
unsafe fn place<V>(room: *mut Room) -> *mut V {
    if fits::<V>() {
        return room.cast();
    }
    // SAFETY: the caller's promise: a box of a `V` is in the room.
    unsafe { room.cast::<*mut V>().read() }
}

/// What can be done with a job whose types are forgotten.
struct Deeds {
    /// Replaces the closure by its result; does the task.
    run: unsafe fn(*mut Room),
    /// Drops the closure; leaves the task.
    cancel: unsafe fn(*mut Room),
    /// Drops what is left in the room, after the job has run or if it never will.
    drop_done: unsafe fn(*mut Room),
    drop_undone: unsafe fn(*mut Room),
    at_once: unsafe fn(*mut Room) -> bool,
    is_brief: unsafe fn(*mut Room) -> bool,
    op: unsafe fn(*mut Room) -> Option<Op>,
    submitted: unsafe fn(*mut Room),
    step: unsafe fn(*mut Room, Result<usize, i32>) -> bool,
}

impl Deeds {
    /// Those of a closure that no backend performs.
    const fn of_closure<W: FnOnce() -> T, T>() -> Deeds {
        Deeds {
            run: run::<W, T>,
            cancel: drop_in_room::<W>,
            drop_done: drop_in_room::<thread::Result<T>>,
            drop_undone: leave,
            at_once: never,
            is_brief: never,
            op: no_op,
            submitted: leave,
            step: no_step,
        }
    }

    const fn of_task<A: Task>() -> Deeds {
        Deeds {
            run: run_task::<A>,
            cancel: leave,
            drop_done: drop_in_room::<Running<A>>,
            drop_undone: drop_in_room::<Running<A>>,
            at_once: at_once::<A>,
            is_brief: is_brief::<A>,
            op: op::<A>,
            submitted: submitted::<A>,
            step: step::<A>,
        }
    }
}

/// Does nothing.
unsafe fn leave(_room: *mut Room) {}

unsafe fn never(_room: *mut Room) -> bool {
    false
}

unsafe fn no_op(_room: *mut Room) -> Option<Op> {
    None
}

unsafe fn no_step(_room: *mut Room, _result: Result<usize, i32>) -> bool {
    true
}

/// # Safety
///
/// The room holds a `Running<A>`, and is the caller's alone. So for the next five.
unsafe fn run_task<A: Task>(room: *mut Room) {
    // SAFETY: the caller's promise.
    let running = unsafe { place::<Running<A>>(room) };
    // SAFETY: the caller's promise.
    unsafe { &mut *running }.run();
}

unsafe fn at_once<A: Task>(room: *mut Room) -> bool {
    // SAFETY: the caller's promise.
    let running = unsafe { place::<Running<A>>(room) };
    // SAFETY: the caller's promise.
    unsafe { &mut *running }.at_once()
}

unsafe fn is_brief<A: Task>(room: *mut Room) -> bool {
    // SAFETY: the caller's promise.
    let running = unsafe { place::<Running<A>>(room) };
    // SAFETY: the caller's promise.
    unsafe { &*running }.task.is_brief()
}

unsafe fn op<A: Task>(room: *mut Room) -> Option<Op> {
    // SAFETY: the caller's promise.
    let running = unsafe { place::<Running<A>>(room) };
    // SAFETY: the caller's promise.
    unsafe { &mut *running }.task.op()
}

unsafe fn submitted<A: Task>(room: *mut Room) {
    // SAFETY: the caller's promise.
    let running = unsafe { place::<Running<A>>(room) };
    // SAFETY: the caller's promise.
    unsafe { &mut *running }.task.submitted();
}

unsafe fn step<A: Task>(room: *mut Room, result: Result<usize, i32>) -> bool {
    // SAFETY: the caller's promise.
    let running = unsafe { place::<Running<A>>(room) };
    // SAFETY: the caller's promise.
    unsafe { &mut *running }.step(result)
}

/// # Safety
///
/// The room holds a `W`, and is the caller's alone.
unsafe fn run<W: FnOnce() -> T, T>(room: *mut Room) {
    // SAFETY: the caller's promise.
    let work = unsafe { take::<W>(room) };
    let result: thread::Result<T> = catch_unwind(AssertUnwindSafe(work));
    // SAFETY: the room is empty now.
    unsafe { put(room, result) }
}

/// # Safety
///
/// The room holds a `V`, and is the caller's alone.
unsafe fn drop_in_room<V>(room: *mut Room) {
    // SAFETY: the caller's promise.
    drop(unsafe { take::<V>(room) })
}

const QUEUED: u8 = 0;
const RUNNING: u8 = 1;
const DONE: u8 = 2;
const CANCELLED: u8 = 3;
const LENT: u8 = 4;
const SUBMITTED: u8 = 5;

struct Block {
    state: AtomicU8,
    /// How many hold it: the loop, the pool.
    holders: AtomicU8,
    /// The next in the list of those handed back.
    next: AtomicPtr<Block>,
    lane: UnsafeCell<Lane>,
    brief: UnsafeCell<bool>,
    request: UnsafeCell<Token>,
    deeds: UnsafeCell<&'static Deeds>,
    room: UnsafeCell<Room>,
    /// Where it is handed back to. A block belongs to one loop for life.
    home: Arc<Home>,
}

/// A job, held by whoever has this. Not counted: each holder lets go in its own way.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Job(NonNull<Block>);

// SAFETY: what a job carries from thread to thread, its closure and its result, is `Send`;
// who may touch the room is a matter of `state`, which is atomic.
unsafe impl Send for Job {}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Job").field(&self.0).finish()
    }
}

/// How a job ended.
pub(crate) enum Ending<T> {
    Returned(T),
    Panicked(Box<dyn Any + Send>),
    Cancelled,
}

impl Job {
    /// A job with nothing in it.
    pub(crate) fn allocate(home: &Arc<Home>) -> Job {
        const NOTHING: Deeds = Deeds::of_closure::<fn(), ()>();
        let block = Block {
            state: AtomicU8::new(CANCELLED),
            holders: AtomicU8::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            lane: UnsafeCell::new(Lane::Cpu),
            brief: UnsafeCell::new(false),
            request: UnsafeCell::new(Token::new(0, 0)),
            deeds: UnsafeCell::new(&NOTHING),
            room: UnsafeCell::new(Room::uninit()),
            home: Arc::clone(home),
        };
        Job(NonNull::from(Box::leak(Box::new(block))))
    }

    fn block(&self) -> &Block {
        // SAFETY: a holder keeps the block alive, and only holders have a `Job`.
        unsafe { self.0.as_ref() }
    }

    /// Fills a job that nobody else holds, for the loop and the pool to hold.
    pub(crate) fn fill<W, T>(&self, lane: Lane, request: Token, work: W)
    where
        W: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.fill_with(lane, request, work, const { &Deeds::of_closure::<W, T>() });
        self.queue();
    }

    /// Fills a job that nobody else holds with a task, which is [queued](Job::queue) or done
    /// [at once](Job::at_once) next.
    pub(crate) fn fill_with_task<A: Task>(&self, request: Token, task: A) {
        let deeds = const { &Deeds::of_task::<A>() };
        self.fill_with(Lane::Cpu, request, Running::new(task), deeds);
    }

    /// Fills a job as [above](Job::fill_with_task), for the backend to take, which the operation
    /// is for. Without one it is not lent.
    pub(crate) fn fill_and_lend<A: Task>(&self, request: Token, task: A) -> Option<Op> {
        self.fill_with_task(request, task);
        // SAFETY: the room holds such a task, and it is the loop's alone.
        let op = unsafe { op::<A>(self.block().room.get()) }?;
        self.block().holders.store(1, Ordering::Relaxed);
        self.block().state.store(LENT, Ordering::Relaxed);
        Some(op)
    }

    #[inline]
    fn fill_with<V>(&self, lane: Lane, request: Token, value: V, deeds: &'static Deeds) {
        let block = self.block();
        debug_assert_eq!(block.holders.load(Ordering::Relaxed), 0);
        // SAFETY: nobody else holds the block.
        unsafe { *block.lane.get() = lane };
        // SAFETY: nobody else holds the block.
        unsafe { *block.request.get() = request };
        // SAFETY: nobody else holds the block.
        unsafe { *block.deeds.get() = deeds };
        // SAFETY: nobody else holds the block, and the room is empty.
        unsafe { put(block.room.get(), value) };
    }

    /// From now on the loop and the pool hold it.
    pub(crate) fn queue(&self) {
        let block = self.block();
        // SAFETY: what is in the room is what `deeds` is for, and no worker has it yet.
        let brief = unsafe { (self.deeds().is_brief)(block.room.get()) };
        // SAFETY: no worker has the job yet, and the queue asks after this.
        unsafe { *block.brief.get() = brief };
        block.holders.store(2, Ordering::Relaxed);
        // The queue's lock, or the door's list, publishes all this to the worker.
        block.state.store(QUEUED, Ordering::Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.block().state.load(Ordering::Relaxed) == CANCELLED
    }

    /// Does the task if that blocks nobody. True if it is done, and the loop alone holds it.
    pub(crate) fn at_once(&self) -> bool {
        // SAFETY: what is in the room is what `deeds` is for, and no worker has it yet.
        let done = unsafe { (self.deeds().at_once)(self.block().room.get()) };
        if done {
            self.done();
        }
        done
    }

    /// The task has an end, and the loop alone holds it.
    fn done(&self) {
        self.block().holders.store(1, Ordering::Relaxed);
        self.block().state.store(DONE, Ordering::Relaxed);
    }

    /// The operation that does the task, or its next part. What it names stays valid as long
    /// as the task is in the job.
    pub(crate) fn op(&self) -> Option<Op> {
        // SAFETY: what is in the room is what `deeds` is for, and no worker has it yet.
        unsafe { (self.deeds().op)(self.block().room.get()) }
    }

    /// The backend has taken the task.
    pub(crate) fn submitted(&self) {
        self.block().state.store(SUBMITTED, Ordering::Relaxed);
        // SAFETY: what is in the room is what `deeds` is for, and the loop's alone.
        unsafe { (self.deeds().submitted)(self.block().room.get()) }
    }

    /// The backend has performed an operation of the task. True if that was the last.
    pub(crate) fn step(&self, result: Result<usize, i32>) -> bool {
        // SAFETY: what is in the room is what `deeds` is for, and the loop's alone.
        unsafe { (self.deeds().step)(self.block().room.get(), result) }
    }

    /// Nobody can perform the task: it ends with this error.
    pub(crate) fn fail(&self, code: i32) {
        self.step(Err(code));
        self.done();
    }

    /// For the loop, when it was handed back, cancelled or performed: takes the task out.
    ///
    /// # Safety
    ///
    /// `A` is the type that the job was filled with; called once.
    pub(crate) unsafe fn take_task<A: Task>(&self) -> Running<A> {
        // The worker that ran it, if one did, has published what it did.
        self.block().state.load(Ordering::Acquire);
        // SAFETY: the room holds that type, and nobody else uses it any more.
        unsafe { take(self.block().room.get()) }
    }

    pub(crate) fn lane(&self) -> Lane {
        // SAFETY: written only by `fill`, when nobody else holds the block.
        unsafe { *self.block().lane.get() }
    }

    /// True if it takes little time, when it [blocks nobody](Job::run_at_once).
    pub(crate) fn is_brief(&self) -> bool {
        // SAFETY: written only by `queue`, before the pool has the job.
        unsafe { *self.block().brief.get() }
    }

    pub(crate) fn request(&self) -> Token {
        // SAFETY: written only by `fill`, when nobody else holds the block.
        unsafe { *self.block().request.get() }
    }

    fn deeds(&self) -> &'static Deeds {
        // SAFETY: written only by `fill`, when nobody else holds the block.
        unsafe { *self.block().deeds.get() }
    }

    /// Where it is handed back to.
    pub(crate) fn home(&self) -> &Arc<Home> {
        &self.block().home
    }

    /// The next in a list. That of a job that is in none means nothing.
    pub(super) fn next(&self) -> Option<Job> {
        NonNull::new(self.block().next.load(Ordering::Relaxed)).map(Job)
    }

    pub(super) fn set_next(&self, next: Option<Job>) {
        let next = next.map_or(ptr::null_mut(), |job| job.0.as_ptr());
        self.block().next.store(next, Ordering::Relaxed);
    }

    /// As the head of a list has it.
    pub(super) fn into_raw(self) -> *mut () {
        self.0.as_ptr().cast()
    }

    /// What [`into_raw`](Job::into_raw) gave; `None` for null.
    pub(super) fn from_raw(raw: *mut ()) -> Option<Job> {
        NonNull::new(raw).map(|block| Job(block.cast()))
    }

    /// For a worker that has taken it from the queue: false if it was cancelled, and then it
    /// is let go of.
    pub(crate) fn begin(self) -> bool {
        let (state, after) = (&self.block().state, Ordering::Acquire);
        let begun = state.compare_exchange(QUEUED, RUNNING, Ordering::AcqRel, after).is_ok();
        if !begun {
            self.let_go();
        }
        begun
    }

    /// For the worker that has begun it: runs it.
    pub(crate) fn run(&self) {
        // SAFETY: the room holds what has not run; while RUNNING it is the worker's alone.
        unsafe { (self.deeds().run)(self.block().room.get()) };
        self.block().state.store(DONE, Ordering::Release);
    }

    /// For the worker that has begun it: runs it if that blocks nobody. False if it may, and
    /// then it is still to be run.
    pub(crate) fn run_at_once(&self) -> bool {
        // SAFETY: the room holds what has not run; while RUNNING it is the worker's alone.
        let done = unsafe { (self.deeds().at_once)(self.block().room.get()) };
        if done {
            self.block().state.store(DONE, Ordering::Release);
        }
        done
    }

    /// For the loop: prevents it from running, if it has not begun.
    pub(crate) fn cancel(&self) -> bool {
        let block = self.block();
        let from = |state| {
            block.state.compare_exchange(state, CANCELLED, Ordering::AcqRel, Ordering::Acquire)
        };
        let cancelled = from(QUEUED).is_ok() || from(LENT).is_ok();
        if cancelled {
            // SAFETY: the room holds what has not run, and no worker touches it any more.
            unsafe { (self.deeds().cancel)(block.room.get()) };
        }
        cancelled
    }

    /// For the loop, in a forked child: no thread and no backend will do it, and it cannot be
    /// cancelled any more. False if the backend has taken it, which tells of its end.
    pub(crate) fn forsake(&self) -> bool {
        let state = &self.block().state;
        match state.load(Ordering::Relaxed) {
            SUBMITTED => return false,
            LENT => state.store(CANCELLED, Ordering::Relaxed),
            // What it captured may be in the middle of something: it stays where it is.
            QUEUED => state.store(RUNNING, Ordering::Relaxed),
            _ => {}
        }
        true
    }

    /// For a loop whose backend is gone: as [`cancel`](Job::cancel), for what it had taken.
    pub(crate) fn abandon(&self) -> bool {
        let block = self.block();
        let (before, after) = (SUBMITTED, CANCELLED);
        block.state.compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// For the loop, when it was handed back or cancelled: how it ended.
    ///
    /// # Safety
    ///
    /// `T` is the result type that the job was filled with; called once.
    pub(crate) unsafe fn ending<T>(&self) -> Ending<T> {
        match self.block().state.load(Ordering::Acquire) {
            DONE => {
                // SAFETY: the room holds a result of that type; the worker is done with it.
                match unsafe { take::<thread::Result<T>>(self.block().room.get()) } {
                    Ok(value) => Ending::Returned(value),
                    Err(panic) => Ending::Panicked(panic),
                }
            }
            _ => Ending::Cancelled,
        }
    }

    /// For the loop: drops what is in a job that was handed back or cancelled and that
    /// nobody asks about.
    pub(crate) fn drop_result(&self) {
        let drop = match self.block().state.load(Ordering::Acquire) {
            DONE => self.deeds().drop_done,
            CANCELLED => self.deeds().drop_undone,
            _ => return,
        };
        // SAFETY: the room holds what it is for; the worker is done with it.
        unsafe { drop(self.block().room.get()) };
    }

    /// The pool no longer holds a job that it hands back: the loop is the last holder.
    pub(crate) fn handed_back(&self) {
        self.block().holders.store(1, Ordering::Relaxed);
    }

    /// For the loop: gives the job up, its room empty. True if it may be filled again,
    /// false if the pool still holds it and will free it.
    pub(crate) fn give_up(&self) -> bool {
        let holders = &self.block().holders;
        // Nobody can join, so whoever is the only one stays it: most jobs are handed back.
        if holders.load(Ordering::Acquire) == 1 {
            holders.store(0, Ordering::Relaxed);
            return true;
        }
        holders.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Lets go; frees the block if nobody else holds it.
    fn let_go(self) {
        if self.block().holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.free();
        }
    }

    /// Frees a job that nobody else holds, its room empty.
    pub(crate) fn free(self) {
        // SAFETY: made by `Box::leak`; the caller is the last holder.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
