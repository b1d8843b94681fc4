//! Point 24: callbacks that panic.
//!
//! In every case another callback is pending beside the one that panics: it runs when the loop runs
//! again. The panics print no message on standard error.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use uv_core::{
    Async, AsyncSender, Channel, Check, Handle, Idle, Listener, Poll, PollEvents, Pool, Prepare,
    RunMode, Stream, Tcp, TcpBindFlags, Timer, WorkKind,
};

use crate::support::loops::{
    ZERO, new_loop, panic_on_purpose, run, run_to_the_end, spend, unwinds,
};
use crate::support::sources::{arrived, send, tcp_pair};
use crate::support::trace::Trace;
use crate::{Lab, Loop, Verdict};

const MS: Duration = Duration::from_millis(1);

/// A value captured by a callback, to observe its drop.
type Held = Rc<()>;

/// Panics, and drops the argument by unwinding.
fn panic(_held: &Held) -> ! {
    panic_on_purpose()
}

/// A callback that panics, with a captured value.
fn panics<H: Handle>(held: &Held) -> impl FnMut(&mut Loop, H) + use<H> + 'static {
    let held = Rc::clone(held);
    move |_, _| panic(&held)
}

/// Asserts that the captured value is dropped.
#[track_caller]
fn dropped(held: &Held) {
    assert_eq!(Rc::strong_count(held), 1, "the captures of the callback are dropped");
}

/// An async that logs its name once, and closes itself.
fn noting_once(lp: &mut Loop, trace: &Trace, name: &'static str) -> AsyncSender {
    let close = |lp: &mut Loop, handle: Async| handle.close(lp).expect("an open handle");
    Async::new(lp, trace.then(name, close)).1
}

/// The timer is stopped. Other due timers fire in the next run.
pub fn in_a_timer(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (trace, held) = (Trace::default(), Held::default());
    let [before, bad, after] = [(); 3].map(|()| Timer::new(&mut lp));
    before.start(&mut lp, MS, ZERO, trace.noting("before")).expect("a timer");
    bad.start(&mut lp, MS, MS, panics(&held)).expect("a timer");
    after.start(&mut lp, MS, ZERO, trace.noting("after")).expect("a timer");
    spend(&lp, 2 * MS);
    unwinds(&mut lp, RunMode::Default);
    trace.expect(&["before"], "until the panic");
    assert!(!bad.is_active(&lp) && after.is_active(&lp), "stopped, and due");
    dropped(&held);
    has_no_callback(&mut lp, bad);
    assert_eq!(lp.backend_timeout(), Some(ZERO), "the rest is pending");
    run_to_the_end(&mut lp);
    trace.expect(&["after"], "after the panic");
    bad.start(&mut lp, MS, ZERO, trace.noting("restarted"))
        .expect("a stopped timer may be restarted");
    run_to_the_end(&mut lp);
    trace.expect(&["restarted"], "with a new callback");
    let captures_nothing = |_: &mut Loop, _| panic(&Held::default());
    bad.start(&mut lp, MS, ZERO, captures_nothing).expect("a timer");
    unwinds(&mut lp, RunMode::Default);
    has_no_callback(&mut lp, bad);
    bad.set_repeat(&mut lp, MS).expect("a timer");
    has_no_callback(&mut lp, bad);
    run_to_the_end(&mut lp);
    Ok(())
}

/// Asserts that the timer has lost its callback.
#[track_caller]
fn has_no_callback(lp: &mut Loop, timer: Timer) {
    let again = timer.again(lp).map_err(|error| error.kind());
    assert_eq!(again, Err(ErrorKind::InvalidInput), "the timer has no callback");
}

