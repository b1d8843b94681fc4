//! Point 22: work on the threads of a pool.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Instant;

use uv_core::{Async, Channel, Check, Handle, Pool, RunMode, WorkError, WorkKind, WorkRequest};

use crate::support::gate::Gate;
use crate::support::loops::{new_loop, panic_on_purpose, run, run_to_the_end, unwinds};
use crate::support::observe::{SHORT, SOON};
use crate::support::streams::run_until;
use crate::support::trace::{Count, Trace};
use crate::{Lab, Loop, Verdict};

/// A pool that is joined has run its queue. It cannot be joined while a clone exists, nor by one of
/// its own threads.
pub fn a_joined_pool_has_run_its_queue(lab: &Lab) -> Verdict {
    let (mut lp, two, count) = (new_loop(lab)?, pool(2), Arc::new(AtomicUsize::new(0)));
    for _ in 0..100 {
        let count = Arc::clone(&count);
        queue(&mut lp, &two, move || count.fetch_add(1, Ordering::Relaxed), |_, _| {});
    }
    let clone = two.clone();
    let two = two.join().expect_err("a clone exists");
    drop(clone);
    two.join().expect("the last clone");
    assert_eq!(count.load(Ordering::Relaxed), 100, "all have run");
    run_to_the_end(&mut lp);
    let (own, to_drop) = (pool(1), Gate::default());
    let (inside, at) = (own.clone(), to_drop.clone());
    let join = move || {
        at.pass();
        inside.join().is_err()
    };
    queue(&mut lp, &own, join, |_, refused| assert!(refused.expect("a result")));
    drop(own);
    to_drop.open();
    run_to_the_end(&mut lp);
    Ok(())
}

/// A pool of `threads` threads.
fn pool(threads: usize) -> Pool {
    Pool::new(threads).unwrap_or_else(|error| panic!("a pool of {threads}: {error}"))
}

/// Queues work in the fast lane.
fn queue<R: Send + 'static>(
    lp: &mut Loop,
    pool: &Pool,
    work: impl FnOnce() -> R + Send + 'static,
    done: impl FnOnce(&mut Loop, Result<R, WorkError>) + 'static,
) -> WorkRequest {
    lp.queue_work_on(pool, WorkKind::Cpu, work, done).expect("queued work")
}

/// Occupies all threads of a pool until the gate is opened.
fn block(lp: &mut Loop, pool: &Pool) -> Gate {
    let gate = Gate::default();
    for _ in 0..pool.threads() {
        let at = gate.clone();
        queue(lp, pool, move || at.pass(), |_, done| done.expect("opened in the end"));
    }
    gate.await_waiting(pool.threads());
    gate
}

fn kind(result: std::io::Result<()>) -> Result<(), ErrorKind> {
    result.map_err(|error| error.kind())
}

/// The result of work reaches its callback unchanged, in the loop's thread.
pub fn results_reach_the_callback(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (here, done) = (thread::current().id(), Count::default());
    let counted = done.clone();
    let on_other_thread = move || (thread::current().id(), String::from("a result"));
    lp.queue_work(on_other_thread, move |_, result| {
        let (there, text) = result.expect("a result");
        assert_eq!(text, "a result");
        assert_ne!(there, here, "on another thread");
        assert_eq!(thread::current().id(), here, "called back in the loop's");
        counted.add();
    })
    .expect("queued work");
    run_to_the_end(&mut lp);
    assert_eq!(done.get(), 1, "called back once");
    Ok(())
}

/// Results may have any size and alignment, including zero.
pub fn results_have_any_size(lab: &Lab) -> Verdict {
    #[repr(align(64))]
    struct Aligned(u8);
    let (mut lp, pool) = (new_loop(lab)?, pool(2));
    let done = Count::default();
    let counted = done.clone();
    queue(
        &mut lp,
        &pool,
        || (),
        move |_, result| {
            result.expect("a result of no size");
            counted.add();
        },
    );
    let counted = done.clone();
    queue(
        &mut lp,
        &pool,
        || [7_u8; 10_000],
        move |_, page| {
            let page = page.expect("a result of many words");
            assert!(page.iter().all(|&byte| byte == 7), "as returned");
            counted.add();
        },
    );
    let (counted, large) = (done.clone(), [3_u64; 200]);
    queue(
        &mut lp,
        &pool,
        move || large.iter().sum::<u64>(),
        move |_, result| {
            assert_eq!(result.expect("a result"), 600, "from a closure of many words");
            counted.add();
        },
    );
    let counted = done.clone();
    queue(
        &mut lp,
        &pool,
        || Aligned(9),
        move |_, value| {
            let value = value.unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((value.0, (&raw const value).addr() % 64), (9, 0));
            counted.add();
        },
    );
    run_to_the_end(&mut lp);
    assert_eq!(done.get(), 4);
    Ok(())
}

