//! Runs one program on one backend and checks what it did.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use poll_core::{Backend, BoxedBackend, Event, Interest, Mode, RawSource, Token, Wake};
use uv_core::{Handle, RunMode, Timer};

use super::clock::VirtualClock;
use super::exec::{drain, exec};
use super::objects::{self, Extra, Item};
use super::program::{Kind, Program, Verb};
use super::world::{Life, Planned, Stage, Tolerated, World, text};
use crate::Loop;
use crate::support::limits::{open_descriptors, with_few_descriptors};

/// A program that waits for nothing of its own is stopped after this time.
const PROGRAM: Duration = Duration::from_millis(10);

/// Streams that are shut down read something, and handles close, within this time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Threads of the pool release a loop within this time.
const LINGER: Duration = Duration::from_secs(2);

/// No program panics more often.
const MAX_RUNS: usize = 1000;

/// Makes the backends of one program.
pub(super) type Maker<'a> = &'a dyn Fn() -> io::Result<BoxedBackend>;

/// The result of a program that has passed.
pub(super) struct Passed {
    /// The reports that have a defined order.
    pub(super) trace: Vec<String>,
    /// It may have lost memory that is not the loop's.
    pub(super) forgets: bool,
}

/// Runs a program. Returns all that went wrong, if something did. Backends that inject errors keep
/// some requests from being reported with success, and some readers from reading.
pub(super) fn run(
    program: &Program,
    new: Maker<'_>,
    tolerated: Tolerated,
) -> Result<Passed, Vec<String>> {
    let (descriptors, injects_errors) = (open_descriptors().ok(), tolerated.errors);
    let errors = tolerated.errors || program.descriptors.is_some();
    let world = World::new(program, Tolerated { errors, ..tolerated });
    if let Err(error) = run_in(program, &world, new, injects_errors) {
        world.fail(format!("the loop failed: {error}"));
    }
    check_lanes(&world);
    world.slots.borrow_mut().clear();
    let left = descriptors_left(descriptors);
    if left != descriptors {
        world.fail(format!("descriptors: {descriptors:?} before, {left:?} after"));
    }
    match world.finish() {
        (failures, trace) if failures.is_empty() => {
            Ok(Passed { trace, forgets: world.forgets.get() })
        }
        (failures, _) => Err(failures),
    }
}

/// The number of open descriptors, once it is as expected or does not change any more: a thread of
/// the pool may hold the waker of a loop a moment longer than the loop lives.
fn descriptors_left(expected: Option<usize>) -> Option<usize> {
    let began = Instant::now();
    loop {
        let left = open_descriptors().ok();
        if left == expected || began.elapsed() > LINGER {
            return left;
        }
        std::thread::yield_now();
    }
}

fn run_in(
    program: &Program,
    world: &Rc<World>,
    new: Maker<'_>,
    injects_errors: bool,
) -> io::Result<()> {
    let make = || -> io::Result<Loop> {
        let backend = new()?;
        Ok(Loop::new(match program.ordered {
            true => BoxedBackend::new(VirtualClock::new(backend)),
            false => backend,
        }))
    };
    let begin = || -> io::Result<Loop> {
        let mut lp = make()?;
        if program.has(Verb::Swap) {
            world.spare.replace(Some(make()?));
        }
        run_program(program, world, &mut lp)?;
        Ok(lp)
    };
    let lp = match program.descriptors.map(|count| with_few_descriptors(count, begin)) {
        Some(Ok(Ok(lp))) => lp,
        // Too few to make a loop.
        Some(Ok(Err(_))) => return Ok(()),
        Some(Err(_)) | None => begin()?,
    };
    // From here on no callback exchanges loops.
    let spare = world.spare.take();
    let mut loops: Vec<_> = [Some(lp), spare].into_iter().flatten().collect();
    world.stage.set(Stage::Drain);
    // A reader that an injected error keeps from reading makes its writer wait for ever.
    if !injects_errors {
        for lp in &mut loops {
            drain_all(world, lp)?;
        }
        if world.children.get() != 0 && !world.has_failed() {
            world.fail("the exit of a child was not reported");
        }
    }
    world.stage.set(Stage::Close);
    for mut lp in loops {
        close_all(world, &mut lp)?;
        match lp.close() {
            Ok(_backend) => {}
            Err(error) if world.has_failed() => drop(error),
            Err(error) => world.fail(format!("everything is closed, but {error}")),
        }
    }
    Ok(())
}

