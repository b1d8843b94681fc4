//! Latencies as an HdrHistogram.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The range is up to an hour; longer times are recorded as an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Three significant digits: the relative error is at most 0.1 %.
const DIGITS: u8 = 3;

/// A histogram of times in nanoseconds.
#[derive(Clone)]
pub struct Latencies(Histogram<u64>);

impl std::fmt::Debug for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Latencies").field("count", &self.count()).finish_non_exhaustive()
    }
}

impl Default for Latencies {
    fn default() -> Latencies {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS);
        Latencies(histogram.expect("the bounds are valid"))
    }
}

impl Latencies {
    /// Records one latency.
    #[inline]
    pub fn record(&mut self, time_ns: u64) {
        self.0.saturating_record(time_ns);
    }

    /// Merges another histogram.
    pub fn merge(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    /// The number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Clears the histogram.
    pub fn clear(&mut self) {
        self.0.reset();
    }

    /// The quantile: the time within which this share (0 to 1) of requests completed.
    pub fn quantile(&self, share: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_quantile(share))
    }

    /// The histogram.
    pub(crate) fn histogram(&self) -> &Histogram<u64> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_values() {
        let mut latencies = Latencies::default();
        for time in 1..=1_000_000 {
            latencies.record(time);
        }
        for share in [0.5, 0.99, 0.999, 0.9999, 1.0] {
            let found = latencies.quantile(share).as_nanos() as f64;
            assert!((found / (share * 1e6) - 1.0).abs() < 0.002, "{share}: {found}");
        }
        let mut twice = latencies.clone();
        twice.merge(&latencies);
        assert_eq!((twice.count(), twice.quantile(0.5)), (2_000_000, latencies.quantile(0.5)));
        twice.clear();
        assert_eq!(twice.count(), 0);
        twice.record(u64::MAX);
        assert!(twice.quantile(1.0) >= Duration::from_secs(3_600));
    }
}
