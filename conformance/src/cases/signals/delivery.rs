//! Cases that send signals to this process.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

use libc::{SIGUSR1, SIGUSR2};
use uv_core::{Async, Handle, Poll, PollEvents, Pool, RunMode, Signal, WorkKind};

use crate::support::dispositions::{Changed, Disposition, raise};
use crate::support::loops::{keep_alive, new_loop, run, run_to_the_end};
use crate::support::signals::Thread;
use crate::support::sources::{arrived, send, tcp_pair};
use crate::support::trace::{Count, Log, Trace};
use crate::{Lab, Loop, Verdict};

/// A handle that counts its signals.
fn counting(lp: &mut Loop, signum: i32) -> (Signal, Count) {
    let (signal, count) = (Signal::new(lp), Count::default());
    signal.start(lp, signum, counter(&count)).expect("a signal");
    (signal, count)
}

/// The same, one-shot.
fn counting_once(lp: &mut Loop, signum: i32) -> (Signal, Count) {
    let (signal, count) = (Signal::new(lp), Count::default());
    signal.start_oneshot(lp, signum, counter(&count)).expect("a signal");
    (signal, count)
}

fn counter(count: &Count) -> impl FnMut(&mut Loop, Signal, i32) + 'static {
    let count = count.clone();
    move |_, _, _| {
        count.add();
    }
}

/// Both signals are ignored unless they are watched, so that a failing case does not end the
/// process.
pub(super) fn ignored() -> [Changed; 2] {
    [SIGUSR1, SIGUSR2].map(|signum| Changed::to(signum, Disposition::Ignored))
}