/// A panic in work is an error of that work only: the thread, the pool and the loop continue.
pub fn panics_are_errors(lab: &Lab) -> Verdict {
    let (mut lp, pool) = (new_loop(lab)?, pool(1));
    let errors = Rc::new(RefCell::new(Vec::new()));
    for _ in 0..3 {
        let seen = Rc::clone(&errors);
        // Without a message on standard error.
        let panics = || std::panic::resume_unwind(Box::new("on purpose"));
        queue(&mut lp, &pool, panics, move |_, result: Result<(), _>| {
            seen.borrow_mut().push(result.expect_err("it panicked").to_string());
        });
    }
    let done = Count::default();
    let counted = done.clone();
    queue(
        &mut lp,
        &pool,
        || {},
        move |_, result| {
            result.expect("the pool continues");
            counted.add();
        },
    );
    run_to_the_end(&mut lp);
    assert_eq!(*errors.borrow(), ["the work panicked: on purpose"; 3]);
    assert_eq!(done.get(), 1);
    Ok(())
}

/// Callbacks run in the poll phase, never inside the call that queues or cancels. The loop is alive
/// until then.
pub fn callbacks_never_run_inline(lab: &Lab) -> Verdict {
    let (mut lp, pool) = (new_loop(lab)?, pool(1));
    let trace = Trace::default();
    let check = Check::new(&mut lp);
    check.start(&mut lp, trace.noting("check")).expect("a check");
    check.unreference(&mut lp).expect("an open check");
    assert!(!lp.is_alive(), "nothing to do");
    let (done, last) = (trace.clone(), trace.clone());
    let second_pool = pool.clone();
    queue(
        &mut lp,
        &pool,
        || {},
        move |lp, _| {
            done.note("first");
            queue(lp, &second_pool, || {}, move |_, _| last.note("second"));
            done.note("queued");
        },
    );
    while pool.queued() + pool.active() > 0 {
        thread::yield_now();
    }
    trace.expect(&[], "done, and the loop does not run");
    assert!(lp.is_alive(), "a callback is due");
    run(&mut lp, RunMode::Once);
    trace.expect(&["first", "queued", "check"], "in the poll");
    assert!(lp.is_alive(), "more was queued");
    run_to_the_end(&mut lp);
    trace.expect(&["second", "check"], "in a later poll");
    Ok(())
}

/// Work that has not started can be cancelled: it never runs, its captures are dropped, and its
/// callback gets the cancellation even while every thread is busy.
pub fn queued_work_can_be_cancelled(lab: &Lab) -> Verdict {
    let (mut lp, pool) = (new_loop(lab)?, pool(2));
    let gate = block(&mut lp, &pool);
    let (trace, held) = (Trace::default(), Arc::new(()));
    let requests = ["one", "two", "three"].map(|name| {
        let (noted, kept) = (trace.clone(), Arc::clone(&held));
        let never = move || drop(kept);
        queue(&mut lp, &pool, never, move |_, result| match result {
            Err(WorkError::Cancelled) => noted.note(name),
            other => panic!("{name} was cancelled, but: {other:?}"),
        })
    });
    assert_eq!(Arc::strong_count(&held), 4);
    for request in [requests[0], requests[2], requests[1]] {
        request.cancel(&mut lp).expect("queued work");
        assert_eq!(kind(request.cancel(&mut lp)), Err(ErrorKind::ResourceBusy), "cancelled");
    }
    assert_eq!(Arc::strong_count(&held), 1, "their captures are dropped");
    trace.expect(&[], "never inline");
    run(&mut lp, RunMode::Once);
    trace.expect(&["one", "three", "two"], "in the order of cancelling");
    assert_eq!(gate.waiting(), 2, "both threads are busy");
    assert_eq!(kind(requests[0].cancel(&mut lp)), Err(ErrorKind::NotFound), "called back");
    gate.open();
    run_to_the_end(&mut lp);
    Ok(())
}

