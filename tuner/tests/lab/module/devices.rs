//! What is set for a device is its own, and goes with it.

use super::{Module, counters, knobs};
use crate::support::{Lab, Stat, total};
use vhost_tuner::knob::module::{Change, Setting};

fn cap(cap: Setting<u32>) -> Change {
    Change {
        tx_batched: Some(cap),
        ..Change::default()
    }
}

#[test]
fn a_devices_cap_does_not_reach_another() {
    let module = Module::replacing();
    let stat = Stat::start();
    let mut lab = Lab::open(&[
        "--mode",
        "txburst",
        "--burst",
        "192",
        "--packets",
        "19200",
        "--devices",
        "2",
    ]);
    let [first, second] = lab.descriptors()[..] else {
        panic!("two devices were asked for");
    };
    let set = knobs(&lab, first, Some(&cap(Setting::Own(6))));
    assert_eq!((set.tx_batched, set.tx_batched_now), (6, 6));
    let other = knobs(&lab, second, None);
    assert_eq!((other.tx_batched, other.tx_batched_now), (0, 64));
    lab.run();
    let queues = stat.queues(&lab.pid());
    let largest = |fd: u64| queues[&(fd, "tx".to_owned())]["totals"]["batch"]["p99"].clone();
    assert_eq!(largest(first), 6.0);
    assert_eq!(largest(second), 64.0);
    // 192 packets are 32 batches of 6, and 3 of 64. A run that goes on into the
    // next burst has its weight (256 packets) in the midst of it, where it may
    // hand over fewer.
    let by_cap = |fd: u64| total(&queues[&(fd, "tx".to_owned())], "flushes_cap");
    for (fd, most) in [(first, 3200), (second, 300)] {
        let seen = by_cap(fd);
        assert!((most * 3 / 4..=most).contains(&seen), "{seen} of {most}");
    }

    // The parameter reaches those that follow it, and only those.
    module.put("tx_batched", "9").unwrap();
    assert_eq!(knobs(&lab, first, None).tx_batched_now, 6);
    assert_eq!(knobs(&lab, second, None).tx_batched_now, 9);
    assert_eq!(
        knobs(&lab, first, Some(&cap(Setting::Follow))).tx_batched_now,
        9
    );
    lab.close();
}

#[test]
fn state_goes_with_its_device() {
    for (module, lazily) in [
        (Module::replacing as fn() -> Module, false),
        (Module::livepatching, true),
    ] {
        let _module = module();
        let lab = Lab::open(&["--mode", "idle", "--pairs", "4"]);
        let devices = lab.descriptors();
        assert_eq!(devices.len(), 4);
        for (at, fd) in devices.iter().enumerate() {
            let states = knobs(&lab, *fd, None).states;
            // A livepatch knows a device once somebody has used it.
            assert!(states == 4 || (lazily && states as usize > at), "{states}");
        }
        assert_eq!(knobs(&lab, devices[0], None).states, 4);
        let other = Lab::open(&[
            "--mode",
            "idle",
            "--ifname",
            "vother",
            "--net",
            "10.78.0.0/16",
        ]);
        let fd = other.descriptors()[0];
        assert_eq!(knobs(&other, fd, None).states, 5);
        let set = knobs(&other, fd, Some(&cap(Setting::Own(3))));
        assert_eq!(set.tx_batched_now, 3);
        lab.close();
        assert_eq!(knobs(&other, fd, None).states, 1);
        other.close();
        // Nothing of it is left to a device that comes to lie where it lay.
        for _ in 0..20 {
            let lab = Lab::open(&["--mode", "idle"]);
            let fd = lab.descriptors()[0];
            let fresh = knobs(&lab, fd, None);
            assert_eq!((fresh.states, fresh.tx_batched), (1, 0));
            assert_eq!(counters(&lab, fd)[1].packets, 0);
            lab.close();
        }
    }
}