macro_rules! watcher_cases {
    ($($(#[$doc:meta])* $name:ident $kind:ident;)*) => { $(
        $(#[$doc])*
        pub fn $name(lab: &Lab) -> Verdict {
            let mut lp = new_loop(lab)?;
            let (trace, held) = (Trace::default(), Held::default());
            let [after, bad, before] = [(); 3].map(|()| $kind::new(&mut lp));
            after.start(&mut lp, trace.noting("after")).expect("a watcher");
            bad.start(&mut lp, panics(&held)).expect("a watcher");
            before.start(&mut lp, trace.noting("before")).expect("a watcher");
            unwinds(&mut lp, RunMode::NoWait);
            trace.expect(&["before"], "until the panic");
            assert!(!bad.is_active(&lp), "stopped");
            dropped(&held);
            run(&mut lp, RunMode::NoWait);
            trace.expect(&["after", "before"], "the rest of the round comes first");
            bad.start(&mut lp, trace.noting("restarted")).expect("a watcher");
            run(&mut lp, RunMode::NoWait);
            let mut seen = trace.take();
            seen.sort_unstable();
            assert_eq!(seen, ["after", "before", "restarted"], "all three");
            Ok(())
        }
    )* };
}

watcher_cases! {
    /// An idle watcher is stopped; the rest of the phase runs in the next run.
    in_an_idle Idle;
    /// A prepare watcher is stopped; the rest of the phase runs in the next run.
    in_a_prepare Prepare;
    /// A check watcher is stopped; the rest of the phase runs in the next run.
    in_a_check Check;
}

/// The async is stopped, and its senders get errors. Other pending asyncs are called in the next
/// run.
pub fn in_an_async(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (trace, held) = (Trace::default(), Held::default());
    let before = noting_once(&mut lp, &trace, "before");
    let (bad, to_bad) = Async::new(&mut lp, panics(&held));
    let after = noting_once(&mut lp, &trace, "after");
    for sender in [&before, &to_bad, &after] {
        sender.send().expect("an open handle");
    }
    unwinds(&mut lp, RunMode::Default);
    trace.expect(&["before"], "until the panic");
    dropped(&held);
    assert!(!bad.is_active(&lp), "it has no callback");
    assert_eq!(to_bad.send().map_err(|it| it.kind()), Err(ErrorKind::BrokenPipe));
    run_to_the_end(&mut lp);
    trace.expect(&["after"], "without another send");
    bad.close(&mut lp).expect("it can be closed");
    run_to_the_end(&mut lp);
    assert!(lp.close().is_ok(), "no handle is open");
    Ok(())
}

/// A channel stops like an async. Its undelivered values are dropped.
pub fn in_a_channel(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (held, value) = (Held::default(), Arc::new(()));
    let kept = Rc::clone(&held);
    let (bad, sender) = Channel::new(&mut lp, move |_: &mut Loop, _, _: Arc<()>| panic(&kept));
    (0..5).for_each(|_| sender.send(Arc::clone(&value)).expect("an open channel"));
    unwinds(&mut lp, RunMode::Default);
    dropped(&held);
    assert_eq!(Arc::strong_count(&value), 1, "all five values are dropped");
    assert!(sender.send(Arc::clone(&value)).is_err(), "the channel is stopped");
    assert!(!bad.handle().is_active(&lp), "it has no callback");
    run_to_the_end(&mut lp);
    Ok(())
}

/// The poll is stopped. The other sources of the batch are delivered in the next run.
pub fn in_a_poll(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let pairs: [_; 3] = std::array::from_fn(|_| tcp_pair());
    for (near, far) in &pairs {
        send(far, b"x");
        arrived(near);
    }
    let (trace, held) = (Trace::default(), Held::default());
    let mut polls = Vec::new();
    for (near, _) in &pairs {
        let poll = Poll::new(&mut lp, near.try_clone().expect("a clone")).expect("a poll");
        let (noted, held) = (trace.clone(), Rc::clone(&held));
        // The backend chooses the order: the first callback panics.
        let callback = move |lp: &mut Loop, poll: Poll, _| {
            noted.note("called");
            if Rc::strong_count(&held) == 4 {
                panic(&held);
            }
            poll.close(lp).expect("an open poll");
        };
        poll.start(&mut lp, PollEvents::READABLE, callback).expect("a started poll");
        polls.push(poll);
    }
    unwinds(&mut lp, RunMode::Default);
    trace.expect(&["called"], "the first");
    assert_eq!(Rc::strong_count(&held), 3, "its captures are dropped");
    let active = polls.iter().filter(|poll| poll.is_active(&lp)).count();
    assert_eq!(active, 2, "one is stopped");
    run_to_the_end(&mut lp);
    trace.expect(&["called", "called"], "the other two");
    dropped(&held);
    Ok(())
}

/// A panic in a work callback propagates out of `run`. Other completed work calls back in the next
/// run.
pub fn in_a_work_callback(lab: &Lab) -> Verdict {
    let (mut lp, pool) = (new_loop(lab)?, Pool::new(1).expect("a pool"));
    let (trace, held) = (Trace::default(), Held::default());
    let names = ["one", "bad", "three", "four"];
    for name in names {
        let (noted, held) = (trace.clone(), Rc::clone(&held));
        let done = move |_: &mut Loop, result: Result<(), _>| {
            result.expect("a result");
            noted.note(name);
            if name == "bad" {
                panic(&held);
            }
        };
        lp.queue_work_on(&pool, WorkKind::Cpu, || {}, done).expect("queued work");
    }
    while pool.queued() + pool.active() > 0 {
        thread::yield_now();
    }
    unwinds(&mut lp, RunMode::Default);
    trace.expect(&["one", "bad"], "until the panic");
    assert!(lp.is_alive(), "two are pending");
    run_to_the_end(&mut lp);
    trace.expect(&["three", "four"], "after the panic");
    dropped(&held);
    Ok(())
}

/// A handle whose close callback panics is closed. The other close callbacks of the phase run in
/// the next run, which does not block first.
pub fn in_a_close_callback(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (trace, held) = (Trace::default(), Held::default());
    // Keeps the loop alive, which would block forever if it lost the rest of the phase.
    let (_, _sender) = Async::new(&mut lp, |_: &mut Loop, _| {});
    let [after, bad, before] = [(); 3].map(|()| Timer::new(&mut lp));
    after.close_with(&mut lp, trace.noting("after")).expect("an open handle");
    bad.close_with(&mut lp, panics(&held)).expect("an open handle");
    before.close_with(&mut lp, trace.noting("before")).expect("an open handle");
    unwinds(&mut lp, RunMode::NoWait);
    trace.expect(&["before"], "until the panic");
    dropped(&held);
    assert!(bad.stop(&mut lp).is_err(), "its key is stale");
    assert_eq!(lp.backend_timeout(), Some(ZERO), "the rest is pending");
    run(&mut lp, RunMode::Once);
    trace.expect(&["after"], "after the panic");
    Ok(())
}

/// A handle is closed although what notices that panics, and its close callback runs in the next run.
pub fn in_what_notices_a_close(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (trace, held) = (Trace::default(), Held::default());
    let (_, _sender) = Async::new(&mut lp, |_: &mut Loop, _| {});
    let [after, bad, before] = [(); 3].map(|()| Timer::new(&mut lp));
    after.close_with(&mut lp, trace.noting("after")).expect("an open handle");
    bad.on_close(&mut lp, panics(&held)).expect("an open handle");
    bad.close(&mut lp).expect("an open handle");
    before.close_with(&mut lp, trace.noting("before")).expect("an open handle");
    unwinds(&mut lp, RunMode::NoWait);
    trace.expect(&["before"], "until the panic");
    dropped(&held);
    assert!(bad.stop(&mut lp).is_err(), "its key is stale");
    assert_eq!(lp.backend_timeout(), Some(ZERO), "the rest is pending");
    run(&mut lp, RunMode::Once);
    trace.expect(&["after"], "after the panic");

    let bad = Timer::new(&mut lp);
    bad.on_close(&mut lp, panics(&held)).expect("an open handle");
    bad.close_with(&mut lp, trace.noting("closed")).expect("an open handle");
    unwinds(&mut lp, RunMode::NoWait);
    trace.expect(&[], "until the panic");
    dropped(&held);
    run(&mut lp, RunMode::Once);
    trace.expect(&["closed"], "after the panic");
    assert!(bad.stop(&mut lp).is_err(), "its key is stale");
    Ok(())
}

/// A deferred callback that panics is dropped. Other deferred callbacks run.
pub fn in_a_deferred_callback(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (trace, held) = (Trace::default(), Held::default());
    let kept = Rc::clone(&held);
    lp.defer(trace.once("before"));
    lp.defer(move |_| panic(&kept));
    lp.defer(trace.once("after"));
    unwinds(&mut lp, RunMode::Default);
    trace.expect(&["before"], "until the panic");
    dropped(&held);
    assert!(lp.is_alive(), "one is left");
    run_to_the_end(&mut lp);
    trace.expect(&["after"], "after the panic");
    Ok(())
}

/// Completed work and a send in the batch of the panicking callback are not lost: their wake was
/// consumed, and the next run delivers them without blocking.
pub fn keep_the_rest_of_a_batch(lab: &Lab) -> Verdict {
    let (mut lp, pool) = (new_loop(lab)?, Pool::new(1).expect("a pool"));
    let (near, far) = tcp_pair();
    send(&far, b"x");
    arrived(&near);
    let (trace, held) = (Trace::default(), Held::default());
    let (poll, kept) = (Poll::new(&mut lp, near).expect("a poll"), Rc::clone(&held));
    let bad = move |_: &mut Loop, _, _| panic(&kept);
    poll.start(&mut lp, PollEvents::READABLE, bad).expect("a started poll");
    let sender = noting_once(&mut lp, &trace, "async");
    sender.send().expect("an open handle");
    let (noted, kept) = (trace.clone(), Rc::clone(&held));
    let done = move |_: &mut Loop, _| {
        noted.note("work");
        panic(&kept);
    };
    lp.queue_work_on(&pool, WorkKind::Cpu, || {}, done).expect("queued work");
    let noted = trace.clone();
    let done = move |_: &mut Loop, _| noted.note("more work");
    lp.queue_work_on(&pool, WorkKind::Cpu, || {}, done).expect("queued work");
    while pool.queued() + pool.active() > 0 {
        thread::yield_now();
    }
    unwinds(&mut lp, RunMode::Default);
    trace.expect(&[], "the poll came first");
    unwinds(&mut lp, RunMode::Default);
    trace.expect(&["async", "work"], "the second panics too");
    dropped(&held);
    run_to_the_end(&mut lp);
    trace.expect(&["more work"], "it has completed before");
    Ok(())
}

/// A loop can be dropped after a panic in any phase, together with all its captures.
pub fn leave_a_droppable_loop(lab: &Lab) -> Verdict {
    let held = Held::default();
    let mut lp = new_loop(lab)?;
    let keep = |_: &Loop| {
        let kept = Rc::clone(&held);
        move || drop(Rc::clone(&kept))
    };
    for _ in 0..3 {
        let callback = keep(&lp);
        Timer::new(&mut lp).start(&mut lp, ZERO, ZERO, move |_, _| callback()).expect("a timer");
        let callback = keep(&lp);
        Idle::new(&mut lp).start(&mut lp, move |_, _| callback()).expect("an idle");
        let callback = keep(&lp);
        let (_, sender) = Async::new(&mut lp, move |_: &mut Loop, _| callback());
        sender.send().expect("an open handle");
        let callback = keep(&lp);
        lp.queue_work(|| {}, move |_, _| callback()).expect("queued work");
        let callback = keep(&lp);
        lp.defer(move |_| callback());
        let callback = keep(&lp);
        let closed = Check::new(&mut lp);
        closed.close_with(&mut lp, move |_, _| callback()).expect("an open handle");
    }
    let bad = Prepare::new(&mut lp);
    bad.start(&mut lp, panics(&held)).expect("a prepare");
    unwinds(&mut lp, RunMode::Default);
    lp.defer(|_| panic_on_purpose());
    unwinds(&mut lp, RunMode::NoWait);
    drop(lp);
    dropped(&held);
    Ok(())
}

/// A captured value whose destructor panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic_on_purpose()
    }
}

