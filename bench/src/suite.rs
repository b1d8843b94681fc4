//! Suites of scenarios, each run by several contestants.

use std::fmt;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Spent;
use crate::latencies::Latencies;

/// A group of related scenarios.
#[derive(Debug)]
pub struct Suite {
    /// The name, for the command line.
    pub name: &'static str,
    /// A one-line description.
    pub about: &'static str,
    /// The scenarios.
    pub scenarios: Vec<Scenario>,
}

/// A task that every contestant performs.
#[derive(Debug)]
pub struct Scenario {
    /// The name: the header of a column.
    pub name: String,
    /// The varied parameter, if it is a number: the x value of a curve.
    pub parameter: Option<u64>,
    /// The figures of one run, in the order of [`Sample::readings`].
    pub figures: Vec<Figure>,
    /// The contestants, and those that cannot run.
    pub entrants: Entrants,
}

/// One measured quantity of a run.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The name.
    pub name: &'static str,
    /// The exact definition.
    pub about: &'static str,
    /// The unit, which implies the clock and the direction.
    pub unit: Unit,
    /// The expected count of a run.
    pub count: Count,
}

/// The expected count of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Exactly this count.
    Exactly(u64),
    /// At least this count, in a fixed time.
    AtLeast(u64),
}

impl Count {
    fn admits(self, count: u64) -> bool {
        match self {
            Count::Exactly(expected) => count == expected,
            Count::AtLeast(least) => count >= least,
        }
    }
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Nanoseconds of the process's CPU time per item. Less is better.
    CpuTimeEach,
    /// Nanoseconds of wall-clock time per item. Less is better.
    WallTimeEach,
    /// Items per second of the process's CPU time. More is better.
    PerCpuSecond,
    /// Items per second. More is better.
    PerSecond,
    /// Bytes per second of CPU time. More is better.
    BytesPerCpuSecond,
    /// Bytes per second. More is better.
    BytesPerSecond,
    /// Bytes of memory per item. Less is better.
    BytesEach,
    /// Calls per item. Less is better.
    CallsEach,
    /// User instructions per item. Less is better.
    InstructionsEach,
}

impl Unit {
    /// The value of a reading.
    pub fn value(self, reading: Reading) -> f64 {
        let count = reading.count as f64;
        // A coarse clock may report zero.
        let seconds = |time: Duration| time.max(Duration::from_nanos(1)).as_secs_f64();
        let (cpu, wall) = (seconds(reading.spent.cpu), seconds(reading.spent.wall));
        match self {
            Unit::CpuTimeEach => cpu * 1e9 / count,
            Unit::WallTimeEach => wall * 1e9 / count,
            Unit::PerCpuSecond | Unit::BytesPerCpuSecond => count / cpu,
            Unit::PerSecond | Unit::BytesPerSecond => count / wall,
            Unit::BytesEach | Unit::CallsEach | Unit::InstructionsEach => {
                reading.spent.amount as f64 / count
            }
        }
    }

    /// Whether a reading has none of the CPU time that its value is made of.
    fn lacks(self, reading: Option<Reading>) -> bool {
        use Unit::*;
        let is_of_cpu_time = matches!(self, CpuTimeEach | PerCpuSecond | BytesPerCpuSecond);
        is_of_cpu_time && reading.is_some_and(|reading| reading.spent.cpu.is_zero())
    }

    /// The ratio of a value to `baseline`, oriented so that above 1 is better.
    pub fn ratio(self, value: f64, baseline: f64) -> f64 {
        // Zero is a valid value of some units: avoid an infinite ratio.
        let least = match self {
            Unit::CallsEach => 0.01,
            Unit::BytesEach | Unit::InstructionsEach => 1.0,
            _ => 0.0,
        };
        match self.less_is_better() {
            true => (baseline + least) / (value + least),
            false => value / baseline,
        }
    }

    /// Whether a smaller value is better.
    pub fn less_is_better(self) -> bool {
        use Unit::*;
        matches!(self, CpuTimeEach | WallTimeEach | BytesEach | CallsEach | InstructionsEach)
    }

    /// Whether the value does not depend on time, and repeats.
    pub fn is_exact(self) -> bool {
        matches!(self, Unit::BytesEach | Unit::CallsEach | Unit::InstructionsEach)
    }

    /// The unit in words.
    pub fn words(self) -> &'static str {
        match self {
            Unit::CpuTimeEach => "CPU time per item",
            Unit::WallTimeEach => "time per item",
            Unit::PerCpuSecond => "per second of CPU time",
            Unit::PerSecond => "per second",
            Unit::BytesPerCpuSecond => "bytes per second of CPU time",
            Unit::BytesPerSecond => "bytes per second",
            Unit::BytesEach => "bytes per item",
            Unit::CallsEach => "calls per item",
            Unit::InstructionsEach => "instructions per item",
        }
    }
}

/// The count and the cost of one run, for one figure.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The number of completed items, as counted by the callbacks.
    pub count: u64,
    /// The time or other cost.
    pub spent: Spent,
}

/// The result of one run.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// A reading for each figure of the scenario, in their order, or `None` if the contestant
    /// does not support it.
    pub readings: Vec<Option<Reading>>,
    /// The latency of each request, if it was measured.
    pub latencies: Option<Latencies>,
    /// Remarks for the report.
    pub notes: Vec<String>,
}

impl Sample {
    /// A sample with every reading.
    pub fn new(readings: impl IntoIterator<Item = Reading>) -> Sample {
        Sample { readings: readings.into_iter().map(Some).collect(), ..Sample::default() }
    }
}

