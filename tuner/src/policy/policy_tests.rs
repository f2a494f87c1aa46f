//! The policy as a whole, on made-up looks.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tuner_common::hist::time_bucket;

use super::config::Override;
use super::*;
use crate::model::TimeHistogram;

const LOOK_NS: u64 = 100_000_000;

fn key(number: u32) -> PairKey {
    PairKey {
        pid: 1000 + number,
        fd: 30,
        device: u64::from(number),
    }
}

fn histogram(gaps: &[(u64, u64)]) -> TimeHistogram {
    let mut histogram = TimeHistogram::default();
    for (us, count) in gaps {
        histogram.add(time_bucket(us * 1000), *count);
    }
    histogram
}

fn vring(timeout: u32, gaps: &[(u64, u64)]) -> VringLook {
    let count = gaps.iter().map(|(_, count)| count).sum();
    VringLook {
        timeout,
        gaps: Some(histogram(gaps)),
        packets: count,
        run_ns: 1000 * count,
        wakes: Some(count),
        wake_wait_ns: Some(count * 8000),
        spin_ns: Some(0),
        batches: None,
        missed: 0,
    }
}

fn pair(number: u32, timeout: u32, rx: &[(u64, u64)]) -> PairLook {
    PairLook {
        key: key(number),
        vm: format!("vm{number}"),
        backend: Backend::Module,
        interval_ns: LOOK_NS,
        worker: WorkerLook::default(),
        tx_batched: None,
        rx: vring(timeout, rx),
        tx: vring(0, &[]),
    }
}

fn look(number: u64, pairs: Vec<PairLook>) -> Look {
    Look {
        at_ns: number * LOOK_NS,
        lost: 0,
        complete: true,
        pairs,
    }
}

fn policy(change: impl FnOnce(&mut Config)) -> Policy {
    let mut config = Config::default();
    config.profiles.balanced.wake_us = Some(150.0);
    change(&mut config);
    Policy::new(config, Mode::Act).unwrap()
}

/// One pair with this traffic for so many looks, with what is decided being set.
fn run(policy: &mut Policy, looks: u64, gaps: &[(u64, u64)]) -> Vec<Decision> {
    let mut set = 0;
    let mut all = Vec::new();
    for number in 1..=looks {
        let outcome = policy.look(&look(number, vec![pair(1, set, gaps)]));
        for decision in &outcome.decisions {
            set = decision.to;
        }
        all.extend(outcome.decisions);
    }
    all
}

#[test]
fn a_decision_names_its_reason_and_figures() {
    let decisions = run(&mut policy(|_| {}), 10, &[(60, 1000)]);
    let [decision] = decisions.as_slice() else {
        panic!("one decision: {decisions:?}");
    };
    assert_eq!(decision.knob, Knob::BusyloopRx);
    assert_eq!((decision.from, decision.to), (0, 75));
    assert!(matches!(decision.reason, Reason::Cheapest(_)));
    let basis = &decision.basis;
    assert!((basis.gaps.unwrap() - 1000.0).abs() < 1e-6);
    assert!((basis.cost_after_us.unwrap() - 60.0).abs() < 4.0);
    assert!(basis.cost_before_us.unwrap() > 140.0);
    // 1,000 gaps of 60 µs in 0.1 s: 60 % of a core.
    assert!((basis.spin_percent.unwrap() - 60.0).abs() < 4.0);
    let json = serde_json::to_value(decision).unwrap();
    assert_eq!(json["knob"], "busyloop_rx");
    assert_eq!(json["reason"]["cheapest"], "phase");
}

#[test]
fn a_degraded_figure_decides_nothing() {
    for spoil in [
        (|look: &mut Look| look.pairs[0].rx.gaps = None) as fn(&mut Look),
        |look| look.pairs[0].rx.missed = 1,
        |look| look.lost = 1,
    ] {
        let mut policy = policy(|_| {});
        for number in 1..50 {
            let mut look = look(number, vec![pair(1, 0, &[(60, 1000)])]);
            spoil(&mut look);
            assert_eq!(policy.look(&look).decisions, []);
        }
        // And once it is whole again, it counts from there.
        let decisions = policy
            .look(&look(50, vec![pair(1, 0, &[(60, 1000)])]))
            .decisions;
        assert_eq!(decisions.len(), 1);
    }
}

