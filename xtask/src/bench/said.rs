//! What `vhost-tuner set --json` says.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// The changes it made. Another way than this one would mean that something
/// else is measured than what is meant.
pub(super) fn changes_by(backend: &str, said: &str) -> Result<Vec<Value>> {
    let said: Value = serde_json::from_str(said).context("parse the output of set --json")?;
    let changes = said["changes"]
        .as_array()
        .context("no changes in set's output")?;
    ensure!(
        !changes.is_empty() && changes.iter().all(|change| change["backend"] == backend),
        "this was not set by the backend `{backend}`: {said}"
    );
    Ok(changes.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_way_that_is_meant_counts() {
        let by = |backend: &str| format!(r#"{{"changes":[{{"backend":"{backend}"}}]}}"#);
        assert_eq!(changes_by("module", &by("module")).unwrap().len(), 1);
        for said in [&by("inject"), r#"{"changes":[]}"#, "{}", ""] {
            assert!(changes_by("module", said).is_err(), "{said}");
        }
    }
}