/// Work that has started cannot be cancelled: it continues and returns a result.
pub fn running_work_cannot_be_cancelled(lab: &Lab) -> Verdict {
    let (mut lp, pool) = (new_loop(lab)?, pool(1));
    let (gate, done) = (Gate::default(), Count::default());
    let (at, counted) = (gate.clone(), done.clone());
    let work = move || {
        at.pass();
        42
    };
    let request = queue(&mut lp, &pool, work, move |_, result| {
        assert_eq!(result.expect("not cancelled"), 42);
        counted.add();
    });
    gate.await_waiting(1);
    assert_eq!(kind(request.cancel(&mut lp)), Err(ErrorKind::ResourceBusy), "it runs");
    gate.open();
    while pool.active() > 0 {
        thread::yield_now();
    }
    assert_eq!(kind(request.cancel(&mut lp)), Err(ErrorKind::ResourceBusy), "it has run");
    run_to_the_end(&mut lp);
    assert_eq!(kind(request.cancel(&mut lp)), Err(ErrorKind::NotFound), "it has called back");
    assert_eq!(done.get(), 1);
    Ok(())
}

/// Work starts in queue order, across loops.
pub fn starts_in_order(lab: &Lab) -> Verdict {
    let (mut one, mut two, pool) = (new_loop(lab)?, new_loop(lab)?, pool(1));
    let gate = block(&mut one, &pool);
    let order = Arc::new(Mutex::new(Vec::new()));
    for index in 0..1_000 {
        let order = Arc::clone(&order);
        let lp = if index % 3 == 0 { &mut one } else { &mut two };
        let lane = if index % 2 == 0 { WorkKind::Cpu } else { WorkKind::SlowIo };
        let work = move || order.lock().expect("no panic").push(index);
        lp.queue_work_on(&pool, lane, work, |_, _| {}).expect("queued work");
    }
    gate.open();
    run_to_the_end(&mut one);
    run_to_the_end(&mut two);
    let ran = order.lock().expect("no panic");
    assert!(ran.iter().copied().eq(0..1_000), "out of order: {ran:?}");
    Ok(())
}

/// As many jobs run concurrently as the pool has threads. Jobs that wait for each other all start,
/// including jobs queued while a thread wakes up or goes to sleep.
pub fn no_thread_sleeps_while_work_waits(lab: &Lab) -> Verdict {
    const THREADS: usize = 3;
    let (mut lp, pool, met) = (new_loop(lab)?, pool(THREADS), Count::default());
    for round in 1..=300 {
        let barrier = Arc::new(Barrier::new(THREADS));
        for number in 0..THREADS {
            let (barrier, met) = (Arc::clone(&barrier), met.clone());
            queue(&mut lp, &pool, move || barrier.wait(), move |_, _| met.count());
            if number < round % THREADS {
                thread::yield_now();
            }
        }
        let all = (round * THREADS) as u64;
        run_until(&mut lp, "jobs that wait for each other", |_| met.get() == all);
    }
    Ok(())
}

/// Slow work occupies at most half of the threads, rounded up: other work runs even if it is queued
/// behind slow work.
pub fn slow_work_occupies_half_of_the_threads(lab: &Lab) -> Verdict {
    for threads in [1, 2, 3, 4, 5] {
        let (mut lp, pool) = (new_loop(lab)?, pool(threads));
        let (gate, limit) = (Gate::default(), threads.div_ceil(2));
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for _ in 0..10 {
            let at = (gate.clone(), Arc::clone(&running), Arc::clone(&most));
            let slow = move || {
                let (gate, running, most) = at;
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                gate.pass();
                running.fetch_sub(1, Ordering::SeqCst);
            };
            lp.queue_work_on(&pool, WorkKind::SlowIo, slow, |_, _| {}).expect("queued work");
        }
        gate.await_waiting(limit);
        if threads > 1 {
            let fast = Count::default();
            for _ in 0..20 {
                let counted = fast.clone();
                queue(
                    &mut lp,
                    &pool,
                    || {},
                    move |_, _| {
                        counted.add();
                    },
                );
            }
            while fast.get() < 20 {
                run(&mut lp, RunMode::Once);
            }
            assert_eq!(gate.waiting(), limit, "slow work at a time, of {threads} threads");
        }
        gate.open();
        run_to_the_end(&mut lp);
        assert_eq!(most.load(Ordering::SeqCst), limit, "at most, of {threads} threads");
    }
    Ok(())
}