#[test]
fn an_administrators_change_is_respected_and_said_once() {
    let mut policy = policy(|_| {});
    policy.look(&look(1, vec![pair(1, 0, &[(60, 1000)])]));
    policy.look(&look(2, vec![pair(1, 75, &[(60, 1000)])]));
    let outcome = policy.look(&look(3, vec![pair(1, 33, &[(60, 1000)])]));
    assert_eq!(outcome.decisions, []);
    assert_eq!(
        outcome.notices,
        [Notice::SteppedAside {
            vm: "vm1".to_owned(),
            pair: key(1),
            knob: Knob::BusyloopRx,
            ours: 75,
            theirs: 33,
        }]
    );
    for number in 4..50 {
        let outcome = policy.look(&look(number, vec![pair(1, 33, &[(3000, 100)])]));
        assert_eq!((outcome.decisions.len(), outcome.notices.len()), (0, 0));
    }
    policy.resume(key(1), Knob::BusyloopRx);
    let outcome = policy.look(&look(50, vec![pair(1, 33, &[(60, 1000)])]));
    assert_eq!(outcome.decisions.len(), 1);
}

#[test]
fn what_could_not_be_set_is_decided_again_but_not_at_once() {
    let mut policy = policy(|_| {});
    let first = policy
        .look(&look(1, vec![pair(1, 0, &[(60, 1000)])]))
        .decisions;
    policy.failed(&first[0]);
    let mut second = Vec::new();
    for number in 2..=21 {
        assert_eq!(second, [], "too soon");
        let outcome = policy.look(&look(number, vec![pair(1, 0, &[(60, 1000)])]));
        second = outcome.decisions;
    }
    assert_eq!(second[0].to, first[0].to);
    assert_ne!(second[0].id, first[0].id);
}

#[test]
fn advice_is_given_once_and_changes_nothing() {
    let config = policy(|_| {}).config;
    let mut policy = Policy::new(config, Mode::Advise).unwrap();
    let mut said = Vec::new();
    for number in 1..50 {
        let outcome = policy.look(&look(number, vec![pair(1, 0, &[(60, 1000)])]));
        assert_eq!(outcome.notices, []);
        said.extend(outcome.decisions);
    }
    assert_eq!(said.len(), 1);
    // Somebody follows it: that is no reason to step aside for good.
    assert_eq!(said[0].to, 75);
}

#[test]
fn advice_is_given_too_where_nothing_could_set_it() {
    let config = policy(|_| {}).config;
    let mut policy = Policy::new(config, Mode::Advise).unwrap();
    let mut said = Vec::new();
    for number in 1..20 {
        let mut pair = pair(1, 0, &[(60, 1000)]);
        pair.backend = Backend::None;
        said.extend(policy.look(&look(number, vec![pair])).decisions);
    }
    assert_eq!(said.len(), 1);
}

#[test]
fn another_configuration_keeps_what_was_learnt() {
    let mut policy = policy(|_| {});
    run(&mut policy, 10, &[(60, 1000)]);
    let mut config = policy.config.clone();
    config.overrides = vec![Override {
        vm: "vm1".to_owned(),
        pin_busyloop_rx: Some(33),
        ..Override::default()
    }];
    policy.reconfigure(config.clone()).unwrap();
    let outcome = policy.look(&look(11, vec![pair(1, 75, &[(60, 1000)])]));
    assert_eq!(outcome.decisions[0].to, 33);
    assert_eq!(outcome.notices, []);
    // With other candidates it learns anew, and still knows what it set.
    config.overrides.clear();
    config.busyloop.candidates = vec![0, 62, 90];
    policy.reconfigure(config.clone()).unwrap();
    let outcome = policy.look(&look(12, vec![pair(1, 33, &[(60, 1000)])]));
    assert_eq!(outcome.decisions[0].to, 62);
    assert_eq!(outcome.notices, []);
    config.busyloop.candidates.clear();
    assert!(policy.reconfigure(config).is_err());
    assert_eq!(policy.config.busyloop.candidates, [0, 62, 90]);
}

