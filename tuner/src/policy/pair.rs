//! What is remembered of one queue pair.

use super::batching::Batching;
use super::config::Config;
use super::guard::{Ban, Guard};
use super::holder::{Holder, Reading};
use super::learners::{Learners, Terms};
use super::look::{Backend, Direction, Look, PairLook};
use super::pace::{self, Pace};
use super::profile::Bounds;
use super::rule::Rule;
use super::verify::{Back, Verify};
use super::worth::Worth;
use super::{Knob, Notice, Reason};
use crate::model::{Curve, Grid};

/// One vring.
#[derive(Clone, Debug)]
pub(super) struct Vring {
    pub(super) learners: Learners,
    pub(super) holder: Holder,
    pub(super) pace: Pace,
    /// Whether this look's gaps are known and whole.
    pub(super) whole: bool,
    /// What a wake-up is worth, in nanoseconds.
    pub(super) wake_ns: f64,
}

/// One queue pair.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) vm: String,
    pub(super) rule: Rule,
    pub(super) backend: Backend,
    pub(super) vrings: [Vring; 2],
    pub(super) batching: Batching,
    pub(super) worth: Worth,
    pub(super) guard: Guard,
    pub(super) verify: Verify,
    /// The last change is to be taken back.
    pub(super) back: Option<Back>,
    /// Left alone because a change was taken back.
    pub(super) rests: bool,
    /// Time to the next look, in milliseconds, while little is known.
    pub(super) first_ms: f64,
    /// The same, while it loses by being looked at too seldom.
    pub(super) quick_ms: Option<f64>,
}

/// What is to be set, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) to: u32,
    pub(super) reason: Reason,
}

/// What all pairs have in common.
#[derive(Clone, Copy)]
pub(super) struct Common<'a> {
    pub(super) config: &'a Config,
    pub(super) grid: &'a Grid,
    pub(super) now_ns: u64,
    /// What spinning is dearer by because of the budget, 1 or more.
    pub(super) spin_price: f64,
    /// Whether anybody may spin more than before.
    pub(super) may_raise: bool,
}

impl Pair {
    /// A pair that is seen for the first time.
    pub(super) fn new(config: &Config, grid: &Grid, look: &PairLook) -> Self {
        let vring = |direction| Vring {
            learners: Learners::new(grid, &config.busyloop, look.vring(direction).timeout),
            holder: Holder::default(),
            pace: Pace::default(),
            whole: false,
            wake_ns: 0.0,
        };
        Self {
            vm: look.vm.clone(),
            rule: Rule::of(config, &look.vm),
            backend: look.backend,
            vrings: Direction::ALL.map(vring),
            batching: Batching::new(&config.batching),
            worth: Worth::default(),
            guard: Guard::default(),
            verify: Verify::new(grid),
            back: None,
            rests: false,
            first_ms: config.look.first_ms,
            quick_ms: None,
        }
    }

    /// Usual time between two looks, in seconds.
    pub(super) fn look_s(&self, config: &Config) -> f64 {
        match self.backend {
            Backend::Module => config.look.module_ms / 1e3,
            Backend::Inject | Backend::None => config.look.inject_ms / 1e3,
        }
    }

    /// Takes in a look. Says so where somebody else turned a knob.
    pub(super) fn add(
        &mut self,
        common: &Common<'_>,
        look: &Look,
        pair: &PairLook,
        notices: &mut Vec<Notice>,
    ) {
        let Common { config, grid, .. } = *common;
        self.backend = pair.backend;
        let seconds = pair.interval_ns as f64 / 1e9;
        let look_s = self.look_s(config);
        self.worth.add(&config.wake, pair);
        self.guard
            .add(&config.guard, &pair.worker, (look.at_ns, seconds, look_s));
        self.batching.add(&config.batching, pair, look.lost > 0);
        if let Some(cap) = pair.tx_batched
            && let Reading::Foreign(ours) = self.batching.holder.read(cap)
        {
            notices.push(self.aside(pair, Knob::TxBatched, ours, cap));
        }
        let mut curves: [Option<Curve>; 2] = [None, None];
        for direction in Direction::ALL {
            let at = direction as usize;
            let seen = pair.vring(direction);
            self.vrings[at].wake_ns = self.worth.of(&config.wake, &self.rule.profile, direction);
            let terms = self.terms(common, direction);
            let vring = &mut self.vrings[at];
            let reading = vring.holder.read(seen.timeout);
            let whole = look.lost == 0 && seen.missed == 0;
            let gaps = seen.gaps.as_ref().filter(|_| whole);
            vring.whole = gaps.is_some();
            if let Some(gaps) = gaps {
                let curve = Curve::of(grid, gaps);
                let with = (grid, &config.busyloop);
                vring.learners.add(with, &curve, seconds, &terms);
                curves[at] = Some(curve);
            }
            if let Reading::Foreign(ours) = reading {
                let knob = Knob::busyloop(direction);
                notices.push(self.aside(pair, knob, ours, seen.timeout));
            }
        }
        let [rx, tx] = &curves;
        let wake_ns = [self.vrings[0].wake_ns, self.vrings[1].wake_ns];
        let gaps = [rx.as_ref(), tx.as_ref()];
        self.verify.add(pair, gaps, wake_ns, look_s);
        let set = Direction::ALL.map(|direction| self.set(direction));
        let open = Direction::ALL.map(|direction| self.may_change(common, direction));
        self.back = self.verify.judge(&config.verify, look.at_ns, set, open);
        let [rx, tx] = &self.vrings;
        let recent = [rx, tx].map(|vring| vring.learners.recent().curve());
        self.rests = self.verify.rests(&config.verify, look.at_ns, recent);
    }

