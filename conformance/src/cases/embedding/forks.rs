//! Loops in forked children.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use poll_core::Backend;
use uv_core::{
    Async, AsyncSender, Handle, Lane, Loop, Poll, PollEvents, Pool, RunMode, Signal, Stream, Tcp,
    Timer, WorkError, fs,
};

use crate::support::child::Child;
use crate::support::datagrams;
use crate::support::dispositions::{Changed, Disposition, raise};
use crate::support::files::file_of;
use crate::support::gate::Gate;
use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::observe::SOON;
use crate::support::sources::{drain, listener, send, tcp_pair};
use crate::support::streams::{bound, connected, fill_up, outcome, run_until};
use crate::support::trace::{Log, Trace};
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

/// Runs `body` on the loop in a forked child, and `meanwhile` on that of the parent, which must
/// let go of what both have: who is first to read has what comes.
fn in_both<T: Backend, R>(
    lp: &mut Loop<T>,
    body: impl FnOnce(&mut Loop<T>),
    meanwhile: impl FnOnce(&mut Loop<T>) -> R,
) -> Result<R, Skip> {
    let child = Child::fork(|| {
        after_fork(lp)?;
        body(lp);
        Ok(())
    });
    let result = meanwhile(lp);
    child.join(3 * SOON)?;
    Ok(result)
}

/// A stream that is read before a fork is read in the child, in either way, whether the kernel
/// had heard of it or not. So it is again in a child of that.
pub fn reads_go_on_in_a_child<T: Backend>(lab: &Lab<T>) -> Verdict {
    for (pulled, begun) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut lp, log) = (new_loop(lab)?, Log::default());
        let (tcp, far) = connected(&mut lp);
        let came = log.clone();
        if pulled {
            let told =
                move |_: &mut Loop<T>, _, result: std::io::Result<usize>, memory: Vec<u8>| {
                    came.extend(result.map(|count| memory[..count].to_vec()));
                };
            tcp.read(&mut lp, vec![0; 16], told).expect("a read");
        } else {
            let reading = tcp.read_start(&mut lp, move |_, _, bytes| {
                came.push(bytes.expect("what was sent").to_vec());
            });
            reading.expect("a connection is read");
        }
        if begun {
            run(&mut lp, RunMode::NoWait);
        }
        let in_the_child = |lp: &mut Loop<T>| {
            run_until(lp, "what was sent", |_| log.len() > 0);
            assert_eq!(log.take(), [b"for the child"], "in the child");
        };
        in_both(&mut lp, in_the_child, |lp| {
            tcp.close(lp).expect("an open handle");
            run_to_the_end(lp);
            send(&far, b"for the child");
        })?;
        assert_eq!(log.len(), 0, "the parent does not read any more");
    }
    Ok(())
}

/// A listener accepts in a child of a fork, and a UDP socket receives there.
pub fn listeners_and_receivers_go_on_in_a_child<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, log) = (new_loop(lab)?, Log::default());
    let (server, address) = bound(&mut lp);
    let accepted = log.clone();
    let listening = server.listen(&mut lp, 16, move |lp, server, result| {
        result.expect("a connection");
        let peer = server.accept(lp).expect("the connection");
        peer.close(lp).expect("an open handle");
        accepted.push(0);
    });
    listening.expect("a bound handle listens");
    let (udp, at) = datagrams::bound(&mut lp);
    datagrams::receive_numbers(&mut lp, udp, &log, usize::MAX);
    run(&mut lp, RunMode::NoWait);
    let in_the_child = |lp: &mut Loop<T>| {
        run_until(lp, "a connection and a datagram", |_| log.len() > 1);
        let mut seen = log.take();
        seen.sort_unstable();
        assert_eq!(seen, [0, 7], "in the child");
    };
    let client = in_both(&mut lp, in_the_child, |lp| {
        server.close(lp).expect("an open handle");
        udp.close(lp).expect("an open handle");
        run_to_the_end(lp);
        datagrams::send_numbers(at, 7..8);
        TcpStream::connect(address).expect("a connection")
    })?;
    drop(client);
    assert_eq!(log.len(), 0, "the parent is told nothing");
    Ok(())
}

/// A write that waits for room at the time of a fork is finished in the child, and all that was
/// written arrives once, if the parent gives it up. So does what was written in a batch, where
/// that can wait.
pub fn writes_go_on_in_a_child<T: Backend>(lab: &Lab<T>) -> Verdict {
    for batched in [false, true] {
        let (mut lp, ends) = (new_loop(lab)?, Log::default());
        let (tcp, mut far) = connected(&mut lp);
        let (filled, rest) = (fill_up(&mut lp, tcp), Log::default());
        let (ended, wrote) = (ends.clone(), rest.clone());
        lp.defer(move |lp| {
            if batched && tcp.write_batched(lp, b"in a batch, ").is_ok() {
                wrote.push("in a batch, ");
            }
            tcp.write(lp, "the rest", ended.written("write")).expect("a write that waits");
            wrote.push("the rest");
        });
        run(&mut lp, RunMode::NoWait);
        run(&mut lp, RunMode::NoWait);
        let in_the_child = |lp: &mut Loop<T>| {
            run_until(lp, "the end of the write", |_| ends.len() > 0);
            assert_eq!(ends.take(), [("write", "done")], "in the child");
        };
        let came = in_both(&mut lp, in_the_child, |lp| {
            tcp.close(lp).expect("an open handle");
            run_to_the_end(lp);
            let mut came = Vec::new();
            far.read_to_end(&mut came).expect("what was written");
            came
        })?;
        assert_eq!(String::from_utf8_lossy(&came[filled..]), rest.take().concat(), "what waited");
        assert_eq!(ends.take(), [("write", "cancelled")], "in the parent, which closed");
    }
    Ok(())
}

/// An operation on a file that was not done by the time of a fork is cancelled in the child, once,
/// whether the kernel had heard of it or not; what its callback starts there is not. In the
/// parent it goes on.
pub fn files_in_flight_are_cancelled_in_a_child<T: Backend>(lab: &Lab<T>) -> Verdict {
    fn follow<T: Backend>(lp: &mut Loop<T>, left: u32, ends: &Log<&'static str>) {
        let ends = ends.clone();
        let stat = fs::stat(".").start(lp, move |lp, stat| {
            ends.push(outcome(&stat));
            if left > 1 {
                follow(lp, left - 1, &ends);
            }
        });
        stat.expect("it starts");
    }
    for begun in [false, true] {
        let (mut lp, ends) = (new_loop(lab)?, Log::default());
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let file = file_of(reader);
        let told = ends.clone();
        let read = fs::read(&file, vec![0; 4]).start(&mut lp, move |lp, (result, _)| {
            told.push(outcome(&result));
            follow(lp, 3, &told);
        });
        let read = read.expect("it starts");
        if begun {
            run(&mut lp, RunMode::NoWait);
        }
        assert_eq!(ends.len(), 0, "there is nothing to read");
        let in_the_child = |lp: &mut Loop<T>| {
            // It is over, so that it cannot be cancelled any more.
            let _ = read.cancel(lp);
            run_to_the_end(lp);
            assert_eq!(ends.take(), ["cancelled", "done", "done", "done"], "in the child");
        };
        in_both(&mut lp, in_the_child, |lp| {
            send(&mut writer, b"text");
            run_to_the_end(lp);
        })?;
        assert_eq!(ends.take(), ["done"; 4], "in the parent");
    }
    Ok(())
}