#[test]
fn at_a_look_at_some_nobody_spins_more_than_the_budget_leaves() {
    let mut policy = policy(|c| c.budget.spin_cores = Some(0.7));
    let full = |set| vec![pair(1, set, &[(60, 1000)]), pair(2, 0, &[])];
    policy.look(&look(1, full(0)));
    policy.look(&look(2, full(75)));
    assert!(policy.predicted_spin_cores() > 0.5);
    for number in 3..20 {
        let mut partial = look(number, vec![pair(2, 0, &[(60, 1000)])]);
        partial.complete = false;
        assert_eq!(policy.look(&partial).decisions, []);
        assert!(policy.predicted_spin_cores() <= 0.7);
    }
}

#[test]
fn only_so_many_pairs_are_looked_at_more_often() {
    let mut policy = policy(|c| c.look.quick_pairs = 2);
    let mut set = BTreeMap::new();
    let mut again = Vec::new();
    for number in 1..200 {
        let turn = number / 5 % 2 == 0;
        let pairs = (0..5)
            .map(|vm| {
                let at = set.get(&key(vm)).copied().unwrap_or(0);
                // The fifth has the same traffic all the time.
                let short = turn || vm == 4;
                pair(vm, at, if short { &[(60, 1000)] } else { &[(2_000, 50)] })
            })
            .collect();
        let outcome = policy.look(&look(number, pairs));
        for decision in outcome.decisions {
            set.insert(decision.pair, decision.to);
        }
        again = outcome.again;
    }
    assert_eq!(again.len(), 2, "{again:?}");
    for (pair, ms) in again {
        assert!(pair != key(4) && (2.0..100.0).contains(&ms), "{pair} {ms}");
    }
}

#[test]
fn an_excluded_vm_is_left_alone_and_a_pin_needs_no_figures() {
    let rule = |vm: &str, exclude, pin| Override {
        vm: vm.to_owned(),
        exclude,
        pin_busyloop_rx: pin,
        ..Override::default()
    };
    let mut excluded = policy(|c| c.overrides = vec![rule("vm*", true, None)]);
    assert_eq!(run(&mut excluded, 20, &[(60, 1000)]), []);
    let mut pinned = policy(|c| c.overrides = vec![rule("vm?", false, Some(42))]);
    let decisions = run(&mut pinned, 20, &[]);
    assert_eq!(decisions.len(), 1);
    assert_eq!((decisions[0].to, decisions[0].reason), (42, Reason::Pinned));
}

#[test]
fn what_was_set_beyond_the_profiles_bounds_is_brought_within() {
    let mut policy = policy(|c| c.profiles.balanced.timeout = Bounds { min: 0, max: 100 });
    let outcome = policy.look(&look(1, vec![pair(1, 1000, &[])]));
    assert_eq!(outcome.decisions[0].to, 100);
    assert_eq!(outcome.decisions[0].reason, Reason::Bounds);
}

#[test]
fn a_worker_whose_cpu_is_wanted_does_not_spin() {
    let mut policy = policy(|_| {});
    let mut set = 0;
    let mut reasons = Vec::new();
    for number in 1..40 {
        let mut pair = pair(1, set, &[(60, 1000)]);
        let waits = number > 10 && set > 0;
        pair.worker.wait_ns = Some(if waits { LOOK_NS / 5 } else { 0 });
        for decision in policy.look(&look(number, vec![pair])).decisions {
            set = decision.to;
            reasons.push(decision.reason);
        }
    }
    assert_eq!(set, 0);
    assert_eq!(reasons.len(), 2);
    assert_eq!(reasons[1], Reason::Contended);
}

#[test]
fn a_backend_that_cannot_set_gets_no_decisions() {
    let mut policy = policy(|_| {});
    for number in 1..20 {
        let mut pair = pair(1, 0, &[(60, 1000)]);
        pair.backend = Backend::None;
        assert_eq!(policy.look(&look(number, vec![pair])).decisions, []);
    }
}

