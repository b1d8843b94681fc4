//! The hot paths: the name of each, its run lengths, and the code that performs it.
//!
//! A path runs in a separate process, on one thread besides those of a pool: the driver serves the
//! peer sockets between two iterations of the loop. Every step then happens
//! in the same order in each run. The driver costs the same for every loop; [`Part::Driver`]
//! runs it alone, so that its cost can be subtracted.

mod core;
mod driver;
#[cfg(feature = "libuv")]
mod libuv;

use std::cell::Cell;
use std::io::{self, Write as _};
use std::mem::ManuallyDrop;

/// Bytes in each request and each answer.
const REQUEST: usize = 64;
/// Connections that are ready in one iteration on the paths that end in `-16`, and jobs that end
/// between two iterations.
const MANY: usize = 16;
/// Timers that fire in one iteration.
const TIMERS: usize = 1024;
/// Timers besides those that a run starts or stops, so that no structure is empty.
const OTHER_TIMERS: usize = 4096;
/// Bytes in each piece of a file.
const PIECE: usize = 4096;

thread_local! {
    /// The number of completed operations. The callbacks of all loops count here, so that counting
    /// has the same cost for each.
    static DONE: Cell<u64> = const { Cell::new(0) };
}

/// The way an echo server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// By a write that calls back.
    Write,
    /// By a write that the kernel takes immediately.
    TryWrite,
    /// By a write that is batched with those of other connections. libuv has no such write and uses
    /// `uv_try_write`.
    Batched,
    /// Without an answer.
    Nothing,
}

/// The operation that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A request is read and answered, on this number of connections in one iteration.
    Echo(Answer, usize),
    /// A write that calls back.
    Write,
    /// A write without a callback, outside of the loop.
    TryWrite,
    /// A timer is started among others.
    TimerStart,
    /// A started timer is stopped.
    TimerStop,
    /// A started timer is started with a later deadline.
    TimerRestart,
    /// A timer is started without a delay, and calls back.
    TimerFire,
    /// An async handle is notified and calls back.
    AsyncSend,
    /// A pool of one thread runs closures, and the results call back.
    Work,
    /// A datagram is received and answered by a send that calls back.
    UdpSend,
    /// A datagram is received and answered by a send without a callback.
    UdpTrySend,
    /// A piece of a file is read, and the result calls back.
    FsRead,
    /// An iteration that finds a registered socket quiet.
    Iteration,
}

/// A hot path.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) name: &'static str,
    pub(crate) action: Action,
    /// Rounds of the short run; the long one has three times as many.
    pub(crate) rounds: u64,
    /// Operations in each round.
    pub(crate) batch: u64,
    /// The path does not depend on the backend: it is counted on one only.
    pub(crate) only_loop: bool,
}

const fn path(name: &'static str, action: Action) -> Path {
    let batch = match action {
        Action::Echo(_, connections) => connections as u64,
        Action::TimerFire => TIMERS as u64,
        Action::Work => MANY as u64,
        _ => 1,
    };
    let rounds = match action {
        Action::Echo(_, 1) | Action::UdpSend | Action::UdpTrySend => 200,
        Action::Echo(..) | Action::Work => 60,
        Action::TimerFire => 4,
        Action::TimerStart | Action::TimerStop | Action::TimerRestart => 1000,
        Action::Write | Action::TryWrite | Action::FsRead => 300,
        _ => 400,
    };
    let only_loop = matches!(
        action,
        Action::TimerStart | Action::TimerStop | Action::TimerRestart | Action::TimerFire
    );
    Path { name, action, rounds, batch, only_loop }
}

