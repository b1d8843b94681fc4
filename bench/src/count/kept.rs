//! The baseline in the repository, and the comparison with it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// More than this is a regression: 3 %.
pub(super) const TOLERANCE: f64 = 0.03;
/// Identical runs that differ by more than this allow no comparison: 1 %.
pub(super) const UNSTABLE: f64 = 0.01;
/// Smaller differences in instructions or system calls per operation are ignored: a part of the
/// start-up does not cancel out.
const NEGLIGIBLE: (f64, f64) = (1.0, 0.02);

/// The cost of one operation. `None` for a number that does not repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Cost {
    pub(super) instructions: Option<f64>,
    pub(super) calls: Option<f64>,
}

/// The numbers of one architecture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The compiler of the counted code: another one generates other code.
    pub(super) compiler: String,
    /// By path and subject: `echo-write/epoll`.
    pub(super) costs: BTreeMap<String, Cost>,
}

impl Kept {
    /// Whether the kept numbers are those that were counted, within what identical runs differ by:
    /// they are then as good as another run.
    pub(super) fn confirms(&self, row: &super::Counted) -> bool {
        let Some(kept) = self.costs.get(&row.key()) else { return false };
        let same = |now: f64, kept: Option<f64>, negligible: f64| {
            kept.is_some_and(|kept| (now - kept).abs() <= negligible.max(kept * UNSTABLE))
        };
        let (instructions, calls) = row.measured;
        same(instructions, kept.instructions, NEGLIGIBLE.0)
            && calls.is_none_or(|calls| same(calls, kept.calls, NEGLIGIBLE.1))
    }
}

/// The file: the numbers by architecture.
type File = BTreeMap<String, Kept>;

fn read_all(path: &Path) -> io::Result<File> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(File::new()),
        Err(error) => return Err(named(path, &error)),
    };
    serde_json::from_str(&text).map_err(|error| named(path, &error.into()))
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The numbers of this architecture: empty without a file, or without an entry in it.
///
/// # Errors
///
/// Those of reading, and `InvalidData` for a file of another format.
pub(super) fn read(path: &Path) -> io::Result<Kept> {
    Ok(read_all(path)?.remove(std::env::consts::ARCH).unwrap_or_default())
}

/// Replaces the numbers that were counted in this run, and keeps all others.
///
/// # Errors
///
/// As [`read`], and those of writing.
pub(super) fn accept(path: &Path, now: &BTreeMap<String, Cost>) -> io::Result<()> {
    let mut all = read_all(path)?;
    let kept = all.entry(std::env::consts::ARCH.into()).or_default();
    kept.compiler = env!("VERSION_OF_RUSTC").into();
    let rounded = |value: Option<f64>, unit: f64| value.map(|value| (value * unit).round() / unit);
    for (name, cost) in now {
        let (instructions, calls) = (rounded(cost.instructions, 10.0), rounded(cost.calls, 100.0));
        kept.costs.insert(name.clone(), Cost { instructions, calls });
    }
    let mut text = serde_json::to_string_pretty(&all)?;
    text.push('\n');
    std::fs::write(path, text).map_err(|error| named(path, &error))
}

/// The verdict of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The baseline has no number to compare with.
    New,
    /// Within 3 %.
    Same,
    /// Less by more than 3 %.
    Better,
    /// More by more than 3 %.
    Worse,
    /// The number does not repeat.
    Unstable,
}

/// Compares numbers of instructions, or of system calls.
fn judge(now: Option<f64>, kept: Option<f64>, negligible: f64) -> Verdict {
    let Some(now) = now else { return Verdict::Unstable };
    let Some(kept) = kept else { return Verdict::New };
    let difference = now - kept;
    if difference.abs() <= negligible.max(kept * TOLERANCE) {
        Verdict::Same
    } else if difference > 0.0 {
        Verdict::Worse
    } else {
        Verdict::Better
    }
}

/// Compares both numbers; the first is the verdict on instructions.
pub(super) fn compare(now: Cost, kept: Option<Cost>) -> (Verdict, Verdict) {
    let kept = kept.unwrap_or_default();
    (
        judge(now.instructions, kept.instructions, NEGLIGIBLE.0),
        judge(now.calls, kept.calls, NEGLIGIBLE.1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(instructions: f64, calls: f64) -> Cost {
        Cost { instructions: Some(instructions), calls: Some(calls) }
    }

    #[test]
    fn three_percent_more_is_worse_and_three_percent_less_is_better() {
        let kept = Some(cost(1000.0, 3.0));
        assert_eq!(compare(cost(1030.0, 3.0), kept), (Verdict::Same, Verdict::Same));
        assert_eq!(compare(cost(1031.0, 4.0), kept), (Verdict::Worse, Verdict::Worse));
        assert_eq!(compare(cost(969.0, 2.0), kept), (Verdict::Better, Verdict::Better));
        assert_eq!(compare(cost(1.0, 1.0), None), (Verdict::New, Verdict::New));
        assert_eq!(compare(Cost::default(), kept), (Verdict::Unstable, Verdict::Unstable));
    }

    #[test]
    fn a_fraction_of_an_instruction_is_no_regression() {
        let kept = Some(cost(10.0, 0.0));
        assert_eq!(compare(cost(10.9, 0.01), kept), (Verdict::Same, Verdict::Same));
        assert_eq!(compare(cost(12.0, 1.0), kept), (Verdict::Worse, Verdict::Worse));
    }
}