/// Makes a callback capture it.
fn hold(_bomb: &Bomb) {}

/// A refused connect calls back, and so does the close, although the read callback dropped before
/// them panics in a destructor.
pub fn in_a_destructor_lose_no_connect(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let refusing = listener.local_addr().expect("an address");
    drop(listener);
    let (trace, tcp, bomb) = (Trace::default(), Tcp::new(&mut lp), Bomb);
    let connected = trace.clone();
    tcp.connect(&mut lp, refusing, move |lp, tcp, result| {
        assert!(result.is_err(), "the port is free");
        connected.note("connected");
        tcp.close_with(lp, connected.noting("closed")).expect("an open handle");
    })
    .expect("a connect");
    tcp.read_start(&mut lp, move |_, _, _| hold(&bomb)).expect("a stream that connects");
    run_to_the_end(&mut lp);
    trace.expect(&["connected", "closed"], "both callbacks");
    assert!(lp.close().is_ok(), "no handle is open");
    Ok(())
}

/// A timer fires although its old callback panics in a destructor when a new one replaces it.
pub fn in_a_destructor_leave_timers_scheduled(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (trace, timer) = (Trace::default(), Timer::new(&mut lp));
    let start_with_bomb = |lp: &mut Loop| {
        let bomb = Bomb;
        timer.start(lp, Duration::MAX, ZERO, move |_, _| hold(&bomb)).expect("a timer");
    };
    start_with_bomb(&mut lp);
    timer.stop(&mut lp).expect("a timer");
    timer.start(&mut lp, MS, ZERO, trace.noting("own")).expect("a timer");
    run_to_the_end(&mut lp);
    trace.expect(&["own"], "a callback that captures");
    start_with_bomb(&mut lp);
    // Shared with other timers, as it captures nothing.
    timer.start(&mut lp, MS, ZERO, |lp, timer| timer.close(lp).unwrap()).expect("a timer");
    run_to_the_end(&mut lp);
    assert!(lp.close().is_ok(), "the timer fired and closed itself");
    Ok(())
}

