//! From a handful of noisy numbers to a statement, or to the lack of one.

use serde::{Deserialize, Serialize};

/// Within this of 1, a ratio is level: 5 %.
pub const LEVEL: f64 = 0.05;

/// A median, and the interval that holds the true one in at least 95 of 100 such runs.
///
/// The interval is that of the sign test, which assumes nothing about how the noise is
/// distributed: it runs from one of the sorted values to another. Up to eight values,
/// from the least to the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Half of the values are below, half above.
    pub median: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Spread {
    /// Of these values; `None` of none.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let (&least, &greatest) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            (sorted[middle - 1] + sorted[middle]) / 2.0
        };
        let cut = outliers(sorted.len());
        debug_assert!(least <= greatest);
        Some(Spread { median, low: sorted[cut], high: sorted[sorted.len() - 1 - cut] })
    }

    /// How far the interval reaches from the median, relative to it.
    pub fn relative(&self) -> f64 {
        (self.high - self.median).max(self.median - self.low) / self.median
    }
}

/// How many values may be left out at each end for the interval to hold the true median
/// in 95 of 100 runs.
fn outliers(count: usize) -> usize {
    // The chance that at most `cut` of `count` values fall on one side of the median.
    let (mut term, mut tail, mut cut) = (0.5_f64.powi(count as i32), 0.0, 0);
    for index in 0..count / 2 {
        tail += term;
        if 2.0 * tail > 0.05 {
            break;
        }
        cut = index;
        term *= (count - index) as f64 / (index + 1) as f64;
    }
    cut
}

/// What a ratio to the baseline means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Better than the baseline by more than the baseline differs from itself.
    Ahead,
    /// Within 5 %, and surely so.
    Level,
    /// Worse than the baseline by more than the baseline differs from itself.
    Behind,
    /// The spread is too wide to tell.
    NoConclusion,
}

/// Judges a ratio, above 1 being better, by the ratio of the baseline to itself.
pub fn judge(ratio: Spread, noise: Spread) -> Verdict {
    if ratio.low > noise.high.max(1.0) {
        Verdict::Ahead
    } else if ratio.high < noise.low.min(1.0) {
        Verdict::Behind
    } else if ratio.low > 1.0 - LEVEL && ratio.high < 1.0 + LEVEL {
        Verdict::Level
    } else {
        Verdict::NoConclusion
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(low: f64, median: f64, high: f64) -> Spread {
        Spread { median, low, high }
    }

    #[test]
    fn few_values_leave_no_outlier_out() {
        let seven = [7.0, 1.0, 6.0, 2.0, 5.0, 3.0, 4.0];
        assert_eq!(Spread::of(&seven), Some(spread(1.0, 4.0, 7.0)));
        assert_eq!(Spread::of(&[1.0, 2.0]), Some(spread(1.0, 1.5, 2.0)));
        assert_eq!(Spread::of(&[]), None);
    }

    /// As tables of the sign test have it.
    #[test]
    fn more_values_leave_some_out() {
        let cuts = [(6, 0), (8, 0), (9, 1), (11, 1), (12, 2), (15, 3), (20, 5), (25, 7)];
        for (count, cut) in cuts {
            assert_eq!(outliers(count), cut, "of {count}");
        }
    }

    #[test]
    fn a_ratio_must_leave_the_noise_to_count() {
        let noise = spread(0.9, 1.0, 1.2);
        assert_eq!(judge(spread(1.3, 1.5, 1.6), noise), Verdict::Ahead);
        assert_eq!(judge(spread(1.1, 1.5, 1.6), noise), Verdict::NoConclusion);
        assert_eq!(judge(spread(0.5, 0.6, 0.8), noise), Verdict::Behind);
        assert_eq!(judge(spread(0.96, 0.99, 1.04), noise), Verdict::Level);
    }
}
