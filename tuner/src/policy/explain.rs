//! What each profile would choose for a pair, and why: pure, for
//! `vhost-tuner explain`.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::batching::Batching;
use super::config::Config;
use super::look::{Direction, PairLook, VringLook};
use super::profile::ProfileName;
use super::rule::Rule;
use super::worth::Worth;
use crate::model::curve::timeout_ns;
use crate::model::{Curve, Grid};

/// What one timeout costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Priced {
    /// The timeout, in the kernel's unit.
    pub timeout_us: u32,
    /// CPU time spun, in percent of a core.
    pub spin_percent: f64,
    /// Wake-ups a second.
    pub wakes_per_s: f64,
    /// Both together a second, in microseconds, by the profile's name.
    pub cost_us: BTreeMap<&'static str, f64>,
}

/// What a profile would set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// The profile.
    pub profile: ProfileName,
    /// What a wake-up is worth in it, in microseconds.
    pub wake_us: f64,
    /// The timeout that costs least; `None` if there is nothing to choose by.
    pub timeout_us: Option<u32>,
    /// Why, in a sentence.
    pub sentence: String,
}

/// One vring, explained.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explained {
    /// The direction.
    pub direction: Direction,
    /// What is set, in the kernel's unit.
    pub set_us: u32,
    /// Gaps that this rests on; `None` if they are not known.
    pub gaps: Option<u64>,
    /// Every candidate, with its price.
    pub curve: Vec<Priced>,
    /// Every profile, with its choice.
    pub choices: Vec<Choice>,
}

/// A pair, explained.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The VM's name.
    pub vm: String,
    /// Both vrings.
    pub vrings: Vec<Explained>,
    /// What every profile would set as the cap on tx batches, and why; empty
    /// where there is nothing to choose by.
    pub tx_batched: Vec<Capped>,
}

/// What a profile would set as the cap on tx batches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Capped {
    /// The profile.
    pub profile: ProfileName,
    /// The cap.
    pub cap: u32,
    /// Why, in a sentence.
    pub sentence: String,
}

/// Explains a pair by one look at it: the longer its interval, the better.
#[must_use]
pub fn explain(config: &Config, look: &PairLook) -> Explanation {
    let grid = Grid::new(&config.busyloop.candidates);
    let mut worth = Worth::default();
    worth.add(&config.wake, look);
    let explained = |direction| {
        let wake_ns = |name| {
            let rule = Rule::under(config, &look.vm, name);
            worth.clone().of(&config.wake, &rule.profile, direction)
        };
        vring(config, &grid, look, direction, &wake_ns)
    };
    Explanation {
        vm: look.vm.clone(),
        vrings: Direction::ALL.map(explained).into(),
        tx_batched: caps(config, look),
    }
}

fn vring(
    config: &Config,
    grid: &Grid,
    look: &PairLook,
    direction: Direction,
    wake_ns: &dyn Fn(ProfileName) -> f64,
) -> Explained {
    let seen = look.vring(direction);
    let known = curve(grid, seen);
    let seconds = look.interval_ns as f64 / 1e9;
    let priced = known.as_ref().map(|curve| {
        let of = |(timeout, price): (u32, crate::model::curve::Price)| Priced {
            timeout_us: timeout,
            spin_percent: 100.0 * price.spin_ns / 1e9 / seconds,
            wakes_per_s: price.misses / seconds,
            cost_us: ProfileName::ALL
                .map(|name| (name.name(), price.cost_ns(wake_ns(name)) / 1e3 / seconds))
                .into(),
        };
        curve.prices(grid).map(of).collect()
    });
    let choice = |name| {
        let rule = Rule::under(config, &look.vm, name);
        let wake_ns = wake_ns(name);
        let bounds = rule.profile.timeout;
        let pin = rule.pin(direction);
        let (timeout_us, sentence) = match (pin, &known) {
            (Some(pin), _) => (Some(pin), "The configuration pins it.".to_owned()),
            (None, None) => (None, "The gaps are not known.".to_owned()),
            (None, Some(curve)) if curve.gaps() < config.busyloop.min_gaps => (
                None,
                format!(
                    "{:.0} gaps are too few to choose by; it takes {:.0}.",
                    curve.gaps(),
                    config.busyloop.min_gaps
                ),
            ),
            (None, Some(curve)) => {
                let best = curve.cheapest(grid, wake_ns, (bounds.min, bounds.max));
                let sentence = why(grid, curve, seen.timeout, best, wake_ns);
                (best, sentence)
            }
        };
        Choice {
            profile: name,
            wake_us: wake_ns / 1e3,
            timeout_us,
            sentence,
        }
    };
    Explained {
        direction,
        set_us: seen.timeout,
        gaps: known.as_ref().map(|curve| curve.gaps().round() as u64),
        curve: priced.unwrap_or_default(),
        choices: ProfileName::ALL.map(choice).into(),
    }
}

