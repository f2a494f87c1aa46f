//! Figures from probes against the module's own counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use tuner_common::module::Counters;
use tuner_common::queue::{flush, outcome};

use super::{Module, counters};
use crate::polls::{LOCKED, Silent};
use crate::support::{Flag, Lab, Stat, run, total};

/// Counters as they were at some instant, to be taken off later ones.
pub(super) struct Since {
    ours: Value,
    theirs: Counters,
}

impl Since {
    /// From the beginning of the device.
    pub(super) fn birth() -> Self {
        Self {
            ours: Value::Null,
            theirs: Counters::default(),
        }
    }

    /// From now on; the device must be at rest.
    pub(super) fn now(queue: &Value, theirs: &Counters) -> Self {
        Self {
            ours: queue["totals"].clone(),
            theirs: *theirs,
        }
    }

    /// Holds figures against counters; gives the polls by outcome.
    pub(super) fn compare(&self, queue: &Value, counters: &Counters) -> [u64; outcome::COUNT] {
        let ours = |figure: &str| total(queue, figure) - self.ours[figure].as_u64().unwrap_or(0);
        let before = &self.theirs;
        let told = || format!("{}\n{counters:?}", queue["totals"]);
        let flushes: [u64; flush::COUNT] =
            std::array::from_fn(|i| counters.flushes[i] - before.flushes[i]);
        let polls: [u64; outcome::COUNT] =
            std::array::from_fn(|i| counters.polls[i] - before.polls[i]);
        for (figure, theirs) in [
            ("runs", counters.runs - before.runs),
            ("packets", counters.packets - before.packets),
            ("batches", counters.batches - before.batches),
            ("flushes_cap", flushes[flush::CAP as usize]),
            ("flushes_dry", flushes[flush::DRY as usize]),
            ("flushes_weight", flushes[flush::WEIGHT as usize]),
            ("flushes_single", flushes[flush::SINGLE as usize]),
            ("polls", polls.iter().sum()),
            ("poll_own_hits", polls[outcome::OWN_HIT as usize]),
            ("poll_peer_hits", polls[outcome::PEER_HIT as usize]),
            ("poll_interrupted", polls[outcome::INTERRUPTED as usize]),
            ("poll_skipped", polls[outcome::SKIPPED as usize]),
        ] {
            assert_eq!(ours(figure), theirs, "{figure}: {}", told());
        }
        assert_eq!(total(queue, "missed"), 0);

        // Which of these two it was, the probes tell by the time that passed.
        // vhost_net reads another clock than they do (local_clock), and where
        // that one is not stable, as under emulation, the two differ by a
        // little: a few polls that just lasted out their time, or just did
        // not, change places.
        let [misses, resched] = [outcome::MISS, outcome::RESCHED].map(|at| polls[at as usize]);
        assert_eq!(
            ours("poll_misses") + ours("poll_resched"),
            misses + resched,
            "{}",
            told()
        );
        let bound = 5 + ours("polls") / 20;
        assert!(ours("poll_misses").abs_diff(misses) <= bound, "{}", told());

        // The probes read the same clock, before and after the module does:
        // they see all it spun and the way in and out, inside the run.
        let spun: u64 = counters.spin_ns.iter().sum::<u64>() - before.spin_ns.iter().sum::<u64>();
        assert!(ours("spin_ns") >= spun, "{}", told());
        assert!(ours("spin_ns") <= ours("run_ns"), "{}", told());
        polls
    }
}

/// Traffic under the replaced module, from the device's birth to its rest:
/// polls by outcome of both rings.
fn compared(arguments: &[&str], meanwhile: impl FnOnce(&mut Lab)) -> [[u64; outcome::COUNT]; 2] {
    let stat = Stat::start();
    let mut lab = Lab::open(arguments);
    let fd = lab.descriptors()[0];
    lab.pin();
    lab.go();
    meanwhile(&mut lab);
    lab.result();
    let queues = stat.queues(&lab.pid());
    let counted = counters(&lab, fd);
    let mut polls = [[0; outcome::COUNT]; 2];
    for ((_, direction), queue) in &queues {
        let at = usize::from(direction == "tx");
        polls[at] = Since::birth().compare(queue, &counted[at]);
    }
    lab.close();
    polls
}

