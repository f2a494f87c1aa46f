//! `vhost-tuner stat`.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use clap::Args;
use serde::Serialize;

use super::table::{Table, or_dash};
use super::watch::{Interval, Watch};
use super::{Failure, Outcome, Output, output, write_json};
use crate::inspect::Kernel;
use crate::inventory::Target;
use crate::model::Figures;
use crate::model::figures::{Counters, Degraded};
use crate::probe;
use crate::probe::plan::DEVICES;

/// How often to look, at least, whether our modules came or went.
const FOLLOW: Duration = Duration::from_secs(1);

/// Options of `stat`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Only this VM, pid, tap or pid:fd.
    target: Option<String>,
    /// Seconds between two readings.
    #[arg(short, long, default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    /// Number of intervals; without it, until interrupted.
    #[arg(short, long, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Have the kernel account the run time of BPF programs, and show it.
    #[arg(long)]
    own_cost: bool,
    /// Log what the programs see to standard error: a line for each event.
    #[arg(long)]
    pub(super) debug_probes: bool,
    #[command(flatten)]
    output: Output,
}

fn seconds(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.05..=86_400.0).contains(&value) {
        Ok(value)
    } else {
        Err("must lie between 0.05 and 86400 seconds".to_owned())
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    interval_s: f64,
    queues: &'a [Figures],
    degraded: &'a Degraded,
    lost: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    own_cost: Option<Vec<Cost<'a>>>,
    /// Null where the kernel does not count them.
    probe_misses: Option<u64>,
}

#[derive(Serialize)]
struct Cost<'a> {
    program: &'a str,
    runs: u64,
    run_ns: u64,
}

/// Prints a line for each queue and interval.
pub(super) fn run(options: Options) -> Outcome {
    let kernel = Kernel::inspect();
    let probe_options = probe::Options {
        own_cost: options.own_cost,
        debug: options.debug_probes,
    };
    let mut watch = Watch::start(&kernel, probe_options)
        .map_err(|why| Failure::Unable(anyhow!(why).context("nothing can be measured")))?;
    if !options.output.is_json() {
        for (figure, why) in watch.degraded() {
            if *figure == DEVICES {
                log::info!("devices are listed every few seconds, not followed: {why}");
            } else {
                log::info!("{figure} is unknown: {why}");
            }
        }
    }
    let target = options.target.clone().map(Target);
    if let Some(target) = &target {
        // Unknown and ambiguous names are refused as everywhere else.
        target.resolve(watch.inventory())?;
    }
    let stop = super::signals::stop_flag()?;
    let step = Duration::from_secs_f64(options.interval);
    let mut next = Instant::now() + step;
    let mut done = 0;
    while options.count.is_none_or(|count| done < count) {
        loop {
            let look = next.min(Instant::now() + FOLLOW);
            if !super::signals::sleep_until(look, &stop) {
                return Ok(());
            }
            if look == next {
                break;
            }
            watch.follow()?;
        }
        let mut interval = watch.next()?;
        // A reading that took too long puts the next ones off, rather than
        // crowding them.
        next += step;
        if next < Instant::now() {
            next = Instant::now() + step;
        }
        if let Some(target) = &target {
            // By what was measured: a device that ends while it is watched keeps
            // its last figures.
            interval
                .queues
                .retain(|q| target.names(&q.vm, q.pid, q.fd, q.tap.as_deref()));
            if interval.queues.is_empty() {
                return Err(no_such(&target.0, done));
            }
        }
        print(&options, &interval, &watch, done)?;
        done += 1;
    }
    Ok(())
}

fn no_such(target: &str, done: u64) -> Failure {
    Failure::Failed(match done {
        0 => anyhow!("`{target}` ended before it was measured"),
        _ => anyhow!("`{target}` has ended"),
    })
}