/// Executes the steps and runs the loop as the program says.
fn run_program(program: &Program, world: &Rc<World>, lp: &mut Loop) -> io::Result<()> {
    let limit = if program.ordered { Duration::from_secs(3600) } else { PROGRAM };
    let mut guards = vec![guard(lp, limit, |lp| lp.stop())];
    if let Some(spare) = world.spare.borrow_mut().as_mut() {
        guards.push(guard(spare, limit, |lp| lp.stop()));
    }
    for step in &program.steps {
        exec(world, lp, step);
    }
    for mode in &program.modes {
        run_loop(world, lp, *mode)?;
    }
    run_loop(world, lp, RunMode::Default)?;
    // A spare loop may have the handles by now.
    let spare = world.spare.take();
    if let Some(mut spare) = spare {
        std::mem::swap(lp, &mut spare);
        world.spare.replace(Some(spare));
        run_loop(world, lp, RunMode::NoWait)?;
    }
    for guard in guards {
        let _ = guard.close(lp);
        if let Some(spare) = world.spare.borrow_mut().as_mut() {
            let _ = guard.close(spare);
        }
    }
    Ok(())
}

/// A timer that does not keep the loop alive.
fn guard(lp: &mut Loop, limit: Duration, mut act: impl FnMut(&mut Loop) + 'static) -> Timer {
    let timer = Timer::new(lp);
    let started = timer.start(lp, limit, limit, move |lp, _| act(lp));
    started.and_then(|()| timer.unreference(lp)).expect("a new timer");
    timer
}

/// Runs the loop, and runs it again after each panic of the program's.
/// True if the loop was stopped.
fn run_loop(world: &Rc<World>, lp: &mut Loop, mode: RunMode) -> io::Result<bool> {
    for _ in 0..MAX_RUNS {
        let began = Instant::now();
        match catch_unwind(AssertUnwindSafe(|| lp.run(mode))) {
            Ok(Ok(stopped)) => {
                if mode == RunMode::NoWait && began.elapsed() > PATIENCE {
                    world.fail(format!("a run that does not wait took {:?}", began.elapsed()));
                }
                return Ok(stopped);
            }
            Ok(Err(error)) => return Err(error),
            Err(payload) if payload.is::<Planned>() => world.trace("a panic comes out of run"),
            Err(payload) => {
                world.fail(format!(
                    "a panic that the program does not contain: {}",
                    text(&*payload)
                ));
                return Ok(false);
            }
        }
    }
    world.fail(format!("{MAX_RUNS} panics came out of run"));
    Ok(false)
}

/// Runs the loop to its end. A stop of the program's, which may be from before, is used up first.
fn run_to_end(world: &Rc<World>, lp: &mut Loop) -> io::Result<()> {
    while run_loop(world, lp, RunMode::Default)? && !world.has_failed() {}
    Ok(())
}

fn items(world: &World) -> Vec<Item> {
    world.slots.borrow().iter().flatten().flatten().cloned().collect()
}

