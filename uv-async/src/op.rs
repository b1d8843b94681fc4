//! Requests of the loop as futures.
//!
//! The callback of a request and its future share an [`OpCell`]. Cells are recycled by their type,
//! so that a request allocates nothing in a steady state.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use uv_core::Loop;
use uv_core::poll_core::Backend;

use crate::Rt;

/// The number of unused cells of one type that are kept.
const MAX_KEPT: usize = 1024;

/// What a callback leaves for a future.
pub(crate) struct OpCell<T> {
    waiting: Cell<Waiting>,
    result: Cell<Option<T>>,
}

/// What to wake when a result is there.
#[derive(Debug, Default)]
pub(crate) enum Waiting {
    #[default]
    Nothing,
    /// A task of this runtime.
    Task(u32),
    Waker(Waker),
    /// All of these: each may be gone when the result is there.
    All(Vec<Waiting>),
}

impl Waiting {
    /// The task that is polled with `cx`.
    pub(crate) fn for_context<B: Backend>(rt: &Rt<B>, cx: &Context<'_>) -> Waiting {
        match rt.current_task(cx.waker()) {
            Some(id) => Waiting::Task(id),
            None => Waiting::Waker(cx.waker().clone()),
        }
    }

    /// True if both wake the same.
    pub(crate) fn is_same(&self, other: &Waiting) -> bool {
        match (self, other) {
            (Waiting::Task(one), Waiting::Task(other)) => one == other,
            (Waiting::Waker(one), Waiting::Waker(other)) => one.will_wake(other),
            _ => false,
        }
    }

    /// These and another one.
    fn and(self, other: Waiting) -> Waiting {
        match self {
            Waiting::Nothing => other,
            Waiting::All(mut all) => {
                if !all.iter().any(|one| one.is_same(&other)) {
                    all.push(other);
                }
                Waiting::All(all)
            }
            one if one.is_same(&other) => other,
            one => Waiting::All(vec![one, other]),
        }
    }

    pub(crate) fn wake<B: Backend>(self, rt: &Rt<B>, lp: &mut Loop<B>) {
        match self {
            Waiting::Nothing => {}
            Waiting::Task(id) => rt.wake_task(lp, id),
            Waiting::Waker(waker) => rt.enter(lp, || waker.wake()),
            Waiting::All(all) => all.into_iter().for_each(|one| one.wake(rt, lp)),
        }
    }

    /// As [`wake`](Waiting::wake), without the loop.
    pub(crate) fn wake_later<B: Backend>(self, rt: &Rt<B>) {
        match self {
            Waiting::Nothing => {}
            Waiting::Task(id) => rt.wake_task_later(id),
            Waiting::Waker(waker) => waker.wake(),
            Waiting::All(all) => all.into_iter().for_each(|one| one.wake_later(rt)),
        }
    }
}

impl<T> Default for OpCell<T> {
    fn default() -> OpCell<T> {
        OpCell { waiting: Cell::default(), result: Cell::new(None) }
    }
}

/// Unused cells by their type.
#[derive(Default)]
pub(crate) struct CellPool(RefCell<Vec<CellsOf>>);

/// The unused cells of one type.
type CellsOf = (TypeId, Vec<Rc<dyn Any>>);

impl CellPool {
    fn take<T: 'static>(&self) -> Rc<OpCell<T>> {
        let mut pool = self.0.borrow_mut();
        let cells = pool.iter_mut().find(|(id, _)| *id == TypeId::of::<T>());
        let cell = cells.and_then(|(_, cells)| cells.pop()?.downcast().ok());
        cell.unwrap_or_default()
    }

    /// Keeps a cell that is not shared any more.
    fn put<T: 'static>(&self, cell: Rc<OpCell<T>>) {
        if Rc::strong_count(&cell) > 1 {
            return;
        }
        drop((cell.waiting.take(), cell.result.take()));
        let mut pool = self.0.borrow_mut();
        let at = pool.iter().position(|(id, _)| *id == TypeId::of::<T>());
        let at = at.unwrap_or_else(|| {
            pool.push((TypeId::of::<T>(), Vec::new()));
            pool.len() - 1
        });
        if pool[at].1.len() < MAX_KEPT {
            pool[at].1.push(cell);
        }
    }
}