const SPINNING: [&str; 4] = ["--busyloop-rx", "200", "--busyloop-tx", "200"];

fn of(polls: [[u64; outcome::COUNT]; 2], which: u32) -> u64 {
    polls[0][which as usize] + polls[1][which as usize]
}

#[test]
fn round_trips_while_both_sides_spin() {
    let _module = Module::replacing();
    let polls = compared(
        &[&["--mode", "echo", "--packets", "3000"], &SPINNING[..]].concat(),
        |_| {},
    );
    assert!(of(polls, outcome::PEER_HIT) > 0, "{polls:?}");
    assert!(of(polls, outcome::MISS) > 0, "{polls:?}");
}

#[test]
fn floods_both_ways() {
    let _module = Module::replacing();
    for more in [&[][..], &SPINNING] {
        compared(
            &[&["--mode", "bidir", "--packets", "60000"], more].concat(),
            |_| {},
        );
    }
}

#[test]
fn gaps_below_and_above_the_timeout() {
    let _module = Module::replacing();
    for (gap, timeout, ends) in [
        ("200", "8000", outcome::OWN_HIT),
        ("4000", "50", outcome::MISS),
    ] {
        let polls = compared(
            &[
                "--mode",
                "txburst",
                "--burst",
                "3",
                "--gap-us",
                gap,
                "--packets",
                "3000",
                "--busyloop-tx",
                timeout,
            ],
            |_| {},
        );
        assert!(of(polls, ends) > 500, "{polls:?}");
    }
}

/// Frames beyond a page cannot go into the array: each empties it first.
#[test]
fn packets_that_go_alone() {
    let _module = Module::replacing();
    let stat = Stat::start();
    let mut lab = Lab::open(&[
        "--mode",
        "txburst",
        "--burst",
        "9",
        "--packets",
        "3000",
        "--mtu",
        "9000",
        "--payload",
        "6000",
    ]);
    let fd = lab.descriptors()[0];
    lab.run();
    let queues = stat.queues(&lab.pid());
    let counted = counters(&lab, fd);
    let tx = queues.iter().find(|((_, d), _)| d == "tx").unwrap().1;
    Since::birth().compare(tx, &counted[1]);
    assert!(total(tx, "flushes_single") > 1000, "{}", tx["totals"]);
    lab.close();
}

/// The other ring is locked for a while: what the module says it skipped.
#[test]
fn polls_with_the_other_ring_locked() {
    let _module = Module::replacing();
    for silent in Silent::BOTH {
        let polls = compared(&silent.arguments(), |lab| silent.lock_for_a_while(lab));
        assert!(of(polls, outcome::SKIPPED) >= LOCKED, "{polls:?}");
        assert!(of(polls, outcome::MISS) > 0, "{polls:?}");
    }
}

/// A hog on the worker's CPU ends spins before their time.
#[test]
fn a_worker_that_has_to_share_its_cpu() {
    let _module = Module::replacing();
    let over: Flag = Arc::new(AtomicBool::new(false));
    let hog = std::thread::spawn({
        let over = Arc::clone(&over);
        move || {
            let tid = unsafe_tid();
            run("taskset", &["-p", "-c", "2", &tid.to_string()]);
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        }
    });
    let polls = compared(
        &[
            "--mode",
            "txburst",
            "--burst",
            "1",
            "--gap-us",
            "3000",
            "--packets",
            "600",
            "--busyloop-tx",
            "8000",
        ],
        |_| {},
    );
    over.store(true, Ordering::Relaxed);
    hog.join().unwrap();
    assert!(of(polls, outcome::RESCHED) > 10, "{polls:?}");
}

fn unsafe_tid() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::gettid() }
}
