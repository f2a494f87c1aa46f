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

/// How far the traffic had come when it last said so.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark {
    seconds: f64,
    round_trips: f64,
}

impl Mark {
    /// Round trips a second between two marks.
    pub(super) fn rate_to(self, later: Self) -> Option<f64> {
        let seconds = later.seconds - self.seconds;
        (seconds > 0.0).then(|| (later.round_trips - self.round_trips) / seconds)
    }

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

/// Echo traffic at work; dropped, it is ended.
pub(super) struct Traffic {
    child: Child,
    stdin: ChildStdin,
    /// The process that owns the device.
    pub(super) pid: u64,
    /// The tap it is on.
    pub(super) tap: String,
    last: Arc<Mutex<Mark>>,
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
        let last = Arc::new(Mutex::new(Mark::default()));
        let (tell, told) = mpsc::channel();
        let mut traffic = Self {
            child,
            stdin,
            pid: 0,
            tap: String::new(),
            last: Arc::clone(&last),
        };
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let event: Value = serde_json::from_str(&line).unwrap_or_default();
                if let Some(mark) = Mark::read(&event) {
                    *last.lock().unwrap_or_else(PoisonError::into_inner) = mark;
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

    /// The newest mark.
    pub(super) fn mark(&self) -> Mark {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn the_rate_is_between_two_progress_lines() {
        let read = |line: &str| Mark::read(&serde_json::from_str(line).unwrap());
        let first = read(r#"{"event":"progress","seconds":1.0,"round_trips":1000}"#).unwrap();
        let later = read(r#"{"event":"progress","seconds":3.0,"round_trips":5000}"#).unwrap();
        assert_eq!(first.rate_to(later), Some(2000.0));
        assert_eq!(first.rate_to(first), None);
        assert!(read(r#"{"event":"ready","pid":1}"#).is_none());
    }
}
