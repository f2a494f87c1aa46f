//! Counters of a network device.

use std::fs;

use anyhow::{Context as _, Result};

/// What the kernel has counted for a network device.
pub(super) fn statistic(device: &str, name: &str) -> Result<f64> {
    let file = format!("/sys/class/net/{device}/statistics/{name}");
    let text = fs::read_to_string(&file).with_context(|| format!("read {file}"))?;
    text.trim().parse().with_context(|| format!("parse {file}"))
}
