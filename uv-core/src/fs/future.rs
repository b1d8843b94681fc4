//! Operations as futures: performed by a pool, without a loop.
//!
//! The future and the job of the pool share a [`Handover`]. The action is in it until a thread takes
//! it to perform it, and again when it is complete. So the side that is dropped first leaves the action
//! to the other.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};

use super::operation::{Action, Operation};
use crate::pool::{Pool, Running};
use crate::{error, sys};

/// The future of an [`Operation`], which makes it when it is awaited. It needs no loop and runs on any
/// executor, also on one of several threads.
///
/// A combinator that wants futures gets one by [`into_future`](Operation::into_future):
///
/// ```
/// use std::task::{Context, Poll, Waker};
/// use uv_core::fs;
///
/// let mut stat: fs::OperationFuture<_> = fs::stat(".").into_future();
/// // What an executor does, without waiting for the wake.
/// let stat = loop {
///     let polled = Future::poll(std::pin::Pin::new(&mut stat), &mut Context::from_waker(Waker::noop()));
///     match polled {
///         Poll::Ready(stat) => break stat?,
///         Poll::Pending => std::thread::yield_now(),
///     }
/// };
/// assert!(stat.is_dir());
/// # std::io::Result::Ok(())
/// ```
///
/// The first poll submits the operation to the process's [pool](Pool::global), unless it can be
/// performed without blocking. Then the task is woken immediately, so that one which only reads
/// cached files lets others run.
///
/// # Cancel safety
///
/// Dropping it cancels the operation if no thread has started it, and frees its buffer. An operation
/// that a thread performs has its effect; the thread closes a file that it opens, and frees its buffer.
///
/// # Panics
///
/// If it is polled again after it was ready.
#[must_use = "futures do nothing until they are awaited"]
pub struct OperationFuture<A: Action>(State<A>);

enum State<A: Action> {
    New(A),
    /// Performed without blocking. The next poll reports it.
    Performed(A, A::Value),
    Submitted(Submitted<A>),
    Ended,
}

// The action is moved before it is performed: nothing in the future is pinned.
impl<A: Action> Unpin for OperationFuture<A> {}

impl<A: Action> IntoFuture for Operation<A> {
    type Output = A::Output;
    type IntoFuture = OperationFuture<A>;

    /// The future that performs the operation on the process's pool, on any executor.
    ///
    /// ```
    /// use uv_core::fs;
    ///
    /// async fn size_of_both(one: &str, other: &str) -> std::io::Result<u64> {
    ///     Ok(fs::stat(one).await?.size + fs::stat(other).await?.size)
    /// }
    /// # drop(size_of_both("a", "b"));
    /// ```
    fn into_future(self) -> OperationFuture<A> {
        OperationFuture(State::New(self.0))
    }
}

impl<A: Action> Future for OperationFuture<A> {
    type Output = A::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<A::Output> {
        self.get_mut().poll_on(cx, Pool::global)
    }
}

impl<A: Action> OperationFuture<A> {
    fn poll_on(
        &mut self,
        cx: &Context<'_>,
        pool: impl FnOnce() -> io::Result<Pool>,
    ) -> Poll<A::Output> {
        match mem::replace(&mut self.0, State::Ended) {
            State::New(action) => self.start(action, cx, pool),
            State::Performed(action, value) => Poll::Ready(action.output(Ok(value))),
            State::Submitted(submitted) => match submitted.poll(cx) {
                Some(Running { task, outcome }) => {
                    Poll::Ready(task.output(outcome.unwrap_or_else(|| Err(error::cancelled()))))
                }
                None => {
                    self.0 = State::Submitted(submitted);
                    Poll::Pending
                }
            },
            State::Ended => panic!("the future was polled after it was ready"),
        }
    }

    fn start(
        &mut self,
        mut action: A,
        cx: &Context<'_>,
        pool: impl FnOnce() -> io::Result<Pool>,
    ) -> Poll<A::Output> {
        if let Some(error) = action.refusal() {
            return Poll::Ready(action.output(Err(error)));
        }
        if let Some(value) = action.try_perform() {
            self.0 = State::Performed(action, value);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        match pool() {
            Ok(pool) => {
                self.0 = State::Submitted(Submitted::to(&pool, action, cx.waker()));
                Poll::Pending
            }
            // No thread can be started.
            Err(error) => Poll::Ready(action.output(Err(error))),
        }
    }
}

impl<A: Action> fmt::Debug for OperationFuture<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperationFuture").finish_non_exhaustive()
    }
}

/// The future's side of an operation that a pool has. Dropping it cancels the operation if no thread
/// has started it.
struct Submitted<A: Action> {
    handover: Arc<Handover<A>>,
    /// Of the process that has the threads.
    forks: u32,
}

/// What the future and the thread share.
struct Handover<A: Action>(Mutex<Progress<A>>);

struct Progress<A: Action> {
    /// The action, with an outcome once it is complete; `None` while a thread performs it, and when
    /// the future has taken it back.
    running: Option<Running<A>>,
    /// The task to wake when it is complete.
    waker: Option<Waker>,
}

