//! What pollers cost against the number of sources: the classic curves.

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

/// Reports between two looks at the clock, at the most.
const BLOCK: u64 = 64;

/// The suite.
pub fn suite(scale: Scale) -> Suite {
    let (counts, budget): (&[usize], _) = match scale {
        Scale::Tiny => (&[3, 30], Duration::ZERO),
        Scale::Quick => (&[10, 100, 1_000, 10_000], Duration::from_millis(1)),
        Scale::Full => {
            (&[10, 30, 100, 300, 1_000, 3_000, 10_000, 20_000], Duration::from_millis(8))
        }
    };
    let mut counts: Vec<usize> = counts.iter().map(|count| sources::at_most(*count)).collect();
    counts.dedup();
    let scenarios = counts.into_iter().map(|count| scenario(count, budget)).collect();
    let about = "pollers without a loop, one, a tenth or all of many sources being active";
    Suite { name: "wait", about, scenarios }
}

fn scenario(count: usize, budget: Duration) -> Scenario {
    let sources = Rc::new(Sources::new(count));
    let mut entrants = Entrants::default();
    pollers::enter(&mut entrants, &Wait { sources, budget });
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
                 choice, to the same again), and a wait of zero tells the kernel",
                all,
            ),
            cost(
                "wait",
                "a wait that returns at once with the one source that is ready and stays so. \
                 mio has no level-triggered mode",
                Count::AtLeast(1),
            ),
            cost(
                "wait, 10 % active",
                "the same with a tenth of the sources ready: CPU time for each that is reported",
                Count::AtLeast(1),
            ),
            cost(
                "wait, all active",
                "the same with all sources ready: CPU time for each that is reported",
                Count::AtLeast(1),
            ),
            cost(
                "turn",
                "one source is written to, waited for and read: the two other system calls \
                 are the same for all",
                Count::AtLeast(1),
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
            active.iter().try_for_each(|number| sources[*number].make_quiet())?;
            // What is seen no more may still be known to the poller.
            while waiting.wait(zero)? > 0 {}
        }
        let middle = count / 2;
        let turn = self.repeated(1, || {
            sources[middle].make_ready()?;
            let ready = waiting.wait(None)?;
            sources[middle].make_quiet()?;
            Ok(if waiting.ready == [middle] { ready } else { 0 })
        })?;
        let deregister =
            waiting.timed(|poller, number, source| poller.remove(number, source.raw()))?;

        let mut readings = vec![Some(register), Some(modify)];
        readings.extend(waits);
        readings.extend([Some(turn), Some(deregister)]);
        Ok(Sample { readings, ..Sample::default() })
    }
}

/// So many of the numbers below `count`, evenly spread.
fn spread(count: usize, active: usize) -> Vec<usize> {
    (0..active).map(|index| (2 * index + 1) * count / (2 * active)).collect()
}

/// A poller and what it watches.
struct Waiting<'a, P> {
    poller: P,
    sources: &'a [Source],
    ready: Vec<usize>,
}

impl<P: Poller> Waiting<'_, P> {
    /// Returns how many are ready.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        self.ready.clear();
        self.poller.wait(timeout, &mut self.ready)?;
        Ok(self.ready.len())
    }

    /// Waits until all that are active, and no others, have been reported. One wait need not
    /// report all.
    fn see_all(&mut self, active: &[usize]) -> io::Result<()> {
        let mut unseen: HashSet<usize> = active.iter().copied().collect();
        let active = unseen.clone();
        while !unseen.is_empty() {
            self.wait(None)?;
            for number in &self.ready {
                if !active.contains(number) {
                    return Err(wrong(format!("source {number} was reported, which is quiet")));
                }
                unseen.remove(number);
            }
        }
        Ok(())
    }

    /// Times a change of all sources, and the wait that tells the kernel of it.
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
            return Err(wrong("a source was reported that nobody has made ready".into()));
        }
        Ok(reading)
    }
}

fn wrong(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl Wait {
    /// Does it until the budget is spent. Counts the sources that were reported: some of the
    /// active ones each time.
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
                    return Err(wrong(format!("{active} are active, {reported} were reported")));
                }
                count += reported as u64;
            }
            if process_cpu_time() >= until {
                break;
            }
            // Where a wait takes long, the first few are enough.
            block = BLOCK.min(2 * block);
        }
        Ok(Reading { count, spent: watch.spent() })
    }
}
