//! The program's commands from start to end.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::bench::Bench;
use crate::console::{Console, Input};
use crate::options::{Cli, Command, Mode, RunOptions, TargetOptions};
use crate::report::Event;
use crate::sitters::Sitters;
use crate::storm::{self, Storm, Weather};
use crate::system::name_this_thread;

/// Does what the command line says.
///
/// # Errors
/// What kept it from being done.
pub fn run(cli: &Cli) -> Result<()> {
    match &cli.command {
        Command::Run(options) => traffic(options),
        Command::Target(options) => target(options),
    }
}

fn traffic(options: &RunOptions) -> Result<()> {
    options.check()?;
    if options.vcpu_names {
        name_this_thread(&options.thread_name("main")).context("cannot name the main thread")?;
    }
    if options.storm_us.is_some() {
        // Before any thread is started: only the sitters are to be hit.
        storm::keep_away();
    }
    let mut console = Console::new()?;
    let mut bench = Bench::open(options)?;
    bench.ready().print()?;
    if options.mode == Mode::Idle {
        let start = Instant::now();
        loop {
            match ask(&mut console, &mut bench)? {
                Input::End | Input::Signal => break,
                Input::Go => bench.kick_for_nothing()?,
                _ => {}
            }
        }
        bench.settle()?;
        return Event::Result(Box::new(bench.outcome(start.elapsed()))).print();
    }
    if options.wait_go && ask(&mut console, &mut bench)? != Input::Go {
        return Ok(());
    }
    loop {
        let outcome = bench.round(&mut console)?;
        Event::Result(Box::new(outcome)).print()?;
        if !options.hold || ask(&mut console, &mut bench)? != Input::Go {
            return Ok(());
        }
    }
}

/// Waits for the next line that is not about a ring to hold.
fn ask(console: &mut Console, bench: &mut Bench) -> Result<Input> {
    loop {
        match console.ask()? {
            Input::Hold(order) => bench.obey(order)?.print()?,
            input => return Ok(input),
        }
    }
}

fn target(options: &TargetOptions) -> Result<()> {
    if options.vcpu_names {
        name_this_thread(&options.thread_name("main")).context("cannot name the main thread")?;
    }
    if options.storm_us.is_some() {
        storm::keep_away();
    }
    let mut console = Console::new()?;
    let sitters = Sitters::start(&options.syscall, &options.thread_name("waker"))
        .context("cannot start the sitters")?;
    let weather = Weather::of(&sitters, options.storm_us, options.thread_name("storm"))?;
    let storm = weather.as_ref().map(Weather::begin).transpose()?;
    Event::Ready {
        pid: std::process::id(),
        tap: String::new(),
        pairs: Vec::new(),
    }
    .print()?;
    let end = options
        .seconds
        .map(|seconds| Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
    loop {
        let limit = end.map(|end| end.saturating_duration_since(Instant::now()));
        if limit == Some(Duration::ZERO) {
            break;
        }
        let told = console.listen(None, limit)?;
        if told.contains(&Input::Signal) || (end.is_none() && !told.is_empty()) {
            break;
        }
    }
    storm.map_or(Ok(()), Storm::calm)?;
    let sitters = sitters.counts();
    Event::Target {
        signals: weather.as_ref().map(Weather::counts),
        calls: sitters.iter().map(|sitter| sitter.calls).sum(),
        failures: sitters.iter().map(|sitter| sitter.failures).sum(),
        sitters,
    }
    .print()
}
