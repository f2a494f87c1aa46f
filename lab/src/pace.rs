//! Pauses between packets: think times and gaps.

use std::time::Duration;

use clap::ValueEnum;

/// How the lengths of pauses are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Spread {
    /// Always the mean.
    Fixed,
    /// Evenly from 0 to twice the mean.
    Uniform,
    /// Exponentially, which makes the events a Poisson process.
    Exp,
}

/// A source of pauses; the same seed gives the same pauses.
#[derive(Debug, Clone)]
pub struct Pace {
    mean_ns: u64,
    spread: Spread,
    state: u64,
}

impl Pace {
    /// Pauses of `mean` on average.
    #[must_use]
    pub fn new(mean: Duration, spread: Spread, seed: u64) -> Self {
        Self {
            mean_ns: u64::try_from(mean.as_nanos()).unwrap_or(u64::MAX),
            spread,
            state: seed,
        }
    }

    /// The next pause.
    pub fn draw(&mut self) -> Duration {
        let ns = match self.spread {
            Spread::Fixed => self.mean_ns,
            Spread::Uniform => (2.0 * self.unit() * self.mean_ns as f64) as u64,
            // 1 - unit is never 0, so the logarithm is finite.
            Spread::Exp => (-(1.0 - self.unit()).ln() * self.mean_ns as f64) as u64,
        };
        Duration::from_nanos(ns)
    }

    /// A number in [0, 1).
    fn unit(&mut self) -> f64 {
        // SplitMix64: small, seedable, and even enough for pauses.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        (z >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drawn(spread: Spread, seed: u64) -> Vec<f64> {
        let mut pace = Pace::new(Duration::from_micros(100), spread, seed);
        (0..20_000)
            .map(|_| pace.draw().as_secs_f64() * 1e6)
            .collect()
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]
        #[test]
        fn every_spread_has_the_mean_asked_for(seed: u64) {
            for spread in [Spread::Fixed, Spread::Uniform, Spread::Exp] {
                let mean = mean(&drawn(spread, seed));
                prop_assert!((mean - 100.0).abs() < 5.0, "{spread:?}: {mean}");
            }
        }
    }

    #[test]
    fn uniform_stays_within_twice_the_mean() {
        assert!(drawn(Spread::Uniform, 1).iter().all(|us| *us <= 200.0));
    }

    #[test]
    fn exponential_pauses_have_the_right_tail() {
        let long = drawn(Spread::Exp, 7)
            .iter()
            .filter(|us| **us > 100.0)
            .count();
        let share = long as f64 / 20_000.0;
        assert!((share - (-1.0f64).exp()).abs() < 0.02, "{share}");
    }

    #[test]
    fn the_same_seed_gives_the_same_pauses() {
        assert_eq!(drawn(Spread::Exp, 3), drawn(Spread::Exp, 3));
        assert_ne!(drawn(Spread::Exp, 3), drawn(Spread::Exp, 4));
    }
}
