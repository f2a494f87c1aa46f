//! The gap histogram shows the gaps that the driver made, whatever the timeout.

use crate::support::{Lab, Stat};

/// The gaps' median as the driver knows it and as we measured it, in µs.
fn medians(mode: &str, timeout: &str) -> (f64, f64) {
    let (direction, option) = if mode == "txburst" {
        ("tx", "--busyloop-tx")
    } else {
        ("rx", "--busyloop-rx")
    };
    let stat = Stat::start();
    let mut lab = Lab::open(&[
        "--mode",
        mode,
        "--burst",
        "1",
        "--gap-us",
        "1000",
        "--packets",
        "1500",
        option,
        timeout,
    ]);
    lab.pin();
    let result = lab.run();
    let queues = stat.queues(&lab.pid());
    let (_, queue) = queues.iter().find(|((_, d), _)| d == direction).unwrap();
    let known = result["pairs"][0]["gap_us"]["p50"].as_f64().unwrap();
    let measured = queue["totals"]["gap_us"]["p50"].as_f64().unwrap();
    let count = queue["totals"]["gap_us"]["count"].as_u64().unwrap();
    assert!(count >= 1400, "{count} gaps were seen of 1500");
    lab.close();
    (known, measured)
}

/// One step of the histogram (an eighth), and what lies between the driver's
/// clock readings and vhost's: the kick's way through the kernel. Below the last
/// timeout the gap ends a poll, above the others a sleep.
fn agree(mode: &str) {
    const WAY_US: f64 = 60.0;
    for timeout in ["0", "50", "500", "5000"] {
        let (known, measured) = medians(mode, timeout);
        assert!(
            (measured - known).abs() <= known / 8.0 + WAY_US,
            "{mode}, timeout {timeout}: the driver's median is {known} µs, ours {measured} µs"
        );
    }
}

#[test]
fn gaps_of_the_guest() {
    agree("txburst");
}

#[test]
fn gaps_of_the_host() {
    agree("rxburst");
}
