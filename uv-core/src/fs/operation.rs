//! Operations: performed in the calling thread, or started in a loop. As futures they are in
//! [`future`](super::future).

use std::fmt;
use std::io;

use poll_core::{Backend, Op, Token};

use crate::handles::{key_from_bits, key_to_bits};
use crate::pool::{Pool, Step, Task};
use crate::requests::task;
use crate::{Loop, error};

/// A file operation that has not started.
///
/// The functions of [this module](super) make them. Nothing happens until one is
/// [performed](Operation::perform), [started](Operation::start) or [awaited](super#futures).
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
#[must_use = "nothing happens until the operation is started, performed or awaited"]
#[derive(Debug)]
pub struct Operation<A: Action>(pub(super) A);

impl<A: Action> Operation<A> {
    /// Performs the operation in this thread, which blocks until it is complete.
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

    /// Starts the operation without blocking the loop, which calls back with the result and stays
    /// alive until then.
    ///
    /// A backend that performs such operations, as io_uring does, gets it before the loop next
    /// waits. Otherwise the process's [pool](Pool::global) performs it, unless this thread can
    /// perform it without blocking. The results are the same. Concurrent operations complete in
    /// any order.
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
    /// `InvalidInput` for a path with a NUL byte, `ResourceBusy` for a [close](super::close) of a
    /// file in use: the callback is dropped then, see [`start_with`](Operation::start_with). The
    /// callback gets all other errors. So operations on open files, such as reads and writes, start
    /// without an error.
    pub fn start<B: Backend>(
        self,
        lp: &mut Loop<B>,
        callback: impl FnOnce(&mut Loop<B>, A::Output) + 'static,
    ) -> io::Result<FsRequest> {
        self.begin(lp, None, callback)
    }

    /// As [`start`](Operation::start), but an operation that cannot start gives its output back: the
    /// error, and the buffer if it has one.
    ///
    /// ```
    /// use uv_core::{Loop, fs};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let refused = fs::stat("a\0b").start_or_output(&mut lp, |_, _| {}).unwrap_err();
    /// assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The output, for the reasons that `start` has.
    pub fn start_or_output<B: Backend>(
        mut self,
        lp: &mut Loop<B>,
        callback: impl FnOnce(&mut Loop<B>, A::Output) + 'static,
    ) -> Result<FsRequest, A::Output> {
        match self.0.refusal() {
            Some(error) => Err(self.0.output(Err(error))),
            None => Ok(self.submit(lp, None, callback)),
        }
    }

    /// As [`start`](Operation::start), but the callback gets every error, with the buffer if there is
    /// one.
    ///
    /// ```
    /// use uv_core::{Loop, RunMode, fs};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// fs::stat("a\0b").start_with(&mut lp, |_, stat| {
    ///     assert_eq!(stat.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    /// });
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn start_with<B: Backend>(
        mut self,
        lp: &mut Loop<B>,
        callback: impl FnOnce(&mut Loop<B>, A::Output) + 'static,
    ) {
        match self.0.refusal() {
            Some(error) => lp.defer(move |lp| callback(lp, self.0.output(Err(error)))),
            None => drop(self.submit(lp, None, callback)),
        }
    }

    /// As [`start`](Operation::start), but always on the given pool.
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
        match self.0.refusal() {
            Some(error) => Err(error),
            None => Ok(self.submit(lp, pool, callback)),
        }
    }

    fn submit<B: Backend>(
        self,
        lp: &mut Loop<B>,
        pool: Option<&Pool>,
        callback: impl FnOnce(&mut Loop<B>, A::Output) + 'static,
    ) -> FsRequest {
        let done = move |lp: &mut Loop<B>, action: A, result| callback(lp, action.output(result));
        FsRequest(task::queue(lp, pool, self.0, done))
    }
}

/// The key of a [started](Operation::start) operation, to [cancel](FsRequest::cancel) it.
///
/// It is stale once the operation's callback has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FsRequest(Token);

