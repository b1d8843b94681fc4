//! The executor on a backend without system calls: order, budget, panics, wakes of threads. Also
//! runs under Miri.

#[path = "../../uv-core/examples/simulated_time.rs"]
#[allow(dead_code)]
mod simulated_time;

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use simulated_time::{Jumping, JumpingWaker};
use uv_async::{LoopExt, POLL_BUDGET, Rt, yield_now};
use uv_core::poll_core::{Backend, Event, Interest, Mode, RawSource, Token, Wake};
use uv_core::{Check, Handle, Loop, RunMode, Timer};

const MS: Duration = Duration::from_millis(1);

fn jumping() -> Loop<Jumping> {
    Loop::new(Jumping::default())
}

/// A log that tasks share.
#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<String>>>);

impl Log {
    fn add(&self, line: impl Into<String>) {
        self.0.borrow_mut().push(line.into());
    }

    fn take(&self) -> Vec<String> {
        self.0.take()
    }
}

#[test]
fn block_on_returns_the_value_of_a_future_that_borrows() {
    let mut lp = jumping();
    let (text, mut count) = (String::from("text"), 0);
    let value = lp.block_on(async |rt| {
        rt.sleep(3600 * 1000 * MS).await;
        count += 1;
        &text[1..]
    });
    assert_eq!((value.unwrap(), count), ("ext", 1));
    assert_eq!(lp.now(), 3600 * 1000 * MS, "the time is the backend's");
    assert!(lp.close().is_ok(), "no handle is left");
}

#[test]
fn sleeps_end_in_order_and_at_exact_times() {
    let mut lp = jumping();
    let log = Log::default();
    lp.block_on(async |rt| {
        let tasks = [3, 1, 2].map(|ms| {
            let (rt, log) = (rt.clone(), log.clone());
            rt.clone().spawn_local(async move {
                rt.sleep(ms * MS).await;
                log.add(format!("{ms} at {:?}", rt.now()));
            })
        });
        for task in tasks {
            task.await.unwrap();
        }
    })
    .unwrap();
    assert_eq!(log.take(), ["1 at 1ms", "2 at 2ms", "3 at 3ms"]);
}

#[test]
fn intervals_skip_what_they_missed() {
    let mut lp = jumping();
    let ticks = lp.block_on(async |rt| {
        let mut interval = rt.interval(10 * MS);
        let mut ticks = vec![interval.tick().await, interval.tick().await];
        rt.sleep(25 * MS).await; // At 35 now: the ticks at 20 and 30 have passed.
        ticks.extend([interval.tick().await, interval.tick().await]);
        assert_eq!(interval.period(), 10 * MS);
        ticks
    });
    assert_eq!(ticks.unwrap(), [0, 10, 20, 40].map(|at| at * MS));
}

#[test]
fn a_timeout_drops_the_future_and_its_timer() {
    let mut lp = jumping();
    let dropped = Rc::new(());
    lp.block_on(async |rt| {
        let held = Rc::clone(&dropped);
        let never = async move {
            let _held = held;
            pending::<()>().await;
        };
        assert!(rt.timeout(MS, never).await.is_err());
        assert_eq!(Rc::strong_count(&dropped), 1);
        assert_eq!(rt.timeout(MS, async { 5 }).await, Ok(5));
        assert_eq!(rt.now(), MS, "the timer of the second is gone");
    })
    .unwrap();
    assert!(lp.close().is_ok());
}

/// Each task is polled once between two polls for I/O, which check handles count.
#[test]
fn a_task_is_polled_once_an_iteration() {
    let mut lp = jumping();
    let rt = Rt::attach(&mut lp);
    let log = Log::default();
    for name in ["a", "b"] {
        let log = log.clone();
        rt.spawn_local(async move {
            for _ in 0..3 {
                log.add(name);
                yield_now().await;
            }
        });
    }
    let (check, checked) = (Check::new(&mut lp), log.clone());
    check.start(&mut lp, move |_, _| checked.add("check")).unwrap();
    check.unreference(&mut lp).unwrap();
    lp.run(RunMode::Default).unwrap();
    let order = log.take();
    assert_eq!(order[..8], ["a", "b", "check", "a", "b", "check", "a", "b"]);
}

