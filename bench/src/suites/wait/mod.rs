//! The cost of pollers by the number of sources.

mod sources;

use std::collections::HashSet;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use self::sources::{Source, Sources};
use crate::clock::{Stopwatch, process_cpu_time};
use crate::pollers::{self, Interest, OnPoller, Poller};
use crate::suite::{Count, Entrants, Figure, Reading, Sample, Scenario, Suite, Unit};
use crate::suites::Scale;

/// The maximum number of events between two reads of the clock.
const BLOCK: u64 = 64;

/// A timeout that does not expire.
const MINUTE: Option<Duration> = Some(Duration::from_secs(60));

/// The suite.
pub fn suite(scale: Scale) -> Suite {
    let (counts, budget): (&[usize], _) = match scale {
        Scale::Tiny => (&[3, 30], Duration::ZERO),
        Scale::Quick => (&[10, 300, 3_000], Duration::from_millis(1)),
        Scale::Full => {
            (&[10, 30, 100, 300, 1_000, 3_000, 10_000, 20_000], Duration::from_millis(8))
        }
    };
    let mut counts: Vec<usize> = counts.iter().map(|count| sources::at_most(*count)).collect();
    counts.dedup();
    let scenarios = counts.into_iter().map(|count| scenario(count, budget)).collect();
    let about =
        "pollers with one, a tenth or all of many sources ready: by hand, bare, under the loop";
    Suite { name: "wait", about, scenarios }
}

