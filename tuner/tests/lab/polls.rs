//! How busy polls end.

use serde_json::Value;

use crate::locks::Refused;
use crate::support::{Calls, Lab, Stat, total};

/// Figures of (rx, tx) after some traffic: as many polls as the function was
/// called, and no more time spun than the worker has lived through.
fn after(arguments: &[&str]) -> (Value, Value) {
    let stat = Stat::start();
    let calls = Calls::of("vhost_net", "vhost_net_busy_poll");
    let mut lab = Lab::open(arguments);
    lab.pin();
    lab.run();
    let queues = stat.queues(&lab.pid());
    let of = |direction: &str| {
        let mut found = queues.iter().filter(|((_, d), _)| d == direction);
        found.next().unwrap().1.clone()
    };
    let (rx, tx) = (of("rx"), of("tx"));
    for queue in [&rx, &tx] {
        assert_eq!(total(queue, "missed"), 0);
    }
    assert_eq!(total(&rx, "polls") + total(&tx, "polls"), calls.count());
    let worker = &lab.workers()[0];
    let schedstat = std::fs::read_to_string(format!("/proc/{worker}/schedstat")).unwrap();
    let mut times = schedstat
        .split_whitespace()
        .map(|word| word.parse::<u64>().unwrap());
    let lived = times.next().unwrap() + times.next().unwrap();
    assert!(total(&rx, "spin_ns") + total(&tx, "spin_ns") <= lived);
    lab.close();
    (rx, tx)
}

/// Share of the polls that ended so.
fn share(queue: &Value, outcome: &str) -> f64 {
    total(queue, outcome) as f64 / total(queue, "polls") as f64
}

#[test]
fn a_timeout_of_zero_never_polls() {
    let (rx, tx) = after(&["--mode", "echo", "--packets", "2000"]);
    assert_eq!((total(&rx, "polls"), total(&tx, "polls")), (0, 0));
    assert_eq!(total(&rx, "spin_ns") + total(&tx, "spin_ns"), 0);
}

#[test]
fn gaps_well_below_the_timeout_are_own_hits() {
    let (_, tx) = after(&[
        "--mode",
        "txburst",
        "--burst",
        "1",
        "--gap-us",
        "200",
        "--packets",
        "2000",
        "--busyloop-tx",
        "8000",
    ]);
    assert!(total(&tx, "polls") > 1500, "{}", tx["totals"]);
    assert!(share(&tx, "poll_own_hits") > 0.9, "{}", tx["totals"]);
}

#[test]
pub(crate) fn gaps_well_above_the_timeout_are_misses() {
    let (_, tx) = after(&[
        "--mode",
        "txburst",
        "--burst",
        "1",
        "--gap-us",
        "3000",
        "--packets",
        "1000",
        "--busyloop-tx",
        "50",
    ]);
    assert!(total(&tx, "polls") > 900, "{}", tx["totals"]);
    assert!(share(&tx, "poll_misses") > 0.9, "{}", tx["totals"]);
}

#[test]
pub(crate) fn host_packets_alone_are_own_hits_of_the_receive_ring() {
    let (rx, tx) = after(&[
        "--mode",
        "rxburst",
        "--burst",
        "1",
        "--gap-us",
        "200",
        "--packets",
        "2000",
        "--busyloop-rx",
        "8000",
    ]);
    assert!(share(&rx, "poll_own_hits") > 0.9, "{}", rx["totals"]);
    assert_eq!(total(&tx, "polls"), 0);
}

#[test]
pub(crate) fn a_spinning_receive_side_finds_the_guests_packets() {
    let (rx, tx) = after(&[
        "--mode",
        "echo",
        "--packets",
        "2000",
        "--busyloop-rx",
        "8000",
    ]);
    assert!(total(&rx, "poll_peer_hits") > 1000, "{}", rx["totals"]);
    assert_eq!(total(&tx, "polls"), 0);
    // What it found was run for that reason.
    assert!(total(&tx, "runs_peer") > 1000, "{}", tx["totals"]);
}

