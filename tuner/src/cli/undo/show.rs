//! What `undo` prints.

use std::io::Write;

use anyhow::Context;
use serde::Serialize;
use tuner_common::module::{FOLLOW_POLL_PEER, FOLLOW_TX_BATCHED};

use crate::cli::turning::words;
use crate::cli::{Output, write_json};
use crate::inventory::device::direction_name;
use crate::knob::module::Knob;
use crate::knob::undo::{Outcome, Undone};

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    dry_run: bool,
    knobs: &'a [Row],
}

/// One knob.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    vm: String,
    pid: u32,
    fd: u32,
    tap: Option<String>,
    direction: Option<&'static str>,
    knob: &'static str,
    outcome: &'static str,
    /// Null for what is gone or was not looked at.
    before: Option<Value>,
    original: Value,
    backend: Option<&'static str>,
    stopped_us: Option<f64>,
    thread: Option<i32>,
    reason: Option<String>,
    #[serde(skip)]
    unable: bool,
    /// What there is to say of it.
    #[serde(skip)]
    said: String,
}

/// A value of a knob, as it is given on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Value {
    Number(u32),
    Switch(bool),
    Word(&'static str),
}

fn value(knob: Knob, raw: u32) -> Value {
    match (knob, raw) {
        (Knob::TxBatched, FOLLOW_TX_BATCHED) | (Knob::PollPeer, FOLLOW_POLL_PEER) => {
            Value::Word("default")
        }
        (Knob::PollPeer, choice) => Value::Switch(choice != 0),
        (_, number) => Value::Number(number),
    }
}

impl Row {
    /// What became of a knob, or in a dry run would.
    pub(super) fn new(undone: &Undone, dry_run: bool) -> Self {
        let entry = &undone.entry;
        let knob = entry.key.knob;
        let original = words(knob, entry.original);
        let (is, was) = if dry_run {
            ("would be", "would be")
        } else {
            ("is", "was")
        };
        let mut reason = None;
        let (outcome, before, said) = match &undone.outcome {
            Outcome::Restored { before } => {
                let verb = if dry_run { "would go" } else { "went" };
                let said = format!("{verb} back from {} to {original}", words(knob, *before));
                ("restored", Some(*before), said)
            }
            Outcome::Already => {
                let said = format!("has {original} already, as before");
                ("already", Some(entry.original), said)
            }
            Outcome::Dropped(gone) => {
                reason = Some(gone.to_string());
                ("dropped", None, format!("{is} forgotten: {gone}"))
            }
            Outcome::Left { now } => {
                let why = format!(
                    "vhost-tuner did not set it to {}; --force restores {original}",
                    words(knob, *now)
                );
                let said = format!("{was} left alone: {why}");
                reason = Some(why);
                ("left", Some(*now), said)
            }
            Outcome::Failed(failure) => {
                reason = Some(failure.why.clone());
                ("failed", None, format!("not restored: {}", failure.why))
            }
        };
        let stop = undone.turned.and_then(|turned| turned.stop);
        Self {
            vm: entry.vm.clone(),
            pid: entry.key.pid,
            fd: entry.key.fd,
            tap: entry.tap.clone(),
            direction: knob.direction().map(direction_name),
            knob: match knob {
                Knob::Busyloop { .. } => "busyloop_timeout",
                Knob::TxBatched => "tx_batched",
                Knob::PollPeer => "poll_peer",
            },
            outcome,
            before: before.map(|before| value(knob, before)),
            original: value(knob, entry.original),
            backend: undone.turned.map(|turned| turned.backend.as_str()),
            stopped_us: stop.map(|stop| stop.ns as f64 / 1000.0),
            thread: stop.map(|stop| stop.tid),
            reason,
            unable: matches!(&undone.outcome, Outcome::Failed(failure) if failure.unable),
            said,
        }
    }

    /// What is to be complained about, and whether this system cannot do it.
    pub(super) fn complaint(&self) -> Option<(String, bool)> {
        let failed = matches!(self.outcome, "left" | "failed");
        failed.then(|| (self.line(), self.unable))
    }

    fn line(&self) -> String {
        let tap = self.tap.as_deref().unwrap_or("no tap");
        let direction = self.direction.map(|word| format!(" {word}"));
        let name = match self.knob {
            "busyloop_timeout" => "busyloop",
            knob => knob,
        };
        let mut line = format!(
            "{} {}:{} {tap}{}: {name} {}",
            self.vm,
            self.pid,
            self.fd,
            direction.unwrap_or_default(),
            self.said,
        );
        if let (Some(us), Some(tid)) = (self.stopped_us, self.thread) {
            line.push_str(&format!(" (thread {tid} stood still for {us:.0} µs)"));
        }
        line
    }
}

