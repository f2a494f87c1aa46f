//! Policies side by side on a workload.

use serde::Serialize;

use super::machine::Sight;
use super::run::{Contender, Result, run};
use super::workload::{Kind, Workload};
use crate::policy::{Config, ConfigError};

/// What to compare.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seconds to simulate.
    pub seconds: f64,
    /// Times between two looks of ours, in seconds.
    pub looks_s: Vec<f64>,
    /// Which gaps ours sees.
    pub sight: Sight,
    /// Whether ours may look sooner where it asks for that.
    pub sooner: bool,
    /// Another one gives other traffic of the same sort.
    pub seed: u64,
    /// Policies, by their name; all if empty.
    pub policies: Vec<String>,
}

/// Fixed timeouts that are shown whether they are the best or not.
const SHOWN: [u32; 4] = [0, 50, 100, 200];

/// Names of all policies.
pub const POLICIES: [&str; 9] = [
    "ours",
    "fixed-0",
    "fixed-50",
    "fixed-100",
    "fixed-200",
    "halt-poll",
    "break-even",
    "best-fixed",
    "clairvoyant",
];

/// What a policy came to.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub policy: String,
    /// Time between two looks, in seconds; of ours only.
    pub look_s: Option<f64>,
    /// The timeout, in the kernel's unit; of fixed ones only.
    pub timeout_us: Option<u32>,
    /// Its cost, of that of the best fixed timeout.
    pub cost_ratio: f64,
    /// All else.
    #[serde(flatten)]
    pub result: Result,
}

/// Policies side by side.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The workload's name.
    pub workload: &'static str,
    /// What it is, in words.
    pub what: &'static str,
    /// What it is there to show.
    pub kind: Kind,
    /// What a wake-up is worth in it, in microseconds.
    pub wake_us: u32,
    /// Seconds of traffic.
    pub seconds: f64,
    /// The policies.
    pub rows: Vec<Row>,
}

/// Compares policies on a workload. The best fixed timeout is sought among those
/// that ours may choose from.
///
/// # Errors
///
/// What our policy refuses of its configuration.
pub fn compare(workload: &Workload, plan: &Plan) -> std::result::Result<Comparison, ConfigError> {
    let seconds = plan.seconds.min(workload.longest_s);
    let simulate = |contender: &Contender| run(workload, contender, (seconds, plan.seed), None);
    let wanted = |name: &str| plan.policies.is_empty() || plan.policies.iter().any(|p| p == name);
    let mut fixed = Vec::new();
    for timeout in Config::default().busyloop.candidates {
        fixed.push((timeout, simulate(&Contender::Fixed(timeout))?));
    }
    let best = fixed
        .iter()
        .min_by(|a, b| a.1.cost_ms.total_cmp(&b.1.cost_ms))
        .cloned()
        .unwrap_or_default();
    let mut rows = Vec::new();
    let mut add = |policy: &str, look_s, timeout_us, result: Result| {
        rows.push(Row {
            policy: policy.to_owned(),
            look_s,
            timeout_us,
            cost_ratio: result.cost_ms / best.1.cost_ms,
            result,
        });
    };
    if wanted("ours") {
        for look_s in plan.looks_s.iter().copied() {
            let result = simulate(&Contender::Ours {
                look_s,
                sight: plan.sight,
                sooner: plan.sooner,
            })?;
            add("ours", Some(look_s), None, result);
        }
    }
    for (timeout, result) in &fixed {
        let name = format!("fixed-{timeout}");
        if SHOWN.contains(timeout) && wanted(&name) {
            add(&name, None, Some(*timeout), result.clone());
        }
    }
    for (name, contender) in [
        ("halt-poll", Contender::HaltPoll),
        ("break-even", Contender::BreakEven),
    ] {
        if wanted(name) {
            add(name, None, None, simulate(&contender)?);
        }
    }
    if wanted("best-fixed") {
        add("best-fixed", None, Some(best.0), best.1.clone());
    }
    if wanted("clairvoyant") {
        add(
            "clairvoyant",
            None,
            None,
            simulate(&Contender::Clairvoyant)?,
        );
    }
    Ok(Comparison {
        workload: workload.name,
        what: workload.what,
        kind: workload.kind,
        wake_us: workload.wake_us,
        seconds,
        rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(name: &str, seconds: f64, policies: &[&str]) -> Comparison {
        let plan = Plan {
            seconds,
            looks_s: vec![0.1],
            sight: Sight::Pair,
            sooner: true,
            seed: 1,
            policies: policies.iter().map(|name| (*name).to_owned()).collect(),
        };
        compare(&Workload::named(name).unwrap(), &plan).unwrap()
    }

    fn ratio(comparison: &Comparison, policy: &str) -> f64 {
        let mut rows = comparison.rows.iter();
        rows.find(|row| row.policy == policy).unwrap().cost_ratio
    }

    #[test]
    fn all_policies_are_there_and_none_beats_knowing_the_future() {
        let comparison = comparison("bimodal", 2.0, &[]);
        let names: Vec<&str> = comparison.rows.iter().map(|r| r.policy.as_str()).collect();
        assert_eq!(names, POLICIES);
        assert!((ratio(&comparison, "best-fixed") - 1.0).abs() < 1e-9);
        for row in &comparison.rows {
            assert!(
                row.cost_ratio >= ratio(&comparison, "clairvoyant"),
                "{row:?}"
            );
        }
    }

    #[test]
    fn only_what_is_asked_for_is_run() {
        let comparison = comparison("steps-60", 0.5, &["halt-poll"]);
        assert_eq!(comparison.rows.len(), 1);
        assert!(ratio(&comparison, "halt-poll") > 1.1);
    }

    #[test]
    fn ours_finds_the_best_timeout_and_keeps_it() {
        let comparison = comparison("bimodal-dear", 4.0, &["ours"]);
        let ours = &comparison.rows[0];
        assert!(ours.cost_ratio < 1.02, "{ours:?}");
        assert_eq!(ours.result.late_changes, 0);
    }

    #[test]
    fn halt_polling_spins_all_the_time_at_its_unlucky_period() {
        let comparison = comparison("unlucky-190", 2.0, &["ours", "halt-poll"]);
        assert!(ratio(&comparison, "ours") < 0.5 * ratio(&comparison, "halt-poll"));
    }

    #[test]
    fn the_same_run_gives_the_same_result() {
        let once = comparison("switch-half-second", 3.0, &["ours"]);
        let twice = comparison("switch-half-second", 3.0, &["ours"]);
        assert_eq!(once.rows[0].result.cost_ms, twice.rows[0].result.cost_ms);
        assert_eq!(once.rows[0].result.changes, twice.rows[0].result.changes);
    }
}
