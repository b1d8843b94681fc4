//! The cases that send signals to this process.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Duration;

use libc::{SIGUSR1, SIGUSR2};
use poll_core::Backend;
use uv_core::{Async, Handle, Lane, Loop, Poll, PollEvents, Pool, RunMode, Signal};

use crate::support::dispositions::{Changed, Disposition, raise};
use crate::support::loops::{keep_alive, new_loop, run, run_to_the_end};
use crate::support::signals::Thread;
use crate::support::sources::{arrived, send, tcp_pair};
use crate::support::trace::{Count, Trace};
use crate::{Lab, Verdict};

/// A handle that counts the signals it is told of.
fn counting<T: Backend>(lp: &mut Loop<T>, signum: i32) -> (Signal, Count) {
    let (signal, count) = (Signal::new(lp), Count::default());
    signal.start(lp, signum, counter(&count)).expect("a signal");
    (signal, count)
}

/// The same, one-shot.
fn counting_once<T: Backend>(lp: &mut Loop<T>, signum: i32) -> (Signal, Count) {
    let (signal, count) = (Signal::new(lp), Count::default());
    signal.start_oneshot(lp, signum, counter(&count)).expect("a signal");
    (signal, count)
}

fn counter<T: Backend>(count: &Count) -> impl FnMut(&mut Loop<T>, Signal, i32) + 'static {
    let count = count.clone();
    move |_, _, _| {
        count.add();
    }
}

/// Both signals are ignored unless they are watched, so that a case that fails does not
/// take the process with it.
fn ignored() -> [Changed; 2] {
    [SIGUSR1, SIGUSR2].map(|signum| Changed::to(signum, Disposition::Ignored))
}

