//! Runs scenarios in interleaved rounds.

use std::io;
use std::ops::RangeInclusive;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::hdr::Recorded;
use crate::latencies::Latencies;
use crate::random::Random;
use crate::results::{Distribution, Row};
use crate::suite::{Contestant, ContestantId, Scenario, Suite};

/// The minimum number of rounds for a conclusion.
pub const LEAST_ROUNDS: usize = 7;

/// The number of rounds for deterministic counts: enough to see that they repeat.
const EXACT_ROUNDS: usize = 2;

/// Whether every figure of a scenario is independent of time.
fn is_exact(scenario: &Scenario) -> bool {
    scenario.figures.iter().all(|figure| figure.unit.is_exact())
}

/// The rounds of a scenario; round 0 is the warm-up.
fn rounds(scenario: &Scenario, wanted: usize) -> RangeInclusive<usize> {
    let last = if is_exact(scenario) { EXACT_ROUNDS } else { wanted };
    usize::from(scenario.entrants.warm_up_themselves)..=last
}

/// The numbers below `count`, in an order that differs from round to round and repeats in every
/// run, so that no contestant always runs after the same predecessor.
fn shuffled(count: usize, round: usize) -> Vec<usize> {
    let mut places: Vec<_> = (0..count).collect();
    Random::new(round as u64).shuffle(&mut places);
    places
}

/// Runs scenarios.
#[derive(Debug)]
pub struct Runner {
    /// The number of runs of each contestant in each scenario, after one warm-up run unless the
    /// runs warm up by themselves.
    pub rounds: usize,
    /// The preferred baseline. The fallbacks are libuv, hand-written code (on epoll if possible),
    /// and the first contestant.
    pub baseline: Option<String>,
    progress: Progress,
}

/// The measured values.
#[derive(Debug, Default)]
pub struct Measured {
    /// A row for each figure of each scenario.
    pub rows: Vec<Row>,
    /// Latency distributions, where they were measured.
    pub distributions: Vec<Distribution>,
    /// The whole histograms of these.
    pub recorded: Vec<Recorded>,
    /// Remarks for the report.
    pub notes: Vec<String>,
}

impl Runner {
    /// A runner that shows its progress on the standard error stream, if that is a
    /// terminal.
    pub fn new(rounds: usize, baseline: Option<String>) -> Runner {
        Runner { rounds, baseline, progress: Progress::default() }
    }

    /// A runner that shows nothing.
    pub fn silent(rounds: usize) -> Runner {
        Runner { rounds, baseline: None, progress: Progress::silent() }
    }

    /// Runs all scenarios. Each is dropped after its run, which closes its descriptors.
    ///
    /// # Errors
    ///
    /// The first error of any contestant: times of a failed run are not comparable.
    pub fn run(&self, suites: Vec<Suite>) -> io::Result<Measured> {
        let bars = self.progress.bars(&suites, self.rounds);
        let mut measured = Measured::default();
        for (suite, bar) in suites.into_iter().zip(&bars) {
            for scenario in suite.scenarios {
                self.run_scenario(suite.name, &scenario, bar, &mut measured)?;
            }
            bar.finish_with_message("");
        }
        self.progress.clear();
        Ok(measured)
    }

