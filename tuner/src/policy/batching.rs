//! The cap on tx batches.
//!
//! A packet costs the worker some time, a batch some more, both fitted from what
//! runs took. With batches filled up to a cap c, the worker is busy for
//!
//! ```text
//! packets/s · (packet + batch / c)  +  what it does for rx
//! ```
//!
//! The smallest cap that keeps this below the profile's target is enough: at
//! lower loads batches end earlier anyway, because the vring runs dry. A larger
//! one has the first packet of a batch wait for more.

use super::config::Batching as Config;
use super::decision::{Basis, Reason};
use super::holder::Holder;
use super::look::{Backend, PairLook};
use super::pair::Plan;
use super::rule::Rule;
use crate::model::cost::{Average, BatchFit, Costs, HalfLife};

/// What is known of one pair's batches.
#[derive(Clone, Debug)]
pub(super) struct Batching {
    pub(super) holder: Holder,
    fit: BatchFit,
    /// Packets sent a second.
    packets: Average,
    /// Batches of them, for as long as loads are remembered.
    batches: Average,
    /// Time for rx, without spinning, in nanoseconds a second.
    other: Average,
    changed_ns: Option<u64>,
    /// When the cap was made smaller last.
    lowered_ns: Option<u64>,
    /// It is not made smaller again until then.
    rests_until_ns: u64,
    rest_s: f64,
    /// Whether the figures of this look are known and whole.
    whole: bool,
}

/// The load that a cap has to carry.
#[derive(Clone, Copy, Debug)]
struct Load {
    packets_per_s: f64,
    other: f64,
    costs: Costs,
}

impl Load {
    /// How busy the worker is with full batches (0…1 and more).
    fn utilisation(&self, cap: u32) -> f64 {
        let Costs {
            packet_ns,
            batch_ns,
        } = self.costs;
        self.other + self.packets_per_s * (packet_ns + batch_ns / f64::from(cap)) / 1e9
    }

    /// The largest cap at which the first packet waits no longer than that.
    fn longest(&self, first_wait_us: f64) -> u32 {
        if first_wait_us <= 0.0 || self.costs.packet_ns <= 0.0 {
            return u32::MAX;
        }
        let more = (first_wait_us * 1e3 / self.costs.packet_ns).floor();
        1 + more.min(1e6) as u32
    }
}

