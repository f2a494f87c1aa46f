//! What a configuration must keep to.

use super::config::{
    Batching, Busyloop, Change, Config, Guard, LARGEST_BATCH, LONGEST_TIMEOUT, LookTimes, Override,
    Verify, Wake,
};
use super::profile::{Bounds, Profile, ProfileName};

/// Most timeouts, and most caps, to choose from.
const MOST_CANDIDATES: usize = 32;

/// Something about a configuration that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {value}: {must}")]
pub struct ConfigError {
    /// The number, by its path in the configuration.
    pub what: String,
    /// What it is.
    pub value: String,
    /// What it must be.
    pub must: &'static str,
}

type Checked = Result<(), ConfigError>;

fn refuse(what: &str, value: impl ToString, must: &'static str) -> Checked {
    Err(ConfigError {
        what: what.to_owned(),
        value: value.to_string(),
        must,
    })
}

fn positive(what: &str, value: f64) -> Checked {
    if value.is_finite() && value > 0.0 {
        return Ok(());
    }
    refuse(what, value, "it must be above 0")
}

fn not_negative(what: &str, value: f64) -> Checked {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    refuse(what, value, "it must not be negative")
}

fn share(what: &str, value: f64) -> Checked {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    refuse(what, value, "it must lie between 0 and 1")
}

fn bounds(what: &str, bounds: Bounds, least: u32, most: u32, must: &'static str) -> Checked {
    if bounds.min >= least && bounds.min <= bounds.max && bounds.max <= most {
        return Ok(());
    }
    refuse(what, format!("{}–{}", bounds.min, bounds.max), must)
}

fn timeout(what: &str, value: u32) -> Checked {
    if value <= LONGEST_TIMEOUT {
        return Ok(());
    }
    refuse(what, value, "it must be at most 10000")
}

fn cap(what: &str, value: u32) -> Checked {
    if (1..=LARGEST_BATCH).contains(&value) {
        return Ok(());
    }
    refuse(what, value, "it must lie between 1 and 64")
}

impl Config {
    /// Looks whether the policy can work with it.
    ///
    /// # Errors
    ///
    /// The first number that cannot be, with what it must be.
    pub fn check(&self) -> Checked {
        look(&self.look)?;
        busyloop(&self.busyloop)?;
        wake(&self.wake)?;
        if let Some(cores) = self.budget.spin_cores {
            not_negative("budget.spin_cores", cores)?;
        }
        guard(&self.guard)?;
        batching(&self.batching)?;
        change(&self.change)?;
        verify(&self.verify)?;
        for name in ProfileName::ALL {
            profile(name.name(), self.profiles.get(name))?;
        }
        self.overrides.iter().try_for_each(exception)
    }
}

fn look(look: &LookTimes) -> Checked {
    positive("look.module_ms", look.module_ms)?;
    positive("look.inject_ms", look.inject_ms)?;
    positive("look.first_ms", look.first_ms)?;
    positive("look.shortest_ms", look.shortest_ms)?;
    not_negative("look.cost_us", look.cost_us)
}

fn busyloop(busyloop: &Busyloop) -> Checked {
    let candidates = &busyloop.candidates;
    if candidates.is_empty() || candidates.len() > MOST_CANDIDATES {
        refuse(
            "the number of busyloop.candidates",
            candidates.len(),
            "it must lie between 1 and 32",
        )?;
    }
    for candidate in candidates {
        timeout("one of busyloop.candidates", *candidate)?;
    }
    positive("busyloop.min_gaps", busyloop.min_gaps)?;
    positive(
        "busyloop.fast_half_life_looks",
        busyloop.fast_half_life_looks,
    )?;
    positive("busyloop.slow_half_life_s", busyloop.slow_half_life_s)?;
    if !(1..=64).contains(&busyloop.phases) {
        refuse(
            "busyloop.phases",
            busyloop.phases,
            "it must lie between 1 and 64",
        )?;
    }
    share("busyloop.phase_distance", busyloop.phase_distance)?;
    not_negative("busyloop.confidence", busyloop.confidence)?;
    positive(
        "busyloop.score_half_life_looks",
        busyloop.score_half_life_looks,
    )?;
    not_negative("busyloop.min_lead", busyloop.min_lead)
}

fn wake(wake: &Wake) -> Checked {
    not_negative("wake.worker_us", wake.worker_us)?;
    not_negative("wake.rx_kick_us", wake.rx_kick_us)?;
    not_negative("wake.tx_kick_us", wake.tx_kick_us)?;
    not_negative("wake.latency_us", wake.latency_us)?;
    positive("wake.min_wakes", wake.min_wakes)?;
    positive("wake.half_life_s", wake.half_life_s)?;
    not_negative("wake.step", wake.step)
}

fn guard(guard: &Guard) -> Checked {
    share("guard.wait_share", guard.wait_share)?;
    share("guard.pressure", guard.pressure)?;
    positive("guard.hold_s", guard.hold_s)?;
    if guard.longest_hold_s.is_nan() || guard.longest_hold_s < guard.hold_s {
        refuse(
            "guard.longest_hold_s",
            guard.longest_hold_s,
            "it must not be below guard.hold_s",
        )?;
    }
    Ok(())
}

fn batching(batching: &Batching) -> Checked {
    let candidates = &batching.candidates;
    if candidates.is_empty() || candidates.len() > MOST_CANDIDATES {
        refuse(
            "the number of batching.candidates",
            candidates.len(),
            "it must lie between 1 and 32",
        )?;
    }
    for candidate in candidates {
        cap("one of batching.candidates", *candidate)?;
    }
    positive("batching.min_batches", batching.min_batches)?;
    positive("batching.half_life_s", batching.half_life_s)?;
    positive("batching.cost_half_life_s", batching.cost_half_life_s)?;
    not_negative("batching.packet_ns", batching.packet_ns)?;
    not_negative("batching.batch_ns", batching.batch_ns)?;
    share("batching.margin", batching.margin)?;
    not_negative("batching.dwell_s", batching.dwell_s)?;
    positive("batching.rest_s", batching.rest_s)?;
    positive("batching.longest_rest_s", batching.longest_rest_s)
}