/// A task that was not polled yet is polled in the same iteration as the task that wakes it.
#[test]
fn messages_between_tasks_need_no_iteration() {
    let mut lp = jumping();
    let metrics = lp.metrics();
    lp.block_on(async |rt| {
        let (full, waker) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(None::<Waker>)));
        let (f, w) = (Rc::clone(&full), Rc::clone(&waker));
        let receiver = rt.spawn_local(poll_fn(move |cx| {
            w.set(Some(cx.waker().clone()));
            if f.get() { Poll::Ready(()) } else { Poll::Pending }
        }));
        yield_now().await;
        let before = metrics.loop_count();
        let m = metrics.clone();
        let sender = rt.spawn_local(async move {
            full.set(true);
            waker.take().unwrap().wake();
            m.loop_count()
        });
        let sent = sender.await.unwrap();
        receiver.await.unwrap();
        assert!(metrics.loop_count() - sent <= 1, "{before} {sent}");
    })
    .unwrap();
}

#[test]
fn the_budget_lets_io_run_between_many_tasks() {
    let mut lp = jumping();
    let rt = Rt::attach(&mut lp);
    let (polls, log) = (Rc::new(Cell::new(0_usize)), Log::default());
    for _ in 0..3 * POLL_BUDGET {
        let polls = Rc::clone(&polls);
        rt.spawn_local(async move { polls.set(polls.get() + 1) });
    }
    let (check, checked, seen) = (Check::new(&mut lp), log.clone(), Rc::clone(&polls));
    check.start(&mut lp, move |_, _| checked.add(seen.get().to_string())).unwrap();
    check.unreference(&mut lp).unwrap();
    lp.run(RunMode::Default).unwrap();
    let expected = [1, 2, 3].map(|pass| (pass * POLL_BUDGET).to_string());
    assert_eq!(log.take()[..3], expected);
}

#[test]
fn panics_are_errors_of_their_tasks() {
    let mut lp = jumping();
    lp.block_on(async |rt| {
        let broken = rt.spawn_local(async { panic!("on purpose") });
        let error = broken.await.unwrap_err();
        assert!(error.is_panic() && !error.is_cancelled());
        assert_eq!(error.to_string(), "the task has panicked: on purpose");
        assert!(error.try_into_panic().unwrap().downcast_ref::<&str>().is_some());
        let broken = rt.spawn_local(async { panic!("on purpose") });
        let converted = std::io::Error::from(broken.await.unwrap_err());
        assert_eq!(converted.to_string(), "the task has panicked: on purpose");
        assert_eq!(rt.spawn_local(async { 1 }).await.unwrap(), 1, "the others go on");
    })
    .unwrap();
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("on purpose, in a destructor");
        }
    }
}

#[test]
fn destructors_that_panic_do_not_stop_the_loop() {
    let mut lp = jumping();
    lp.block_on(async |rt| {
        let task = rt.spawn_local(async {
            let _bomb = Bomb;
            pending::<()>().await;
        });
        yield_now().await;
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        let _left = rt.spawn_local(async {
            let _bomb = Bomb;
            pending::<()>().await;
        });
        yield_now().await;
        rt.sleep(MS).await;
    })
    .unwrap();
    assert!(lp.close().is_ok());
}

#[test]
fn a_panic_of_the_root_future_leaves_a_loop_that_works() {
    let mut lp = jumping();
    let body = AssertUnwindSafe(|| lp.block_on(async |_| panic!("on purpose")));
    assert!(catch_unwind(body).is_err());
    assert_eq!(lp.block_on(async |_| 5).unwrap(), 5);
    assert!(lp.close().is_ok());
}

#[test]
fn tasks_are_dropped_with_their_loop_and_by_abort() {
    let held = Rc::new(());
    let hold = || {
        let held = Rc::clone(&held);
        async move {
            let _held = held;
            pending::<()>().await;
        }
    };
    let mut lp = jumping();
    let rt = Rt::attach(&mut lp);
    let (inside, own) = (rt.clone(), hold());
    rt.spawn_local(async move {
        own.await;
        drop(inside); // A task that holds its runtime is no leak.
    });
    let aborted = rt.spawn_local(hold());
    lp.run(RunMode::NoWait).unwrap();
    assert_eq!((Rc::strong_count(&held), rt.task_count()), (3, 2));
    aborted.abort();
    lp.run(RunMode::NoWait).unwrap();
    assert_eq!((Rc::strong_count(&held), rt.task_count()), (2, 1));
    assert!(aborted.is_finished());
    drop(lp);
    assert_eq!(Rc::strong_count(&held), 1);
    let late = rt.spawn_local(hold());
    assert!(late.is_finished() && Rc::strong_count(&held) == 1, "it was dropped immediately");
    assert!(rt.try_with(|_| ()).is_none());
}

