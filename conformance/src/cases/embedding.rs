//! Point 25: loops in loops of others, in many threads, in forked children.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use poll_core::Backend;
use uv_core::{Async, Channel, Handle, Idle, Loop, Poll, PollEvents, RunMode, Timer};

use crate::support::limits::leaves_no_descriptor;
use crate::support::loops::{ZERO, new_loop, run, run_to_the_end, timer_in};
use crate::support::sources::tcp_pair;
use crate::{Lab, Skip, Verdict};

/// `backend_timeout` is how long another poller may sleep before it runs the loop: for
/// ever, until the next timer, or not at all.
pub fn the_timeout_says_how_long<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    assert_eq!(lp.backend_timeout(), Some(ZERO), "a loop with nothing to do does not wait");
    let (handle, _) = Async::new(&mut lp, |_: &mut Loop<T>, _| {});
    assert_eq!(lp.backend_timeout(), None, "until a send");
    let hour = Duration::from_secs(3600);
    let timer = timer_in(&mut lp, hour, |_, _| {});
    assert_eq!(lp.backend_timeout(), Some(hour), "until the timer, from the loop's time on");
    timer.stop(&mut lp).expect("an open timer");
    assert_eq!(lp.backend_timeout(), None, "it was stopped");

    let idle = Idle::new(&mut lp);
    idle.start(&mut lp, |_, _| {}).expect("an idle");
    assert_eq!(lp.backend_timeout(), Some(ZERO), "an idle watcher");
    idle.stop(&mut lp).expect("an open idle");
    lp.defer(|_| {});
    assert_eq!(lp.backend_timeout(), Some(ZERO), "a deferred callback");
    run(&mut lp, RunMode::NoWait);
    idle.close(&mut lp).expect("an open idle");
    assert_eq!(lp.backend_timeout(), Some(ZERO), "a handle that closes");
    run(&mut lp, RunMode::NoWait);
    lp.stop();
    assert_eq!(lp.backend_timeout(), Some(ZERO), "a stop");
    run(&mut lp, RunMode::NoWait);
    assert_eq!(lp.backend_timeout(), None, "the stop is used up");
    handle.unreference(&mut lp).expect("an open handle");
    assert_eq!(lp.backend_timeout(), Some(ZERO), "nothing that keeps the loop");
    Ok(())
}

/// A ring of loops in as many threads, and a token that goes around: each loop is its
/// thread's own, and they reach each other through what is handed out.
pub fn loops_in_many_threads<T: Backend>(lab: &Lab<T>) -> Verdict {
    const LOOPS: usize = 4;
    const HOPS: u32 = 2_000;
    drop(lab.backend()?);
    thread::scope(|scope| {
        let (made, senders) = mpsc::channel();
        let mut neighbours = Vec::new();
        for index in 0..LOOPS {
            let made = made.clone();
            let (neighbour, next) = mpsc::channel::<uv_core::Sender<u32>>();
            neighbours.push(neighbour);
            scope.spawn(move || {
                let mut lp = Loop::new(lab.backend().expect("a backend, as before"));
                let mut to = None;
                let (_, sender) =
                    Channel::new(&mut lp, move |lp: &mut Loop<T>, channel, hops: u32| {
                        let to = to.get_or_insert_with(|| next.recv().expect("a neighbour"));
                        // The last rounds tell everyone to end.
                        if hops + LOOPS as u32 > HOPS {
                            channel.handle().close(lp).expect("an open channel");
                        }
                        if hops < HOPS {
                            to.send(hops + 1).expect("an open channel");
                        }
                    });
                let tick = Duration::from_micros(100);
                let timer = Timer::new(&mut lp);
                timer.start(&mut lp, tick, tick, |_, _| {}).expect("a timer");
                timer.unreference(&mut lp).expect("an open timer");
                made.send((index, sender)).expect("a case that listens");
                run_to_the_end(&mut lp);
            });
        }
        let mut ring: Vec<_> = senders.iter().take(LOOPS).collect();
        ring.sort_by_key(|(index, _)| *index);
        for (index, neighbour) in neighbours.iter().enumerate() {
            let (_, sender) = &ring[(index + 1) % LOOPS];
            neighbour.send(sender.clone()).expect("a loop that listens");
        }
        ring[0].1.send(1).expect("an open channel");
    });
    Ok(())
}

