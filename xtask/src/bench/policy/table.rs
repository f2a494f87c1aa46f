//! All policies on all workloads, as text.

use std::fmt;

use super::document::{Row, Workload};

/// The table.
pub(super) struct Table<'a>(pub(super) &'a [Workload]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:18} {:>4}  {:16} {:>6} {:>8} {:>9} {:>8} {:>8} {:>7} {:>7}",
            "workload",
            "w µs",
            "policy",
            "cost",
            "spin %",
            "wakes/s",
            "p50 µs",
            "p99 µs",
            "changes",
            "looks"
        )?;
        for workload in self.0 {
            for (at, row) in workload.rows.iter().enumerate() {
                let (name, wake) = if at == 0 {
                    (workload.workload.as_str(), workload.wake_us.to_string())
                } else {
                    ("", String::new())
                };
                write!(f, "{name:18} {wake:>4}  ")?;
                line(f, row)?;
            }
        }
        Ok(())
    }
}

fn line(f: &mut fmt::Formatter<'_>, row: &Row) -> fmt::Result {
    let name = match (row.look_s, row.timeout_us) {
        (Some(look_s), _) => format!("ours, {look_s} s"),
        (_, Some(timeout)) if row.policy == "best-fixed" => format!("best fixed: {timeout}"),
        _ => row.policy.clone(),
    };
    let wait = |us: Option<f64>| us.map_or_else(|| "–".to_owned(), |us| format!("{us:.1}"));
    let ours = |count: u64| {
        row.look_s
            .map_or_else(|| "–".to_owned(), |_| count.to_string())
    };
    writeln!(
        f,
        "{name:16} {:6.3} {:8.1} {:9.0} {:>8} {:>8} {:>7} {:>7}",
        row.cost_ratio,
        row.spin_percent,
        row.wakes_per_s,
        wait(row.wait_p50_us),
        wait(row.wait_p99_us),
        ours(row.changes),
        ours(row.looks)
    )
}