/// Loops that watch the same signal may be made and dropped meanwhile: a lasting loop gets every
/// signal. Handlers run on each list of subscribers that the others replace.
pub fn loops_may_come_and_go_meanwhile(lab: &Lab) -> Verdict {
    const LOOPS: usize = 40;
    let _ignored = ignored();
    let mut lp = new_loop(lab)?;
    let (signal, count) = counting(&mut lp, SIGUSR1);
    let mut raised = 0;
    thread::scope(|scope| -> Verdict {
        let churn = || -> Verdict {
            for _ in 0..LOOPS {
                let mut short = new_loop(lab)?;
                counting(&mut short, SIGUSR1);
                counting_once(&mut short, SIGUSR1);
                run(&mut short, RunMode::NoWait);
            }
            Ok(())
        };
        let threads = [scope.spawn(churn), scope.spawn(churn)];
        while !threads.iter().all(|thread| thread.is_finished()) {
            raise(SIGUSR1);
            raised += 1;
            run(&mut lp, RunMode::NoWait);
        }
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    while count.get() < raised {
        run(&mut lp, RunMode::Once);
    }
    assert_eq!(count.get(), raised);
    signal.close(&mut lp).expect("an open handle");
    run_to_the_end(&mut lp);
    Ok(())
}

/// A signal from another thread wakes a blocked loop. The callback gets the signal number, in the
/// loop's thread.
pub fn wake_a_blocked_loop(lab: &Lab) -> Verdict {
    let _ignored = ignored();
    let mut lp = new_loop(lab)?;
    for pause in [0, 1, 20] {
        let signal = Signal::new(&mut lp);
        let here = thread::current().id();
        let close = move |lp: &mut Loop, signal: Signal, signum| {
            assert_eq!((signum, thread::current().id()), (SIGUSR1, here));
            signal.close(lp).expect("an open handle");
        };
        signal.start(&mut lp, SIGUSR1, close).expect("a signal");
        let thread = thread::spawn(move || {
            thread::sleep(Duration::from_millis(pause));
            // SAFETY: a signal to this process, which watches it.
            unsafe { libc::kill(std::process::id() as libc::pid_t, SIGUSR1) };
        });
        run_to_the_end(&mut lp);
        thread.join().expect("the sender");
    }
    Ok(())
}

/// Signals are counted while the loop is busy: each one produces a call, and none is dropped.
pub fn are_counted(lab: &Lab) -> Verdict {
    let _ignored = ignored();
    let mut lp = new_loop(lab)?;
    let (_, ones) = counting(&mut lp, SIGUSR1);
    let (_, twos) = counting(&mut lp, SIGUSR2);
    (0..20_000).for_each(|_| raise(SIGUSR1));
    (0..3).for_each(|_| raise(SIGUSR2));
    assert_eq!((ones.get(), twos.get()), (0, 0), "never inline");
    run(&mut lp, RunMode::Once);
    assert_eq!((ones.get(), twos.get()), (20_000, 3));
    run(&mut lp, RunMode::NoWait);
    assert_eq!((ones.get(), twos.get()), (20_000, 3), "each once");
    Ok(())
}

/// A signal is delivered to every handle that watches it, and to no other, in the order of their
/// starts.
pub fn reach_every_handle(lab: &Lab) -> Verdict {
    let _ignored = ignored();
    let mut lp = new_loop(lab)?;
    let trace = Trace::default();
    let handles = ["a", "b", "c", "other"].map(|name| (name, Signal::new(&mut lp)));
    for (name, signal) in [handles[2], handles[0], handles[3], handles[1]] {
        let (noted, signum) = (trace.clone(), if name == "other" { SIGUSR2 } else { SIGUSR1 });
        signal.start(&mut lp, signum, move |_, _, _| noted.note(name)).expect("a signal");
    }
    raise(SIGUSR1);
    raise(SIGUSR1);
    run(&mut lp, RunMode::Once);
    trace.expect(&["c", "a", "b", "c", "a", "b"], "a round for each signal");
    Ok(())
}

/// A signal is delivered to every loop that watches it, whichever thread caught it.
pub fn reach_every_loop(lab: &Lab) -> Verdict {
    const LOOPS: usize = 3;
    const SIGNALS: u64 = 50;
    let _ignored = ignored();
    drop(lab.backend()?);
    let ready = Barrier::new(LOOPS + 1);
    thread::scope(|scope| {
        for _ in 0..LOOPS {
            scope.spawn(|| {
                let mut lp = Loop::new(lab.backend().expect("a backend, restored"));
                let (signal, count) = (Signal::new(&mut lp), Count::default());
                signal
                    .start(&mut lp, SIGUSR1, move |lp, signal, _| {
                        if count.add() == SIGNALS {
                            signal.close(lp).expect("an open handle");
                        }
                    })
                    .expect("a signal");
                ready.wait();
                run_to_the_end(&mut lp);
            });
        }
        ready.wait();
        (0..SIGNALS).for_each(|_| raise(SIGUSR1));
    });
    Ok(())
}

/// Signals raised concurrently by many threads are all counted.
pub fn are_counted_from_any_thread(lab: &Lab) -> Verdict {
    const THREADS: u64 = 4;
    const SIGNALS: u64 = 1_000;
    let _ignored = ignored();
    let mut lp = new_loop(lab)?;
    let (signal, count) = (Signal::new(&mut lp), Count::default());
    signal
        .start(&mut lp, SIGUSR1, move |lp, signal, _| {
            if count.add() == THREADS * SIGNALS {
                signal.close(lp).expect("an open handle");
            }
        })
        .expect("a signal");
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| (0..SIGNALS).for_each(|_| raise(SIGUSR1)));
        }
        run_to_the_end(&mut lp);
    });
    Ok(())
}

/// A one-shot stops after its first signal and no longer keeps the loop alive.
pub fn one_shots_stop_after_the_first_signal(lab: &Lab) -> Verdict {
    let _ignored = ignored();
    let mut lp = new_loop(lab)?;
    let (signal, count) = counting_once(&mut lp, SIGUSR1);
    raise(SIGUSR1);
    raise(SIGUSR1);
    run_to_the_end(&mut lp);
    assert_eq!(count.get(), 1, "two signals, one call");
    assert!(!signal.is_active(&lp) && signal.signum(&lp).is_none(), "stopped");
    assert_eq!(Disposition::of(SIGUSR1), Disposition::Ignored, "restored");
    Ok(())
}

