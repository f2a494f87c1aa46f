use super::super::flow::Gaps;
use super::*;

const WAKE_NS: f64 = 50_000.0;

fn around(mean: f64, by: f64) -> Gaps {
    Gaps::Around { mean, by }
}

fn fixed(us: u64) -> Rule {
    Rule::Fixed {
        timeout_ns: us * 1000,
    }
}

fn answered(gaps: Gaps, packets: u64, seed: u64) -> Flow {
    Flow::answered(vec![(Direction::Tx, gaps)], packets, seed)
}

/// Runs one pair to its end.
fn run(flows: Vec<Flow>, rule: Rule) -> Machine {
    let mut machine = Machine::new(vec![Pair::new(flows, [rule; 2])], Costs::default(), 1);
    assert!(!machine.run_until(u64::MAX - 1));
    machine
}

/// What it came to.
fn totals(machine: &mut Machine) -> Totals {
    let mut totals = machine.totals.clone();
    for pair in &mut machine.pairs {
        for tally in pair.take().0 {
            totals.add(&tally);
        }
    }
    totals
}

fn cost(flows: Vec<Flow>, rule: Rule) -> f64 {
    totals(&mut run(flows, rule)).cost_ns(WAKE_NS)
}

#[test]
fn a_worker_that_does_not_spin_is_woken_for_every_packet() {
    let totals = totals(&mut run(
        vec![answered(around(100.0, 10.0), 500, 1)],
        fixed(0),
    ));
    assert_eq!(
        (totals.packets, totals.wakes, totals.spin_ns),
        (500, 500, 0)
    );
}

#[test]
fn one_that_spins_long_enough_is_woken_once() {
    let totals = totals(&mut run(
        vec![answered(around(100.0, 10.0), 500, 1)],
        fixed(150),
    ));
    assert_eq!((totals.packets, totals.wakes), (500, 1));
    // 499 gaps of 100 µs, and one timeout after the last packet.
    let expected = 499.0 * 100e3 + 150e3;
    assert!((totals.spin_ns as f64 / expected - 1.0).abs() < 0.01);
    assert_eq!(
        totals.waits.quantiles_us().p99.map(|us| us < 1.0),
        Some(true)
    );
}

#[test]
fn one_that_spins_too_short_pays_both() {
    let totals = totals(&mut run(
        vec![answered(around(100.0, 10.0), 500, 1)],
        fixed(50),
    ));
    assert_eq!((totals.wakes, totals.spin_ns), (500, 500 * 50_000));
    assert!(totals.waits.quantiles_us().p50.is_some_and(|us| us > 5.0));
}

#[test]
fn gaps_are_the_same_whatever_the_timeout_is() {
    let gaps = |rule| {
        let mut machine = run(
            vec![answered(Gaps::Exponential { mean: 80.0 }, 2000, 3)],
            rule,
        );
        let ([_, tx], ..) = machine.pairs[0].take();
        tx.gaps
    };
    assert_eq!(gaps(fixed(0)).count(), 1999);
    assert_eq!(gaps(fixed(0)), gaps(fixed(60)));
    assert_eq!(gaps(fixed(0)), gaps(fixed(1000)));
}

#[test]
fn knowing_the_future_is_cheapest_and_break_even_at_most_twice_that() {
    for mean in [10.0, 40.0, 60.0, 300.0] {
        let flow = || vec![answered(Gaps::Exponential { mean }, 3000, 5)];
        let wake_ns = WAKE_NS as u64;
        let least = cost(flow(), Rule::Clairvoyant { wake_ns });
        for us in [0, 10, 50, 100, 400] {
            assert!(least <= cost(flow(), fixed(us)), "{mean} {us}");
        }
        assert!(cost(flow(), fixed(50)) <= 2.0 * least, "{mean}");
    }
}

