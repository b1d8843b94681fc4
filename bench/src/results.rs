//! What a run of the program found: the numbers of every round, and what they say.

use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::latencies::Latencies;
use crate::machine::Machine;
use crate::runner::Measured;
use crate::stats::{self, Spread, Verdict};
use crate::suite::{Absent, Figure, Scenario, Unit, Who};

/// The form of the file. Files of another are refused.
const FORMAT: u32 = 2;

/// Everything that one run of the program found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// The form of the file.
    pub format: u32,
    /// How it was run.
    pub settings: Settings,
    /// On what.
    pub machine: Machine,
    /// Who was missing.
    pub absent: Vec<Absent>,
    /// What was measured.
    pub rows: Vec<Row>,
    /// How long requests took.
    pub distributions: Vec<Distribution>,
    /// What else happened that a reader of the numbers should know.
    pub notes: Vec<String>,
}

/// How long the requests of one contestant took, all rounds together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Distribution {
    /// The suite.
    pub suite: String,
    /// The scenario.
    pub scenario: String,
    /// The contestant.
    pub who: String,
    /// How many requests there were.
    pub count: u64,
    /// Shares of all requests, and within how many nanoseconds they were answered.
    pub curve: Vec<(f64, f64)>,
}

impl Distribution {
    /// The shares that are kept: closer and closer to all.
    const SHARES: [f64; 16] = [
        0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99, 0.995, 0.9975, 0.999, 0.9995,
        0.9999, 1.0,
    ];

    pub(crate) fn new(
        suite: &str,
        scenario: &str,
        who: Who,
        latencies: &Latencies,
    ) -> Distribution {
        let curve = Self::SHARES.map(|share| (share, latencies.quantile(share).as_nanos() as f64));
        let (suite, scenario, who) = (suite.into(), scenario.into(), who.to_string());
        Distribution { suite, scenario, who, count: latencies.count(), curve: curve.into() }
    }
}

/// How the program was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// `quick` or `full`: how large the scenarios are.
    pub scale: String,
    /// How often each contestant ran each scenario.
    pub rounds: usize,
    /// What random deadlines were drawn from.
    pub seed: u64,
    /// The cores of servers and of their clients, if there were two to choose.
    pub cores: Option<(usize, usize)>,
    /// Whether the program was optimised. If not, its numbers mean nothing.
    pub optimised: bool,
    /// How many seconds it ran.
    pub seconds: f64,
}

/// One figure of one scenario: all contestants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The suite.
    pub suite: String,
    /// The scenario.
    pub scenario: String,
    /// What the scenario varies, if that is a number.
    pub parameter: Option<u64>,
    /// The figure.
    pub figure: String,
    /// What exactly was counted and timed.
    pub about: String,
    /// What it is counted in.
    pub unit: Unit,
    /// To whom the others are compared.
    pub baseline: String,
    /// The baseline against itself: its second run of each round, and the noise.
    pub again: Entry,
    /// The contestants.
    pub entries: Vec<Entry>,
}

/// What one contestant did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Who it is.
    pub who: String,
    /// The value of each round.
    pub values: Vec<f64>,
    /// Their median and spread.
    pub value: Spread,
    /// How many times as good as the baseline: the median and the spread of the ratios of
    /// each round.
    pub ratio: Spread,
    /// What that means.
    pub verdict: Verdict,
}

impl Row {
    /// Judges the values of all rounds. `None` if the baseline has none.
    pub(crate) fn new(
        suite: &str,
        scenario: &Scenario,
        figure: &Figure,
        (baseline, again): (String, Vec<f64>),
        values: Vec<(String, Vec<f64>)>,
    ) -> Option<Row> {
        let (unit, about) = (figure.unit, figure.about.to_string());
        let base = values.iter().find(|(who, _)| *who == baseline)?.1.clone();
        let noise = Spread::of(&ratios(&again, &base, unit))?;
        let entry = |(who, values): (String, Vec<f64>)| {
            let ratio = Spread::of(&ratios(&values, &base, unit))?;
            let (value, verdict) = (Spread::of(&values)?, stats::judge(ratio, noise));
            Some(Entry { who, values, value, ratio, verdict })
        };
        Some(Row {
            suite: suite.into(),
            scenario: scenario.name.clone(),
            parameter: scenario.parameter,
            figure: figure.name.into(),
            about,
            unit,
            again: entry((format!("{baseline} again"), again))?,
            baseline,
            entries: values.into_iter().filter_map(entry).collect(),
        })
    }
}

/// Round by round, how many times as good as the baseline.
fn ratios(values: &[f64], baseline: &[f64], unit: Unit) -> Vec<f64> {
    values.iter().zip(baseline).map(|(value, base)| unit.ratio(*value, *base)).collect()
}

impl Results {
    /// Puts everything together.
    pub fn new(
        settings: Settings,
        machine: Machine,
        absent: Vec<Absent>,
        measured: Measured,
    ) -> Results {
        let Measured { rows, distributions, notes } = measured;
        Results { format: FORMAT, settings, machine, absent, rows, distributions, notes }
    }

    /// Reads a file that [`write`](Results::write) has written.
    ///
    /// # Errors
    ///
    /// If it cannot be read or is something else; the message names the file.
    pub fn read(path: &Path) -> io::Result<Results> {
        let named = |why: String| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()))
        };
        let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        let results: Results =
            serde_json::from_str(&text).map_err(|error| named(format!("no results: {error}")))?;
        match results.format {
            FORMAT => Ok(results),
            other => Err(named(format!("results of format {other}; this program reads {FORMAT}"))),
        }
    }

    /// Writes a JSON file; `-` is `out`.
    ///
    /// # Errors
    ///
    /// Those of writing.
    pub fn write(&self, path: &Path, out: &mut dyn Write) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        match path.as_os_str() == "-" {
            true => out.write_all(text.as_bytes()),
            false => std::fs::write(path, text),
        }
    }
}
