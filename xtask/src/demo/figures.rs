//! Figures before and after, out of what `stat --json` says.

use std::fmt;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// One interval of all queues of one process. A figure that could not be
/// measured is none.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub(super) round_trips: Option<f64>,
    pub(super) kicks: Option<f64>,
    own_hits: Option<f64>,
    peer_hits: Option<f64>,
    misses: Option<f64>,
    pub(super) spin_ms: Option<f64>,
    worker_cpu: Option<f64>,
    /// The timeouts that are set, of each queue.
    timeouts: Vec<u64>,
}

impl Figures {
    /// Reads them out of the document.
    pub(super) fn read(text: &str, pid: u64, round_trips: Option<f64>) -> Result<Self> {
        let stat: Value = serde_json::from_str(text).context("parse the output of stat --json")?;
        ensure!(stat["schema"] == 1, "an unknown schema: {}", stat["schema"]);
        let seconds = stat["interval_s"]
            .as_f64()
            .context("no interval_s in stat's output")?;
        let queues: Vec<&Value> = stat["queues"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|queue| queue["pid"] == pid)
            .collect();
        ensure!(!queues.is_empty(), "stat shows no queue of process {pid}");
        let sum =
            |name: &str| -> Option<f64> { queues.iter().map(|queue| queue[name].as_f64()).sum() };
        let rate = |name: &str| sum(name).map(|count| count / seconds);
        // Both queues of a pair have one worker: what it uses is counted once.
        let worker_cpu = queues
            .iter()
            .filter_map(|queue| queue["worker_cpu_percent"].as_f64())
            .reduce(f64::max);
        Ok(Self {
            round_trips,
            kicks: rate("kicks"),
            own_hits: rate("poll_own_hits"),
            peer_hits: rate("poll_peer_hits"),
            misses: rate("poll_misses"),
            spin_ms: rate("spin_ns").map(|ns| ns / 1e6),
            worker_cpu,
            timeouts: queues
                .iter()
                .filter_map(|queue| queue["busyloop_timeout_us"].as_u64())
                .collect(),
        })
    }
}

/// Both, side by side.
pub(super) struct Comparison {
    pub(super) before: Figures,
    pub(super) after: Figures,
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = (&self.before, &self.after);
        let rows = [
            ("round trips / s", before.round_trips, after.round_trips),
            ("kicks / s", before.kicks, after.kicks),
            ("own hits / s", before.own_hits, after.own_hits),
            ("peer hits / s", before.peer_hits, after.peer_hits),
            ("misses / s", before.misses, after.misses),
            ("spin ms / s", before.spin_ms, after.spin_ms),
            ("worker CPU %", before.worker_cpu, after.worker_cpu),
        ];
        writeln!(f, "{:20}{:>12}{:>12}", "", "before", "after")?;
        writeln!(
            f,
            "{:20}{:>12}{:>12}",
            "busyloop µs",
            set(&before.timeouts),
            set(&after.timeouts)
        )?;
        for (name, before, after) in rows {
            writeln!(f, "{name:20}{:>12}{:>12}", shown(before), shown(after))?;
        }
        writeln!(f, "\n{}", self.sentence())
    }
}

impl Comparison {
    fn sentence(&self) -> String {
        let (before, after) = (&self.before, &self.after);
        format!(
            "With the timeout turned from {} to {} µs on the running process, round trips went \
             from {} to {} a second and kicks from {} to {} a second, for {} ms of spinning a second.",
            set(&before.timeouts),
            set(&after.timeouts),
            shown(before.round_trips),
            shown(after.round_trips),
            shown(before.kicks),
            shown(after.kicks),
            shown(after.spin_ms),
        )
    }
}

fn shown(figure: Option<f64>) -> String {
    match figure {
        None => "–".to_owned(),
        Some(value) if value.abs() < 100.0 && value != 0.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
    }
}

fn set(timeouts: &[u64]) -> String {
    let mut all = timeouts.to_vec();
    all.dedup();
    if all.is_empty() {
        return "–".to_owned();
    }
    let words: Vec<String> = all.iter().map(u64::to_string).collect();
    words.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = r#"{"schema":1,"interval_s":2.0,"queues":[
        {"pid":7,"direction":"rx","busyloop_timeout_us":0,"kicks":0,"poll_own_hits":2,
         "poll_peer_hits":0,"poll_misses":4,"spin_ns":3000000,"worker_cpu_percent":40.0},
        {"pid":7,"direction":"tx","busyloop_timeout_us":200,"kicks":1000,"poll_own_hits":4,
         "poll_peer_hits":null,"poll_misses":0,"spin_ns":1000000,"worker_cpu_percent":40.0},
        {"pid":8,"direction":"tx","kicks":1}]}"#;

    #[test]
    fn a_process_is_the_sum_of_its_queues() {
        let figures = Figures::read(STAT, 7, Some(900.0)).unwrap();
        assert_eq!(figures.kicks, Some(500.0));
        assert_eq!(figures.own_hits, Some(3.0));
        assert_eq!(figures.spin_ms, Some(2.0));
        assert_eq!(figures.worker_cpu, Some(40.0));
        assert_eq!(set(&figures.timeouts), "0/200");
    }

    #[test]
    fn what_was_not_measured_is_a_dash() {
        let figures = Figures::read(STAT, 7, None).unwrap();
        assert_eq!(figures.peer_hits, None);
        assert_eq!(shown(figures.peer_hits), "–");
        assert_eq!(shown(figures.round_trips), "–");
    }

    #[test]
    fn a_process_that_is_not_shown_is_an_error() {
        assert!(Figures::read(STAT, 9, None).is_err());
    }
}