/// Results and closures that panic when a worker or the loop drops them end no thread.
pub fn in_a_destructor_end_no_pool_thread(lab: &Lab) -> Verdict {
    let pool = Pool::new(1).expect("a pool");
    for _ in 0..2 {
        let mut lp = new_loop(lab)?;
        let (begin, begun) = mpsc::channel();
        let (open, opened) = mpsc::channel::<()>();
        let work = move || {
            begin.send(()).expect("a case that waits");
            opened.recv().expect("a case that opens");
            Bomb
        };
        lp.queue_work_on(&pool, WorkKind::Cpu, work, |_, _| {}).expect("queued work");
        let bomb = Bomb;
        let queued = move || hold(&bomb);
        let queued =
            lp.queue_work_on(&pool, WorkKind::Cpu, queued, |_, _| {}).expect("queued work");
        begun.recv().expect("work that has begun");
        queued.cancel(&mut lp).expect("the only thread is busy");
        drop(lp);
        // The loop is dropped: the worker drops the result.
        open.send(()).expect("work that waits");
    }
    let mut lp = new_loop(lab)?;
    let trace = Trace::default();
    let noted = trace.clone();
    let done = move |_: &mut Loop, result: Result<u32, _>| {
        assert_eq!(result.expect("not cancelled"), 42);
        noted.note("done");
    };
    lp.queue_work_on(&pool, WorkKind::Cpu, || 42, done).expect("queued work");
    run_to_the_end(&mut lp);
    trace.expect(&["done"], "the only thread lives");
    Ok(())
}

