//! `cargo xtask lab …`: a VM of a distribution's kernel over this system's own
//! files, the checkout writable in it at the same path.

mod cage;
mod directory;
mod kvm;
mod machine;
mod outcome;
mod selftest;
mod stream;

use std::{io, time::Duration};

use anyhow::Result;
use clap::{Args, Subcommand};

pub(crate) use self::machine::{Job, run as run_job};
use crate::setup;

/// The status for a command that was ended because its time was up, as with
/// `timeout`.
pub(crate) const TIMED_OUT: i32 = 124;
/// The status when the VM failed, not the command.
pub(crate) const NO_VM: i32 = 125;

/// The `lab` commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Run a command as root in the VM; its output and exit status become ours
    ///
    /// The status is 124 when the time is up, 125 when the VM did not start the
    /// command or died under it.
    Run(Run),
    /// An interactive shell in the VM
    Shell(Shape),
    /// Test the runner itself: status, output, time-out, nothing left behind
    Selftest(Shape),
}

/// Which VM.
#[derive(Args, Clone, Debug)]
pub(crate) struct Shape {
    /// A series, a version, a bootable file, or a directory of an unpacked package
    #[arg(long, default_value = "6.12", value_name = "6.1|6.12|VERSION|PATH")]
    kernel: String,
    /// Virtual CPUs
    #[arg(long, default_value_t = 3, value_name = "N")]
    cpus: u32,
    /// Memory, as QEMU takes it
    #[arg(long, default_value = "3G", value_name = "M")]
    memory: String,
}

/// Options of `lab run`.
#[derive(Args, Debug)]
pub(crate) struct Run {
    #[command(flatten)]
    shape: Shape,
    /// How long the command may take, in seconds, from its start
    #[arg(long, default_value_t = 600, value_name = "SECS")]
    timeout: u64,
    /// Set a variable in the command's environment
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// The command and its arguments (`sh -c '…'` for a shell line)
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

impl Shape {
    fn job(&self, command: Vec<String>) -> Result<Job> {
        setup::ensure(setup::FOR_LAB)?;
        Ok(Job {
            cpus: self.cpus,
            memory: self.memory.clone(),
            ..Job::new(setup::kernel(&self.kernel)?, command)
        })
    }
}

/// Runs a `lab` command; gives the status to exit with.
pub(crate) fn run(lab: &Lab) -> Result<i32> {
    match lab {
        Lab::Run(options) => {
            let mut job = options.shape.job(options.command.clone())?;
            job.timeout = Duration::from_secs(options.timeout);
            job.env = options.env.iter().map(|pair| split_env(pair)).collect();
            let outcome = run_job(&job, &mut io::stdout(), &mut io::stderr())?;
            Ok(outcome.report(&job))
        }
        Lab::Shell(shape) => machine::shell(&shape.job(Vec::new())?),
        Lab::Selftest(shape) => {
            let job = shape.job(Vec::new())?;
            selftest::run(&job).map(|()| 0)
        }
    }
}

fn split_env(pair: &str) -> (String, String) {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    (name.to_owned(), value.to_owned())
}

/// The runner's own test on one kernel, for `cargo xtask test`.
pub(crate) fn selftest(kernel: &str) -> Result<()> {
    setup::ensure(setup::FOR_LAB)?;
    selftest::run(&Job::new(setup::kernel(kernel)?, Vec::new()))
}
