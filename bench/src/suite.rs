//! What is measured: suites of scenarios, each run by several contestants.

use std::fmt;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Spent;
use crate::latencies::Latencies;

/// Scenarios that belong together.
#[derive(Debug)]
pub struct Suite {
    /// In one word, for the command line.
    pub name: &'static str,
    /// In one sentence.
    pub about: &'static str,
    /// What is run.
    pub scenarios: Vec<Scenario>,
}

/// One situation, in which every contestant does the same work.
#[derive(Debug)]
pub struct Scenario {
    /// In a few words: the head of a column.
    pub name: String,
    /// What the scenario varies, if that is a number: the x of a curve.
    pub parameter: Option<u64>,
    /// What one run gives, in the order of [`Sample::readings`].
    pub figures: Vec<Figure>,
    /// Who runs it, and who cannot.
    pub entrants: Entrants,
}

/// One number that a run gives.
#[derive(Clone, Debug)]
pub struct Figure {
    /// In a word or two.
    pub name: &'static str,
    /// What exactly was counted and timed.
    pub about: &'static str,
    /// Which clock, and which way up.
    pub unit: Unit,
    /// How much a right run does.
    pub count: Count,
}

/// How much a right run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// This much, or it went wrong.
    Exactly(u64),
    /// As much as it can in a given time, but this much.
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

/// What a figure is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Nanoseconds of the process's CPU time for each. Less is better.
    CpuTimeEach,
    /// Nanoseconds on the wall for each. Less is better.
    WallTimeEach,
    /// How many in a second of the process's CPU time. More is better.
    PerCpuSecond,
    /// How many in a second. More is better.
    PerSecond,
    /// Bytes in a second of CPU time. More is better.
    BytesPerCpuSecond,
    /// Bytes in a second. More is better.
    BytesPerSecond,
    /// Bytes of memory of each. Less is better.
    BytesEach,
    /// Calls of each. Less is better.
    CallsEach,
}

impl Unit {
    /// The value of a reading.
    pub fn value(self, reading: Reading) -> f64 {
        let count = reading.count as f64;
        // A clock may be too coarse to show any time at all.
        let seconds = |time: Duration| time.max(Duration::from_nanos(1)).as_secs_f64();
        let (cpu, wall) = (seconds(reading.spent.cpu), seconds(reading.spent.wall));
        match self {
            Unit::CpuTimeEach => cpu * 1e9 / count,
            Unit::WallTimeEach => wall * 1e9 / count,
            Unit::PerCpuSecond | Unit::BytesPerCpuSecond => count / cpu,
            Unit::PerSecond | Unit::BytesPerSecond => count / wall,
            Unit::BytesEach | Unit::CallsEach => reading.spent.amount as f64 / count,
        }
    }

    /// How many times as good as `baseline` a value is: above 1 is better.
    pub fn ratio(self, value: f64, baseline: f64) -> f64 {
        // Where nothing at all is a good value, nobody is infinitely better than another.
        let least = match self {
            Unit::CallsEach => 0.01,
            Unit::BytesEach => 1.0,
            _ => 0.0,
        };
        match self.less_is_better() {
            true => (baseline + least) / (value + least),
            false => value / baseline,
        }
    }

    /// Whether it is a cost.
    pub fn less_is_better(self) -> bool {
        matches!(self, Unit::CpuTimeEach | Unit::WallTimeEach | Unit::BytesEach | Unit::CallsEach)
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Unit::CpuTimeEach => "CPU time each",
            Unit::WallTimeEach => "time each",
            Unit::PerCpuSecond => "per second of CPU time",
            Unit::PerSecond => "per second",
            Unit::BytesPerCpuSecond => "bytes per second of CPU time",
            Unit::BytesPerSecond => "bytes per second",
            Unit::BytesEach => "bytes each",
            Unit::CallsEach => "calls each",
        }
    }
}

/// What one run did in what time, for one figure.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// How much was done, as counted by those who did it.
    pub count: u64,
    /// What it took.
    pub spent: Spent,
}

/// What one run gives.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// A reading for each figure of the scenario, in their order, or `None` for what the
    /// contestant cannot do.
    pub readings: Vec<Option<Reading>>,
    /// How long each request took, if that was measured.
    pub latencies: Option<Latencies>,
    /// What else happened that a reader of the numbers should know.
    pub notes: Vec<String>,
}

impl Sample {
    /// A sample in which everything was done.
    pub fn new(readings: impl IntoIterator<Item = Reading>) -> Sample {
        Sample { readings: readings.into_iter().map(Some).collect(), ..Sample::default() }
    }
}

/// Who a contestant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// `uv-core`'s loop on the backend of that name.
    Core(&'static str),
    /// The backend of that name, through the trait alone.
    Bare(&'static str),
    /// What one would write by hand, on the facility of that name.
    Hand(&'static str),
    /// Another library.
    Peer(&'static str),
}

impl Who {
    /// The name of the backend, if it is one of ours, with a loop or without.
    pub fn backend(self) -> Option<&'static str> {
        match self {
            Who::Core(name) | Who::Bare(name) => Some(name),
            Who::Hand(_) | Who::Peer(_) => None,
        }
    }

    /// The name to choose it by, if it is not ours.
    pub fn peer(self) -> Option<&'static str> {
        match self {
            Who::Core(_) | Who::Bare(_) => None,
            Who::Hand(_) => Some("hand"),
            Who::Peer(name) => Some(name),
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Core(name) => f.pad(&format!("uv-core {name}")),
            Who::Bare(name) => f.pad(&format!("bare {name}")),
            Who::Hand(name) => f.pad(&format!("hand {name}")),
            Who::Peer(name) => f.pad(name),
        }
    }
}

/// Runs a scenario once.
pub type Run = Box<dyn Fn() -> io::Result<Sample>>;

/// Someone who can run a scenario.
pub struct Contestant {
    /// Who it is.
    pub who: Who,
    run: Run,
}

impl Contestant {
    /// Runs the scenario once and checks that everything was done.
    ///
    /// # Errors
    ///
    /// Those of the run, and `InvalidData` if a count is wrong.
    pub fn run(&self, figures: &[Figure]) -> io::Result<Sample> {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", self.who));
        let sample = (self.run)().map_err(named)?;
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
        f.debug_struct("Contestant").field("who", &self.who).finish_non_exhaustive()
    }
}

/// Someone who cannot run here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// Who it is.
    pub who: String,
    /// Why, and what to do about it.
    pub why: String,
}

/// Who runs a scenario, and who cannot.
#[derive(Debug, Default)]
pub struct Entrants {
    /// Those that run, in the order of a round.
    pub contestants: Vec<Contestant>,
    /// Those that do not.
    pub absent: Vec<Absent>,
    /// Every run is a process of its own that warms up by itself: none is run in vain before.
    pub warm_up_themselves: bool,
}

impl Entrants {
    /// Enters a contestant.
    pub fn enter(&mut self, who: Who, run: impl Fn() -> io::Result<Sample> + 'static) {
        self.contestants.push(Contestant { who, run: Box::new(run) });
    }

    /// Notes that someone is missing.
    pub fn excuse(&mut self, who: Who, why: impl Into<String>) {
        self.absent.push(Absent { who: who.to_string(), why: why.into() });
    }
}