/// Callbacks of every kind may panic in destructors when they are replaced, stopped, closed or
/// dropped with their loop.
pub fn in_a_destructor_leave_every_handle_closable(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    start_with_bombs(&mut lp);
    for handle in lp.walk() {
        let bomb = Bomb;
        // The handle is closing, so the second call drops the callback.
        handle.close(&mut lp).expect("an open handle");
        handle.close_with(&mut lp, move |_, _| hold(&bomb)).expect_err("a closing handle");
    }
    run_to_the_end(&mut lp);
    assert!(lp.close().is_ok(), "every handle is closed");
    let mut lp = new_loop(lab)?;
    start_with_bombs(&mut lp);
    run(&mut lp, RunMode::NoWait);
    drop(lp);
    Ok(())
}

/// A call that is refused drops its callback and its buffer, whose destructors may panic: the loop
/// is as before, and requests that were accepted call back.
pub fn in_a_destructor_of_a_refused_callback_change_nothing(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let (one, _other) = Tcp::pair(&mut lp).expect("a pair");
    let (unconnected, listener) = (Tcp::new(&mut lp), Tcp::new(&mut lp));
    let address = "127.0.0.1:0".parse().expect("an address");
    listener.bind(&mut lp, address, TcpBindFlags::empty()).expect("a free port");
    let noted = trace.clone();
    one.read(&mut lp, vec![0; 1], move |_, _, _, _| noted.note("read")).expect("a connection");
    let mut refused = |call: &mut dyn FnMut(&mut Loop, Bomb) -> bool| {
        // The panic of a destructor may come out of the call, or not.
        let call = AssertUnwindSafe(|| call(&mut lp, Bomb));
        assert!(!catch_unwind(call).unwrap_or(false), "the call is refused");
    };
    refused(&mut |lp, bomb| one.read_start(lp, move |_, _, _| hold(&bomb)).is_ok());
    refused(&mut |lp, bomb| one.read(lp, Vec::<u8>::new(), move |_, _, _, _| hold(&bomb)).is_ok());
    refused(&mut |lp, bomb| one.write(lp, NO_BUFFERS, move |_, _, _, _| hold(&bomb)).is_ok());
    refused(&mut |lp, bomb| one.accept_with(lp, move |_, _, _| hold(&bomb)).is_ok());
    refused(&mut |lp, bomb| unconnected.write(lp, "", move |_, _, _, _| hold(&bomb)).is_ok());
    refused(&mut |lp, bomb| unconnected.read_start(lp, move |_, _, _| hold(&bomb)).is_ok());
    refused(&mut |lp, bomb| unconnected.shutdown(lp, move |_, _, _| hold(&bomb)).is_ok());
    refused(&mut |lp, bomb| listener.accept_with(lp, move |_, _, _| hold(&bomb)).is_ok());
    refused(&mut |lp, bomb| one.connect(lp, address, move |_, _, _| hold(&bomb)).is_ok());
    one.close(&mut lp).expect("an open handle");
    refused_when_closing(&mut lp, one);
    lp.walk().into_iter().for_each(|handle| drop(handle.close(&mut lp)));
    run_to_the_end(&mut lp);
    trace.expect(&["read"], "the accepted request");
    assert!(lp.close().is_ok(), "every handle is closed");
    Ok(())
}

