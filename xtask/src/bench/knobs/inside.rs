//! The measurement itself, inside the VM.
//!
//! All ways are interleaved on one target, and only sets of the same round are
//! compared: on a shared machine speed drifts.

use anyhow::{Context as _, Result, ensure};

use super::{
    super::{machine::Machine, memory::InMemory, order::order},
    Plan,
    measured::{Excess, Figure, Load, Measured, Operation},
    stops::Stops,
    table::Table,
    target::Target,
    tracing::Tracing,
    way::{Way, Ways},
};
use crate::{build::Programs, command};

/// The first value that is set; each set has one of its own.
const FIRST: u32 = 20;

/// Runs `knobs-inside`.
pub(crate) fn run(plan: &Plan) -> Result<()> {
    let programs = Programs::named()?;
    let lab = InMemory::copy(&programs.lab)?;
    // As a distribution ships its programs: gdb reads what there is to read
    // while the target stands still.
    command::run(std::process::Command::new("strip").arg(lab.path()))?;
    let mut bench = Bench {
        ways: Ways::new(InMemory::copy(&programs.tuner)?)?,
        target: Target::start(&lab)?,
        tracing: Tracing::start()?,
        value: FIRST,
        measured: Measured::default(),
    };
    println!("milliseconds, idle / load: longest stop of a thread; command");
    for round in 1..=plan.rounds {
        for which in order(round, Way::ALL.len()) {
            let way = Way::ALL[which];
            bench
                .round(way)
                .with_context(|| format!("round {round}, {}", way.name()))?;
        }
        println!("{round:4}  {}", bench.row());
    }
    bench.ways.prepare(Way::Inject)?;
    let machine = Machine::here();
    let measured = bench.measured;
    let excess = Load::ALL.map(|load| measured.excess(load).middle);
    println!("\n{}", Table { machine, measured });
    ensure!(
        excess.iter().all(|&middle| middle <= Excess::BOUND),
        "`set` reports a longer stop than the kernel, by more than {} %",
        Excess::BOUND * 100.0
    );
    Ok(())
}

struct Bench {
    ways: Ways,
    target: Target,
    tracing: Tracing,
    value: u32,
    measured: Measured,
}

impl Bench {
    /// One set while the target is idle, and one under load.
    fn round(&mut self, way: Way) -> Result<()> {
        self.ways.prepare(way)?;
        self.set(way, Load::Idle)?;
        self.target.go()?;
        self.set(way, Load::Traffic)?;
        self.target.flows()?;
        let noticed = self.target.rest()?;
        // Of gdb it is a result, of ours it would be a bug.
        ensure!(
            way == Way::Gdb || !noticed.anything(),
            "the target has noticed it: {noticed:?}"
        );
        self.measured.noticed(way, noticed);
        Ok(())
    }

    fn set(&mut self, way: Way, load: Load) -> Result<()> {
        self.value += 1;
        let threads = self.target.threads()?;
        self.tracing.clear()?;
        let done = self.ways.set(way, &self.target, self.value)?;
        let stops = self.tracing.stops(&threads)?;
        self.ways.check(&self.target, self.value)?;
        let operation = Operation { stops, done };
        check(way, &operation).with_context(|| format!("{operation:?}"))?;
        self.measured.push(way, load, operation);
        Ok(())
    }

    /// The round that was last.
    fn row(&self) -> String {
        let last = |way, load, figure| {
            let figures = self.measured.figures(way, load, figure);
            figures.last().copied().unwrap_or(f64::NAN)
        };
        let cells: Vec<String> = Way::ALL
            .iter()
            .map(|&way| {
                let [longest, command] = [Figure::Longest, Figure::Command].map(|figure| {
                    let [idle, load] = Load::ALL.map(|load| last(way, load, figure));
                    format!("{idle:.1} / {load:.1}")
                });
                format!("{}: {longest}; {command}", way.name())
            })
            .collect();
        cells.join("   ")
    }
}

/// What has to hold of every set.
fn check(way: Way, operation: &Operation) -> Result<()> {
    let stops = &operation.stops;
    match way {
        Way::Inject => {
            ensure!(stops.threads == 1, "more than one thread stood still");
            let reported = operation.done.reported.context("no stop time reported")?;
            let asked = stops.asked.context("nobody asked a thread to stop")?;
            // The trace cuts off what is below a microsecond.
            ensure!(
                reported >= asked - 2.0,
                "set reports a shorter stop than there was"
            );
        }
        Way::Gdb => ensure!(stops.threads > 0, "gdb stopped no thread"),
        Way::Module => ensure!(
            *stops == Stops::default(),
            "a thread stood still although the module set it"
        ),
    }
    Ok(())
}
