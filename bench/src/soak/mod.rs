//! `bench soak`: mixed traffic for a long time, with every byte checked.
//!
//! Traffic of all kinds runs on one loop in cycles of several seconds. A cycle has a flood: many more
//! connections, timers and jobs than usual. At its end everything is closed and the loop has nothing
//! left. Then descriptors must be no more than after the first cycle, which has opened what a loop
//! opens once. Memory may grow a few times: arrays are sized by the most objects that a cycle had at
//! once, which differs, and grow by doubling. A leak grows in cycle after cycle. When the loop is
//! closed, all must be as before.

mod files;
mod flow;
mod jobs;
mod memory;
mod processes;
mod screen;
#[cfg(unix)]
mod signals;
mod streams;
mod timers;
mod udp;

use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::Args;
use uv_core::backends::Auto;
use uv_core::{Handle, RunMode, Timer};

use crate::allocations;
use crate::random::Random;
use memory::{Baseline, Usage};
use screen::Screen;

pub(crate) use processes::copy_stdin;

type Loop = uv_core::Loop<Auto>;

/// The arguments of `bench soak`.
#[derive(Clone, Debug, Args)]
pub struct SoakOptions {
    /// How long to run on each backend
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    minutes: f64,
    /// The backends, one after the other [default: the best one on this machine]
    #[arg(short, long = "backend", value_name = "NAME", value_delimiter = ',')]
    backends: Vec<String>,
}

/// The longest cycle. A shorter run has six of them.
const CYCLE: Duration = Duration::from_secs(10);

/// A run in which nothing happens for as long hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// The kinds of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tcp,
    Pipe,
    Udp,
    Timer,
    Pool,
    File,
    Process,
    Signal,
}

impl Kind {
    const ALL: [Kind; 8] = [
        Kind::Tcp,
        Kind::Pipe,
        Kind::Udp,
        Kind::Timer,
        Kind::Pool,
        Kind::File,
        Kind::Process,
        Kind::Signal,
    ];
}

/// How much of one kind was done.
#[derive(Debug, Default)]
struct Counter {
    /// Connections, datagrams, timers, jobs, files, children or signals.
    done: Cell<u64>,
    /// Bytes that arrived and were compared.
    bytes: Cell<u64>,
}

/// The state that all traffic of a run shares.
struct World {
    counters: [Counter; Kind::ALL.len()],
    random: RefCell<Random>,
    /// Grows with everything that arrives.
    progress: Cell<u64>,
    /// Nothing is begun any more.
    ending: Cell<bool>,
    failures: RefCell<Vec<String>>,
    /// How many objects a flood has, at most.
    flood: usize,
}

impl World {
    fn new(time: Duration) -> Rc<World> {
        // A connection has two descriptors, and a part is left for the rest. A run of seconds has
        // small floods.
        let descriptors = crate::limits::descriptors().min(400 * time.as_secs() as usize);
        Rc::new(World {
            counters: Default::default(),
            random: RefCell::new(Random::new(0)),
            progress: Cell::new(0),
            ending: Cell::new(false),
            failures: RefCell::default(),
            flood: (descriptors / 8).clamp(16, 500),
        })
    }

    fn draw(&self) -> u64 {
        self.random.borrow_mut().draw()
    }

    fn one_in(&self, count: u64) -> bool {
        self.draw().is_multiple_of(count)
    }

    /// A number from 1 to `most`, small ones more often.
    fn size(&self, most: usize) -> usize {
        let bits = usize::BITS - most.leading_zeros();
        let upper = most.min(1 << (self.draw() % u64::from(bits) + 1));
        1 + (self.draw() % upper as u64) as usize
    }

    /// Counts one piece of work with as many compared bytes.
    fn count(&self, kind: Kind, bytes: usize) {
        self.progress();
        let Counter { done, bytes: all } = &self.counters[kind as usize];
        done.set(done.get() + 1);
        all.set(all.get() + bytes as u64);
    }

    fn progress(&self) {
        self.progress.set(self.progress.get() + 1);
    }

    fn fail(&self, kind: Kind, why: impl std::fmt::Display) {
        let mut failures = self.failures.borrow_mut();
        // One cause may have thousands of effects.
        if failures.len() < 20 {
            failures.push(format!("{kind:?}: {why}"));
        }
        self.ending.set(true);
    }

    /// The value, or `None` after a failure was noted.
    fn check<T>(&self, kind: Kind, what: &str, result: io::Result<T>) -> Option<T> {
        result.map_err(|error| self.fail(kind, format!("{what}: {error}"))).ok()
    }
}

/// Runs the traffic on each backend. The status is 1 if anything was wrong.
///
/// # Errors
///
/// If a backend cannot be created or the loop fails.
pub(crate) fn run(options: &SoakOptions, out: &mut dyn Write) -> io::Result<ExitCode> {
    let backends = match &options.backends[..] {
        [] => vec![Auto::new()?.name().to_string()],
        named => named.to_vec(),
    };
    let mut status = ExitCode::SUCCESS;
    for backend in backends {
        let time = Duration::from_secs_f64(options.minutes.clamp(0.0, 1e6) * 60.0);
        let failures = soak(&backend, time, out)?;
        for failure in &failures {
            writeln!(out, "{backend}: {failure}")?;
        }
        if failures.is_empty() {
            writeln!(out, "{backend}: clean")?;
        } else {
            status = ExitCode::FAILURE;
        }
    }
    Ok(status)
}

