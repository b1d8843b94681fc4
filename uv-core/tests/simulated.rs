//! The loop on a backend without system calls: runs the loop's unsafe code under Miri, and checks
//! exact times.

#[path = "../examples/simulated_time.rs"]
#[allow(dead_code)]
mod simulated_time;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use simulated_time::Jumping;
use uv_core::{
    Async, Channel, Check, Handle, Idle, Loop, Pool, Prepare, RunMode, Timer, WorkError, WorkKind,
};

const MS: Duration = Duration::from_millis(1);

fn jumping() -> Loop<Jumping> {
    Loop::new(Jumping::default())
}

#[test]
fn timers_fire_at_exact_times_and_in_order() {
    let mut lp = jumping();
    let fired = Rc::new(RefCell::new(Vec::new()));
    for (name, after) in [("c", 30), ("a", 10), ("d", 30), ("b", 20)] {
        let (timer, fired) = (Timer::new(&mut lp), Rc::clone(&fired));
        let keep = [name; 4]; // Too large for inline storage.
        timer
            .start(&mut lp, after * MS, Duration::ZERO, move |lp, timer| {
                fired.borrow_mut().push((keep[3], lp.now()));
                timer.close(lp).unwrap();
            })
            .unwrap();
    }
    lp.run(RunMode::Default).unwrap();
    let expected = [("a", 10), ("b", 20), ("c", 30), ("d", 30)].map(|(name, at)| (name, at * MS));
    assert_eq!(*fired.borrow(), expected);
    assert!(lp.close().is_ok());
}

#[test]
fn idle_time_is_measured_by_the_backends_clock() {
    let mut lp = jumping();
    lp.measure_idle_time();
    Timer::after(&mut lp, 3_600_000 * MS, |_, _| {});
    lp.run(RunMode::Default).unwrap();
    assert_eq!(lp.metrics().idle_time(), 3_600_000 * MS, "exactly, and the same in every run");
}

#[test]
fn captures_are_dropped_with_their_callbacks() {
    let mut lp = jumping();
    let held = Rc::new(());
    let timer = Timer::new(&mut lp);
    for _ in 0..3 {
        let held = Rc::clone(&held);
        timer.start(&mut lp, MS, MS, move |_, _| drop(Rc::clone(&held))).unwrap();
    }
    assert_eq!(Rc::strong_count(&held), 2, "a new callback replaces the old");
    for _ in 0..3 {
        let (idle, held) = (Idle::new(&mut lp), Rc::clone(&held));
        idle.start(&mut lp, move |_, _| drop(Rc::clone(&held))).unwrap();
        idle.close(&mut lp).unwrap();
    }
    let (deferred, closed) = (Rc::clone(&held), Rc::clone(&held));
    lp.defer(move |_| drop(deferred));
    Prepare::new(&mut lp).close_with(&mut lp, move |_, _| drop(closed)).unwrap();
    assert_eq!(Rc::strong_count(&held), 4);
    lp.run(RunMode::NoWait).unwrap();
    assert_eq!(Rc::strong_count(&held), 2);
    drop(lp);
    assert_eq!(Rc::strong_count(&held), 1);
}

#[test]
fn loops_keep_working_after_a_panic() {
    let mut lp = jumping();
    let ran = Rc::new(RefCell::new(Vec::new()));
    let note = |name: &'static str| {
        let ran = Rc::clone(&ran);
        move |_: &mut Loop<Jumping>, _: Timer| ran.borrow_mut().push(name)
    };
    let (first, bad, last) = (Timer::new(&mut lp), Timer::new(&mut lp), Timer::new(&mut lp));
    first.start(&mut lp, MS, Duration::ZERO, note("first")).unwrap();
    bad.start(&mut lp, MS, MS, |_, _| panic!("on purpose")).unwrap();
    last.start(&mut lp, MS, Duration::ZERO, note("last")).unwrap();
    let run = std::panic::AssertUnwindSafe(|| lp.run(RunMode::Default));
    assert!(std::panic::catch_unwind(run).is_err());
    assert!(!bad.is_active(&lp));
    assert!(!lp.run(RunMode::Default).unwrap());
    assert_eq!(*ran.borrow(), ["first", "last"]);
}

#[test]
fn callbacks_may_replace_the_loop() {
    let mut lp = jumping();
    let check = Check::new(&mut lp);
    check.start(&mut lp, |lp, _| drop(std::mem::replace(lp, jumping()))).unwrap();
    assert!(!lp.run(RunMode::NoWait).unwrap(), "the new loop has nothing to do");
    assert!(check.stop(&mut lp).is_err());
}

#[test]
fn messages_of_threads_are_delivered_in_order() {
    let mut lp = jumping();
    let got = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&got);
    let (_, sender) = Channel::new(&mut lp, move |lp, channel, value: Box<u32>| {
        log.borrow_mut().push(*value);
        if *value == 9 {
            channel.handle().close(lp).unwrap();
        }
    });
    let (_, once) = Async::new(&mut lp, |lp, handle| handle.close(lp).unwrap());
    let thread = std::thread::spawn(move || {
        once.send().unwrap();
        (0..10).for_each(|value| sender.send(Box::new(value)).unwrap());
        while sender.send(Box::new(99)).is_ok() {
            std::thread::yield_now();
        }
    });
    lp.run(RunMode::Default).unwrap();
    thread.join().unwrap();
    assert_eq!(*got.borrow(), (0..10).collect::<Vec<_>>());
}

#[test]
fn results_of_any_size_are_returned() {
    let mut lp = jumping();
    let pool = Pool::new(2).unwrap();
    let sums = Rc::new(RefCell::new(Vec::new()));
    for size in [1_u8, 2, 3] {
        let log = Rc::clone(&sums);
        let large = [u64::from(size); 64];
        let done = move |_: &mut Loop<Jumping>, result: Result<[u64; 64], WorkError>| {
            log.borrow_mut().push(result.unwrap().iter().sum::<u64>());
        };
        lp.queue_work_on(&pool, WorkKind::Cpu, move || large, done).unwrap();
    }
    let panicked = |_: &mut Loop<Jumping>, result: Result<(), WorkError>| {
        assert!(matches!(result, Err(WorkError::Panicked(_))));
    };
    lp.queue_work_on(&pool, WorkKind::SlowIo, || panic!("on purpose"), panicked).unwrap();
    lp.run(RunMode::Default).unwrap();
    sums.borrow_mut().sort_unstable();
    assert_eq!(*sums.borrow(), [64, 128, 192]);
}

#[test]
fn loops_may_be_dropped_while_work_is_in_flight() {
    let pool = Pool::new(1).unwrap();
    let held = std::sync::Arc::new(());
    for _ in 0..3 {
        let mut lp = jumping();
        for _ in 0..4 {
            let held = std::sync::Arc::clone(&held);
            lp.queue_work_on(&pool, WorkKind::Cpu, move || held, |_, _| unreachable!()).unwrap();
        }
    }
    drop(pool);
    while std::sync::Arc::strong_count(&held) > 1 {
        std::thread::yield_now(); // The last job may still run.
    }
}