impl FsRequest {
    /// The key as a number, to store it where only numbers fit, as in C structures. It is never 0.
    ///
    /// ```
    /// use uv_core::{Loop, RunMode, fs};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let stat = fs::stat(".").start(&mut lp, |_, _| {})?;
    /// assert_eq!(fs::FsRequest::from_bits(stat.to_bits()), stat);
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub const fn to_bits(self) -> u64 {
        key_to_bits(self.0)
    }

    /// Reverses [`to_bits`](Self::to_bits). Any number is a key; one that names no request of the
    /// loop that it is used with is stale: `NotFound`.
    ///
    /// ```
    /// use uv_core::{Loop, RunMode, fs};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let stat = fs::stat(".").start(&mut lp, |_, _| {})?;
    /// assert_eq!(fs::FsRequest::from_bits(stat.to_bits()), stat);
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub const fn from_bits(bits: u64) -> FsRequest {
        FsRequest(key_from_bits(bits))
    }

    /// Cancels an operation that no thread has started and `start` did not complete. Its callback
    /// still runs, later, with `ECANCELED` (`WSAECANCELLED` on Windows) and the buffer.
    ///
    /// If a backend performs the operation, as io_uring does, it is asked to cancel it, and the
    /// callback runs after its completion: with `ECANCELED` if nothing was done, otherwise with
    /// the result. A write of which a part was done reports the length of that part.
    ///
    /// ```
    /// use uv_core::{Loop, Pool, RunMode, fs};
    ///
    /// let (mut lp, pool) = (Loop::with_default_backend()?, Pool::new(1)?);
    /// let stat: fs::FsRequest =
    ///     fs::stat(".").start_on(&mut lp, &pool, |_, stat| println!("{stat:?}"))?;
    /// if let Err(error) = stat.cancel(&mut lp) {
    ///     assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy); // It has started.
    /// }
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `ResourceBusy` if a thread has started it, if it is complete, or for a
    /// [close](super::close) that the backend performs; `NotFound` if its callback has run.
    #[doc(alias = "uv_cancel")]
    pub fn cancel<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        task::cancel(lp, self.0)
    }
}

/// The action of an [`Operation`]. The types that implement it are in
/// [`actions`](super::actions); it is not meant to be implemented elsewhere.
///
/// ```
/// use uv_core::fs::{self, Action, Operation};
///
/// /// Performs any operation, and prints how long it took.
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
    /// The output: a result, or a result and the buffer.
    type Output: 'static;

    /// The reason why the operation cannot start; called once.
    #[doc(hidden)]
    fn refusal(&mut self) -> Option<io::Error> {
        None
    }

    #[doc(hidden)]
    fn output(self, result: io::Result<Self::Value>) -> Self::Output;
}

/// An action with arguments `A` and a result `T`.
pub struct Call<A: 'static, T: 'static> {
    /// An error if they are invalid.
    arguments: io::Result<A>,
    way: &'static Way<A, T>,
}

/// The implementations of a [`Call`].
pub(crate) struct Way<A, T> {
    /// Blocking.
    pub(crate) perform: fn(&mut A) -> io::Result<T>,
    /// By a backend. The memory and the source of the operation are part of the arguments or owned
    /// by them.
    pub(crate) op: Option<fn(&mut A) -> Op>,
    /// Converts the result of the operation.
    pub(crate) value: fn(&mut A, usize) -> io::Result<T>,
}

impl<A, T> Way<A, T> {
    /// Only blocking.
    pub(crate) const fn blocking(perform: fn(&mut A) -> io::Result<T>) -> Way<A, T> {
        Way { perform, op: None, value: |_, _| Err(error::cancelled()) }
    }
}

impl<A> Way<A, ()> {
    /// Blocking or by a backend, without a result.
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

// SAFETY: `Way::op` names memory and sources that are part of the arguments or owned by them, and
// the arguments stay in the task.
#[allow(unsafe_code, reason = "the kernel uses the memory that `op` names")]
unsafe impl<A: Send + 'static, T: Send + 'static> Task for Call<A, T> {
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
            Ok(arguments) => Step::Done((self.way.value)(arguments, result)),
            Err(_) => Step::Done(Err(error::cancelled())),
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
