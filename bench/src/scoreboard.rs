//! The scoreboard: one ratio for each contestant and suite.

use std::collections::HashMap;

use crate::random::Random;
use crate::results::{Results, Row};
use crate::stats::{self, Spread, Verdict};

/// One contestant in one suite.
#[derive(Clone, Copy, Debug, Default)]
pub struct Score {
    /// The geometric mean of the ratios to the baseline.
    pub ratio: f64,
    /// The interval of the mean, by a bootstrap over the rounds.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// The number of comparisons.
    pub of: usize,
    /// The number of conclusive comparisons.
    pub sure: usize,
}

/// The scores of all contestants.
#[derive(Debug)]
pub struct Scoreboard {
    /// The suites, each with its baseline.
    pub suites: Vec<(String, String)>,
    /// The contestants, in the order of their first appearance.
    pub id: Vec<String>,
    scores: HashMap<(String, String), Score>,
}

impl Scoreboard {
    /// Computes the scores of results.
    pub fn of(results: &Results) -> Scoreboard {
        let mut suites: Vec<(String, String)> = Vec::new();
        let mut id: Vec<String> = Vec::new();
        let mut logs: HashMap<(String, String), (f64, usize, usize)> = HashMap::new();
        for row in results.rows.iter().filter(|row| counts(row)) {
            if suites.iter().all(|(name, _)| *name != row.suite) {
                suites.push((row.suite.clone(), row.baseline.clone()));
            }
            for entry in &row.entries {
                if !id.contains(&entry.id) {
                    id.push(entry.id.clone());
                }
                let sum = logs.entry((entry.id.clone(), row.suite.clone())).or_default();
                sum.0 += entry.ratio.median.ln();
                sum.1 += 1;
                let sure = entry.verdict != Verdict::NoConclusion || entry.id == row.baseline;
                sum.2 += usize::from(sure);
            }
        }
        id.sort_by_key(|id| family(id) as usize);
        let score = |key: (String, String), (sum, of, sure): (f64, usize, usize)| {
            let ratio = (sum / of as f64).exp();
            let rows = results.rows.iter().filter(|row| row.suite == key.1 && counts(row));
            let (low, high) = interval(rows, &key.0, ratio).unwrap_or((ratio, ratio));
            (key, Score { ratio, low, high, of, sure })
        };
        let scores = logs.into_iter().map(|(key, sums)| score(key, sums)).collect();
        Scoreboard { suites, id, scores }
    }

    /// The score of a contestant in a suite.
    pub fn score(&self, id: &str, suite: &str) -> Option<Score> {
        self.scores.get(&(id.to_string(), suite.to_string())).copied()
    }
}

/// The interval of a geometric mean of medians: the rounds of every row are drawn again.
fn interval<'a>(rows: impl Iterator<Item = &'a Row>, id: &str, ratio: f64) -> Option<(f64, f64)> {
    const RESAMPLES: usize = 300;
    let ratios: Vec<Vec<f64>> = rows
        .filter_map(|row| {
            let of = |id: &str| row.entries.iter().find(|entry| entry.id == id);
            let (entry, base) = (of(id)?, of(&row.baseline)?);
            let rounds = entry.values.iter().zip(&base.values);
            Some(rounds.map(|(value, base)| row.unit.ratio(*value, *base)).collect())
        })
        .collect();
    let mut random = Random::new(ratios.len() as u64);
    let mut drawn = Vec::new();
    let spread = Spread::of_resamples(ratio, RESAMPLES, || {
        let logs = ratios.iter().filter_map(|values| {
            drawn.resize(values.len(), 0.0);
            stats::resample(values, &mut drawn, &mut random);
            Some(stats::median_of(&mut drawn)?.ln())
        });
        let (sum, count) = logs.fold((0.0, 0), |(sum, count), log| (sum + log, count + 1));
        (sum / f64::from(count.max(1))).exp()
    })?;
    Some((spread.low, spread.high))
}

/// Excludes redundant figures and those that the clients limit.
pub(crate) fn counts(row: &Row) -> bool {
    // An open loop has no other figure than latencies.
    let latency = match row.suite.as_str() {
        "open" | "drive" => ["p50", "p99.9"].contains(&row.figure.as_str()),
        _ => ["p50", "p99", "p99.9"].contains(&row.figure.as_str()),
    };
    !row.figure.ends_with(", wall") && !latency
}

/// Groups of contestants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// The loop of `uv-core`.
    Core,
    /// Backends without a loop.
    Bare,
    /// libuv.
    Libuv,
    /// Hand-written code.
    Hand,
    /// Other libraries.
    Other,
}

/// The family of a contestant.
pub fn family(id: &str) -> Family {
    match id.split([' ', '-']).next() {
        Some("uv") => Family::Core,
        Some("bare") => Family::Bare,
        Some("libuv") => Family::Libuv,
        Some("hand") => Family::Hand,
        _ => Family::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_family() {
        let of = ["uv-core epoll", "bare poll", "libuv-write", "libuv", "hand uring", "mio"];
        let families = of.map(family);
        use Family::*;
        assert_eq!(families, [Core, Bare, Libuv, Libuv, Hand, Other]);
    }
}
