//! Median, confidence interval and verdict of noisy values.

use serde::{Deserialize, Serialize};

use crate::random::Random;

/// A ratio within 5 % of 1 is level.
pub const LEVEL: f64 = 0.05;
/// The largest difference that is none, however narrow the interval is.
const SAME: f64 = 0.005;

/// The number of resamples of a bootstrap.
const RESAMPLES: usize = 1_000;
/// The level of a bootstrap interval. Intervals of few values are too narrow: at this level, one of
/// seven values holds the true median in 98 of 100 cases, and one at 95 % in 88.
const LEVEL_OF_INTERVAL: f64 = 0.99;

/// A median and its confidence interval.
///
/// The interval is a percentile bootstrap: the values are drawn again with replacement, many times,
/// and the interval holds 99 % of the medians. It assumes no distribution of the noise. The draws
/// are the same in each run, so that the same values have the same interval.
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
        let median = median_of(&mut sorted)?;
        if sorted.len() == 1 {
            return Some(Spread { median, low: median, high: median });
        }
        let mut random = Random::new(sorted.len() as u64);
        let mut drawn = vec![0.0; sorted.len()];
        Spread::of_resamples(median, RESAMPLES, || {
            resample(&sorted, &mut drawn, &mut random);
            median_of(&mut drawn).unwrap_or(median)
        })
    }

    /// The interval that holds 99 % of resampled values.
    pub(crate) fn of_resamples(
        median: f64,
        count: usize,
        resample: impl FnMut() -> f64,
    ) -> Option<Spread> {
        let mut all: Vec<f64> = std::iter::repeat_with(resample).take(count).collect();
        all.sort_unstable_by(f64::total_cmp);
        let cut = ((1.0 - LEVEL_OF_INTERVAL) / 2.0 * count as f64) as usize;
        let (low, high) = (*all.get(cut)?, *all.get(count - 1 - cut)?);
        Some(Spread { median, low, high })
    }

    /// The largest distance of the interval's ends from the median, relative to it.
    pub fn relative(&self) -> f64 {
        (self.high - self.median).max(self.median - self.low) / self.median
    }
}

/// The median; sorts the values.
pub(crate) fn median_of(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

/// Draws as many values as there are, with replacement.
pub(crate) fn resample(values: &[f64], drawn: &mut [f64], random: &mut Random) {
    for place in drawn {
        // The high bits are the better ones.
        *place = values[(random.draw() >> 32) as usize % values.len()];
    }
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
///
/// A difference of less than half a percent is none, however sure it is: counts of calls differ so
/// much by those of the start.
pub fn judge(ratio: Spread, noise: Spread) -> Verdict {
    let is_level = ratio.low > 1.0 - LEVEL && ratio.high < 1.0 + LEVEL;
    if is_level && (ratio.median - 1.0).abs() < SAME {
        Verdict::Level
    } else if ratio.low > noise.high.max(1.0) {
        Verdict::Ahead
    } else if ratio.high < noise.low.min(1.0) {
        Verdict::Behind
    } else if is_level {
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

    /// Samples of a known distribution, whose median is 0.5.
    #[test]
    fn an_interval_holds_the_true_median_nearly_always() {
        let mut random = Random::new(1);
        for count in [7, 15, 30] {
            let mut held = 0;
            for _ in 0..200 {
                let values: Vec<f64> = (0..count)
                    .map(|_| (random.draw() >> 11) as f64 / (1_u64 << 53) as f64)
                    .collect();
                let spread = Spread::of(&values).unwrap();
                held += usize::from((spread.low..=spread.high).contains(&0.5));
            }
            assert!(held >= 188, "of {count} values: {held} of 200");
        }
    }

    #[test]
    fn more_values_have_narrower_intervals() {
        let width = |count: u32| {
            let values: Vec<f64> = (0..count).map(|value| f64::from(value * 37 % 101)).collect();
            let spread = Spread::of(&values).unwrap();
            spread.high - spread.low
        };
        assert!(width(400) < width(40) && width(40) < width(10));
    }

    #[test]
    fn a_ratio_must_leave_the_noise_to_count() {
        let noise = spread(0.9, 1.0, 1.2);
        assert_eq!(judge(spread(1.3, 1.5, 1.6), noise), Verdict::Ahead);
        assert_eq!(judge(spread(1.1, 1.5, 1.6), noise), Verdict::NoConclusion);
        assert_eq!(judge(spread(0.5, 0.6, 0.8), noise), Verdict::Behind);
        assert_eq!(judge(spread(0.96, 0.99, 1.04), noise), Verdict::Level);
        // Counts repeat exactly.
        let exact = spread(1.0, 1.0, 1.0);
        assert_eq!(judge(spread(0.997, 0.997, 0.997), exact), Verdict::Level);
        assert_eq!(judge(spread(1.003, 1.003, 1.003), exact), Verdict::Level);
        assert_eq!(judge(spread(0.99, 0.99, 0.99), exact), Verdict::Behind);
        assert_eq!(judge(spread(1.01, 1.01, 1.01), exact), Verdict::Ahead);
    }
}