/// A loop that is dropped, its handles in whatever state, leaves no descriptor behind.
pub fn no_descriptor_is_left_behind<T: Backend>(lab: &Lab<T>) -> Verdict {
    leaves_no_descriptor(|| {
        let mut lp = new_loop(lab)?;
        let (near, far) = tcp_pair();
        let poll = Poll::new(&mut lp, near).expect("a poll");
        poll.start(&mut lp, PollEvents::WRITABLE, |_, _, _| {}).expect("a started poll");
        Poll::new(&mut lp, far).expect("a poll that is never started");
        let (closed, peer) = tcp_pair();
        let closed = Poll::new(&mut lp, closed).expect("a poll");
        let (_, sender) = Async::new(&mut lp, |_: &mut Loop<T>, _| {});
        run(&mut lp, RunMode::NoWait);
        closed.close(&mut lp).expect("an open poll");
        sender.send().expect("an open handle");
        drop((lp, peer));
        Ok(())
    })
}

#[cfg(unix)]
mod unix {
    use std::cell::RefCell;
    use std::io::ErrorKind;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::rc::Rc;
    use std::time::Instant;

    use poll_core::RawSource;
    use uv_core::{AsyncSender, Lane, Pool, Signal, Tcp, WorkError};

    use super::*;
    use crate::support::child::Child;
    use crate::support::dispositions::{Changed, Disposition, raise};
    use crate::support::gate::Gate;
    use crate::support::observe::{SHORT, SOON};
    use crate::support::sources::{drain, listener, send};
    use crate::support::trace::Trace;

    fn own_descriptor<T: Backend>(lp: &Loop<T>) -> Result<RawSource, Skip> {
        lp.raw_fd().ok_or_else(|| Skip::because("has no descriptor of its own"))
    }

    /// Sleeps in `poll(2)` on a loop's descriptor for as long as the loop says.
    fn sleep_outside<T: Backend>(lp: &mut Loop<T>, source: RawSource) {
        let timeout = match lp.backend_timeout() {
            // Rounded up: to wake too early is to wake twice.
            Some(timeout) => timeout.as_nanos().div_ceil(1_000_000) as libc::c_int,
            None => -1,
        };
        let mut polled = libc::pollfd { fd: source.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `polled` is one valid entry, and outlives the call.
        let count = unsafe { libc::poll(&mut polled, 1, timeout) };
        assert!(count >= 0, "poll: {}", std::io::Error::last_os_error());
    }

    /// An async that writes its name once, and closes itself.
    fn noting_once<T: Backend>(lp: &mut Loop<T>, trace: &Trace, name: &'static str) -> AsyncSender {
        let close = |lp: &mut Loop<T>, handle: Async| handle.close(lp).expect("an open handle");
        Async::new(lp, trace.then(name, close)).1
    }

    /// Descriptor, timeout and runs that do not wait are all that another poller needs to
    /// drive a loop: timers, sends and sources come through it, and it sleeps in between.
    pub fn another_poller_drives_the_loop<T: Backend>(lab: &Lab<T>) -> Verdict {
        let mut lp = new_loop(lab)?;
        let own = own_descriptor(&lp)?;
        let trace = Trace::default();
        let (near, far) = tcp_pair();
        timer_in(&mut lp, SHORT / 2, trace.noting("timer"));
        let sender = noting_once(&mut lp, &trace, "async");
        let (poll, noted) = (Poll::new(&mut lp, near).expect("a poll"), trace.clone());
        let told = move |lp: &mut Loop<T>, poll: Poll, _| {
            noted.note("poll");
            poll.close(lp).expect("an open poll");
        };
        poll.start(&mut lp, PollEvents::READABLE, told).expect("a started poll");
        let thread = thread::spawn(move || {
            thread::sleep(2 * SHORT);
            sender.send().expect("a send");
            thread::sleep(2 * SHORT);
            send(&far, b"x");
            far
        });
        let (mut turns, started) = (0, Instant::now());
        while run(&mut lp, RunMode::NoWait) {
            assert!(started.elapsed() < SOON, "something is not told");
            turns += 1;
            sleep_outside(&mut lp, own);
        }
        thread.join().expect("the sender");
        trace.expect(&["timer", "async", "poll"], "each in its time");
        assert!(turns < 50, "{turns} turns for three events: the poller does not sleep");
        Ok(())
    }

    /// A loop's descriptor, for another loop to poll.
    struct Inner(RawSource);

    impl AsFd for Inner {
        fn as_fd(&self) -> BorrowedFd<'_> {
            // SAFETY: the inner loop outlives the outer one, and keeps its descriptor.
            unsafe { BorrowedFd::borrow_raw(self.0.fd()) }
        }
    }