fn scenario(count: usize, budget: Duration) -> Scenario {
    let sources = Rc::new(Sources::new(count));
    let mut entrants = Entrants::default();
    let wait = Wait { sources, budget };
    pollers::enter_loops(&mut entrants, &wait);
    pollers::enter(&mut entrants, &wait);
    let all = Count::Exactly(count as u64);
    let cost = |name, about, count| Figure { name, about, unit: Unit::CpuTimeEach, count };
    Scenario {
        name: format!("{} sources", thousands(count)),
        parameter: Some(count as u64),
        figures: vec![
            cost(
                "register",
                "all sources are registered, and a wait of zero flushes the changes to the kernel",
                all,
            ),
            cost(
                "modify",
                "all are changed from level-triggered to one-shot (or, where modes do not exist, \
                 to the same mode), and a wait of zero flushes the changes to the kernel",
                all,
            ),
            cost(
                "wait",
                "a wait that returns immediately with the one source that stays ready. \
                 mio has no level-triggered mode",
                Count::AtLeast(1),
            ),
            cost(
                "wait, timed",
                "the same with a timeout, which does not expire, as in a loop with timers",
                Count::AtLeast(1),
            ),
            cost(
                "wait, 10 % active",
                "the same with a tenth of the sources ready: CPU time per event",
                Count::AtLeast(1),
            ),
            cost(
                "wait, all active",
                "the same with all sources ready: CPU time per event",
                Count::AtLeast(1),
            ),
            cost(
                "cycle",
                "one source is written to, waited for and read: the write and the read cost the \
                 same for all contestants",
                Count::AtLeast(1),
            ),
            cost(
                "deregister",
                "all are deregistered, and a wait of zero flushes the changes to the kernel",
                all,
            ),
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

/// The task of every poller.
#[derive(Clone)]
struct Wait {
    sources: Rc<Sources>,
    /// The CPU time budget of each figure.
    budget: Duration,
}

impl OnPoller for Wait {
    fn run<P: Poller>(&self, poller: P) -> io::Result<Sample> {
        let sources = self.sources.open()?;
        let mut waiting = Waiting { poller, sources, ready: Vec::new() };
        let zero = Some(Duration::ZERO);

        let register = waiting.timed(|poller, number, source| poller.add(number, source.raw()))?;
        let modify = waiting.timed(|poller, number, source| {
            poller.change(number, source.raw(), Interest::ReadOnce)
        })?;
        waiting
            .timed(|poller, number, source| poller.change(number, source.raw(), Interest::Read))?;

        let count = sources.len();
        let mut waits = Vec::new();
        for active in [1, count.div_ceil(10), count] {
            let active = spread(count, active);
            active.iter().try_for_each(|number| sources[*number].make_ready())?;
            if !P::EDGE {
                waiting.see_all(&active)?;
            }
            let wait = (!P::EDGE).then(|| self.repeated(active.len(), || waiting.wait(None)));
            waits.push(wait.transpose()?);
            if waits.len() == 1 {
                let timed = (!P::EDGE).then(|| self.repeated(1, || waiting.wait(MINUTE)));
                waits.push(timed.transpose()?);
            }
            active.iter().try_for_each(|number| sources[*number].make_quiet())?;
            // The poller may still have the old state of a source.
            while waiting.wait(zero)? > 0 {}
        }
        let middle = count / 2;
        let cycle = self.repeated(1, || {
            sources[middle].make_ready()?;
            let ready = waiting.wait(None)?;
            sources[middle].make_quiet()?;
            Ok(if waiting.ready == [middle] { ready } else { 0 })
        })?;
        let deregister =
            waiting.timed(|poller, number, source| poller.remove(number, source.raw()))?;

        let mut readings = vec![Some(register), Some(modify)];
        readings.extend(waits);
        readings.extend([Some(cycle), Some(deregister)]);
        Ok(Sample { readings, ..Sample::default() })
    }
}

/// `some` of the numbers below `count`, evenly spread.
fn spread(count: usize, active: usize) -> Vec<usize> {
    (0..active).map(|index| (2 * index + 1) * count / (2 * active)).collect()
}

/// A poller and its sources.
struct Waiting<'a, P> {
    poller: P,
    sources: &'a [Source],
    ready: Vec<usize>,
}

impl<P: Poller> Waiting<'_, P> {
    /// Returns the number of ready sources.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        self.ready.clear();
        self.poller.wait(timeout, &mut self.ready)?;
        Ok(self.ready.len())
    }

    /// Waits until every active source, and no other, has been reported. One wait need not report
    /// all of them.
    fn see_all(&mut self, active: &[usize]) -> io::Result<()> {
        let mut unseen: HashSet<usize> = active.iter().copied().collect();
        let active = unseen.clone();
        while !unseen.is_empty() {
            self.wait(None)?;
            for number in &self.ready {
                if !active.contains(number) {
                    return Err(wrong(format!("source {number} was reported, but is not ready")));
                }
                unseen.remove(number);
            }
        }
        Ok(())
    }

    /// Times a change of all sources, with the wait that flushes it to the kernel.
    fn timed(
        &mut self,
        mut change: impl FnMut(&mut P, usize, &Source) -> io::Result<()>,
    ) -> io::Result<Reading> {
        let watch = Stopwatch::start();
        for (number, source) in self.sources.iter().enumerate() {
            change(&mut self.poller, number, source)?;
        }
        let reported = self.wait(Some(Duration::ZERO))?;
        let reading = Reading { count: self.sources.len() as u64, spent: watch.spent() };
        if reported != 0 {
            return Err(wrong("a source was reported that is not ready".into()));
        }
        Ok(reading)
    }
}

fn wrong(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl Wait {
    /// Repeats until the budget is spent. Counts the reported sources, a part of the active ones
    /// in each wait.
    fn repeated(
        &self,
        active: usize,
        mut once: impl FnMut() -> io::Result<usize>,
    ) -> io::Result<Reading> {
        let (mut count, mut block) = (0, 1);
        let until = process_cpu_time() + self.budget;
        let watch = Stopwatch::start();
        loop {
            let next = count + block;
            while count < next {
                let reported = once()?;
                if reported == 0 || reported > active {
                    return Err(wrong(format!(
                        "{active} sources are ready, but {reported} were reported"
                    )));
                }
                count += reported as u64;
            }
            if process_cpu_time() >= until {
                break;
            }
            // Slow waits need few repetitions.
            block = BLOCK.min(2 * block);
        }
        Ok(Reading { count, spent: watch.spent() })
    }
}
