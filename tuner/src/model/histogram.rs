//! Histograms of an interval and their quantiles.

use serde::Serialize;
use tuner_common::hist::{
    BATCH_BUCKETS, TIME_BUCKETS, batch_bucket_low, time_bucket_high_ns, time_bucket_low_ns,
};

/// Three quantiles; microseconds for times, packets for batches. Null while
/// there is nothing to take them of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Values they were taken of.
    pub count: u64,
    /// Half are at most this.
    pub p50: Option<f64>,
    /// Nine in ten are.
    pub p90: Option<f64>,
    /// 99 in a hundred are.
    pub p99: Option<f64>,
}

/// Times counted in log-linear buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeHistogram {
    counts: Box<[u64; TIME_BUCKETS]>,
}

impl Default for TimeHistogram {
    fn default() -> Self {
        Self::of(Box::new([0; TIME_BUCKETS]))
    }
}

impl TimeHistogram {
    /// Of counts by bucket.
    #[must_use]
    pub fn of(counts: Box<[u64; TIME_BUCKETS]>) -> Self {
        Self { counts }
    }

    /// Counts so many more values of a bucket.
    pub fn add(&mut self, bucket: usize, count: u64) {
        self.counts[bucket.min(TIME_BUCKETS - 1)] += count;
    }

    /// Buckets that hold something, with their counts.
    pub fn occupied(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let counts = self.counts.iter().copied().enumerate();
        counts.filter(|(_, count)| *count > 0)
    }

    /// What came between two readings.
    #[must_use]
    pub fn between(before: &[u64; TIME_BUCKETS], after: &[u64; TIME_BUCKETS]) -> Self {
        let mut counts = Box::new([0; TIME_BUCKETS]);
        for (count, (b, a)) in counts.iter_mut().zip(before.iter().zip(after)) {
            *count = a.saturating_sub(*b);
        }
        Self { counts }
    }

    /// Values counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The value, in nanoseconds, that a share `q` (0…1) of all are not above:
    /// the middle of its bucket, so within half a step (6.25 %) of the truth.
    #[must_use]
    pub fn quantile_ns(&self, q: f64) -> Option<f64> {
        let bucket = rank(self.counts.iter().copied(), self.count(), q)?;
        let (low, high) = (time_bucket_low_ns(bucket), time_bucket_high_ns(bucket));
        Some((low + high) as f64 / 2.0)
    }

    /// The usual three, in microseconds.
    #[must_use]
    pub fn quantiles_us(&self) -> Quantiles {
        let at = |q| self.quantile_ns(q).map(|ns| round(ns / 1000.0));
        Quantiles {
            count: self.count(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
        }
    }
}

/// Quantiles of batch sizes between two readings, in packets.
#[must_use]
pub fn batch_quantiles(before: &[u64; BATCH_BUCKETS], after: &[u64; BATCH_BUCKETS]) -> Quantiles {
    let counts: Vec<u64> = after
        .iter()
        .zip(before)
        .map(|(a, b)| a.saturating_sub(*b))
        .collect();
    let count = counts.iter().sum();
    let at = |q| rank(counts.iter().copied(), count, q).map(|b| batch_bucket_low(b) as f64);
    Quantiles {
        count,
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
    }
}

/// Bucket that holds the value of rank ⌈q · count⌉.
fn rank(counts: impl Iterator<Item = u64>, count: u64, q: f64) -> Option<usize> {
    if count == 0 {
        return None;
    }
    let wanted = ((count as f64 * q).ceil() as u64).clamp(1, count);
    let mut seen = 0;
    for (bucket, here) in counts.enumerate() {
        seen += here;
        if seen >= wanted {
            return Some(bucket);
        }
    }
    None
}

/// Three decimals: more would pretend to more than the buckets hold.
fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use tuner_common::hist::{batch_bucket, time_bucket};

    fn of(values: &[u64]) -> TimeHistogram {
        let mut after = [0; TIME_BUCKETS];
        for value in values {
            after[time_bucket(*value)] += 1;
        }
        TimeHistogram::between(&[0; TIME_BUCKETS], &after)
    }

    #[test]
    fn an_empty_histogram_has_no_quantiles() {
        assert_eq!(of(&[]).quantiles_us(), Quantiles::default());
    }

    #[test]
    fn a_quantile_is_within_a_step_of_the_value() {
        for value in [300, 5_000, 50_000, 777_777, 1_500_000_000u64] {
            let got = of(&[value; 10]).quantile_ns(0.5).unwrap();
            let off = (got - value as f64).abs() / value as f64;
            assert!(off <= 0.125, "{value}: {got}");
        }
    }

    #[test]
    fn quantiles_have_the_rank_their_name_says() {
        let mut values = vec![1_000; 90];
        values.extend([1_000_000; 10]);
        let q = of(&values).quantiles_us();
        assert_eq!(q.count, 100);
        assert!(q.p50.unwrap() < 2.0);
        assert!(q.p90.unwrap() < 2.0);
        assert!(q.p99.unwrap() > 900.0);
    }

    #[test]
    fn batch_sizes_come_back_as_they_were() {
        let mut after = [0; BATCH_BUCKETS];
        after[batch_bucket(16)] = 9;
        after[batch_bucket(64)] = 1;
        let q = batch_quantiles(&[0; BATCH_BUCKETS], &after);
        assert_eq!((q.p50, q.p90, q.p99), (Some(16.0), Some(16.0), Some(64.0)));
    }
}
