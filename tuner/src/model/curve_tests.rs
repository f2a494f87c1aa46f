use proptest::prelude::*;
use tuner_common::hist::{TIME_BUCKETS, time_bucket};

use super::*;

fn histogram(gaps_ns: &[u64]) -> TimeHistogram {
    let mut counts = Box::new([0; TIME_BUCKETS]);
    for gap in gaps_ns {
        counts[time_bucket(*gap)] += 1;
    }
    TimeHistogram::of(counts)
}

fn grid() -> Grid {
    Grid::new(&[10, 20, 30, 50, 75, 100, 125, 150, 200, 300, 400])
}

/// The middle of the gap's bucket: what the histogram knows of it.
fn middle(gap: u64) -> f64 {
    let bucket = time_bucket(gap);
    f64::midpoint(
        time_bucket_low_ns(bucket) as f64,
        time_bucket_high_ns(bucket) as f64,
    )
}

/// The cost by its definition, gap by gap.
fn cost(gaps: &[u64], timeout: f64, wake: f64) -> f64 {
    let one = |gap: f64| {
        if gap <= timeout { gap } else { timeout + wake }
    };
    gaps.iter().map(|gap| one(middle(*gap))).sum()
}

#[test]
fn zero_is_always_among_the_candidates() {
    assert_eq!(Grid::new(&[50, 20, 50]).candidates(), [0, 20, 50]);
    assert_eq!(Grid::new(&[]).candidates(), [0]);
}

#[test]
fn without_spinning_every_gap_is_a_wake_up() {
    let (grid, gaps) = (grid(), histogram(&[5_000, 60_000, 3_000_000]));
    let price = Curve::of(&grid, &gaps).price(&grid, 0.0);
    assert_eq!(price.spin_ns, 0.0);
    assert!((price.misses - 3.0).abs() < 1e-9);
}

#[test]
fn a_timeout_that_outlasts_all_gaps_spins_them_out() {
    let (grid, gaps) = (grid(), [7_000u64, 61_000, 90_000]);
    let price = Curve::of(&grid, &histogram(&gaps)).price(&grid, timeout_ns(200));
    let all: f64 = gaps.iter().map(|gap| middle(*gap)).sum();
    assert!((price.spin_ns - all).abs() < 1e-6);
    assert!(price.misses.abs() < 1e-9);
}

#[test]
fn round_trips_are_spun_out_only_where_that_pays() {
    let (grid, gaps) = (grid(), histogram(&[60_000; 1000]));
    let curve = Curve::of(&grid, &gaps);
    assert_eq!(curve.cheapest(&grid, 50_000.0, (0, 400)), Some(0));
    assert_eq!(curve.cheapest(&grid, 150_000.0, (0, 400)), Some(75));
}

#[test]
fn of_timeouts_that_cost_the_same_the_shortest_is_taken() {
    let (grid, gaps) = (grid(), histogram(&[5_000; 10]));
    let curve = Curve::of(&grid, &gaps);
    assert_eq!(curve.cheapest(&grid, 50_000.0, (0, 400)), Some(10));
    assert_eq!(curve.cheapest(&grid, 50_000.0, (30, 400)), Some(30));
    assert_eq!(curve.cheapest(&grid, 50_000.0, (401, 500)), None);
}

#[test]
fn no_gaps_have_no_price_and_no_difference() {
    let grid = grid();
    let curve = Curve::new(&grid);
    assert_eq!(curve.price(&grid, 1e5), Price::default());
    assert_eq!(
        curve.difference(&grid, 0.0, 1e5, 5e4),
        Difference::default()
    );
    assert_eq!(curve.effective_gaps(), 0.0);
    assert_eq!(curve.cheapest(&grid, 50_000.0, (0, 400)), Some(0));
}

#[test]
fn what_is_forgotten_counts_less_and_says_less() {
    let (grid, gaps) = (grid(), histogram(&[30_000; 100]));
    let mut curve = Curve::of(&grid, &gaps);
    curve.decay(0.25);
    assert!((curve.gaps() - 25.0).abs() < 1e-9);
    assert!((curve.effective_gaps() - 100.0).abs() < 1e-6);
    curve.add(&Curve::of(&grid, &gaps));
    assert!((curve.gaps() - 125.0).abs() < 1e-9);
    // 125² / (100 · ¼² + 100)
    assert!((curve.effective_gaps() - 147.058).abs() < 1e-2);
}

