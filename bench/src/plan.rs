//! Divides the time of a run among its scenarios.
//!
//! A run has a budget, and each scenario a share of what is left of it, by the number of its
//! contestants and what a run of its suite usually takes. What a scenario leaves goes to the later
//! ones, and what it takes too much they have to do without. A scenario runs all of its rounds if its
//! share is enough; if it is not even enough for a conclusion, it runs as many as fit into it up to a
//! few that give a value, and at least one, so that the others keep their time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::runner::{LEAST_ROUNDS, is_exact, rounds};
use crate::suite::{Scenario, Suite};

/// The most rounds of a scenario whose time is too short for a conclusion: a median needs three.
pub const FEW_ROUNDS: usize = 3;

/// The time of a quick run.
pub const QUICK: Duration = Duration::from_secs(60);
/// The time of a full run.
pub const FULL: Duration = Duration::from_secs(20 * 60);

/// The time that a scenario was given, and the time that it has used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// The suite.
    pub suite: String,
    /// The scenario.
    pub scenario: String,
    /// The rounds that were run, without a warm-up.
    pub rounds: usize,
    /// Whether they were enough for a conclusion.
    pub enough: bool,
    /// The duration in seconds.
    pub seconds: f64,
}

/// The time of a run, and what is left of it.
#[derive(Debug)]
pub struct Plan {
    budget: Option<Duration>,
    /// The weight of the scenarios that have not begun.
    weight: u64,
    wanted: usize,
    large: bool,
}

impl Plan {
    /// Plans to run all scenarios, each with `wanted` rounds; fewer where the budget needs it.
    /// `large` ones are those of a full run.
    pub fn new(budget: Option<Duration>, suites: &[Suite], wanted: usize, large: bool) -> Plan {
        let scenarios = |suite: &Suite| {
            let of = suite.scenarios.iter();
            of.map(|scenario| weight(suite.name, scenario, wanted, large)).sum::<u64>()
        };
        Plan { budget, weight: suites.iter().map(scenarios).sum(), wanted, large }
    }

    /// Begins the next scenario, at that time since the start of the run.
    pub fn begin(&mut self, suite: &str, scenario: &Scenario, now: Duration) -> Share {
        let weight = weight(suite, scenario, self.wanted, self.large);
        let of_the_rest = weight as f64 / self.weight.max(1) as f64;
        self.weight = self.weight.saturating_sub(weight);
        let left = self.budget.map(|budget| budget.saturating_sub(now));
        Share {
            time: left.map(|left| left.mul_f64(of_the_rest.min(1.0))),
            begun: now,
            rounds: rounds(scenario, self.wanted),
            is_exact: is_exact(scenario),
        }
    }
}

/// The time and the rounds of one scenario.
#[derive(Clone, Debug)]
pub struct Share {
    time: Option<Duration>,
    begun: Duration,
    rounds: std::ops::RangeInclusive<usize>,
    is_exact: bool,
}

impl Share {
    /// The number of the first round; 0 is a warm-up.
    pub fn first(&self) -> usize {
        *self.rounds.start()
    }

    /// Whether another round is to be run after `last`, at that time since the start of the run.
    pub fn goes_on(&self, last: usize, now: Duration) -> bool {
        let wanted = *self.rounds.end();
        let Some(time) = self.time else { return last < wanted };
        if last >= wanted || last == 0 {
            return last < wanted;
        }
        let spent = now.saturating_sub(self.begun);
        let ran = (last + 1 - self.first()) as f64;
        let fits = |rounds: usize, margin: f64| {
            spent + spent.mul_f64(rounds as f64 / ran) <= time.mul_f64(margin)
        };
        // All that a conclusion needs: fewer of those would be in vain.
        let conclusion = if self.is_exact { wanted } else { LEAST_ROUNDS.min(wanted) };
        match conclusion.saturating_sub(last) {
            0 => fits(1, 1.0),
            // A scenario that has gone beyond the few rounds is not given up for a late round.
            missing if last > FEW_ROUNDS => fits(missing, 1.3),
            missing => fits(missing, 1.0) || last < FEW_ROUNDS && fits(1, 1.0),
        }
    }

    /// The time that the scenario has used when `last` was its last round.
    pub fn timing(&self, suite: &str, scenario: &str, last: usize, now: Duration) -> Timing {
        Timing {
            suite: suite.into(),
            scenario: scenario.into(),
            rounds: last,
            enough: self.is_exact || last >= LEAST_ROUNDS.min(*self.rounds.end()),
            seconds: now.saturating_sub(self.begun).as_secs_f64(),
        }
    }
}

/// The weight of a scenario: its runs, and what one of them usually takes.
fn weight(suite: &str, scenario: &Scenario, wanted: usize, large: bool) -> u64 {
    let contestants = scenario.entrants.contestants.len() as u64;
    let runs = (contestants + contestants.min(1)) * rounds(scenario, wanted).count() as u64;
    runs * if large { usual_ms_of_large(suite) } else { usual_ms(suite) }
}

/// About the milliseconds of a run. Only their proportions matter.
fn usual_ms(suite: &str) -> u64 {
    match suite {
        "instructions" => 900,
        "echo" | "iterations" | "memory" | "mixed" | "open" | "pump" | "spawn" => 80,
        "calls" | "udp" => 25,
        "files" | "reads" => 15,
        _ => 50,
    }
}

/// The same of a full run, in which some suites have far more to do than others.
fn usual_ms_of_large(suite: &str) -> u64 {
    match suite {
        "timers" => 1_500,
        "instructions" => 500,
        "pump" => 400,
        "spawn" => 240,
        "open" | "iterations" | "tasks" => 110,
        "echo" | "mixed" | "pool" | "calls" => 80,
        "reads" | "files" | "wait" => 35,
        _ => 55,
    }
}
