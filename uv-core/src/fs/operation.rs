//! What all operations have in common: they can be performed here and now, or started in a
//! loop.

use std::fmt;
use std::io;

use poll_core::{Backend, Op, Token};

use crate::pool::{Pool, Step, Task};
use crate::{Loop, error};

/// A file operation that has not begun.
///
/// The functions of [this module](super) make them. Nothing happens until one is
/// [performed](Operation::perform) or [started](Operation::start).
///
/// ```
/// use uv_core::{Loop, RunMode, fs};
///
/// let here = fs::stat(".").perform()?; // blocks this thread
///
/// let mut lp = Loop::with_default_backend()?;
/// fs::stat(".").start(&mut lp, move |_, there| assert_eq!(there.unwrap().ino, here.ino))?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[must_use = "nothing happens until the operation is started or performed"]
#[derive(Debug)]
pub struct Operation<A: Action>(pub(super) A);

impl<A: Action> Operation<A> {
    /// Does it in this thread, which blocks until it is done.
    ///
    /// ```
    /// let stat = uv_core::fs::stat(".").perform()?;
    /// assert!(stat.is_dir());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn perform(mut self) -> A::Output {
        let result = match self.0.refusal() {
            Some(error) => Err(error),
            None => self.0.perform(),
        };
        self.0.output(result)
    }

    /// Has it done without blocking the loop, which calls back with what it gives and stays
    /// alive until then.
    ///
    /// A backend that performs such operations itself, as io_uring does, gets it before the
    /// loop next waits; else the process's [pool](Pool::global) does it, unless it can be done
    /// at once and without blocking. The results are the same. Operations that are under way
    /// together end in any order.
    ///
    /// ```
    /// use uv_core::{Loop, RunMode, fs};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// fs::stat("no such file").start(&mut lp, |_, stat| {
    ///     assert_eq!(stat.unwrap_err().kind(), std::io::ErrorKind::NotFound);
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a path with a NUL in it, `ResourceBusy` for a [close](super::close)
    /// of what is in use. All else is told by the callback.
    pub fn start<B: Backend>(
        self,
        lp: &mut Loop<B>,
        callback: impl FnOnce(&mut Loop<B>, A::Output) + 'static,
    ) -> io::Result<FsRequest> {
        self.begin(lp, None, callback)
    }

    /// As [`start`](Operation::start), on a pool of the caller's in any case.
    ///
    /// ```
    /// use uv_core::{Loop, Pool, RunMode, fs};
    ///
    /// let (mut lp, disks) = (Loop::with_default_backend()?, Pool::new(2)?);
    /// fs::stat(".").start_on(&mut lp, &disks, |_, stat| assert!(stat.unwrap().is_dir()))?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for `start`.
    pub fn start_on<B: Backend>(
        self,
        lp: &mut Loop<B>,
        pool: &Pool,
        callback: impl FnOnce(&mut Loop<B>, A::Output) + 'static,
    ) -> io::Result<FsRequest> {
        self.begin(lp, Some(pool), callback)
    }

    fn begin<B: Backend>(
        mut self,
        lp: &mut Loop<B>,
        pool: Option<&Pool>,
        callback: impl FnOnce(&mut Loop<B>, A::Output) + 'static,
    ) -> io::Result<FsRequest> {
        if let Some(error) = self.0.refusal() {
            return Err(error);
        }
        let done = move |lp: &mut Loop<B>, action: A, result| callback(lp, action.output(result));
        Ok(FsRequest(lp.queue_task(pool, self.0, done)))
    }
}

/// An operation that was [started](Operation::start): the key to [cancel](FsRequest::cancel)
/// it.
///
/// It is stale once the operation has called back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FsRequest(Token);

impl FsRequest {
    /// Cancels an operation that has not begun: no thread has taken it, the backend has not
    /// been given it, and it was not done at once. Its callback comes all the same, later, with
    /// `ECANCELED` (`WSAECANCELLED` on Windows).
    ///
    /// ```
    /// use uv_core::{Loop, Pool, RunMode, fs};
    ///
    /// let (mut lp, pool) = (Loop::with_default_backend()?, Pool::new(1)?);
    /// let stat: fs::FsRequest =
    ///     fs::stat(".").start_on(&mut lp, &pool, |_, stat| println!("{stat:?}"))?;
    /// if let Err(error) = stat.cancel(&mut lp) {
    ///     assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy); // It was quick.
    /// }
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `ResourceBusy` if it has begun; `NotFound` if it has called back.
    pub fn cancel<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        lp.cancel_queued(self.0)
    }
}

