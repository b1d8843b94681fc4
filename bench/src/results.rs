//! The results of a run of the program: the values of every round, and their evaluation.

use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::latencies::Latencies;
use crate::machine::Machine;
use crate::network::Network;
use crate::plan::Timing;
use crate::runner::{LEAST_ROUNDS, Measured};
use crate::stats::{self, Spread, Verdict};
use crate::suite::{Absent, ContestantId, Figure, Scenario, Unit};

/// The version of the file format. Other versions are rejected.
const FORMAT: u32 = 5;

/// All results of one run of the program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// The version of the file format.
    pub format: u32,
    /// The settings.
    pub settings: Settings,
    /// The machine.
    pub machine: Machine,
    /// The missing contestants.
    pub absent: Vec<Absent>,
    /// The measured figures.
    pub rows: Vec<Row>,
    /// The latency distributions.
    pub distributions: Vec<Distribution>,
    /// Remarks for the report.
    pub notes: Vec<String>,
    /// The rounds and the time of each scenario.
    pub timings: Vec<Timing>,
}

/// The latency distribution of one contestant, over all rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Distribution {
    /// The suite.
    pub suite: String,
    /// The scenario.
    pub scenario: String,
    /// The contestant.
    pub id: String,
    /// The number of requests.
    pub count: u64,
    /// Quantiles: the share of requests, and the latency in nanoseconds.
    pub curve: Vec<(f64, f64)>,
}

impl Distribution {
    /// The shares of the stored quantiles, which approach 1.
    const SHARES: [f64; 16] = [
        0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99, 0.995, 0.9975, 0.999, 0.9995,
        0.9999, 1.0,
    ];

    pub(crate) fn new(
        suite: &str,
        scenario: &str,
        id: ContestantId,
        latencies: &Latencies,
    ) -> Distribution {
        let curve = Self::SHARES.map(|share| (share, latencies.quantile(share).as_nanos() as f64));
        let (suite, scenario, id) = (suite.into(), scenario.into(), id.to_string());
        Distribution { suite, scenario, id, count: latencies.count(), curve: curve.into() }
    }

    /// The time within which this share of the requests completed, if one of the requests at least
    /// is beyond it: fewer than ten thousand have no p99.99, only a maximum.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let same = |of: f64| (of - share).abs() < 1e-9;
        let (_, time) = self.curve.iter().find(|(of, _)| same(*of))?;
        self.holds(share).then_some(*time)
    }

    /// Whether there are enough requests for a statement about this share of them.
    pub(crate) fn holds(&self, share: f64) -> bool {
        // The difference is not exact.
        self.count as f64 * (1.0 - share) >= 1.0 - 1e-6
    }
}

/// The settings of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// `quick` or `full`: the size of the scenarios.
    pub scale: String,
    /// The number of runs of each contestant in each scenario, if time allows.
    pub rounds: usize,
    /// The time in seconds that was divided among the scenarios, if it was limited.
    pub budget: Option<f64>,
    /// The seed of random deadlines.
    pub seed: u64,
    /// The cores of servers and clients, if the process could use two.
    pub cores: Option<(usize, usize)>,
    /// The network between clients and servers.
    pub network: Network,
    /// The share of the machine that other programs have used during the run, where the system
    /// reports it.
    pub foreign_share: Option<f64>,
    /// Whether the program was optimised. If not, its numbers are meaningless.
    pub optimised: bool,
    /// The duration in seconds.
    pub seconds: f64,
}

/// One figure of one scenario: all contestants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The suite.
    pub suite: String,
    /// The scenario.
    pub scenario: String,
    /// The varied parameter, if it is a number.
    pub parameter: Option<u64>,
    /// The figure.
    pub figure: String,
    /// The exact definition of the figure.
    pub about: String,
    /// The unit.
    pub unit: Unit,
    /// The contestant that the others are compared with.
    pub baseline: String,
    /// The baseline against itself: its second run of each round, the measure of noise.
    pub again: Entry,
    /// The contestants.
    pub entries: Vec<Entry>,
}

/// The values of one contestant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// The contestant.
    pub id: String,
    /// The value of each round.
    pub values: Vec<f64>,
    /// Their median and spread.
    pub value: Spread,
    /// The median and the spread of the per-round ratios to the baseline; above 1 is better.
    pub ratio: Spread,
    /// The verdict on the ratio.
    pub verdict: Verdict,
}

impl Row {
    /// Evaluates the values of all rounds. `None` if the baseline has none.
    pub(crate) fn new(
        suite: &str,
        scenario: &Scenario,
        figure: &Figure,
        (baseline, again): (String, Vec<f64>),
        values: Vec<(String, Vec<f64>)>,
    ) -> Option<Row> {
        let (unit, about) = (figure.unit, figure.about.to_string());
        let base = values.iter().find(|(id, _)| *id == baseline)?.1.clone();
        let noise = Spread::of(&ratios(&again, &base, unit))?;
        let entry = |(id, values): (String, Vec<f64>)| {
            let ratio = Spread::of(&ratios(&values, &base, unit))?;
            let value = Spread::of(&values)?;
            let verdict = match unit.is_exact() || values.len() >= LEAST_ROUNDS {
                true => stats::judge(ratio, noise),
                false => Verdict::NoConclusion,
            };
            Some(Entry { id, values, value, ratio, verdict })
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

/// The ratio to the baseline in each round.
fn ratios(values: &[f64], baseline: &[f64], unit: Unit) -> Vec<f64> {
    values.iter().zip(baseline).map(|(value, base)| unit.ratio(*value, *base)).collect()
}

impl Results {
    /// Combines the parts.
    pub fn new(
        settings: Settings,
        machine: Machine,
        absent: Vec<Absent>,
        measured: Measured,
    ) -> Results {
        let Measured { rows, distributions, notes, timings, recorded: _ } = measured;
        Results { format: FORMAT, settings, machine, absent, rows, distributions, notes, timings }
    }

    /// Reads a file that [`write`](Results::write) has written.
    ///
    /// # Errors
    ///
    /// If it cannot be read or has another format; the message names the file.
    pub fn read(path: &Path) -> io::Result<Results> {
        let named = |why: String| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()))
        };
        let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        let results: Results = serde_json::from_str(&text)
            .map_err(|error| named(format!("no benchmark results: {error}")))?;
        match results.format {
            FORMAT => Ok(results),
            other => Err(named(format!(
                "results of format {other}, but this program reads {FORMAT}: measure again"
            ))),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_needs_requests_beyond_it() {
        let of = |count: u64| {
            let mut latencies = Latencies::default();
            (1..=count).for_each(|time| latencies.record(time));
            Distribution::new("open", "constant, 30 %", ContestantId::Peer("mio"), &latencies)
        };
        assert_eq!(of(9_999).quantile(0.9999), None);
        assert!(of(9_999).quantile(0.999).is_some());
        let found = of(10_000).quantile(0.9999).unwrap();
        assert!((9_990.0..=10_010.0).contains(&found), "{found}");
        // The maximum is no percentile, and other shares are not stored.
        assert_eq!((of(100).quantile(1.0), of(100).quantile(0.77)), (None, None));
    }
}