#[test]
fn time_on_the_cpu_is_runs_and_wake_ups() {
    let flows = vec![
        answered(Gaps::Exponential { mean: 60.0 }, 1000, 1),
        Flow::clocked(Direction::Rx, Gaps::Exponential { mean: 90.0 }, 0.1, 2),
    ];
    let mut machine = run(flows, fixed(30));
    let ([rx, tx], cpu_ns, wait_ns) = machine.pairs[0].take();
    let wakes = rx.wakes + tx.wakes;
    assert_eq!(
        cpu_ns,
        rx.run_ns + tx.run_ns + wakes * Costs::default().switch
    );
    assert_eq!(wait_ns, 0, "it has the CPU for itself");
    assert!(rx.packets > 900 && tx.packets == 1000);
}

#[test]
fn packets_that_come_during_a_wake_up_are_handled_together() {
    let flow = Flow::clocked(Direction::Rx, around(2.0, 0.5), 0.05, 1);
    let mut machine = run(vec![flow], fixed(0));
    let totals = totals(&mut machine);
    assert!(totals.wakes * 4 < totals.packets, "{totals:?}");
}

#[test]
fn no_batch_is_larger_than_the_cap() {
    let flow = || Flow::clocked(Direction::Tx, around(0.6, 0.1), 0.01, 1);
    let largest = |cap| {
        let mut pair = Pair::new(vec![flow()], [fixed(0); 2]);
        pair.cap = cap;
        let mut machine = Machine::new(vec![pair], Costs::default(), 1);
        machine.run_until(u64::MAX - 1);
        let ([_, tx], ..) = machine.pairs[0].take();
        tx.largest
    };
    assert_eq!(largest(4), 4);
    assert!(largest(64) > 4);
}

#[test]
fn a_spinning_worker_makes_room_for_another() {
    let spinner = Pair::new(
        vec![answered(around(500.0, 10.0), 200, 1)],
        [fixed(10_000); 2],
    );
    let other = Pair::new(vec![answered(around(300.0, 50.0), 300, 2)], [fixed(0); 2]);
    let mut machine = Machine::new(vec![spinner, other], Costs::default(), 1);
    machine.run_until(u64::MAX - 1);
    let (_, _, waited) = machine.pairs[1].take();
    let ([_, tx], ..) = machine.pairs[0].take();
    assert!(waited > 0, "it had to wait for the CPU");
    let most = 310 * (Costs::default().resched + 10_000);
    assert!(waited < most, "but not for long: {waited}");
    assert!(
        tx.wakes > 50,
        "the spinning one gave up its spin: {}",
        tx.wakes
    );
}

#[test]
fn the_time_it_stops_at_makes_no_difference() {
    let flow = || vec![answered(Gaps::Exponential { mean: 50.0 }, 2000, 9)];
    let whole = totals(&mut run(flow(), fixed(40)));
    let mut machine = Machine::new(vec![Pair::new(flow(), [fixed(40); 2])], Costs::default(), 1);
    let mut end_ns = 0;
    while machine.run_until(end_ns) {
        end_ns += 777_000;
    }
    let parts = totals(&mut machine);
    assert_eq!(
        (whole.packets, whole.wakes, whole.spin_ns),
        (parts.packets, parts.wakes, parts.spin_ns)
    );
}

#[test]
fn a_vrings_own_gaps_are_longer_where_the_other_is_served_between() {
    let longest = |sight| {
        let legs = vec![
            (Direction::Tx, around(10.0, 0.0)),
            (Direction::Rx, around(60.0, 0.0)),
        ];
        let mut pair = Pair::new(vec![Flow::answered(legs, 200, 1)], [fixed(100); 2]);
        pair.sight = sight;
        let mut machine = Machine::new(vec![pair], Costs::default(), 1);
        machine.run_until(u64::MAX - 1);
        let (tallies, ..) = machine.pairs[0].take();
        tallies.map(|tally| tally.gaps.quantiles_us().p50.expect("gaps"))
    };
    let [rx, tx] = longest(Sight::Pair);
    assert!(
        (9.0..11.0).contains(&rx) && (55.0..65.0).contains(&tx),
        "{rx} {tx}"
    );
    let own = longest(Sight::Own);
    assert!(own.iter().all(|us| (68.0..80.0).contains(us)), "{own:?}");
}
