//! The livepatch, under traffic and under other people's probes.

use std::fs;
use std::time::Duration;

use tuner_common::queue::outcome;

use super::truth::Since;
use super::{Module, cap, counters, load, peer, rounds};
use crate::support::{Calls, Lab, Stat, kernel_is, tuner_json, until};

/// Nothing is lost, duplicated or reordered while it comes and goes, and the
/// knobs work as soon as it says that it is there.
#[test]
fn it_comes_and_goes_under_full_traffic() {
    let mut lab = Lab::open(&[
        "--mode",
        "bidir",
        "--seconds",
        "100000",
        "--busyloop-rx",
        "50",
        "--busyloop-tx",
        "50",
    ]);
    lab.pin_to_one();
    let devices = lab.descriptors();
    lab.go();
    for round in 0..rounds(2, 20) {
        let module = Module::livepatching();
        let cap = ["5", "1", "33"][round as usize % 3];
        let set = tuner_json(&["set", &lab.pid(), "--tx-batched", cap, "--json"]);
        assert_eq!(set["changes"].as_array().unwrap().len(), 1, "{set}");
        for fd in &devices {
            let before = counters(&lab, *fd);
            until("packets pass through our functions", || {
                let now = counters(&lab, *fd);
                (0..2).all(|ring| now[ring].packets > before[ring].packets + 200)
            });
            let now = counters(&lab, *fd)[1];
            // No hand-over has more than the cap on average.
            let cap: u64 = cap.parse().unwrap();
            let batches = now.batches - before[1].batches;
            assert!(now.batch_packets - before[1].batch_packets <= cap * (batches + 1));
        }
        module.revert();
        assert!(!fs::exists("/sys/module/livepatch_vhost_net").unwrap());
    }
    lab.stop();
    lab.result();
    lab.close();
}

/// A worker that never comes to rest is not what keeps a transition from
/// ending. Newer kernels move such a task over themselves, whenever it offers
/// its CPU.
#[test]
fn it_gets_past_a_worker_that_always_spins() {
    if !kernel_is("6.1") {
        return;
    }
    let mut lab = Lab::open(&[
        "--mode",
        "txflood",
        "--seconds",
        "100000",
        "--busyloop-rx",
        "10000",
        "--busyloop-tx",
        "10000",
    ]);
    lab.pin();
    lab.go();
    for _ in 0..2 {
        Module::livepatching().revert();
    }
    lab.stop();
    lab.result();
    lab.close();
}

#[test]
fn figures_follow_it_by_themselves() {
    let stat = Stat::start();
    let mut lab = Lab::open(&[
        "--mode",
        "echo",
        "--packets",
        "1500",
        "--busyloop-rx",
        "200",
        "--busyloop-tx",
        "200",
    ]);
    lab.pin();
    let fd = lab.descriptors()[0];
    lab.run();
    for _ in 0..2 {
        let module = Module::livepatching();
        // Begins with the interval after the one in which it came.
        let before = stat.queues(&lab.pid());
        let counted = counters(&lab, fd);
        lab.run();
        let after = stat.queues(&lab.pid());
        let now = counters(&lab, fd);
        let mut polls = 0;
        for (key, queue) in &after {
            let ring = usize::from(key.1 == "tx");
            let since = Since::now(&before[key], &counted[ring]);
            polls += since.compare(queue, &now[ring])[outcome::PEER_HIT as usize];
        }
        assert!(polls > 0);
        module.revert();
        // And goes on with the stock module's functions.
        let before = stat.queues(&lab.pid());
        let calls = Calls::of("vhost_net", "vhost_net_busy_poll");
        lab.run();
        let after = stat.queues(&lab.pid());
        let polls: u64 = after
            .iter()
            .map(|(key, queue)| {
                let of = |q: &serde_json::Value| q["totals"]["polls"].as_u64().unwrap();
                of(queue) - of(&before[key])
            })
            .sum();
        assert_eq!(polls, calls.count());
        assert!(polls > 0);
    }
    lab.close();
}

/// What holds for the replacement's knobs holds for the livepatch's.
#[test]
fn its_knobs_are_the_replacements() {
    let module = Module::livepatching();
    cap::holds(&module);
    peer::off_and_on(&module);
    module.revert();
}

/// Others attach to the names they know.
#[test]
fn bare_names_stay_unambiguous() {
    let module = Module::livepatching();
    assert_eq!(load::state(), "livepatched");
    let kallsyms = fs::read_to_string("/proc/kallsyms").unwrap();
    // Functions; those that begin and end each module have one name everywhere.
    let names = |module: &str| -> Vec<String> {
        let tag = format!("[{module}]");
        kallsyms
            .lines()
            .filter(|line| line.ends_with(&tag))
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .filter(|words| words[1].eq_ignore_ascii_case("t"))
            .map(|words| words[2].trim_start_matches("__pfx_").to_owned())
            .filter(|name| !["init_module", "cleanup_module"].contains(&name.as_str()))
            .collect()
    };
    let stock = names("vhost_net");
    assert!(stock.contains(&"handle_tx".to_owned()));
    for name in names("livepatch_vhost_net") {
        assert!(!stock.contains(&name), "{name} is the stock module's too");
    }
    // Through tracefs, by the bare name, entry and return; and they fire.
    let probes = [
        Calls::bare("p", "handle_tx"),
        Calls::bare("r", "handle_tx"),
        Calls::bare("p", "handle_rx"),
        Calls::bare("p", "vhost_net_busy_poll"),
    ];
    let mut lab = Lab::open(&["--mode", "echo", "--packets", "200"]);
    lab.run();
    for probe in &probes[..3] {
        assert!(probe.count() > 0);
    }
    drop(probes);
    lab.close();
    module.revert();
    assert_eq!(load::state(), "stock");
}

/// A transition that is not waited for long enough is taken back.
#[test]
fn a_transition_given_up_leaves_things_as_they_were() {
    let mut lab = Lab::open(&["--mode", "bidir", "--seconds", "100000"]);
    lab.pin_to_one();
    lab.go();
    let child = crate::support::tuner(&["module", "livepatch", "--dir", &super::folder()])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    // SAFETY: a plain system call; the child is not reaped yet.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
    let output = child.wait_with_output().unwrap();
    let there = fs::exists("/sys/module/livepatch_vhost_net").unwrap();
    // It may have been done already when the signal came.
    assert_eq!(output.status.success(), there, "{output:?}");
    if there {
        tuner_json(&["module", "revert", "--json"]);
    }
    lab.stop();
    lab.result();
    lab.close();
}
