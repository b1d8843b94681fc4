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

use poll_core::Token;

use super::home::Home;
use super::queue::Lane;

/// Where a closure or its result lives: twelve words.
type Room = MaybeUninit<[usize; 12]>;

/// True if a `V` lives in the room itself; else its box does.
const fn fits<V>() -> bool {
    size_of::<V>() <= size_of::<Room>() && align_of::<V>() <= align_of::<Room>()
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

/// What can be done with a job whose types are forgotten.
struct Deeds {
    /// Replaces the closure by its result.
    run: unsafe fn(*mut Room),
    drop_closure: unsafe fn(*mut Room),
    drop_result: unsafe fn(*mut Room),
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

struct Block {
    state: AtomicU8,
    /// How many hold it: the loop, the pool.
    holders: AtomicU8,
    /// The next in the list of those handed back.
    next: AtomicPtr<Block>,
    lane: UnsafeCell<Lane>,
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
        const NOTHING: Deeds = Deeds {
            run: drop_in_room::<()>,
            drop_closure: drop_in_room::<()>,
            drop_result: drop_in_room::<()>,
        };
        let block = Block {
            state: AtomicU8::new(CANCELLED),
            holders: AtomicU8::new(0),
            next: AtomicPtr::new(ptr::null_mut()),
            lane: UnsafeCell::new(Lane::Cpu),
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
        let block = self.block();
        debug_assert_eq!(block.holders.load(Ordering::Relaxed), 0);
        // SAFETY: nobody else holds the block.
        unsafe { *block.lane.get() = lane };
        // SAFETY: nobody else holds the block.
        unsafe { *block.request.get() = request };
        let deeds = const {
            &Deeds {
                run: run::<W, T>,
                drop_closure: drop_in_room::<W>,
                drop_result: drop_in_room::<thread::Result<T>>,
            }
        };
        // SAFETY: nobody else holds the block.
        unsafe { *block.deeds.get() = deeds };
        // SAFETY: nobody else holds the block, and the room is empty.
        unsafe { put(block.room.get(), work) };
        block.holders.store(2, Ordering::Relaxed);
        // The queue's lock publishes all this to the worker.
        block.state.store(QUEUED, Ordering::Relaxed);
    }

    pub(crate) fn lane(&self) -> Lane {
        // SAFETY: written only by `fill`, when nobody else holds the block.
        unsafe { *self.block().lane.get() }
    }

    pub(crate) fn request(&self) -> Token {
        // SAFETY: written only by `fill`, when nobody else holds the block.
        unsafe { *self.block().request.get() }
    }

    fn deeds(&self) -> &'static Deeds {
        // SAFETY: written only by `fill`, when nobody else holds the block.
        unsafe { *self.block().deeds.get() }
    }

    /// For a worker that has taken it from the queue: runs it and hands it back, or lets
    /// go of it if it was cancelled. Returns whether it ran.
    pub(crate) fn run_and_hand_back(self) -> bool {
        let block = self.block();
        let taken =
            block.state.compare_exchange(QUEUED, RUNNING, Ordering::AcqRel, Ordering::Acquire);
        if taken.is_err() {
            self.let_go();
            return false;
        }
        // SAFETY: the room holds the closure; while RUNNING it is the worker's alone.
        unsafe { (self.deeds().run)(block.room.get()) };
        block.state.store(DONE, Ordering::Release);
        Home::hand_back(&Arc::clone(&block.home), self);
        true
    }

    /// For the loop: prevents it from running, if it has not begun.
    pub(crate) fn cancel(&self) -> bool {
        let block = self.block();
        let cancelled =
            block.state.compare_exchange(QUEUED, CANCELLED, Ordering::AcqRel, Ordering::Acquire);
        if cancelled.is_ok() {
            // SAFETY: the room holds the closure, and no worker touches it any more.
            unsafe { (self.deeds().drop_closure)(block.room.get()) };
        }
        cancelled.is_ok()
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

    /// For the loop: drops what is in a job that was handed back and that nobody asks about.
    pub(crate) fn drop_result(&self) {
        if self.block().state.load(Ordering::Acquire) == DONE {
            // SAFETY: the room holds the result; the worker is done with it.
            unsafe { (self.deeds().drop_result)(self.block().room.get()) };
        }
    }

    /// The pool no longer holds a job that it hands back: the loop is the last holder.
    pub(crate) fn handed_back(&self) {
        self.block().holders.store(1, Ordering::Relaxed);
    }

    /// For the loop: gives the job up, its room empty. True if it may be filled again,
    /// false if the pool still holds it and will free it.
    pub(crate) fn give_up(&self) -> bool {
        self.block().holders.fetch_sub(1, Ordering::AcqRel) == 1
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

    /// Pushes onto a list whose head is `head`. True if the list was empty.
    pub(crate) fn push(self, head: &AtomicPtr<()>) -> bool {
        let mut first = head.load(Ordering::Relaxed);
        loop {
            self.block().next.store(first.cast(), Ordering::Relaxed);
            let new = self.0.as_ptr().cast();
            match head.compare_exchange_weak(first, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return first.is_null(),
                Err(now) => first = now,
            }
        }
    }

    /// Takes a list whole and appends it to `jobs`, last pushed first.
    pub(crate) fn take_list(head: &AtomicPtr<()>, jobs: &mut Vec<Job>) {
        let mut next = head.swap(ptr::null_mut(), Ordering::AcqRel).cast::<Block>();
        while let Some(block) = NonNull::new(next) {
            let job = Job(block);
            next = job.block().next.load(Ordering::Relaxed);
            jobs.push(job);
        }
    }
}
