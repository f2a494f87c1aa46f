//! What a wake-up is worth in time spun.
//!
//! The CPU time it takes is seen at the worker: what it runs beyond its handlers
//! is for going to sleep and waking. How long it takes is measured too.

use super::config::Wake;
use super::look::{Direction, PairLook};
use super::profile::Profile;
use crate::model::cost::{Average, HalfLife};
use crate::model::curve::UNIT_NS;

/// An average that stays known once it was: a worker that spins is hardly woken
/// any more, and what a wake-up costs is no other for that.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    average: Average,
    last: Option<f64>,
}

impl Known {
    fn add(&mut self, sum: u64, count: u64, remains: f64, enough: f64) {
        self.average.add(sum as f64, count as f64, remains);
        self.last = self.average.of_at_least(enough).or(self.last);
    }
}

/// What the wake-ups of one pair are worth.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Worth {
    /// CPU time beside the handlers, per wake-up.
    overhead: Known,
    /// Waiting, per wake-up.
    latency: [Known; 2],
    /// What is reckoned with, in nanoseconds.
    used: [Option<f64>; 2],
}

impl Worth {
    /// Takes in the figures of a look. What is degraded is left out.
    pub(super) fn add(&mut self, config: &Wake, look: &PairLook) {
        let seconds = look.interval_ns as f64 / 1e9;
        let remains = HalfLife::seconds(config.half_life_s).remains(seconds);
        if look.rx.missed + look.tx.missed > 0 {
            return;
        }
        let wakes = look.rx.wakes.zip(look.tx.wakes).map(|(rx, tx)| rx + tx);
        if let (Some(cpu), Some(wakes)) = (look.worker.cpu_ns, wakes) {
            let beside = cpu.saturating_sub(look.rx.run_ns + look.tx.run_ns);
            self.overhead.add(beside, wakes, remains, config.min_wakes);
        }
        for (direction, latency) in Direction::ALL.into_iter().zip(&mut self.latency) {
            let vring = look.vring(direction);
            if let (Some(wait), Some(wakes)) = (vring.wake_wait_ns, vring.wakes) {
                latency.add(wait, wakes, remains, config.min_wakes);
            }
        }
    }

    /// What a wake-up of a direction is worth, in nanoseconds: a multiple of the
    /// kernel's unit, so that a timeout can be just that.
    pub(super) fn of(&mut self, config: &Wake, profile: &Profile, direction: Direction) -> f64 {
        if let Some(fixed) = profile.wake_us {
            return whole_units(fixed * 1e3);
        }
        let now = self.reckon(config, profile, direction);
        let used = &mut self.used[direction as usize];
        match used {
            Some(used) if (now - *used).abs() <= config.step * *used => *used,
            _ => *used.insert(whole_units(now)),
        }
    }

    fn reckon(&self, config: &Wake, profile: &Profile, direction: Direction) -> f64 {
        let kick = match direction {
            Direction::Rx => config.rx_kick_us,
            Direction::Tx => config.tx_kick_us,
        };
        let worker = self.overhead.last;
        let latency = self.latency[direction as usize].last;
        let known = |measured: Option<f64>, assumed_us: f64| measured.unwrap_or(assumed_us * 1e3);
        known(worker, config.worker_us)
            + kick * 1e3
            + known(latency, config.latency_us) * profile.latency_price
    }
}

/// The nearest multiple of the kernel's unit, but not 0.
fn whole_units(ns: f64) -> f64 {
    let unit = UNIT_NS as f64;
    (ns / unit).round().max(1.0) * unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::look::{Backend, PairKey, VringLook, WorkerLook};
    use crate::policy::profile::{ProfileName, Profiles};

    fn look(wakes: u64, overhead_us: u64, latency_us: u64) -> PairLook {
        let vring = |wakes: u64| VringLook {
            run_ns: 1_000_000,
            wakes: Some(wakes),
            wake_wait_ns: Some(wakes * latency_us * 1000),
            ..VringLook::default()
        };
        PairLook {
            key: PairKey {
                pid: 1,
                fd: 2,
                device: 3,
            },
            vm: "a".to_owned(),
            backend: Backend::Module,
            interval_ns: 1_000_000_000,
            worker: WorkerLook {
                cpu_ns: Some(2_000_000 + 2 * wakes * overhead_us * 1000),
                ..WorkerLook::default()
            },
            tx_batched: None,
            rx: vring(wakes),
            tx: vring(wakes),
        }
    }

    fn worth(looks: &[PairLook], direction: Direction) -> f64 {
        let (config, profiles) = (Wake::default(), Profiles::default());
        let profile = profiles.get(ProfileName::Balanced);
        let mut worth = Worth::default();
        for look in looks {
            worth.add(&config, look);
        }
        worth.of(&config, profile, direction) / 1000.0
    }

    #[test]
    fn assumed_figures_stand_until_there_are_enough() {
        // 5 + 1 + 4 · 10, and 5 + 3 + 4 · 10.
        assert!((worth(&[], Direction::Rx) - 46.0).abs() < 0.6);
        assert!((worth(&[look(10, 50, 50)], Direction::Tx) - 48.0).abs() < 0.6);
    }

    #[test]
    fn measured_figures_take_their_place() {
        let looks = [look(500, 7, 20), look(500, 7, 20)];
        // 7 + 3 + 4 · 20
        assert!((worth(&looks, Direction::Tx) - 90.0).abs() < 0.6);
    }

    #[test]
    fn a_degraded_figure_leaves_the_assumed_one() {
        let mut blind = look(500, 7, 20);
        blind.worker.cpu_ns = None;
        blind.tx.wake_wait_ns = None;
        assert!((worth(&[blind], Direction::Tx) - 48.0).abs() < 0.6);
        let mut missed = look(500, 7, 20);
        missed.rx.missed = 1;
        assert!((worth(&[missed], Direction::Tx) - 48.0).abs() < 0.6);
    }

    #[test]
    fn what_was_measured_stays_known_while_there_are_no_wake_ups() {
        let mut looks = vec![look(500, 7, 20)];
        looks.extend(std::iter::repeat_n(look(0, 0, 0), 3600));
        assert!((worth(&looks, Direction::Tx) - 90.0).abs() < 0.6);
    }

    #[test]
    fn small_movements_change_nothing() {
        let (config, profiles) = (Wake::default(), Profiles::default());
        let profile = profiles.get(ProfileName::Balanced);
        let mut worth = Worth::default();
        worth.add(&config, &look(500, 7, 20));
        let before = worth.of(&config, profile, Direction::Tx);
        worth.add(&config, &look(500, 7, 21));
        assert_eq!(worth.of(&config, profile, Direction::Tx), before);
        worth.add(&config, &look(5000, 7, 40));
        assert!(worth.of(&config, profile, Direction::Tx) > before * 1.5);
    }

    #[test]
    fn a_fixed_worth_is_a_multiple_of_the_kernels_unit() {
        let profiles = Profiles::default();
        let mut profile = profiles.get(ProfileName::Balanced).clone();
        profile.wake_us = Some(50.0);
        let got = Worth::default().of(&Wake::default(), &profile, Direction::Rx);
        assert_eq!(got, 49.0 * 1024.0);
    }
}
