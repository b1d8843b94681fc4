//! Makes a failing program shorter.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::program::{Program, Step, count};

/// How often a candidate is run: a failure may depend on timing.
const TRIES: usize = 3;

/// No candidate is run after this time: one that hangs takes seconds.
const TIME: Duration = Duration::from_secs(60);

/// Deletes steps, with the steps of their callbacks, and destructors that panic, as long as
/// `fails` is true of what remains.
pub(super) fn shrink(program: &Program, fails: impl Fn(&Program) -> bool) -> Program {
    let began = Instant::now();
    let still_fails =
        |candidate: &Program| (0..TRIES).any(|_| began.elapsed() < TIME && fails(candidate));
    let mut best = program.clone();
    loop {
        let before = (best.len(), best.modes.len());
        let mut at = 0;
        while at < count(&best.steps) {
            // A step as a whole, then its destructor.
            let deleted = Program { steps: edit(&best.steps, at, &|_| None), ..best.clone() };
            if still_fails(&deleted) {
                best = deleted;
                continue;
            }
            let tame = |step: &Step| Some(Step { bomb: false, ..step.clone() });
            let tamed = Program { steps: edit(&best.steps, at, &tame), ..best.clone() };
            if has_bomb(&best.steps) > has_bomb(&tamed.steps) && still_fails(&tamed) {
                best = tamed;
            }
            at += 1;
        }
        let modeless = Program { modes: Vec::new(), ..best.clone() };
        if !best.modes.is_empty() && still_fails(&modeless) {
            best = modeless;
        }
        let unlimited = Program { descriptors: None, ..best.clone() };
        if best.descriptors.is_some() && still_fails(&unlimited) {
            best = unlimited;
        }
        if (best.len(), best.modes.len()) == before {
            return best;
        }
    }
}

fn has_bomb(steps: &[Step]) -> usize {
    steps.iter().map(|step| usize::from(step.bomb) + has_bomb(&step.body)).sum()
}

/// The steps with the one at a position, in depth-first order, replaced or deleted.
fn edit(steps: &[Step], mut at: usize, change: &dyn Fn(&Step) -> Option<Step>) -> Vec<Step> {
    let mut edited = Vec::new();
    for step in steps {
        let inside = count(&step.body);
        match at {
            0 => edited.extend(change(step)),
            _ if at <= inside => {
                let body = Rc::new(edit(&step.body, at - 1, change));
                edited.push(Step { body, ..step.clone() });
            }
            _ => edited.push(step.clone()),
        }
        at = at.checked_sub(inside + 1).unwrap_or(usize::MAX);
    }
    edited
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::program::Verb;

    #[test]
    fn what_is_left_is_needed() {
        let seed = (0..).find(|seed| Program::generate(*seed).has(Verb::Panic)).expect("a seed");
        let program = Program::generate(seed);
        let short = shrink(&program, |candidate| candidate.has(Verb::Panic));
        assert!(short.has(Verb::Panic));
        assert!(short.len() < program.len() && short.len() <= 5, "{short}");
    }
}