impl<A: Action> Submitted<A> {
    fn to(pool: &Pool, action: A, waker: &Waker) -> Submitted<A> {
        let (running, waker) = (Some(Running::new(action)), Some(waker.clone()));
        let handover = Arc::new(Handover(Mutex::new(Progress { running, waker })));
        let performer = Arc::clone(&handover);
        pool.run_detached(move || performer.perform());
        Submitted { handover, forks: sys::forks() }
    }

    /// The action if it is complete. Otherwise the waker is kept, instead of the one before.
    fn poll(&self, cx: &Context<'_>) -> Option<Running<A>> {
        if self.forks != sys::forks() {
            // The threads are those of the parent process: an operation that none had started is
            // cancelled. One that a thread was performing stays with the parent.
            return self.handover.try_lock()?.running.take();
        }
        let mut progress = self.handover.lock();
        if progress.running.as_ref().is_some_and(|running| running.outcome.is_some()) {
            return progress.running.take();
        }
        let before = match &mut progress.waker {
            Some(waker) if waker.will_wake(cx.waker()) => None,
            waker => waker.replace(cx.waker().clone()),
        };
        drop(progress);
        drop(before); // Without the lock, because it may run any code.
        None
    }
}

impl<A: Action> Drop for Submitted<A> {
    fn drop(&mut self) {
        // A thread that has the lock has started the operation. In a forked child such a thread does
        // not exist, and the lock is never released.
        if let Some(mut progress) = self.handover.try_lock() {
            let left = (progress.running.take(), progress.waker.take());
            drop(progress);
            drop(left);
        }
    }
}

impl<A: Action> Handover<A> {
    // The code below the lock keeps the progress consistent even if a waker panics.
    fn lock(&self) -> MutexGuard<'_, Progress<A>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Progress<A>>> {
        match self.0.try_lock() {
            Ok(progress) => Some(progress),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// For a thread of the pool: performs the action unless it was cancelled, and wakes the task.
    fn perform(&self) {
        // Not locked while it runs: polls do not wait for it.
        let Some(mut running) = self.lock().running.take() else { return };
        running.run(); // Catches panics, which become errors.
        let mut progress = self.lock();
        progress.running = Some(running);
        let waker = progress.waker.take();
        drop(progress);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::task::Wake;
    use std::thread;

    use super::*;
    use crate::fs::Way;
    use crate::fs::operation::Call;

    /// An action that reports its begin and waits, so that a test decides when it is complete.
    struct Gate {
        begun: Sender<()>,
        open: Receiver<()>,
        /// Freed with the action.
        held: Arc<AtomicUsize>,
    }

    /// Counts the performances in `held`.
    static GATE: Way<Gate, usize> = Way::blocking(|gate| {
        let _ = gate.begun.send(());
        let _ = gate.open.recv();
        Ok(gate.held.fetch_add(1, Ordering::SeqCst) + 1)
    });

    static PANIC: Way<(), ()> = Way::blocking(|()| panic!("no idea"));

    type GateFuture = OperationFuture<Call<Gate, usize>>;

    /// The future, what its thread reports, what lets it end, what it holds.
    fn gate() -> (GateFuture, Receiver<()>, Sender<()>, Arc<AtomicUsize>) {
        let ((begun, begin), (go, open)) = (mpsc::channel(), mpsc::channel());
        let held = Arc::new(AtomicUsize::new(0));
        let operation = Call::of(Gate { begun, open, held: Arc::clone(&held) }, &GATE);
        (operation.into_future(), begin, go, held)
    }

    fn pool() -> Pool {
        Pool::new(1).unwrap()
    }

    /// Counts wakes, and unparks a thread.
    struct Wakes(AtomicUsize, thread::Thread);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
            self.1.unpark();
        }
    }

    impl Wakes {
        fn new() -> Arc<Wakes> {
            Arc::new(Wakes(AtomicUsize::new(0), thread::current()))
        }