#[test]
pub(crate) fn a_spinning_transmit_side_finds_the_hosts_packets() {
    let (rx, tx) = after(&[
        "--mode",
        "echo",
        "--packets",
        "2000",
        "--busyloop-tx",
        "8000",
    ]);
    assert!(total(&tx, "poll_peer_hits") > 1000, "{}", tx["totals"]);
    assert_eq!(total(&rx, "polls"), 0);
}

#[test]
pub(crate) fn every_miss_has_spun_for_the_timeout() {
    let (_, tx) = after(&[
        "--mode",
        "txburst",
        "--burst",
        "1",
        "--gap-us",
        "4000",
        "--packets",
        "500",
        "--busyloop-tx",
        "500",
    ]);
    // In the kernel's unit. The upper bound is the worker's own time, above.
    let least = total(&tx, "poll_misses") * 500 * 1024;
    assert!(total(&tx, "poll_misses") > 400, "{}", tx["totals"]);
    assert!(total(&tx, "spin_ns") >= least, "{}", tx["totals"]);
}

/// How many packets go through while the other ring is locked, at least. Each
/// leaves its ring dry.
pub(crate) const LOCKED: u64 = 200;

/// Traffic in one direction alone, one packet at a time: the other ring can be
/// locked without anybody waiting for it.
#[derive(Clone, Copy)]
pub(crate) enum Silent {
    /// The host sends.
    Tx,
    /// The guest sends.
    Rx,
}

impl Silent {
    pub(crate) const BOTH: [Self; 2] = [Self::Tx, Self::Rx];

    /// Names of the ring with traffic and of the other one.
    const fn rings(self) -> [&'static str; 2] {
        match self {
            Self::Tx => ["rx", "tx"],
            Self::Rx => ["tx", "rx"],
        }
    }

    /// For the lab driver.
    pub(crate) fn arguments(self) -> [&'static str; 12] {
        let [mode, busyloop] = match self {
            Self::Tx => ["rxburst", "--busyloop-rx"],
            Self::Rx => ["txburst", "--busyloop-tx"],
        };
        [
            "--mode",
            mode,
            "--burst",
            "1",
            "--gap-us",
            "2000",
            busyloop,
            "50",
            "--seconds",
            "600",
            "--report-ms",
            "50",
        ]
    }

    /// Some packets before, some while the other ring is locked, some after.
    pub(crate) fn lock_for_a_while(self, lab: &mut Lab) {
        let [busy, silent] = self.rings();
        lab.wait_for(busy, 50);
        lab.hold(silent);
        lab.wait_for(busy, LOCKED);
        lab.free();
        lab.wait_for(busy, 50);
        lab.stop();
    }
}

#[test]
fn polls_with_the_other_ring_locked_are_skipped() {
    for silent in Silent::BOTH {
        let [busy, other] = silent.rings();
        let stat = Stat::start();
        let calls = Calls::of("vhost_net", "vhost_net_busy_poll");
        let mut lab = Lab::open(&silent.arguments());
        lab.pin();
        let [worker] = &lab.workers()[..] else {
            panic!("one worker is expected");
        };
        let refused = Refused::to(worker);
        let figures = |stat: &Stat, lab: &Lab| {
            let queues = stat.queues(&lab.pid());
            let mut found = queues.iter().filter(|((_, d), _)| d == busy);
            found.next().unwrap().1.clone()
        };

        lab.go();
        lab.wait_for(busy, 100);
        let before = figures(&stat, &lab);
        assert_eq!(total(&before, "poll_skipped"), refused.count());
        lab.hold(other);
        lab.wait_for(busy, LOCKED);
        lab.free();
        let after = figures(&stat, &lab);
        let skipped = total(&after, "poll_skipped");
        // The ring is free: what was refused stays as it is from here on.
        assert_eq!(skipped, refused.count(), "{after}");
        assert!(skipped >= LOCKED, "{after}");

        lab.wait_for(busy, 100);
        lab.stop();
        lab.result();
        let last = figures(&stat, &lab);
        assert_eq!(total(&last, "poll_skipped"), skipped, "{last}");
        assert_eq!(refused.count(), skipped);
        assert!(total(&last, "poll_misses") >= total(&after, "poll_misses") + 50);
        assert_eq!(total(&last, "polls"), calls.count());
        assert_eq!(total(&last, "missed"), 0);
        lab.close();
    }
}
