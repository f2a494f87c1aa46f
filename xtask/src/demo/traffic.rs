//! The lab driver, echoing, watched through its JSON lines.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::{build::Programs, command};

const READY_LIMIT: Duration = Duration::from_secs(30);

/// How far the traffic had come when it said so.
#[derive(Clone, Copy, Debug)]
struct Mark {
    seconds: f64,
    round_trips: f64,
}

impl Mark {
    /// What a progress line says; none for any other line.
    fn read(event: &Value) -> Option<Self> {
        if event["event"] != "progress" {
            return None;
        }
        Some(Self {
            seconds: event["seconds"].as_f64()?,
            round_trips: event["round_trips"].as_f64()?,
        })
    }
}

/// Round trips a second in the last so many seconds.
fn rate(marks: &[Mark], last: f64) -> Option<f64> {
    let end = marks.last()?;
    let start = marks
        .iter()
        .rev()
        .find(|mark| end.seconds - mark.seconds >= last)?;
    Some((end.round_trips - start.round_trips) / (end.seconds - start.seconds))
}

/// Echo traffic at work; dropped, it is ended.
pub(super) struct Traffic {
    child: Child,
    stdin: ChildStdin,
    /// The process that owns the device.
    pub(super) pid: u64,
    /// The tap it is on.
    pub(super) tap: String,
    marks: Arc<Mutex<Vec<Mark>>>,
}

impl Traffic {
    /// Starts the driver with busy polling off, and the traffic.
    pub(super) fn start(programs: &Programs, seconds: u32) -> Result<Self> {
        let mut lab = Command::new(&programs.lab);
        lab.args(["run", "--mode", "echo", "--pairs", "1"])
            .args(["--busyloop-rx", "0", "--busyloop-tx", "0"])
            .args(["--wait-go", "--hold", "--report-ms", "250"])
            .args(["--seconds", &seconds.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = lab
            .spawn()
            .with_context(|| format!("cannot start `{}`", command::shown(&lab)))?;
        let stdin = child.stdin.take().context("no standard input")?;
        let stdout = child.stdout.take().context("no standard output")?;
        let marks = Arc::new(Mutex::new(Vec::new()));
        let (tell, told) = mpsc::channel();
        let mut traffic = Self {
            child,
            stdin,
            pid: 0,
            tap: String::new(),
            marks: Arc::clone(&marks),
        };
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let event: Value = serde_json::from_str(&line).unwrap_or_default();
                if let Some(mark) = Mark::read(&event) {
                    marks
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(mark);
                } else {
                    let _ = tell.send(event);
                }
            }
        });
        let ready = told
            .recv_timeout(READY_LIMIT)
            .context("the lab driver did not get ready")?;
        if ready["event"] != "ready" {
            bail!("the lab driver said {ready} instead of getting ready");
        }
        traffic.pid = ready["pid"].as_u64().context("no pid in `ready`")?;
        traffic.tap = ready["tap"].as_str().unwrap_or_default().to_owned();
        writeln!(traffic.stdin, "go").context("start the traffic")?;
        Ok(traffic)
    }

    /// Round trips a second in the last so many seconds.
    pub(super) fn rate(&self, last: f64) -> Option<f64> {
        rate(
            &self.marks.lock().unwrap_or_else(PoisonError::into_inner),
            last,
        )
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_of_the_last_seconds() {
        let read = |line: &str| Mark::read(&serde_json::from_str(line).unwrap());
        let marks: Vec<Mark> = [(0.0, 0), (1.0, 5000), (2.0, 6000), (3.0, 7000)]
            .map(|(seconds, trips)| {
                format!(r#"{{"event":"progress","seconds":{seconds},"round_trips":{trips}}}"#)
            })
            .iter()
            .filter_map(|line| read(line))
            .collect();
        assert_eq!(rate(&marks, 2.0), Some(1000.0));
        assert_eq!(rate(&marks, 4.0), None);
        assert_eq!(rate(&[], 1.0), None);
        assert!(read(r#"{"event":"ready","pid":1}"#).is_none());
    }
}
