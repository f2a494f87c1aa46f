//! Compares what a change brought with what was before.
//!
//! A curve says what a timeout costs for gaps as they are. What it cannot say is
//! whether the traffic goes on as it was: packets that come while a worker wakes
//! up are handled together, and a guest that is answered sooner asks more. So
//! after a change the cost of a packet, as measured, is held against that before
//! it. It decides only where gaps and load are as they were.

use super::config::Verify as Config;
use super::look::{Direction, PairLook};
use crate::model::cost::HalfLife;
use crate::model::{Curve, Grid};

/// Fewer gaps tell nothing.
const FEW: f64 = 30.0;

/// What is measured while nothing changes.
#[derive(Clone, Debug)]
struct Spell {
    /// Time spun, and wake-ups at their worth, in nanoseconds.
    cost_ns: f64,
    /// Of that, time spun.
    spin_ns: f64,
    packets: f64,
    seconds: f64,
    looks: u32,
    gaps: [Curve; 2],
}

impl Spell {
    fn new(grid: &Grid) -> Self {
        Self {
            cost_ns: 0.0,
            spin_ns: 0.0,
            packets: 0.0,
            seconds: 0.0,
            looks: 0,
            gaps: [Curve::new(grid), Curve::new(grid)],
        }
    }

    fn packet_ns(&self) -> f64 {
        self.cost_ns / self.packets
    }

    /// The variance of the cost of a packet, relative to its square: of what the
    /// gaps cost where the worker spins, and of how many packets a gap brings.
    /// Gaps are taken to be exponential and packets to come in groups of any
    /// size, which is more than most traffic varies. Too few gaps tell nothing.
    fn variance(&self) -> Option<f64> {
        let gaps: f64 = self.gaps.iter().map(Curve::gaps).sum();
        if gaps < FEW || self.cost_ns <= 0.0 {
            return None;
        }
        let beyond_one = (self.packets / gaps - 1.0).max(0.0);
        let groups = beyond_one / (1.0 + beyond_one);
        Some((self.spin_ns / self.cost_ns + groups) / gaps)
    }

    fn is_enough(&self, config: &Config) -> bool {
        self.packets >= config.min_packets
    }

    /// Whether the traffic was like that of another spell.
    fn is_like(&self, other: &Self, config: &Config) -> bool {
        let load = |spell: &Self| spell.packets / spell.seconds;
        let ratio = load(self) / load(other);
        let near = self.gaps.iter().zip(&other.gaps).all(|(here, there)| {
            // A direction without gaps says nothing.
            here.gaps() < 1.0 || there.gaps() < 1.0 || here.distance(there) <= config.distance
        });
        near && ratio <= 1.0 + config.load && ratio >= 1.0 / (1.0 + config.load)
    }
}

/// A change whose effect is not known yet.
#[derive(Clone, Debug)]
struct Trial {
    before: Spell,
    /// What the timeouts were.
    old: [u32; 2],
}

/// A time in which a pair is left alone.
#[derive(Clone, Debug)]
struct Rest {
    until_ns: u64,
    gaps: [Curve; 2],
}

/// Watches the changes of one pair.
#[derive(Clone, Debug)]
pub(super) struct Verify {
    spell: Spell,
    trial: Option<Trial>,
    rest: Option<Rest>,
    hold_s: f64,
}

/// A change that has to be taken back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Back {
    /// What the timeouts were.
    pub(super) old: [u32; 2],
    /// Cost of a packet before the change, in nanoseconds.
    pub(super) before_ns: f64,
    /// And after it.
    pub(super) after_ns: f64,
}

impl Verify {
    pub(super) fn new(grid: &Grid) -> Self {
        Self {
            spell: Spell::new(grid),
            trial: None,
            rest: None,
            hold_s: 0.0,
        }
    }

