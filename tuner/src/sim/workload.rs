//! The traffic that policies are compared on.

use serde::Serialize;

use super::flow::{Flow, Gaps};
use super::random::Random;
use crate::policy::Direction;

/// What a workload is there to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One and the same from beginning to end.
    Stationary,
    /// Changes, so that no one timeout fits all of it.
    Switching,
    /// Halt polling spins here for nothing.
    Unlucky,
    /// Many VMs of all sorts.
    Mixed,
}

/// Traffic of one or more queue pairs.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// What it is, in words.
    pub what: &'static str,
    /// What it is there to show.
    pub kind: Kind,
    /// What a wake-up is worth in it, in microseconds.
    pub wake_us: u32,
    /// It is simulated for no longer than this, in seconds.
    pub longest_s: f64,
    flows: fn(Span) -> Groups,
}

/// For how long, and with which numbers.
#[derive(Clone, Copy, Debug)]
struct Span {
    seconds: f64,
    seed: u64,
}

/// Flows of the pairs whose workers share a CPU, CPU by CPU.
pub(super) type Groups = Vec<Vec<Vec<Flow>>>;

impl Workload {
    /// The workload of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|workload| workload.name == name)
    }

    /// Its flows, for so many seconds: of the clock, or for flows that wait for
    /// answers, of a worker that is never asleep. Another seed gives traffic that
    /// is the same on average only.
    pub(super) fn groups(&self, seconds: f64, seed: u64) -> Groups {
        (self.flows)(Span { seconds, seed })
    }
}

const DAY_S: f64 = 86_400.0;