/// What an [`Operation`] does. Not to be implemented elsewhere: the types that do are in
/// [`actions`](super::actions).
///
/// ```
/// use uv_core::fs::{self, Action, Operation};
///
/// /// Performs any operation, and tells how long that took.
/// fn timed<A: Action>(operation: Operation<A>) -> A::Output {
///     let begun = std::time::Instant::now();
///     let output = operation.perform();
///     println!("{:?}", begun.elapsed());
///     output
/// }
///
/// assert!(timed(fs::stat("."))?.is_dir());
/// # std::io::Result::Ok(())
/// ```
pub trait Action: Task {
    /// What the caller gets: a result, or one and the buffer.
    type Output: 'static;

    /// Why it cannot even begin; asked once.
    #[doc(hidden)]
    fn refusal(&mut self) -> Option<io::Error> {
        None
    }

    #[doc(hidden)]
    fn output(self, result: io::Result<Self::Value>) -> Self::Output;
}

/// An action that takes arguments `A` and gives a `T`, or fails.
pub struct Call<A: 'static, T: 'static> {
    /// An error if they are no arguments at all.
    arguments: io::Result<A>,
    way: &'static Way<A, T>,
}

/// How a [`Call`] is done.
pub(crate) struct Way<A, T> {
    /// By blocking.
    pub(crate) perform: fn(&mut A) -> io::Result<T>,
    /// By a backend. What the operation names is in the arguments or owned by them.
    pub(crate) op: Option<fn(&mut A) -> Op>,
    /// What the result of the operation means.
    pub(crate) value: fn(&mut A, usize) -> io::Result<T>,
}

impl<A, T> Way<A, T> {
    /// Done by blocking only.
    pub(crate) const fn blocking(perform: fn(&mut A) -> io::Result<T>) -> Way<A, T> {
        Way { perform, op: None, value: |_, _| Err(error::cancelled()) }
    }
}

impl<A> Way<A, ()> {
    /// Done by blocking or by an operation, and gives nothing.
    #[cfg_attr(windows, allow(dead_code, reason = "no backend performs these on Windows"))]
    pub(crate) const fn either(
        perform: fn(&mut A) -> io::Result<()>,
        op: fn(&mut A) -> Op,
    ) -> Way<A, ()> {
        Way { perform, op: Some(op), value: |_, _| Ok(()) }
    }
}

impl<A: Send + 'static, T: Send + 'static> Call<A, T> {
    pub(super) fn of(arguments: A, way: &'static Way<A, T>) -> Operation<Call<A, T>> {
        Call::try_of(Ok(arguments), way)
    }

    pub(super) fn try_of(
        arguments: io::Result<A>,
        way: &'static Way<A, T>,
    ) -> Operation<Call<A, T>> {
        Operation(Call { arguments, way })
    }
}

impl<A: Send + 'static, T: Send + 'static> Task for Call<A, T> {
    type Value = T;

    fn perform(&mut self) -> io::Result<T> {
        let Ok(arguments) = &mut self.arguments else { return Err(error::cancelled()) };
        loop {
            match (self.way.perform)(arguments) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn op(&mut self) -> Option<Op> {
        let arguments = self.arguments.as_mut().ok()?;
        self.way.op.map(|op| op(arguments))
    }

    fn step(&mut self, result: usize) -> Step<T> {
        match &mut self.arguments {
            Ok(arguments) => Step::Over((self.way.value)(arguments, result)),
            Err(_) => Step::Over(Err(error::cancelled())),
        }
    }
}

impl<A: Send + 'static, T: Send + 'static> Action for Call<A, T> {
    type Output = io::Result<T>;

    fn refusal(&mut self) -> Option<io::Error> {
        let refused = self.arguments.as_mut().err()?;
        Some(std::mem::replace(refused, error::cancelled()))
    }

    fn output(self, result: io::Result<T>) -> io::Result<T> {
        result
    }
}

impl<A: 'static, T: 'static> fmt::Debug for Call<A, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}
