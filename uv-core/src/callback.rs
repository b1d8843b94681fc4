//! Closures stored in place, so that starting things again allocates nothing.
//!
//! A closure that captures up to three words lives inside its handle or request;
//! a larger one is boxed, and then the box lives there.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit, needs_drop};

use poll_core::Backend;

use crate::Loop;

/// Where a closure lives: three words.
type Room = MaybeUninit<[usize; 3]>;

/// True if an `F` may live in a [`Room`].
const fn fits<F>() -> bool {
    size_of::<F>() <= size_of::<Room>() && align_of::<F>() <= align_of::<Room>()
}

/// What a callback gets besides the loop: a type for each lifetime, so that it can lend.
pub(crate) trait Argument: 'static {
    type For<'a>;
}

/// The argument that lends nothing.
pub(crate) struct Owned<T>(PhantomData<T>);

impl<T: 'static> Argument for Owned<T> {
    type For<'a> = T;
}

/// What can be done with the closure in a room, whose type is forgotten.
struct Deeds<B: Backend, A: Argument> {
    call: unsafe fn(*mut Room, &mut Loop<B>, A::For<'_>),
    /// `None` if there is nothing to drop, as in a closure that captures keys only.
    drop: Option<unsafe fn(*mut Room)>,
}

fn move_in<F>(closure: F) -> Room {
    assert!(fits::<F>(), "a closure that does not fit is boxed before");
    let mut room = Room::uninit();
    // SAFETY: an `F` fits, by the assertion.
    unsafe { room.as_mut_ptr().cast::<F>().write(closure) };
    room
}

/// Drops the closure in a room.
///
/// # Safety
///
/// The room holds an `F`, which nobody uses afterwards.
unsafe fn drop_in_room<F>(room: *mut Room) {
    // SAFETY: the caller's promise.
    unsafe { room.cast::<F>().drop_in_place() }
}

/// How to drop an `F`, if that does anything.
const fn drop_of<F>() -> Option<unsafe fn(*mut Room)> {
    if needs_drop::<F>() { Some(drop_in_room::<F>) } else { None }
}

/// Calls the closure in a room, which keeps it.
///
/// # Safety
///
/// The room holds an `F`, which nobody else uses meanwhile.
unsafe fn call_in_room<B: Backend, A: Argument, F: FnMut(&mut Loop<B>, A::For<'_>)>(
    room: *mut Room,
    lp: &mut Loop<B>,
    argument: A::For<'_>,
) {
    // SAFETY: the caller's promise.
    let closure = unsafe { &mut *room.cast::<F>() };
    closure(lp, argument);
}

/// Calls the closure in a room, which loses it.
///
/// # Safety
///
/// The room holds an `F`, which nobody uses or drops afterwards.
unsafe fn call_out_of_room<B: Backend, A: 'static, F: FnOnce(&mut Loop<B>, A)>(
    room: *mut Room,
    lp: &mut Loop<B>,
    argument: A,
) {
    // SAFETY: the caller's promise.
    let closure = unsafe { room.cast::<F>().read() };
    closure(lp, argument);
}

/// A callback that may run many times: of a timer, a watcher, a poll.
pub(crate) type Repeated<B, T> = Lending<B, Owned<T>>;

/// A callback that may run many times, and is lent something each time.
pub(crate) struct Lending<B: Backend, A: Argument> {
    room: Room,
    deeds: &'static Deeds<B, A>,
    /// The closure need not be `Send`, so neither is this.
    not_send: PhantomData<*mut ()>,
}