/// Runs cycles on one backend, and returns what was wrong.
fn soak(backend: &str, time: Duration, out: &mut dyn Write) -> io::Result<Vec<String>> {
    let world = World::new(time);
    // The pool's threads and a reaper start once in a process, and stay.
    warm_up(&world, backend)?;
    allocations::count(true);
    let before = Usage::now();
    let mut lp = Loop::new(Auto::named(backend)?);
    let screen = Screen::new(backend);
    let (began, length) = (Instant::now(), CYCLE.min(time / 6).max(Duration::from_millis(1)));
    let mut baseline = Baseline::default();
    loop {
        cycle(&world, &mut lp, length, &screen)?;
        let now = Usage::settled(|now| baseline.covers(now));
        screen.cycle(&world, began.elapsed(), &now, out)?;
        for why in baseline.excess(&now) {
            world.failures.borrow_mut().push(format!("after a cycle: {why}"));
        }
        if began.elapsed() >= time || !world.failures.borrow().is_empty() {
            break;
        }
    }
    match lp.close() {
        Ok(backend) => drop(backend),
        Err(error) => world.failures.borrow_mut().push(format!("the loop is empty, but {error}")),
    }
    let now = Usage::settled(|now| now.is_within(&before));
    for why in now.excess(&before) {
        world.failures.borrow_mut().push(format!("after the loop: {why}"));
    }
    screen.end(&world, began.elapsed(), &now, out)?;
    allocations::count(false);
    Ok(world.failures.take())
}

/// A job, a file and a child on a loop of their own.
fn warm_up(world: &Rc<World>, backend: &str) -> io::Result<()> {
    let mut lp = Loop::new(Auto::named(backend)?);
    world.ending.set(true);
    start_all(world, &mut lp)?;
    lp.run(RunMode::Default)?;
    Ok(())
}

/// One cycle: traffic, a flood, the end of everything.
fn cycle(world: &Rc<World>, lp: &mut Loop, length: Duration, screen: &Screen) -> io::Result<()> {
    world.ending.set(false);
    start_all(world, lp)?;
    let (this, once) = (Rc::clone(world), Duration::ZERO);
    after(lp, length / 2, once, move |lp, timer| {
        if let Err(error) = flood(&this, lp) {
            this.fail(Kind::Tcp, format!("a flood cannot be started: {error}"));
        }
        let _ = timer.close(lp);
    })?;
    let this = Rc::clone(world);
    after(lp, length, once, move |lp, timer| {
        this.ending.set(true);
        let _ = timer.close(lp);
    })?;
    let (this, clear) = (Rc::clone(world), screen.clone());
    let show = after(lp, screen::INTERVAL, screen::INTERVAL, move |_, _| clear.update(&this))?;
    let (this, mut last) = (Rc::clone(world), 0);
    let limit = after(lp, PATIENCE, PATIENCE, move |lp, _| {
        if this.progress.get() == last {
            let left = lp.debug_handles().to_string();
            let some: Vec<_> = left.lines().take(10).collect();
            let count = left.lines().count();
            this.fail(
                Kind::Timer,
                format!("nothing happens; {count} handles: {}", some.join(", ")),
            );
            lp.stop();
        }
        last = this.progress.get();
    })?;
    for timer in [show, limit] {
        timer.unreference(lp)?;
    }
    lp.run(RunMode::Default)?;
    for timer in [show, limit] {
        timer.close(lp)?;
    }
    // After a failure, something may be left.
    for handle in lp.walk() {
        let _ = handle.close(lp);
    }
    lp.run(RunMode::Default)?;
    Ok(())
}

fn after(
    lp: &mut Loop,
    delay: Duration,
    repeat: Duration,
    callback: impl FnMut(&mut Loop, Timer) + 'static,
) -> io::Result<Timer> {
    let timer = Timer::new(lp);
    timer.start(lp, delay, repeat, callback)?;
    Ok(timer)
}

/// Begins traffic of all kinds, which goes on until the world is ending.
fn start_all(world: &Rc<World>, lp: &mut Loop) -> io::Result<()> {
    streams::start(world, lp, false)?;
    udp::start(world, lp)?;
    timers::start(world, lp, 200, false);
    jobs::start(world, lp, 64, false);
    files::start(world, lp, 4);
    processes::start(world, lp);
    #[cfg(unix)]
    signals::start(world, lp)?;
    Ok(())
}

/// Begins much more of what is cheap, once.
fn flood(world: &Rc<World>, lp: &mut Loop) -> io::Result<()> {
    streams::start(world, lp, true)?;
    timers::start(world, lp, 200 * world.flood, true);
    jobs::start(world, lp, 20 * world.flood, true);
    Ok(())
}
