//! How often one knob may change.

use super::config::Change;
use super::look::Backend;

/// The changes of one knob.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    last_ns: Option<u64>,
    /// Changes that are used up of those of a minute.
    used: f64,
}

impl Pace {
    /// Whether it may change now, where so many seconds have to pass besides
    /// because changes have failed.
    pub(super) fn allows(
        &self,
        config: &Change,
        backend: Backend,
        now_ns: u64,
        retry_s: f64,
    ) -> bool {
        let Some((dwell_ms, per_minute)) = limits(config, backend) else {
            return false;
        };
        let Some(last_ns) = self.last_ns else {
            return true;
        };
        let since_ns = now_ns.saturating_sub(last_ns);
        let least_ns = f64::max(dwell_ms * 1e6, retry_s * 1e9);
        since_ns as f64 >= least_ns && self.used(per_minute, now_ns) + 1.0 <= per_minute
    }

    /// It changed.
    pub(super) fn changed(&mut self, config: &Change, backend: Backend, now_ns: u64) {
        let per_minute = limits(config, backend).map_or(1.0, |(_, per_minute)| per_minute);
        self.used = self.used(per_minute, now_ns) + 1.0;
        self.last_ns = Some(now_ns);
    }

    fn used(&self, per_minute: f64, now_ns: u64) -> f64 {
        let since_ns = self.last_ns.map_or(0, |last| now_ns.saturating_sub(last));
        (self.used - since_ns as f64 / 60e9 * per_minute).max(0.0)
    }
}

/// Dwell in milliseconds and changes a minute.
fn limits(config: &Change, backend: Backend) -> Option<(f64, f64)> {
    match backend {
        Backend::Module => Some((config.module_dwell_ms, config.module_per_minute)),
        Backend::Inject => Some((config.inject_dwell_ms, config.inject_per_minute)),
        Backend::None => None,
    }
}

/// What a change costs, in nanoseconds.
pub(super) fn cost_ns(config: &Change, backend: Backend) -> f64 {
    match backend {
        Backend::Module => config.module_cost_us * 1e3,
        Backend::Inject | Backend::None => config.inject_cost_us * 1e3,
    }
}

/// Part of the cost that a change has to save.
pub(super) fn min_gain(config: &Change, backend: Backend) -> f64 {
    match backend {
        Backend::Module => config.module_min_gain,
        Backend::Inject | Backend::None => config.inject_min_gain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn nothing_changes_within_the_dwell() {
        let (config, mut pace) = (Change::default(), Pace::default());
        assert!(pace.allows(&config, Backend::Inject, 0, 0.0));
        pace.changed(&config, Backend::Inject, 0);
        assert!(!pace.allows(&config, Backend::Inject, SECOND - 1, 0.0));
        assert!(pace.allows(&config, Backend::Inject, SECOND, 0.0));
        assert!(pace.allows(&config, Backend::Module, SECOND / 100, 0.0));
        assert!(!pace.allows(&config, Backend::None, 10 * SECOND, 0.0));
        assert!(!pace.allows(&config, Backend::Module, SECOND, 2.0));
        assert!(pace.allows(&config, Backend::Module, 2 * SECOND, 2.0));
    }

    #[test]
    fn no_more_than_the_changes_of_a_minute() {
        let (config, mut pace) = (Change::default(), Pace::default());
        let mut changes = 0;
        for second in 0..600 {
            if pace.allows(&config, Backend::Inject, second * SECOND, 0.0) {
                pace.changed(&config, Backend::Inject, second * SECOND);
                changes += 1;
            }
        }
        let most = config.inject_per_minute * 11.0;
        assert!(f64::from(changes) <= most, "{changes}");
        assert!(f64::from(changes) >= most - 24.0, "{changes}");
    }
}
