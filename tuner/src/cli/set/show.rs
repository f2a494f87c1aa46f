//! What `set` prints.

use std::fmt;
use std::io::Write;

use anyhow::Context;
use serde::Serialize;
use tuner_common::module::{FOLLOW_POLL_PEER, FOLLOW_TX_BATCHED, Knobs};
use tuner_common::queue::TX;

use crate::cli::{Output, write_json};
use crate::inventory::Device;
use crate::inventory::device::direction_name;
use crate::knob::module::{self, Knob};
use crate::knob::{self, Report};

#[derive(Serialize)]
struct Document {
    schema: u32,
    dry_run: bool,
    changes: Vec<Changed>,
}

/// One knob of one device.
#[derive(Debug, Serialize)]
pub(super) struct Changed {
    vm: String,
    pid: u32,
    fd: u32,
    tap: Option<String>,
    /// Null for what belongs to both.
    direction: Option<&'static str>,
    backend: &'static str,
    knob: &'static str,
    before: Value,
    after: Value,
    /// Whether the value is the module's parameter; null for a knob that has
    /// none.
    before_follows: Option<bool>,
    after_follows: Option<bool>,
    /// The same as `before` and `after` for timeouts.
    before_us: Option<u32>,
    after_us: Option<u32>,
    /// How long a thread of the owner stood still for this device.
    stopped_us: Option<f64>,
    thread: Option<i32>,
}

/// What a knob has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Value {
    Number(u32),
    Switch(bool),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Switch(true) => f.write_str("on"),
            Self::Switch(false) => f.write_str("off"),
        }
    }
}

/// What injection would set.
pub(super) fn planned(device: &Device, change: knob::Change) -> Vec<Changed> {
    [0, 1]
        .into_iter()
        .filter_map(|direction| {
            let before = device.rings[direction as usize].ring.timeout;
            let after = change.of(direction)?;
            Some(timeout(device, "inject", direction, before, after))
        })
        .collect()
}

/// What injection has set.
pub(super) fn injected(device: &Device, report: &Report) -> Vec<Changed> {
    report
        .rings
        .iter()
        .map(|ring| Changed {
            stopped_us: Some(report.stopped_ns as f64 / 1000.0),
            thread: Some(report.tid),
            ..timeout(device, "inject", ring.direction, ring.before, ring.after)
        })
        .collect()
}

/// What the module has set, or would.
pub(super) fn by_module(
    device: &Device,
    change: &module::Change,
    report: &module::Report,
) -> Vec<Changed> {
    let (before, after) = (&report.before, &report.after);
    let row = |knob| match knob {
        Knob::Busyloop { direction } => {
            let ring = direction as usize & 1;
            let (before, after) = (before.busyloop[ring], after.busyloop[ring]);
            timeout(device, "module", direction, before, after)
        }
        Knob::TxBatched => {
            let value = |knobs: &Knobs| Value::Number(knobs.tx_batched_now);
            let follows = |knobs: &Knobs| Some(knobs.tx_batched == FOLLOW_TX_BATCHED);
            Changed {
                direction: Some(direction_name(TX)),
                before_follows: follows(before),
                after_follows: follows(after),
                ..blank(device, "module", "tx_batched", value(before), value(after))
            }
        }
        Knob::PollPeer => {
            let value = |knobs: &Knobs| Value::Switch(knobs.poll_peer_now != 0);
            let follows = |knobs: &Knobs| Some(knobs.poll_peer == FOLLOW_POLL_PEER);
            Changed {
                before_follows: follows(before),
                after_follows: follows(after),
                ..blank(device, "module", "poll_peer", value(before), value(after))
            }
        }
    };
    change.knobs().into_iter().map(row).collect()
}

fn timeout(
    device: &Device,
    backend: &'static str,
    direction: u32,
    before: u32,
    after: u32,
) -> Changed {
    let (old, new) = (Value::Number(before), Value::Number(after));
    Changed {
        direction: Some(direction_name(direction)),
        before_us: Some(before),
        after_us: Some(after),
        ..blank(device, backend, "busyloop_timeout", old, new)
    }
}

fn blank(
    device: &Device,
    backend: &'static str,
    knob: &'static str,
    before: Value,
    after: Value,
) -> Changed {
    Changed {
        vm: device.vm.name.clone(),
        pid: device.pid,
        fd: device.fd,
        tap: device.tap.clone(),
        direction: None,
        backend,
        knob,
        before,
        after,
        before_follows: None,
        after_follows: None,
        before_us: None,
        after_us: None,
        stopped_us: None,
        thread: None,
    }
}

