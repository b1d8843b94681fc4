//! A latency histogram of a few kilobytes.

use std::time::Duration;

/// Buckets per power of two: the relative error is at most 1.6 %.
const STEPS: u64 = 64;
const STEP_BITS: u32 = STEPS.ilog2();
/// The range is up to 2^42 ns, more than an hour.
const BUCKETS: usize = ((42 - STEP_BITS + 1) as u64 * STEPS) as usize;

/// A histogram with logarithmic buckets.
#[derive(Clone)]
pub struct Latencies {
    buckets: Vec<u64>,
    count: u64,
}

impl std::fmt::Debug for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Latencies").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies { buckets: vec![0; BUCKETS], count: 0 }
    }
}

impl Latencies {
    /// Records one latency.
    #[inline]
    pub fn record(&mut self, time_ns: u64) {
        self.buckets[bucket(time_ns).min(BUCKETS - 1)] += 1;
        self.count += 1;
    }

    /// Merges another histogram.
    pub fn merge(&mut self, other: &Latencies) {
        for (here, there) in self.buckets.iter_mut().zip(&other.buckets) {
            *here += there;
        }
        self.count += other.count;
    }

    /// The number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Clears the histogram.
    pub fn clear(&mut self) {
        self.buckets.fill(0);
        self.count = 0;
    }

    /// The quantile: the time within which this share (0 to 1) of requests completed.
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_nanos(middle(index));
            }
        }
        Duration::ZERO
    }
}

/// The bucket of a time: linear below `STEPS`, then `STEPS` for each doubling.
#[inline]
fn bucket(time_ns: u64) -> usize {
    if time_ns < STEPS {
        return time_ns as usize;
    }
    let power = time_ns.ilog2();
    let step = time_ns >> (power - STEP_BITS) & (STEPS - 1);
    (u64::from(power - STEP_BITS + 1) * STEPS + step) as usize
}

/// The midpoint of a bucket.
fn middle(bucket: usize) -> u64 {
    let (power, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    match power {
        0 => step,
        _ => ((STEPS + step) << (power - 1)) + ((1 << (power - 1)) >> 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_a_bucket_near_it() {
        for shift in 0..41 {
            for offset in [0, 1, 7] {
                let time = (1_u64 << shift) + offset * (1 << shift) / 8;
                let near = middle(bucket(time));
                assert!(near.abs_diff(time) * 64 <= time.max(1), "{time} is recorded as {near}");
            }
        }
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_values() {
        let mut latencies = Latencies::default();
        for time in 1..=1_000_000 {
            latencies.record(time);
        }
        for share in [0.5, 0.99, 0.999, 1.0] {
            let found = latencies.quantile(share).as_nanos() as f64;
            assert!((found / (share * 1e6) - 1.0).abs() < 0.02, "{share}: {found}");
        }
        let mut twice = latencies.clone();
        twice.merge(&latencies);
        assert_eq!((twice.count(), twice.quantile(0.5)), (2_000_000, latencies.quantile(0.5)));
    }
}