#[test]
fn a_pair_that_is_gone_is_forgotten() {
    let mut policy = policy(|_| {});
    policy.look(&look(1, vec![pair(1, 0, &[]), pair(2, 0, &[])]));
    assert_eq!(policy.pairs(), 2);
    let mut partial = look(2, vec![pair(2, 0, &[])]);
    partial.complete = false;
    policy.look(&partial);
    assert_eq!(policy.pairs(), 2, "it was not due");
    policy.look(&look(3, vec![pair(2, 0, &[])]));
    assert_eq!(policy.pairs(), 1);
}

#[test]
fn a_new_pair_is_looked_at_again_soon_until_it_is_known() {
    let mut policy = policy(|_| {});
    let again = |policy: &mut Policy, number, gaps: &[(u64, u64)]| {
        let outcome = policy.look(&look(number, vec![pair(1, 0, gaps)]));
        outcome.again.first().map(|(_, ms)| *ms)
    };
    assert_eq!(again(&mut policy, 1, &[]), Some(10.0));
    assert_eq!(again(&mut policy, 2, &[]), Some(20.0));
    assert_eq!(again(&mut policy, 3, &[(60, 1000)]), None);
    let mut idle = self::policy(|_| {});
    let waits: Vec<_> = (1..7).map(|number| again(&mut idle, number, &[])).collect();
    let expected = [10.0, 20.0, 40.0, 80.0].map(Some);
    assert_eq!(waits[..4], expected);
    assert_eq!(waits[4..], [None, None], "the usual time has come");
}

#[test]
fn the_budget_goes_where_it_saves_most() {
    // Two pairs spin 0.6 cores each; one saves far more wake-ups by it.
    let mut policy = policy(|c| c.budget.spin_cores = Some(0.7));
    let mut set = BTreeMap::from([(key(1), 0), (key(2), 0)]);
    for number in 1..100 {
        let pairs = vec![
            pair(1, set[&key(1)], &[(20, 3000)]),
            pair(2, set[&key(2)], &[(120, 500)]),
        ];
        for decision in policy.look(&look(number, pairs)).decisions {
            set.insert(decision.pair, decision.to);
        }
        assert!(policy.predicted_spin_cores() <= 0.7, "{number}");
    }
    assert!(set[&key(1)] >= 20, "{set:?}");
    assert_eq!(set[&key(2)], 0);
}

#[test]
fn spinning_that_may_not_be_changed_is_counted_and_told() {
    let mut policy = policy(|c| {
        c.budget.spin_cores = Some(0.1);
        c.overrides = vec![Override {
            vm: "vm1".to_owned(),
            exclude: true,
            ..Override::default()
        }];
    });
    let mut notices = Vec::new();
    for number in 1..20 {
        let pairs = vec![pair(1, 100, &[(60, 1000)]), pair(2, 0, &[(20, 3000)])];
        let outcome = policy.look(&look(number, pairs));
        assert_eq!(outcome.decisions, [], "there is nothing left to spin");
        notices.extend(outcome.notices);
    }
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(matches!(notices[0], Notice::OverBudget { .. }));
}

/// A look at some pairs, as it may come: gaps of each, and what is wrong.
type Made = (Vec<(Vec<(u64, u64)>, u8)>, u16);

fn made() -> impl Strategy<Value = Vec<Made>> {
    let gap = (
        prop_oneof![3 => 1u64..500, 1 => 500u64..20_000],
        prop_oneof![1 => 0u64..20, 2 => 20u64..2_000],
    );
    let pair = (prop::collection::vec(gap, 0..3), 0u8..20);
    let look = (prop::collection::vec(pair, 3), 1u16..300);
    prop::collection::vec(look, 1..60)
}

