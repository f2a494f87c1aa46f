//! `cargo xtask`: everything that developing vhost-tuner takes beyond cargo.

mod bench;
mod build;
mod command;
mod demo;
mod lab;
mod module;
mod paths;
mod progress;
mod setup;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What the developers of vhost-tuner do.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Bring everything the other commands need; they also do so by themselves
    Setup(setup::Options),
    /// Build the programs, with the eBPF object in them, for release
    Build(build::Options),
    /// Build the eBPF object (and the tuner that holds it)
    BuildEbpf(build::Options),
    /// Build vhost_net with hooks, as a module and as a livepatch
    BuildModule(module::Options),
    /// Lints, unit tests, and lab tests on every kernel series
    Test(test::Options),
    /// See and turn a real vhost_net in a VM, before and after
    Demo(demo::Options),
    /// The part of `demo` that runs in the VM
    #[command(hide = true)]
    DemoInside,
    /// Measure what measuring costs, what the knobs bring, and what turning them costs
    #[command(subcommand)]
    Bench(bench::Bench),
    /// The part of `bench` that runs in the VM
    #[command(hide = true)]
    BenchInside(bench::Plan),
    /// The part of `bench headline` that runs in the VM
    #[command(hide = true)]
    HeadlineInside(bench::HeadlinePlan),
    /// The part of `bench knobs` that runs in the VM
    #[command(hide = true)]
    KnobsInside(bench::KnobsPlan),
    /// Run things in a VM with a real vhost_net
    #[command(subcommand)]
    Lab(lab::Lab),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Task::Setup(options) => setup::run(&options).map(|()| 0),
        Task::Build(options) => build::run(&options).map(|()| 0),
        Task::BuildEbpf(options) => build::run_ebpf(&options).map(|()| 0),
        Task::BuildModule(options) => module::run(&options).map(|()| 0),
        Task::Test(options) => test::run(&options),
        Task::Bench(command) => bench::run(&command),
        Task::BenchInside(plan) => bench::run_inside(&plan).map(|()| 0),
        Task::HeadlineInside(plan) => bench::run_headline_inside(&plan).map(|()| 0),
        Task::KnobsInside(plan) => bench::run_knobs_inside(&plan).map(|()| 0),
        Task::Demo(options) => demo::run(&options),
        Task::DemoInside => demo::run_inside().map(|()| 0),
        Task::Lab(command) => lab::run(&command),
    };
    match result {
        Ok(status) => ExitCode::from(u8::try_from(status).unwrap_or(1)),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
