//! The batch histogram shows how many packets were handed over together.

use crate::support::{Lab, Stat, total};

fn bursts_of(size: u64) {
    let stat = Stat::start();
    let packets = (size * 500).to_string();
    let mut lab = Lab::open(&[
        "--mode",
        "txburst",
        "--burst",
        &size.to_string(),
        "--gap-us",
        "300",
        "--packets",
        &packets,
    ]);
    let result = lab.run();
    let queues = stat.queues(&lab.pid());
    let (_, tx) = queues.iter().find(|((_, d), _)| d == "tx").unwrap();
    let batch = &tx["totals"]["batch"];
    for quantile in ["p50", "p90", "p99"] {
        assert_eq!(batch[quantile], size as f64, "bursts of {size}: {batch}");
    }
    let bursts = result["pairs"][0]["tx"]["bursts"].as_u64().unwrap();
    let primers = result["pairs"][0]["primers"].as_u64().unwrap();
    assert!(bursts >= 500);
    // A primer is a batch of its own.
    assert_eq!(total(tx, "batches"), bursts + primers);
    lab.close();
}

#[test]
fn bursts_of_one() {
    bursts_of(1);
}

#[test]
fn bursts_of_eight() {
    bursts_of(8);
}

#[test]
fn bursts_of_forty_eight() {
    bursts_of(48);
}

#[test]
fn a_flood_is_handed_over_at_the_cap() {
    let stat = Stat::start();
    // The gap keeps a run from going on into the next burst, where its weight
    // would divide a batch.
    let mut lab = Lab::open(&[
        "--mode",
        "txburst",
        "--burst",
        "192",
        "--gap-us",
        "3000",
        "--packets",
        "19200",
    ]);
    lab.run();
    let queues = stat.queues(&lab.pid());
    let (_, tx) = queues.iter().find(|((_, d), _)| d == "tx").unwrap();
    assert_eq!(tx["totals"]["batch"]["p50"], 64.0, "{tx}");
    assert_eq!(tx["totals"]["batch"]["p99"], 64.0, "{tx}");
    assert_eq!(total(tx, "flushes_cap"), 300, "{tx}");
    lab.close();
}