/// Feeds looks, sets what is decided, and hands each look with its outcome on.
fn feed(
    policy: &mut Policy,
    looks: &[Made],
    mut each: impl FnMut(&Policy, &Look, &[Decision]),
) -> Vec<Decision> {
    let mut set: BTreeMap<(PairKey, Knob), u32> = BTreeMap::new();
    let mut all = Vec::new();
    let mut now_ns = 0;
    for (pairs, ms) in looks {
        now_ns += u64::from(*ms) * 1_000_000;
        let mut look = Look {
            at_ns: now_ns,
            lost: 0,
            complete: true,
            pairs: Vec::new(),
        };
        for (number, (gaps, spoil)) in pairs.iter().enumerate() {
            let number = number as u32;
            let at = |knob| set.get(&(key(number), knob)).copied().unwrap_or(0);
            let mut pair = pair(number, at(Knob::BusyloopRx), gaps);
            pair.tx = vring(at(Knob::BusyloopTx), gaps);
            pair.interval_ns = u64::from(*ms) * 1_000_000;
            match spoil {
                0 => pair.rx.gaps = None,
                1 => pair.tx.missed = 3,
                2 => look.lost = 1,
                3 => pair.worker.wait_ns = Some(pair.interval_ns / 3),
                _ => pair.worker.wait_ns = Some(0),
            }
            look.pairs.push(pair);
        }
        let outcome = policy.look(&look);
        for decision in &outcome.decisions {
            set.insert((decision.pair, decision.knob), decision.to);
        }
        each(policy, &look, &outcome.decisions);
        all.extend(outcome.decisions);
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_same_looks_give_the_same_decisions(looks in made()) {
        let new = || policy(|c| c.budget.spin_cores = Some(0.5));
        let first = feed(&mut new(), &looks, |_, _, _| {});
        let second = feed(&mut new(), &looks, |_, _, _| {});
        prop_assert_eq!(first, second);
    }

    #[test]
    fn nothing_changes_within_the_dwell(looks in made(), dwell_ms in 1.0..2_000.0f64) {
        let mut policy = policy(|c| c.change.module_dwell_ms = dwell_ms);
        let mut last: BTreeMap<(PairKey, Knob), u64> = BTreeMap::new();
        feed(&mut policy, &looks, |_, look, decisions| {
            for decision in decisions {
                let what = (decision.pair, decision.knob);
                if let Some(before) = last.insert(what, look.at_ns) {
                    assert!((look.at_ns - before) as f64 >= dwell_ms * 1e6);
                }
            }
        });
    }

    #[test]
    fn no_decision_comes_from_a_degraded_figure(looks in made()) {
        feed(&mut policy(|_| {}), &looks, |_, look, decisions| {
            for decision in decisions {
                if decision.reason == Reason::Contended {
                    continue;
                }
                let pair = look.pairs.iter().find(|p| p.key == decision.pair).unwrap();
                let vring = if decision.knob == Knob::BusyloopRx { &pair.rx } else { &pair.tx };
                assert!(look.lost == 0 && vring.missed == 0 && vring.gaps.is_some());
            }
        });
    }

    #[test]
    fn the_budget_is_kept_by_prediction_or_nothing_is_left_to_give(
        looks in made(), budget in 0.0..1.0f64,
    ) {
        let mut policy = policy(|c| c.budget.spin_cores = Some(budget));
        feed(&mut policy, &looks, |policy, look, _| {
            if policy.predicted_spin_cores() <= budget + 1e-9 {
                return;
            }
            let common = policy.common(look.at_ns);
            for pair in policy.pairs.values() {
                for direction in Direction::ALL {
                    let spins = pair.spin_share(&policy.grid, direction, pair.set(direction));
                    let whole = pair.vrings[direction as usize].whole;
                    let open = pair.may_change(&common, direction) && whole;
                    assert!(!open || spins <= 1e-9, "{spins}");
                }
            }
        });
    }

    #[test]
    fn what_is_set_is_within_the_bounds(looks in made()) {
        let range = Bounds { min: 10, max: 125 };
        let mut policy = policy(|c| c.profiles.balanced.timeout = range);
        let decisions = feed(&mut policy, &looks, |_, _, _| {});
        for decision in decisions {
            prop_assert!(range.hold(decision.to) || decision.reason == Reason::Contended);
        }
    }
}