        fn count(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    fn poll<A: Action>(
        future: &mut OperationFuture<A>,
        wakes: &Arc<Wakes>,
        pool: &Pool,
    ) -> Poll<A::Output> {
        let waker = Waker::from(Arc::clone(wakes));
        future.poll_on(&Context::from_waker(&waker), || Ok(pool.clone()))
    }

    /// Polls only when woken.
    fn block_on<A: Action>(mut future: OperationFuture<A>, pool: &Pool) -> A::Output {
        let wakes = Wakes::new();
        let mut seen = 0;
        loop {
            if let Poll::Ready(output) = poll(&mut future, &wakes, pool) {
                return output;
            }
            while wakes.count() == seen {
                thread::park();
            }
            seen = wakes.count();
        }
    }

    #[test]
    fn a_thread_wakes_the_task_once_it_is_complete() {
        let (pool, (future, begin, go, held)) = (pool(), gate());
        let opener = thread::spawn(move || {
            begin.recv().unwrap();
            go.send(()).unwrap();
        });
        assert_eq!(block_on(future, &pool).unwrap(), 1);
        opener.join().unwrap();
        pool.join().unwrap();
        assert_eq!(Arc::strong_count(&held), 1, "the thread has freed its side");
    }

    #[test]
    fn the_waker_of_the_last_poll_is_woken_and_no_other() {
        let (pool, (mut future, begin, go, _)) = (pool(), gate());
        let (first, second) = (Wakes::new(), Wakes::new());
        assert!(poll(&mut future, &first, &pool).is_pending());
        begin.recv().unwrap();
        assert!(poll(&mut future, &second, &pool).is_pending());
        assert_eq!(Arc::strong_count(&first), 1, "the waker before is dropped");
        go.send(()).unwrap();
        while second.count() == 0 {
            thread::park();
        }
        assert_eq!((first.count(), second.count()), (0, 1));
        assert!(poll(&mut future, &first, &pool).is_ready());
        pool.join().unwrap();
    }

    #[test]
    fn a_future_that_is_dropped_before_its_start_has_no_effect() {
        let pool = pool();
        let (mut busy, begin, go, _) = gate();
        let (mut future, begun, _go, held) = gate();
        let wakes = Wakes::new();
        assert!(poll(&mut busy, &wakes, &pool).is_pending());
        begin.recv().unwrap();
        // The only thread is busy.
        assert!(poll(&mut future, &wakes, &pool).is_pending());
        drop(future);
        assert_eq!(Arc::strong_count(&held), 1, "its memory is freed immediately");
        go.send(()).unwrap();
        pool.join().unwrap();
        assert!(begun.try_recv().is_err(), "no thread has performed it");
        assert_eq!(wakes.count(), 1, "of the other operation");
    }

    #[test]
    fn a_future_that_is_dropped_while_it_runs_has_its_effect_and_frees_its_memory() {
        let (pool, (mut future, begin, go, held)) = (pool(), gate());
        let wakes = Wakes::new();
        assert!(poll(&mut future, &wakes, &pool).is_pending());
        begin.recv().unwrap();
        drop(future);
        assert_eq!(Arc::strong_count(&wakes), 1, "its waker is gone");
        assert_eq!(Arc::strong_count(&held), 2, "the thread uses it");
        go.send(()).unwrap();
        pool.join().unwrap();
        assert_eq!((held.load(Ordering::SeqCst), Arc::strong_count(&held)), (1, 1));
        assert_eq!(wakes.count(), 0);
    }

    #[test]
    fn a_future_that_is_dropped_when_it_is_complete_frees_its_memory() {
        let (pool, (mut future, _begin, go, held)) = (pool(), gate());
        go.send(()).unwrap();
        let wakes = Wakes::new();
        assert!(poll(&mut future, &wakes, &pool).is_pending());
        pool.join().unwrap();
        assert_eq!((wakes.count(), Arc::strong_count(&held)), (1, 2));
        drop(future);
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn an_operation_that_panics_is_an_error_and_its_thread_goes_on() {
        let pool = pool();
        for _ in 0..2 {
            let panicked = block_on(Call::of((), &PANIC).into_future(), &pool);
            assert!(panicked.unwrap_err().to_string().contains("panicked"));
        }
        pool.join().unwrap();
    }

    #[test]
    fn a_waker_that_panics_does_not_end_the_thread() {
        struct Panics;
        impl Wake for Panics {
            fn wake(self: Arc<Self>) {
                panic!("by the waker");
            }
        }
        let (pool, (mut future, _begin, go, _)) = (pool(), gate());
        let waker = Waker::from(Arc::new(Panics));
        let polled = future.poll_on(&Context::from_waker(&waker), || Ok(pool.clone()));
        assert!(polled.is_pending());
        go.send(()).unwrap();
        let (next, _begin, go, _) = gate();
        go.send(()).unwrap();
        assert_eq!(block_on(next, &pool).unwrap(), 1);
        assert!(poll(&mut future, &Wakes::new(), &pool).is_ready(), "the result is there");
        pool.join().unwrap();
    }

    #[test]
    fn without_a_thread_it_is_an_error_and_the_arguments_are_freed() {
        let (mut future, _begin, _go, held) = gate();
        let none = || Err(io::ErrorKind::WouldBlock.into());
        match future.poll_on(&Context::from_waker(Waker::noop()), none) {
            Poll::Ready(Err(error)) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            other => panic!("{other:?}"),
        }
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn what_is_refused_reaches_no_pool() {
        let refused = Call::<(), ()>::try_of(Err(io::ErrorKind::InvalidInput.into()), &PANIC);
        let mut future = pin!(refused.into_future());
        let polled = future.poll_on(&Context::from_waker(Waker::noop()), || unreachable!());
        assert!(matches!(polled, Poll::Ready(Err(_))));
    }

    #[test]
    fn futures_move_between_threads() {
        fn is_send<T: Send>(_: &T) {}
        let (pool, (mut future, begin, go, _)) = (pool(), gate());
        is_send(&future);
        assert!(poll(&mut future, &Wakes::new(), &pool).is_pending());
        let elsewhere = pool.clone();
        let waiter = thread::spawn(move || block_on(future, &elsewhere).unwrap());
        begin.recv().unwrap();
        go.send(()).unwrap();
        assert_eq!(waiter.join().unwrap(), 1);
        pool.join().unwrap();
    }
}