    fn aside(&self, pair: &PairLook, knob: Knob, ours: u32, theirs: u32) -> Notice {
        Notice::SteppedAside {
            vm: self.vm.clone(),
            pair: pair.key,
            knob,
            ours,
            theirs,
        }
    }

    /// What choosing depends on now.
    pub(super) fn terms(&self, common: &Common<'_>, direction: Direction) -> Terms {
        Terms {
            wake_ns: self.vrings[direction as usize].wake_ns / common.spin_price,
            bounds: self.rule.profile.timeout,
            change_ns: pace::cost_ns(&common.config.change, self.backend),
            min_gain: pace::min_gain(&common.config.change, self.backend),
            look_s: self.look_s(common.config),
        }
    }

    /// What is set.
    pub(super) fn set(&self, direction: Direction) -> u32 {
        self.vrings[direction as usize].holder.value().unwrap_or(0)
    }

    /// Whether a timeout may be changed at all now.
    pub(super) fn may_change(&self, common: &Common<'_>, direction: Direction) -> bool {
        let vring = &self.vrings[direction as usize];
        let change = &common.config.change;
        let retry_s = vring.holder.retry_s();
        common.config.busyloop.enabled
            && !self.rule.exclude
            && !vring.holder.is_aside()
            && vring
                .pace
                .allows(change, self.backend, common.now_ns, retry_s)
    }

    /// What is to be set where a timeout may be changed: what is set already, or
    /// another value with the reason for it.
    pub(super) fn plan(&self, common: &Common<'_>, direction: Direction) -> Option<Plan> {
        let vring = &self.vrings[direction as usize];
        let set = self.set(direction);
        let plan = |to, reason| (to != set).then_some(Plan { to, reason });
        if let Some(pin) = self.rule.pin(direction) {
            return plan(pin, Reason::Pinned);
        }
        match self.guard.ban(common.now_ns) {
            Some(Ban::Contended) => return plan(0, Reason::Contended),
            Some(Ban::Housekeeping) => return plan(0, Reason::Housekeeping),
            None => {}
        }
        let bounds: Bounds = self.rule.profile.timeout;
        if !bounds.hold(set) {
            return plan(bounds.nearest(set), Reason::Bounds);
        }
        if !vring.whole {
            return None;
        }
        // Where the budget is short, what was before may be more than it allows.
        let unlimited = common.spin_price <= 1.0 && common.may_raise;
        if let Some(back) = self.back.filter(|_| unlimited) {
            return plan(back.old[direction as usize], Reason::WentBack);
        }
        if self.rests && common.spin_price <= 1.0 {
            return None;
        }
        let choose = |common: &Common<'_>| {
            let terms = self.terms(common, direction);
            let busyloop = &common.config.busyloop;
            vring.learners.choose(common.grid, busyloop, set, &terms)
        };
        let to = choose(common);
        let spins = |timeout| self.spin_share(common.grid, direction, timeout);
        if !common.may_raise && spins(to) > spins(set) {
            return None;
        }
        let free = Common {
            spin_price: 1.0,
            ..*common
        };
        if common.spin_price > 1.0 && choose(&free) != to {
            plan(to, Reason::Budget)
        } else {
            plan(to, Reason::Cheapest(vring.learners.way()))
        }
    }

    /// Forgets what was learnt, as it was for other candidates.
    pub(super) fn learn_anew(&mut self, config: &Config, grid: &Grid) {
        for vring in &mut self.vrings {
            let set = vring.holder.value().unwrap_or(0);
            vring.learners = Learners::new(grid, &config.busyloop, set);
        }
        self.verify = Verify::new(grid);
        self.back = None;
        self.first_ms = config.look.first_ms;
    }

    /// Whether there are too few gaps of either vring to choose by.
    pub(super) fn is_new(&self, config: &Config) -> bool {
        let mut vrings = self.vrings.iter();
        vrings.all(|vring| vring.learners.is_new(&config.busyloop))
    }

    /// What both vrings lose by being looked at as seldom as usual, as a share of
    /// one core.
    pub(super) fn lost_share(&self) -> f64 {
        let each = self.vrings.iter().map(|vring| vring.learners.lost_share());
        each.sum()
    }

    /// CPU time that a timeout would spin away, as a share of one core, by the
    /// last few looks.
    pub(super) fn spin_share(&self, grid: &Grid, direction: Direction, timeout: u32) -> f64 {
        let recent = self.vrings[direction as usize].learners.recent();
        recent.spin_share(grid, crate::model::curve::timeout_ns(timeout))
    }
}