const NO_BUFFERS: Vec<&str> = Vec::new();

fn refused_when_closing(lp: &mut Loop, tcp: Tcp) {
    let bomb = Bomb;
    let refused =
        catch_unwind(AssertUnwindSafe(|| tcp.listen(lp, 1, move |_, _, _| hold(&bomb)).is_err()));
    assert!(refused.unwrap_or(true), "it is closing");
}

/// Starts handles of many kinds, some of them twice, with callbacks and buffers that panic when
/// dropped.
fn start_with_bombs(lp: &mut Loop) {
    let (near, _far) = tcp_pair();
    let poll = Poll::new(lp, near).expect("a poll");
    let (one, other) = Tcp::pair(lp).expect("a pair");
    let [idle, never] = [Timer::new(lp), Timer::new(lp)];
    let (prepare, check) = (Prepare::new(lp), Check::new(lp));
    let listener = Tcp::new(lp);
    listener
        .bind(lp, "127.0.0.1:0".parse().expect("an address"), TcpBindFlags::empty())
        .expect("a free port");
    for _ in 0..2 {
        let bomb = Bomb;
        idle.start(lp, MS, MS, move |_, _| hold(&bomb)).expect("a timer");
        let bomb = Bomb;
        never.start(lp, Duration::MAX, ZERO, move |_, _| hold(&bomb)).expect("a timer");
        let bomb = Bomb;
        poll.start(lp, PollEvents::READABLE, move |_, _, _| hold(&bomb)).expect("a poll");
        let bomb = Bomb;
        // The peer does not read: these bytes wait until the stream is closed.
        let write = other.write(lp, vec![0; 8 << 20], move |_, _, _, _| std::mem::forget(bomb));
        write.expect("a write");
        let bomb = Bomb;
        Async::new(lp, move |_: &mut Loop, _| hold(&bomb));
        let (_, sender) = Channel::new(lp, |_: &mut Loop, _, bomb: Bomb| std::mem::forget(bomb));
        assert!(sender.send(Bomb).is_ok(), "an open channel");
    }
    let bomb = Bomb;
    prepare.start(lp, move |_, _| hold(&bomb)).expect("a prepare");
    let bomb = Bomb;
    check.start(lp, move |_, _| hold(&bomb)).expect("a check");
    let bomb = Bomb;
    listener.listen(lp, 1, move |_, _, _| hold(&bomb)).expect("a bound handle listens");
    let bomb = Bomb;
    one.read_start(lp, move |_, _, _| hold(&bomb)).expect("a connection is read");
}

