//! All results in one table: who, how good, in which suite.

use std::collections::HashMap;

use crate::results::{Results, Row};
use crate::stats::Verdict;

/// One contestant in one suite.
#[derive(Clone, Copy, Debug, Default)]
pub struct Score {
    /// How many times as good as the baseline: the geometric mean of all that counts.
    pub ratio: f64,
    /// Of how many figures and scenarios.
    pub of: usize,
    /// How many of those allow a conclusion.
    pub sure: usize,
}

/// Everyone's scores.
#[derive(Debug)]
pub struct Scoreboard {
    /// The suites, each with its baseline.
    pub suites: Vec<(String, String)>,
    /// The contestants, in the order in which they came first.
    pub who: Vec<String>,
    scores: HashMap<(String, String), Score>,
}

impl Scoreboard {
    /// Of these results.
    pub fn of(results: &Results) -> Scoreboard {
        let mut suites: Vec<(String, String)> = Vec::new();
        let mut who: Vec<String> = Vec::new();
        let mut logs: HashMap<(String, String), (f64, usize, usize)> = HashMap::new();
        for row in results.rows.iter().filter(|row| counts(row)) {
            if suites.iter().all(|(name, _)| *name != row.suite) {
                suites.push((row.suite.clone(), row.baseline.clone()));
            }
            for entry in &row.entries {
                if !who.contains(&entry.who) {
                    who.push(entry.who.clone());
                }
                let sum = logs.entry((entry.who.clone(), row.suite.clone())).or_default();
                sum.0 += entry.ratio.median.ln();
                sum.1 += 1;
                let sure = entry.verdict != Verdict::NoConclusion || entry.who == row.baseline;
                sum.2 += usize::from(sure);
            }
        }
        who.sort_by_key(|who| family(who) as usize);
        let score = |(sum, of, sure): (f64, usize, usize)| Score {
            ratio: (sum / of as f64).exp(),
            of,
            sure,
        };
        let scores = logs.into_iter().map(|(key, sums)| (key, score(sums))).collect();
        Scoreboard { suites, who, scores }
    }

    /// The score of someone in a suite.
    pub fn score(&self, who: &str, suite: &str) -> Option<Score> {
        self.scores.get(&(who.to_string(), suite.to_string())).copied()
    }
}

/// Figures that say the same again, or that the clients bound, do not count.
fn counts(row: &Row) -> bool {
    !row.figure.ends_with(", wall") && !matches!(row.figure.as_str(), "p50" | "p99" | "p99.9")
}

/// Who belongs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// Our loop.
    Core,
    /// Our backends alone.
    Bare,
    /// libuv.
    Libuv,
    /// What is written by hand.
    Hand,
    /// The others.
    Other,
}

/// To which family a contestant belongs.
pub fn family(who: &str) -> Family {
    match who.split([' ', '-']).next() {
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
        let of = ["uv-core epoll", "bare poll", "libuv-lean", "libuv", "hand uring", "mio"];
        let families = of.map(family);
        use Family::*;
        assert_eq!(families, [Core, Bare, Libuv, Libuv, Hand, Other]);
    }
}