/// One-shots and regular handles in five combinations: each one-shot is called once, the others for
/// each signal, in any order of stops. At the end the disposition is restored.
pub fn one_shots_and_regular_handles_mix(lab: &Lab) -> Verdict {
    const SIGNALS: u64 = 10;
    let _ignored = ignored();
    // Which handles are one-shots, and which regular handle is closed halfway.
    let mixes: [(&[bool], &[usize]); 5] = [
        (&[true, true], &[]),
        (&[true, true, false], &[2]),
        (&[false, false, true], &[0]),
        (&[false, false, true, true], &[0, 1]),
        (&[false, true, false, false], &[0, 2]),
    ];
    for (kinds, closed_halfway) in mixes {
        let mut lp = new_loop(lab)?;
        keep_alive(&mut lp);
        let handles: Vec<_> = kinds
            .iter()
            .map(|&oneshot| match oneshot {
                true => counting_once(&mut lp, SIGUSR1),
                false => counting(&mut lp, SIGUSR1),
            })
            .collect();
        for round in 0..SIGNALS {
            if round == SIGNALS / 2 {
                for &index in closed_halfway {
                    handles[index].0.close(&mut lp).expect("an open handle");
                }
            }
            raise(SIGUSR1);
            run(&mut lp, RunMode::NoWait);
        }
        for (index, (signal, count)) in handles.iter().enumerate() {
            let expected = match (kinds[index], closed_halfway.contains(&index)) {
                (true, _) => 1,
                (false, true) => SIGNALS / 2,
                (false, false) => SIGNALS,
            };
            assert_eq!(count.get(), expected, "handle {index} of {kinds:?}");
            let _ = signal.stop(&mut lp);
        }
        assert_eq!(Disposition::of(SIGUSR1), Disposition::Ignored, "after {kinds:?}");
    }
    Ok(())
}

/// One-shots are called after the regular handles of the same signal, so that a regular handle can
/// start or stop them in time.
pub fn one_shots_are_called_after_regular_handles(lab: &Lab) -> Verdict {
    let _ignored = ignored();
    let mut lp = new_loop(lab)?;
    let trace = Trace::default();
    let noting = |name: &'static str| {
        let noted = trace.clone();
        move |_: &mut Loop, _: Signal, _: i32| noted.note(name)
    };
    let [once, again, stopped, first, second] = [(); 5].map(|()| Signal::new(&mut lp));
    once.start_oneshot(&mut lp, SIGUSR1, noting("once")).expect("a signal");
    stopped.start_oneshot(&mut lp, SIGUSR1, noting("stopped")).expect("a signal");
    again.start_oneshot(&mut lp, SIGUSR1, noting("once more")).expect("a signal");
    let noted = trace.clone();
    first
        .start(&mut lp, SIGUSR1, move |lp, _, _| {
            noted.note("first");
            stopped.stop(lp).expect("an open handle");
        })
        .expect("a signal");
    second.start(&mut lp, SIGUSR1, noting("second")).expect("a signal");
    raise(SIGUSR1);
    raise(SIGUSR1);
    run(&mut lp, RunMode::Once);
    let expected = ["first", "second", "once", "once more", "first", "second"];
    trace.expect(&expected, "regular ones first, and by start");
    Ok(())
}

/// Starting an active handle with the same number replaces its callback and loses no signal: the
/// new callback gets pending signals.
pub fn starting_again_replaces_the_callback(lab: &Lab) -> Verdict {
    let _ignored = ignored();
    let mut lp = new_loop(lab)?;
    let (signal, old) = counting(&mut lp, SIGUSR1);
    let handler = Disposition::of(SIGUSR1);
    let new = Count::default();
    raise(SIGUSR1);
    signal.start(&mut lp, SIGUSR1, counter(&new)).expect("a signal");
    assert_eq!(Disposition::of(SIGUSR1), handler, "watched all the time");
    raise(SIGUSR1);
    run(&mut lp, RunMode::Once);
    assert_eq!((old.get(), new.get()), (0, 2));

    // The same in its own callback.
    let newest = Count::default();
    let next = newest.clone();
    signal
        .start(&mut lp, SIGUSR1, move |lp, signal, signum| {
            signal.start(lp, signum, counter(&next)).expect("a signal");
        })
        .expect("a signal");
    (0..3).for_each(|_| raise(SIGUSR1));
    run(&mut lp, RunMode::Once);
    assert_eq!(newest.get(), 2, "from the second on");
    Ok(())
}

