//! Packets, kicks, interrupts and runs are counted exactly.

use serde_json::Value;

use crate::support::{Calls, Lab, Queues, Stat, total};

/// Enough that a lost update or a missed probe would show.
const PACKETS: &str = "100000";

fn counted(more: &[&str]) {
    let stat = Stat::start();
    let runs = [
        Calls::of("vhost_net", "handle_rx"),
        Calls::of("vhost_net", "handle_tx"),
    ];
    let mut arguments = vec!["--mode", "bidir", "--packets", PACKETS];
    arguments.extend(more);
    let mut lab = Lab::open(&arguments);
    let result = lab.run();
    let queues = stat.queues(&lab.pid());
    let pairs = result["pairs"].as_array().unwrap();
    assert_eq!(queues.len(), 2 * pairs.len());
    for pair in pairs {
        compare(pair, &queues);
    }
    // The driver cannot see runs: tracefs counts the calls instead.
    let by_us: u64 = queues.values().map(|q| total(q, "runs")).sum();
    let by_tracefs: u64 = runs.iter().map(Calls::count).sum();
    assert_eq!(by_us, by_tracefs);
    lab.close();
}

fn compare(pair: &Value, queues: &Queues) {
    let fd = pair["vhost_fd"].as_u64().unwrap();
    for direction in ["rx", "tx"] {
        let queue = &queues[&(fd, direction.to_owned())];
        let driver = &pair[direction];
        assert!(driver["packets"].as_u64().unwrap() >= 100_000);
        for figure in ["packets", "kicks", "interrupts"] {
            assert_eq!(
                queue["totals"][figure], driver[figure],
                "{direction} {figure}, ours against the driver's; {driver}, {}",
                queue["totals"]
            );
        }
        assert_eq!(total(queue, "missed"), 0);
        let flushes: u64 = ["cap", "dry", "weight", "single"]
            .iter()
            .map(|cause| total(queue, &format!("flushes_{cause}")))
            .sum();
        assert_eq!(flushes, total(queue, "batches"));
    }
}

#[test]
fn one_queue_pair() {
    counted(&[]);
}

#[test]
fn one_queue_pair_with_event_index() {
    counted(&["--event-idx"]);
}

#[test]
fn four_queue_pairs() {
    counted(&["--pairs", "4"]);
}

#[test]
fn four_queue_pairs_with_event_index_that_spin() {
    counted(&[
        "--pairs",
        "4",
        "--event-idx",
        "--busyloop-rx",
        "50",
        "--busyloop-tx",
        "50",
    ]);
}

#[test]
fn a_macvtap() {
    counted(&["--backend", "macvtap"]);
}
