//! What pollers cost against the number of sources: the classic curves.

mod pollers;
mod sources;

use std::io;
use std::rc::Rc;
use std::time::Duration;

use poll_core::Backend;

use self::pollers::{Bare, Poller};
use self::sources::Sources;
use crate::backends::{self, OnBackend, Which};
use crate::clock::{Stopwatch, process_cpu_time};
use crate::suite::{Count, Entrants, Figure, Reading, Sample, Scenario, Suite, Unit, Who};
use crate::suites::Scale;

/// Waits between two looks at the clock.
const BLOCK: u64 = 50;

/// The suite.
pub fn suite(scale: Scale) -> Suite {
    let (counts, budget): (&[usize], _) = match scale {
        Scale::Tiny => (&[3, 30], Duration::ZERO),
        Scale::Quick => (&[10, 100, 1_000, 10_000], Duration::from_millis(5)),
        Scale::Full => (&[10, 100, 1_000, 10_000], Duration::from_millis(50)),
    };
    let scenarios = counts.iter().map(|count| scenario(*count, budget)).collect();
    let about = "pollers without a loop, one of many sources being active";
    Suite { name: "wait", about, scenarios }
}

fn scenario(count: usize, budget: Duration) -> Scenario {
    let sources = Rc::new(Sources::new(count));
    let mut entrants = Entrants::default();
    let task = Wait { sources: Rc::clone(&sources), budget };
    backends::enter(&mut entrants, Which::All, Who::Bare, &task);
    pollers::enter(&mut entrants, &task);
    let all = Count::Exactly(count as u64);
    let cost = |name, about, count| Figure { name, about, unit: Unit::CpuTimeEach, count };
    Scenario {
        name: format!("{} sources", thousands(count)),
        parameter: Some(count as u64),
        figures: vec![
            cost(
                "register",
                "all sources are registered, and a wait of zero tells the kernel",
                all,
            ),
            cost(
                "modify",
                "all are changed from level-triggered to one-shot (or, where there is no such \
                 choice, to another token), and a wait of zero tells the kernel",
                all,
            ),
            cost(
                "wait",
                "a wait that returns at once with the one source that is ready and stays so. \
                 mio has no level-triggered mode",
                Count::AtLeast(BLOCK),
            ),
            cost(
                "turn",
                "one source is written to, waited for and read: the two other system calls \
                 are the same for all",
                Count::AtLeast(BLOCK),
            ),
            cost("deregister", "all are deregistered, and a wait of zero tells the kernel", all),
        ],
        entrants,
    }
}

fn thousands(count: usize) -> String {
    match count {
        1_000.. => format!("{},{:03}", count / 1_000, count % 1_000),
        _ => count.to_string(),
    }
}

/// What every poller does.
#[derive(Clone)]
struct Wait {
    sources: Rc<Sources>,
    /// How much CPU time to wait for each figure.
    budget: Duration,
}

impl OnBackend for Wait {
    fn run<B: Backend>(&self, make: fn() -> io::Result<B>) -> io::Result<Sample> {
        self.on(Bare::new(make()?))
    }
}

impl Wait {
    fn on<P: Poller>(&self, mut poller: P) -> io::Result<Sample> {
        let (sources, active) = self.sources.open()?;
        let zero = Some(Duration::ZERO);

        let register = timed(|| {
            for (index, source) in sources.iter().enumerate() {
                poller.register(index, source)?;
            }
            Ok(poller.wait(zero)? == 0)
        });
        let register = register.and_then(|reading| whole(reading, sources.len()))?;

        let modify = timed(|| {
            for (index, source) in sources.iter().enumerate() {
                poller.modify_to_oneshot(index, source)?;
            }
            Ok(poller.wait(zero)? == 0)
        });
        let modify = modify.and_then(|reading| whole(reading, sources.len()))?;
        for (index, source) in sources.iter().enumerate() {
            poller.modify_to_level(index, source)?;
        }
        poller.wait(zero)?;

        active.send()?;
        let wait = P::LEVEL.then(|| self.repeated(|| poller.wait(None))).transpose()?;
        active.receive()?;
        // What is seen no more may still be known to the poller.
        poller.wait(zero)?;
        let turn = self.repeated(|| {
            active.send()?;
            let ready = poller.wait(None)?;
            active.receive()?;
            Ok(ready)
        })?;

        let deregister = timed(|| {
            for (index, source) in sources.iter().enumerate() {
                poller.deregister(index, source)?;
            }
            Ok(poller.wait(zero)? == 0)
        });
        let deregister = deregister.and_then(|reading| whole(reading, sources.len()))?;
        Ok(Sample {
            readings: vec![Some(register), Some(modify), wait, Some(turn), Some(deregister)],
        })
    }

    /// Does it until the budget is spent. Counts the sources that were ready, of which
    /// there must be one each time.
    fn repeated(&self, mut once: impl FnMut() -> io::Result<usize>) -> io::Result<Reading> {
        let (mut ready, mut times) = (0, 0);
        let until = process_cpu_time() + self.budget;
        let watch = Stopwatch::start();
        loop {
            for _ in 0..BLOCK {
                ready += once()?;
            }
            times += BLOCK;
            if process_cpu_time() >= until {
                break;
            }
        }
        let spent = watch.spent();
        if ready as u64 != times {
            let why = format!("{times} waits for one active source reported {ready}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(Reading { count: times, spent })
    }
}

fn timed(change: impl FnOnce() -> io::Result<bool>) -> io::Result<(bool, Reading)> {
    let watch = Stopwatch::start();
    let quiet = change()?;
    Ok((quiet, Reading { count: 0, spent: watch.spent() }))
}

/// The reading of `count` changes after which nothing was reported.
fn whole((quiet, reading): (bool, Reading), count: usize) -> io::Result<Reading> {
    if !quiet {
        let why = "a source was reported to which nobody has sent";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(Reading { count: count as u64, ..reading })
}
