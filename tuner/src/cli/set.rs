//! set
use clap::Args;
use super::Outcome;
/// Options of `set`.
#[derive(Debug, Args)]
pub(super) struct Options { target: String }
pub(super) fn run(options: Options) -> Outcome { Err(anyhow::anyhow!("{}", options.target).into()) }
