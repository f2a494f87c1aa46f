//! The demonstration itself, inside the VM.

use std::{process::Command, thread, time::Duration};

use anyhow::{Result, ensure};

use super::{
    figures::{Comparison, Figures},
    traffic::Traffic,
};
use crate::{build::Programs, command};

/// Longer than everything below takes.
const SECONDS: u32 = 240;
/// How long the figures to compare are taken for.
const INTERVAL: f64 = 3.0;
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
    let still = after.round_trips.is_none_or(|rate| rate <= 0.0);
    println!("\n{}", Comparison { before, after });
    ensure!(!still, "the traffic stands still");
    Ok(())
}

/// Shows the figures, then takes some to compare.
fn look(programs: &Programs, traffic: &Traffic) -> Result<Figures> {
    show(Command::new(&programs.tuner).args(["stat", "-i", "1", "-c", "3"]))?;
    let json = command::output(Command::new(&programs.tuner).args([
        "stat",
        "-c",
        "1",
        "--json",
        "-i",
        &INTERVAL.to_string(),
    ]))?;
    // The interval has only just ended, and before it nothing was attached.
    Figures::read(&json, traffic.pid, traffic.rate(INTERVAL - 0.5))
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
