//! What packets, batches and wake-ups cost, learnt while they happen.
//!
//! All figures fade with a half-life, so that what is learnt follows the host.

/// How fast things are forgotten.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HalfLife {
    seconds: f64,
}

impl HalfLife {
    /// Half is forgotten after so many seconds.
    #[must_use]
    pub fn seconds(seconds: f64) -> Self {
        Self { seconds }
    }

    /// What remains after so many seconds.
    #[must_use]
    pub fn remains(self, seconds: f64) -> f64 {
        (-seconds / self.seconds).exp2()
    }
}

/// An average whose older parts fade: a sum over a number of things.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Average {
    sum: f64,
    count: f64,
}

impl Average {
    /// Adds a sum over so many things to what remains of the earlier ones.
    pub fn add(&mut self, sum: f64, count: f64, remains: f64) {
        self.sum = self.sum * remains + sum;
        self.count = self.count * remains + count;
    }

    /// Things it was taken of.
    #[must_use]
    pub fn count(self) -> f64 {
        self.count
    }

    /// The average, once it was taken of so many things.
    #[must_use]
    pub fn of_at_least(self, count: f64) -> Option<f64> {
        (self.count >= count && self.count > 0.0).then(|| self.sum / self.count)
    }
}

/// Time per packet and time per batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Nanoseconds for each packet.
    pub packet_ns: f64,
    /// Nanoseconds for each batch.
    pub batch_ns: f64,
}

/// Fits run time ≈ packets · [`Costs::packet_ns`] + batches · [`Costs::batch_ns`]
/// by least squares.
///
/// Where batches are always of one size, only the cost of such a batch as a
/// whole shows. It is then shared out as the assumed costs have it; those weigh
/// a thousandth of what is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchFit {
    assumed: Costs,
    packets_packets: f64,
    packets_batches: f64,
    batches_batches: f64,
    packets_time: f64,
    batches_time: f64,
}

/// Weight of the assumed costs.
const ASSUMED: f64 = 1e-3;

/// Above this, packets and batches have been seen to vary enough apart from
/// each other for the fit to tell their costs apart: one minus the square of
/// their correlation.
const APART: f64 = 5e-3;

impl BatchFit {
    /// Knows only what is assumed.
    #[must_use]
    pub fn new(assumed: Costs) -> Self {
        Self {
            assumed,
            packets_packets: 0.0,
            packets_batches: 0.0,
            batches_batches: 0.0,
            packets_time: 0.0,
            batches_time: 0.0,
        }
    }

    /// Adds what one interval took; `run_ns` without time spun.
    pub fn add(&mut self, packets: f64, batches: f64, run_ns: f64, remains: f64) {
        let fade = |sum: &mut f64, more: f64| *sum = *sum * remains + more;
        fade(&mut self.packets_packets, packets * packets);
        fade(&mut self.packets_batches, packets * batches);
        fade(&mut self.batches_batches, batches * batches);
        fade(&mut self.packets_time, packets * run_ns);
        fade(&mut self.batches_time, batches * run_ns);
    }

    /// Whether the two costs are told apart by what was measured, rather than by
    /// what is assumed.
    #[must_use]
    pub fn is_determined(&self) -> bool {
        let product = self.packets_packets * self.batches_batches;
        product > 0.0 && 1.0 - self.packets_batches * self.packets_batches / product > APART
    }

    /// The costs; neither is negative.
    #[must_use]
    pub fn costs(&self) -> Costs {
        let Self { assumed, .. } = self;
        if self.packets_packets <= 0.0 || self.batches_batches <= 0.0 {
            return *assumed;
        }
        let pull = |own: f64, cost: f64| (own * (1.0 + ASSUMED), own * ASSUMED * cost);
        let (pp, packets_pull) = pull(self.packets_packets, assumed.packet_ns);
        let (bb, batches_pull) = pull(self.batches_batches, assumed.batch_ns);
        let pt = self.packets_time + packets_pull;
        let bt = self.batches_time + batches_pull;
        let pb = self.packets_batches;
        // Never zero: pb² is at most the product of the two before the pull.
        let determinant = pp * bb - pb * pb;
        let packet_ns = (pt * bb - bt * pb) / determinant;
        let batch_ns = (bt * pp - pt * pb) / determinant;
        if packet_ns < 0.0 {
            Costs {
                packet_ns: 0.0,
                batch_ns: bt / bb,
            }
        } else if batch_ns < 0.0 {
            Costs {
                packet_ns: pt / pp,
                batch_ns: 0.0,
            }
        } else {
            Costs {
                packet_ns,
                batch_ns,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASSUME: Costs = Costs {
        packet_ns: 1000.0,
        batch_ns: 3000.0,
    };

    #[test]
    fn half_is_left_after_the_half_life() {
        let half = HalfLife::seconds(3.0);
        assert!((half.remains(3.0) - 0.5).abs() < 1e-12);
        assert!((half.remains(0.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn an_average_follows_and_says_when_it_knows_too_little() {
        let mut average = Average::default();
        assert_eq!(average.of_at_least(0.0), None);
        average.add(100.0, 10.0, 1.0);
        assert_eq!(average.of_at_least(11.0), None);
        assert_eq!(average.of_at_least(10.0), Some(10.0));
        for _ in 0..50 {
            average.add(200.0, 10.0, 0.5);
        }
        assert!((average.of_at_least(10.0).unwrap() - 20.0).abs() < 1e-6);
    }

    #[test]
    fn costs_are_found_where_batches_vary() {
        let mut fit = BatchFit::new(ASSUME);
        for round in 1..40u32 {
            let batches = f64::from(round % 7 + 1) * 100.0;
            let packets = batches * f64::from(round % 5 + 1);
            fit.add(packets, batches, packets * 400.0 + batches * 1500.0, 0.98);
        }
        assert!(fit.is_determined());
        let costs = fit.costs();
        assert!((costs.packet_ns - 400.0).abs() < 40.0, "{costs:?}");
        assert!((costs.batch_ns - 1500.0).abs() < 75.0, "{costs:?}");
    }

    #[test]
    fn where_they_do_not_the_whole_is_right_and_the_parts_are_assumed() {
        let mut fit = BatchFit::new(ASSUME);
        for round in 1..20u32 {
            let batches = f64::from(round) * 10.0;
            fit.add(batches * 8.0, batches, batches * 22_000.0, 1.0);
        }
        assert!(!fit.is_determined());
        let costs = fit.costs();
        let whole = 8.0 * costs.packet_ns + costs.batch_ns;
        assert!((whole - 22_000.0).abs() < 50.0, "{costs:?}");
        assert!(costs.packet_ns > 0.0 && costs.batch_ns > 0.0);
    }

    #[test]
    fn without_figures_the_assumed_costs_stand() {
        let fit = BatchFit::new(ASSUME);
        assert_eq!(fit.costs(), ASSUME);
        assert!(!fit.is_determined());
    }

    #[test]
    fn no_cost_is_negative() {
        let mut fit = BatchFit::new(ASSUME);
        // More batches go with less time: no such host, but such noise.
        fit.add(100.0, 100.0, 1_000.0, 1.0);
        fit.add(100.0, 10.0, 90_000.0, 1.0);
        let costs = fit.costs();
        assert!(costs.packet_ns >= 0.0 && costs.batch_ns >= 0.0, "{costs:?}");
    }
}