fn change(change: &Change) -> Checked {
    not_negative("change.module_dwell_ms", change.module_dwell_ms)?;
    not_negative("change.inject_dwell_ms", change.inject_dwell_ms)?;
    positive("change.module_per_minute", change.module_per_minute)?;
    positive("change.inject_per_minute", change.inject_per_minute)?;
    share("change.module_min_gain", change.module_min_gain)?;
    share("change.inject_min_gain", change.inject_min_gain)?;
    not_negative("change.module_cost_us", change.module_cost_us)?;
    not_negative("change.inject_cost_us", change.inject_cost_us)
}

fn verify(verify: &Verify) -> Checked {
    positive("verify.min_packets", verify.min_packets)?;
    not_negative("verify.tolerance", verify.tolerance)?;
    not_negative("verify.confidence", verify.confidence)?;
    share("verify.distance", verify.distance)?;
    not_negative("verify.load", verify.load)?;
    positive("verify.rest_s", verify.rest_s)?;
    positive("verify.longest_rest_s", verify.longest_rest_s)
}

fn profile(name: &str, profile: &Profile) -> Checked {
    let path = |field: &str| format!("profiles.{name}.{field}");
    if let Some(wake) = profile.wake_us {
        positive(&path("wake_us"), wake)?;
    }
    not_negative(&path("latency_price"), profile.latency_price)?;
    bounds(
        &path("timeout"),
        profile.timeout,
        0,
        LONGEST_TIMEOUT,
        "min must not be above max, nor max above 10000",
    )?;
    bounds(
        &path("tx_batched"),
        profile.tx_batched,
        1,
        LARGEST_BATCH,
        "min must be at least 1 and not above max, and max at most 64",
    )?;
    share(&path("utilisation"), profile.utilisation)?;
    not_negative(&path("first_wait_us"), profile.first_wait_us)
}

fn exception(exception: &Override) -> Checked {
    let path = |field: &str| format!("{field} of the override for `{}`", exception.vm);
    if exception.vm.is_empty() {
        refuse("vm of an override", "empty", "it must be a name or pattern")?;
    }
    if let Some(wake) = exception.wake_us {
        positive(&path("wake_us"), wake)?;
    }
    if let Some(range) = exception.timeout {
        bounds(
            &path("timeout"),
            range,
            0,
            LONGEST_TIMEOUT,
            "min must not be above max, nor max above 10000",
        )?;
    }
    for (field, pin) in [
        ("pin_busyloop_rx", exception.pin_busyloop_rx),
        ("pin_busyloop_tx", exception.pin_busyloop_tx),
    ] {
        if let Some(pin) = pin {
            timeout(&path(field), pin)?;
        }
    }
    match exception.pin_tx_batched {
        Some(pin) => cap(&path("pin_tx_batched"), pin),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_allowed() {
        Config::default().check().unwrap();
    }

    #[test]
    fn every_number_can_be_set_by_its_name() {
        let text = serde_json::to_string(&Config::default()).unwrap();
        let back: Config = serde_json::from_str(&text).unwrap();
        assert_eq!(back, Config::default());
        let some: Config = serde_json::from_str(
            r#"{"profile": "latency", "busyloop": {"candidates": [0, 40]},
                "overrides": [{"vm": "db*", "pin_busyloop_tx": 50}]}"#,
        )
        .unwrap();
        assert_eq!(some.profile, ProfileName::Latency);
        assert_eq!(some.busyloop.candidates, [0, 40]);
        assert_eq!(some.busyloop.min_gaps, Busyloop::default().min_gaps);
        assert_eq!(some.overrides[0].pin_busyloop_tx, Some(50));
        some.check().unwrap();
    }

    #[test]
    fn a_name_that_is_not_known_is_refused() {
        for text in [
            r#"{"busyloop": {"candidate": []}}"#,
            r#"{"profile": "fast"}"#,
            r#"{"overrides": [{"vm": "a", "pin": 1}]}"#,
        ] {
            assert!(serde_json::from_str::<Config>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_name() {
        let refused = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        for (said, part) in [
            (
                refused(|c| c.busyloop.candidates.clear()),
                "busyloop.candidates",
            ),
            (
                refused(|c| c.busyloop.candidates.push(10_001)),
                "10001: it must be at most 10000",
            ),
            (refused(|c| c.busyloop.min_gaps = 0.0), "busyloop.min_gaps"),
            (refused(|c| c.look.module_ms = f64::NAN), "look.module_ms"),
            (
                refused(|c| c.profiles.latency.timeout = Bounds { min: 5, max: 4 }),
                "profiles.latency.timeout is 5–4",
            ),
            (
                refused(|c| c.batching.candidates = vec![0]),
                "batching.candidates is 0",
            ),
            (
                refused(|c| {
                    c.overrides.push(Override {
                        vm: "x*".to_owned(),
                        pin_tx_batched: Some(65),
                        ..Override::default()
                    });
                }),
                "override for `x*` is 65",
            ),
            (
                refused(|c| c.budget.spin_cores = Some(-1.0)),
                "budget.spin_cores",
            ),
            (
                refused(|c| c.guard.longest_hold_s = 1.0),
                "guard.longest_hold_s",
            ),
        ] {
            assert!(said.contains(part), "{said}");
        }
    }
}
