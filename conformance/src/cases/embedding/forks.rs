//! Loops in forked children.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use uv_core::{
    Async, AsyncSender, Handle, Listener, Pipe, Poll, PollEvents, Pool, RunMode, Signal, Stream,
    Tcp, Timer, WorkError, WorkKind, fs,
};

use crate::support::child::{Child, after_fork};
use crate::support::datagrams;
use crate::support::dispositions::{Changed, Disposition, raise};
use crate::support::files::file_of;
use crate::support::gate::Gate;
use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::observe::SOON;
use crate::support::pipes::Name;
use crate::support::sources::{drain, fill_by, listener, send, tcp_pair};
use crate::support::streams::{bound, connected, outcome, run_until};
use crate::support::trace::{Log, Trace};
use crate::{Lab, Loop, Skip, Verdict};

/// Runs the loop until all of `names` were logged, in any order.
#[track_caller]
fn await_all(lp: &mut Loop, trace: &Trace, names: &[&str]) {
    let (mut missing, started) = (names.to_vec(), Instant::now());
    while !missing.is_empty() {
        assert!(started.elapsed() < SOON, "{missing:?} are not delivered");
        run(lp, RunMode::Once);
        for seen in trace.take() {
            missing.retain(|name| *name != seen);
        }
    }
}

/// A loop with a timer, an async, a poll and a signal, and their triggers.
struct Busy {
    lp: Loop,
    trace: Trace,
    sender: AsyncSender,
    far: std::net::TcpStream,
    _ignored: Changed,
}

const SIGNUM: i32 = libc::SIGUSR1;

impl Busy {
    fn new(lab: &Lab) -> Result<Busy, Skip> {
        let _ignored = Changed::to(SIGNUM, Disposition::Ignored);
        let (mut lp, trace) = (new_loop(lab)?, Trace::default());
        let timer = Timer::new(&mut lp);
        let tick = Duration::from_millis(1);
        timer.start(&mut lp, tick, tick, trace.noting("timer")).expect("a timer");
        let (_, sender) = Async::new(&mut lp, trace.noting("async"));
        let (near, far) = tcp_pair();
        let reads = near.try_clone().expect("a clone");
        let (poll, noted) = (Poll::new(&mut lp, near).expect("a poll"), trace.clone());
        let callback = move |_: &mut Loop, _, _| {
            drain(&reads);
            noted.note("poll");
        };
        poll.start(&mut lp, PollEvents::READABLE, callback).expect("a started poll");
        let (signal, noted) = (Signal::new(&mut lp), trace.clone());
        signal.start(&mut lp, SIGNUM, move |_, _, _| noted.note("signal")).expect("a signal");
        run(&mut lp, RunMode::NoWait);
        trace.take();
        Ok(Busy { lp, trace, sender, far, _ignored })
    }

