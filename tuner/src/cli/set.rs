//! `vhost-tuner set`.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use serde::Serialize;

use super::{Failure, Outcome, Output, write_json};
use crate::inspect::Kernel;
use crate::inventory::device::direction_name;
use crate::inventory::{Device, Inventory, Target};
use crate::knob::busyloop::LONGEST_US;
use crate::knob::inject::{self, InjectError};
use crate::knob::{self, Change, Report, SetError};
use crate::probe::DeviceLister;

/// Options of `set`.
#[derive(Debug, Args)]
#[group(id = "what", required = true, multiple = true, args = ["busyloop_rx", "busyloop_tx"])]
pub(super) struct Options {
    /// A VM's name, a pid, a tap or pid:fd.
    target: String,
    /// Busyloop timeout of the rings the guest receives on, in µs.
    #[arg(long, value_name = "US", value_parser = timeout())]
    busyloop_rx: Option<u32>,
    /// Busyloop timeout of the rings the guest sends on, in µs.
    #[arg(long, value_name = "US", value_parser = timeout())]
    busyloop_tx: Option<u32>,
    /// Say what would be changed and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: Output,
}

fn timeout() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(0..=i64::from(LONGEST_US))
}

#[derive(Serialize)]
struct Document {
    schema: u32,
    dry_run: bool,
    changes: Vec<Changed>,
}

#[derive(Serialize)]
struct Changed {
    vm: String,
    pid: u32,
    fd: u32,
    tap: Option<String>,
    direction: &'static str,
    backend: &'static str,
    before_us: u32,
    after_us: u32,
    /// How long a thread of the owner stood still for this device.
    stopped_us: Option<f64>,
    thread: Option<i32>,
}

/// Sets what is asked on every device of the target.
pub(super) fn run(options: Options) -> Outcome {
    let kernel = Kernel::inspect();
    let mut lister = DeviceLister::new(&kernel)
        .map_err(|why| Failure::Unable(anyhow!(why).context("devices cannot be looked up")))?;
    let inventory = Inventory::from_records(&lister.list()?);
    let devices = Target(options.target.clone()).resolve(&inventory)?;
    let change = Change {
        rx: options.busyloop_rx,
        tx: options.busyloop_tx,
    };
    // From here on a signal must not end this program: a thread of the target
    // may be running our call.
    let stop = super::signals::deferred()?;
    let mut changes = Vec::new();
    let mut failure = None;
    for device in devices {
        if stop.load(Ordering::Relaxed) {
            failure = Some(Failure::Failed(anyhow!(
                "interrupted; devices that are not listed were left alone"
            )));
            break;
        }
        if options.dry_run {
            changes.extend(planned(device, change));
            continue;
        }
        match knob::set(device, change, &mut lister) {
            Ok(report) => changes.extend(done(device, &report)),
            Err(why) => {
                failure = Some(because(why));
                break;
            }
        }
    }
    let shown = show(&options, changes);
    // A thread that could not be put back yet must not be left behind.
    while !inject::wait_until_idle(Duration::from_secs(10)) {
        log::warn!("waiting for a call inside the target to return; do not kill this program");
    }
    match failure {
        Some(why) => Err(why),
        None => Ok(shown?),
    }
}

fn because(why: SetError) -> Failure {
    match why {
        SetError::Inject {
            why: InjectError::Unsupported,
            ..
        } => Failure::Unable(why.into()),
        why => Failure::Failed(why.into()),
    }
}

fn planned(device: &Device, change: Change) -> Vec<Changed> {
    [0, 1]
        .into_iter()
        .filter_map(|direction| {
            let before = device.rings[direction as usize].ring.timeout;
            Some(row(device, direction, before, change.of(direction)?))
        })
        .collect()
}

fn done(device: &Device, report: &Report) -> Vec<Changed> {
    report
        .rings
        .iter()
        .map(|ring| Changed {
            stopped_us: Some(report.stopped_ns as f64 / 1000.0),
            thread: Some(report.tid),
            ..row(device, ring.direction, ring.before, ring.after)
        })
        .collect()
}

fn row(device: &Device, direction: u32, before_us: u32, after_us: u32) -> Changed {
    Changed {
        vm: device.vm.name.clone(),
        pid: device.pid,
        fd: device.fd,
        tap: device.tap.clone(),
        direction: direction_name(direction),
        backend: "inject",
        before_us,
        after_us,
        stopped_us: None,
        thread: None,
    }
}

fn show(options: &Options, changes: Vec<Changed>) -> anyhow::Result<()> {
    if options.output.is_json() {
        let document = Document {
            schema: 1,
            dry_run: options.dry_run,
            changes,
        };
        return write_json(&document, options.output.json);
    }
    let mut out = std::io::stdout().lock();
    for change in &changes {
        let tap = change.tap.as_deref().unwrap_or("no tap");
        let verb = if options.dry_run { "would go" } else { "went" };
        write!(
            out,
            "{} {}:{} {tap} {}: busyloop {verb} from {} to {} µs",
            change.vm, change.pid, change.fd, change.direction, change.before_us, change.after_us,
        )?;
        match (change.stopped_us, change.thread) {
            (Some(us), Some(tid)) => writeln!(out, " (thread {tid} stood still for {us:.0} µs)")?,
            _ => writeln!(out)?,
        }
    }
    out.flush().context("standard output")
}
