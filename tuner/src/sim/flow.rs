//! Where packets come from.

use super::random::Random;
use crate::policy::Direction;

/// How long it takes until the next packet. Microseconds.
#[derive(Clone, Debug)]
pub(super) enum Gaps {
    /// Evenly around a mean, by so much up and down.
    Around { mean: f64, by: f64 },
    /// Exponentially: a Poisson process.
    Exponential { mean: f64 },
    /// One with this share of the gaps, another with the rest.
    Mixed {
        share: f64,
        one: Box<Gaps>,
        other: Box<Gaps>,
    },
    /// So many packets in a row, then a pause.
    Bursts {
        packets: u64,
        within: Box<Gaps>,
        pause: Box<Gaps>,
    },
    /// One for so many seconds, then another for so many, and again.
    Turns {
        first: Box<Gaps>,
        first_s: f64,
        second: Box<Gaps>,
        second_s: f64,
    },
    /// Exponentially, with a mean that goes from the shorter to the longer and
    /// back in so many seconds.
    Day {
        shortest: f64,
        longest: f64,
        seconds: f64,
    },
}

impl Gaps {
    /// Draws one, in microseconds, for a flow that has sent so many packets at a
    /// time in microseconds.
    fn draw(&self, random: &mut Random, sent: u64, now_us: f64) -> f64 {
        match self {
            Self::Around { mean, by } => random.between(mean - by, mean + by),
            Self::Exponential { mean } => random.exponential(*mean),
            Self::Mixed { share, one, other } => {
                let which = if random.unit() < *share { one } else { other };
                which.draw(random, sent, now_us)
            }
            Self::Bursts {
                packets,
                within,
                pause,
            } => {
                let which = if sent.is_multiple_of(*packets) {
                    pause
                } else {
                    within
                };
                which.draw(random, sent, now_us)
            }
            Self::Turns {
                first,
                first_s,
                second,
                second_s,
            } => {
                let at = now_us / 1e6 % (first_s + second_s);
                let which = if at < *first_s { first } else { second };
                which.draw(random, sent, now_us)
            }
            Self::Day {
                shortest,
                longest,
                seconds,
            } => {
                let turn = (now_us / 1e6 / seconds) * std::f64::consts::TAU;
                let part = 0.5 - 0.5 * turn.cos();
                random.exponential(shortest * (longest / shortest).powf(part))
            }
        }
    }
}

/// What a flow waits for before its next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pacing {
    /// Nothing: packets come however long the others take.
    Clock,
    /// The packet before: gaps begin when it has been dealt with.
    Answer,
}

/// A source of packets.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pacing: Pacing,
    /// Directions of the packets in turn, each with the gap before it.
    legs: Vec<(Direction, Gaps)>,
    /// Packets that it sends at most, and until when.
    most: u64,
    until_ns: u64,
    sent: u64,
    /// When the next packet comes; the end of time while it waits for an answer
    /// and when there are none left.
    next_ns: u64,
    random: Random,
}

/// No packet comes any more.
pub(super) const NEVER: u64 = u64::MAX;

impl Flow {
    /// Packets by the clock, for so many seconds.
    pub(super) fn clocked(direction: Direction, gaps: Gaps, seconds: f64, seed: u64) -> Self {
        let until_ns = (seconds * 1e9) as u64;
        Self::new(
            Pacing::Clock,
            vec![(direction, gaps)],
            (u64::MAX, until_ns),
            seed,
        )
    }

    /// Packets each of which waits for the one before, so many in all.
    pub(super) fn answered(legs: Vec<(Direction, Gaps)>, packets: u64, seed: u64) -> Self {
        Self::new(Pacing::Answer, legs, (packets, NEVER), seed)
    }

    fn new(
        pacing: Pacing,
        legs: Vec<(Direction, Gaps)>,
        (most, until_ns): (u64, u64),
        seed: u64,
    ) -> Self {
        let mut flow = Self {
            pacing,
            legs,
            most,
            until_ns,
            sent: 0,
            next_ns: NEVER,
            random: Random::new(seed),
        };
        flow.plan(0);
        flow
    }