/// A handle started with another number watches that number instead. The disposition of the first
/// signal is restored.
pub fn starting_with_another_number_moves_the_handle(lab: &Lab) -> Verdict {
    let _ignored = ignored();
    let mut lp = new_loop(lab)?;
    let (signal, old) = counting(&mut lp, SIGUSR1);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let noted = Rc::clone(&seen);
    raise(SIGUSR1);
    signal
        .start(&mut lp, SIGUSR2, move |_, _, signum| noted.borrow_mut().push(signum))
        .expect("a signal");
    assert_eq!(signal.signum(&lp), Some(SIGUSR2));
    assert_eq!(Disposition::of(SIGUSR1), Disposition::Ignored, "restored");
    raise(SIGUSR1);
    raise(SIGUSR2);
    run(&mut lp, RunMode::Once);
    assert_eq!(old.get(), 0, "pending signals of the old number are dropped");
    assert_eq!(*seen.borrow(), [SIGUSR2]);
    Ok(())
}

/// When the last handle of any loop stops, the signal's previous disposition is restored: default,
/// ignore, or a handler of the program.
pub fn the_last_stop_restores_the_disposition(lab: &Lab) -> Verdict {
    extern "C" fn own(_: libc::c_int) {}
    let own = Disposition::Handled(own as *const () as libc::sighandler_t);
    for before in [Disposition::Default, Disposition::Ignored, own] {
        let _changed = Changed::to(SIGUSR1, before);
        let (mut one, mut two) = (new_loop(lab)?, new_loop(lab)?);
        let (first, _) = counting(&mut one, SIGUSR1);
        let handler = Disposition::of(SIGUSR1);
        assert_ne!(handler, before, "watched");
        let (second, _) = counting_once(&mut one, SIGUSR1);
        counting(&mut two, SIGUSR1);
        first.stop(&mut one).expect("an open handle");
        assert_eq!(Disposition::of(SIGUSR1), handler, "two are left");
        second.close(&mut one).expect("an open handle");
        assert_eq!(Disposition::of(SIGUSR1), handler, "one is left, of another loop");
        drop(two);
        assert_eq!(Disposition::of(SIGUSR1), before, "a dropped loop watches no signal");

        first.start(&mut one, SIGUSR1, |_, _, _| {}).expect("a signal");
        assert_ne!(Disposition::of(SIGUSR1), before, "watched again");
        first.stop(&mut one).expect("an open handle");
        assert_eq!(Disposition::of(SIGUSR1), before, "and restored again");
    }
    Ok(())
}

/// A handle that stops or closes itself in its callback does not receive the signals that are
/// pending.
pub fn a_handle_may_stop_or_close_itself(lab: &Lab) -> Verdict {
    let _ignored = ignored();
    for closes in [false, true] {
        let mut lp = new_loop(lab)?;
        let (signal, count) = (Signal::new(&mut lp), Count::default());
        let counted = count.clone();
        signal
            .start(&mut lp, SIGUSR1, move |lp, signal, _| {
                counted.add();
                let done = if closes { signal.close(lp) } else { signal.stop(lp) };
                done.expect("an open handle");
            })
            .expect("a signal");
        (0..5).for_each(|_| raise(SIGUSR1));
        run_to_the_end(&mut lp);
        assert_eq!(count.get(), 1, "closed: {closes}");
        assert_eq!(Disposition::of(SIGUSR1), Disposition::Ignored, "restored");
    }
    Ok(())
}

/// A closed handle does not receive pending signals. Its close callback does not wait for them.
pub fn a_closed_handle_gets_no_pending_signal(lab: &Lab) -> Verdict {
    let _ignored = ignored();
    let mut lp = new_loop(lab)?;
    let (signal, count) = counting(&mut lp, SIGUSR1);
    let (_, other) = counting(&mut lp, SIGUSR1);
    (0..5).for_each(|_| raise(SIGUSR1));
    let closed = Count::default();
    let counted = closed.clone();
    signal
        .close_with(&mut lp, move |_, _| {
            counted.add();
        })
        .expect("an open handle");
    run(&mut lp, RunMode::NoWait);
    assert_eq!(
        (count.get(), closed.get(), other.get()),
        (0, 1, 5),
        "called, closed, the other handle"
    );
    Ok(())
}