    /// Takes in a look, with each direction's gaps and what its wake-ups are
    /// worth. A look with a degraded figure is left out.
    pub(super) fn add(
        &mut self,
        look: &PairLook,
        gaps: [Option<&Curve>; 2],
        wake_ns: [f64; 2],
        look_s: f64,
    ) {
        let seconds = look.interval_ns as f64 / 1e9;
        let remains = HalfLife::seconds(20.0 * look_s).remains(seconds);
        let (mut spin_ns, mut cost_ns) = (0.0, 0.0);
        for direction in Direction::ALL {
            let vring = look.vring(direction);
            match (vring.spin_ns, vring.wakes) {
                (Some(spin), Some(wakes)) if vring.missed == 0 => {
                    spin_ns += spin as f64;
                    cost_ns += spin as f64 + wakes as f64 * wake_ns[direction as usize];
                }
                _ => return,
            }
        }
        let [Some(rx), Some(tx)] = gaps else {
            return;
        };
        let spell = &mut self.spell;
        spell.cost_ns = spell.cost_ns * remains + cost_ns;
        spell.spin_ns = spell.spin_ns * remains + spin_ns;
        spell.packets = spell.packets * remains + (look.rx.packets + look.tx.packets) as f64;
        spell.seconds = spell.seconds * remains + seconds;
        spell.looks += 1;
        for (sum, gaps) in spell.gaps.iter_mut().zip([rx, tx]) {
            sum.decay(remains);
            sum.add(gaps);
        }
    }

    /// What was set is being changed. That is tried if enough is known of the
    /// time before; `None` for a change that is not to be tried.
    pub(super) fn changed(&mut self, grid: &Grid, config: &Config, old: Option<[u32; 2]>) {
        let before = std::mem::replace(&mut self.spell, Spell::new(grid));
        // Two changes in a row are judged together, against what was before
        // both.
        let earlier = self.trial.take().filter(|_| !before.is_enough(config));
        self.trial = old.and_then(|old| {
            let now = before.is_enough(config).then_some(Trial { before, old });
            earlier.or(now)
        });
    }

    /// The verdict on the last change, once there is one: `Some` to take it back.
    /// There is none while a timeout that would have to go back may not.
    pub(super) fn judge(
        &mut self,
        config: &Config,
        now_ns: u64,
        set: [u32; 2],
        open: [bool; 2],
    ) -> Option<Back> {
        let spell = &self.spell;
        if spell.looks < config.looks || !spell.is_enough(config) {
            return None;
        }
        let trial = self.trial.as_ref()?;
        let mut sides = set.iter().zip(&trial.old).zip(open);
        if !sides.all(|((set, old), open)| set == old || open) {
            return None;
        }
        let (before_ns, after_ns) = (trial.before.packet_ns(), spell.packet_ns());
        let Some((before, after)) = trial.before.variance().zip(spell.variance()) else {
            self.trial = None;
            return None;
        };
        let sure = config.confidence * (before + after).sqrt() * before_ns;
        let most_ns = before_ns * (1.0 + config.tolerance);
        if after_ns <= most_ns + sure {
            // It is well, or nothing more can be learnt about it.
            if after_ns < most_ns - sure || spell.looks >= config.most_looks {
                self.trial = None;
            }
            return None;
        }
        let trial = self.trial.take()?;
        if !config.enabled || !spell.is_like(&trial.before, config) {
            return None;
        }
        self.hold_s = (2.0 * self.hold_s)
            .max(config.rest_s)
            .min(config.longest_rest_s);
        self.rest = Some(Rest {
            until_ns: now_ns + (self.hold_s * 1e9) as u64,
            gaps: spell.gaps.clone(),
        });
        Some(Back {
            old: trial.old,
            before_ns,
            after_ns,
        })
    }

    /// Whether the pair is left alone because a change was taken back. Traffic
    /// that is clearly another ends that.
    pub(super) fn rests(&mut self, config: &Config, now_ns: u64, recent: [&Curve; 2]) -> bool {
        let Some(rest) = &self.rest else {
            return false;
        };
        let other = rest.gaps.iter().zip(recent).any(|(then, now)| {
            let enough = then.gaps() >= FEW && now.gaps() >= FEW;
            enough && then.distance(now) > 2.0 * config.distance
        });
        if now_ns >= rest.until_ns || other {
            self.rest = None;
            if other {
                self.hold_s = 0.0;
            }
        }
        self.rest.is_some()
    }
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
