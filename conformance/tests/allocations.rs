//! In a steady state the loop allocates nothing: not for timers, sends, channel messages, phases,
//! polls, work or open files, on every Linux backend.
//!
//! Allocations are counted for the whole process, which runs this test only, including those of the
//! pool's threads and of sending threads.

#![cfg(target_os = "linux")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use poll_core::{Backend, BoxedBackend};
use uv_core::{
    Async, Channel, Check, Command, Exit, Handle, Idle, Loop, Poll, PollEvents, Pool, Prepare,
    Process, RunMode, Timer, WorkKind, fs,
};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls are forwarded to the system's allocator, which upholds the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `realloc`.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Rounds that allocate all memory needed, and rounds that are counted.
const WARM_UP: usize = 200;
const COUNTED: usize = 2_000;
/// How often they are counted: an array that grows when a busy machine lets more timers than ever
/// expire at once does so in few of them.
const TRIES: usize = 5;

/// The most allocations that a child costs, if its program is named by a path and it inherits all
/// variables.
const PER_CHILD: usize = 24;

/// Runs `round` until it is warm, then asserts that it allocates nothing. Returns how often it ran.
#[track_caller]
fn allocates_nothing(what: &str, round: impl FnMut()) -> u64 {
    allocates(what, 0, round)
}

/// As above, for a fixed number of allocations per round.
#[track_caller]
fn allocates(what: &str, each: usize, mut round: impl FnMut()) -> u64 {
    (0..WARM_UP).for_each(|_| round());
    let mut made = Vec::with_capacity(TRIES);
    while made.len() < TRIES {
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        assert_ne!(before, 0, "the counter works");
        (0..COUNTED).for_each(|_| round());
        made.push(ALLOCATIONS.load(Ordering::SeqCst) - before);
        if made.last() == Some(&(each * COUNTED)) {
            return (WARM_UP + made.len() * COUNTED) as u64;
        }
    }
    panic!("{what}: allocations in {COUNTED} rounds, tried {TRIES} times: {made:?}");
}

fn run<B: Backend>(lp: &mut Loop<B>, mode: RunMode) {
    lp.run(mode).unwrap();
}

fn timers<B: Backend>(name: &str, lp: &mut Loop<B>) {
    let fired = Rc::new(Cell::new(0_u64));
    let handles: Vec<_> = (0..64).map(|_| Timer::new(lp)).collect();
    let tick = Duration::from_micros(1);
    allocates_nothing(&format!("{name}: timers that start, stop and fire"), || {
        for (index, timer) in handles.iter().enumerate() {
            let fired = Rc::clone(&fired);
            let fire = move |_: &mut Loop<B>, _| fired.set(fired.get() + 1);
            timer.start(lp, tick * index as u32, tick, fire).unwrap();
            timer.again(lp).unwrap();
            timer.set_repeat(lp, Duration::ZERO).unwrap();
        }
        handles.iter().step_by(3).for_each(|timer| timer.stop(lp).unwrap());
        run(lp, RunMode::Default);
    });
    assert!(fired.get() > 0);
    allocates_nothing(&format!("{name}: timers that are created and closed"), || {
        let timer = Timer::new(lp);
        timer.start(lp, tick, Duration::ZERO, |_, _| {}).unwrap();
        timer.close_with(lp, |_, _| {}).unwrap();
        run(lp, RunMode::Default);
    });
    handles.into_iter().for_each(|timer| timer.close(lp).unwrap());
    run(lp, RunMode::Default);
}

fn phases<B: Backend>(name: &str, lp: &mut Loop<B>) {
    let iterations = Rc::new(Cell::new(0_u64));
    let (idle, prepare, check) = (Idle::new(lp), Prepare::new(lp), Check::new(lp));
    let rounds = allocates_nothing(&format!("{name}: idle, prepare, check, deferred"), || {
        let counts = [(); 4].map(|()| Rc::clone(&iterations));
        let [one, two, three, four] =
            counts.map(|iterations| move || iterations.set(iterations.get() + 1));
        idle.start(lp, move |_, _| one()).unwrap();
        prepare.start(lp, move |_, _| two()).unwrap();
        check.start(lp, move |_, _| three()).unwrap();
        lp.defer(move |_| four());
        run(lp, RunMode::NoWait);
        run(lp, RunMode::Once);
        idle.stop(lp).unwrap();
        prepare.stop(lp).unwrap();
        check.stop(lp).unwrap();
    });
    assert_eq!(iterations.get(), 7 * rounds);
    idle.close(lp).unwrap();
    prepare.close(lp).unwrap();
    check.close(lp).unwrap();
    run(lp, RunMode::Default);
}

