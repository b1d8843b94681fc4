//! Runs scenarios in interleaved rounds.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::hdr::Recorded;
use crate::latencies::Latencies;
use crate::plan::{Plan, Timing};
use crate::random::Random;
use crate::results::{Distribution, Row};
use crate::suite::{Contestant, ContestantId, Sample, Scenario, Suite};

/// The minimum number of rounds for a conclusion.
pub const LEAST_ROUNDS: usize = 7;

/// The number of rounds for deterministic counts: enough to see that they repeat.
const EXACT_ROUNDS: usize = 2;

/// Whether every figure of a scenario is independent of time.
pub(crate) fn is_exact(scenario: &Scenario) -> bool {
    scenario.figures.iter().all(|figure| figure.unit.is_exact())
}

/// The rounds of a scenario; round 0 is the warm-up.
pub(crate) fn rounds(scenario: &Scenario, wanted: usize) -> RangeInclusive<usize> {
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

/// The time since the start of a run.
type Clock = Box<dyn Fn() -> Duration>;

/// Runs scenarios.
pub struct Runner {
    /// The number of runs of each contestant in each scenario, after one warm-up run unless the
    /// runs warm up by themselves.
    pub rounds: usize,
    /// The time of the whole run: scenarios that take longer than their share of it run fewer
    /// rounds.
    pub budget: Option<Duration>,
    /// Whether the scenarios are those of a full run, for the division of the time.
    pub large: bool,
    /// The preferred baseline. The fallbacks are libuv, hand-written code (on epoll if possible),
    /// tokio where there are only futures, and the first contestant.
    pub baseline: Option<String>,
    progress: Progress,
    clock: Clock,
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Runner { rounds, budget, large, baseline, .. } = self;
        let mut all = f.debug_struct("Runner");
        all.field("rounds", rounds).field("budget", budget).field("large", large);
        all.field("baseline", baseline);
        all.finish_non_exhaustive()
    }
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
    /// The rounds and the time of each scenario.
    pub timings: Vec<Timing>,
}

impl Runner {
    /// A runner that shows its progress on the standard error stream, if that is a
    /// terminal.
    pub fn new(rounds: usize, baseline: Option<String>) -> Runner {
        Runner { baseline, progress: Progress::default(), ..Runner::silent(rounds) }
    }

    /// A runner that shows nothing.
    pub fn silent(rounds: usize) -> Runner {
        let begun = Instant::now();
        let (progress, clock) = (Progress::silent(), Box::new(move || begun.elapsed()));
        Runner { rounds, budget: None, large: false, baseline: None, progress, clock }
    }

    /// Runs all scenarios. Each is dropped after its run, which closes its descriptors.
    ///
    /// # Errors
    ///
    /// The first error of any contestant: times of a failed run are not comparable.
    pub fn run(&self, suites: Vec<Suite>) -> io::Result<Measured> {
        let bars = self.progress.bars(&suites, self.rounds);
        let begun = (self.clock)();
        let mut plan = Plan::new(self.budget, &suites, self.rounds, self.large);
        let mut measured = Measured::default();
        for (suite, bar) in suites.into_iter().zip(&bars) {
            for scenario in suite.scenarios {
                let Some(baseline) = self.baseline_of(&scenario.entrants.contestants) else {
                    continue;
                };
                let now = || (self.clock)().saturating_sub(begun);
                let share = plan.begin(suite.name, &scenario, now());
                let mut rounds = Rounds::new(&scenario, baseline);
                let mut round = share.first();
                loop {
                    rounds.run(round, bar)?;
                    if !share.goes_on(round, now()) {
                        break;
                    }
                    round += 1;
                }
                measured.timings.push(share.timing(suite.name, &scenario.name, round, now()));
                rounds.evaluate(suite.name, &mut measured);
            }
            bar.finish_with_message("");
        }
        self.progress.clear();
        Ok(measured)
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
            .or_else(|| position(&|id| id == ContestantId::Peer("tokio")))
            .or((!contestants.is_empty()).then_some(0))
    }
}

