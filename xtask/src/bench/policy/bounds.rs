//! What must hold of our policy, and whether it does.

use std::fmt;

use super::document::{Kind, Workload};

/// Seconds between two looks: where the module sets, and by injection.
pub(super) const MODULE_S: f64 = 0.1;
pub(super) const INJECT_S: f64 = 1.0;

/// What the first looks cost is not held against ours where halt polling is at
/// the best there is.
const FIRST_LOOKS: f64 = 1.005;

/// Something that must hold on some workloads.
struct Bound {
    name: &'static str,
    says: &'static str,
    /// What is compared, with what it must not exceed; none where it does not
    /// apply.
    compare: fn(&Workload) -> Option<(f64, f64)>,
}

const BOUNDS: [Bound; 6] = [
    Bound {
        name: "stationary-module",
        says: "at 0.1 s looks, at most 1.02 of the best fixed timeout on stationary workloads, \
               start-up included",
        compare: |workload| {
            let ours = stationary(workload)?.ours(MODULE_S)?;
            Some((ours.cost_ratio, 1.02))
        },
    },
    Bound {
        name: "stationary-inject",
        says: "at 1 s looks, at most 1.05 of it",
        compare: |workload| {
            let ours = stationary(workload)?.ours(INJECT_S)?;
            Some((ours.cost_ratio, 1.05))
        },
    },
    Bound {
        name: "switching",
        says: "at 0.1 s looks, less than every fixed timeout where traffic switches",
        compare: |workload| {
            let applies = matches!(workload.kind, Kind::Switching | Kind::Mixed);
            let ours = applies.then(|| workload.ours(MODULE_S))??;
            Some((ours.cost_ratio, 1.0))
        },
    },
    Bound {
        name: "halt-poll",
        says: "at 0.1 s looks, never more than halt polling, but for half a percent that the first \
               looks may cost",
        compare: |workload| {
            let ours = workload.ours(MODULE_S)?;
            let theirs = workload.rival("halt-poll")?;
            Some((ours.cost_ratio, theirs.cost_ratio * FIRST_LOOKS))
        },
    },
    Bound {
        name: "unlucky",
        says: "less than half of halt polling at its unlucky period, at either time between looks",
        compare: |workload| {
            let theirs = workload.rival("halt-poll")?.cost_ratio;
            let unlucky = workload.kind == Kind::Unlucky;
            let worst = unlucky.then(|| dearest(workload))??;
            Some((worst, theirs / 2.0))
        },
    },
    Bound {
        name: "quiet",
        says: "at most one change in the second half of a minute of stationary traffic",
        compare: |workload| {
            let stationary = stationary(workload)?;
            let changes = [MODULE_S, INJECT_S].into_iter();
            let changes = changes.filter_map(|s| Some(stationary.ours(s)?.late_changes));
            Some((changes.max()? as f64, 1.0))
        },
    },
];

/// What cannot be met: bound, workload, and why.
const KNOWN: [(&str, &str, &str); 1] = [(
    "halt-poll",
    "switch-half-second",
    "phases of half a second; a rule in the kernel follows within a few gaps, looks from outside \
     within a few milliseconds",
)];

fn stationary(workload: &Workload) -> Option<&Workload> {
    matches!(workload.kind, Kind::Stationary | Kind::Unlucky).then_some(workload)
}

fn dearest(workload: &Workload) -> Option<f64> {
    let costs = [MODULE_S, INJECT_S].into_iter();
    let costs = costs.filter_map(|s| Some(workload.ours(s)?.cost_ratio));
    costs.max_by(f64::total_cmp)
}

/// A workload on which a bound does not hold.
#[derive(Debug, PartialEq)]
pub(super) struct Breach {
    workload: String,
    found: f64,
    most: f64,
    /// Why it cannot, if that is known.
    why: Option<&'static str>,
}

/// What became of a bound.
pub(super) struct Verdict {
    says: &'static str,
    /// Workloads that it applies to.
    over: usize,
    breaches: Vec<Breach>,
}

impl Verdict {
    /// Whether it holds but for what is known.
    pub(super) fn holds(&self) -> bool {
        self.breaches.iter().all(|breach| breach.why.is_some())
    }
}