#[test]
fn detached_tasks_go_on_and_keep_the_loop_alive() {
    let mut lp = jumping();
    let rt = Rt::attach(&mut lp);
    assert!(!lp.run(RunMode::Default).unwrap(), "a runtime without tasks does not");
    let (task, done) = (rt.clone(), Rc::new(Cell::new(false)));
    let set = Rc::clone(&done);
    rt.enter(&mut lp, || {
        drop(rt.spawn_local(async move {
            task.sleep(5 * MS).await;
            set.set(true);
        }));
    });
    lp.run(RunMode::Default).unwrap();
    assert!(done.get());
    assert_eq!(lp.now(), 5 * MS);
}

#[test]
fn the_loop_is_lent_to_tasks_only_and_once() {
    let mut lp = jumping();
    let rt = Rt::attach(&mut lp);
    assert!(rt.try_with(|_| ()).is_none());
    let task = rt.clone();
    rt.block_on(&mut lp, async move {
        let nested = task.with(|lp| {
            assert!(task.try_with(|_| ()).is_none(), "there is one `&mut`");
            task.enter(lp, || task.try_with(|_| ()).is_some())
        });
        assert!(nested, "a loop that is lent again");
        let panicked = catch_unwind(AssertUnwindSafe(|| task.with(|_| panic!("on purpose"))));
        assert!(panicked.is_err() && task.try_with(|_| ()).is_some());
    })
    .unwrap();
    assert!(rt.try_with(|_| ()).is_none());
}

#[test]
fn loops_may_be_exchanged_inside_a_task() {
    let (mut lp, mut other) = (jumping(), jumping());
    let rt = Rt::attach(&mut lp);
    let ran = Rc::new(Cell::new(0));
    let (task, count) = (rt.clone(), Rc::clone(&ran));
    rt.spawn_local(async move {
        task.with(|lp| {
            std::mem::swap(lp, &mut other);
            assert!(other.run(RunMode::NoWait).is_err(), "it is running");
            lp.run(RunMode::NoWait).unwrap();
        });
        count.set(count.get() + 1);
        yield_now().await;
        count.set(count.get() + 1);
        task.with(|lp| std::mem::swap(lp, &mut other));
        drop(other);
    });
    for _ in 0..4 {
        lp.run(RunMode::NoWait).unwrap();
    }
    assert_eq!(ran.get(), 2);
}

#[test]
fn several_runtimes_and_loops_share_a_thread() {
    let (mut one, mut two) = (jumping(), jumping());
    let inner = one.block_on(async |rt| {
        let task = rt.spawn_local(async { 1 });
        let inner = two.block_on(async |rt| rt.spawn_local(async { 2 }).await.unwrap()).unwrap();
        inner + task.await.unwrap()
    });
    assert_eq!(inner.unwrap(), 3);
    let runtimes = [Rt::attach(&mut one), Rt::attach(&mut one)];
    let sum = Rc::new(Cell::new(0));
    for rt in &runtimes {
        let sum = Rc::clone(&sum);
        rt.spawn_local(async move { sum.set(sum.get() + 1) });
    }
    one.run(RunMode::Default).unwrap();
    assert_eq!(sum.get(), 2);
}

/// Wakers that outlive their task, their runtime and their loop do nothing.
#[test]
fn stale_wakers_do_nothing() {
    let kept = Arc::new(Mutex::new(Vec::<Waker>::new()));
    let mut lp = jumping();
    lp.block_on(async |rt| {
        for _ in 0..4 {
            let keep = Arc::clone(&kept);
            let task = rt.spawn_local(poll_fn(move |cx| {
                keep.lock().unwrap().push(cx.waker().clone());
                Poll::Ready(())
            }));
            task.await.unwrap();
            kept.lock().unwrap().iter().for_each(Waker::wake_by_ref);
        }
    })
    .unwrap();
    drop(lp);
    kept.lock().unwrap().iter().for_each(Waker::wake_by_ref);
}

