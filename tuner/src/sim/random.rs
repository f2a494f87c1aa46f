//! Numbers that look random and are the same in every run.

/// SplitMix64: small, seedable, and even enough for traffic.
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Any number.
    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to, and without, 1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Evenly between two numbers.
    pub(super) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Exponentially distributed: the gaps of a Poisson process.
    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        // 1 - unit is never 0, so the logarithm is finite.
        -(1.0 - self.unit()).ln() * mean
    }

    /// Events that are to be expected so often, as a Poisson process has them.
    pub(super) fn events(&mut self, expected: f64) -> u64 {
        if expected <= 0.0 {
            return 0;
        }
        if expected > 30.0 {
            // Near enough to the normal distribution, here by the sum of three
            // even numbers.
            let normal = 2.0 * (self.unit() + self.unit() + self.unit() - 1.5);
            return (expected + expected.sqrt() * normal).round().max(0.0) as u64;
        }
        let floor = (-expected).exp();
        let (mut product, mut events) = (self.unit(), 0);
        while product > floor {
            product *= self.unit();
            events += 1;
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            [random.next(), random.next(), random.next()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn means_are_what_they_should_be() {
        let mut random = Random::new(1);
        let draws = 200_000;
        let mean = |values: &mut dyn FnMut() -> f64| {
            (0..draws).map(|_| values()).sum::<f64>() / f64::from(draws)
        };
        assert!((mean(&mut || random.exponential(50.0)) - 50.0).abs() < 0.5);
        let mut random = Random::new(2);
        assert!((mean(&mut || random.between(10.0, 20.0)) - 15.0).abs() < 0.05);
        for expected in [0.0, 0.3, 5.0, 400.0] {
            let got = mean(&mut || random.events(expected) as f64);
            assert!(
                (got - expected).abs() <= 0.01 * expected + 0.01,
                "{expected}: {got}"
            );
        }
    }
}
