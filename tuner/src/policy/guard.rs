//! When a worker leaves its CPU to others.

use super::config::Guard as Config;
use super::cpus::Cpus;
use super::look::WorkerLook;
use crate::model::cost::{Average, HalfLife};

/// How soon after a hold another one is for the same reason: this many times
/// the hold.
const SOON: f64 = 3.0;

/// Watches over one worker's CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Guard {
    waited: Average,
    pressed: Average,
    /// Nothing spins until then, in nanoseconds.
    until_ns: u64,
    /// Length of the hold, in seconds.
    hold_s: f64,
    housekeeping: bool,
}

/// Why a worker must not spin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Ban {
    /// Others want its CPU.
    Contended,
    /// It may run on housekeeping CPUs only.
    Housekeeping,
}

impl Guard {
    /// Takes in what is known of the worker after an interval.
    pub(super) fn add(
        &mut self,
        config: &Config,
        worker: &WorkerLook,
        (now_ns, seconds, look_s): (u64, f64, f64),
    ) {
        self.housekeeping = !config.housekeeping_cpus.is_empty()
            && worker
                .cpus
                .as_deref()
                .and_then(|list| Cpus::parse(list).ok())
                .is_some_and(|cpus| cpus.are_within(&config.housekeeping_cpus));
        let remains = HalfLife::seconds(3.0 * look_s).remains(seconds);
        if let Some(wait) = worker.wait_ns {
            self.waited.add(wait as f64 / 1e9, seconds, remains);
        }
        if let Some(pressure) = worker.pressure {
            self.pressed.add(pressure * seconds, seconds, remains);
        }
        // One look alone may have been unlucky.
        let over = |share: Average, most: f64| {
            share
                .of_at_least(1.5 * look_s)
                .is_some_and(|share| share > most)
        };
        let wanted = over(self.waited, config.wait_share) || over(self.pressed, config.pressure);
        if wanted && now_ns >= self.until_ns {
            let since_s = (now_ns - self.until_ns) as f64 / 1e9;
            let again = self.hold_s > 0.0 && since_s < SOON * self.hold_s;
            self.hold_s = if again {
                (2.0 * self.hold_s).min(config.longest_hold_s)
            } else {
                config.hold_s
            };
            self.until_ns = now_ns + (self.hold_s * 1e9) as u64;
        }
    }

    /// Whether and why the worker must not spin now.
    pub(super) fn ban(&self, now_ns: u64) -> Option<Ban> {
        if self.housekeeping {
            Some(Ban::Housekeeping)
        } else if now_ns < self.until_ns {
            Some(Ban::Contended)
        } else {
            None
        }
    }

    /// Share of the time that the worker waited for a CPU.
    pub(super) fn wait_share(&self) -> Option<f64> {
        self.waited.of_at_least(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second's look: so much of it waited.
    fn look(guard: &mut Guard, config: &Config, second: u64, wait: f64) -> Option<Ban> {
        let worker = WorkerLook {
            wait_ns: Some((wait * 1e9) as u64),
            ..WorkerLook::default()
        };
        let now_ns = second * 1_000_000_000;
        guard.add(config, &worker, (now_ns, 1.0, 1.0));
        guard.ban(now_ns)
    }

    #[test]
    fn a_worker_that_waits_stops_spinning_for_a_while() {
        let (config, mut guard) = (Config::default(), Guard::default());
        assert_eq!(
            look(&mut guard, &config, 1, 0.3),
            None,
            "one look is too little"
        );
        assert_eq!(look(&mut guard, &config, 2, 0.3), Some(Ban::Contended));
        for second in 3..12 {
            assert!(look(&mut guard, &config, second, 0.0).is_some(), "{second}");
        }
        assert_eq!(look(&mut guard, &config, 12, 0.0), None);
    }

    #[test]
    fn each_time_it_is_needed_again_soon_it_lasts_twice_as_long() {
        let (config, mut guard) = (Config::default(), Guard::default());
        let mut held = Vec::new();
        let mut hold = 0;
        // Wants the CPU exactly while we spin.
        let mut spins = true;
        for second in 1..1000 {
            let wait = if spins { 0.3 } else { 0.0 };
            let banned = look(&mut guard, &config, second, wait).is_some();
            if banned {
                hold += 1;
            } else if hold > 0 {
                held.push(hold);
                hold = 0;
            }
            spins = !banned;
        }
        assert_eq!(held[..4], [10, 20, 40, 80], "{held:?}");
    }

    #[test]
    fn a_hold_is_never_longer_than_the_longest() {
        let config = Config {
            longest_hold_s: 15.0,
            ..Config::default()
        };
        let mut guard = Guard::default();
        for second in 1..200 {
            look(&mut guard, &config, second, 0.5);
        }
        assert_eq!(guard.hold_s, 15.0);
    }

    #[test]
    fn housekeeping_cpus_are_not_spun_on() {
        let config = Config {
            housekeeping_cpus: Cpus::parse("0-1").unwrap(),
            ..Config::default()
        };
        for (cpus, ban) in [
            (Some("0"), Some(Ban::Housekeeping)),
            (Some("0-1"), Some(Ban::Housekeeping)),
            (Some("0-7"), None),
            (Some("nonsense"), None),
            (None, None),
        ] {
            let worker = WorkerLook {
                cpus: cpus.map(str::to_owned),
                ..WorkerLook::default()
            };
            let mut guard = Guard::default();
            guard.add(&config, &worker, (0, 1.0, 1.0));
            assert_eq!(guard.ban(0), ban, "{cpus:?}");
        }
    }

    #[test]
    fn pressure_on_its_cgroup_counts_too() {
        let worker = WorkerLook {
            pressure: Some(0.5),
            ..WorkerLook::default()
        };
        let mut guard = Guard::default();
        for second in 1..3u64 {
            let now = second * 1_000_000_000;
            guard.add(&Config::default(), &worker, (now, 1.0, 1.0));
        }
        assert_eq!(guard.ban(2_000_000_000), Some(Ban::Contended));
        assert_eq!(guard.wait_share(), None);
    }
}