    fn run_scenario(
        &self,
        suite: &'static str,
        scenario: &Scenario,
        bar: &ProgressBar,
        measured: &mut Measured,
    ) -> io::Result<()> {
        let contestants = &scenario.entrants.contestants;
        let Some(baseline) = self.baseline_of(contestants) else { return Ok(()) };
        // In each round the baseline runs twice, as if it were another contestant: its ratio to
        // itself measures the noise.
        let mut order: Vec<&Contestant> = contestants.iter().collect();
        order.push(&contestants[baseline]);
        let mut values = vec![vec![Vec::new(); order.len()]; scenario.figures.len()];
        let mut latencies = vec![None::<Latencies>; contestants.len()];
        for round in rounds(scenario, self.rounds) {
            for place in shuffled(order.len(), round) {
                let contestant = order[place];
                bar.set_message(format!("{} {}", scenario.name, contestant.id));
                let sample = contestant.run(&scenario.figures)?;
                bar.inc(1);
                for note in sample.notes {
                    let (id, scenario) = (contestant.id, &scenario.name);
                    measured.notes.push(format!("{suite}, {scenario}, {id}: {note}"));
                }
                if round == 0 {
                    continue; // Warm-up.
                }
                if let (Some(new), Some(all)) = (sample.latencies, latencies.get_mut(place)) {
                    all.get_or_insert_default().merge(&new);
                }
                for ((figure, of), reading) in
                    scenario.figures.iter().zip(&mut values).zip(sample.readings)
                {
                    of[place].extend(reading.map(|reading| figure.unit.value(reading)));
                }
            }
        }
        let rows = scenario.figures.iter().zip(values).filter_map(|(figure, mut values)| {
            let again = values.pop()?;
            let entries = contestants.iter().zip(values).filter(|(_, values)| !values.is_empty());
            let entries = entries.map(|(id, values)| (id.id.to_string(), values)).collect();
            let baseline = contestants[baseline].id.to_string();
            Row::new(suite, scenario, figure, (baseline, again), entries)
        });
        measured.rows.extend(rows);
        for (one, latencies) in contestants.iter().zip(latencies) {
            let Some(latencies) = latencies else { continue };
            let distribution = Distribution::new(suite, &scenario.name, one.id, &latencies);
            measured.distributions.push(distribution);
            let (suite, scenario, id) = (suite.into(), scenario.name.clone(), one.id.to_string());
            measured.recorded.push(Recorded { suite, scenario, id, latencies });
        }
        Ok(())
    }

    fn baseline_of(&self, contestants: &[Contestant]) -> Option<usize> {
        let position = |wanted: &dyn Fn(ContestantId) -> bool| {
            contestants.iter().position(|contestant| wanted(contestant.id))
        };
        self.baseline
            .as_ref()
            .and_then(|name| position(&|id| id.to_string() == *name))
            .or_else(|| position(&|id| id == ContestantId::Peer("libuv")))
            .or_else(|| position(&|id| id == ContestantId::Hand("epoll")))
            .or_else(|| position(&|id| matches!(id, ContestantId::Hand(_))))
            .or((!contestants.is_empty()).then_some(0))
    }
}

/// A progress bar for each suite.
///
/// It is drawn between runs only: a drawing thread would add to the CPU time of the
/// running contestant.
#[derive(Debug, Default)]
struct Progress(MultiProgress);

impl Progress {
    fn silent() -> Progress {
        Progress(MultiProgress::with_draw_target(indicatif::ProgressDrawTarget::hidden()))
    }

    fn bars(&self, suites: &[Suite], wanted: usize) -> Vec<ProgressBar> {
        let template = "{prefix:8} {bar:30} {pos:>4}/{len:4} {wide_msg:.dim}";
        let style = ProgressStyle::with_template(template).expect("the template is valid");
        let bar = |suite: &Suite| {
            let runs = suite.scenarios.iter().map(|scenario| {
                let contestants = scenario.entrants.contestants.len();
                (contestants + usize::from(contestants > 0)) * rounds(scenario, wanted).count()
            });
            let bar = self.0.add(ProgressBar::new(runs.sum::<usize>() as u64));
            bar.set_style(style.clone());
            bar.set_prefix(suite.name);
            bar.reset_elapsed();
            bar
        };
        let bars: Vec<_> = suites.iter().map(bar).collect();
        for bar in &bars {
            bar.tick();
        }
        bars
    }

    fn clear(&self) {
        // Clearing the terminal is cosmetic: an error is ignored.
        let _ = self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn everybody_runs_once_in_a_round_after_various_predecessors() {
        let rounds: Vec<_> = (1..=LEAST_ROUNDS).map(|round| shuffled(5, round)).collect();
        for places in &rounds {
            let mut sorted = places.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4]);
        }
        for place in 0..5 {
            let before = |places: &Vec<usize>| {
                let position = places.iter().position(|&other| other == place);
                position.and_then(|position| places.get(position.checked_sub(1)?).copied())
            };
            let predecessors: HashSet<_> = rounds.iter().map(before).collect();
            assert!(predecessors.len() > 2, "{place} runs after {predecessors:?} only");
        }
    }
}
