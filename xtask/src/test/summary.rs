//! Steps that all run, whatever becomes of the ones before, and one table of
//! how they went.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::progress::seconds;

/// The steps so far.
pub(super) struct Summary {
    started: Instant,
    rows: Vec<Row>,
}

struct Row {
    step: String,
    passed: bool,
    took: Duration,
}

impl Summary {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            rows: Vec::new(),
        }
    }

    /// Takes a step; a failure is told and noted.
    pub(super) fn step<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Option<T> {
        eprintln!("== {name}");
        let start = Instant::now();
        let result = work();
        if let Err(error) = &result {
            eprintln!("== {name} FAILED: {error:#}");
        }
        self.rows.push(Row {
            step: name.to_owned(),
            passed: result.is_ok(),
            took: start.elapsed(),
        });
        result.ok()
    }

    /// Prints the table; gives the status to exit with.
    pub(super) fn close(self) -> i32 {
        println!("\n{}", self.table());
        i32::from(self.rows.iter().any(|row| !row.passed))
    }

    fn table(&self) -> String {
        let widest = self.rows.iter().map(|row| row.step.len()).max();
        let width = widest.unwrap_or(0).max("step".len());
        let mut text = format!("{:width$}  result  {:>9}\n", "step", "time");
        for row in &self.rows {
            let result = if row.passed { "ok" } else { "FAILED" };
            text.push_str(&format!(
                "{:width$}  {result:6}  {:>9}\n",
                row.step,
                seconds(row.took)
            ));
        }
        text.push_str(&format!(
            "{:width$}          {:>9}",
            "in all",
            seconds(self.started.elapsed())
        ));
        text
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn a_failure_stops_nothing_and_decides_the_status() {
        let mut summary = Summary::new();
        assert_eq!(summary.step::<()>("bad", || bail!("no")), None);
        assert_eq!(summary.step("good", || Ok(1)), Some(1));
        let table = summary.table();
        assert!(table.contains("bad   FAILED"), "{table}");
        assert!(table.contains("good  ok"), "{table}");
        assert_eq!(summary.close(), 1);
    }

    #[test]
    fn all_good_is_status_0() {
        let mut summary = Summary::new();
        summary.step("good", || Ok(()));
        assert_eq!(summary.close(), 0);
    }
}