/// All paths, in the order of the table.
pub(crate) const ALL: [Path; 19] = [
    path("echo-write", Action::Echo(Answer::Write, 1)),
    path("echo-try-write", Action::Echo(Answer::TryWrite, 1)),
    path("echo-batched", Action::Echo(Answer::Batched, 1)),
    path("echo-write-16", Action::Echo(Answer::Write, MANY)),
    path("echo-try-write-16", Action::Echo(Answer::TryWrite, MANY)),
    path("echo-batched-16", Action::Echo(Answer::Batched, MANY)),
    path("read", Action::Echo(Answer::Nothing, 1)),
    path("write", Action::Write),
    path("try-write", Action::TryWrite),
    path("udp-send", Action::UdpSend),
    path("udp-try-send", Action::UdpTrySend),
    path("timer-start", Action::TimerStart),
    path("timer-stop", Action::TimerStop),
    path("timer-restart", Action::TimerRestart),
    path("timer-fire", Action::TimerFire),
    path("async-send", Action::AsyncSend),
    path("work", Action::Work),
    path("fs-read", Action::FsRead),
    path("iteration", Action::Iteration),
];

/// A path by its name.
pub(crate) fn named(name: &str) -> Option<&'static Path> {
    ALL.iter().find(|path| path.name == name)
}

/// The loop that a path runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Subject {
    /// uv-core's loop on epoll.
    Epoll,
    /// uv-core's loop on io_uring.
    Uring,
    /// libuv, with recycled buffers and requests.
    Libuv,
}

impl Subject {
    pub(crate) const ALL: [Subject; 3] = [Subject::Epoll, Subject::Uring, Subject::Libuv];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Subject::Epoll => "epoll",
            Subject::Uring => "uring",
            Subject::Libuv => "libuv",
        }
    }
}

/// The part of a path to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Part {
    /// The whole path.
    Whole,
    /// The driver, without the counted operation.
    Driver,
}

impl Path {
    /// The path whose [`Part::Driver`] does what the driver of this one does, if that has a cost.
    pub(crate) fn driver(&self) -> Option<&'static Path> {
        let name = match self.action {
            Action::Echo(Answer::Nothing, _) => "read",
            Action::Echo(_, MANY) => "echo-write-16",
            Action::Echo(..) | Action::UdpSend | Action::UdpTrySend => "echo-write",
            Action::Write | Action::TryWrite => "write",
            Action::Work => "work",
            _ => return None,
        };
        named(name)
    }

    /// Runs the path in this process, and checks its counts.
    ///
    /// # Errors
    ///
    /// Those of the system calls, `Unsupported` for a subject that is not in this build, and an
    /// error if a callback is missing.
    pub(crate) fn run(&self, subject: Subject, part: Part, rounds: u64) -> io::Result<()> {
        if part == Part::Driver {
            return driver::alone(self.action, rounds);
        }
        match subject {
            Subject::Epoll => core::run(poll_epoll::Epoll::new()?, self.action, rounds),
            Subject::Uring => core::run(poll_uring::Uring::new()?, self.action, rounds),
            #[cfg(feature = "libuv")]
            Subject::Libuv => libuv::run(self.action, rounds),
            #[cfg(not(feature = "libuv"))]
            Subject::Libuv => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                crate::suites::not_in_this_build("libuv"),
            )),
        }
    }
}

/// Keeps `value` until the process ends: a teardown is not a part of any path.
fn keep<T>(value: T) {
    let _ = ManuallyDrop::new(value);
}

/// Ends the process: a callback has no other way to report an error.
#[cold]
fn fail(why: &str) -> ! {
    let _ = writeln!(io::stderr(), "bench: {why}");
    std::process::exit(2)
}

fn done() -> u64 {
    DONE.get()
}

#[inline]
fn count_done() {
    DONE.set(DONE.get() + 1);
}

/// An error unless callbacks have counted `expected` operations.
fn check(expected: u64) -> io::Result<()> {
    match done() {
        counted if counted == expected => Ok(()),
        counted => Err(io::Error::other(format!("{counted} operations instead of {expected}"))),
    }
}

const HOUR_MS: u64 = 3_600_000;

/// Deadlines in milliseconds, the same in each run and on every loop, hours away.
fn timeouts(count: usize) -> Vec<u64> {
    let mut random = crate::random::Random::new(0);
    (0..count).map(|_| HOUR_MS + random.draw() % HOUR_MS).collect()
}