/// Pools do not wait for each other, nor for the process-wide pool.
pub fn pools_are_independent(lab: &Lab) -> Verdict {
    let (mut lp, busy, free) = (new_loop(lab)?, pool(2), pool(1));
    let gate = block(&mut lp, &busy);
    let done = Count::default();
    for _ in 0..10 {
        let counted = done.clone();
        queue(
            &mut lp,
            &free,
            || {},
            move |_, _| {
                counted.add();
            },
        );
        let counted = done.clone();
        lp.queue_work(
            || {},
            move |_, _| {
                counted.add();
            },
        )
        .expect("queued work");
    }
    while done.get() < 20 {
        run(&mut lp, RunMode::Once);
    }
    assert_eq!(gate.waiting(), 2);
    gate.open();
    run_to_the_end(&mut lp);
    Ok(())
}

/// A pool reports its number of threads, of queued jobs and of running jobs. Invalid sizes are
/// refused.
pub fn pools_report_their_size_and_load(lab: &Lab) -> Verdict {
    for threads in [0, 1_025, usize::MAX] {
        let refused = Pool::new(threads).map(drop).map_err(|error| error.kind());
        assert_eq!(refused, Err(ErrorKind::InvalidInput), "{threads} threads");
    }
    let (mut lp, pool) = (new_loop(lab)?, pool(3));
    assert_eq!((pool.threads(), pool.queued(), pool.active()), (3, 0, 0));
    let gate = block(&mut lp, &pool);
    for _ in 0..5 {
        queue(&mut lp, &pool, || {}, |_, _| {});
    }
    assert_eq!((pool.threads(), pool.queued(), pool.active()), (3, 5, 3));
    gate.open();
    run_to_the_end(&mut lp);
    let started = Instant::now();
    while pool.active() > 0 {
        assert!(started.elapsed() < SOON, "all has run, and something is active");
        thread::yield_now();
    }
    assert_eq!((pool.threads(), pool.queued()), (3, 0));
    Ok(())
}

/// The threads of a pool have a name for debuggers and profilers.
pub fn threads_have_a_name(lab: &Lab) -> Verdict {
    let (mut lp, pool) = (new_loop(lab)?, pool(1));
    let name = || thread::current().name().map(str::to_owned);
    let named = |_: &mut Loop, name: Result<Option<String>, _>| {
        assert_eq!(name.expect("a result").as_deref(), Some("libuv-worker"));
    };
    queue(&mut lp, &pool, name, named);
    lp.queue_work(name, named).expect("queued work");
    run_to_the_end(&mut lp);
    Ok(())
}

/// A dropped loop cancels work that has not started, does not wait for running work, and drops all
/// captures and results.
pub fn a_dropped_loop_cancels_its_work(lab: &Lab) -> Verdict {
    let (mut lp, pool) = (new_loop(lab)?, pool(1));
    let (gate, result, captured) = (Gate::default(), Arc::new(()), Rc::new(()));
    let (at, returned, kept) = (gate.clone(), Arc::clone(&result), Rc::clone(&captured));
    let work = move || {
        at.pass();
        returned
    };
    queue(&mut lp, &pool, work, move |_, _| panic!("a callback of {kept:?} without a loop"));
    gate.await_waiting(1);
    for _ in 0..10 {
        let (held, kept) = (Arc::clone(&result), Rc::clone(&captured));
        let never = move || panic!("work that was queued ran: {held:?}");
        queue(&mut lp, &pool, never, move |_, _: Result<(), _>| drop(kept));
    }
    drop(lp);
    assert_eq!(Arc::strong_count(&result), 2, "that which runs has the other");
    assert_eq!(Rc::strong_count(&captured), 1, "captures of callbacks");
    gate.open();
    let started = Instant::now();
    while Arc::strong_count(&result) > 1 {
        assert!(started.elapsed() < SOON, "an unclaimed result is not dropped");
        thread::yield_now();
    }
    Ok(())
}

/// All values that work sends on a channel are delivered before the callback of the work, which
/// closes the channel.
pub fn sends_of_work_precede_its_callback(lab: &Lab) -> Verdict {
    const ROUNDS: usize = 200;
    const VALUES: u64 = 10;
    let pool = pool(2);
    for round in 0..ROUNDS {
        let mut lp = new_loop(lab)?;
        let delivered = Count::default();
        let counted = delivered.clone();
        let callback = move |_: &mut Loop, _, _: u64| {
            counted.add();
        };
        let (channel, sender) = Channel::new(&mut lp, callback);
        // Another thread sends as well, with its own notification.
        let another = sender.clone();
        let noise = thread::spawn(move || drop(another.send(0)));
        let sent =
            move || (0..VALUES).for_each(|value| sender.send(value).expect("an open channel"));
        let counted = delivered.clone();
        queue(&mut lp, &pool, sent, move |lp, result| {
            result.expect("not cancelled");
            assert!(counted.get() >= VALUES, "{} values in round {round}", counted.get());
            channel.handle().close(lp).expect("an open channel");
        });
        run_to_the_end(&mut lp);
        noise.join().expect("a thread that sends");
    }
    Ok(())
}