fn sends<B: Backend>(name: &str, lp: &mut Loop<B>) {
    let called = Rc::new(Cell::new(0_u64));
    let (counts, values) = (Rc::clone(&called), Rc::clone(&called));
    let (handle, sender) = Async::new(lp, move |_: &mut Loop<B>, _| counts.set(counts.get() + 1));
    let sends = allocates_nothing(&format!("{name}: sends"), || {
        sender.send().unwrap();
        sender.clone().send().unwrap();
        run(lp, RunMode::Once);
    });
    let (channel, sender) = Channel::new(lp, move |_: &mut Loop<B>, _, value: u64| {
        values.set(values.get() + value);
    });
    let messages = 100
        * allocates_nothing(&format!("{name}: channel messages"), || {
            (0..100).for_each(|_| sender.send(1).unwrap());
            run(lp, RunMode::Once);
        });
    assert_eq!(called.get(), sends + messages);
    handle.close(lp).unwrap();
    channel.handle().close(lp).unwrap();
    run(lp, RunMode::Default);
}

fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let far = listener.accept()?.0;
    far.set_nodelay(true)?;
    Ok((near, far))
}

fn polls<B: Backend>(name: &str, lp: &mut Loop<B>) {
    let (near, mut far) = pair().unwrap();
    let near = Rc::new(near);
    let poll = Poll::new(lp, Rc::clone(&near)).unwrap();
    allocates_nothing(&format!("{name}: polls"), || {
        let socket = Rc::clone(&near);
        let read = move |lp: &mut Loop<B>, poll: Poll, _| {
            // Spurious readiness is allowed.
            if (&*socket).read(&mut [0; 8]).is_ok() {
                poll.stop(lp).unwrap();
            }
        };
        poll.start(lp, PollEvents::WRITABLE, |_, _, _| {}).unwrap();
        run(lp, RunMode::Once);
        poll.start(lp, PollEvents::READABLE, read).unwrap();
        far.write_all(b"x").unwrap();
        run(lp, RunMode::Default);
    });
    poll.close(lp).unwrap();
    run(lp, RunMode::Default);
}

/// A thread allocates when it starts, which may be late on a busy machine: wait until each has run
/// a job.
fn every_thread_runs<B: Backend>(lp: &mut Loop<B>, pool: &Pool) {
    let all = Arc::new(Barrier::new(pool.threads()));
    for _ in 0..pool.threads() {
        let all = Arc::clone(&all);
        let wait = move || {
            all.wait();
        };
        lp.queue_work_on(pool, WorkKind::Cpu, wait, |_, _| {}).unwrap();
    }
    run(lp, RunMode::Default);
}

fn work<B: Backend>(name: &str, lp: &mut Loop<B>) {
    let pool = Pool::new(2).unwrap();
    every_thread_runs(lp, &pool);
    let done = Rc::new(Cell::new(0_u64));
    let rounds = allocates_nothing(&format!("{name}: work"), || {
        for lane in [WorkKind::Cpu, WorkKind::SlowIo] {
            let counts = Rc::clone(&done);
            let called = move |_: &mut Loop<B>, result: Result<u64, _>| {
                counts.set(counts.get() + result.unwrap());
            };
            lp.queue_work_on(&pool, lane, || 1, called).unwrap();
        }
        run(lp, RunMode::Default);
    });
    assert_eq!(done.get(), 2 * rounds);
}

/// The slot of a result, allocated once.
type Slot<T> = Rc<Cell<Option<T>>>;

/// Runs a file operation, on a pool if there is one, and returns its result.
fn ask<B: Backend, A: fs::Action>(
    lp: &mut Loop<B>,
    pool: Option<&Pool>,
    slot: &Slot<A::Output>,
    operation: fs::Operation<A>,
) -> A::Output {
    let answer = Rc::clone(slot);
    let done = move |_: &mut Loop<B>, output| answer.set(Some(output));
    let started = match pool {
        Some(pool) => operation.start_on(lp, pool, done),
        None => operation.start(lp, done),
    };
    started.unwrap();
    run(lp, RunMode::Default);
    slot.take().unwrap()
}

