//! `poll_peer`: whether a spinning ring watches the other direction.

use super::{Module, counters, knobs};
use crate::support::{Lab, Stat, total};
use tuner_common::queue::outcome;
use vhost_tuner::knob::module::{Change, Setting};

/// Peer hits by the module and by the probes, and polls, of one round.
fn hits(lab: &mut Lab, stat: &Stat, fd: u64) -> (u64, u64, u64) {
    let sum = |stat: &Stat, lab: &Lab, figure: &str| -> u64 {
        stat.queues(&lab.pid())
            .values()
            .map(|q| total(q, figure))
            .sum()
    };
    let module = |lab: &Lab| -> u64 {
        let at = outcome::PEER_HIT as usize;
        counters(lab, fd).iter().map(|c| c.polls[at]).sum()
    };
    let before = (
        module(lab),
        sum(stat, lab, "poll_peer_hits"),
        sum(stat, lab, "polls"),
    );
    lab.run();
    (
        module(lab) - before.0,
        sum(stat, lab, "poll_peer_hits") - before.1,
        sum(stat, lab, "polls") - before.2,
    )
}

/// Peer hits with the parameter and with the device's own choice.
pub(super) fn off_and_on(module: &Module) {
    let stat = Stat::start();
    let mut lab = Lab::open(&[
        "--mode",
        "echo",
        "--packets",
        "1500",
        "--busyloop-rx",
        "8000",
        "--busyloop-tx",
        "8000",
    ]);
    lab.pin();
    let fd = lab.descriptors()[0];

    module.put("poll_peer", "N").unwrap();
    let (counted, seen, polls) = hits(&mut lab, &stat, fd);
    assert_eq!((counted, seen), (0, 0));
    assert!(polls > 500, "{polls}");
    module.put("poll_peer", "Y").unwrap();
    let (counted, seen, _) = hits(&mut lab, &stat, fd);
    assert_eq!(counted, seen);
    assert!(seen > 1000, "{seen}");

    // The device's own choice outweighs the parameter.
    let own = |choice| Change {
        poll_peer: Some(choice),
        ..Change::default()
    };
    let set = knobs(&lab, fd, Some(&own(Setting::Own(false))));
    assert_eq!((set.poll_peer, set.poll_peer_now), (0, 0));
    let (counted, seen, _) = hits(&mut lab, &stat, fd);
    assert_eq!((counted, seen), (0, 0));
    let set = knobs(&lab, fd, Some(&own(Setting::Follow)));
    assert_eq!((set.poll_peer, set.poll_peer_now), (2, 1));
    assert!(hits(&mut lab, &stat, fd).1 > 1000);

    // Polls that leave the other ring alone are not taken for skipped ones.
    for queue in stat.queues(&lab.pid()).values() {
        assert_eq!(total(queue, "poll_skipped"), 0, "{queue}");
        assert_eq!(total(queue, "missed"), 0, "{queue}");
    }
    lab.close();
}

#[test]
fn peer_hits_come_and_go_with_it() {
    let module = Module::replacing();
    off_and_on(&module);
}

#[test]
fn what_is_no_choice_is_refused() {
    let module = Module::replacing();
    for text in ["2", "maybe", ""] {
        let error = module.put("poll_peer", text);
        // An empty write reaches no parameter at all.
        assert!(text.is_empty() || error.is_err(), "{text}");
        assert_eq!(module.get("poll_peer"), "Y");
    }
}