#[test]
fn threads_wake_tasks_and_spawn_them() {
    const ROUNDS: usize = if cfg!(miri) { 20 } else { 2000 };
    let mut lp = jumping();
    lp.block_on(async |rt| {
        // A thread that answers each poll by a wake.
        let (sender, receiver) = std::sync::mpsc::channel::<(Waker, Arc<Mutex<bool>>)>();
        let thread = std::thread::spawn(move || {
            for (waker, done) in receiver {
                *done.lock().unwrap() = true;
                waker.wake();
            }
        });
        for _ in 0..ROUNDS {
            let (done, mut sent) = (Arc::new(Mutex::new(false)), false);
            poll_fn(|cx| {
                if !std::mem::replace(&mut sent, true) {
                    sender.send((cx.waker().clone(), Arc::clone(&done))).unwrap();
                }
                if *done.lock().unwrap() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        drop(sender);
        thread.join().unwrap();

        let spawner = rt.spawner();
        let thread = std::thread::spawn(move || {
            let results = [1, 2, 3].map(|number| spawner.spawn(move |_| async move { number }));
            results.into_iter().map(|result| result.wait().unwrap()).sum::<i32>()
        });
        let sum = rt.spawner().spawn(|_| async { 1 });
        assert_eq!(sum.await.unwrap(), 1);
        while !thread.is_finished() {
            yield_now().await;
        }
        assert_eq!(thread.join().unwrap(), 6);
    })
    .unwrap();
}

#[test]
fn threads_abort_what_they_spawned() {
    let mut lp = jumping();
    lp.block_on(async |rt| {
        let early = rt.spawner().spawn(|_| pending::<()>());
        early.abort(); // Before the loop has seen it.
        assert!(early.await.unwrap_err().is_cancelled());
        let late = rt.spawner().spawn(|_| pending::<()>());
        rt.sleep(MS).await;
        assert_eq!(rt.task_count(), 2);
        late.abort();
        assert!(late.await.unwrap_err().is_cancelled());
    })
    .unwrap();
}

#[test]
fn a_spawner_whose_runtime_is_gone_reports_that() {
    let mut lp = jumping();
    let spawner = lp.block_on(async |rt| rt.spawner()).unwrap();
    assert!(spawner.spawn(|_| async {}).wait().unwrap_err().is_cancelled());
    assert!(lp.close().is_ok());
}

#[test]
fn callbacks_run_beside_tasks() {
    let mut lp = jumping();
    let log = Log::default();
    let (timer, ticks) = (Timer::new(&mut lp), log.clone());
    timer.start(&mut lp, 2 * MS, 2 * MS, move |_, _| ticks.add("callback")).unwrap();
    lp.block_on(async |rt| {
        for _ in 0..2 {
            rt.sleep(3 * MS).await;
            log.add("task");
        }
        rt.with(|lp| timer.close(lp)).unwrap();
    })
    .unwrap();
    assert_eq!(log.take(), ["callback", "task", "callback", "callback", "task"]);
}

/// A backend that counts how often its loop is woken: what a real one may need a system call for.
#[derive(Debug, Default)]
struct Counted {
    inner: Jumping,
    wakes: Arc<AtomicUsize>,
}

#[derive(Clone, Debug)]
struct CountedWaker(JumpingWaker, Arc<AtomicUsize>);

impl Wake for CountedWaker {
    fn wake(&self) -> io::Result<()> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.wake()
    }
}

// SAFETY: it refuses every source and every operation, and reports no event, as the inner one.
#[allow(unsafe_code)]
unsafe impl Backend for Counted {
    type Waker = CountedWaker;

    fn waker(&self) -> CountedWaker {
        CountedWaker(self.inner.waker(), Arc::clone(&self.wakes))
    }

    unsafe fn register(
        &mut self,
        token: Token,
        source: RawSource,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.inner.register(token, source, interest, mode) }
    }

    fn modify(&mut self, token: Token, interest: Interest, mode: Mode) -> io::Result<()> {
        self.inner.modify(token, interest, mode)
    }

    fn deregister(&mut self, token: Token) -> io::Result<()> {
        self.inner.deregister(token)
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        self.inner.wait(timeout, events)
    }

    fn now(&self) -> Duration {
        self.inner.now()
    }
}

/// A flag that a task waits for, with the waker of its last poll.
type Flag = Arc<Mutex<(bool, Option<Waker>)>>;

async fn is_set(flag: Flag) {
    poll_fn(|cx| {
        let mut flag = flag.lock().unwrap();
        flag.1 = Some(cx.waker().clone());
        if flag.0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

fn set(flag: &Flag) {
    let mut flag = flag.lock().unwrap();
    flag.0 = true;
    flag.1.take().unwrap().wake();
}

#[test]
fn wakes_of_the_loops_thread_do_not_wake_the_backend() {
    let backend = Counted::default();
    let wakes = Arc::clone(&backend.wakes);
    let mut lp = Loop::new(backend);
    let rt = Rt::attach(&mut lp);
    let task = rt.clone();
    let counted = rt.spawn_local(wakes_of_all_kinds(task, Arc::clone(&wakes)));
    assert_eq!(rt.block_on(&mut lp, counted).unwrap().unwrap(), 0, "in a task");
    let counted = wakes_of_all_kinds(rt.clone(), wakes);
    assert_eq!(rt.block_on(&mut lp, counted).unwrap(), 0, "in the future of `block_on`");
}

/// Joins, yields, timers, and wakers that one task calls for another. Returns how often the backend
/// was woken.
async fn wakes_of_all_kinds(rt: Rt<Counted>, wakes: Arc<AtomicUsize>) -> usize {
    yield_now().await;
    let before = wakes.load(Ordering::SeqCst);
    for _ in 0..50 {
        let flag = Flag::default();
        let waiting = rt.spawn_local(is_set(Arc::clone(&flag)));
        rt.sleep(MS).await;
        set(&flag);
        waiting.await.unwrap();
        yield_now().await;
    }
    wakes.load(Ordering::SeqCst) - before
}

/// A panic of the future of `block_on` leaves a runtime that other threads can wake.
#[test]
fn threads_wake_a_runtime_whose_root_future_has_panicked() {
    let backend = Counted::default();
    let wakes = Arc::clone(&backend.wakes);
    let mut lp = Loop::new(backend);
    let rt = Rt::attach(&mut lp);
    let flag = Flag::default();
    let task = rt.spawn_local(is_set(Arc::clone(&flag)));
    rt.block_on(&mut lp, yield_now()).unwrap();
    let body = AssertUnwindSafe(|| rt.block_on(&mut lp, async { panic!("on purpose") }));
    assert!(catch_unwind(body).is_err());
    let before = wakes.load(Ordering::SeqCst);
    std::thread::spawn(move || set(&flag)).join().unwrap();
    assert_eq!(wakes.load(Ordering::SeqCst) - before, 1);
    rt.block_on(&mut lp, task).unwrap().unwrap();
}

/// The loop wakes a task by its id, a thread by its waker: both in one iteration or not, before an
/// abort or after it.
#[test]
fn wakes_of_the_loop_and_of_threads_meet() {
    let mut lp = jumping();
    lp.block_on(async |rt| {
        let tasks = rt.task_count();
        for round in 0..30 {
            let (flag, inside) = (Flag::default(), rt.clone());
            let theirs = Arc::clone(&flag);
            let task = rt.spawn_local(async move {
                let mut sleep = pin!(inside.sleep(Duration::from_millis(1)));
                let (mut set, mut ends) = (pin!(is_set(theirs)), (false, false));
                poll_fn(|cx| {
                    ends.0 = ends.0 || sleep.as_mut().poll(cx).is_ready();
                    ends.1 = ends.1 || set.as_mut().poll(cx).is_ready();
                    if ends == (true, true) { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
            });
            yield_now().await; // It waits.
            rt.sleep(Duration::from_millis(round % 3)).await;
            let aborts = round % 5;
            if aborts == 0 {
                task.abort();
            }
            std::thread::spawn(move || set(&flag)).join().unwrap();
            if aborts == 1 {
                task.abort();
            }
            let ended = task.await;
            assert_eq!(ended.is_err_and(|error| error.is_cancelled()), aborts < 2);
            assert_eq!(rt.task_count(), tasks);
        }
    })
    .unwrap();
}

#[test]
fn wakes_of_other_threads_wake_the_backend_once() {
    const TASKS: usize = 40;
    let backend = Counted::default();
    let wakes = Arc::clone(&backend.wakes);
    let mut lp = Loop::new(backend);
    let rt = Rt::attach(&mut lp);
    let flags: Vec<Flag> = (0..TASKS).map(|_| Flag::default()).collect();
    let tasks: Vec<_> = flags.iter().map(|flag| rt.spawn_local(is_set(Arc::clone(flag)))).collect();
    for _ in 0..3 {
        lp.run(RunMode::NoWait).unwrap();
    }
    let before = wakes.load(Ordering::SeqCst);
    // All before the loop looks: the first of them notifies it.
    std::thread::spawn(move || flags.iter().for_each(set)).join().unwrap();
    assert_eq!(wakes.load(Ordering::SeqCst) - before, 1);
    lp.run(RunMode::Default).unwrap();
    assert!(tasks.iter().all(uv_async::JoinHandle::is_finished));
}
