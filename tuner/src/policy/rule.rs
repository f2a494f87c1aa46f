//! What applies to a VM: its profile, and what an override says.

use super::config::{Config, Override};
use super::look::Direction;
use super::pattern;
use super::profile::{Profile, ProfileName};

/// What applies to one VM.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rule {
    /// It is left alone.
    pub(super) exclude: bool,
    /// Which profile.
    pub(super) name: ProfileName,
    /// Its numbers, as the override has them.
    pub(super) profile: Profile,
    /// Timeouts that are set whatever is measured.
    pub(super) pin_rx: Option<u32>,
    pub(super) pin_tx: Option<u32>,
    /// The cap on tx batches, likewise.
    pub(super) pin_batched: Option<u32>,
}

/// The first override that fits.
fn exception<'a>(config: &'a Config, vm: &str) -> Option<&'a Override> {
    let mut all = config.overrides.iter();
    all.find(|exception| pattern::fits(&exception.vm, vm))
}

impl Rule {
    /// For the VM of this name.
    pub(super) fn of(config: &Config, vm: &str) -> Self {
        let none = Override::default();
        let exception = exception(config, vm).unwrap_or(&none);
        let name = exception.profile.unwrap_or(config.profile);
        Self::with(config, exception, name)
    }

    /// For the VM of this name, were it under that profile.
    pub(super) fn under(config: &Config, vm: &str, name: ProfileName) -> Self {
        let none = Override::default();
        let exception = exception(config, vm).unwrap_or(&none);
        Self::with(config, exception, name)
    }

    fn with(config: &Config, exception: &Override, name: ProfileName) -> Self {
        let mut profile = config.profiles.get(name).clone();
        profile.wake_us = exception.wake_us.or(profile.wake_us);
        profile.timeout = exception.timeout.unwrap_or(profile.timeout);
        Self {
            exclude: exception.exclude,
            name,
            profile,
            pin_rx: exception.pin_busyloop_rx,
            pin_tx: exception.pin_busyloop_tx,
            pin_batched: exception.pin_tx_batched,
        }
    }

    /// The pinned timeout of a direction.
    pub(super) fn pin(&self, direction: Direction) -> Option<u32> {
        match direction {
            Direction::Rx => self.pin_rx,
            Direction::Tx => self.pin_tx,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::profile::Bounds;

    #[test]
    fn the_first_override_that_fits_counts() {
        let config = Config {
            overrides: vec![
                Override {
                    vm: "db-legacy".to_owned(),
                    exclude: true,
                    ..Override::default()
                },
                Override {
                    vm: "db-*".to_owned(),
                    profile: Some(ProfileName::Latency),
                    timeout: Some(Bounds { min: 0, max: 80 }),
                    pin_busyloop_tx: Some(40),
                    ..Override::default()
                },
                Override {
                    vm: "*".to_owned(),
                    profile: Some(ProfileName::Efficiency),
                    ..Override::default()
                },
            ],
            ..Config::default()
        };
        assert!(Rule::of(&config, "db-legacy").exclude);
        let rule = Rule::of(&config, "db-7");
        assert!(!rule.exclude);
        assert_eq!(rule.name, ProfileName::Latency);
        assert_eq!(rule.profile.timeout.max, 80);
        assert_eq!(rule.pin(Direction::Tx), Some(40));
        assert_eq!(rule.pin(Direction::Rx), None);
        assert_eq!(Rule::of(&config, "web").name, ProfileName::Efficiency);
    }

    #[test]
    fn without_an_override_the_profile_stands() {
        let rule = Rule::of(&Config::default(), "web");
        assert_eq!(rule.profile, Config::default().profiles.balanced);
        assert!(!rule.exclude);
    }
}
