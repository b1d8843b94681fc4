//! Loops in forked children.

use std::io::ErrorKind;
use std::thread;
use std::time::{Duration, Instant};

use poll_core::Backend;
use uv_core::{
    Async, AsyncSender, Handle, Lane, Loop, Poll, PollEvents, Pool, RunMode, Signal, Tcp, Timer,
    WorkError,
};

use crate::support::child::Child;
use crate::support::dispositions::{Changed, Disposition, raise};
use crate::support::gate::Gate;
use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::observe::SOON;
use crate::support::sources::{drain, listener, send, tcp_pair};
use crate::support::trace::Trace;
use crate::{Lab, Skip, Verdict};

/// Makes the loop work in a forked child, or says why it cannot.
fn after_fork<T: Backend>(lp: &mut Loop<T>) -> Verdict {
    match lp.fork() {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            Err(Skip::because(error.to_string()))
        }
        other => {
            other.unwrap_or_else(|error| panic!("fork: {error}"));
            Ok(())
        }
    }
}

/// Runs the loop until all of `names` were noted, in whatever order.
#[track_caller]
fn await_all<T: Backend>(lp: &mut Loop<T>, trace: &Trace, names: &[&str]) {
    let (mut missing, started) = (names.to_vec(), Instant::now());
    while !missing.is_empty() {
        assert!(started.elapsed() < SOON, "{missing:?} do not come");
        run(lp, RunMode::Once);
        for seen in trace.take() {
            missing.retain(|name| *name != seen);
        }
    }
}

/// A loop with a timer, an async, a poll and a signal, and what triggers them.
struct Busy<T: Backend> {
    lp: Loop<T>,
    trace: Trace,
    sender: AsyncSender,
    far: std::net::TcpStream,
    _ignored: Changed,
}

const SIGNUM: i32 = libc::SIGUSR1;

impl<T: Backend> Busy<T> {
    fn new(lab: &Lab<T>) -> Result<Busy<T>, Skip> {
        let _ignored = Changed::to(SIGNUM, Disposition::Ignored);
        let (mut lp, trace) = (new_loop(lab)?, Trace::default());
        let timer = Timer::new(&mut lp);
        let tick = Duration::from_millis(1);
        timer.start(&mut lp, tick, tick, trace.noting("timer")).expect("a timer");
        let (_, sender) = Async::new(&mut lp, trace.noting("async"));
        let (near, far) = tcp_pair();
        let reads = near.try_clone().expect("a clone");
        let (poll, noted) = (Poll::new(&mut lp, near).expect("a poll"), trace.clone());
        let told = move |_: &mut Loop<T>, _, _| {
            drain(&reads);
            noted.note("poll");
        };
        poll.start(&mut lp, PollEvents::READABLE, told).expect("a started poll");
        let (signal, noted) = (Signal::new(&mut lp), trace.clone());
        signal.start(&mut lp, SIGNUM, move |_, _, _| noted.note("signal")).expect("a signal");
        run(&mut lp, RunMode::NoWait);
        trace.take();
        Ok(Busy { lp, trace, sender, far, _ignored })
    }

    /// Triggers all that can be, and waits until it is told.
    fn use_all(&mut self) {
        self.sender.send().expect("a sender from before");
        raise(SIGNUM);
        send(&self.far, b"x");
        let noted = self.trace.clone();
        self.lp
            .queue_work(
                || {},
                move |_, done| {
                    done.expect("not cancelled");
                    noted.note("work");
                },
            )
            .expect("queued work");
        await_all(&mut self.lp, &self.trace, &["timer", "async", "poll", "signal", "work"]);
    }
}

/// In a forked child the loop goes on: timers, polls and signals as they were, senders
/// from before the fork, and new work; and what the child does is not noticed by its
/// parent.
pub fn a_forked_child_carries_on<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut busy = Busy::new(lab)?;
    busy.use_all(); // The parent's pool has threads, which the child has not.
    let child = Child::fork(|| {
        after_fork(&mut busy.lp)?;
        for _ in 0..3 {
            busy.use_all();
        }
        Ok(())
    });
    child.join(3 * SOON)?;
    busy.trace.take();
    run(&mut busy.lp, RunMode::NoWait);
    let seen = busy.trace.take();
    // What the child sent and read came by the parent's socket, too.
    let own = |name: &&str| ["timer", "poll"].contains(name);
    assert!(seen.iter().all(own), "of the child's doing: {seen:?}");
    busy.use_all();
    Ok(())
}