impl Batching {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            holder: Holder::default(),
            fit: BatchFit::new(Costs {
                packet_ns: config.packet_ns,
                batch_ns: config.batch_ns,
            }),
            packets: Average::default(),
            batches: Average::default(),
            other: Average::default(),
            changed_ns: None,
            lowered_ns: None,
            rests_until_ns: 0,
            rest_s: 0.0,
            whole: false,
        }
    }

    /// Takes in a look; `lost` where events of anybody's may be missing.
    pub(super) fn add(&mut self, config: &Config, look: &PairLook, lost: bool) {
        let seconds = look.interval_ns as f64 / 1e9;
        let (rx, tx) = (&look.rx, &look.tx);
        let missed = lost || rx.missed + tx.missed > 0;
        let known = (tx.batches, tx.spin_ns, rx.spin_ns);
        let (Some(batches), Some(tx_spin), Some(rx_spin), false) =
            (known.0, known.1, known.2, missed)
        else {
            self.whole = false;
            return;
        };
        self.whole = true;
        let load = HalfLife::seconds(config.half_life_s).remains(seconds);
        let cost = HalfLife::seconds(config.cost_half_life_s).remains(seconds);
        let run_ns = tx.run_ns.saturating_sub(tx_spin) as f64;
        let other_ns = rx.run_ns.saturating_sub(rx_spin) as f64;
        self.fit
            .add(tx.packets as f64, batches as f64, run_ns, cost);
        self.packets.add(tx.packets as f64, seconds, load);
        self.batches.add(0.0, batches as f64, load);
        self.other.add(other_ns, seconds, load);
    }

    /// Whether the cap may be changed at all now.
    pub(super) fn may_change(
        &self,
        config: &Config,
        rule: &Rule,
        backend: Backend,
        now_ns: u64,
    ) -> bool {
        let since_s = self
            .changed_ns
            .map(|changed| now_ns.saturating_sub(changed) as f64 / 1e9);
        config.enabled
            && backend == Backend::Module
            && !rule.exclude
            && !self.holder.is_aside()
            && since_s.is_none_or(|since_s| since_s >= config.dwell_s.max(self.holder.retry_s()))
    }

    /// What is to be set where it may be changed, with the figures behind it.
    pub(super) fn plan(&self, config: &Config, rule: &Rule, now_ns: u64) -> Option<(Plan, Basis)> {
        let set = self.holder.value()?;
        let plan = |to, reason| (to != set).then_some(Plan { to, reason });
        if let Some(pin) = rule.pin_batched {
            return Some((plan(pin, Reason::Pinned)?, Basis::default()));
        }
        let bounds = rule.profile.tx_batched;
        if !bounds.hold(set) {
            let to = bounds.nearest(set);
            return Some((plan(to, Reason::Bounds)?, Basis::default()));
        }
        let load = self.load(config)?;
        let (to, reason) = self.choose(config, rule, &load, set, now_ns);
        let basis = Basis {
            utilisation_before: Some(load.utilisation(set)),
            utilisation_after: Some(load.utilisation(to)),
            packet_ns: Some(load.costs.packet_ns),
            batch_ns: Some(load.costs.batch_ns),
            ..Basis::default()
        };
        Some((plan(to, reason)?, basis))
    }

    /// What would be set in the end, and why; `None` if there is nothing to choose
    /// by.
    pub(super) fn explain(&self, config: &Config, rule: &Rule) -> Option<(u32, String)> {
        let set = self.holder.value()?;
        if let Some(pin) = rule.pin_batched {
            return Some((pin, "The configuration pins it.".to_owned()));
        }
        let load = self.load(config)?;
        let within = rule.profile.tx_batched.nearest(set);
        let (cap, reason) = self.aim(config, rule, &load, within, 0);
        let Costs {
            packet_ns,
            batch_ns,
        } = load.costs;
        let measured = if self.fit.is_determined() {
            "measured"
        } else {
            "not told apart yet"
        };
        let why = match reason {
            Reason::FirstWait => "a larger one has the first packet wait too long",
            _ if cap == set => "it is set, and fits",
            _ => "the smallest that keeps the worker below its target",
        };
        Some((
            cap,
            format!(
                "At {:.0} packets/s, {packet_ns:.0} ns each and {batch_ns:.0} ns a batch ({measured}), \
                 the worker is {:.0} % busy with it: {why}.",
                load.packets_per_s,
                100.0 * load.utilisation(cap)
            ),
        ))
    }

    /// The load, once enough is known of it.
    fn load(&self, config: &Config) -> Option<Load> {
        if !self.whole || self.batches.count() < config.min_batches {
            return None;
        }
        Some(Load {
            packets_per_s: self.packets.of_at_least(0.0)?,
            other: self.other.of_at_least(0.0)? / 1e9,
            costs: self.fit.costs(),
        })
    }

    /// The next value, and why.
    fn choose(
        &self,
        config: &Config,
        rule: &Rule,
        load: &Load,
        set: u32,
        now_ns: u64,
    ) -> (u32, Reason) {
        let (aim, reason) = self.aim(config, rule, load, set, now_ns);
        let caps = caps(config, rule, set);
        (self.step(&caps, set, aim), reason)
    }

    /// The value to arrive at, and why.
    fn aim(
        &self,
        config: &Config,
        rule: &Rule,
        load: &Load,
        set: u32,
        now_ns: u64,
    ) -> (u32, Reason) {
        let profile = &rule.profile;
        let caps = caps(config, rule, set);
        let longest = load.longest(profile.first_wait_us);
        let patient = caps.iter().copied().rfind(|cap| *cap <= longest);
        // Where even the smallest has it wait too long, that is the best there is.
        let most = patient.or(caps.first().copied()).unwrap_or(set);
        if set > most {
            return (most, Reason::FirstWait);
        }
        let enough = |most: f64| {
            let mut fits = caps
                .iter()
                .copied()
                .filter(|cap| load.utilisation(*cap) <= most);
            fits.next()
        };
        if load.utilisation(set) > profile.utilisation {
            let wanted = enough(profile.utilisation).or(caps.last().copied());
            let to = wanted.unwrap_or(set).min(most).max(set);
            return (to, Reason::Utilisation);
        }
        if now_ns < self.rests_until_ns {
            return (set, Reason::Utilisation);
        }
        let lower = enough(profile.utilisation - config.margin);
        let to = lower.filter(|cap| *cap < set).unwrap_or(set);
        (to, Reason::Utilisation)
    }

    /// While the costs of packets and batches are not told apart, one step at a
    /// time: each brings batches of another size, and so tells them apart.
    fn step(&self, caps: &[u32], set: u32, to: u32) -> u32 {
        if self.fit.is_determined() {
            return to;
        }
        let here = caps.iter().position(|cap| *cap == set).unwrap_or(0);
        let there = caps.iter().position(|cap| *cap == to).unwrap_or(here);
        let next = match there.cmp(&here) {
            std::cmp::Ordering::Less => here - 1,
            std::cmp::Ordering::Equal => here,
            std::cmp::Ordering::Greater => here + 1,
        };
        caps.get(next).copied().unwrap_or(to)
    }

    /// It is being changed.
    pub(super) fn changed(&mut self, config: &Config, (from, to): (u32, u32), now_ns: u64) {
        if to < from {
            self.lowered_ns = Some(now_ns);
        } else {
            let rest_s = self.rest_s.max(config.rest_s);
            let soon = |lowered: u64| now_ns.saturating_sub(lowered) as f64 / 1e9 < rest_s;
            if self.lowered_ns.take().is_some_and(soon) {
                self.rest_s = (2.0 * self.rest_s)
                    .max(config.rest_s)
                    .min(config.longest_rest_s);
                self.rests_until_ns = now_ns + (self.rest_s * 1e9) as u64;
            }
        }
        self.changed_ns = Some(now_ns);
    }
}

/// Caps to choose from where one is set, from the smallest.
fn caps(config: &Config, rule: &Rule, set: u32) -> Vec<u32> {
    let all = config.candidates.iter().copied().chain([set]);
    let mut caps: Vec<u32> = all
        .filter(|cap| rule.profile.tx_batched.hold(*cap))
        .collect();
    caps.sort_unstable();
    caps.dedup();
    caps
}

#[cfg(test)]
#[path = "batching_tests.rs"]
mod tests;