    /// A loop runs inside another of the same kind, which polls its descriptor: what
    /// happens to the inner one wakes the outer one.
    pub fn a_loop_runs_inside_another<T: Backend>(lab: &Lab<T>) -> Verdict {
        let (mut inner, trace) = (new_loop(lab)?, Trace::default());
        let own = own_descriptor(&inner)?;
        let (near, far) = tcp_pair();
        let reads = near.try_clone().expect("a clone");
        let (poll, noted) = (Poll::new(&mut inner, near).expect("a poll"), trace.clone());
        let told = move |_: &mut Loop<T>, _, _| {
            drain(&reads);
            noted.note("poll inside");
        };
        poll.start(&mut inner, PollEvents::READABLE, told).expect("a started poll");
        let (_, sender) = Async::new(&mut inner, trace.noting("async inside"));
        run(&mut inner, RunMode::NoWait); // Tells the kernel of the sources.

        let inner = Rc::new(RefCell::new(inner));
        let mut outer = new_loop(lab)?;
        let poll = Poll::new(&mut outer, Inner(own))
            .unwrap_or_else(|error| panic!("a loop cannot be polled by another: {error}"));
        let (inside, noted) = (Rc::clone(&inner), trace.clone());
        let run_inside = move |_: &mut Loop<T>, _, events: std::io::Result<PollEvents>| {
            noted.note("outside");
            assert_eq!(events.expect("no error"), PollEvents::READABLE);
            run(&mut inside.borrow_mut(), RunMode::NoWait);
        };
        poll.start(&mut outer, PollEvents::READABLE, run_inside).expect("a started poll");
        for _ in 0..3 {
            let thread = thread::spawn({
                let (sender, far) = (sender.clone(), far.try_clone().expect("a clone"));
                move || {
                    thread::sleep(SHORT);
                    sender.send().expect("a send");
                    thread::sleep(SHORT);
                    send(&far, b"x");
                }
            });
            let mut seen = Vec::new();
            while seen.len() < 2 {
                run(&mut outer, RunMode::Once);
                seen.extend(trace.take().into_iter().filter(|name| *name != "outside"));
            }
            thread.join().expect("the sender");
            assert_eq!(seen, ["async inside", "poll inside"]);
            // The outer loop sleeps again, sooner or later: a nested kernel object may be
            // readable once more for what was read already.
            let quiet = (0..100).any(|_| {
                run(&mut outer, RunMode::NoWait);
                trace.take().is_empty()
            });
            assert!(quiet, "the outer loop spins");
        }
        Ok(())
    }

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
}

#[cfg(unix)]
pub use unix::*;

/// The cases that need a descriptor of the loop's own, or a fork.
#[cfg(not(unix))]
macro_rules! unix_alone {
    ($($name:ident: $why:literal;)*) => { $(
        /// Needs what Windows has not.
        pub fn $name<T: Backend>(_lab: &Lab<T>) -> Verdict {
            Err(Skip::because($why))
        }
    )* };
}

#[cfg(not(unix))]
unix_alone! {
    another_poller_drives_the_loop: "no backend has a descriptor of its own on Windows";
    a_loop_runs_inside_another: "no backend has a descriptor of its own on Windows";
    a_forked_child_carries_on: "Windows has no fork";
    what_came_before_a_fork_is_the_parents: "Windows has no fork";
    work_in_flight_is_cancelled_in_a_child: "Windows has no fork";
    a_connect_goes_on_in_a_child: "Windows has no fork";
    a_parent_survives_careless_children: "Windows has no fork";
}