/// The identity of a contestant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContestantId {
    /// `uv-core`'s loop on the backend of that name.
    Core(&'static str),
    /// `uv-async`'s tasks on `uv-core`'s loop, on the backend of that name.
    Async(&'static str),
    /// The backend of that name, through the trait alone.
    Bare(&'static str),
    /// Hand-written code on the facility of that name.
    Hand(&'static str),
    /// Another library.
    Peer(&'static str),
}

impl ContestantId {
    /// The name of the backend, with a loop or without; `None` for peers.
    pub fn backend(self) -> Option<&'static str> {
        match self {
            ContestantId::Core(name) | ContestantId::Async(name) | ContestantId::Bare(name) => {
                Some(name)
            }
            ContestantId::Hand(_) | ContestantId::Peer(_) => None,
        }
    }

    /// The name for `--peer`, if it is no backend of this workspace.
    pub fn peer(self) -> Option<&'static str> {
        match self {
            ContestantId::Core(_) | ContestantId::Async(_) | ContestantId::Bare(_) => None,
            ContestantId::Hand(_) => Some("hand"),
            ContestantId::Peer(name) => Some(name),
        }
    }

    /// Whether this is a loop or a library at its best, on the pollers that a user of Linux would
    /// choose: what a quick run has time for.
    pub fn is_best(self) -> bool {
        match self {
            ContestantId::Core(name) | ContestantId::Async(name) | ContestantId::Hand(name) => {
                matches!(name, "epoll" | "uring")
            }
            ContestantId::Bare(_) => false,
            ContestantId::Peer(name) => name != "polling" && !self.is_variant(),
        }
    }

    /// Whether this is another way to use a library than its best: an extra row, never the
    /// baseline.
    pub fn is_variant(self) -> bool {
        matches!(self, ContestantId::Peer(name) if name.contains('-'))
    }
}

impl fmt::Display for ContestantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContestantId::Core(name) => f.pad(&format!("uv-core {name}")),
            ContestantId::Async(name) => f.pad(&format!("uv-async {name}")),
            ContestantId::Bare(name) => f.pad(&format!("bare {name}")),
            ContestantId::Hand(name) => f.pad(&format!("hand {name}")),
            ContestantId::Peer(name) => f.pad(name),
        }
    }
}

/// The runs of a contestant that got no time of the processor, which measure nothing: other programs
/// may use all of it during a short run.
const ATTEMPTS: usize = 3;

/// Runs a scenario once.
pub type Run = Box<dyn Fn() -> io::Result<Sample>>;

/// An implementation that can run a scenario.
pub struct Contestant {
    /// The identity.
    pub id: ContestantId,
    run: Run,
}

impl Contestant {
    /// Runs the scenario once and checks its counts.
    ///
    /// # Errors
    ///
    /// Those of the run, and `InvalidData` if a count is wrong.
    pub fn run(&self, figures: &[Figure]) -> io::Result<Sample> {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", self.id));
        let mut sample = (self.run)().map_err(named)?;
        for _ in 1..ATTEMPTS {
            if !figures.iter().zip(&sample.readings).any(|(figure, of)| figure.unit.lacks(*of)) {
                break;
            }
            sample = (self.run)().map_err(named)?;
        }
        let wrong = |why: String| named(io::Error::new(io::ErrorKind::InvalidData, why));
        if sample.readings.len() != figures.len() {
            let (got, expected) = (sample.readings.len(), figures.len());
            return Err(wrong(format!("{got} readings for {expected} figures")));
        }
        for (figure, reading) in figures.iter().zip(&sample.readings) {
            if let Some(Reading { count, .. }) = reading
                && !figure.count.admits(*count)
            {
                let (name, expected) = (figure.name, figure.count);
                return Err(wrong(format!("{name}: counted {count}, expected {expected:?}")));
            }
        }
        Ok(sample)
    }
}

impl fmt::Debug for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contestant").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A contestant that cannot run on this machine or in this build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// The identity.
    pub id: String,
    /// The reason and the remedy.
    pub why: String,
}

/// The contestants of a scenario, and those that cannot run.
#[derive(Debug, Default)]
pub struct Entrants {
    /// The contestants, in the order of a round.
    pub contestants: Vec<Contestant>,
    /// The missing ones.
    pub absent: Vec<Absent>,
    /// Every run is a separate process that warms up by itself: no warm-up round is needed.
    pub warm_up_themselves: bool,
}

impl Entrants {
    /// Adds a contestant.
    pub fn enter(&mut self, id: ContestantId, run: impl Fn() -> io::Result<Sample> + 'static) {
        self.contestants.push(Contestant { id, run: Box::new(run) });
    }

    /// Records a missing contestant.
    pub fn skip(&mut self, id: ContestantId, why: impl Into<String>) {
        self.absent.push(Absent { id: id.to_string(), why: why.into() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn a_run_without_time_of_the_processor_is_repeated() {
        let (runs, mut entrants) = (Rc::new(Cell::new(0)), Entrants::default());
        let counted = Rc::clone(&runs);
        entrants.enter(ContestantId::Peer("late"), move || {
            counted.set(counted.get() + 1);
            let cpu = Duration::from_micros(counted.get() - 1);
            Ok(Sample::new([Reading { count: 1, spent: Spent { cpu, ..Spent::default() } }]))
        });
        let run = |unit| {
            runs.set(0);
            let figure = Figure { name: "rate", about: "", unit, count: Count::Exactly(1) };
            entrants.contestants[0].run(&[figure]).unwrap();
            runs.get()
        };
        assert_eq!(run(Unit::PerCpuSecond), 2);
        assert_eq!(run(Unit::PerSecond), 1);
    }
}
