//! The measurement itself, inside the VM.
//!
//! Settings are interleaved within one session of the traffic, and only phases
//! of the same round are compared: on a shared machine speed drifts.

use std::{thread, time::Duration};

use anyhow::{Context as _, Result};

use super::{
    super::{machine::Machine, memory::InMemory, order::order},
    Plan,
    session::Session,
    setting::Knobs,
    table::{Measured, Table},
    workload::{ALL, Workload},
};
use crate::build::Programs;

/// After turning a knob, before measuring.
const SETTLE: Duration = Duration::from_millis(300);

/// Runs `headline-inside`.
pub(crate) fn run(plan: &Plan) -> Result<()> {
    let programs = Programs::named()?;
    let lab = InMemory::copy(&programs.lab)?;
    let mut knobs = Knobs::install(InMemory::copy(&programs.tuner)?)?;
    let mut measured = Vec::new();
    for workload in ALL.iter().filter(|workload| plan.has(workload.name)) {
        let rounds = measure(workload, plan, &lab, &mut knobs)
            .with_context(|| format!("the workload {}", workload.name.shown()))?;
        measured.push(rounds);
    }
    let machine = Machine::here();
    println!("\n{}", Table { machine, measured });
    Ok(())
}

fn measure(
    workload: &'static Workload,
    plan: &Plan,
    lab: &InMemory,
    knobs: &mut Knobs,
) -> Result<Measured> {
    println!("\n{}: {}", workload.name.shown(), workload.what);
    let settings: Vec<&str> = workload.settings.iter().map(|s| s.name).collect();
    println!("{:8} {}", workload.figure.unit(), settings.join(" | "));
    let phase = Duration::from_secs_f64(plan.phase);
    let mut session = Session::start(&workload.traffic, workload.figure, lab)?;
    let mut measured = Measured::new(workload);
    for round in 1..=plan.rounds {
        for which in order(round, workload.settings.len()) {
            knobs.turn(session.pid(), &workload.settings[which])?;
            thread::sleep(SETTLE);
            measured.rates[which].push(session.rate(phase)?);
        }
        let row: Vec<String> = measured
            .rates
            .iter()
            .filter_map(|rates| rates.last())
            .map(|rate| format!("{rate:9.0}"))
            .collect();
        println!("{round:8} {}", row.join(" "));
    }
    Ok(measured)
}
