//! Median, confidence interval and verdict of noisy values.

use serde::{Deserialize, Serialize};

/// A ratio within 5 % of 1 is level.
pub const LEVEL: f64 = 0.05;

/// A median and its confidence interval at the 95 % level.
///
/// The interval is that of the sign test, which assumes no distribution of the noise: its ends are
/// two of the sorted values. For up to eight values they are the minimum and the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

impl Spread {
    /// Computes the spread; `None` without values.
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

    /// The largest distance of the interval's ends from the median, relative to it.
    pub fn relative(&self) -> f64 {
        (self.high - self.median).max(self.median - self.low) / self.median
    }
}

/// The number of values to cut at each end for a confidence of at least 95 %.
fn outliers(count: usize) -> usize {
    // The probability that at most `cut` of `count` values are on one side of the median.
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

/// The verdict on a ratio to the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Better than the baseline by more than the baseline differs from itself.
    Ahead,
    /// The whole interval is within 5 %.
    Level,
    /// Worse than the baseline by more than the baseline differs from itself.
    Behind,
    /// The spread is too wide for a conclusion.
    NoConclusion,
}

/// Compares a ratio (above 1 is better) with the ratio of the baseline to itself.
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

    /// Values from published tables of the sign test.
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