/// A handle receives the signals since its start only. It gets neither the pending signals of
/// another handle of the loop, nor those from before its own stop.
pub fn signals_before_the_start_are_not_delivered(lab: &Lab) -> Verdict {
    let _ignored = ignored();
    let mut lp = new_loop(lab)?;
    let (early, first) = counting(&mut lp, SIGUSR1);
    raise(SIGUSR1);
    raise(SIGUSR1);
    let (_, second) = counting(&mut lp, SIGUSR1);
    raise(SIGUSR1);
    run(&mut lp, RunMode::Once);
    assert_eq!((first.get(), second.get()), (3, 1));
    raise(SIGUSR1);
    early.stop(&mut lp).expect("an open handle");
    early.start(&mut lp, SIGUSR1, counter(&first)).expect("a signal");
    run(&mut lp, RunMode::Once);
    assert_eq!((first.get(), second.get()), (3, 2));
    Ok(())
}

/// A one-shot may be restarted as a regular handle or as a one-shot, also in its own callback.
pub fn a_one_shot_may_be_restarted(lab: &Lab) -> Verdict {
    let _ignored = ignored();
    let mut lp = new_loop(lab)?;
    keep_alive(&mut lp);
    let raise_and_run = |lp: &mut Loop| {
        raise(SIGUSR1);
        run(lp, RunMode::Once);
    };
    let (signal, once) = counting_once(&mut lp, SIGUSR1);
    raise_and_run(&mut lp);
    let regular = Count::default();
    signal.start(&mut lp, SIGUSR1, counter(&regular)).expect("a signal");
    (0..3).for_each(|_| raise_and_run(&mut lp));
    assert_eq!((once.get(), regular.get()), (1, 3), "once, and then regular");

    let again = Count::default();
    let counted = again.clone();
    signal
        .start_oneshot(&mut lp, SIGUSR1, move |lp, signal, signum| {
            counted.add();
            signal.start_oneshot(lp, signum, counter(&counted)).expect("a signal");
        })
        .expect("a signal");
    raise_and_run(&mut lp);
    assert!(signal.is_active(&lp), "started in its own callback");
    raise_and_run(&mut lp);
    assert!(!signal.is_active(&lp), "stopped after one more signal");
    assert_eq!(again.get(), 2);

    signal.start_oneshot(&mut lp, SIGUSR1, |_, _, _| {}).expect("a signal");
    signal.start(&mut lp, SIGUSR1, counter(&regular)).expect("a signal");
    (0..2).for_each(|_| raise_and_run(&mut lp));
    assert_eq!(regular.get(), 5, "regular before the signal came");
    Ok(())
}

/// If only one-shots watch a signal, its second occurrence has the previous disposition even if the
/// loop has not handled the first: pressing Ctrl-C twice ends a program that hangs. A signal that
/// was ignored stays ignored.
pub fn one_shots_alone_restore_the_disposition_at_the_first_signal(lab: &Lab) -> Verdict {
    for before in [Disposition::Default, Disposition::Ignored] {
        let _changed = Changed::to(SIGUSR1, before);
        let mut lp = new_loop(lab)?;
        let (signal, count) = counting_once(&mut lp, SIGUSR1);
        raise(SIGUSR1);
        match before {
            Disposition::Default => {
                assert_eq!(Disposition::of(SIGUSR1), before, "from the first on");
            }
            _ => raise(SIGUSR1), // The process survives.
        }
        run_to_the_end(&mut lp);
        assert_eq!((count.get(), Disposition::of(SIGUSR1)), (1, before));

        // A regular handle beside the one-shot catches all signals.
        signal.start_oneshot(&mut lp, SIGUSR1, counter(&count)).expect("a signal");
        let (other, others) = counting(&mut lp, SIGUSR1);
        (0..3).for_each(|_| raise(SIGUSR1));
        run(&mut lp, RunMode::Once);
        assert_eq!((count.get(), others.get()), (2, 3));
        other.close(&mut lp).expect("an open handle");
        assert_eq!(Disposition::of(SIGUSR1), before, "restored");
    }
    Ok(())
}

