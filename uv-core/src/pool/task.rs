//! Tasks: jobs that stay where they are while they are performed.
//!
//! A closure leaves the job's memory to run. A [`Task`] does not, so the kernel may be lent
//! parts of it, and whoever cancels it gets it back whole.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use poll_core::{Op, OpKind};

/// Something that a thread can do by blocking, or perhaps a backend by an operation.
pub trait Task: Send + 'static {
    /// What doing it gives.
    type Value: Send + 'static;

    /// Does it, in this thread.
    fn perform(&mut self) -> io::Result<Self::Value>;

    /// Does it here and now, if that blocks nobody: `None` if it may block, or the caller
    /// is to hear something else than success.
    fn at_once(&mut self) -> Option<Self::Value> {
        None
    }

    /// True if to do it [at once](Task::at_once) takes a thread a few microseconds, so that it
    /// is not worth while to tell of each by itself.
    fn is_brief(&self) -> bool {
        false
    }

    /// Which kind of operation does it, so that nothing more is done where none does.
    fn kind(&mut self) -> Option<OpKind> {
        self.op().map(|op| op.kind())
    }

    /// The operation that does it, or the next part of it. What that names stays valid until
    /// it has completed, if this value stays in its place.
    fn op(&mut self) -> Option<Op> {
        None
    }

    /// The backend has the operation now, and will perform it.
    fn submitted(&mut self) {}

    /// The operation has completed.
    fn step(&mut self, _result: usize) -> Step<Self::Value> {
        Step::Again
    }
}

/// What follows when an operation of a task has completed.
#[derive(Debug)]
pub enum Step<T> {
    /// Nothing: this is what it gives.
    Over(io::Result<T>),
    /// The next operation.
    Again,
}

/// A task, and what it gave once it was done.
#[derive(Debug)]
pub(crate) struct Running<A: Task> {
    pub(crate) task: A,
    /// `None` if it has not been done.
    pub(crate) outcome: Option<io::Result<A::Value>>,
}

impl<A: Task> Running<A> {
    pub(crate) fn new(task: A) -> Running<A> {
        Running { task, outcome: None }
    }

    /// Does it if that blocks nobody; true if it is done.
    pub(crate) fn at_once(&mut self) -> bool {
        self.outcome = self.task.at_once().map(Ok);
        self.outcome.is_some()
    }

    /// Does it. No panic gets out, as none may end a worker.
    pub(crate) fn run(&mut self) {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.task.perform()));
        let panicked = |_| Err(io::Error::other("the task panicked: its result is lost"));
        self.outcome = Some(outcome.unwrap_or_else(panicked));
    }

    /// Takes the result of an operation; true if that was the last.
    pub(crate) fn step(&mut self, result: Result<usize, i32>) -> bool {
        let step = match result {
            Ok(result) => self.task.step(result),
            Err(code) => Step::Over(Err(io::Error::from_raw_os_error(code))),
        };
        match step {
            Step::Over(outcome) => self.outcome = Some(outcome),
            Step::Again => {}
        }
        self.outcome.is_some()
    }
}
