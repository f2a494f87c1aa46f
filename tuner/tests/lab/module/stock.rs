//! Loaded and left alone, the module behaves as the kernel's own.

use serde_json::Value;

use super::Module;
use crate::polls;
use crate::support::{Lab, Stat, total};

/// Traffic of which the guest's side alone decides what is handed over when.
const STEADY: [&[&str]; 4] = [
    &[
        "--mode",
        "txburst",
        "--burst",
        "1",
        "--gap-us",
        "300",
        "--packets",
        "1000",
    ],
    &[
        "--mode",
        "txburst",
        "--burst",
        "48",
        "--gap-us",
        "300",
        "--packets",
        "9600",
    ],
    // The gap keeps a run from going on into the next burst.
    &[
        "--mode",
        "txburst",
        "--burst",
        "192",
        "--gap-us",
        "3000",
        "--packets",
        "19200",
    ],
    &[
        "--mode",
        "txburst",
        "--burst",
        "9",
        "--packets",
        "1800",
        "--mtu",
        "9000",
        "--payload",
        "6000",
    ],
];

fn transmitted(stat: &Stat, arguments: &[&str]) -> Value {
    let mut lab = Lab::open(arguments);
    lab.run();
    let queues = stat.queues(&lab.pid());
    let tx = queues
        .iter()
        .find(|((_, d), _)| d == "tx")
        .unwrap()
        .1
        .clone();
    assert_eq!(total(&tx, "missed"), 0);
    lab.close();
    tx
}

const FIGURES: [&str; 8] = [
    "packets",
    "batches",
    "batch",
    "flushes_cap",
    "flushes_dry",
    "flushes_weight",
    "flushes_single",
    "polls",
];

#[test]
fn the_same_traffic_is_handed_over_the_same_way() {
    let stock = {
        let stat = Stat::start();
        STEADY.map(|arguments| transmitted(&stat, arguments))
    };
    for module in [Module::replacing as fn() -> Module, Module::livepatching] {
        let _module = module();
        let stat = Stat::start();
        for (arguments, stock) in STEADY.iter().zip(&stock) {
            let ours = transmitted(&stat, arguments);
            for figure in FIGURES {
                assert_eq!(
                    stock["totals"][figure], ours["totals"][figure],
                    "{arguments:?}: {figure}"
                );
            }
        }
    }
}

/// What holds for polls on the kernel's own module holds on ours.
#[test]
fn polls_end_the_same_way() {
    let _module = Module::replacing();
    polls::gaps_well_above_the_timeout_are_misses();
    polls::host_packets_alone_are_own_hits_of_the_receive_ring();
    polls::a_spinning_receive_side_finds_the_guests_packets();
    polls::a_spinning_transmit_side_finds_the_hosts_packets();
    polls::every_miss_has_spun_for_the_timeout();
}
