//! Ways to choose a timeout, and which of them to follow.
//!
//! Every look's gaps price every timeout. So each way can be held to account for
//! what its choice would have cost over the gaps that came *after* it was made,
//! whichever is followed. The slow way has the least noise, the fast one follows
//! changes, the phases know what comes back, and the break-even rule needs no
//! predictions: where they keep failing, it is the cheapest.

use super::decision::Way;
use super::profile::Bounds;
use super::window::Window;
use super::{config::Busyloop, phases::Phases};
use crate::model::cost::HalfLife;
use crate::model::curve::{UNIT_NS, timeout_ns};
use crate::model::{Curve, Grid};

/// All ways, in the order in which they are preferred where they cost the same.
const WAYS: [Way; 4] = [Way::Phase, Way::Slow, Way::Fast, Way::BreakEven];

/// Predictions keep failing once the break-even rule was clearly cheaper at so
/// many looks of late. Once may be chance.
const WINS: f64 = 2.5;

/// Half-life of what was lost for want of looks, in seconds.
const LOST_S: f64 = 60.0;

/// The place of the phases among the ways.
const PHASE: usize = 0;

/// What choosing depends on beside gaps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// What a wake-up is worth, in nanoseconds spun.
    pub(super) wake_ns: f64,
    /// Timeouts that may be set.
    pub(super) bounds: Bounds,
    /// What a change costs, in nanoseconds.
    pub(super) change_ns: f64,
    /// Part of the cost that a change has to save.
    pub(super) min_gain: f64,
    /// Usual time between two looks, in seconds.
    pub(super) look_s: f64,
}

/// One of the ways, with what it would have set.
#[derive(Clone, Copy, Debug)]
struct Follower {
    way: Way,
    pick: u32,
    /// What its picks would have cost, fading, in nanoseconds.
    score: f64,
    /// Looks, fading, at which it was clearly cheaper than the leader.
    wins: f64,
}

/// All of them, for one vring.
#[derive(Clone, Debug)]
pub(super) struct Learners {
    fast: Window,
    slow: Window,
    phases: Phases,
    followers: [Follower; WAYS.len()],
    leader: usize,
    /// Recent cost of what the leader would have set, in nanoseconds.
    level: f64,
    /// What would have been lost by looking as seldom as usual, and the time that
    /// is taken over, in nanoseconds and seconds.
    lost: (f64, f64),
    /// Whether there was anything to choose by yet.
    picked: bool,
}

impl Learners {
    /// Starts with what is set.
    pub(super) fn new(grid: &Grid, config: &Busyloop, set: u32) -> Self {
        Self {
            fast: Window::new(grid),
            slow: Window::new(grid),
            phases: Phases::new(grid, config.phases, config.phase_distance),
            followers: WAYS.map(|way| Follower {
                way,
                pick: set,
                score: 0.0,
                wins: 0.0,
            }),
            leader: 0,
            level: 0.0,
            lost: (0.0, 0.0),
            picked: false,
        }
    }

    /// Takes in the gaps of a look that took so many seconds.
    pub(super) fn add(
        &mut self,
        (grid, config): (&Grid, &Busyloop),
        gaps: &Curve,
        seconds: f64,
        terms: &Terms,
    ) {
        let recent = HalfLife::seconds(config.fast_half_life_looks * terms.look_s);
        let slow = HalfLife::seconds(config.slow_half_life_s);
        self.judge((grid, config), gaps, seconds, terms, recent);
        self.fast.add(gaps, seconds, recent);
        self.slow.add(gaps, seconds, slow);
        self.phases.add(grid, gaps, seconds, slow, config.min_gaps);
        if self.is_new(config) {
            return;
        }
        // The first pick could not have come sooner.
        let before = self.picked.then_some(self.followers[PHASE].pick);
        self.pick(grid, config, terms);
        self.picked = true;
        self.reckon(grid, (gaps, seconds), before, terms);
        self.lead(config);
    }

    /// Charges every way for the gaps that came since its last pick.
    fn judge(
        &mut self,
        (grid, config): (&Grid, &Busyloop),
        gaps: &Curve,
        seconds: f64,
        terms: &Terms,
        recent: HalfLife,
    ) {
        let memory = HalfLife::seconds(config.score_half_life_looks * terms.look_s);
        let (fade, level_fade) = (memory.remains(seconds), recent.remains(seconds));
        let cost = |pick| gaps.price(grid, timeout_ns(pick)).cost_ns(terms.wake_ns);
        let led = cost(self.followers[self.leader].pick);
        for follower in &mut self.followers {
            let cost = cost(follower.pick);
            let won = cost < led * (1.0 - config.min_lead);
            follower.score = follower.score * fade + cost;
            follower.wins = follower.wins * fade + f64::from(won);
        }
        self.level = self.level * level_fade + led;
    }

