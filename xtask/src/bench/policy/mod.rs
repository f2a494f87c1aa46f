//! `cargo xtask bench policy`: ways to choose a busyloop timeout, simulated.

mod bounds;
mod document;
mod table;

use std::process::{Command, Stdio};

use anyhow::Result;
use clap::Args;

use self::{bounds::judge, document::Workload, table::Table};
use crate::{build, command, progress::Progress};

/// Options of `bench policy`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Seconds to simulate
    #[arg(long, default_value_t = 60.0, value_name = "SECS")]
    seconds: f64,
    /// Another number gives other traffic of the same sort
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Instead: 24 hours of 1,000 VMs, for memory, drift and CPU time
    #[arg(long)]
    day: bool,
    /// Only these workloads, as `vhost-tuner simulate` names them
    #[arg(long, value_delimiter = ',')]
    workload: Vec<String>,
}

/// Simulates, shows the table, and says which bounds hold: 1 if one does not.
pub(super) fn run(options: &Options) -> Result<i32> {
    let tuner = build::tuner()?;
    let mut simulate = Command::new(tuner);
    if options.day {
        simulate.args(["simulate", "--day=24", "--vms=1000"]);
        simulate.arg(format!("--seed={}", options.seed));
        return command::run(&mut simulate).map(|()| 0);
    }
    simulate
        .args(["simulate", "--json-lines", "--verbose"])
        .arg(format!("--look={},{}", bounds::MODULE_S, bounds::INJECT_S))
        .arg(format!("--seconds={}", options.seconds))
        .arg(format!("--seed={}", options.seed));
    if !options.workload.is_empty() {
        simulate.arg(format!("--workload={}", options.workload.join(",")));
    }
    simulate.stderr(Stdio::inherit());
    let progress = Progress::start("policy", "policies on simulated traffic take minutes");
    let workloads = Workload::all(&command::output(&mut simulate)?)?;
    progress.done("simulated");
    println!("{}", Table(&workloads));
    let verdicts = judge(&workloads);
    for verdict in &verdicts {
        print!("{verdict}");
    }
    Ok(i32::from(!verdicts.iter().all(bounds::Verdict::holds)))
}