/// All bounds that apply to something.
pub(super) fn judge(workloads: &[Workload]) -> Vec<Verdict> {
    let verdicts = BOUNDS.iter().map(|bound| {
        let compared: Vec<(&Workload, f64, f64)> = workloads
            .iter()
            .filter_map(|w| (bound.compare)(w).map(|(found, most)| (w, found, most)))
            .collect();
        let breaches = compared.iter().filter(|(_, found, most)| found > most);
        Verdict {
            says: bound.says,
            over: compared.len(),
            breaches: breaches
                .map(|(workload, found, most)| Breach {
                    workload: workload.workload.clone(),
                    found: *found,
                    most: *most,
                    why: known(bound.name, &workload.workload),
                })
                .collect(),
        }
    });
    verdicts.filter(|verdict| verdict.over > 0).collect()
}

fn known(bound: &str, workload: &str) -> Option<&'static str> {
    let mut all = KNOWN.iter();
    all.find(|(b, w, _)| *b == bound && *w == workload)
        .map(|(_, _, why)| *why)
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match (self.breaches.is_empty(), self.holds()) {
            (true, _) => "holds",
            (_, true) => "holds but for what is known",
            _ => "DOES NOT HOLD",
        };
        writeln!(f, "{mark} ({} workloads): {}", self.over, self.says)?;
        for breach in &self.breaches {
            let Breach {
                workload,
                found,
                most,
                why,
            } = breach;
            write!(f, "    {workload}: {found:.3}, allowed {most:.3}")?;
            if let Some(why) = why {
                write!(f, ": {why}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::policy::document::Row;

    fn row(policy: &str, look_s: Option<f64>, cost_ratio: f64) -> Row {
        Row {
            policy: policy.to_owned(),
            look_s,
            timeout_us: None,
            cost_ratio,
            spin_percent: 0.0,
            wakes_per_s: 0.0,
            wait_p50_us: None,
            wait_p99_us: None,
            changes: 0,
            late_changes: 0,
            looks: 0,
        }
    }

    fn workload(name: &str, kind: Kind, module: f64, inject: f64, halt: f64) -> Workload {
        Workload {
            workload: name.to_owned(),
            kind,
            wake_us: 50,
            rows: vec![
                row("ours", Some(MODULE_S), module),
                row("ours", Some(INJECT_S), inject),
                row("halt-poll", None, halt),
            ],
        }
    }

    fn broken(workload: Workload) -> Vec<(&'static str, bool)> {
        let verdicts = judge(&[workload]);
        let broken = verdicts.iter().filter(|v| !v.breaches.is_empty());
        broken
            .map(|v| {
                let bound = BOUNDS.iter().find(|b| b.says == v.says).unwrap();
                (bound.name, v.holds())
            })
            .collect()
    }

    #[test]
    fn a_good_result_breaks_nothing() {
        assert_eq!(
            broken(workload("a", Kind::Stationary, 1.019, 1.049, 1.2)),
            []
        );
        assert_eq!(broken(workload("a", Kind::Switching, 0.9, 1.2, 0.9)), []);
        assert_eq!(broken(workload("a", Kind::Unlucky, 1.0, 1.0, 2.1)), []);
    }

    #[test]
    fn each_bound_is_broken_by_what_it_forbids() {
        let one = |kind, module, inject, halt| {
            let broken = broken(workload("a", kind, module, inject, halt));
            assert_eq!(broken.len(), 1, "{broken:?}");
            assert!(!broken[0].1);
            broken[0].0
        };
        assert_eq!(one(Kind::Stationary, 1.021, 1.0, 2.0), "stationary-module");
        assert_eq!(one(Kind::Stationary, 1.0, 1.051, 2.0), "stationary-inject");
        assert_eq!(one(Kind::Switching, 1.001, 1.0, 2.0), "switching");
        assert_eq!(one(Kind::Switching, 0.95, 1.0, 0.94), "halt-poll");
        assert_eq!(one(Kind::Unlucky, 1.0, 1.04, 2.05), "unlucky");
        let mut restless = workload("a", Kind::Stationary, 1.0, 1.0, 1.0);
        restless.rows[1].late_changes = 2;
        assert_eq!(broken(restless), [("quiet", false)]);
    }

    #[test]
    fn what_is_known_is_shown_and_does_not_fail() {
        let broken = broken(workload(
            "switch-half-second",
            Kind::Switching,
            0.99,
            1.0,
            0.98,
        ));
        assert_eq!(broken, [("halt-poll", true)]);
    }

    #[test]
    fn a_breach_names_workload_and_figures() {
        let verdicts = judge(&[workload("odd", Kind::Stationary, 1.5, 1.0, 2.0)]);
        let text = verdicts[0].to_string();
        assert!(text.contains("DOES NOT HOLD"), "{text}");
        assert!(text.contains("odd: 1.500, allowed 1.020"), "{text}");
    }
}
