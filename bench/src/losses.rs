//! Where this project loses: every figure in which a contestant of another library, or hand-written
//! code, is better beyond the noise.

use crate::results::{Entry, Results, Row};
use crate::runner::LEAST_ROUNDS;
use crate::scoreboard::{Family, family};
use crate::stats::{self, Spread, Verdict};

/// One of ours against the best of the others.
#[derive(Debug)]
pub struct Loss<'a> {
    /// The figure.
    pub row: &'a Row,
    /// Ours.
    pub ours: &'a Entry,
    /// The best of the others.
    pub best: &'a Entry,
    /// The ratio of ours to it, below 1, by rounds.
    pub ratio: Spread,
}

/// The result of all comparisons with the best of the others.
#[derive(Debug, Default)]
pub struct Losses<'a> {
    /// The losses beyond the noise, the worst first.
    pub losses: Vec<Loss<'a>>,
    /// The number of comparisons.
    pub compared: usize,
    /// The number of those that allow no conclusion.
    pub doubtful: usize,
}

/// The contestants that are compared: what a user would choose, not the backends that are there for
/// old systems.
const OURS: [&str; 6] = [
    "uv-core epoll",
    "uv-core uring",
    "uv-core kqueue",
    "uv-core iocp",
    "uv-async epoll",
    "uv-async uring",
];

impl Losses<'_> {
    /// Compares ours with the best of the others in each figure.
    pub fn of(results: &Results) -> Losses<'_> {
        let mut all = Losses::default();
        // Rates by the wall clock repeat those by CPU time, and the clients limit them.
        for row in results.rows.iter().filter(|row| !row.figure.ends_with(", wall")) {
            // Their registration is an assignment, and their waits cost more with each source.
            let scans = |id: &str| row.suite == "wait" && matches!(id, "hand select" | "hand poll");
            let others = row.entries.iter().filter(|entry| {
                matches!(family(&entry.id), Family::Libuv | Family::Hand | Family::Other)
                    && !scans(&entry.id)
            });
            let Some(best) =
                others.max_by(|one, other| one.ratio.median.total_cmp(&other.ratio.median))
            else {
                continue;
            };
            for ours in row.entries.iter().filter(|entry| OURS.contains(&entry.id.as_str())) {
                let rounds = ours.values.iter().zip(&best.values);
                let ratios: Vec<f64> =
                    rounds.map(|(ours, best)| row.unit.ratio(*ours, *best)).collect();
                let Some(ratio) = Spread::of(&ratios) else { continue };
                all.compared += 1;
                let enough = row.unit.is_exact() || ratios.len() >= LEAST_ROUNDS;
                match stats::judge(ratio, row.again.ratio) {
                    _ if !enough => all.doubtful += 1,
                    Verdict::Behind => all.losses.push(Loss { row, ours, best, ratio }),
                    Verdict::NoConclusion => all.doubtful += 1,
                    Verdict::Ahead | Verdict::Level => {}
                }
            }
        }
        all.losses.sort_by(|one, other| one.ratio.median.total_cmp(&other.ratio.median));
        all
    }
}
