//! From plans to decisions on timeouts.

use super::Mode;
use super::decision::{Basis, Decision, Knob, Reason};
use super::look::{Direction, PairKey};
use super::pair::{Common, Pair, Plan};
use crate::model::curve::timeout_ns;

impl Pair {
    /// Decides on both timeouts.
    pub(super) fn decide(
        &mut self,
        common: &Common<'_>,
        mode: Mode,
        key: PairKey,
        decisions: &mut Vec<Decision>,
    ) {
        let old = Direction::ALL.map(|direction| self.set(direction));
        let before = decisions.len();
        for direction in Direction::ALL {
            if !self.may_change(common, direction) {
                continue;
            }
            match self.plan(common, direction) {
                None => self.vrings[direction as usize].advised = None,
                Some(plan) => {
                    let basis = self.basis(common, direction, plan);
                    let what = (key, direction);
                    decisions.extend(self.commit(common, mode, what, (plan, basis)));
                }
            }
        }
        self.back = None;
        let made = &decisions[before..];
        if mode == Mode::Act && !made.is_empty() {
            // What was forced, or taken back, is not tried.
            let chosen = |made: &Decision| matches!(made.reason, Reason::Cheapest(_));
            let tried = made.iter().all(chosen).then_some(old);
            self.verify
                .changed(common.grid, &common.config.verify, tried);
        }
    }

    /// The figures behind a plan.
    fn basis(&self, common: &Common<'_>, direction: Direction, plan: Plan) -> Basis {
        if let Some(back) = self.back.filter(|_| plan.reason == Reason::WentBack) {
            return Basis {
                cost_before_us: Some(back.after_ns / 1e3),
                cost_after_us: Some(back.before_ns / 1e3),
                ..Basis::default()
            };
        }
        let vring = &self.vrings[direction as usize];
        let curve = vring.learners.basis();
        let gaps = curve.gaps();
        let cost = |timeout: u32| {
            let price = curve.price(common.grid, timeout_ns(timeout));
            (gaps > 0.0).then(|| price.cost_ns(vring.wake_ns) / gaps / 1e3)
        };
        Basis {
            gaps: Some(gaps),
            wake_us: Some(vring.wake_ns / 1e3),
            spin_price: (common.spin_price > 1.0).then_some(common.spin_price),
            cost_before_us: cost(self.set(direction)),
            cost_after_us: cost(plan.to),
            spin_percent: Some(100.0 * self.spin_share(common.grid, direction, plan.to)),
            wait_share: self.guard.wait_share(),
            ..Basis::default()
        }
    }

    /// Makes a plan a decision. `None` for what was advised already.
    fn commit(
        &mut self,
        common: &Common<'_>,
        mode: Mode,
        (key, direction): (PairKey, Direction),
        (plan, basis): (Plan, Basis),
    ) -> Option<Decision> {
        let from = self.set(direction);
        let vring = &mut self.vrings[direction as usize];
        if mode == Mode::Advise && vring.advised == Some(plan.to) {
            return None;
        }
        let decision = Decision::new(
            (&self.vm, key, Knob::busyloop(direction)),
            (from, plan.to),
            plan.reason,
            basis,
            vring.number,
        );
        vring.number += 1;
        let change = &common.config.change;
        vring.pace.changed(change, self.backend, common.now_ns);
        match mode {
            Mode::Act => vring.holder.set(plan.to),
            Mode::Advise => vring.advised = Some(plan.to),
        }
        Some(decision)
    }
}
