//! The scoreboard: one ratio for each contestant and suite.

use std::collections::HashMap;

use crate::results::{Results, Row};
use crate::stats::Verdict;

/// One contestant in one suite.
#[derive(Clone, Copy, Debug, Default)]
pub struct Score {
    /// The geometric mean of the ratios to the baseline.
    pub ratio: f64,
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
        let score = |(sum, of, sure): (f64, usize, usize)| Score {
            ratio: (sum / of as f64).exp(),
            of,
            sure,
        };
        let scores = logs.into_iter().map(|(key, sums)| (key, score(sums))).collect();
        Scoreboard { suites, id, scores }
    }

    /// The score of a contestant in a suite.
    pub fn score(&self, id: &str, suite: &str) -> Option<Score> {
        self.scores.get(&(id.to_string(), suite.to_string())).copied()
    }
}

/// Excludes redundant figures and those that the clients limit.
fn counts(row: &Row) -> bool {
    !row.figure.ends_with(", wall") && !matches!(row.figure.as_str(), "p50" | "p99" | "p99.9")
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