    /// What was lost because the phase of this look, of so many seconds, was seen
    /// only now.
    fn reckon(
        &mut self,
        grid: &Grid,
        (gaps, seconds): (&Curve, f64),
        before: Option<u32>,
        terms: &Terms,
    ) {
        let cost = |pick| gaps.price(grid, timeout_ns(pick)).cost_ns(terms.wake_ns);
        let lost = before.map_or(0.0, |before| {
            cost(before) - cost(self.followers[PHASE].pick)
        });
        // A look that comes sooner loses less: by the time it took, what would
        // have been lost in the usual time.
        let usual = (terms.look_s / seconds.max(1e-6)).max(1.0);
        let fade = HalfLife::seconds(LOST_S).remains(seconds);
        let (sum, over) = &mut self.lost;
        *sum = *sum * fade + lost.max(0.0) * usual;
        *over = *over * fade + seconds;
    }

    /// Has every way choose anew.
    fn pick(&mut self, grid: &Grid, config: &Busyloop, terms: &Terms) {
        for at in 0..self.followers.len() {
            let follower = self.followers[at];
            let pick = match self.curve(follower.way) {
                None => break_even(terms),
                Some(curve) => better(grid, config, curve, follower.pick, terms),
            };
            if pick != follower.pick {
                self.followers[at].pick = pick;
                self.followers[at].score += terms.change_ns;
            }
        }
    }

    /// Follows another way if that is clearly cheaper.
    fn lead(&mut self, config: &Busyloop) {
        let enough = |f: &&Follower| f.way != Way::BreakEven || f.wins >= WINS;
        let candidates = self.followers.iter().filter(enough);
        let best = candidates.min_by(|a, b| a.score.total_cmp(&b.score));
        let Some(best) = best.copied() else {
            return;
        };
        let lead = self.followers[self.leader].score - best.score;
        if lead > config.min_lead * self.level {
            self.leader = WAYS.iter().position(|way| *way == best.way).unwrap_or(0);
            for follower in &mut self.followers {
                follower.wins = 0.0;
            }
        }
    }

    /// The gaps that a way looks at. The break-even rule looks at none.
    fn curve(&self, way: Way) -> Option<&Curve> {
        match way {
            Way::Slow => Some(self.slow.curve()),
            // Before the first phase, all there is.
            Way::Phase => Some(self.phases.present().unwrap_or(self.slow.curve())),
            Way::Fast => Some(self.fast.curve()),
            Way::BreakEven => None,
        }
    }

    /// The way that is followed.
    pub(super) fn way(&self) -> Way {
        self.followers[self.leader].way
    }

    /// What it would set where that is set, on these terms.
    pub(super) fn choose(&self, grid: &Grid, config: &Busyloop, set: u32, terms: &Terms) -> u32 {
        match self.curve(self.way()) {
            None => break_even(terms),
            Some(curve) => better(grid, config, curve, set, terms),
        }
    }

    /// The gaps that the figures of a decision are taken from.
    pub(super) fn basis(&self) -> &Curve {
        self.curve(self.way()).unwrap_or(self.fast.curve())
    }

    /// Gaps of the last few looks.
    pub(super) fn recent(&self) -> &Window {
        &self.fast
    }

    /// Whether there are too few gaps to choose by.
    pub(super) fn is_new(&self, config: &Busyloop) -> bool {
        self.slow.curve().effective_gaps() < config.min_gaps
    }

    /// CPU time, wake-ups priced as such, that is lost where looks are as seldom
    /// as usual because changes are seen late: a share of one core.
    pub(super) fn lost_share(&self) -> f64 {
        let (lost, over) = self.lost;
        // Of a short time, too little is known to speak of what is usual.
        lost / 1e9 / f64::max(over, LOST_S / 2.0)
    }
}

/// The timeout of the break-even rule: what a wake-up is worth.
fn break_even(terms: &Terms) -> u32 {
    let units = (terms.wake_ns / UNIT_NS as f64).round();
    terms
        .bounds
        .nearest(units.clamp(0.0, f64::from(u32::MAX)) as u32)
}

/// The cheapest timeout of a curve if it is clearly cheaper than what is set. If
/// not, or with too few gaps to say so, what is set.
fn better(grid: &Grid, config: &Busyloop, curve: &Curve, set: u32, terms: &Terms) -> u32 {
    let range = (terms.bounds.min, terms.bounds.max);
    let kept = terms.bounds.nearest(set);
    if curve.effective_gaps() < config.min_gaps {
        return kept;
    }
    let Some(best) = curve.cheapest(grid, terms.wake_ns, range) else {
        return kept;
    };
    let (old, new) = (timeout_ns(kept), timeout_ns(best));
    let gain = curve.difference(grid, old, new, terms.wake_ns);
    let cost = curve.price(grid, old).cost_ns(terms.wake_ns) / curve.gaps();
    let clear =
        gain.mean_ns > terms.min_gain * cost && gain.mean_ns > config.confidence * gain.error_ns;
    if clear { best } else { kept }
}

#[cfg(test)]
#[path = "learners_tests.rs"]
mod tests;
