//! `tx_batched`: the largest hand-over is exactly what it says.

use std::io::ErrorKind;

use tuner_common::hist::BATCH_BUCKETS;
use tuner_common::queue::{TX, flush};
use vhost_tuner::inspect::Kernel;
use vhost_tuner::probe::{Options, Probes};

use super::{Module, counters};
use crate::support::{Lab, until};

/// Hand-overs by size, of the only device there is.
fn batches(probes: &mut Probes) -> [u64; BATCH_BUCKETS] {
    let sample = probes.sample().unwrap();
    let mut sums = [0; BATCH_BUCKETS];
    for ((_, direction), queue) in &sample.queues {
        if *direction == TX && queue.0.closed == 0 {
            for (sum, count) in sums.iter_mut().zip(queue.0.batch) {
                *sum += count;
            }
        }
    }
    sums
}

fn difference(after: [u64; BATCH_BUCKETS], before: [u64; BATCH_BUCKETS]) -> [u64; BATCH_BUCKETS] {
    std::array::from_fn(|bucket| after[bucket] - before[bucket])
}

/// Waits for so many hand-overs.
fn more(probes: &mut Probes, since: [u64; BATCH_BUCKETS], many: u64) -> [u64; BATCH_BUCKETS] {
    let mut now = since;
    until("the flood goes on", || {
        now = batches(probes);
        difference(now, since).iter().sum::<u64>() >= many
    });
    now
}

/// Writes each cap during a flood and looks at what is handed over from then
/// on.
fn under_a_flood(module: &Module, more_arguments: &[&str]) {
    let mut probes = Probes::attach(&Kernel::inspect(), Options::default()).unwrap();
    let arguments = [
        "--mode",
        "txburst",
        "--burst",
        "192",
        "--gap-us",
        "50",
        "--seconds",
        "100",
    ];
    let mut lab = Lab::open(&[&arguments[..], more_arguments].concat());
    let fd = lab.descriptors()[0];
    lab.go();
    more(&mut probes, [0; BATCH_BUCKETS], 50);
    for cap in [1usize, 4, 16, 64, 7, 64, 1] {
        module.put("tx_batched", &cap.to_string()).unwrap();
        let written = batches(&mut probes);
        let settled = more(&mut probes, written, 100);
        // The batch that was being made may have been larger already.
        let larger: u64 = difference(settled, written)[cap + 1..].iter().sum();
        assert!(larger <= 1, "{larger} above {cap} after the write");
        let later = more(&mut probes, settled, 200);
        let seen = difference(later, settled);
        assert_eq!(
            seen.iter().rposition(|count| *count > 0),
            Some(cap),
            "{seen:?}"
        );
    }
    module.put("tx_batched", "64").unwrap();
    let before = counters(&lab, fd)[1];
    until("caps are counted", || {
        counters(&lab, fd)[1].flushes[flush::CAP as usize] > before.flushes[flush::CAP as usize]
    });
    lab.stop();
    lab.result();
    let counted = counters(&lab, fd)[1];
    // However fast the guest is, no run takes more than its weight (256).
    assert!(counted.packets <= counted.runs * 256, "{counted:?}");
    let seen = batches(&mut probes);
    assert_eq!(counted.batches, seen.iter().sum::<u64>());
    lab.close();
}

#[test]
fn it_caps_the_array_of_packets() {
    let module = Module::replacing();
    under_a_flood(&module, &[]);
}

#[test]
fn it_caps_packets_that_wait_in_a_limited_socket() {
    let module = Module::replacing();
    under_a_flood(&module, &["--sndbuf", "1048576"]);
}

#[test]
fn values_out_of_range_are_refused_and_change_nothing() {
    refused(&Module::replacing());
}

fn refused(module: &Module) {
    assert_eq!(module.get("tx_batched"), "64");
    module.put("tx_batched", "5").unwrap();
    for text in ["0", "65", "-1", "4294967297", "many", "4 5"] {
        let error = module.put("tx_batched", text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}: {error}");
        assert_eq!(module.get("tx_batched"), "5");
    }
    module.put("tx_batched", "64").unwrap();
}

/// All of the above.
pub(super) fn holds(module: &Module) {
    refused(module);
    under_a_flood(module, &[]);
    under_a_flood(module, &["--sndbuf", "1048576"]);
}