/// Closes what is no stream, and reads all streams to their ends.
fn drain_all(world: &Rc<World>, lp: &mut Loop) -> io::Result<()> {
    let own: Vec<_> = items(world).into_iter().filter(|it| !it.handle.is_closing(lp)).collect();
    for item in &own {
        match item.extra {
            Extra::Stream { .. } if !reaches_no_end(item) => drain(world, lp, item),
            _ => objects::close(world, lp, item, None),
        }
    }
    // Without descriptors a listener turns its client away, and waits for another one.
    if world.tolerated.errors {
        world.listeners.borrow().iter().for_each(|listener| listener.close_if_open(lp));
    }
    let this = Rc::clone(world);
    let mut reads_before = world.reads_reported.get();
    let limit = guard(lp, PATIENCE, move |lp| {
        let reads = this.reads_reported.get();
        if std::mem::replace(&mut reads_before, reads) == reads {
            this.fail("streams that were shut down do not reach their ends");
            lp.stop();
        }
    });
    run_to_end(world, lp)?;
    let _ = limit.close(lp);
    for (slot, pair) in world.slots.borrow().iter().enumerate() {
        let [Some(one), Some(other)] = pair else { continue };
        let is_open = |item: &Item| !item.life.closing.get() && !item.handle.is_closing(lp);
        if !is_open(one) || !is_open(other) {
            continue;
        }
        for (end, item) in [one, other].into_iter().enumerate() {
            let Extra::Stream { input, output, .. } = &item.extra else { continue };
            // End `a` of a pipe of one direction writes nothing.
            let has_writer = end == 0 || !matches!(world.kinds[slot], Kind::OneWay | Kind::Child);
            if has_writer && !input.broken.get() && !output.broken.get() && !input.ended.get() {
                world.fail(format!("{}: does not read the end of file", item.name));
            }
        }
    }
    Ok(())
}

/// True if a stream may have to wait for ever: its connection was taken away, or the duplicate of
/// a peer that was closed keeps the connection open and is not read.
fn reaches_no_end(item: &Item) -> bool {
    let Extra::Stream { peer, .. } = &item.extra else { return false };
    let is_left = |life: &Life| life.excused.get() || (life.closing.get() && life.passed.get());
    is_left(&item.life) || is_left(peer)
}

fn close_all(world: &Rc<World>, lp: &mut Loop) -> io::Result<()> {
    for item in items(world) {
        if !item.handle.is_closing(lp) {
            objects::close(world, lp, &item, None);
        }
    }
    // Listeners, and connections that a failure left without a slot.
    for handle in lp.walk() {
        if !handle.is_closing(lp) {
            let _ = handle.close(lp);
        }
    }
    let this = Rc::clone(world);
    let limit = guard(lp, PATIENCE, move |lp| {
        let left = lp.debug_handles().to_string();
        this.fail(format!("everything is closed, and the loop does not end: {left:?}"));
        lp.stop();
    });
    run_to_end(world, lp)?;
    let _ = limit.close(lp);
    run_loop(world, lp, RunMode::NoWait).map(drop)
}

fn check_lanes(world: &World) {
    for item in items(world) {
        if let Extra::Stream { input, .. } = &item.extra
            && let Err(why) = input.check(&item.name)
        {
            world.fail(why);
        }
    }
}

/// A backend without sources, for the trace that all others are compared with.
#[derive(Debug)]
pub(super) struct NoSources;

/// The waker of [`NoSources`], which never blocks on a virtual clock.
#[derive(Clone, Debug)]
pub(super) struct NoWaker;

impl Wake for NoWaker {
    fn wake(&self) -> io::Result<()> {
        Ok(())
    }
}

// SAFETY: it watches nothing, keeps nothing and reports nothing.
unsafe impl Backend for NoSources {
    type Waker = NoWaker;

    fn waker(&self) -> NoWaker {
        NoWaker
    }

    unsafe fn register(&mut self, _: Token, _: RawSource, _: Interest, _: Mode) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn modify(&mut self, _: Token, _: Interest, _: Mode) -> io::Result<()> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn deregister(&mut self, _: Token) -> io::Result<()> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn wait(&mut self, _: Option<Duration>, _: &mut Vec<Event>) -> io::Result<()> {
        Ok(())
    }
}
