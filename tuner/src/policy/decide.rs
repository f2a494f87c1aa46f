//! From plans to decisions.

use super::Mode;
use super::decision::{Basis, Decision, Knob, Reason};
use super::look::{Direction, PairKey};
use super::pair::{Common, Pair, Plan};
use crate::model::curve::timeout_ns;

impl Pair {
    /// Decides on both timeouts and on the cap on tx batches.
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
            decisions.extend(self.decide_timeout(common, mode, key, direction));
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
        decisions.extend(self.decide_batching(common, mode, key));
    }

    fn decide_timeout(
        &mut self,
        common: &Common<'_>,
        mode: Mode,
        key: PairKey,
        direction: Direction,
    ) -> Option<Decision> {
        if !self.may_change(common, direction) {
            return None;
        }
        let plan = self.plan(common, direction);
        let basis = plan.map(|plan| self.basis(common, direction, plan));
        let vring = &mut self.vrings[direction as usize];
        let Some(planned) = plan.zip(basis) else {
            vring.holder.settled();
            return None;
        };
        let what = (self.vm.as_str(), key, Knob::busyloop(direction));
        let decision = vring.holder.decide(mode, what, planned)?;
        let change = &common.config.change;
        vring.pace.changed(change, self.backend, common.now_ns);
        Some(decision)
    }

    fn decide_batching(
        &mut self,
        common: &Common<'_>,
        mode: Mode,
        key: PairKey,
    ) -> Option<Decision> {
        let (config, now_ns) = (&common.config.batching, common.now_ns);
        let batching = &mut self.batching;
        if !batching.may_change(config, &self.rule, self.backend, now_ns) {
            return None;
        }
        let Some(planned) = batching.plan(config, &self.rule, now_ns) else {
            batching.holder.settled();
            return None;
        };
        let what = (self.vm.as_str(), key, Knob::TxBatched);
        let decision = batching.holder.decide(mode, what, planned)?;
        batching.changed(config, (decision.from, decision.to), now_ns);
        Some(decision)
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
}
