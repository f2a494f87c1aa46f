//! The measurement itself, inside the VM.
//!
//! Phases are interleaved, and each one with something attached is compared
//! with the bare ones just before and after it: on a shared machine speed
//! drifts by more than what is to be measured.

use std::{fs, thread, time::Duration};

use anyhow::{Context as _, Result};

use super::{
    Plan,
    flood::{self, Flood},
    observer::{self, Tool},
    report::{Measured, Report},
};
use crate::build::Programs;

/// After attaching or detaching, before measuring.
const SETTLE: Duration = Duration::from_millis(1500);

/// Runs `bench-inside`.
pub(crate) fn run(plan: &Plan) -> Result<()> {
    let programs = Programs::named()?;
    let phase = Duration::from_secs_f64(plan.phase);
    let tools = [Tool::ours(&programs.tuner)?, Tool::bpftrace()?];
    println!("starting dpdk-testpmd");
    let flood = Flood::start()?;
    let mut measured: [Measured; 2] = Default::default();
    let mut bare = Vec::new();
    println!("packets/s     bare     ours     bare  bpftrace");
    for round in 1..=plan.rounds {
        let mut rates = Vec::new();
        for (tool, measured) in tools.iter().zip(&mut measured) {
            let before = bare_phase(phase)?;
            let attached = tool.attach()?;
            thread::sleep(SETTLE);
            let with = flood::rate(phase)?;
            attached.detach()?;
            rates.extend([before, with]);
            measured.with.push(with);
            measured.before.push(before);
            bare.push(before);
        }
        let row: Vec<String> = rates.iter().map(|rate| format!("{rate:8.0}")).collect();
        println!("round {round:3}  {}", row.join(" "));
    }
    bare.push(bare_phase(phase)?);
    // The bare phase after one tool is the one before the other.
    for (which, measured) in measured.iter_mut().enumerate() {
        measured.after = bare.iter().skip(which + 1).step_by(2).copied().collect();
    }
    time_programs(plan, phase, &tools, &mut measured)?;
    drop(flood);
    let [ours, bpftrace] = measured;
    println!("\n{}", Report { ours, bpftrace });
    Ok(())
}

fn bare_phase(phase: Duration) -> Result<f64> {
    thread::sleep(SETTLE);
    flood::rate(phase)
}

/// Rounds of their own, because having the kernel time its BPF programs costs
/// something itself.
fn time_programs(
    plan: &Plan,
    phase: Duration,
    tools: &[Tool; 2],
    measured: &mut [Measured; 2],
) -> Result<()> {
    let switch = "/proc/sys/kernel/bpf_stats_enabled";
    for _ in 0..plan.timed_rounds {
        for (tool, measured) in tools.iter().zip(&mut *measured) {
            let others = observer::loaded()?;
            let attached = tool.attach()?;
            thread::sleep(SETTLE);
            fs::write(switch, "1").with_context(|| format!("write {switch}"))?;
            let (time, packets) = (observer::bpf_time(&others)?, flood::packets()?);
            thread::sleep(phase);
            let (time, packets) = (
                observer::bpf_time(&others)?.saturating_sub(time),
                flood::packets()?.saturating_sub(packets),
            );
            fs::write(switch, "0").with_context(|| format!("write {switch}"))?;
            attached.detach()?;
            if packets > 0 {
                #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
                measured.nanoseconds.push(time as f64 / packets as f64);
            }
        }
    }
    Ok(())
}