#[test]
fn curves_of_the_same_spread_are_near_and_others_far() {
    let grid = grid();
    let short = Curve::of(&grid, &histogram(&[15_000; 100]));
    let long = Curve::of(&grid, &histogram(&[1_000_000; 7]));
    let mut more = short.clone();
    more.add(&short);
    assert!(short.distance(&more) < 1e-9);
    assert!((short.distance(&long) - 1.0).abs() < 1e-9);
    assert!((short.distance(&Curve::new(&grid)) - 1.0).abs() < 1e-9);
}

#[test]
fn timeouts_beyond_the_candidates_are_priced_too() {
    let (grid, gaps) = (grid(), histogram(&[5_000_000; 10]));
    let price = Curve::of(&grid, &gaps).price(&grid, timeout_ns(8_000));
    assert!(price.misses < 1e-9, "{price:?}");
    assert!((price.spin_ns / 10.0 - middle(5_000_000)).abs() < 1e-3);
}

fn gaps() -> impl Strategy<Value = Vec<u64>> {
    let short = 100u64..400_000;
    let any = 1u64..3_000_000_000;
    prop::collection::vec(prop_oneof![4 => short, 1 => any], 1..300)
}

proptest! {
    #[test]
    fn the_chosen_timeout_is_the_minimum_of_the_curve(
        gaps in gaps(), wake in 1_000.0..400_000.0f64,
    ) {
        let grid = grid();
        let curve = Curve::of(&grid, &histogram(&gaps));
        let chosen = curve.cheapest(&grid, wake, (0, 400)).unwrap();
        let least = curve.price(&grid, timeout_ns(chosen)).cost_ns(wake);
        for timeout in grid.candidates() {
            let other = curve.price(&grid, timeout_ns(*timeout)).cost_ns(wake);
            prop_assert!(least <= other * (1.0 + 2e-6), "{chosen} {timeout}: {least} {other}");
        }
    }

    #[test]
    fn a_price_is_the_cost_by_definition_but_for_the_bucket_at_the_timeout(
        gaps in gaps(), wake in 1_000.0..400_000.0f64,
    ) {
        let grid = grid();
        let curve = Curve::of(&grid, &histogram(&gaps));
        for timeout in grid.candidates() {
            let t = timeout_ns(*timeout);
            let straddling = gaps.iter().filter(|gap| {
                let bucket = time_bucket(**gap);
                (time_bucket_low_ns(bucket) as f64) < t && (time_bucket_high_ns(bucket) as f64) > t
            }).count() as f64;
            let (got, exact) = (curve.price(&grid, t).cost_ns(wake), cost(&gaps, t, wake));
            let slack = straddling * (wake + t) + 1e-6 * exact + 1.0;
            prop_assert!((got - exact).abs() <= slack, "{timeout}: {got} {exact} {slack}");
        }
    }

    #[test]
    fn prices_in_a_row_are_prices_one_by_one(gaps in gaps()) {
        let grid = grid();
        let curve = Curve::of(&grid, &histogram(&gaps));
        for (timeout, price) in curve.prices(&grid) {
            let single = curve.price(&grid, timeout_ns(timeout));
            prop_assert!((price.spin_ns - single.spin_ns).abs() <= 1e-6 * single.spin_ns + 1.0);
            prop_assert!((price.misses - single.misses).abs() <= 1e-6);
        }
    }

    #[test]
    fn a_difference_is_that_of_the_prices(
        gaps in gaps(), wake in 1_000.0..400_000.0f64,
        one in 0u32..1_000, other in 0u32..1_000,
    ) {
        let grid = grid();
        let curve = Curve::of(&grid, &histogram(&gaps));
        let (one, other) = (timeout_ns(one), timeout_ns(other));
        let apart = curve.price(&grid, one).cost_ns(wake) - curve.price(&grid, other).cost_ns(wake);
        let got = curve.difference(&grid, one, other, wake);
        let expected = apart / curve.gaps();
        prop_assert!((got.mean_ns - expected).abs() <= 1e-6 * (wake + one + other) + 1e-3);
        let back = curve.difference(&grid, other, one, wake);
        prop_assert!((got.mean_ns + back.mean_ns).abs() < 1e-9);
        prop_assert!(got.error_ns.is_finite() && got.error_ns >= 0.0);
    }

    #[test]
    fn a_dearer_wake_up_never_makes_spinning_shorter(
        gaps in gaps(), wake in 1_000.0..200_000.0f64, more in 1.0..4.0f64,
    ) {
        let grid = grid();
        let curve = Curve::of(&grid, &histogram(&gaps));
        let chosen = |wake| {
            let timeout = curve.cheapest(&grid, wake, (0, 400)).unwrap();
            curve.price(&grid, timeout_ns(timeout)).spin_ns
        };
        prop_assert!(chosen(wake) <= chosen(wake * more) * (1.0 + 1e-5) + 1.0);
    }
}