/// The rounds of one scenario.
struct Rounds<'a> {
    scenario: &'a Scenario,
    baseline: usize,
    /// Who runs in a round. The baseline runs twice, as if it were another contestant: its ratio to
    /// itself measures the noise.
    order: Vec<&'a Contestant>,
    /// By figure and place in the order.
    values: Vec<Vec<Vec<f64>>>,
    latencies: Vec<Option<Latencies>>,
    notes: Vec<String>,
}

impl<'a> Rounds<'a> {
    fn new(scenario: &'a Scenario, baseline: usize) -> Rounds<'a> {
        let contestants = &scenario.entrants.contestants;
        let order: Vec<_> = contestants.iter().chain([&contestants[baseline]]).collect();
        let values = vec![vec![Vec::new(); order.len()]; scenario.figures.len()];
        let latencies = vec![None; contestants.len()];
        Rounds { scenario, baseline, order, values, latencies, notes: Vec::new() }
    }

    /// Runs every contestant once; round 0 is the warm-up.
    fn run(&mut self, round: usize, bar: &ProgressBar) -> io::Result<()> {
        let scenario = self.scenario;
        for place in shuffled(self.order.len(), round) {
            let contestant = self.order[place];
            bar.set_message(format!("{} {}", scenario.name, contestant.id));
            let sample = contestant.run(&scenario.figures)?;
            bar.inc(1);
            let named = |note| format!("{}, {}: {note}", scenario.name, contestant.id);
            self.notes.extend(sample.notes.iter().map(named));
            if round > 0 {
                self.keep(place, sample);
            }
        }
        Ok(())
    }

    fn keep(&mut self, place: usize, sample: Sample) {
        if let (Some(new), Some(all)) = (sample.latencies, self.latencies.get_mut(place)) {
            all.get_or_insert_default().merge(&new);
        }
        let figures = self.scenario.figures.iter().zip(&mut self.values);
        for ((figure, of), reading) in figures.zip(sample.readings) {
            of[place].extend(reading.map(|reading| figure.unit.value(reading)));
        }
    }

    /// Adds the rows and the latencies.
    fn evaluate(self, suite: &'static str, measured: &mut Measured) {
        let Rounds { scenario, baseline, values, .. } = self;
        let contestants = &scenario.entrants.contestants;
        let rows = scenario.figures.iter().zip(values).filter_map(|(figure, mut values)| {
            let again = values.pop()?;
            let entries = contestants.iter().zip(values).filter(|(_, values)| !values.is_empty());
            let entries = entries.map(|(id, values)| (id.id.to_string(), values)).collect();
            let baseline = contestants[baseline].id.to_string();
            Row::new(suite, scenario, figure, (baseline, again), entries)
        });
        measured.rows.extend(rows);
        measured.notes.extend(self.notes.into_iter().map(|note| format!("{suite}, {note}")));
        for (one, latencies) in contestants.iter().zip(self.latencies) {
            let Some(latencies) = latencies else { continue };
            let distribution = Distribution::new(suite, &scenario.name, one.id, &latencies);
            measured.distributions.push(distribution);
            let (suite, scenario, id) = (suite.into(), scenario.name.clone(), one.id.to_string());
            measured.recorded.push(Recorded { suite, scenario, id, latencies });
        }
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
    use crate::clock::Spent;
    use crate::plan::FEW_ROUNDS;
    use crate::stats::Verdict;
    use crate::suite::{Count, Entrants, Figure, Reading, Unit};
    use std::cell::Cell;
    use std::collections::HashSet;
    use std::rc::Rc;

    /// A scenario of three contestants whose runs take that long by a clock that only they move.
    fn scenario(name: &str, each: Duration, clock: &Rc<Cell<Duration>>) -> Scenario {
        let mut entrants = Entrants::default();
        for (place, id) in ["one", "two", "three"].into_iter().enumerate() {
            let clock = Rc::clone(clock);
            entrants.enter(ContestantId::Peer(id), move || {
                clock.set(clock.get() + each);
                // The first is half as fast as the others, and nothing is noisy.
                let wall = Duration::from_millis(if place == 0 { 2 } else { 1 });
                Ok(Sample::new([Reading { count: 1, spent: Spent { wall, ..Spent::default() } }]))
            });
        }
        let (unit, count) = (Unit::WallTimeEach, Count::Exactly(1));
        let figures = vec![Figure { name: "time", about: "", unit, count }];
        Scenario { name: name.into(), parameter: None, figures, entrants }
    }

    /// Runs scenarios whose runs take so many milliseconds.
    fn run(budget: Option<u64>, rounds: usize, each: &[u64]) -> (Measured, Duration) {
        let clock = Rc::new(Cell::new(Duration::from_secs(5)));
        let scenarios = each.iter().enumerate().map(|(number, each)| {
            scenario(&number.to_string(), Duration::from_millis(*each), &clock)
        });
        let suite = Suite { name: "fake", about: "", scenarios: scenarios.collect() };
        let begun = clock.get();
        let now = Rc::clone(&clock);
        let runner = Runner {
            budget: budget.map(Duration::from_millis),
            clock: Box::new(move || now.get()),
            ..Runner::silent(rounds)
        };
        let measured = runner.run(vec![suite]).unwrap();
        (measured, clock.get() - begun)
    }

    fn rounds_of(measured: &Measured) -> Vec<usize> {
        measured.timings.iter().map(|timing| timing.rounds).collect()
    }

    #[test]
    fn without_a_budget_every_round_is_run() {
        let (measured, _) = run(None, 9, &[1, 1_000]);
        assert_eq!(rounds_of(&measured), [9, 9]);
    }

    /// Four runs in a round, and a warm-up round: 32 runs of seven rounds.
    #[test]
    fn a_budget_that_is_enough_changes_nothing() {
        let (measured, took) = run(Some(2 * 32 * 10), 7, &[10, 10]);
        assert_eq!(rounds_of(&measured), [7, 7]);
        assert_eq!(took, Duration::from_millis(2 * 32 * 10));
        assert!(measured.timings.iter().all(|timing| timing.enough));
    }

    #[test]
    fn a_run_keeps_to_its_budget_and_says_what_was_short() {
        // The second needs twice its share.
        let (measured, took) = run(Some(4 * 32 * 10), 7, &[10, 20, 2, 2]);
        assert_eq!(rounds_of(&measured), [7, FEW_ROUNDS, 7, 7]);
        let enough: Vec<_> = measured.timings.iter().map(|timing| timing.enough).collect();
        assert_eq!(enough, [true, false, true, true]);
        assert!(took < Duration::from_millis(4 * 32 * 10), "{took:?}");
        let verdicts: Vec<_> = measured.rows.iter().map(|row| row.entries[1].verdict).collect();
        use Verdict::{Ahead, NoConclusion};
        assert_eq!(verdicts, [Ahead, NoConclusion, Ahead, Ahead]);
    }

    #[test]
    fn what_one_leaves_the_later_ones_have() {
        let (measured, took) = run(Some(1_000), 100, &[1, 2, 2]);
        let rounds = rounds_of(&measured);
        // A third each; the first leaves nothing, since it may run a hundred rounds.
        assert!((70..=85).contains(&rounds[0]), "{rounds:?}");
        assert!(rounds[1..].iter().all(|count| (35..=45).contains(count)), "{rounds:?}");
        assert!((950..=1_000).contains(&took.as_millis()), "{took:?}");
        let (measured, _) = run(Some(1_100), 10, &[1, 30]);
        assert_eq!(rounds_of(&measured), [10, 7]);
    }

    #[test]
    fn without_any_time_there_is_one_round() {
        let (measured, _) = run(Some(0), 7, &[10, 10]);
        assert_eq!(rounds_of(&measured), [1; 2]);
        assert_eq!(measured.rows[0].entries[0].values.len(), 1);
        assert!(measured.timings.iter().all(|timing| !timing.enough));
    }

    /// A machine that is slower than any plan: what the first takes too much, the others lack.
    #[test]
    fn a_slow_machine_has_fewer_rounds_and_not_more_time() {
        let (measured, took) = run(Some(1_000), 7, &[100, 5, 5, 5, 5, 5, 5, 5]);
        assert_eq!(rounds_of(&measured)[0], 1);
        assert!(took <= Duration::from_millis(1_200), "{took:?}");
        let (measured, took) = run(Some(1_000), 7, &[20; 8]);
        assert_eq!(rounds_of(&measured), [1; 8]);
        // A warm-up and a round of each: four runs of 20 ms.
        assert_eq!(took, Duration::from_millis(8 * 2 * 4 * 20));
    }

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