impl<B: Backend, A: Argument> Lending<B, A> {
    pub(crate) fn new<F: FnMut(&mut Loop<B>, A::For<'_>) + 'static>(closure: F) -> Self {
        if fits::<F>() {
            return Self::in_place(closure);
        }
        let mut closure = Box::new(closure);
        Self::in_place(move |lp: &mut Loop<B>, argument: A::For<'_>| closure(lp, argument))
    }

    fn in_place<F: FnMut(&mut Loop<B>, A::For<'_>) + 'static>(closure: F) -> Self {
        Lending { room: move_in(closure), deeds: Self::deeds_of::<F>(), not_send: PhantomData }
    }

    #[inline]
    const fn deeds_of<F: FnMut(&mut Loop<B>, A::For<'_>) + 'static>() -> &'static Deeds<B, A> {
        const { &Deeds { call: call_in_room::<B, A, F>, drop: drop_of::<F>() } }
    }

    #[inline]
    pub(crate) fn call(&mut self, lp: &mut Loop<B>, argument: A::For<'_>) {
        // SAFETY: the room holds the closure that `deeds` was made for, and `self` is
        // borrowed for the whole call.
        unsafe { (self.deeds.call)(&mut self.room, lp, argument) }
    }
}

impl<B: Backend, A: Argument> Drop for Lending<B, A> {
    fn drop(&mut self) {
        if let Some(drop) = self.deeds.drop {
            // SAFETY: the room still holds its closure: only this takes it away.
            unsafe { drop(&mut self.room) }
        }
    }
}

/// A callback that captures nothing, and has nothing to drop: whoever has it may copy it.
pub(crate) struct Plain<B: Backend, T: 'static> {
    deeds: &'static Deeds<B, Owned<T>>,
    /// The closure need not be `Send`, so neither is this.
    not_send: PhantomData<*mut ()>,
}

impl<B: Backend, T: 'static> Plain<B, T> {
    /// The closure itself if it captures something.
    #[inline]
    pub(crate) fn new<F: FnMut(&mut Loop<B>, T) + 'static>(closure: F) -> Result<Self, F> {
        if size_of::<F>() > 0 || needs_drop::<F>() || !fits::<F>() {
            return Err(closure);
        }
        Ok(Plain { deeds: Repeated::deeds_of::<F>(), not_send: PhantomData })
    }

    #[inline]
    pub(crate) fn call(self, lp: &mut Loop<B>, argument: T) {
        // SAFETY: a room that holds nothing holds the closure, which takes no memory; nobody
        // else has this one.
        unsafe { (self.deeds.call)(&mut Room::uninit(), lp, argument) }
    }
}

impl<B: Backend, T: 'static> Clone for Plain<B, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend, T: 'static> Copy for Plain<B, T> {}

/// True only for callbacks that do the same.
impl<B: Backend, T: 'static> PartialEq for Plain<B, T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.deeds, other.deeds)
    }
}

impl<B: Backend, T: 'static> From<Plain<B, T>> for Repeated<B, T> {
    /// A room that holds nothing holds the closure: it takes no memory.
    #[inline]
    fn from(plain: Plain<B, T>) -> Self {
        Lending { room: Room::uninit(), deeds: plain.deeds, not_send: PhantomData }
    }
}

/// A callback that runs once: of a request, of a close.
pub(crate) struct Once<B: Backend, A: 'static> {
    room: Room,
    deeds: &'static Deeds<B, Owned<A>>,
    /// The closure need not be `Send`, so neither is this.
    not_send: PhantomData<*mut ()>,
}

impl<B: Backend, A: 'static> Once<B, A> {
    pub(crate) fn new<F: FnOnce(&mut Loop<B>, A) + 'static>(closure: F) -> Self {
        if fits::<F>() {
            return Self::in_place(closure);
        }
        let closure = Box::new(closure);
        Self::in_place(move |lp: &mut Loop<B>, argument| closure(lp, argument))
    }

    fn in_place<F: FnOnce(&mut Loop<B>, A) + 'static>(closure: F) -> Self {
        Once {
            room: move_in(closure),
            deeds: const { &Deeds { call: call_out_of_room::<B, A, F>, drop: drop_of::<F>() } },
            not_send: PhantomData,
        }
    }

    pub(crate) fn call(self, lp: &mut Loop<B>, argument: A) {
        let mut this = ManuallyDrop::new(self);
        let call = this.deeds.call;
        // SAFETY: the room holds the closure that `deeds` was made for; `this` is
        // neither used again nor dropped.
        unsafe { call(&mut this.room, lp, argument) }
    }
}

impl<B: Backend, A: 'static> Drop for Once<B, A> {
    fn drop(&mut self) {
        if let Some(drop) = self.deeds.drop {
            // SAFETY: the room still holds its closure: `call` never drops `self`.
            unsafe { drop(&mut self.room) }
        }
    }
}

impl<B: Backend, A: Argument> fmt::Debug for Lending<B, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lending")
    }
}

impl<B: Backend, T: 'static> fmt::Debug for Plain<B, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plain")
    }
}

impl<B: Backend, A: 'static> fmt::Debug for Once<B, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Once")
    }
}
