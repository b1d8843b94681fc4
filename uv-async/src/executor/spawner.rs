//! Tasks that other threads spawn.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use uv_core::poll_core::Backend;
use uv_core::{AsyncSender, DefaultBackend};

use super::join::caught;
use super::tasks::Header;
use super::{JoinError, Rt};

/// A call that spawns a task.
type Spawn<B> = Box<dyn FnOnce(&Rt<B>) + Send>;

/// What other threads have spawned and the loop has not seen.
pub(super) struct Inbox<B: Backend> {
    /// `None` once the runtime is gone.
    calls: Mutex<Option<Vec<Spawn<B>>>>,
    any: AtomicBool,
    sender: AsyncSender,
}

impl<B: Backend> Inbox<B> {
    pub(super) fn new(sender: AsyncSender) -> Inbox<B> {
        Inbox { calls: Mutex::new(Some(Vec::new())), any: AtomicBool::new(false), sender }
    }

    fn calls(&self) -> MutexGuard<'_, Option<Vec<Spawn<B>>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if there are tasks to spawn.
    #[inline]
    pub(super) fn has_any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Spawns the tasks of other threads.
    #[inline]
    pub(super) fn spawn_all(&self, rt: &Rt<B>) {
        if self.has_any() {
            self.spawn_waiting(rt);
        }
    }

    #[cold]
    fn spawn_waiting(&self, rt: &Rt<B>) {
        if self.any.swap(false, Ordering::AcqRel) {
            let calls = self.calls().as_mut().map(std::mem::take);
            calls.into_iter().flatten().for_each(|call| super::contain(|| call(rt)));
        }
    }

    /// Refuses tasks from here on; returns those that were not spawned.
    pub(super) fn close(&self) -> Option<Vec<Spawn<B>>> {
        self.calls().take()
    }
}

/// Spawns tasks from any thread.
///
/// It does not keep the loop alive: a loop that only waits for spawners needs
/// [`block_on`](super::LoopExt::block_on), or a handle.
///
/// ```
/// use uv_async::LoopExt;
/// use uv_core::Loop;
///
/// let mut lp = Loop::with_default_backend()?;
/// lp.block_on(async |rt| {
///     let spawner = rt.spawner();
///     let thread = std::thread::spawn(move || {
///         let sum = spawner.spawn(|rt| async move { rt.task_count() + 40 });
///         sum.wait().unwrap()
///     });
///     while !thread.is_finished() {
///         rt.sleep(std::time::Duration::from_millis(1)).await;
///     }
///     assert!(thread.join().unwrap() > 40);
/// })?;
/// # std::io::Result::Ok(())
/// ```
pub struct Spawner<B: Backend = DefaultBackend>(Arc<Inbox<B>>);

impl<B: Backend> Spawner<B> {
    pub(super) fn new(inbox: Arc<Inbox<B>>) -> Spawner<B> {
        Spawner(inbox)
    }

    /// Spawns a task: `make` is called in the loop's thread, and its future needs not be `Send`.
    ///
    /// If the runtime is gone, the result is an error that says so.
    pub fn spawn<F>(&self, make: impl FnOnce(Rt<B>) -> F + Send + 'static) -> Spawned<F::Output>
    where
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let shared = Arc::new(Shared {
            state: Mutex::new(State::default()),
            done: Condvar::new(),
            aborted: AtomicBool::new(false),
        });
        let spawned = Arc::clone(&shared);
        let mut report = Report(Some(Arc::clone(&shared)));
        let call = Box::new(move |rt: &Rt<B>| {
            let inside = rt.clone();
            let task = async move {
                let result = caught(async { make(inside).await }).await;
                if let Some(shared) = report.0.take() {
                    shared.finish(result);
                }
            };
            let handle = rt.spawn_local(task);
            spawned.state().task = handle.into_header();
            if spawned.aborted.load(Ordering::Acquire) {
                spawned.abort();
            }
        });
        if let Some(calls) = &mut *self.0.calls() {
            calls.push(call);
        }
        // A refused call was dropped, and has reported that.
        if !self.0.any.swap(true, Ordering::AcqRel) {
            // Fails only if the runtime is gone.
            let _ = self.0.sender.send();
        }
        Spawned(shared)
    }
}

impl<B: Backend> Clone for Spawner<B> {
    fn clone(&self) -> Spawner<B> {
        Spawner(Arc::clone(&self.0))
    }
}

impl<B: Backend> fmt::Debug for Spawner<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner").finish_non_exhaustive()
    }
}

struct Shared<T> {
    state: Mutex<State<T>>,
    done: Condvar,
    /// To be aborted as soon as it is spawned.
    aborted: AtomicBool,
}

struct State<T> {
    result: Option<Result<T, JoinError>>,
    waker: Option<Waker>,
    /// `None` until the loop's thread has spawned it.
    task: Option<Arc<Header>>,
}

impl<T> Default for State<T> {
    fn default() -> State<T> {
        State { result: None, waker: None, task: None }
    }
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
        let task = self.state().task.take();
        if let Some(task) = task {
            task.abort();
        }
    }

    fn finish(&self, result: Result<T, JoinError>) {
        let waker = {
            let mut state = self.state();
            state.result = Some(result);
            state.waker.take()
        };
        self.done.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The duty to report a result. If it is dropped, it reports that.
struct Report<T>(Option<Arc<Shared<T>>>);

impl<T> Drop for Report<T> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.finish(Err(JoinError::cancelled()));
        }
    }
}

/// The result of a task of a [`Spawner`]: a future for any executor, or a value to
/// [wait](Spawned::wait) for.
///
/// Dropping it detaches the task.
///
/// # Cancel safety
///
/// Dropping it does not affect the task; the result is lost with it. A borrow of it can be awaited
/// and dropped any number of times.
pub struct Spawned<T>(Arc<Shared<T>>);

impl<T> Spawned<T> {
    /// Drops the task, from any thread. Does nothing to a task that is done.
    pub fn abort(&self) {
        self.0.abort();
    }

    /// Blocks this thread until the task is done. Never call it in the loop's thread.
    ///
    /// # Errors
    ///
    /// [`JoinError`] if the task has panicked, or if the runtime was gone or has dropped it.
    pub fn wait(self) -> Result<T, JoinError> {
        let mut state = self.0.state();
        loop {
            if let Some(result) = state.result.take() {
                return result;
            }
            state = self.0.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Future for Spawned<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.state();
        if let Some(result) = state.result.take() {
            return Poll::Ready(result);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl<T> fmt::Debug for Spawned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawned").finish_non_exhaustive()
    }
}

/// Compile-time checks of which types may cross threads.
const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Spawner>();
    is_send_and_sync::<Spawned<Vec<u8>>>();
};