fn print(options: &Options, interval: &Interval, watch: &Watch, done: u64) -> anyhow::Result<()> {
    if options.output.is_json() {
        let own_cost = options.own_cost.then(|| {
            let costs = interval.programs.iter();
            costs
                .map(|cost| Cost {
                    program: &cost.program,
                    runs: cost.runs,
                    run_ns: cost.run_ns,
                })
                .collect()
        });
        let document = Document {
            schema: 1,
            interval_s: interval.seconds,
            queues: &interval.queues,
            degraded: watch.degraded(),
            lost: interval.lost,
            own_cost,
            probe_misses: probe_misses(interval, watch),
        };
        return write_json(&document, options.output.json);
    }
    let mut out = output();
    if done > 0 {
        writeln!(out)?;
    }
    table(interval).write(&mut out)?;
    if options.own_cost {
        let ns: u64 = interval.programs.iter().map(|p| p.run_ns).sum();
        let runs: u64 = interval.programs.iter().map(|p| p.runs).sum();
        let share = ns as f64 / 1e7 / interval.seconds;
        writeln!(out, "own cost: {runs} program runs, {share:.3} % of a core")?;
    }
    let missed = interval.queues.iter().map(|q| q.totals.missed).sum::<u64>() + interval.lost;
    if let Some(misses) = probe_misses(interval, watch).filter(|misses| *misses > 0) {
        writeln!(
            out,
            "probes: {misses} program runs were missed in this interval"
        )?;
    }
    if missed > 0 {
        writeln!(
            out,
            "missed: {missed} events since attaching; figures are too low by them"
        )?;
    }
    out.flush()?;
    Ok(())
}

/// How often a program was not run in the interval, where the kernel counts it.
fn probe_misses(interval: &Interval, watch: &Watch) -> Option<u64> {
    let known = !watch.degraded().contains_key("probe_misses");
    known.then(|| interval.programs.iter().map(|p| p.missed).sum())
}

fn table(interval: &Interval) -> Table {
    let mut table = Table::new(&[
        ("VM", true),
        ("TAP", true),
        ("FD", false),
        ("DIR", true),
        ("POLL-US", false),
        ("PKT/S", false),
        ("KICK/S", false),
        ("INTR/S", false),
        ("RUN/S", false),
        ("BATCH50", false),
        ("POLL/S", false),
        ("OWN%", false),
        ("PEER%", false),
        ("MISS%", false),
        ("SPIN%", false),
        ("GAP50US", false),
        ("GAP99US", false),
        ("WAKE50US", false),
        ("CPU%", false),
        ("WAIT%", false),
        ("DROP", false),
    ]);
    let rate = |count: u64| format!("{:.0}", count as f64 / interval.seconds);
    for queue in &interval.queues {
        let now = &queue.interval;
        let mut name = queue.vm.clone();
        if queue.ended {
            name.push_str(" (ended)");
        }
        table.row(vec![
            name,
            or_dash(queue.tap.as_ref()),
            queue.fd.to_string(),
            queue.direction.to_owned(),
            queue.busyloop_timeout_us.to_string(),
            rate(now.packets),
            or_dash(now.kicks.map(rate)),
            or_dash(now.interrupts.map(rate)),
            rate(now.runs),
            or_dash(now.batch.and_then(|b| b.p50)),
            or_dash(now.polls.map(rate)),
            share(now, now.poll_own_hits),
            share(now, now.poll_peer_hits),
            share(now, now.poll_misses),
            or_dash(
                now.spin_ns
                    .map(|ns| format!("{:.1}", ns as f64 / 1e7 / interval.seconds)),
            ),
            microseconds(now.gap_us.and_then(|q| q.p50)),
            microseconds(now.gap_us.and_then(|q| q.p99)),
            microseconds(now.wake_us.and_then(|q| q.p50)),
            or_dash(queue.worker_cpu_percent.map(|p| format!("{p:.1}"))),
            or_dash(queue.worker_wait_percent.map(|p| format!("{p:.1}"))),
            or_dash(queue.tap_dropped),
        ]);
    }
    table
}

fn microseconds(value: Option<f64>) -> String {
    or_dash(value.map(|us| format!("{us:.0}")))
}

/// Share of the polls, in percent.
fn share(counters: &Counters, part: Option<u64>) -> String {
    match (counters.polls, part) {
        (Some(all), Some(part)) if all > 0 => {
            format!("{:.0}", part as f64 * 100.0 / all as f64)
        }
        _ => "–".to_owned(),
    }
}
