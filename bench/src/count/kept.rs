//! The baseline in the repository, and the comparison with it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::paths::Subject;

/// More than this is a regression: 3 %.
const TOLERANCE: f64 = 0.03;
/// The same if another compiler has built the counted code: 10 %.
const OTHER_COMPILER: f64 = 0.10;
/// Numbers of identical runs that differ by more than this are marked: 1 %.
pub(super) const UNSTEADY: f64 = 0.01;
/// Smaller differences in instructions or system calls per operation are ignored: a part of the
/// start-up does not cancel out.
const NEGLIGIBLE: (f64, f64) = (1.0, 0.02);

/// The cost of one operation. `None` for a number that could not be counted.
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
    /// Whether a number of uv-core is too high.
    pub(super) fn refuses(&self, row: &super::Counted) -> bool {
        let (instructions, calls) = self.compare(&row.key(), row.cost);
        row.subject != Subject::Libuv && [instructions, calls].contains(&Verdict::Worse)
    }

    /// Whether this program was built by another compiler than the counted code.
    pub(super) fn is_of_another_compiler(&self) -> bool {
        !self.compiler.is_empty() && self.compiler != env!("VERSION_OF_RUSTC")
    }

    /// How much more than the kept number is a regression.
    pub(super) fn tolerance(&self) -> f64 {
        if self.is_of_another_compiler() { OTHER_COMPILER } else { TOLERANCE }
    }

    /// Compares both numbers; the first is the verdict on instructions.
    pub(super) fn compare(&self, key: &str, now: Cost) -> (Verdict, Verdict) {
        let kept = self.costs.get(key).copied().unwrap_or_default();
        let tolerance = self.tolerance();
        (
            judge(now.instructions, kept.instructions, NEGLIGIBLE.0, tolerance),
            judge(now.calls, kept.calls, NEGLIGIBLE.1, tolerance),
        )
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

/// Replaces the numbers that were counted in this run, and keeps all others of paths that exist.
///
/// # Errors
///
/// As [`read`], and those of writing.
pub(super) fn accept(
    path: &Path,
    now: &BTreeMap<String, Cost>,
    exists: impl Fn(&str) -> bool,
) -> io::Result<()> {
    let mut all = read_all(path)?;
    let kept = all.entry(std::env::consts::ARCH.into()).or_default();
    kept.compiler = env!("VERSION_OF_RUSTC").into();
    kept.costs.retain(|name, _| exists(name));
    // Adding zero turns a negative one into zero.
    let rounded =
        |value: Option<f64>, unit: f64| value.map(|value| (value * unit).round() / unit + 0.0);
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
    /// Within the tolerance.
    Same,
    /// Less by more than that.
    Better,
    /// More by more than that.
    Worse,
    /// It could not be counted here.
    NotCounted,
}

/// Compares numbers of instructions, or of system calls.
fn judge(now: Option<f64>, kept: Option<f64>, negligible: f64, tolerance: f64) -> Verdict {
    let Some(now) = now else { return Verdict::NotCounted };
    let Some(kept) = kept else { return Verdict::New };
    let difference = now - kept;
    if difference.abs() <= negligible.max(kept * tolerance) {
        Verdict::Same
    } else if difference > 0.0 {
        Verdict::Worse
    } else {
        Verdict::Better
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(instructions: f64, calls: f64) -> Cost {
        Cost { instructions: Some(instructions), calls: Some(calls) }
    }

    fn compare(now: Cost, kept: Cost) -> (Verdict, Verdict) {
        let kept = Kept { compiler: String::new(), costs: [("a".to_string(), kept)].into() };
        kept.compare("a", now)
    }

    #[test]
    fn three_percent_more_is_worse_and_three_percent_less_is_better() {
        let kept = cost(1000.0, 3.0);
        assert_eq!(compare(cost(1030.0, 3.0), kept), (Verdict::Same, Verdict::Same));
        assert_eq!(compare(cost(1031.0, 4.0), kept), (Verdict::Worse, Verdict::Worse));
        assert_eq!(compare(cost(969.0, 2.0), kept), (Verdict::Better, Verdict::Better));
        assert_eq!(compare(cost(1.0, 1.0), Cost::default()), (Verdict::New, Verdict::New));
        let nothing = (Verdict::NotCounted, Verdict::NotCounted);
        assert_eq!(compare(Cost::default(), kept), nothing);
    }

    #[test]
    fn a_fraction_of_an_instruction_is_no_regression() {
        let kept = cost(10.0, 0.0);
        assert_eq!(compare(cost(10.9, 0.01), kept), (Verdict::Same, Verdict::Same));
        assert_eq!(compare(cost(12.0, 1.0), kept), (Verdict::Worse, Verdict::Worse));
    }

    #[test]
    fn another_compiler_may_differ_by_more() {
        let costs = [("a".to_string(), cost(1000.0, 3.0))].into();
        let kept = Kept { compiler: "rustc 1.0.0".into(), costs };
        assert_eq!(kept.compare("a", cost(1090.0, 3.0)).0, Verdict::Same);
        assert_eq!(kept.compare("a", cost(1110.0, 3.0)).0, Verdict::Worse);
        assert_eq!(kept.compare("b", cost(1.0, 3.0)).0, Verdict::New);
    }
}