/// Sends and signals that came before the fork are told in the parent alone.
pub fn what_came_before_a_fork_is_the_parents<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut busy = Busy::new(lab)?;
    busy.sender.send().expect("a send");
    raise(SIGNUM);
    let child = Child::fork(|| {
        after_fork(&mut busy.lp)?;
        for _ in 0..3 {
            run(&mut busy.lp, RunMode::Once); // A tick of the timer each.
        }
        let seen = busy.trace.take();
        assert!(seen.iter().all(|name| *name == "timer"), "the parent's: {seen:?}");
        raise(SIGNUM);
        run(&mut busy.lp, RunMode::NoWait);
        let signals = busy.trace.take().into_iter().filter(|name| *name == "signal").count();
        assert_eq!(signals, 1, "the parent's signal comes with the child's");
        busy.use_all();
        Ok(())
    });
    child.join(3 * SOON)?;
    await_all(&mut busy.lp, &busy.trace, &["async", "signal"]);
    Ok(())
}

/// Work that was not done by the time of a fork is cancelled in the child, whose threads
/// would never do it: its loop would wait for ever. In the parent it goes on.
pub fn work_in_flight_is_cancelled_in_a_child<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, pool) = (new_loop(lab)?, Pool::new(1).expect("a pool"));
    let (gate, trace) = (Gate::default(), Trace::default());
    let noting = |done: &'static str, cancelled: &'static str| {
        let noted = trace.clone();
        move |_: &mut Loop<T>, result: Result<(), WorkError>| match result {
            Ok(()) => noted.note(done),
            Err(WorkError::Cancelled) => noted.note(cancelled),
            Err(error) => panic!("{error}"),
        }
    };
    let done = noting("done", "done, cancelled");
    lp.queue_work_on(&pool, Lane::Cpu, || {}, done).expect("queued work");
    while pool.queued() + pool.active() > 0 {
        thread::yield_now();
    }
    let at = gate.clone();
    let running = noting("ran", "ran, cancelled");
    lp.queue_work_on(&pool, Lane::Cpu, move || at.pass(), running).expect("queued work");
    gate.await_waiting(1);
    for _ in 0..2 {
        let queued = noting("queued", "queued, cancelled");
        lp.queue_work_on(&pool, Lane::Cpu, || {}, queued).expect("queued work");
    }

    let child = Child::fork(|| {
        after_fork(&mut lp)?;
        run_to_the_end(&mut lp);
        let mut seen = trace.take();
        seen.sort_unstable();
        let expected = ["done", "queued, cancelled", "queued, cancelled", "ran, cancelled"];
        assert_eq!(seen, expected, "in the child");
        lp.queue_work(|| {}, noting("new", "new, cancelled")).expect("queued work");
        run_to_the_end(&mut lp);
        trace.expect(&["new"], "the child has a pool of its own");
        Ok(())
    });
    child.join(3 * SOON)?;
    gate.open();
    run_to_the_end(&mut lp);
    trace.expect(&["done", "ran", "queued", "queued"], "in the parent");
    Ok(())
}

/// A connect that was begun before a fork is made in the child, whether the kernel had heard
/// of it or not.
pub fn a_connect_goes_on_in_a_child<T: Backend>(lab: &Lab<T>) -> Verdict {
    for begun in [false, true] {
        let (mut lp, trace) = (new_loop(lab)?, Trace::default());
        let (listener, client) = (listener(), Tcp::new(&mut lp));
        let (address, noted) = (listener.local_addr().expect("an address"), trace.clone());
        let connected = move |lp: &mut Loop<T>, client: Tcp, result: std::io::Result<()>| {
            result.expect("a connection");
            noted.note("connected");
            client.close(lp).expect("a close");
        };
        client.connect(&mut lp, address, connected).expect("a connect");
        if begun {
            run(&mut lp, RunMode::NoWait);
        }
        let done = trace.take();
        let child = Child::fork(|| {
            after_fork(&mut lp)?;
            run_to_the_end(&mut lp);
            let expected: &[&str] = if done.is_empty() { &["connected"] } else { &[] };
            trace.expect(expected, "in the child");
            Ok(())
        });
        child.join(3 * SOON)?;
    }
    Ok(())
}

/// A child that fails to use the loop at all, or drops it, does not disturb its parent:
/// most children only call `exec`.
pub fn a_parent_survives_careless_children<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut busy = Busy::new(lab)?;
    for drops in [false, true] {
        let child = Child::fork(|| {
            if drops {
                after_fork(&mut busy.lp)?;
                // SAFETY: this copy is the child's alone, and the child ends without
                // looking at it again.
                unsafe { std::ptr::drop_in_place(&mut busy.lp) };
            }
            Ok(())
        });
        child.join(3 * SOON)?;
        busy.use_all();
    }
    Ok(())
}