/// A signal from outside wakes a loop that waits, and the callback, in the loop's thread,
/// is told which signal it was.
pub fn wake_a_loop_that_waits<T: Backend>(lab: &Lab<T>) -> Verdict {
    let _ignored = ignored();
    let mut lp = new_loop(lab)?;
    for pause in [0, 1, 20] {
        let signal = Signal::new(&mut lp);
        let here = thread::current().id();
        let close = move |lp: &mut Loop<T>, signal: Signal, signum| {
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

/// Signals are counted while the loop is busy: a call for each, not one for all, and none
/// is dropped, however many.
pub fn are_counted<T: Backend>(lab: &Lab<T>) -> Verdict {
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

/// Every handle that watches a signal is told of it, and no other, in the order in which
/// they were started.
pub fn reach_every_handle<T: Backend>(lab: &Lab<T>) -> Verdict {
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

/// Every loop that watches a signal is told of it, whatever thread caught it.
pub fn reach_every_loop<T: Backend>(lab: &Lab<T>) -> Verdict {
    const LOOPS: usize = 3;
    const SIGNALS: u64 = 50;
    let _ignored = ignored();
    drop(lab.backend()?);
    let ready = Barrier::new(LOOPS + 1);
    thread::scope(|scope| {
        for _ in 0..LOOPS {
            scope.spawn(|| {
                let mut lp = Loop::new(lab.backend().expect("a backend, as before"));
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

/// Signals that are raised in many threads at once are all counted.
pub fn come_from_any_thread<T: Backend>(lab: &Lab<T>) -> Verdict {
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

/// A one-shot stops after its first signal, and the loop may end.
pub fn one_shots_end_with_the_first<T: Backend>(lab: &Lab<T>) -> Verdict {
    let _ignored = ignored();
    let mut lp = new_loop(lab)?;
    let (signal, count) = counting_once(&mut lp, SIGUSR1);
    raise(SIGUSR1);
    raise(SIGUSR1);
    run_to_the_end(&mut lp);
    assert_eq!(count.get(), 1, "two signals, one call");
    assert!(!signal.is_active(&lp) && signal.signum(&lp).is_none(), "stopped");
    assert_eq!(Disposition::of(SIGUSR1), Disposition::Ignored, "as before");
    Ok(())
}

/// One-shots and others in five mixes: whichever is stopped first, each one-shot is told
/// once, the others each time, and at the end the signal does what it did before.
pub fn one_shots_and_others_mix<T: Backend>(lab: &Lab<T>) -> Verdict {
    const SIGNALS: u64 = 10;
    let _ignored = ignored();
    // Which are one-shots; and which of the others is closed halfway.
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

/// Of those that watch a signal, one-shots are told last, so that a regular handle that
/// starts or stops one of them is in time.
pub fn one_shots_are_told_last<T: Backend>(lab: &Lab<T>) -> Verdict {
    let _ignored = ignored();
    let mut lp = new_loop(lab)?;
    let trace = Trace::default();
    let noting = |name: &'static str| {
        let noted = trace.clone();
        move |_: &mut Loop<T>, _: Signal, _: i32| noted.note(name)
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

/// Started again with the same number, a handle has a new callback and has missed nothing:
/// signals on their way go to the new one.
pub fn starting_again_swaps_the_callback<T: Backend>(lab: &Lab<T>) -> Verdict {
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

    // In its own callback, too.
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

/// Started with another number, a handle watches that instead, and the first signal does
/// what it did before.
pub fn another_number_moves_the_handle<T: Backend>(lab: &Lab<T>) -> Verdict {
    let _ignored = ignored();
    let mut lp = new_loop(lab)?;
    let (signal, old) = counting(&mut lp, SIGUSR1);
    let told = Rc::new(RefCell::new(Vec::new()));
    let noted = Rc::clone(&told);
    raise(SIGUSR1);
    signal
        .start(&mut lp, SIGUSR2, move |_, _, signum| noted.borrow_mut().push(signum))
        .expect("a signal");
    assert_eq!(signal.signum(&lp), Some(SIGUSR2));
    assert_eq!(Disposition::of(SIGUSR1), Disposition::Ignored, "as before");
    raise(SIGUSR1);
    raise(SIGUSR2);
    run(&mut lp, RunMode::Once);
    assert_eq!(old.get(), 0, "what was on its way does not match any more");
    assert_eq!(*told.borrow(), [SIGUSR2]);
    Ok(())
}

/// When nobody watches a signal any more, in any loop, it does what it did before anybody
/// did: the default, nothing, or the call of a handler of the program's own.
pub fn the_last_stop_restores_what_was_before<T: Backend>(lab: &Lab<T>) -> Verdict {
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
        assert_eq!(Disposition::of(SIGUSR1), before, "a loop that is dropped watches nothing");

        first.start(&mut one, SIGUSR1, |_, _, _| {}).expect("a signal");
        assert_ne!(Disposition::of(SIGUSR1), before, "watched again");
        first.stop(&mut one).expect("an open handle");
        assert_eq!(Disposition::of(SIGUSR1), before, "and restored again");
    }
    Ok(())
}

/// A handle that stops or closes itself in its callback is not told of the signals that
/// came meanwhile.
pub fn one_may_stop_or_close_itself<T: Backend>(lab: &Lab<T>) -> Verdict {
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
        assert_eq!(Disposition::of(SIGUSR1), Disposition::Ignored, "as before");
    }
    Ok(())
}

/// A handle that is closed with signals on their way is not told of them, and its close
/// callback does not wait for them.
pub fn a_closed_handle_is_not_told<T: Backend>(lab: &Lab<T>) -> Verdict {
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
    assert_eq!((count.get(), closed.get(), other.get()), (0, 1, 5), "told, closed, the other");
    Ok(())
}

/// A handle is told of the signals since it was started, not of those that another handle
/// of the loop, or itself before it was stopped, has not been told of yet.
pub fn earlier_signals_are_not_told<T: Backend>(lab: &Lab<T>) -> Verdict {
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

/// A handle that was one-shot once is whatever it is started as next: regular, one-shot
/// again, and that in its own callback too.
pub fn a_one_shot_may_start_anew<T: Backend>(lab: &Lab<T>) -> Verdict {
    let _ignored = ignored();
    let mut lp = new_loop(lab)?;
    keep_alive(&mut lp);
    let raise_and_run = |lp: &mut Loop<T>| {
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
    assert!(!signal.is_active(&lp), "one more is enough");
    assert_eq!(again.get(), 2);

    signal.start_oneshot(&mut lp, SIGUSR1, |_, _, _| {}).expect("a signal");
    signal.start(&mut lp, SIGUSR1, counter(&regular)).expect("a signal");
    (0..2).for_each(|_| raise_and_run(&mut lp));
    assert_eq!(regular.get(), 5, "regular before the signal came");
    Ok(())
}

/// With one-shots alone, a second signal does what it did before though the loop has not
/// seen the first: Ctrl-C twice ends a program that hangs. Where it was ignored, it is.
pub fn one_shots_alone_let_the_second_through<T: Backend>(lab: &Lab<T>) -> Verdict {
    for before in [Disposition::Default, Disposition::Ignored] {
        let _changed = Changed::to(SIGUSR1, before);
        let mut lp = new_loop(lab)?;
        let (signal, count) = counting_once(&mut lp, SIGUSR1);
        raise(SIGUSR1);
        match before {
            Disposition::Default => {
                assert_eq!(Disposition::of(SIGUSR1), before, "from the first on");
            }
            _ => raise(SIGUSR1), // Survives it.
        }
        run_to_the_end(&mut lp);
        assert_eq!((count.get(), Disposition::of(SIGUSR1)), (1, before));

        // A regular handle beside it catches them all.
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

/// What came before a signal is handled before it: sources, work and sends of the same
/// wait come first.
pub fn are_told_last_of_a_batch<T: Backend>(lab: &Lab<T>) -> Verdict {
    let _ignored = ignored();
    let (near, far) = tcp_pair();
    let watched = Rc::new(near);
    let mut lp = new_loop(lab)?;
    let trace = Trace::default();
    let (signal, noted) = (Signal::new(&mut lp), trace.clone());
    signal.start(&mut lp, SIGUSR1, move |_, _, _| noted.note("signal")).expect("a signal");
    let (_, sender) = Async::new(&mut lp, trace.noting("async"));
    let (poll, noted) = (Poll::new(&mut lp, Rc::clone(&watched)).expect("a poll"), trace.clone());
    let note = move |_: &mut Loop<T>, _, _| noted.note("poll");
    poll.start(&mut lp, PollEvents::READABLE, note).expect("a started poll");
    let (pool, noted) = (Pool::new(1).expect("a pool"), trace.clone());

    raise(SIGUSR1);
    sender.send().expect("a send");
    let done = move |_: &mut Loop<T>, _| noted.note("work");
    lp.queue_work_on(&pool, Lane::Cpu, || {}, done).expect("work");
    while pool.queued() + pool.active() > 0 {
        thread::yield_now();
    }
    send(&far, b"x");
    arrived(&watched);
    run(&mut lp, RunMode::NoWait);
    trace.expect(&["poll", "work", "async", "signal"], "in one iteration");
    Ok(())
}

/// To watch a signal does not make the system calls of other threads fail: a read in a
/// library that never heard of signals goes on.
pub fn handlers_leave_system_calls_alone<T: Backend>(lab: &Lab<T>) -> Verdict {
    use std::os::fd::AsRawFd;

    let _ignored = ignored();
    let mut lp = new_loop(lab)?;
    let (_, count) = counting(&mut lp, SIGUSR1);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let (here, there) = mpsc::channel();
    let blocked = thread::spawn(move || {
        here.send(Thread::as_it_is()).expect("the case waits for it");
        let mut byte = 0_u8;
        // SAFETY: one byte, which lives across the call. Not `Read::read`, as that tries
        // again by itself.
        let got = unsafe { libc::read(reader.as_raw_fd(), (&raw mut byte).cast(), 1) };
        (got, std::io::Error::last_os_error())
    });
    let reader_thread = there.recv().expect("the thread runs");
    for told in 1..=5 {
        // Long enough to be reading again; a signal that comes before finds nothing wrong.
        thread::sleep(Duration::from_millis(5));
        reader_thread.send(SIGUSR1);
        // One at a time: a signal that is pending swallows the next.
        while count.get() < told {
            run(&mut lp, RunMode::Once);
        }
    }
    std::io::Write::write_all(&mut writer, b"x").expect("a byte");
    let (got, error) = blocked.join().expect("the reader");
    assert_eq!(got, 1, "a read was interrupted: {error}");
    Ok(())
}