/// Writes what was done, or would be. What is complained about goes to standard
/// error elsewhere.
pub(super) fn show(output: Output, dry_run: bool, rows: &[Row]) -> anyhow::Result<()> {
    if output.is_json() {
        let document = Document {
            schema: 1,
            dry_run,
            knobs: rows,
        };
        return write_json(&document, output.json);
    }
    let mut out = std::io::stdout().lock();
    for row in rows.iter().filter(|row| row.complaint().is_none()) {
        writeln!(out, "{}", row.line())?;
    }
    out.flush().context("standard output")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::journal::{Entry, Key};
    use crate::knob::undo::{Failure, Gone};

    fn undone(knob: Knob, original: u32, outcome: Outcome) -> Undone {
        Undone {
            entry: Entry {
                key: Key {
                    boot: "b".to_owned(),
                    pid: 42,
                    start_time: 1,
                    fd: 7,
                    net: 1,
                    knob,
                },
                original,
                wanted: 8,
                previous: None,
                vm: "web".to_owned(),
                tap: Some("tap0".to_owned()),
            },
            outcome,
            turned: None,
        }
    }

    const RX: Knob = Knob::Busyloop { direction: 0 };

    fn failed() -> Outcome {
        Outcome::Failed(Failure {
            why: "not allowed".to_owned(),
            unable: true,
        })
    }

    fn line(knob: Knob, original: u32, outcome: Outcome, dry_run: bool) -> String {
        Row::new(&undone(knob, original, outcome), dry_run).line()
    }

    #[test]
    fn a_line_says_what_became_of_a_knob() {
        let restored = || Outcome::Restored { before: 50 };
        assert_eq!(
            line(RX, 0, restored(), false),
            "web 42:7 tap0 rx: busyloop went back from 50 µs to 0 µs"
        );
        assert_eq!(
            line(Knob::TxBatched, 0, Outcome::Restored { before: 8 }, true),
            "web 42:7 tap0 tx: tx_batched would go back from 8 to the module's parameter"
        );
        assert_eq!(
            line(Knob::PollPeer, 1, Outcome::Already, false),
            "web 42:7 tap0: poll_peer has on already, as before"
        );
        assert_eq!(
            line(RX, 0, Outcome::Dropped(Gone::Ended), false),
            "web 42:7 tap0 rx: busyloop is forgotten: its process has ended"
        );
        assert_eq!(
            line(RX, 0, Outcome::Left { now: 70 }, false),
            "web 42:7 tap0 rx: busyloop was left alone: vhost-tuner did not set it to 70 µs; \
             --force restores 0 µs"
        );
        assert_eq!(
            line(RX, 0, failed(), false),
            "web 42:7 tap0 rx: busyloop not restored: not allowed"
        );
    }

    #[test]
    fn only_what_was_not_restored_is_complained_about() {
        let complaint = |outcome| Row::new(&undone(RX, 0, outcome), false).complaint();
        for fine in [
            Outcome::Restored { before: 50 },
            Outcome::Already,
            Outcome::Dropped(Gone::Rebooted),
        ] {
            assert_eq!(complaint(fine), None);
        }
        let (_, unable) = complaint(Outcome::Left { now: 70 }).unwrap();
        assert!(!unable);
        let (said, unable) = complaint(failed()).unwrap();
        assert!(unable && said.contains("not allowed"), "{said}");
    }

    #[test]
    fn json_has_values_as_the_command_line_takes_them() {
        let row = |knob, original, outcome| {
            serde_json::to_value(Row::new(&undone(knob, original, outcome), false)).unwrap()
        };
        let cap = row(Knob::TxBatched, 0, Outcome::Restored { before: 8 });
        assert_eq!(
            (&cap["before"], &cap["original"]),
            (&8.into(), &"default".into())
        );
        assert_eq!(cap["outcome"], "restored");
        assert_eq!(cap["direction"], "tx");
        let peer = row(Knob::PollPeer, 2, Outcome::Left { now: 0 });
        assert_eq!(
            (&peer["before"], &peer["original"]),
            (&false.into(), &"default".into())
        );
        assert!(peer["reason"].as_str().unwrap().contains("--force"));
        let timeout = row(RX, 10, Outcome::Dropped(Gone::NoModule));
        assert_eq!(timeout["knob"], "busyloop_timeout");
        assert!(timeout["before"].is_null());
        assert_eq!(timeout["original"], 10);
        assert!(timeout.get("unable").is_none() && timeout.get("said").is_none());
    }
}