    /// When the next packet comes.
    pub(super) fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// The packet whose time has come. Gives its direction.
    pub(super) fn send(&mut self) -> Direction {
        let now_ns = self.next_ns;
        let direction = self.leg().0;
        self.sent += 1;
        match self.pacing {
            Pacing::Clock => self.plan(now_ns),
            Pacing::Answer => self.next_ns = NEVER,
        }
        direction
    }

    /// A packet of this flow has been dealt with.
    pub(super) fn answered_at(&mut self, now_ns: u64) {
        if self.pacing == Pacing::Answer {
            self.plan(now_ns);
        }
    }

    fn leg(&self) -> &(Direction, Gaps) {
        &self.legs[(self.sent % self.legs.len() as u64) as usize]
    }

    fn plan(&mut self, now_ns: u64) {
        let mut random = self.random.clone();
        let gap_us = self
            .leg()
            .1
            .draw(&mut random, self.sent, now_ns as f64 / 1e3);
        self.random = random;
        let next_ns = now_ns + (gap_us.max(0.0) * 1e3) as u64;
        self.next_ns = if self.sent < self.most && next_ns < self.until_ns {
            next_ns
        } else {
            NEVER
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(flow: &mut Flow) -> Vec<u64> {
        let mut times = Vec::new();
        while flow.next_ns() != NEVER {
            times.push(flow.next_ns());
            flow.send();
        }
        times
    }

    #[test]
    fn by_the_clock_packets_come_until_the_end() {
        let gaps = Gaps::Around {
            mean: 100.0,
            by: 0.0,
        };
        let mut flow = Flow::clocked(Direction::Tx, gaps, 0.001, 1);
        assert_eq!(times(&mut flow).len(), 9);
    }

    #[test]
    fn an_answered_flow_waits_for_its_answer_and_ends_after_its_packets() {
        let legs = vec![
            (Direction::Tx, Gaps::Around { mean: 5.0, by: 0.0 }),
            (
                Direction::Rx,
                Gaps::Around {
                    mean: 60.0,
                    by: 0.0,
                },
            ),
        ];
        let mut flow = Flow::answered(legs, 3, 1);
        assert_eq!(flow.next_ns(), 5_000);
        assert_eq!(flow.send(), Direction::Tx);
        assert_eq!(flow.next_ns(), NEVER);
        flow.answered_at(10_000);
        assert_eq!(flow.next_ns(), 70_000);
        assert_eq!(flow.send(), Direction::Rx);
        flow.answered_at(80_000);
        assert_eq!(flow.send(), Direction::Tx);
        flow.answered_at(100_000);
        assert_eq!(flow.next_ns(), NEVER);
    }

    #[test]
    fn bursts_pause_after_so_many_packets() {
        let gaps = Gaps::Bursts {
            packets: 3,
            within: Box::new(Gaps::Around { mean: 1.0, by: 0.0 }),
            pause: Box::new(Gaps::Around {
                mean: 50.0,
                by: 0.0,
            }),
        };
        let mut flow = Flow::clocked(Direction::Rx, gaps, 0.000_12, 1);
        assert_eq!(
            times(&mut flow),
            [50_000, 51_000, 52_000, 102_000, 103_000, 104_000]
        );
    }

    #[test]
    fn turns_change_with_the_time() {
        let gaps = Gaps::Turns {
            first: Box::new(Gaps::Around {
                mean: 100.0,
                by: 0.0,
            }),
            first_s: 0.001,
            second: Box::new(Gaps::Around {
                mean: 500.0,
                by: 0.0,
            }),
            second_s: 0.001,
        };
        let mut flow = Flow::clocked(Direction::Rx, gaps, 0.002_2, 1);
        let times = times(&mut flow);
        assert_eq!(times.len(), 10 + 2 + 1, "{times:?}");
    }
}