/// A panic of an async, between the end of work and its callback, leaves that callback pending.
pub fn a_panic_in_an_async_keeps_completed_work(lab: &Lab) -> Verdict {
    let (mut lp, pool) = (new_loop(lab)?, pool(1));
    let done = Count::default();
    let (bad, sender) = Async::new(&mut lp, |_: &mut Loop, _| panic_on_purpose());
    let counted = done.clone();
    let work = move || sender.send().expect("an open handle");
    queue(&mut lp, &pool, work, move |_, _| {
        counted.add();
    });
    while pool.queued() + pool.active() > 0 {
        thread::yield_now();
    }
    unwinds(&mut lp, RunMode::Default);
    assert_eq!(done.get(), 0, "the async is delivered first");
    run_to_the_end(&mut lp);
    assert_eq!(done.get(), 1, "and the callback in the next run");
    assert!(!bad.is_active(&lp), "stopped by its panic");
    Ok(())
}

/// A pool whose last clone is dropped runs its queue, and then its threads end.
pub fn a_dropped_pool_runs_its_queue(lab: &Lab) -> Verdict {
    struct Flag(Arc<AtomicUsize>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    thread_local!(static ENDS: RefCell<Option<Flag>> = const { RefCell::new(None) });
    let (mut lp, pool) = (new_loop(lab)?, pool(2));
    let (gate, done, ended) = (block(&mut lp, &pool), Count::default(), Arc::default());
    for _ in 0..100 {
        let (counted, ended) = (done.clone(), Arc::clone(&ended));
        let work = move || ENDS.set(Some(Flag(ended)));
        queue(&mut lp, &pool, work, move |_, result| {
            result.expect("not cancelled");
            counted.add();
        });
    }
    drop(pool);
    gate.open();
    run_to_the_end(&mut lp);
    assert_eq!(done.get(), 100);
    let started = Instant::now();
    // Each replaced flag counts too: the last flag of each thread is dropped when the thread ends.
    while ended.load(Ordering::SeqCst) < 100 {
        assert!(started.elapsed() < SOON, "the threads of a dropped pool do not end");
        thread::sleep(SHORT / 10);
    }
    Ok(())
}

/// Ten thousand jobs, some of them cancelled, call back once each.
pub fn ten_thousand_jobs(lab: &Lab) -> Verdict {
    const JOBS: usize = 10_000;
    let (mut lp, pool) = (new_loop(lab)?, pool(4));
    let seen = Rc::new(RefCell::new(vec![0_u8; JOBS]));
    let ran = Arc::new(AtomicUsize::new(0));
    let cancelled = Count::default();
    for index in 0..JOBS {
        let (ran, seen, lost) = (Arc::clone(&ran), Rc::clone(&seen), cancelled.clone());
        let work = move || {
            ran.fetch_add(1, Ordering::Relaxed);
            index
        };
        let request = queue(&mut lp, &pool, work, move |_, result| {
            seen.borrow_mut()[index] += 1;
            match result {
                Ok(value) => assert_eq!(value, index, "the result of another"),
                Err(_) => {
                    lost.add();
                }
            }
        });
        if index % 7 == 0 {
            let _ = request.cancel(&mut lp); // If it has not started.
        }
        if index % 1_000 == 0 {
            run(&mut lp, RunMode::NoWait);
        }
    }
    run_to_the_end(&mut lp);
    assert!(seen.borrow().iter().all(|&times| times == 1), "each calls back once");
    assert_eq!(ran.load(Ordering::Relaxed) + cancelled.get() as usize, JOBS);
    Ok(())
}

/// `UV_THREADPOOL_SIZE` sets the size of the process-wide pool.
pub fn the_environment_sets_the_pool_size(lab: &Lab) -> Verdict {
    use crate::support::children::answer_to;
    use crate::support::program::child;

    let mut lp = new_loop(lab)?;
    for (value, threads) in [("7", "7"), ("0", "1"), ("many", "1"), ("1000000", "1024")] {
        if threads == "1024" && cfg!(not(target_os = "linux")) {
            continue; // Some systems refuse this many threads.
        }
        let command = child(&["pool"]).env("UV_THREADPOOL_SIZE", value);
        assert_eq!(answer_to(&mut lp, command), threads, "for {value:?}");
    }
    Ok(())
}
