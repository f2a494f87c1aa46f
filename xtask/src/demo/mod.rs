//! `cargo xtask demo`: a real vhost_net seen and turned, in three minutes.

mod figures;
mod inside;
mod traffic;

use std::{env, io, time::Duration};

use anyhow::{Context as _, Result};
use clap::Args;

/// `demo-inside`: the part that runs in the VM.
pub(crate) use self::inside::run as run_inside;
use crate::{build::Programs, lab, setup};

/// Options of `cargo xtask demo`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Kernel to show it on, written as for `lab run`
    #[arg(long, default_value = "6.12")]
    kernel: String,
}

/// Boots the lab and shows it there; gives the status to exit with.
pub(crate) fn run(options: &Options) -> Result<i32> {
    setup::ensure(setup::FOR_LAB)?;
    let kernel = setup::kernel(&options.kernel)?;
    let programs = Programs::build()?;
    let ourselves = env::current_exe().context("find our own program")?;
    let words = vec![
        ourselves.to_string_lossy().into_owned(),
        "demo-inside".to_owned(),
    ];
    eprintln!("[demo] booting Linux {} in a VM", kernel.version);
    let mut job = lab::Job::new(kernel, words);
    job.timeout = Duration::from_secs(300);
    job.env = programs.variables();
    let outcome = lab::run_job(&job, &mut io::stdout(), &mut io::stderr())?;
    Ok(outcome.report(&job))
}
