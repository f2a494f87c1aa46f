use proptest::prelude::*;
use tuner_common::hist::time_bucket;

use super::*;
use crate::model::TimeHistogram;

const LOOK_S: f64 = 0.1;
/// Its place among the ways.
const BREAK_EVEN: usize = 3;

fn terms(wake_us: u64) -> Terms {
    Terms {
        wake_ns: (wake_us * UNIT_NS) as f64,
        bounds: Bounds { min: 0, max: 400 },
        change_ns: 20_000.0,
        min_gain: 0.01,
        look_s: LOOK_S,
    }
}

struct Bench {
    grid: Grid,
    config: Busyloop,
    terms: Terms,
    learners: Learners,
    set: u32,
    changes: u32,
}

impl Bench {
    fn new(wake_us: u64) -> Self {
        let config = Busyloop::default();
        let grid = Grid::new(&config.candidates);
        Self {
            learners: Learners::new(&grid, &config, 0),
            grid,
            config,
            terms: terms(wake_us),
            set: 0,
            changes: 0,
        }
    }

    /// A look with these gaps: microseconds and how many.
    fn look(&mut self, gaps: &[(u64, u64)]) {
        let mut histogram = TimeHistogram::default();
        for (us, count) in gaps {
            histogram.add(time_bucket(us * 1000), *count);
        }
        let curve = Curve::of(&self.grid, &histogram);
        let with = (&self.grid, &self.config);
        self.learners.add(with, &curve, LOOK_S, &self.terms);
        let (grid, config) = with;
        let set = self.learners.choose(grid, config, self.set, &self.terms);
        self.changes += u32::from(set != self.set);
        self.set = set;
    }
}

#[test]
fn while_gaps_are_few_what_is_set_stays() {
    let mut bench = Bench::new(150);
    bench.look(&[(15, 29)]);
    assert_eq!(bench.set, 0);
    bench.look(&[(15, 2)]);
    assert_eq!(bench.set, 20);
}

#[test]
fn an_idle_vring_is_left_alone_and_one_long_gap_counts_once() {
    let mut bench = Bench::new(150);
    bench.look(&[(60, 1000)]);
    assert_eq!(bench.set, 75);
    for _ in 0..100_000 {
        bench.look(&[]);
    }
    assert_eq!(bench.set, 75);
    // It closes after hours: a gap like any other.
    bench.look(&[(3_000_000, 1)]);
    assert_eq!(bench.set, 75);
}

#[test]
fn the_same_traffic_all_the_time_is_answered_once() {
    let mut bench = Bench::new(150);
    for look in 0..600u64 {
        // 70 % short, 30 % long, not the same at every look.
        bench.look(&[(15, 60 + look % 20), (600, 24 + look % 9)]);
    }
    assert_eq!(bench.set, 20);
    assert_eq!(bench.changes, 1);
}

#[test]
fn a_phase_that_returns_is_answered_at_its_first_look() {
    let mut bench = Bench::new(150);
    for _ in 0..50 {
        bench.look(&[(60, 1000)]);
    }
    for _ in 0..50 {
        bench.look(&[(2_000, 50)]);
    }
    assert_eq!(bench.set, 0);
    bench.look(&[(60, 10)]);
    assert_eq!(bench.set, 75);
    bench.look(&[(2_000, 10)]);
    assert_eq!(bench.set, 0);
}

#[test]
fn where_predictions_keep_failing_the_break_even_rule_is_followed() {
    let mut bench = Bench::new(150);
    for _ in 0..300 {
        // Whatever is predicted, gaps are a little longer; where long ones are,
        // they are longer than pays.
        let picks = bench.learners.followers.map(|follower| follower.pick);
        let beyond = picks[..BREAK_EVEN].iter().filter(|pick| **pick < 125);
        let mut gaps: Vec<_> = beyond
            .map(|pick| (u64::from(*pick) * 5 / 4 + 4, 300))
            .collect();
        if gaps.is_empty() {
            gaps.push((3_000, 300));
        }
        bench.look(&gaps);
    }
    assert_eq!(bench.learners.way(), Way::BreakEven);
    assert_eq!(bench.set, 150);
    // Predictions hold again: left after a while.
    for _ in 0..300 {
        bench.look(&[(2_000, 50)]);
    }
    assert_eq!(bench.set, 0);
}

#[test]
fn one_failure_is_not_enough_for_it() {
    let mut bench = Bench::new(150);
    bench.look(&[(15, 100)]);
    assert_eq!(bench.set, 20);
    bench.look(&[(100, 1000)]);
    assert_ne!(bench.learners.way(), Way::BreakEven);
}

#[test]
fn only_timeouts_within_bounds_are_chosen() {
    let mut bench = Bench::new(150);
    bench.terms.bounds = Bounds { min: 20, max: 50 };
    bench.look(&[(5, 1000)]);
    assert_eq!(bench.set, 20);
    let mut bench = Bench::new(150);
    bench.terms.bounds = Bounds { min: 0, max: 50 };
    bench.look(&[(90, 1000)]);
    assert_eq!(bench.set, 0);
}

#[test]
fn late_answers_are_reckoned_by_the_usual_time_between_looks() {
    let alternate = |turns: u64| {
        let mut bench = Bench::new(150);
        for look in 0..200 {
            let short = (look / turns).is_multiple_of(2);
            bench.look(if short { &[(60, 1000)] } else { &[(2_000, 50)] });
        }
        bench.learners.lost_share()
    };
    assert!(alternate(10_000) < 1e-9, "nothing changed");
    assert!(alternate(5) > 0.02);
    assert!(alternate(5) > 3.0 * alternate(40));
}

/// The cost of a gap on the break-even rule.
fn cost(gap_ns: f64, timeout_ns: f64, wake_ns: f64) -> f64 {
    if gap_ns <= timeout_ns {
        gap_ns
    } else {
        timeout_ns + wake_ns
    }
}

proptest! {
    #[test]
    fn break_even_never_costs_more_than_twice_the_clairvoyant(
        wake_us in 1u64..400,
        gaps in prop::collection::vec(1u64..5_000_000, 1..200),
    ) {
        let terms = terms(wake_us);
        let timeout = timeout_ns(break_even(&terms));
        let (mut ours, mut clairvoyant) = (0.0, 0.0);
        for gap in gaps {
            let gap = gap as f64;
            ours += cost(gap, timeout, terms.wake_ns);
            clairvoyant += gap.min(terms.wake_ns);
        }
        prop_assert!(ours <= 2.0 * clairvoyant + 1e-6, "{ours} {clairvoyant}");
    }

    #[test]
    fn what_is_chosen_is_never_dearer_than_what_is_set_by_what_it_is_chosen_by(
        looks in prop::collection::vec(
            prop::collection::vec((1u64..3_000, 0u64..400), 0..4), 1..40),
        wake_us in 1u64..400,
    ) {
        let mut bench = Bench::new(wake_us);
        for gaps in looks {
            let before = bench.set;
            bench.look(&gaps);
            if before != bench.set && bench.learners.way() != Way::BreakEven {
                let curve = bench.learners.basis();
                let price = |set| curve.price(&bench.grid, timeout_ns(set));
                let cost = |set| price(set).cost_ns(bench.terms.wake_ns);
                prop_assert!(cost(bench.set) < cost(before));
            }
        }
    }
}