/// The signal handle is stopped. The other handles of the signal, and later signals, are handled in
/// the next run.
#[cfg(unix)]
pub fn in_a_signal(lab: &Lab) -> Verdict {
    use crate::support::dispositions::{Changed, Disposition, raise};
    use uv_core::Signal;

    const SIGNUM: i32 = libc::SIGUSR1;
    let _ignored = Changed::to(SIGNUM, Disposition::Ignored);
    let mut lp = new_loop(lab)?;
    let (trace, held) = (Trace::default(), Held::default());
    let [before, bad, after] = [(); 3].map(|()| Signal::new(&mut lp));
    let noting = |name: &'static str| {
        let noted = trace.clone();
        move |_: &mut Loop, _: Signal, _: i32| noted.note(name)
    };
    let kept = Rc::clone(&held);
    before.start(&mut lp, SIGNUM, noting("before")).expect("a signal");
    bad.start(&mut lp, SIGNUM, move |_, _, _| panic(&kept)).expect("a signal");
    after.start_oneshot(&mut lp, SIGNUM, noting("after")).expect("a signal");
    raise(SIGNUM);
    raise(SIGNUM);
    unwinds(&mut lp, RunMode::Once);
    trace.expect(&["before"], "until the panic");
    assert!(!bad.is_active(&lp), "stopped");
    dropped(&held);
    run(&mut lp, RunMode::Once);
    trace.expect(&["after", "before"], "the rest of the first signal, and the second");
    drop(lp);
    assert_eq!(Disposition::of(SIGNUM), Disposition::Ignored, "as before");
    Ok(())
}

/// The signal handle is stopped. The other handles of the signal, and later signals, are handled in
/// the next run.
#[cfg(not(unix))]
pub fn in_a_signal(_lab: &Lab) -> Verdict {
    let why = "Windows sends console events to every process of the console";
    Err(crate::Skip::because(why))
}