/// Sources, work and sends of the same wait are delivered before a signal.
pub fn are_delivered_last_of_a_batch(lab: &Lab) -> Verdict {
    let _ignored = ignored();
    let (near, far) = tcp_pair();
    let watched = Rc::new(near);
    let mut lp = new_loop(lab)?;
    let trace = Trace::default();
    let (signal, noted) = (Signal::new(&mut lp), trace.clone());
    signal.start(&mut lp, SIGUSR1, move |_, _, _| noted.note("signal")).expect("a signal");
    let (_, sender) = Async::new(&mut lp, trace.noting("async"));
    let (poll, noted) = (Poll::new(&mut lp, Rc::clone(&watched)).expect("a poll"), trace.clone());
    let note = move |_: &mut Loop, _, _| noted.note("poll");
    poll.start(&mut lp, PollEvents::READABLE, note).expect("a started poll");
    let (pool, noted) = (Pool::new(1).expect("a pool"), trace.clone());

    raise(SIGUSR1);
    sender.send().expect("a send");
    let done = move |_: &mut Loop, _| noted.note("work");
    lp.queue_work_on(&pool, WorkKind::Cpu, || {}, done).expect("work");
    while pool.queued() + pool.active() > 0 {
        thread::yield_now();
    }
    send(&far, b"x");
    arrived(&watched);
    run(&mut lp, RunMode::NoWait);
    trace.expect(&["poll", "async", "work", "signal"], "in one iteration");
    Ok(())
}

/// Watching a signal does not interrupt system calls of other threads (`SA_RESTART`): a read in a
/// library that does not handle `EINTR` continues.
pub fn handlers_do_not_interrupt_system_calls(lab: &Lab) -> Verdict {
    use std::os::fd::AsRawFd;

    let _ignored = ignored();
    let mut lp = new_loop(lab)?;
    let (_, count) = counting(&mut lp, SIGUSR1);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let (here, there) = mpsc::channel();
    let blocked = thread::spawn(move || {
        here.send(Thread::as_it_is()).expect("the case waits for it");
        let mut byte = 0_u8;
        // SAFETY: one byte, which outlives the call. Not `Read::read`, which retries after `EINTR`.
        let got = unsafe { libc::read(reader.as_raw_fd(), (&raw mut byte).cast(), 1) };
        (got, std::io::Error::last_os_error())
    });
    let reader_thread = there.recv().expect("the thread runs");
    for expected in 1..=5 {
        // Long enough to be reading again. An earlier signal does no harm.
        thread::sleep(Duration::from_millis(5));
        reader_thread.send(SIGUSR1);
        // One at a time: a pending signal absorbs the next.
        while count.get() < expected {
            run(&mut lp, RunMode::Once);
        }
    }
    std::io::Write::write_all(&mut writer, b"x").expect("a byte");
    let (got, error) = blocked.join().expect("the reader");
    assert_eq!(got, 1, "a read was interrupted: {error}");
    Ok(())
}

/// Signals of different numbers are delivered in the order of arrival, independently of their
/// numbers.
pub fn are_delivered_in_order_of_arrival(lab: &Lab) -> Verdict {
    use libc::{SIGHUP, SIGTERM};
    let orders = [
        [SIGTERM, SIGUSR2, SIGHUP, SIGUSR1],
        [SIGUSR1, SIGHUP, SIGUSR2, SIGTERM],
        [SIGHUP, SIGTERM, SIGUSR1, SIGUSR2],
    ];
    let _ignored = orders[0].map(|signum| Changed::to(signum, Disposition::Ignored));
    let (mut lp, log) = (new_loop(lab)?, Log::default());
    for signum in orders[0] {
        let note = log.clone();
        let callback = move |_: &mut Loop, _, signum: i32| note.push(signum);
        Signal::new(&mut lp).start(&mut lp, signum, callback).expect("a signal");
    }
    for order in orders {
        order.into_iter().for_each(raise);
        raise(order[0]);
        run(&mut lp, RunMode::Once);
        let [first, rest @ ..] = order;
        assert_eq!(log.take(), [&[first, first], &rest[..]].concat(), "{order:?}");
    }
    Ok(())
}
