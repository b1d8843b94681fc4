//! Handles of spawned tasks.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use super::tasks::Header;

/// The handle of a spawned task: a future of its result.
///
/// Dropping it detaches the task, which goes on. [`abort`](JoinHandle::abort) drops the task.
///
/// ```
/// use uv_async::LoopExt;
/// use uv_core::Loop;
///
/// let mut lp = Loop::with_default_backend()?;
/// lp.block_on(async |rt| {
///     let endless = rt.spawn_local(std::future::pending::<()>());
///     endless.abort();
///     assert!(endless.await.unwrap_err().is_cancelled());
///
///     let broken = rt.spawn_local(async { panic!("a defect of one task") });
///     assert!(broken.await.unwrap_err().is_panic(), "the loop goes on");
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Cancel safety
///
/// Dropping it does not affect the task; the result is lost with the handle.
pub struct JoinHandle<T> {
    state: Rc<State<T>>,
    header: Option<Arc<Header>>,
}

/// The result of a task, shared by the task and its handle.
struct State<T> {
    result: Cell<Option<Result<T, JoinError>>>,
    waker: Cell<Option<Waker>>,
}

impl<T> State<T> {
    fn finish(&self, result: Result<T, JoinError>) {
        self.result.set(Some(result));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// The duty of a task to report a result. If it is dropped with the task, it reports that.
struct Report<T>(Option<Rc<State<T>>>);

impl<T> Drop for Report<T> {
    fn drop(&mut self) {
        if let Some(state) = self.0.take() {
            state.finish(Err(JoinError(Reason::Cancelled)));
        }
    }
}

/// A task that runs `future`, and its handle.
pub(super) fn pair<F: Future>(
    future: F,
) -> (impl Future<Output = ()> + use<F>, JoinHandle<F::Output>) {
    let state = Rc::new(State { result: Cell::new(None), waker: Cell::new(None) });
    let mut report = Report(Some(Rc::clone(&state)));
    let task = async move {
        // As `caught`: a future inside of another would have two states to resume.
        let result = Caught(pin!(future)).await;
        if let Some(state) = report.0.take() {
            state.finish(result);
        }
    };
    (task, JoinHandle { state, header: None })
}

/// The result of a future, or its panic. The future is dropped before this ends.
pub(super) async fn caught<F: Future>(future: F) -> Result<F::Output, JoinError> {
    Caught(pin!(future)).await
}

/// A future that ends with the panic of another.
struct Caught<'a, F>(Pin<&'a mut F>);

impl<F: Future> Future for Caught<'_, F> {
    type Output = Result<F::Output, JoinError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx))) {
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(payload) => Poll::Ready(Err(JoinError(Reason::Panicked(Mutex::new(payload))))),
        }
    }
}

impl<T> JoinHandle<T> {
    pub(super) fn with_header(mut self, header: Arc<Header>) -> JoinHandle<T> {
        self.header = Some(header);
        self
    }

    /// What other threads need to abort the task.
    pub(super) fn into_header(mut self) -> Option<Arc<Header>> {
        self.header.take()
    }

    /// Drops the task when the loop next runs tasks. Does nothing to a task that is done.
    pub fn abort(&self) {
        if let Some(header) = &self.header {
            header.abort();
        }
    }

    /// True if the task is done, aborted or has panicked.
    pub fn is_finished(&self) -> bool {
        let result = self.state.result.take();
        let finished = result.is_some();
        self.state.result.set(result);
        finished || Rc::strong_count(&self.state) == 1
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.state.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                self.state.waker.set(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("finished", &self.is_finished()).finish()
    }
}

/// Why a task has no result: it was aborted, its runtime is gone, or it has panicked.
pub struct JoinError(Reason);

enum Reason {
    Cancelled,
    /// In a mutex, so that the error is `Sync` and other errors can have it as their source.
    Panicked(Mutex<Box<dyn Any + Send>>),
}

impl JoinError {
    pub(super) fn cancelled() -> JoinError {
        JoinError(Reason::Cancelled)
    }

    /// True if the task was aborted, or dropped with its runtime.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.0, Reason::Cancelled)
    }

    /// True if the task has panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self.0, Reason::Panicked(_))
    }

    /// The payload of the panic, for [`resume_unwind`](std::panic::resume_unwind).
    ///
    /// # Errors
    ///
    /// The error itself if the task has not panicked.
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send>, JoinError> {
        match self.0 {
            Reason::Panicked(payload) => {
                Ok(payload.into_inner().unwrap_or_else(PoisonError::into_inner))
            }
            Reason::Cancelled => Err(self),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinError({self})")
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let payload = match &self.0 {
            Reason::Cancelled => return write!(f, "the task was cancelled"),
            Reason::Panicked(payload) => payload.lock().unwrap_or_else(PoisonError::into_inner),
        };
        let text = payload.downcast_ref::<&str>().copied();
        match text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)) {
            Some(text) => write!(f, "the task has panicked: {text}"),
            None => write!(f, "the task has panicked"),
        }
    }
}

impl std::error::Error for JoinError {}

impl From<JoinError> for std::io::Error {
    fn from(error: JoinError) -> std::io::Error {
        std::io::Error::other(error)
    }
}
