//! A callback that exchanges its loop for another one, also if it then panics, loses nothing.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc;

use uv_core::{Async, Handle, Loop, Pool, RunMode, Stream, Tcp, WorkKind};

fn new_loop() -> Loop {
    Loop::with_default_backend().expect("a loop")
}

fn run_until_panic(lp: &mut Loop) {
    let ran = catch_unwind(AssertUnwindSafe(|| lp.run(RunMode::Default)));
    assert!(ran.is_err(), "the panic comes out of run");
}

#[test]
fn work_that_has_ended_is_reported_by_the_first_loop() {
    let (mut lp, other) = (new_loop(), Rc::new(RefCell::new(new_loop())));
    let (pool, reported) = (Pool::new(1).expect("a pool"), Rc::new(Cell::new(0)));
    for _ in 0..2 {
        let (other, count) = (Rc::clone(&other), Rc::clone(&reported));
        let done = move |lp: &mut Loop, _| {
            count.set(count.get() + 1);
            if count.get() == 1 {
                std::mem::swap(lp, &mut *other.borrow_mut());
                panic!("after the exchange");
            }
        };
        lp.queue_work_on(&pool, WorkKind::Cpu, || (), done).expect("work");
    }
    // The only thread begins with this when both have ended, and has it while the loops run.
    let ((begun, begins), (go_on, goes_on)) = (mpsc::channel(), mpsc::channel::<()>());
    let busy = move || begun.send(()).map(|()| goes_on.recv());
    lp.queue_work_on(&pool, WorkKind::Cpu, busy, |_, _| {}).expect("work");
    begins.recv().expect("the work begins");
    run_until_panic(&mut lp);
    assert!(!lp.run(RunMode::NoWait).expect("the other loop has nothing to do"));
    other.borrow_mut().run(RunMode::NoWait).expect("the first loop");
    assert_eq!(reported.get(), 2);
    drop(go_on);
}

#[test]
fn an_async_that_is_due_is_called_by_the_first_loop() {
    let (mut lp, other) = (new_loop(), Rc::new(RefCell::new(new_loop())));
    let (called, spare) = (Rc::new(Cell::new(false)), Rc::clone(&other));
    let (_, first) = Async::new(&mut lp, move |lp, _| {
        std::mem::swap(lp, &mut *spare.borrow_mut());
        panic!("after the exchange");
    });
    let noted = Rc::clone(&called);
    let (_, second) = Async::new(&mut lp, move |lp, handle| {
        noted.set(true);
        handle.close(lp).expect("an open handle");
    });
    first.send().expect("an open handle");
    second.send().expect("an open handle");
    run_until_panic(&mut lp);
    other.borrow_mut().run(RunMode::NoWait).expect("the first loop");
    assert!(called.get());
}

#[test]
fn writes_that_are_complete_are_reported_by_the_first_loop() {
    let (mut lp, other) = (new_loop(), Rc::new(RefCell::new(new_loop())));
    let (stream, _peer) = Tcp::pair(&mut lp).expect("a pair");
    let reported = Rc::new(Cell::new(0));
    for _ in 0..2 {
        let (other, count) = (Rc::clone(&other), Rc::clone(&reported));
        let write = stream.write(&mut lp, "x", move |lp, _, result, _| {
            result.expect("room for a byte");
            count.set(count.get() + 1);
            if count.get() == 1 {
                std::mem::swap(lp, &mut *other.borrow_mut());
            }
        });
        write.expect("a connected stream");
    }
    assert!(!lp.run(RunMode::NoWait).expect("the other loop has nothing to do"));
    assert_eq!(reported.get(), 1);
    other.borrow_mut().run(RunMode::NoWait).expect("the first loop");
    assert_eq!(reported.get(), 2);
}
