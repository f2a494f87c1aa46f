//! One knob: who holds it, we or an administrator, and what was decided on it.

use super::Mode;
use super::decision::{Basis, Decision, Knob};
use super::look::PairKey;
use super::pair::Plan;

/// Values of ours that may still be on their way, at most.
const UNSEEN: usize = 8;

/// What is known of one knob's value.
///
/// After a change the old value may still be seen for a while: a vring's timeout
/// is read when its handler runs. So a value is somebody else's only if it is
/// neither the one seen before nor one that we set since.
#[derive(Clone, Debug, Default)]
pub(super) struct Holder {
    seen: Option<u32>,
    /// Set by us and not seen yet, oldest first.
    unseen: Vec<u32>,
    aside: bool,
    /// Decisions so far.
    number: u64,
    /// What was advised and not done, where nothing is set.
    advised: Option<u32>,
    /// Changes in a row that were not made.
    failures: i32,
}

/// What a new reading means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// Nothing new.
    Expected,
    /// What we set is there.
    Ours,
    /// Somebody else set it, where we thought this was set.
    Foreign(u32),
}

impl Holder {
    /// Takes note of what is set.
    pub(super) fn read(&mut self, value: u32) -> Reading {
        let Some(before) = self.seen.replace(value) else {
            return Reading::Expected;
        };
        if value == before {
            return Reading::Expected;
        }
        if let Some(at) = self.unseen.iter().position(|ours| *ours == value) {
            self.unseen.drain(..=at);
            self.failures = 0;
            return Reading::Ours;
        }
        let ours = self.unseen.last().copied().unwrap_or(before);
        self.unseen.clear();
        if std::mem::replace(&mut self.aside, true) {
            return Reading::Expected;
        }
        Reading::Foreign(ours)
    }

    /// What is in force: what we set last, or what was seen.
    pub(super) fn value(&self) -> Option<u32> {
        self.unseen.last().copied().or(self.seen)
    }

    /// Makes a plan a decision. `None` for what was advised already.
    pub(super) fn decide(
        &mut self,
        mode: Mode,
        what: (&str, PairKey, Knob),
        (plan, basis): (Plan, Basis),
    ) -> Option<Decision> {
        let from = self.value()?;
        if mode == Mode::Advise && self.advised == Some(plan.to) {
            return None;
        }
        let decision = Decision::new(what, (from, plan.to), plan.reason, basis, self.number);
        self.number += 1;
        match mode {
            Mode::Act => self.set(plan.to),
            Mode::Advise => self.advised = Some(plan.to),
        }
        Some(decision)
    }

    /// There is nothing to change: earlier advice does not stand any more.
    pub(super) fn settled(&mut self) {
        self.advised = None;
    }

    /// We set it.
    pub(super) fn set(&mut self, value: u32) {
        if self.unseen.len() == UNSEEN {
            self.unseen.remove(0);
        }
        self.unseen.push(value);
    }

    /// The last change was not made after all.
    pub(super) fn failed(&mut self) {
        self.unseen.pop();
        self.failures = (self.failures + 1).min(10);
    }

    /// So many seconds have to pass since the last change, because such changes
    /// have failed: 2, then twice as long each time, up to 1024.
    pub(super) fn retry_s(&self) -> f64 {
        match self.failures {
            0 => 0.0,
            failures => 2f64.powi(failures),
        }
    }

    /// Whether it is somebody else's.
    pub(super) fn is_aside(&self) -> bool {
        self.aside
    }

    /// Takes it in hand again.
    pub(super) fn resume(&mut self) {
        self.aside = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_change_may_be_seen_late() {
        let mut holder = Holder::default();
        assert_eq!(holder.read(0), Reading::Expected);
        holder.set(50);
        assert_eq!(holder.read(0), Reading::Expected);
        holder.set(75);
        assert_eq!(holder.value(), Some(75));
        assert_eq!(holder.read(50), Reading::Ours);
        assert_eq!(holder.value(), Some(75));
        assert_eq!(holder.read(75), Reading::Ours);
        assert_eq!(holder.read(75), Reading::Expected);
        assert!(!holder.is_aside());
    }

    #[test]
    fn anything_else_is_somebody_elses_and_said_once() {
        let mut holder = Holder::default();
        holder.read(0);
        holder.set(50);
        holder.read(50);
        assert_eq!(holder.read(40), Reading::Foreign(50));
        assert!(holder.is_aside());
        assert_eq!(holder.read(30), Reading::Expected);
        assert_eq!(holder.value(), Some(30));
        holder.resume();
        assert!(!holder.is_aside());
        assert_eq!(holder.read(20), Reading::Foreign(30));
    }

    #[test]
    fn also_before_we_ever_set_it() {
        let mut holder = Holder::default();
        holder.read(0);
        assert_eq!(holder.read(64), Reading::Foreign(0));
    }

    #[test]
    fn back_to_an_older_value_of_ours_is_somebody_elses() {
        let mut holder = Holder::default();
        holder.read(0);
        holder.set(50);
        holder.read(50);
        assert_eq!(holder.read(0), Reading::Foreign(50));
    }

    #[test]
    fn a_change_that_was_not_made_is_not_waited_for() {
        let mut holder = Holder::default();
        holder.read(0);
        holder.set(50);
        holder.failed();
        assert_eq!(holder.value(), Some(0));
        assert_eq!(holder.read(50), Reading::Foreign(0));
    }

    #[test]
    fn what_fails_again_and_again_is_tried_ever_more_rarely() {
        let mut holder = Holder::default();
        holder.read(0);
        assert_eq!(holder.retry_s(), 0.0);
        let mut waits = Vec::new();
        for _ in 0..12 {
            holder.set(50);
            holder.failed();
            waits.push(holder.retry_s());
        }
        assert_eq!(waits[..3], [2.0, 4.0, 8.0]);
        assert_eq!(waits[9..], [1024.0; 3]);
        holder.set(50);
        holder.read(50);
        assert_eq!(holder.retry_s(), 0.0);
    }
}
