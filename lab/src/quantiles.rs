//! Histograms of times, and how they are reported.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Times up to a minute, right within 0.1 %.
#[derive(Debug, Clone)]
pub struct Times {
    ns: Histogram<u64>,
}

/// Quantiles in µs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Quantiles {
    /// Number of values.
    pub count: u64,
    /// Smallest.
    pub min: f64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90 % are at most this.
    pub p90: f64,
    /// 99 % are at most this.
    pub p99: f64,
    /// Largest.
    pub max: f64,
}

/// One step of a histogram.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// Values in this step are at most this, in µs.
    pub up_to_us: f64,
    /// Number of values in it.
    pub count: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            ns: Histogram::new_with_max(60_000_000_000, 3)
                .expect("constant bounds that the library takes"),
        }
    }
}

impl Times {
    /// Takes one time in; more than a minute counts as a minute.
    pub fn record(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.ns.saturating_record(ns);
    }

    /// Takes all of another's times in.
    pub fn merge(&mut self, other: &Self) {
        for value in other.ns.iter_recorded() {
            self.ns
                .saturating_record_n(value.value_iterated_to(), value.count_at_value());
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.ns.reset();
    }

    /// The quantiles so far; all 0 when there are no values.
    #[must_use]
    pub fn quantiles(&self) -> Quantiles {
        if self.ns.is_empty() {
            return Quantiles::default();
        }
        let us = |ns: u64| ns as f64 / 1000.0;
        Quantiles {
            count: self.ns.len(),
            min: us(self.ns.min()),
            mean: self.ns.mean() / 1000.0,
            p50: us(self.ns.value_at_quantile(0.5)),
            p90: us(self.ns.value_at_quantile(0.9)),
            p99: us(self.ns.value_at_quantile(0.99)),
            max: us(self.ns.max()),
        }
    }

    /// The steps that hold values, eight to the octave from 256 ns.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        self.ns
            .iter_log(256, 2f64.powf(0.125))
            .filter(|step| step.count_since_last_iteration() > 0)
            .map(|step| Step {
                up_to_us: step.value_iterated_to() as f64 / 1000.0,
                count: step.count_since_last_iteration(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_values_give_zeroes() {
        assert_eq!(Times::default().quantiles(), Quantiles::default());
        assert!(Times::default().steps().is_empty());
    }

    #[test]
    fn quantiles_are_right_within_the_promise() {
        let mut times = Times::default();
        for us in 1..=1000 {
            times.record(Duration::from_micros(us));
        }
        let q = times.quantiles();
        assert_eq!(q.count, 1000);
        assert!((q.p50 - 500.0).abs() < 1.0, "{}", q.p50);
        assert!((q.p99 - 990.0).abs() < 2.0, "{}", q.p99);
        assert!((q.max - 1000.0).abs() < 2.0, "{}", q.max);
    }

    #[test]
    fn steps_hold_every_value_once() {
        let mut times = Times::default();
        for us in [0, 1, 50, 50, 51, 4_000_000, 900_000_000] {
            times.record(Duration::from_micros(us));
        }
        let steps = times.steps();
        assert_eq!(steps.iter().map(|s| s.count).sum::<u64>(), 7);
        assert!(steps.is_sorted_by(|a, b| a.up_to_us < b.up_to_us));
    }

    #[test]
    fn merging_keeps_the_count() {
        let (mut a, mut b) = (Times::default(), Times::default());
        a.record(Duration::from_micros(5));
        b.record(Duration::from_micros(9));
        b.record(Duration::from_micros(9));
        a.merge(&b);
        assert_eq!(a.quantiles().count, 3);
    }
}
