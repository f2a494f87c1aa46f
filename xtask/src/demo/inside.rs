//! The demonstration itself, inside the VM.

use std::{process::Command, thread, time::Duration};

use anyhow::Result;

use super::{
    figures::{Comparison, Figures},
    traffic::Traffic,
};
use crate::{build::Programs, command};

/// Longer than everything below takes.
const SECONDS: u32 = 240;
/// What the timeout is turned to.
const BUSYLOOP_US: &str = "200";

/// Runs `demo-inside`.
pub(crate) fn run() -> Result<()> {
    let programs = Programs::named()?;
    let traffic = Traffic::start(&programs, SECONDS)?;
    println!(
        "A guest with UDP echo traffic runs on {} as process {}, busy polling off.\n",
        traffic.tap, traffic.pid
    );
    thread::sleep(Duration::from_secs(2));
    let before = look(&programs, &traffic)?;
    println!("\nNow busy polling is turned on in the running process:\n");
    let pid = traffic.pid.to_string();
    show(Command::new(&programs.tuner).args(["set", &pid]).args([
        "--busyloop-rx",
        BUSYLOOP_US,
        "--busyloop-tx",
        BUSYLOOP_US,
    ]))?;
    thread::sleep(Duration::from_secs(1));
    println!();
    let after = look(&programs, &traffic)?;
    println!("\n{}", Comparison { before, after });
    Ok(())
}

/// Shows the figures, then takes some to compare.
fn look(programs: &Programs, traffic: &Traffic) -> Result<Figures> {
    show(Command::new(&programs.tuner).args(["stat", "-i", "1", "-c", "3"]))?;
    let start = traffic.mark();
    let json = command::output(
        Command::new(&programs.tuner).args(["stat", "-i", "3", "-c", "1", "--json"]),
    )?;
    let round_trips = start.rate_to(traffic.mark());
    Figures::read(&json, traffic.pid, round_trips)
}

/// Runs a command as one would type it, with the line itself.
fn show(command: &mut Command) -> Result<()> {
    let line = command::shown(command);
    let name = line
        .split(' ')
        .next()
        .and_then(|path| path.rsplit('/').next());
    let arguments = line.split_once(' ').map_or("", |(_, rest)| rest);
    println!("$ {} {arguments}", name.unwrap_or_default());
    command::run(command)
}
