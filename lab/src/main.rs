//! `vhost-lab`: see the library.

use std::process::ExitCode;

use clap::Parser;
use vhost_lab::options::Cli;

fn main() -> ExitCode {
    match vhost_lab::session::run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("vhost-lab: {e:#}");
            ExitCode::FAILURE
        }
    }
}
