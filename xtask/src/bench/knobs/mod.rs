//! `cargo xtask bench knobs`: for how long a set has the target stand still.

mod inside;
mod measured;
mod stops;
mod table;
mod target;
mod tracing;
mod way;

use std::time::Duration;

use anyhow::Result;
use clap::Args;

/// `knobs-inside`: the part that runs in the VM.
pub(crate) use self::inside::run as run_inside;
use super::boot::Inside;
use crate::setup::Step;

/// Options of `bench knobs`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Kernel to measure on, written as for `lab run`
    #[arg(long, default_value = "6.12")]
    kernel: String,
    #[command(flatten)]
    plan: Plan,
}

/// How much to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// Rounds, each with a set in every way, on an idle target and under load
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=1000))]
    rounds: u32,
}

const NEEDED: &[Step] = &[
    Step::LabPackages,
    Step::Qemu,
    Step::ComparePackages,
    Step::VirtmeNg,
];

/// Boots the lab and measures in it; gives the status to exit with.
pub(super) fn run(options: &Options) -> Result<i32> {
    let rounds = options.plan.rounds;
    Inside {
        kernel: &options.kernel,
        command: "knobs-inside",
        words: vec![format!("--rounds={rounds}")],
        // More than a round takes on a machine that is busy otherwise.
        limit: Duration::from_secs(240) * rounds + Duration::from_secs(180),
        modules: true,
    }
    .run(NEEDED)
}
