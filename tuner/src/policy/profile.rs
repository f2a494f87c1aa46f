//! Profiles: what a VM is tuned for.

use serde::{Deserialize, Serialize};

/// What a VM is tuned for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProfileName {
    /// Short waits, at the price of CPU time.
    Latency,
    /// Both in proportion.
    #[default]
    Balanced,
    /// Little CPU time.
    Efficiency,
}

impl ProfileName {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Latency, Self::Balanced, Self::Efficiency];

    /// As it is written in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Balanced => "balanced",
            Self::Efficiency => "efficiency",
        }
    }
}

/// The profiles' numbers. A configuration names those that it changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Changes")]
pub struct Profiles {
    /// For `latency`.
    pub latency: Profile,
    /// For `balanced`.
    pub balanced: Profile,
    /// For `efficiency`.
    pub efficiency: Profile,
}

impl Default for Profiles {
    fn default() -> Self {
        Self {
            latency: Profile {
                wake_us: None,
                latency_price: 10.0,
                timeout: Bounds { min: 0, max: 400 },
                tx_batched: Bounds { min: 1, max: 64 },
                utilisation: 0.6,
                first_wait_us: 20.0,
            },
            balanced: Profile {
                wake_us: None,
                latency_price: 4.0,
                timeout: Bounds { min: 0, max: 200 },
                tx_batched: Bounds { min: 4, max: 64 },
                utilisation: 0.7,
                first_wait_us: 0.0,
            },
            efficiency: Profile {
                wake_us: None,
                latency_price: 0.5,
                timeout: Bounds { min: 0, max: 50 },
                tx_batched: Bounds { min: 32, max: 64 },
                utilisation: 0.85,
                first_wait_us: 0.0,
            },
        }
    }
}

impl Profiles {
    /// The numbers of a profile.
    #[must_use]
    pub fn get(&self, name: ProfileName) -> &Profile {
        match name {
            ProfileName::Latency => &self.latency,
            ProfileName::Balanced => &self.balanced,
            ProfileName::Efficiency => &self.efficiency,
        }
    }
}

/// What a profile is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// What a wake-up is worth in time spun, in microseconds. If not set, it is
    /// its CPU time, and the time it takes times [`Self::latency_price`].
    pub wake_us: Option<f64>,
    /// What a microsecond of a packet's waiting is worth in time spun.
    pub latency_price: f64,
    /// Timeouts that may be set.
    pub timeout: Bounds,
    /// Caps on tx batches that may be set.
    pub tx_batched: Bounds,
    /// How busy a worker may be (0…1), spinning not counted, for a smaller cap.
    pub utilisation: f64,
    /// How long the first packet of a batch may wait for the last, in
    /// microseconds. 0 for as long as it takes.
    pub first_wait_us: f64,
}

/// From and to, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// The least.
    pub min: u32,
    /// The most.
    pub max: u32,
}

impl Bounds {
    /// One value only.
    #[must_use]
    pub fn only(value: u32) -> Self {
        Self {
            min: value,
            max: value,
        }
    }

    /// Whether a value lies within.
    #[must_use]
    pub fn hold(self, value: u32) -> bool {
        (self.min..=self.max).contains(&value)
    }

    /// The value itself, or the bound it is beyond.
    #[must_use]
    pub fn nearest(self, value: u32) -> u32 {
        value.max(self.min).min(self.max)
    }
}

/// What a configuration changes of the profiles.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Changes {
    latency: Change,
    balanced: Change,
    efficiency: Change,
}

/// What it changes of one.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Change {
    wake_us: Option<f64>,
    latency_price: Option<f64>,
    timeout: Option<Bounds>,
    tx_batched: Option<Bounds>,
    utilisation: Option<f64>,
    first_wait_us: Option<f64>,
}

impl Change {
    fn apply(self, to: &mut Profile) {
        to.wake_us = self.wake_us.or(to.wake_us);
        to.latency_price = self.latency_price.unwrap_or(to.latency_price);
        to.timeout = self.timeout.unwrap_or(to.timeout);
        to.tx_batched = self.tx_batched.unwrap_or(to.tx_batched);
        to.utilisation = self.utilisation.unwrap_or(to.utilisation);
        to.first_wait_us = self.first_wait_us.unwrap_or(to.first_wait_us);
    }
}

impl From<Changes> for Profiles {
    fn from(changes: Changes) -> Self {
        let mut profiles = Self::default();
        changes.latency.apply(&mut profiles.latency);
        changes.balanced.apply(&mut profiles.balanced);
        changes.efficiency.apply(&mut profiles.efficiency);
        profiles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_configuration_does_not_name_stays_as_it_is() {
        let profiles: Profiles = serde_json::from_str(
            r#"{"latency": {"wake_us": 80.0}, "efficiency": {"timeout": {"min": 0, "max": 20}}}"#,
        )
        .unwrap();
        let mut expected = Profiles::default();
        expected.latency.wake_us = Some(80.0);
        expected.efficiency.timeout.max = 20;
        assert_eq!(profiles, expected);
        assert!(serde_json::from_str::<Profiles>(r#"{"fast": {}}"#).is_err());
        assert!(serde_json::from_str::<Profiles>(r#"{"latency": {"wake": 1}}"#).is_err());
    }

    #[test]
    fn profiles_are_in_the_order_of_what_a_wait_is_worth() {
        let price = |name| Profiles::default().get(name).latency_price;
        assert!(price(ProfileName::Latency) > price(ProfileName::Balanced));
        assert!(price(ProfileName::Balanced) > price(ProfileName::Efficiency));
    }
}
