//! Running a loop until a future is done.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use uv_core::poll_core::Backend;
use uv_core::{Loop, RunMode};

use super::{Current, Rt};

/// Methods of loops for futures.
pub trait LoopExt<B: Backend> {
    /// Runs the loop until the future of `body` is done, and returns its value. Callbacks of the
    /// loop run meanwhile.
    ///
    /// The runtime that `body` gets ends with this call: tasks that are not done by then are
    /// dropped. [`Rt::block_on`] runs futures on a runtime that goes on. Neither the future nor
    /// its value need to be `'static`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uv_async::LoopExt;
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let mut ticks = 0;
    /// lp.block_on(async |rt| {
    ///     let mut interval = rt.interval(Duration::from_millis(1));
    ///     while ticks < 3 {
    ///         interval.tick().await;
    ///         ticks += 1;
    ///     }
    /// })?;
    /// assert_eq!(ticks, 3);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Loop::run`]: if a callback of the loop calls it, and errors of the backend.
    ///
    /// # Panics
    ///
    /// If the future panics.
    fn block_on<T>(&mut self, body: impl AsyncFnOnce(Rt<B>) -> T) -> io::Result<T>;
}

impl<B: Backend> LoopExt<B> for Loop<B> {
    fn block_on<T>(&mut self, body: impl AsyncFnOnce(Rt<B>) -> T) -> io::Result<T> {
        let rt = Rt::attach(self);
        let detach = Detach { rt: &rt, lp: self };
        let value = rt.block_on(detach.lp, body(rt.clone()));
        drop(detach);
        // Handles that the tasks had are closed when this returns, if they need no more than that.
        let closed = self.run(RunMode::NoWait);
        value.and_then(|value| closed.map(|_| value))
    }
}

/// Ends a runtime, also after a panic of the future.
struct Detach<'a, B: Backend> {
    rt: &'a Rt<B>,
    lp: &'a mut Loop<B>,
}

impl<B: Backend> Drop for Detach<'_, B> {
    fn drop(&mut self) {
        self.rt.detach(self.lp);
    }
}

impl<B: Backend> Rt<B> {
    /// As [`LoopExt::block_on`], on a runtime whose other tasks go on afterwards when the loop is
    /// run again.
    ///
    /// ```
    /// use uv_async::Rt;
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let rt = Rt::attach(&mut lp);
    /// let task = rt.spawn_local(async { "done" });
    /// assert_eq!(rt.block_on(&mut lp, task)?.unwrap(), "done");
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Loop::run`], and `BrokenPipe` on a runtime that was [detached](Rt::detach).
    ///
    /// # Panics
    ///
    /// If the future panics.
    pub fn block_on<F: Future>(&self, lp: &mut Loop<B>, future: F) -> io::Result<F::Output> {
        let mut future = pin!(Some(future));
        let (id, header) = self.0.tasks.borrow_mut().insert(&self.0.signal, None);
        self.0.roots.set(self.0.roots.get() + 1);
        let removed = RemoveRoot { rt: self, id };
        let waker = Waker::from(header);
        let value = loop {
            // As in a pass: while it is polled, wakers need not notify the loop.
            self.run_deferred(lp);
            self.update_reference(lp);
            self.take_woken();
            let polled = catch_unwind(AssertUnwindSafe(|| {
                self.enter(lp, || {
                    let before = self.0.current.replace(Some(Current::new(id, &waker)));
                    let _restored = RestoreCurrent { rt: self, before };
                    match future.as_mut().as_pin_mut() {
                        Some(future) => future.poll(&mut Context::from_waker(&waker)),
                        None => Poll::Pending,
                    }
                })
            }));
            self.end_drain(lp);
            match polled {
                Ok(Poll::Ready(value)) => break value,
                Ok(Poll::Pending) => {}
                Err(payload) => resume_unwind(payload),
            }
            // A callback that stops the loop does not end this.
            while !self.0.root_woken.replace(false) {
                if !lp.run(RunMode::Default)? && !self.0.root_woken.get() {
                    return Err(crate::op::lost()); // The program has closed the runtime's handle.
                }
            }
        };
        self.enter(lp, || future.set(None));
        drop(removed);
        self.update_reference(lp);
        Ok(value)
    }
}

/// Makes the task before the current one again.
struct RestoreCurrent<'a, B: Backend> {
    rt: &'a Rt<B>,
    before: Option<Current>,
}

impl<B: Backend> Drop for RestoreCurrent<'_, B> {
    fn drop(&mut self) {
        self.rt.0.current.set(self.before);
    }
}

/// Removes the entry of a `block_on`.
struct RemoveRoot<'a, B: Backend> {
    rt: &'a Rt<B>,
    id: u32,
}

impl<B: Backend> Drop for RemoveRoot<'_, B> {
    fn drop(&mut self) {
        let inner = &*self.rt.0;
        drop(inner.tasks.borrow_mut().remove(self.id));
        inner.roots.set(inner.roots.get() - 1);
        // A wake of the outer future may have been taken for one of this: it is polled once more.
        inner.root_woken.set(inner.roots.get() > 0);
    }
}
