//! `vhost-tuner simulate`.

use std::io::Write;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::table::{Table, or_dash};
use super::{Outcome, Output, write_json};
use crate::sim::day::{Day, Hour, run as run_day};
use crate::sim::{Comparison, POLICIES, Plan, Row, Sight, WORKLOADS, Workload, compare};

/// Options of `simulate`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Only these workloads.
    #[arg(long, value_delimiter = ',', value_parser = workload)]
    workload: Vec<Workload>,
    /// Only these policies.
    #[arg(long, value_delimiter = ',', value_parser = POLICIES)]
    policy: Vec<String>,
    /// Seconds to simulate.
    #[arg(long, default_value_t = 60.0, value_parser = seconds)]
    seconds: f64,
    /// Seconds between two looks of ours.
    #[arg(long, value_delimiter = ',', default_value = "0.1", value_parser = look)]
    look: Vec<f64>,
    /// Which gaps ours sees: until there is work for either vring, or for its own.
    #[arg(long, value_enum, default_value = "pair")]
    gaps: Gaps,
    /// Look at regular times only, also where ours asks for more.
    #[arg(long)]
    regular_looks: bool,
    /// Another number gives other traffic of the same sort.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Instead: hours of many VMs, look by look, for what shows in the long run.
    #[arg(long, value_name = "HOURS", value_parser = clap::value_parser!(u64).range(1..=1000))]
    day: Option<u64>,
    /// VMs of these hours.
    #[arg(long, default_value_t = 1000, requires = "day", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    vms: u64,
    /// Name the workloads and simulate nothing.
    #[arg(long)]
    list: bool,
    /// Show what ours decides, too.
    #[arg(long)]
    decisions: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Gaps {
    Pair,
    Own,
}

fn workload(name: &str) -> Result<Workload, String> {
    Workload::named(name).ok_or_else(|| {
        let names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
        format!("there are: {}", names.join(", "))
    })
}

fn seconds(text: &str) -> Result<f64, String> {
    within(text, 0.1, 86_400.0)
}

fn look(text: &str) -> Result<f64, String> {
    within(text, 0.01, 60.0)
}

fn within(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(format!("must lie between {least} and {most} seconds"))
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    workloads: &'a [Comparison],
}

#[derive(Serialize)]
struct Listed {
    schema: u32,
    workloads: Vec<Named>,
}

#[derive(Serialize)]
struct Named {
    workload: &'static str,
    what: &'static str,
    wake_us: u32,
}