/// All of them.
pub const ALL: [Workload; 23] = [
    Workload {
        name: "poisson-10",
        what: "packets at random, every 10 µs on average",
        kind: Kind::Stationary,
        wake_us: 50,
        longest_s: DAY_S,
        flows: |span| clocked(exponential(10.0), span),
    },
    Workload {
        name: "poisson-20",
        what: "packets at random, every 20 µs on average",
        kind: Kind::Stationary,
        wake_us: 50,
        longest_s: DAY_S,
        flows: |span| clocked(exponential(20.0), span),
    },
    Workload {
        name: "poisson-20-dear",
        what: "the same, with wake-ups worth three times as much",
        kind: Kind::Stationary,
        wake_us: 150,
        longest_s: DAY_S,
        flows: |span| clocked(exponential(20.0), span),
    },
    Workload {
        name: "poisson-45",
        what: "packets at random, nearly as far apart as a wake-up is worth",
        kind: Kind::Stationary,
        wake_us: 50,
        longest_s: DAY_S,
        flows: |span| clocked(exponential(45.0), span),
    },
    Workload {
        name: "poisson-200",
        what: "packets at random, every 200 µs on average",
        kind: Kind::Stationary,
        wake_us: 50,
        longest_s: DAY_S,
        flows: |span| clocked(exponential(200.0), span),
    },
    Workload {
        name: "poisson-5000",
        what: "packets at random, every 5 ms on average",
        kind: Kind::Stationary,
        wake_us: 50,
        longest_s: DAY_S,
        flows: |span| clocked(exponential(5000.0), span),
    },
    Workload {
        name: "steps-60",
        what: "the next packet 60 ± 5 µs after the last was dealt with",
        kind: Kind::Stationary,
        wake_us: 50,
        longest_s: DAY_S,
        flows: |span| steps(around(60.0, 5.0), 60.0, span),
    },
    Workload {
        name: "steps-60-dear",
        what: "the same, with wake-ups worth three times as much",
        kind: Kind::Stationary,
        wake_us: 150,
        longest_s: DAY_S,
        flows: |span| steps(around(60.0, 5.0), 60.0, span),
    },
    Workload {
        name: "steps-110",
        what: "110 ± 4 µs after the last",
        kind: Kind::Stationary,
        wake_us: 50,
        longest_s: DAY_S,
        flows: |span| steps(around(110.0, 4.0), 110.0, span),
    },
    Workload {
        name: "steps-110-dear",
        what: "the same, with wake-ups worth three times as much",
        kind: Kind::Stationary,
        wake_us: 150,
        longest_s: DAY_S,
        flows: |span| steps(around(110.0, 4.0), 110.0, span),
    },
    Workload {
        name: "round-trips",
        what: "the guest asks 12 ± 4 µs after an answer, which takes 60 ± 10 µs",
        kind: Kind::Stationary,
        wake_us: 50,
        longest_s: DAY_S,
        flows: round_trips,
    },
    Workload {
        name: "round-trips-dear",
        what: "the same, with wake-ups worth three times as much",
        kind: Kind::Stationary,
        wake_us: 150,
        longest_s: DAY_S,
        flows: round_trips,
    },
    Workload {
        name: "bimodal",
        what: "70 % after 15 ± 3 µs, 30 % after 300 to 900 µs",
        kind: Kind::Stationary,
        wake_us: 50,
        longest_s: DAY_S,
        flows: bimodal,
    },
    Workload {
        name: "bimodal-dear",
        what: "the same, with wake-ups worth three times as much",
        kind: Kind::Stationary,
        wake_us: 150,
        longest_s: DAY_S,
        flows: bimodal,
    },
    Workload {
        name: "bursts",
        what: "bursts of 40 packets every 30 µs, then 5 ms of nothing",
        kind: Kind::Stationary,
        wake_us: 150,
        longest_s: DAY_S,
        flows: |span| {
            let gaps = Gaps::Bursts {
                packets: 40,
                within: Box::new(around(30.0, 10.0)),
                pause: Box::new(around(5000.0, 1000.0)),
            };
            clocked(gaps, span)
        },
    },
    Workload {
        name: "in-turn",
        what: "40 and 900 µs in turn",
        kind: Kind::Stationary,
        wake_us: 150,
        longest_s: DAY_S,
        flows: |span| {
            let gaps = Gaps::Bursts {
                packets: 2,
                within: Box::new(around(40.0, 5.0)),
                pause: Box::new(around(900.0, 50.0)),
            };
            clocked(gaps, span)
        },
    },
    Workload {
        name: "unlucky-190",
        what: "190 ± 5 µs: just within halt polling's ceiling, so it spins all the time",
        kind: Kind::Unlucky,
        wake_us: 50,
        longest_s: DAY_S,
        flows: |span| steps(around(190.0, 5.0), 190.0, span),
    },
    Workload {
        name: "just-beyond",
        what: "every sixth 210 ± 5 µs, just beyond halt polling's ceiling, the others 40 µs",
        kind: Kind::Stationary,
        wake_us: 50,
        longest_s: DAY_S,
        flows: |span| {
            let gaps = Gaps::Bursts {
                packets: 6,
                within: Box::new(around(40.0, 5.0)),
                pause: Box::new(around(210.0, 5.0)),
            };
            steps(gaps, 70.0, span)
        },
    },
    Workload {
        name: "switch-10s",
        what: "10 s of packets every 20 µs, 10 s every 600 µs, at random",
        kind: Kind::Switching,
        wake_us: 50,
        longest_s: DAY_S,
        flows: |span| turns(exponential(20.0), 10.0, exponential(600.0), 10.0, span),
    },
    Workload {
        name: "switch-10s-dear",
        what: "the same, with wake-ups worth three times as much",
        kind: Kind::Switching,
        wake_us: 150,
        longest_s: DAY_S,
        flows: |span| turns(exponential(20.0), 10.0, exponential(600.0), 10.0, span),
    },
    Workload {
        name: "switch-half-second",
        what: "half a second of packets every 80 µs, half a second every 4.5 ms",
        kind: Kind::Switching,
        wake_us: 150,
        longest_s: DAY_S,
        flows: |span| turns(around(80.0, 8.0), 0.5, around(4500.0, 450.0), 0.5, span),
    },
    Workload {
        name: "day-and-night",
        what: "at random, every 15 µs at noon and every 3 ms at night; a day lasts 30 s",
        kind: Kind::Switching,
        wake_us: 50,
        longest_s: DAY_S,
        flows: |span| {
            let gaps = Gaps::Day {
                shortest: 15.0,
                longest: 3000.0,
                seconds: 30.0,
            };
            clocked(gaps, span)
        },
    },
    Workload {
        name: "mixed",
        what: "1,000 VMs of all these sorts, some of them sharing a CPU",
        kind: Kind::Mixed,
        wake_us: 50,
        longest_s: 20.0,
        flows: mixed,
    },
];

/// VMs of the mixed workload.
const MIXED: u64 = 1000;

fn exponential(mean: f64) -> Gaps {
    Gaps::Exponential { mean }
}

fn around(mean: f64, by: f64) -> Gaps {
    Gaps::Around { mean, by }
}

/// One pair alone on its CPU.
fn alone(flow: Flow) -> Groups {
    vec![vec![vec![flow]]]
}

