//! Tasks: jobs that stay in place while they are performed.
//!
//! A closure is moved out of the job's memory to run. A [`Task`] is not, so the kernel may use
//! memory inside it, and cancelling it returns it unchanged.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use poll_core::{Op, OpKind};

/// An operation that a worker performs by blocking, or a backend asynchronously.
///
/// # Safety
///
/// The loop submits the operation that [`op`](Task::op) returns. Its memory and its source are
/// part of the task or owned by it. They stay valid and unused until the operation has completed,
/// as long as the task is not moved: until then no method but [`submitted`](Task::submitted) is
/// called.
#[allow(unsafe_code, reason = "the kernel uses the memory that an implementation names")]
pub unsafe trait Task: Send + 'static {
    /// The result of the task.
    type Value: Send + 'static;

    /// Performs the task in this thread, which may block.
    fn perform(&mut self) -> io::Result<Self::Value>;

    /// Performs the task in this thread if that does not block. `None` if it may block, or if the
    /// result is an error.
    fn try_perform(&mut self) -> Option<Self::Value> {
        None
    }

    /// True if [`try_perform`](Task::try_perform) takes only a few microseconds, so that the
    /// completions of such tasks are worth batching.
    fn is_short(&self) -> bool {
        false
    }

    /// The kind of operation that performs the task, without preparing one.
    fn kind(&mut self) -> Option<OpKind> {
        self.op().map(|op| op.kind())
    }

    /// The operation that performs the task, or its next part. Its memory stays valid until the
    /// operation has completed, as long as this value is not moved.
    fn op(&mut self) -> Option<Op> {
        None
    }

    /// The backend has accepted the operation and will perform it.
    fn submitted(&mut self) {}

    /// The operation has completed with this result.
    fn step(&mut self, _result: usize) -> Step<Self::Value> {
        Step::Continue
    }
}

/// The next step after an operation of a task has completed.
#[derive(Debug)]
pub enum Step<T> {
    /// The task is complete, with this result.
    Done(io::Result<T>),
    /// The next operation is to be submitted.
    Continue,
}

/// A task and its result.
#[derive(Debug)]
pub(crate) struct Running<A: Task> {
    pub(crate) task: A,
    /// `None` until the task is complete.
    pub(crate) outcome: Option<io::Result<A::Value>>,
}

impl<A: Task> Running<A> {
    pub(crate) fn new(task: A) -> Running<A> {
        Running { task, outcome: None }
    }

    /// Performs the task if that does not block. True if it is complete.
    pub(crate) fn try_run(&mut self) -> bool {
        self.outcome = self.task.try_perform().map(Ok);
        self.outcome.is_some()
    }

    /// Performs the task. A panic is caught, because it must not end the worker.
    pub(crate) fn run(&mut self) {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.task.perform()));
        let panicked = |_| Err(io::Error::other("the task panicked: its result is lost"));
        self.outcome = Some(outcome.unwrap_or_else(panicked));
    }

    /// Takes the result of an operation. True if the task is complete.
    pub(crate) fn step(&mut self, result: Result<usize, i32>) -> bool {
        let step = match result {
            Ok(result) => self.task.step(result),
            Err(code) => Step::Done(Err(io::Error::from_raw_os_error(code))),
        };
        match step {
            Step::Done(outcome) => self.outcome = Some(outcome),
            Step::Continue => {}
        }
        self.outcome.is_some()
    }
}
