use tuner_common::hist::time_bucket;

use super::*;
use crate::model::TimeHistogram;
use crate::policy::look::{Backend, PairKey, VringLook, WorkerLook};

const WAKE_NS: [f64; 2] = [50_000.0; 2];
const OPEN: [bool; 2] = [true; 2];

struct Bench {
    grid: Grid,
    config: Config,
    verify: Verify,
    now_ns: u64,
}

impl Bench {
    fn new() -> Self {
        let grid = Grid::new(&[10, 20, 50, 100, 200]);
        Self {
            verify: Verify::new(&grid),
            grid,
            config: Config::default(),
            now_ns: 0,
        }
    }

    /// Looks of 0.1 s at 200 packets each, with gaps of so many microseconds and
    /// a cost of a packet in nanoseconds. Gives the last verdict.
    fn looks(&mut self, number: u64, gap_us: u64, packet_ns: u64) -> Option<Back> {
        let mut gaps = TimeHistogram::default();
        gaps.add(time_bucket(gap_us * 1000), 200);
        let gaps = Curve::of(&self.grid, &gaps);
        let mut verdict = None;
        for _ in 0..number {
            self.now_ns += 100_000_000;
            let rx = VringLook {
                packets: 200,
                spin_ns: Some(200 * packet_ns),
                wakes: Some(0),
                ..VringLook::default()
            };
            let look = look(rx);
            let none = Curve::new(&self.grid);
            self.verify
                .add(&look, [Some(&gaps), Some(&none)], WAKE_NS, 0.1);
            verdict = self.verify.judge(&self.config, self.now_ns, [50, 0], OPEN);
        }
        verdict
    }

    fn changed(&mut self) {
        self.verify.changed(&self.grid, &self.config, Some([0, 0]));
    }

    fn rests(&mut self, gap_us: u64) -> bool {
        let mut gaps = TimeHistogram::default();
        gaps.add(time_bucket(gap_us * 1000), 200);
        let gaps = Curve::of(&self.grid, &gaps);
        let none = Curve::new(&self.grid);
        self.verify.rests(&self.config, self.now_ns, [&gaps, &none])
    }
}

fn look(rx: VringLook) -> PairLook {
    PairLook {
        key: PairKey {
            pid: 1,
            fd: 2,
            device: 3,
        },
        vm: "a".to_owned(),
        backend: Backend::Module,
        interval_ns: 100_000_000,
        worker: WorkerLook::default(),
        tx_batched: None,
        rx,
        tx: VringLook {
            spin_ns: Some(0),
            wakes: Some(0),
            ..VringLook::default()
        },
    }
}

#[test]
fn a_change_that_made_it_dearer_is_taken_back() {
    let mut bench = Bench::new();
    bench.looks(10, 60, 10_000);
    bench.changed();
    assert_eq!(bench.looks(2, 60, 13_000), None, "too early");
    let back = bench.looks(1, 60, 13_000).expect("a verdict");
    assert_eq!(back.old, [0, 0]);
    assert!((back.before_ns - 10_000.0).abs() < 1.0, "{back:?}");
    assert!((back.after_ns - 13_000.0).abs() < 1.0, "{back:?}");
    assert!(bench.rests(60));
}

#[test]
fn one_that_did_not_is_not() {
    for after in [7_000, 10_300] {
        let mut bench = Bench::new();
        bench.looks(10, 60, 10_000);
        bench.changed();
        assert_eq!(bench.looks(10, 60, after), None);
        assert!(!bench.rests(60));
    }
}

#[test]
fn what_other_traffic_costs_is_no_verdict() {
    let mut bench = Bench::new();
    bench.looks(10, 60, 10_000);
    bench.changed();
    assert_eq!(bench.looks(10, 150, 30_000), None);
}

#[test]
fn without_enough_before_there_is_no_verdict() {
    let mut bench = Bench::new();
    bench.config.min_packets = 500.0;
    bench.looks(2, 60, 10_000);
    bench.changed();
    assert_eq!(bench.looks(10, 60, 30_000), None);
}

#[test]
fn two_changes_in_a_row_are_judged_against_the_time_before_both() {
    let mut bench = Bench::new();
    bench.config.min_packets = 500.0;
    bench.looks(10, 60, 10_000);
    bench.changed();
    bench.looks(1, 60, 20_000);
    bench
        .verify
        .changed(&bench.grid, &bench.config, Some([20, 0]));
    let back = bench.looks(3, 60, 20_000).expect("a verdict");
    assert_eq!(back.old, [0, 0]);
}

#[test]
fn what_was_taken_back_is_not_tried_again_at_once_and_then_ever_later() {
    let mut bench = Bench::new();
    let mut rests = Vec::new();
    for _ in 0..3 {
        bench.looks(20, 60, 10_000);
        bench.changed();
        bench.looks(3, 60, 20_000).expect("a verdict");
        bench.verify.changed(&bench.grid, &bench.config, None);
        let begin_ns = bench.now_ns;
        while bench.rests(60) {
            assert_eq!(bench.looks(1, 60, 10_000), None);
        }
        rests.push((bench.now_ns - begin_ns) / 1_000_000_000);
    }
    assert_eq!(rests, [300, 600, 1200]);
}

#[test]
fn other_traffic_ends_the_rest() {
    let mut bench = Bench::new();
    bench.looks(10, 60, 10_000);
    bench.changed();
    bench.looks(3, 60, 20_000).expect("a verdict");
    assert!(bench.rests(60));
    assert!(!bench.rests(5_000));
    assert!(!bench.rests(60));
}

#[test]
fn there_is_no_verdict_while_the_timeout_may_not_go_back() {
    let mut bench = Bench::new();
    bench.looks(10, 60, 10_000);
    bench.changed();
    bench.looks(2, 60, 13_000);
    let closed = [false, true];
    bench.looks(0, 60, 0);
    let spell = bench.verify.clone();
    let mut blocked = spell;
    blocked.spell.looks = 3;
    let verdict = blocked.judge(&bench.config, bench.now_ns, [50, 0], closed);
    assert_eq!(verdict, None);
    let verdict = blocked.judge(&bench.config, bench.now_ns, [50, 0], OPEN);
    assert!(verdict.is_some(), "it was only put off");
}

#[test]
fn a_look_with_a_degraded_figure_is_left_out() {
    let mut bench = Bench::new();
    bench.looks(10, 60, 10_000);
    bench.changed();
    let gaps = Curve::new(&bench.grid);
    for _ in 0..10 {
        let rx = VringLook {
            packets: 200,
            spin_ns: None,
            wakes: Some(10_000),
            ..VringLook::default()
        };
        bench
            .verify
            .add(&look(rx), [Some(&gaps), Some(&gaps)], WAKE_NS, 0.1);
    }
    assert_eq!(bench.verify.spell.looks, 0);
}

#[test]
fn packets_without_gaps_are_no_verdict() {
    let mut bench = Bench::new();
    bench.looks(10, 60, 10_000);
    bench.changed();
    let none = Curve::new(&bench.grid);
    for _ in 0..10 {
        let rx = VringLook {
            packets: 200,
            spin_ns: Some(0),
            wakes: Some(200),
            ..VringLook::default()
        };
        bench
            .verify
            .add(&look(rx), [Some(&none), Some(&none)], WAKE_NS, 0.1);
        let verdict = bench.verify.judge(&bench.config, 0, [50, 0], OPEN);
        assert_eq!(verdict, None);
    }
}