/// The gaps, where they are known and whole.
fn curve(grid: &Grid, seen: &VringLook) -> Option<Curve> {
    let whole = seen.gaps.as_ref().filter(|_| seen.missed == 0)?;
    Some(Curve::of(grid, whole))
}

fn why(grid: &Grid, curve: &Curve, set: u32, best: Option<u32>, wake_ns: f64) -> String {
    let Some(best) = best else {
        return "No candidate lies within the profile's bounds.".to_owned();
    };
    let gaps = curve.gaps();
    let price = |timeout| curve.price(grid, timeout_ns(timeout));
    let cost = |timeout| price(timeout).cost_ns(wake_ns) / gaps / 1e3;
    let caught = 100.0 * (1.0 - price(best).misses / gaps);
    let what = if best == 0 {
        "Sleeping at once costs".to_owned()
    } else {
        format!("Spinning up to {best} catches {caught:.0} % of the gaps and costs")
    };
    if best == set {
        return format!("{what} {:.1} µs a gap, the least; it is set.", cost(best));
    }
    format!(
        "{what} {:.1} µs a gap, where the {set} that is set costs {:.1}.",
        cost(best),
        cost(set)
    )
}

/// What every profile would set as the cap.
fn caps(config: &Config, look: &PairLook) -> Vec<Capped> {
    let Some(set) = look.tx_batched else {
        return Vec::new();
    };
    let mut batching = Batching::new(&config.batching);
    batching.holder.read(set);
    batching.add(&config.batching, look, false);
    let capped = |name| {
        let rule = Rule::under(config, &look.vm, name);
        let (cap, sentence) = batching.explain(&config.batching, &rule)?;
        Some(Capped {
            profile: name,
            cap,
            sentence,
        })
    };
    ProfileName::ALL.into_iter().filter_map(capped).collect()
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for vring in &self.vrings {
            writeln!(
                f,
                "{} {}: {} is set",
                self.vm, vring.direction, vring.set_us
            )?;
            if !vring.curve.is_empty() {
                write!(f, "  {:>7} {:>7} {:>9}", "timeout", "spin %", "wakes/s")?;
                for name in ProfileName::ALL {
                    write!(f, " {:>13}", format!("{} µs/s", name.name()))?;
                }
                writeln!(f)?;
            }
            for priced in &vring.curve {
                let Priced {
                    timeout_us,
                    spin_percent,
                    wakes_per_s,
                    cost_us,
                } = priced;
                write!(
                    f,
                    "  {timeout_us:>7} {spin_percent:>7.2} {wakes_per_s:>9.0}"
                )?;
                let in_order = ProfileName::ALL.map(ProfileName::name);
                let costs = in_order
                    .iter()
                    .filter_map(|name| cost_us.get_key_value(name));
                for (name, cost_us) in costs {
                    let chosen = vring
                        .choices
                        .iter()
                        .any(|c| c.profile.name() == *name && c.timeout_us == Some(*timeout_us));
                    let mark = if chosen { "*" } else { " " };
                    write!(f, " {:>12}{mark}", format!("{cost_us:.0}"))?;
                }
                writeln!(f)?;
            }
            for choice in &vring.choices {
                let value = choice
                    .timeout_us
                    .map_or("–".to_owned(), |us| us.to_string());
                writeln!(
                    f,
                    "  {:<10} {value:>4}  a wake-up is worth {:.0} µs. {}",
                    choice.profile.name(),
                    choice.wake_us,
                    choice.sentence
                )?;
            }
        }
        for capped in &self.tx_batched {
            writeln!(
                f,
                "  {:<10} {:>4}  tx-batched. {}",
                capped.profile.name(),
                capped.cap,
                capped.sentence
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