fn files<B: Backend>(name: &str, lp: &mut Loop<B>) {
    let path = std::env::temp_dir().join(format!("allocations-{}", std::process::id()));
    let options = fs::OpenOptions::new().read(true).write(true).create(true);
    let file = fs::open(&path, options).perform().unwrap();
    let threads = Pool::new(2).unwrap();
    every_thread_runs(lp, &threads);
    every_thread_runs(lp, &Pool::global().unwrap());
    for (by, pool) in [("by itself", None), ("by a pool", Some(&threads))] {
        let (moved, found, closed) = (Slot::default(), Slot::default(), Slot::default());
        let mut memory = vec![7; 4096];
        allocates_nothing(&format!("{name}, {by}: reads and writes of a file"), || {
            for offset in [0, 4096] {
                let write = fs::write_at(&file, std::mem::take(&mut memory), offset);
                let (count, back) = ask(lp, pool, &moved, write);
                assert_eq!(count.unwrap(), 4096);
                let read = fs::read_at(&file, back, offset);
                let (count, back) = ask(lp, pool, &moved, read);
                assert_eq!((count.unwrap(), back[4095]), (4096, 7));
                // At the file position, which reaches the end.
                let (count, back) = ask(lp, pool, &moved, fs::read(&file, back));
                assert!(count.unwrap() <= 4096);
                memory = back;
            }
        });
        allocates_nothing(&format!("{name}, {by}: queries about a file"), || {
            assert_eq!(ask(lp, pool, &found, fs::fstat(&file)).unwrap().size, 8192);
            ask(lp, pool, &closed, fs::ftruncate(&file, 8192)).unwrap();
            ask(lp, pool, &closed, fs::fdatasync(&file)).unwrap();
        });
        allocates(&format!("{name}, {by}: a path is copied, and nothing else"), 1, || {
            assert_eq!(ask(lp, pool, &found, fs::stat(&path)).unwrap().size, 8192);
        });
    }
    fs::unlink(&path).perform().unwrap();
}

/// A child needs lists, such as its arguments. Each child costs the same.
fn children<B: Backend>(name: &str, lp: &mut Loop<B>) {
    let command = Command::new("/bin/sh").args(["-c", ":"]);
    let mut spawn = |count: usize| {
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        for _ in 0..count {
            let ended = |lp: &mut Loop<B>, process: Process, exit: io::Result<Exit>| {
                assert!(exit.unwrap().success());
                process.close(lp).unwrap();
            };
            Process::spawn(lp, &command, ended).unwrap();
            run(lp, RunMode::Default);
        }
        ALLOCATIONS.load(Ordering::SeqCst) - before
    };
    spawn(10);
    let (once, twice) = (spawn(20), spawn(20));
    assert_eq!(once, twice, "{name}: allocations of 20 children");
    assert!(once <= 20 * PER_CHILD, "{name}: {once} allocations of 20 children");
}

fn steady<B: Backend>(name: &str, backend: io::Result<B>) {
    let backend = match backend {
        Ok(backend) => backend,
        Err(error) if error.kind() == io::ErrorKind::Unsupported => {
            eprintln!("skip {name}: {error}");
            return;
        }
        Err(error) => panic!("{name}: {error}"),
    };
    let mut lp = Loop::new(backend);
    timers(name, &mut lp);
    phases(name, &mut lp);
    sends(name, &mut lp);
    polls(name, &mut lp);
    work(name, &mut lp);
    files(name, &mut lp);
    children(name, &mut lp);
    assert!(lp.close().is_ok(), "{name}: nothing is open");
}

#[test]
fn a_steady_state_allocates_nothing() {
    steady("select", poll_select::Select::new());
    steady("poll", poll_poll::Poll::new());
    steady("epoll", poll_epoll::Epoll::new());
    steady("uring", poll_uring::Uring::new());
    steady("boxed uring", poll_uring::Uring::new().map(BoxedBackend::new));
}
