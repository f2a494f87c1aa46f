//! Setting the busyloop timeout of a running process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vhost_tuner::inspect::Kernel;
use vhost_tuner::inventory::{Inventory, Target};
use vhost_tuner::knob::{Change, set};
use vhost_tuner::probe::DeviceLister;

use crate::broken_into::{KINDS, all_kinds};
use crate::support::{Flag, Lab, Stat, queues, total, tuner_json, tuner_output};

/// How many sets in a row; the soak test does more.
fn sets() -> u32 {
    if std::env::var_os("VHOST_TUNER_SOAK").is_some() {
        2000
    } else {
        200
    }
}

#[test]
fn the_kernel_uses_what_was_set() {
    let stat = Stat::start();
    let mut lab = Lab::open(&["--mode", "echo", "--packets", "1000"]);
    lab.run();
    let before = stat.queues(&lab.pid());
    assert!(before.values().all(|q| total(q, "polls") == 0));
    let set = tuner_json(&[
        "set",
        &lab.pid(),
        "--busyloop-rx",
        "300",
        "--busyloop-tx",
        "200",
        "--json",
    ]);
    assert_eq!(set["changes"].as_array().unwrap().len(), 2);
    for (row, want) in set["changes"].as_array().unwrap().iter().zip([300, 200]) {
        assert_eq!(row["before_us"], 0);
        assert_eq!(row["after_us"], want);
    }
    let list = queues(&tuner_json(&["list", "--json"]), &lab.pid());
    assert_eq!(list.len(), 2);
    for ((_, direction), queue) in &list {
        let want = if direction == "rx" { 300 } else { 200 };
        assert_eq!(queue["busyloop_timeout_us"], want);
    }
    lab.run();
    let after = stat.queues(&lab.pid());
    assert!(after.values().any(|q| total(q, "polls") > 100));
    for ((_, direction), queue) in &after {
        let want = if direction == "rx" { 300 } else { 200 };
        assert_eq!(queue["busyloop_timeout_us"], want);
    }
    lab.close();
}

#[test]
fn a_dry_run_changes_nothing() {
    let lab = Lab::open(&["--mode", "idle", "--busyloop-rx", "70"]);
    let planned = tuner_json(&[
        "set",
        &lab.pid(),
        "--busyloop-rx",
        "20000",
        "--force",
        "--dry-run",
        "--json",
    ]);
    assert_eq!(planned["changes"][0]["before_us"], 70);
    assert_eq!(planned["changes"][0]["after_us"], 20_000);
    let list = queues(&tuner_json(&["list", "--json"]), &lab.pid());
    let rx = list.iter().find(|((_, d), _)| d == "rx").unwrap().1;
    assert_eq!(rx["busyloop_timeout_us"], 70);
    lab.close();
}

#[test]
fn an_unknown_target_is_an_error_that_lists_what_there_is() {
    let lab = Lab::open(&["--mode", "idle"]);
    let output = tuner_output(&["set", "no-such-vm", "--busyloop-rx", "10"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains(&lab.pid()) && said.contains("vlab0"),
        "{said}"
    );
    lab.close();
}

#[test]
fn values_and_options_out_of_bounds_are_usage_errors() {
    for arguments in [
        &["set", "x", "--busyloop-rx", "10001"][..],
        &["set", "x", "--busyloop-rx", "-1"],
        &["set", "x", "--busyloop-rx", "1000001", "--force"],
        &["set", "x", "--all", "--busyloop-rx", "10"],
        &["undo"],
        &["set", "x"],
        &["set"],
        &["stat", "-i", "0"],
    ] {
        let output = tuner_output(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

/// Hundreds of sets while packets flow both ways and threads of the process
/// sit in system calls: no packet and no call notices.
#[test]
fn many_sets_under_load_go_unnoticed() {
    let kernel = Kernel::inspect();
    let mut lister = DeviceLister::new(&kernel).unwrap();
    let mut lab = Lab::open(&[
        "--mode",
        "bidir",
        "--packets",
        "150000",
        "--pairs",
        "2",
        "--sitters",
        &all_kinds(),
    ]);
    let inventory = Inventory::from_records(&lister.list().unwrap());
    let pid = lab.pid();
    let devices: Vec<_> = Target(pid)
        .resolve(&inventory)
        .unwrap()
        .into_iter()
        .cloned()
        .collect();
    assert_eq!(devices.len(), 2);
    let traffic: Flag = Arc::new(AtomicBool::new(false));
    let setter = std::thread::spawn({
        let traffic = Arc::clone(&traffic);
        move || {
            let mut stops = Vec::new();
            let mut under_load = 0usize;
            for number in 0..sets() {
                let device = &devices[number as usize % devices.len()];
                let value = number % 7 * 10;
                let change = Change {
                    rx: Some(value),
                    tx: Some(value + 5),
                };
                let before = traffic.load(Ordering::Relaxed);
                let report = set(device, change, &mut lister).unwrap();
                under_load += usize::from(before && traffic.load(Ordering::Relaxed));
                let now: Vec<u32> = report.rings.iter().map(|r| r.after).collect();
                assert_eq!(now, [value, value + 5]);
                stops.push(report.stopped_ns / 1000);
            }
            (stops, under_load)
        }
    });
    // Traffic until all sets are made.
    let mut result = serde_json::Value::Null;
    while result.is_null() || !setter.is_finished() {
        lab.go();
        traffic.store(true, Ordering::Relaxed);
        result = lab.result();
        traffic.store(false, Ordering::Relaxed);
    }
    let (mut stops, under_load) = setter.join().unwrap();
    stops.sort_unstable();
    println!(
        "{} sets, stop time p50 {} µs, p99 {} µs, max {} µs",
        stops.len(),
        stops[stops.len() / 2],
        stops[stops.len() * 99 / 100],
        stops[stops.len() - 1]
    );
    assert!(
        under_load * 2 > stops.len(),
        "{under_load} of {} sets were made under load",
        stops.len()
    );
    let sitters = result["sitters"].as_array().unwrap();
    assert_eq!(sitters.len(), KINDS.len());
    for sitter in sitters {
        assert!(sitter["calls"].as_u64().unwrap() > 10, "{sitter}");
        assert_eq!(sitter["failures"], 0, "{sitter}");
    }
    lab.close();
}