/// Writes what was set, or would be.
pub(super) fn show(output: Output, dry_run: bool, changes: Vec<Changed>) -> anyhow::Result<()> {
    if output.is_json() {
        let document = Document {
            schema: 1,
            dry_run,
            changes,
        };
        return write_json(&document, output.json);
    }
    let mut out = std::io::stdout().lock();
    for change in &changes {
        writeln!(out, "{}", line(change, dry_run))?;
    }
    out.flush().context("standard output")
}

fn line(change: &Changed, dry_run: bool) -> String {
    let tap = change.tap.as_deref().unwrap_or("no tap");
    let direction = change.direction.map(|word| format!(" {word}"));
    let (name, unit) = match change.knob {
        "busyloop_timeout" => ("busyloop", " µs"),
        knob => (knob, ""),
    };
    let verb = if dry_run { "would go" } else { "went" };
    let mut line = format!(
        "{} {}:{} {tap}{}: {name} {verb} from {} to {}{unit}",
        change.vm,
        change.pid,
        change.fd,
        direction.unwrap_or_default(),
        change.before,
        change.after,
    );
    if change.after_follows == Some(true) {
        line.push_str(" (the module's parameter)");
    }
    if let (Some(us), Some(tid)) = (change.stopped_us, change.thread) {
        line.push_str(&format!(" (thread {tid} stood still for {us:.0} µs)"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::device::tests::sample;
    use crate::knob::module::Setting;

    fn report() -> module::Report {
        let before = Knobs {
            busyloop: [0, 100],
            tx_batched: FOLLOW_TX_BATCHED,
            tx_batched_now: 64,
            poll_peer: 0,
            poll_peer_now: 0,
            ..Knobs::request()
        };
        let after = Knobs {
            busyloop: [50, 100],
            tx_batched: 8,
            tx_batched_now: 8,
            poll_peer: FOLLOW_POLL_PEER,
            poll_peer_now: 1,
            ..before
        };
        module::Report { before, after }
    }

    fn rows() -> Vec<Changed> {
        let change = module::Change {
            busyloop: knob::Change {
                rx: Some(50),
                tx: None,
            },
            tx_batched: Some(Setting::Own(8)),
            poll_peer: Some(Setting::Follow),
        };
        by_module(&sample(1, 42, 7, "web", "tap0"), &change, &report())
    }

    #[test]
    fn every_knob_that_was_asked_for_has_a_row() {
        let rows: Vec<_> = rows()
            .iter()
            .map(|row| serde_json::to_value(row).unwrap())
            .collect();
        assert_eq!(rows.len(), 3);
        assert!(rows.iter().all(|row| row["backend"] == "module"));
        assert!(rows.iter().all(|row| row["stopped_us"].is_null()));
        let [timeout, cap, peer] = &rows[..] else {
            unreachable!();
        };
        assert_eq!(timeout["knob"], "busyloop_timeout");
        assert_eq!(
            (&timeout["before_us"], &timeout["after_us"]),
            (&0.into(), &50.into())
        );
        assert_eq!(timeout["after"], 50);
        assert!(timeout["after_follows"].is_null());
        assert_eq!(
            (&cap["knob"], &cap["direction"]),
            (&"tx_batched".into(), &"tx".into())
        );
        assert_eq!((&cap["before"], &cap["after"]), (&64.into(), &8.into()));
        assert_eq!(cap["before_follows"], true);
        assert_eq!(cap["after_follows"], false);
        assert!(cap["after_us"].is_null());
        assert_eq!(
            (&peer["before"], &peer["after"]),
            (&false.into(), &true.into())
        );
        assert!(peer["direction"].is_null());
    }

    #[test]
    fn a_line_says_what_went_from_what_to_what() {
        let lines: Vec<_> = rows().iter().map(|row| line(row, false)).collect();
        assert_eq!(
            lines,
            [
                "web 42:7 tap0 rx: busyloop went from 0 to 50 µs",
                "web 42:7 tap0 tx: tx_batched went from 64 to 8",
                "web 42:7 tap0: poll_peer went from off to on (the module's parameter)",
            ]
        );
        assert!(line(&rows()[1], true).contains("would go from 64 to 8"));
    }
}
