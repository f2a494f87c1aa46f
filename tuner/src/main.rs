//! The program `vhost-tuner`: everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    vhost_tuner::cli::main()
}
