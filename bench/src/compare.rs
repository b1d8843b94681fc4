//! The comparison of two results.

use std::io::{self, Write};

use console::Style as Paint;

use crate::report::{Style, times, value};
use crate::results::{Entry, Results, Row};
use crate::stats::LEVEL;

/// A figure of a contestant in two results.
#[derive(Debug)]
pub struct Change<'a> {
    /// The newer row.
    pub row: &'a Row,
    /// The contestant before.
    pub old: &'a Entry,
    /// The contestant now.
    pub new: &'a Entry,
    /// The ratio of the new to the old value; above 1 is better.
    pub times: f64,
    /// Whether the change exceeds the noise.
    pub counts: bool,
}

/// Compares all figures that both results have.
///
/// Ratios to the baseline are compared, not values, which cancels out the speed of the machine.
/// The baseline itself is not compared. A change counts if the two spreads do not overlap, and it
/// is larger than 5 % and than the noise of both baselines.
pub fn changes<'a>(old: &'a Results, new: &'a Results) -> Vec<Change<'a>> {
    let mut changes = Vec::new();
    for row in &new.rows {
        let same = |other: &&Row| {
            other.suite == row.suite
                && other.scenario == row.scenario
                && other.figure == row.figure
                && other.baseline == row.baseline
        };
        let Some(before) = old.rows.iter().find(same) else { continue };
        for entry in row.entries.iter().filter(|entry| entry.id != row.baseline) {
            let Some(old) = before.entries.iter().find(|old| old.id == entry.id) else {
                continue;
            };
            let times = entry.ratio.median / old.ratio.median;
            let apart = entry.ratio.low > old.ratio.high || entry.ratio.high < old.ratio.low;
            let (size, noise) = (times.ln().abs(), noise(before).max(noise(row)));
            let counts = apart && size > noise.max(LEVEL);
            changes.push(Change { row, old, new: entry, times, counts });
        }
    }
    changes
}

/// The noise: the distance of the baseline's ratio to itself from 1, as a logarithm.
fn noise(row: &Row) -> f64 {
    row.again.ratio.low.ln().abs().max(row.again.ratio.high.ln().abs())
}

/// Writes the changes; returns whether any figure got worse.
///
/// # Errors
///
/// Those of writing, and `InvalidInput` if the two have nothing in common.
pub fn write(old: &Results, new: &Results, style: Style, out: &mut dyn Write) -> io::Result<bool> {
    let changes = changes(old, new);
    if changes.is_empty() {
        let why = "the two results share no scenario with the same baseline and contestants: measure both alike";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    if old.machine.processor != new.machine.processor || old.machine.system != new.machine.system {
        writeln!(out, "The results are from different machines; only ratios are compared.")?;
    }
    if old.settings.scale != new.settings.scale {
        let (old, new) = (&old.settings.scale, &new.settings.scale);
        writeln!(out, "The old results are of a {old} run, the new ones of a {new} run.")?;
    }
    let counting: Vec<_> = changes.iter().filter(|change| change.counts).collect();
    for change in &counting {
        let Change { row, old, new, .. } = change;
        let worse = change.times < 1.0;
        let paint = if worse { Paint::new().red() } else { Paint::new().green() };
        let word = if worse { "worse " } else { "better" };
        let what = format!("{}: {}, {}", row.suite, row.figure, row.scenario);
        let (before, now) = (value(old.value.median, row.unit), value(new.value.median, row.unit));
        writeln!(
            out,
            "{} {what:<40} {:<16} {} ▸ {} of {} ({before} ▸ {now})",
            style.paint(paint, &format!("{word} {:>6}", times(change.times))),
            new.id,
            times(old.ratio.median),
            times(new.ratio.median),
            row.baseline,
        )?;
    }
    let (counted, all) = (counting.len(), changes.len());
    writeln!(out, "{counted} of {all} comparisons changed beyond the noise")?;
    Ok(counting.iter().any(|change| change.times < 1.0))
}
