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
use crate::knob::module::Knob;
use crate::knob::turn::Turned;

#[derive(Serialize)]
struct Document {
    schema: u32,
    dry_run: bool,
    #[serde(flatten)]
    shown: Shown,
}

/// What was done and what was not.
#[derive(Debug, Default, Serialize)]
pub(super) struct Shown {
    pub(super) changes: Vec<Changed>,
    pub(super) failures: Vec<Failed>,
}

/// A device that was not set.
#[derive(Debug, Serialize)]
pub(super) struct Failed {
    pub(super) vm: String,
    pub(super) pid: u32,
    pub(super) fd: u32,
    pub(super) tap: Option<String>,
    pub(super) reason: String,
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

/// What was set on a device, or would be.
pub(super) fn changes(device: &Device, turned: &Turned) -> Vec<Changed> {
    let backend = turned.backend.as_str();
    let (before, after) = (&turned.before, &turned.after);
    let row = |knob| match knob {
        Knob::Busyloop { direction } => {
            let ring = direction as usize & 1;
            let (before, after) = (before.busyloop[ring], after.busyloop[ring]);
            timeout(device, backend, direction, before, after)
        }
        Knob::TxBatched => {
            let value = |knobs: &Knobs| Value::Number(knobs.tx_batched_now);
            let follows = |knobs: &Knobs| Some(knobs.tx_batched == FOLLOW_TX_BATCHED);
            Changed {
                direction: Some(direction_name(TX)),
                before_follows: follows(before),
                after_follows: follows(after),
                ..blank(device, backend, "tx_batched", value(before), value(after))
            }
        }
        Knob::PollPeer => {
            let value = |knobs: &Knobs| Value::Switch(knobs.poll_peer_now != 0);
            let follows = |knobs: &Knobs| Some(knobs.poll_peer == FOLLOW_POLL_PEER);
            Changed {
                before_follows: follows(before),
                after_follows: follows(after),
                ..blank(device, backend, "poll_peer", value(before), value(after))
            }
        }
    };
    let rows = turned.change.knobs().into_iter().map(row);
    let stop = turned.stop;
    rows.map(|row| Changed {
        stopped_us: stop.map(|stop| stop.ns as f64 / 1000.0),
        thread: stop.map(|stop| stop.tid),
        ..row
    })
    .collect()
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
pub(super) fn show(output: Output, dry_run: bool, shown: Shown) -> anyhow::Result<()> {
    if output.is_json() {
        let document = Document {
            schema: 1,
            dry_run,
            shown,
        };
        return write_json(&document, output.json);
    }
    let mut out = std::io::stdout().lock();
    for change in &shown.changes {
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
    use crate::knob::backend::Backend;
    use crate::knob::busyloop::Stop;
    use crate::knob::module::{Change, Presence, Setting};

    fn turned() -> Turned {
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
        let change = Change {
            busyloop: crate::knob::Change {
                rx: Some(50),
                tx: None,
            },
            tx_batched: Some(Setting::Own(8)),
            poll_peer: Some(Setting::Follow),
        };
        Turned {
            backend: Backend::Module(Presence::Replaced),
            change,
            before,
            after,
            stop: None,
        }
    }

    fn rows() -> Vec<Changed> {
        changes(&sample(1, 42, 7, "web", "tap0"), &turned())
    }

    #[test]
    fn a_thread_that_stood_still_is_named_with_each_ring() {
        let turned = Turned {
            backend: Backend::Inject,
            change: Change {
                busyloop: crate::knob::Change {
                    rx: Some(50),
                    tx: Some(100),
                },
                ..Change::default()
            },
            stop: Some(Stop {
                ns: 12_500,
                tid: 43,
            }),
            ..turned()
        };
        let rows = changes(&sample(1, 42, 7, "web", "tap0"), &turned);
        let said: Vec<_> = rows.iter().map(|row| line(row, false)).collect();
        assert_eq!(said.len(), 2);
        for line in said {
            assert!(
                line.ends_with("(thread 43 stood still for 12 µs)"),
                "{line}"
            );
        }
        assert_eq!(rows[0].backend, "inject");
        assert_eq!(rows[0].stopped_us, Some(12.5));
    }

    #[test]
    fn a_failure_has_its_device_and_its_reason() {
        let shown = Shown {
            changes: Vec::new(),
            failures: vec![Failed {
                vm: "web".to_owned(),
                pid: 42,
                fd: 7,
                tap: None,
                reason: "it ended".to_owned(),
            }],
        };
        let document = Document {
            schema: 1,
            dry_run: false,
            shown,
        };
        assert_eq!(
            serde_json::to_value(&document).unwrap(),
            serde_json::json!({
                "schema": 1,
                "dry_run": false,
                "changes": [],
                "failures": [
                    {"vm": "web", "pid": 42, "fd": 7, "tap": null, "reason": "it ended"}
                ],
            })
        );
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