fn clocked(gaps: Gaps, span: Span) -> Groups {
    alone(Flow::clocked(Direction::Rx, gaps, span.seconds, span.seed))
}

/// As many as a worker that never sleeps gets done.
fn steps(gaps: Gaps, mean_us: f64, span: Span) -> Groups {
    let packets = (span.seconds * 1e6 / (mean_us + 2.0)) as u64;
    alone(Flow::answered(
        vec![(Direction::Tx, gaps)],
        packets,
        span.seed,
    ))
}

fn round_trips(span: Span) -> Groups {
    alone(trips(60.0, span))
}

fn trips(answer_us: f64, span: Span) -> Flow {
    let legs = vec![
        (Direction::Tx, around(12.0, 4.0)),
        (Direction::Rx, around(answer_us, answer_us / 6.0)),
    ];
    let trips = span.seconds * 1e6 / (12.0 + answer_us + 4.0);
    Flow::answered(legs, 2 * trips as u64, span.seed)
}

fn bimodal(span: Span) -> Groups {
    let gaps = Gaps::Mixed {
        share: 0.7,
        one: Box::new(around(15.0, 3.0)),
        other: Box::new(around(600.0, 300.0)),
    };
    steps(gaps, 0.7 * 15.0 + 0.3 * 600.0, span)
}

fn turns(first: Gaps, first_s: f64, second: Gaps, second_s: f64, span: Span) -> Groups {
    let gaps = Gaps::Turns {
        first: Box::new(first),
        first_s,
        second: Box::new(second),
        second_s,
    };
    clocked(gaps, span)
}

/// Every sort of VM, by its number: most do little, a few do much, and one in
/// five shares its CPU with three others.
fn mixed(span: Span) -> Groups {
    let mut groups: Groups = Vec::new();
    let mut shared: Vec<Vec<Flow>> = Vec::new();
    for number in 0..MIXED {
        let flows = vm(number, span);
        if number % 5 == 0 {
            shared.push(flows);
            if shared.len() == 4 {
                groups.push(std::mem::take(&mut shared));
            }
        } else {
            groups.push(vec![flows]);
        }
    }
    groups.extend((!shared.is_empty()).then_some(shared));
    groups
}

fn vm(number: u64, span: Span) -> Vec<Flow> {
    let mut random = Random::new(number ^ (span.seed << 32));
    let Span { seconds, .. } = span;
    let seed = random.next();
    // A factor from 1 to 10, small ones being as frequent as large ones.
    let slower = 10f64.powf(random.unit());
    let clocked = |direction, gaps| Flow::clocked(direction, gaps, seconds, seed);
    match number % 10 {
        0..=3 => vec![
            clocked(Direction::Rx, exponential(2_000.0 * slower)),
            Flow::clocked(
                Direction::Tx,
                exponential(3_000.0 * slower),
                seconds,
                seed ^ 1,
            ),
        ],
        4 => vec![clocked(Direction::Tx, exponential(150.0 * slower))],
        5 => vec![trips(40.0 * slower, Span { seconds, seed })],
        6 => {
            let gaps = Gaps::Bursts {
                packets: 20,
                within: Box::new(around(25.0, 10.0)),
                pause: Box::new(exponential(8_000.0 * slower)),
            };
            vec![clocked(Direction::Rx, gaps)]
        }
        7 => {
            let gaps = Gaps::Turns {
                first: Box::new(exponential(60.0)),
                first_s: slower,
                second: Box::new(exponential(5_000.0)),
                second_s: 2.0 * slower,
            };
            vec![clocked(Direction::Rx, gaps)]
        }
        8 => {
            let gaps = Gaps::Day {
                shortest: 50.0,
                longest: 5_000.0,
                seconds: 10.0 * slower,
            };
            vec![clocked(Direction::Rx, gaps)]
        }
        _ => vec![clocked(Direction::Rx, exponential(40.0 * slower))],
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_lead_to_their_workload() {
        let names: BTreeSet<&str> = ALL.iter().map(|workload| workload.name).collect();
        assert_eq!(names.len(), ALL.len());
        assert_eq!(Workload::named("bursts").unwrap().wake_us, 150);
        assert!(Workload::named("nothing").is_none());
    }

    #[test]
    fn the_mixed_workload_has_its_vms() {
        let groups = Workload::named("mixed").unwrap().groups(1.0, 1);
        let pairs: usize = groups.iter().map(Vec::len).sum();
        assert_eq!(pairs as u64, MIXED);
        assert!(groups.iter().any(|group| group.len() == 4));
    }
}
