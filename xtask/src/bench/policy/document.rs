//! What `vhost-tuner simulate --json` says.

use anyhow::{Context as _, Result};
use serde::Deserialize;

#[derive(Deserialize)]
struct Document {
    workloads: Vec<Workload>,
}

/// A workload under all policies.
#[derive(Debug, Deserialize)]
pub(super) struct Workload {
    pub(super) workload: String,
    pub(super) kind: Kind,
    pub(super) wake_us: u32,
    pub(super) rows: Vec<Row>,
}

/// What a workload is there to show.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Stationary,
    Switching,
    Unlucky,
    Mixed,
}

/// One policy.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Row {
    pub(super) policy: String,
    pub(super) look_s: Option<f64>,
    pub(super) timeout_us: Option<u32>,
    pub(super) cost_ratio: f64,
    pub(super) spin_percent: f64,
    pub(super) wakes_per_s: f64,
    pub(super) wait_p50_us: Option<f64>,
    pub(super) wait_p99_us: Option<f64>,
    pub(super) changes: u64,
    pub(super) late_changes: u64,
    pub(super) looks: u64,
}

impl Workload {
    /// All workloads of a document.
    pub(super) fn all(json: &str) -> Result<Vec<Self>> {
        let document: Document =
            serde_json::from_str(json).context("read what `vhost-tuner simulate` said")?;
        Ok(document.workloads)
    }

    /// A policy that has no looks.
    pub(super) fn rival(&self, policy: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.policy == policy)
    }

    /// Ours, with this time between looks.
    pub(super) fn ours(&self, look_s: f64) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.look_s.is_some_and(|s| (s - look_s).abs() < 1e-9))
    }
}