/// A result that exists even if the callback of a request is dropped without a call: with the
/// loop, for example.
pub(crate) trait OrLost: 'static {
    fn lost() -> Self;
}

impl<T: 'static> OrLost for io::Result<T> {
    fn lost() -> io::Result<T> {
        Err(lost())
    }
}

impl OrLost for () {
    fn lost() {}
}

/// The error of a request whose loop is gone.
pub(crate) fn lost() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the loop is gone")
}

/// The callback's side of a request: two words.
pub(crate) struct Completer<B: Backend, T: OrLost> {
    rt: Rt<B>,
    cell: Option<Rc<OpCell<T>>>,
}

impl<B: Backend, T: OrLost> Completer<B, T> {
    /// Leaves the result and wakes the future. If that is gone, the result is returned.
    pub(crate) fn complete(mut self, lp: &mut Loop<B>, result: T) -> Option<T> {
        let cell = self.cell.take()?;
        if Rc::strong_count(&cell) == 1 {
            self.rt.cells().put(cell);
            return Some(result);
        }
        cell.result.set(Some(result));
        cell.waiting.take().wake(&self.rt, lp);
        None
    }
}

impl<B: Backend, T: OrLost> Completer<B, T> {
    /// As [`complete`](Completer::complete), without the loop.
    pub(crate) fn leave(mut self, result: T) {
        self.leave_with(|| result);
    }

    fn leave_with(&mut self, result: impl FnOnce() -> T) {
        if let Some(cell) = self.cell.take() {
            if Rc::strong_count(&cell) == 1 {
                return self.rt.cells().put(cell); // The future is gone too.
            }
            cell.result.set(Some(result()));
            cell.waiting.take().wake_later(&self.rt);
        }
    }
}

impl<B: Backend, T: OrLost> Drop for Completer<B, T> {
    fn drop(&mut self) {
        self.leave_with(T::lost);
    }
}

/// The future's side of a request.
pub(crate) struct Op<B: Backend, T: OrLost> {
    rt: Rt<B>,
    cell: Option<Rc<OpCell<T>>>,
}

impl<B: Backend> Rt<B> {
    /// Both sides of a request.
    pub(crate) fn op<T: OrLost>(&self) -> (Completer<B, T>, Op<B, T>) {
        let cell = self.cells().take();
        let completer = Completer { rt: self.clone(), cell: Some(Rc::clone(&cell)) };
        (completer, Op { rt: self.clone(), cell: Some(cell) })
    }
}

impl<B: Backend, T: OrLost> Op<B, T> {
    /// True until the result was taken.
    pub(crate) fn is_pending(&self) -> bool {
        self.cell.is_some()
    }

    /// Moves the future's side out, for a call that is deferred.
    pub(crate) fn detach(&mut self) -> Op<B, T> {
        Op { rt: self.rt.clone(), cell: self.cell.take() }
    }

    /// The result, if it is there.
    pub(crate) fn take(&mut self) -> Option<T> {
        let result = self.cell.as_ref()?.result.take()?;
        if let Some(cell) = self.cell.take() {
            self.rt.cells().put(cell);
        }
        Some(result)
    }

    /// As `poll`, for several tasks that wait for one request: all of them are woken, and one gets
    /// the result.
    pub(crate) fn poll_shared(&mut self, cx: &Context<'_>) -> Poll<T> {
        if let Some(result) = self.take() {
            return Poll::Ready(result);
        }
        if let Some(cell) = &self.cell {
            cell.waiting.set(cell.waiting.take().and(Waiting::for_context(&self.rt, cx)));
        }
        Poll::Pending
    }
}

impl<B: Backend, T: OrLost> Future for Op<B, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        if let Some(result) = self.take() {
            return Poll::Ready(result);
        }
        if let Some(cell) = &self.cell {
            cell.waiting.set(Waiting::for_context(&self.rt, cx));
        }
        Poll::Pending
    }
}

impl<B: Backend, T: OrLost> Drop for Op<B, T> {
    fn drop(&mut self) {
        if let Some(cell) = self.cell.take() {
            self.rt.cells().put(cell);
        }
    }
}

impl<B: Backend, T: OrLost> fmt::Debug for Op<B, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Op").field("pending", &self.is_pending()).finish_non_exhaustive()
    }
}
