//! `cargo xtask build`: the programs, and with them the eBPF object, which
//! `tuner/build.rs` makes.

use std::{path::PathBuf, process::Stdio};

use anyhow::{Context as _, Result};
use clap::Args;

use crate::{command, paths, setup};

/// The tuner's package.
const TUNER: &str = "vhost-tuner";
/// The lab driver's package.
const LAB: &str = "vhost-lab";

/// Options of `cargo xtask build` and `build-ebpf`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Without optimization, which is quicker to build
    #[arg(long)]
    debug: bool,
}

/// Builds the tuner and the lab driver.
pub(crate) fn run(options: &Options) -> Result<()> {
    build(options, &[TUNER, LAB])
}

/// Builds the tuner alone, which holds the eBPF object.
pub(crate) fn run_ebpf(options: &Options) -> Result<()> {
    build(options, &[TUNER])
}

/// Builds the tuner for release; gives the program.
pub(crate) fn tuner() -> Result<PathBuf> {
    build(&Options { debug: false }, &[TUNER])?;
    Ok(paths::release(TUNER))
}

fn build(options: &Options, packages: &[&str]) -> Result<()> {
    setup::ensure(setup::FOR_BUILD)?;
    let mut cargo = command::cargo();
    cargo.arg("build");
    if !options.debug {
        cargo.arg("--release");
    }
    for package in packages {
        cargo.args(["--package", package]);
    }
    command::run(&mut cargo)
}

/// Release builds of the programs, for use in the lab.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// `vhost-tuner`
    pub(crate) tuner: PathBuf,
    /// `vhost-lab`
    pub(crate) lab: PathBuf,
}

impl Programs {
    /// The variables that tell those inside the VM where the programs are.
    pub(crate) const TUNER_VARIABLE: &str = "VHOST_TUNER_BIN";
    /// See [`Self::TUNER_VARIABLE`].
    pub(crate) const LAB_VARIABLE: &str = "VHOST_LAB_BIN";

    /// Builds them.
    pub(crate) fn build() -> Result<Self> {
        build(&Options { debug: false }, &[TUNER, LAB])?;
        Ok(Self {
            tuner: paths::release(TUNER),
            lab: paths::release(LAB),
        })
    }

    /// What to set inside the VM.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        [
            (Self::TUNER_VARIABLE, &self.tuner),
            (Self::LAB_VARIABLE, &self.lab),
        ]
        .map(|(name, path)| (name.to_owned(), path.to_string_lossy().into_owned()))
        .to_vec()
    }

    /// The programs that [`Self::variables`] named; for use inside the VM.
    pub(crate) fn named() -> Result<Self> {
        let get = |name| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .with_context(|| format!("{name} is not set: this runs inside the lab only"))
        };
        Ok(Self {
            tuner: get(Self::TUNER_VARIABLE)?,
            lab: get(Self::LAB_VARIABLE)?,
        })
    }
}

/// Builds the tests that need a real vhost_net; gives the program that runs them.
pub(crate) fn lab_tests() -> Result<PathBuf> {
    let mut cargo = command::cargo();
    cargo
        .args(["test", "--release", "--package", TUNER, "--test", "lab"])
        .args(["--features", "lab", "--no-run"])
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit());
    let output = cargo
        .output()
        .with_context(|| format!("cannot start `{}`", command::shown(&cargo)))?;
    anyhow::ensure!(
        output.status.success(),
        "`{}`: {}",
        command::shown(&cargo),
        output.status
    );
    executable(&String::from_utf8_lossy(&output.stdout), "lab")
        .context("cargo built no test program named lab")
}

/// The test program of this name in cargo's messages.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| {
            message["reason"] == "compiler-artifact"
                && message["target"]["name"] == name
                && message["profile"]["test"] == true
        })
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_program_is_found_among_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"lab"},"profile":{"test":false},"executable":"/bin/no"}
not json
{"reason":"compiler-artifact","target":{"name":"lab"},"profile":{"test":true},"executable":"/t/lab-1"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, "lab"), Some("/t/lab-1".into()));
        assert_eq!(executable(messages, "other"), None);
    }
}
