//! The gap histogram shows the gaps that the driver made, whatever the timeout.

use tuner_common::queue::{RX, TX};
use vhost_tuner::inspect::Kernel;
use vhost_tuner::model::TimeHistogram;
use vhost_tuner::model::figures::blank;
use vhost_tuner::probe::{Options, Probes};

use crate::support::Lab;

/// A gap as the driver knows it and as we measured it, in µs.
///
/// A machine that is busy with something else makes gaps longer on the way to
/// vhost, never shorter. So what is compared is what a tenth of them are not
/// above: the driver's gaps are all the same.
fn one_gap(mode: &str, direction: u32, timeout: &str) -> (f64, f64) {
    let option = if direction == TX {
        "--busyloop-tx"
    } else {
        "--busyloop-rx"
    };
    let mut probes = Probes::attach(&Kernel::inspect(), Options::default()).unwrap();
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
    let devices = probes.devices().unwrap();
    let device = devices.iter().find(|d| d.pid.to_string() == lab.pid());
    let sample = probes.sample().unwrap();
    let queue = &sample.queues[&(device.unwrap().net, direction)].0;
    let gaps = TimeHistogram::between(&blank().gap, &queue.gap);
    assert!(gaps.count() >= 1400, "{} gaps of 1500", gaps.count());
    lab.close();
    let known = result["pairs"][0]["gap_us"]["p50"].as_f64().unwrap();
    (known, gaps.quantile_ns(0.1).unwrap() / 1000.0)
}

/// One step of the histogram (an eighth), and what lies between the driver's
/// clock readings and vhost's: the kick's way through the kernel. Below the last
/// timeout the gap ends a poll, above the others a sleep.
fn agree(mode: &str, direction: u32) {
    const WAY_US: f64 = 60.0;
    for timeout in ["0", "50", "500", "5000"] {
        let (known, measured) = one_gap(mode, direction, timeout);
        println!("{mode}, timeout {timeout}: driver {known} µs, measured {measured} µs");
        assert!(
            (measured - known).abs() <= known / 8.0 + WAY_US,
            "{mode}, timeout {timeout}: the driver's gap is {known} µs, ours {measured} µs"
        );
    }
}

#[test]
fn gaps_of_the_guest() {
    agree("txburst", TX);
}

#[test]
fn gaps_of_the_host() {
    agree("rxburst", RX);
}
