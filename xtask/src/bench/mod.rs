//! `cargo xtask bench …`: what measuring costs, what the knobs bring, and what
//! turning them costs.

mod boot;
mod flood;
mod headline;
mod inside;
mod knobs;
mod machine;
mod memory;
mod observer;
mod order;
mod policy;
mod process;
mod ratio;
mod report;
mod said;
mod tap;
mod worker;

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};

use self::boot::Inside;
use crate::setup::Step;

/// The `bench` commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Packets a second with nothing attached, with `vhost-tuner stat`, and with
    /// a bpftrace script that measures what it can of the same
    Overhead(Overhead),
    /// What poll_peer and tx_batched bring, beside what their patches say
    Headline(headline::Options),
    /// For how long a set has the target stand still: by injection, by gdb, by
    /// the module
    Knobs(knobs::Options),
    /// What our way to choose busyloop timeouts costs beside others, simulated;
    /// needs no VM
    Policy(policy::Options),
}

/// Options of `bench overhead`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Overhead {
    /// Kernel to measure on, written as for `lab run`
    #[arg(long, default_value = "6.12")]
    kernel: String,
    #[command(flatten)]
    plan: Plan,
}

/// How much to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// Rounds of: bare, ours, bare, bpftrace
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(2..=1000))]
    rounds: u32,
    /// Further rounds, in which the kernel times every BPF program
    #[arg(long, default_value_t = 3)]
    timed_rounds: u32,
    /// Length of a phase in seconds
    #[arg(long, default_value_t = 4.0, value_name = "SECS")]
    phase: f64,
}

/// `bench-inside`: the part that runs in the VM.
pub(crate) use self::inside::run as run_inside;
pub(crate) use self::{
    headline::{Plan as HeadlinePlan, run_inside as run_headline_inside},
    knobs::{Plan as KnobsPlan, run_inside as run_knobs_inside},
};

const NEEDED: &[Step] = &[
    Step::LabPackages,
    Step::Qemu,
    Step::TrafficPackages,
    Step::ComparePackages,
    Step::VirtmeNg,
];

/// Runs a `bench` command; gives the status to exit with.
pub(crate) fn run(bench: &Bench) -> Result<i32> {
    match bench {
        Bench::Overhead(options) => overhead(options),
        Bench::Headline(options) => headline::run(options),
        Bench::Knobs(options) => knobs::run(options),
        Bench::Policy(options) => policy::run(options),
    }
}

/// Boots the lab and measures in it.
fn overhead(options: &Overhead) -> Result<i32> {
    let Plan {
        rounds,
        timed_rounds,
        phase,
    } = options.plan;
    // A round has four phases, two of them with something to attach first.
    let round = 4.0 * phase + 60.0;
    let all = round * f64::from(rounds + timed_rounds) + 180.0;
    Inside {
        kernel: &options.kernel,
        command: "bench-inside",
        words: vec![
            format!("--rounds={rounds}"),
            format!("--timed-rounds={timed_rounds}"),
            format!("--phase={phase}"),
        ],
        limit: Duration::from_secs_f64(all),
        modules: false,
    }
    .run(NEEDED)
}