/// Runs policies on workloads and shows what they cost.
pub(super) fn run(options: Options) -> Outcome {
    if options.list {
        return list(options.output);
    }
    if let Some(hours) = options.day {
        return day(&options, hours);
    }
    let workloads = if options.workload.is_empty() {
        WORKLOADS.to_vec()
    } else {
        options.workload.clone()
    };
    let plan = Plan {
        seconds: options.seconds,
        looks_s: options.look.clone(),
        sight: match options.gaps {
            Gaps::Pair => Sight::Pair,
            Gaps::Own => Sight::Own,
        },
        sooner: !options.regular_looks,
        seed: options.seed,
        policies: options.policy.clone(),
    };
    let mut all = Vec::new();
    for workload in &workloads {
        log::info!("{}: {}", workload.name, workload.what);
        let comparison = compare(workload, &plan)
            .map_err(|why| anyhow!(why).context("the policy's configuration cannot be"))?;
        if options.output.is_json() {
            all.push(comparison);
        } else {
            // Each as soon as it is there: all together take minutes.
            show(&comparison, options.decisions)?;
        }
    }
    if options.output.is_json() {
        let document = Document {
            schema: 1,
            workloads: &all,
        };
        write_json(&document, options.output.json)?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Hours {
    schema: u32,
    vms: u64,
    hours: Vec<Measured>,
}

/// An hour, and what this process had in memory at its end.
#[derive(Clone, Copy, Serialize)]
struct Measured {
    #[serde(flatten)]
    hour: Hour,
    resident_bytes: Option<u64>,
}

/// Hours of many VMs.
fn day(options: &Options, hours: u64) -> Outcome {
    let day = Day {
        vms: options.vms,
        hours,
        seed: options.seed,
    };
    let mut all = Vec::new();
    let mut shown = Ok(());
    let text = !options.output.is_json();
    run_day(&day, thread_cpu_ns, |hour| {
        let measured = Measured {
            hour: *hour,
            resident_bytes: resident_bytes(),
        };
        log::info!("hour {}", hour.hour);
        if text && shown.is_ok() {
            shown = show_hour(&measured);
        }
        all.push(measured);
    })
    .map_err(|why| anyhow!(why).context("the policy's configuration cannot be"))?;
    shown?;
    if !text {
        let document = Hours {
            schema: 1,
            vms: options.vms,
            hours: all,
        };
        write_json(&document, options.output.json)?;
    }
    Ok(())
}

/// CPU time of this thread; 0 where it cannot be told.
fn thread_cpu_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a timespec that the call may write to.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Pages of this process that are in memory.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes = line.split_ascii_whitespace().next()?;
    kilobytes.parse::<u64>().ok().map(|kb| kb * 1024)
}

fn show_hour(measured: &Measured) -> std::io::Result<()> {
    let Measured {
        hour,
        resident_bytes,
    } = measured;
    let resident = resident_bytes.map(|bytes| format!("{:.1}", bytes as f64 / 1048576.0));
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "hour {:2}: {} looks, {} pairs, {} changes, cost {:.3} of the best, {:.0} ns a look, {} MiB",
        hour.hour,
        hour.looks,
        hour.pairs,
        hour.changes,
        hour.cost_ratio,
        hour.look_cost_ns,
        or_dash(resident)
    )?;
    out.flush()
}

fn list(output: Output) -> Outcome {
    if output.is_json() {
        let named = |workload: &Workload| Named {
            workload: workload.name,
            what: workload.what,
            wake_us: workload.wake_us,
        };
        let document = Listed {
            schema: 1,
            workloads: WORKLOADS.iter().map(named).collect(),
        };
        write_json(&document, output.json)?;
        return Ok(());
    }
    let mut table = Table::new(&[("WORKLOAD", true), ("WAKE-US", false), ("WHAT", true)]);
    for workload in &WORKLOADS {
        table.row(vec![
            workload.name.to_owned(),
            workload.wake_us.to_string(),
            workload.what.to_owned(),
        ]);
    }
    table.write(&mut std::io::stdout().lock())?;
    Ok(())
}

fn show(comparison: &Comparison, decisions: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{}: {}. A wake-up is worth {} µs; {} s.",
        comparison.workload, comparison.what, comparison.wake_us, comparison.seconds
    )?;
    let mut table = Table::new(&[
        ("POLICY", true),
        ("COST", false),
        ("SPIN%", false),
        ("WAKE/S", false),
        ("WAIT50US", false),
        ("WAIT99US", false),
        ("CHANGES", false),
        ("LOOKS", false),
    ]);
    for row in &comparison.rows {
        table.row(cells(row));
    }
    table.write(&mut out)?;
    if decisions {
        for row in &comparison.rows {
            for (at_s, decision) in &row.result.decisions {
                writeln!(out, "{at_s:9.3} s  {decision}")?;
            }
        }
    }
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

fn cells(row: &Row) -> Vec<String> {
    let result = &row.result;
    let name = match (row.look_s, row.timeout_us) {
        (Some(look_s), _) => format!("{} ({look_s} s)", row.policy),
        (_, Some(timeout)) if row.policy == "best-fixed" => format!("{} ({timeout})", row.policy),
        _ => row.policy.clone(),
    };
    let ours = |count: u64| or_dash(row.look_s.map(|_| count));
    let wait = |us: Option<f64>| or_dash(us.map(|us| format!("{us:.1}")));
    vec![
        name,
        format!("{:.3}", row.cost_ratio),
        format!("{:.1}", result.spin_percent),
        format!("{:.0}", result.wakes_per_s),
        wait(result.wait_p50_us),
        wait(result.wait_p99_us),
        ours(result.changes),
        ours(result.looks),
    ]
}