    /// Triggers every event, and runs the loop until each was delivered.
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

/// A loop continues in a forked child: with its timers, polls and signals, with senders from before
/// the fork, and with new work. The parent is not affected.
pub fn a_forked_child_continues_the_loop(lab: &Lab) -> Verdict {
    let mut busy = Busy::new(lab)?;
    busy.use_all(); // Starts the parent's pool threads, which the child lacks.
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
    // The child's sends and reads also affect the parent's copy of the socket.
    let own = |name: &&str| ["timer", "poll"].contains(name);
    assert!(seen.iter().all(own), "events of the child: {seen:?}");
    busy.use_all();
    Ok(())
}

/// Sends and signals from before the fork are delivered in the parent only.
pub fn sends_and_signals_before_a_fork_stay_in_the_parent(lab: &Lab) -> Verdict {
    let mut busy = Busy::new(lab)?;
    busy.sender.send().expect("a send");
    raise(SIGNUM);
    let child = Child::fork(|| {
        after_fork(&mut busy.lp)?;
        for _ in 0..3 {
            run(&mut busy.lp, RunMode::Once); // One timer tick each.
        }
        let seen = busy.trace.take();
        assert!(seen.iter().all(|name| *name == "timer"), "the parent's: {seen:?}");
        raise(SIGNUM);
        run(&mut busy.lp, RunMode::NoWait);
        let signals = busy.trace.take().into_iter().filter(|name| *name == "signal").count();
        assert_eq!(signals, 1, "the parent's signal was delivered in the child");
        busy.use_all();
        Ok(())
    });
    child.join(3 * SOON)?;
    await_all(&mut busy.lp, &busy.trace, &["async", "signal"]);
    Ok(())
}

/// Work in flight at a fork is cancelled in the child, which does not have its threads: the child's
/// loop would wait forever. In the parent the work continues.
pub fn work_in_flight_is_cancelled_in_a_child(lab: &Lab) -> Verdict {
    let (mut lp, pool) = (new_loop(lab)?, Pool::new(1).expect("a pool"));
    let (gate, trace) = (Gate::default(), Trace::default());
    let noting = |done: &'static str, cancelled: &'static str| {
        let noted = trace.clone();
        move |_: &mut Loop, result: Result<(), WorkError>| match result {
            Ok(()) => noted.note(done),
            Err(WorkError::Cancelled) => noted.note(cancelled),
            Err(error) => panic!("{error}"),
        }
    };
    let done = noting("done", "done, cancelled");
    lp.queue_work_on(&pool, WorkKind::Cpu, || {}, done).expect("queued work");
    while pool.queued() + pool.active() > 0 {
        thread::yield_now();
    }
    let at = gate.clone();
    let running = noting("ran", "ran, cancelled");
    lp.queue_work_on(&pool, WorkKind::Cpu, move || at.pass(), running).expect("queued work");
    gate.await_waiting(1);
    for _ in 0..2 {
        let queued = noting("queued", "queued, cancelled");
        lp.queue_work_on(&pool, WorkKind::Cpu, || {}, queued).expect("queued work");
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

/// A loop belongs to the process that created it, or that called `fork` last. In that process the
/// call changes nothing: work in flight keeps its threads. A child, and a child of the child, each
/// take the loop over once.
pub fn a_fork_call_without_a_fork_changes_nothing(lab: &Lab) -> Verdict {
    let mut busy = Busy::new(lab)?;
    let (gate, noted) = (Gate::default(), busy.trace.clone());
    let at = gate.clone();
    let done = move |_: &mut Loop, result: Result<(), WorkError>| {
        noted.note(if result.is_ok() { "ran" } else { "cancelled" });
    };
    busy.lp.queue_work(move || at.pass(), done).expect("queued work");
    gate.await_waiting(1);
    busy.sender.send().expect("a send");
    after_fork(&mut busy.lp)?;
    await_all(&mut busy.lp, &busy.trace, &["async"]);
    gate.open();
    await_all(&mut busy.lp, &busy.trace, &["ran"]);

    let child = Child::fork(|| {
        after_fork(&mut busy.lp)?;
        busy.sender.send().expect("a send in the child");
        after_fork(&mut busy.lp)?;
        await_all(&mut busy.lp, &busy.trace, &["async"]);
        let grandchild = Child::fork(|| {
            after_fork(&mut busy.lp)?;
            busy.use_all();
            Ok(())
        });
        grandchild.join(3 * SOON)?;
        busy.use_all();
        Ok(())
    });
    child.join(9 * SOON)?;
    busy.use_all();
    Ok(())
}

/// A connect started before a fork completes in the child, whether it was submitted to the kernel
/// or not.
pub fn a_connect_continues_in_a_child(lab: &Lab) -> Verdict {
    for begun in [false, true] {
        let (mut lp, trace) = (new_loop(lab)?, Trace::default());
        let (listener, client) = (listener(), Tcp::new(&mut lp));
        let (address, noted) = (listener.local_addr().expect("an address"), trace.clone());
        let connected = move |lp: &mut Loop, client: Tcp, result: std::io::Result<()>| {
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

/// A child that never uses the loop, or that drops it, does not affect its parent: most children
/// only call `exec`.
pub fn a_parent_is_unaffected_by_its_children(lab: &Lab) -> Verdict {
    let mut busy = Busy::new(lab)?;
    for drops in [false, true] {
        let child = Child::fork(|| {
            if drops {
                after_fork(&mut busy.lp)?;
                // SAFETY: the copy belongs to the child, which exits without using it again.
                unsafe { std::ptr::drop_in_place(&mut busy.lp) };
            }
            Ok(())
        });
        child.join(3 * SOON)?;
        busy.use_all();
    }
    Ok(())
}

/// Runs `body` on the loop in a forked child, and `meanwhile` in the parent, which must close its
/// copies of shared handles: the first process to read gets the data.
fn in_both<R>(
    lp: &mut Loop,
    body: impl FnOnce(&mut Loop),
    meanwhile: impl FnOnce(&mut Loop) -> R,
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

/// Reads by requests of 16 bytes, until there is nothing more to read.
fn pull(lp: &mut Loop, tcp: Tcp, log: Log<u8>) {
    let callback =
        move |lp: &mut Loop, tcp: Tcp, result: std::io::Result<usize>, memory: Vec<u8>| {
            let count = result.unwrap_or(0); // The parent's is cancelled.
            log.extend(memory[..count].iter().copied());
            if count > 0 {
                pull(lp, tcp, log);
            }
        };
    tcp.read(lp, vec![0; 16], callback).expect("a read");
}

/// A stream that reads before a fork reads in the child, with either interface, whether the read
/// was submitted to the kernel or not.
pub fn reads_continue_in_a_child(lab: &Lab) -> Verdict {
    const SENT: &[u8] = b"for the child";
    for (pulled, begun) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut lp, log) = (new_loop(lab)?, Log::default());
        let (tcp, far) = connected(&mut lp);
        if pulled {
            pull(&mut lp, tcp, log.clone());
        } else {
            let came = log.clone();
            let reading = tcp.read_start(&mut lp, move |_, _, bytes| {
                came.extend(bytes.expect("what was sent").iter().copied());
            });
            reading.expect("a connection is read");
        }
        if begun {
            run(&mut lp, RunMode::NoWait);
        }
        let in_the_child = |lp: &mut Loop| {
            run_until(lp, "what was sent", |_| log.len() >= SENT.len());
            assert_eq!(log.take(), SENT, "in the child");
        };
        in_both(&mut lp, in_the_child, |lp| {
            tcp.close(lp).expect("an open handle");
            run_to_the_end(lp);
            send(&far, SENT);
        })?;
        assert_eq!(log.len(), 0, "the parent has stopped reading");
    }
    Ok(())
}

/// A listener accepts, and a UDP socket receives, in a forked child.
pub fn listeners_and_receivers_continue_in_a_child(lab: &Lab) -> Verdict {
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
    let in_the_child = |lp: &mut Loop| {
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
    assert_eq!(log.len(), 0, "the parent gets no callback");
    Ok(())
}

/// A write that is blocked at a fork completes in the child, and all bytes arrive once, if the
/// parent closes its handle. The same holds for a coalesced write, where it can wait.
pub fn writes_continue_in_a_child(lab: &Lab) -> Verdict {
    for batched in [false, true] {
        let (mut lp, ends) = (new_loop(lab)?, Log::default());
        // Not TCP, whose kernel moves bytes to the peer at any time and so becomes writable. A full
        // local socket stays full until its peer reads.
        let (near, mut far) = UnixStream::pair().expect("a pair of sockets");
        let pipe = Pipe::new(&mut lp);
        pipe.open(&mut lp, near).expect("a new handle takes a socket");
        let (filled, rest) = (fill_by(|| pipe.try_write(&mut lp, &[7; 4096])), Log::default());
        let (ended, wrote) = (ends.clone(), rest.clone());
        lp.defer(move |lp| {
            if batched && pipe.write_coalesced(lp, b"in a batch, ").is_ok() {
                wrote.push("in a batch, ");
            }
            pipe.write(lp, "the rest", ended.written("write")).expect("a write that waits");
            wrote.push("the rest");
        });
        run(&mut lp, RunMode::NoWait);
        run(&mut lp, RunMode::NoWait);
        let in_the_child = |lp: &mut Loop| {
            run_until(lp, "the end of the write", |_| ends.len() > 0);
            assert_eq!(ends.take(), [("write", "done")], "in the child");
        };
        let came = in_both(&mut lp, in_the_child, |lp| {
            pipe.close(lp).expect("an open handle");
            run_to_the_end(lp);
            let mut came = Vec::new();
            far.read_to_end(&mut came).expect("what was written");
            came
        })?;
        assert_eq!(
            String::from_utf8_lossy(&came[filled..]),
            rest.take().concat(),
            "the queued bytes"
        );
        assert_eq!(ends.take(), [("write", "cancelled")], "in the parent, which closed");
    }
    Ok(())
}

/// A child that closes its copy of a listening pipe does not remove the path. Clients still connect
/// to the parent.
pub fn a_child_does_not_remove_a_bound_path(lab: &Lab) -> Verdict {
    let (mut lp, name) = (new_loop(lab)?, Name::new());
    let server = Pipe::new(&mut lp);
    server.bind(&mut lp, &name).expect("a free name");
    server.listen(&mut lp, 8, |_, _, _| {}).expect("a bound handle listens");
    let in_the_child = |lp: &mut Loop| {
        server.close(lp).expect("an open handle");
        run_to_the_end(lp);
    };
    in_both(&mut lp, in_the_child, |_| ())?;
    UnixStream::connect(&name).expect("the parent listens");
    server.close(&mut lp).expect("an open handle");
    run_to_the_end(&mut lp);
    let error = UnixStream::connect(&name).expect_err("the parent has closed it");
    assert_eq!(error.kind(), ErrorKind::NotFound, "and removed the path");
    Ok(())
}

/// A file operation in flight at a fork is cancelled once in the child, whether it was submitted to
/// the kernel or not. Operations started by its callback are not cancelled. In the parent it
/// continues.
pub fn file_operations_in_flight_are_cancelled_in_a_child(lab: &Lab) -> Verdict {
    fn follow(lp: &mut Loop, left: u32, ends: &Log<&'static str>) {
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
        let log = ends.clone();
        let read = fs::read(&file, vec![0; 4]).start(&mut lp, move |lp, (result, _)| {
            log.push(outcome(&result));
            follow(lp, 3, &log);
        });
        let read = read.expect("it starts");
        if begun {
            run(&mut lp, RunMode::NoWait);
        }
        assert_eq!(ends.len(), 0, "the pipe is empty");
        let in_the_child = |lp: &mut Loop| {
            // The operation is complete, and cannot be cancelled.
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
