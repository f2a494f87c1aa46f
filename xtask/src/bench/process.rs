//! Processes that make traffic, and the lab driver among them.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::command;

/// How long anything may take to get going under emulation.
pub(super) const LIMIT: Duration = Duration::from_secs(90);

/// One of them; dropped, it is ended.
pub(super) struct Process {
    child: Child,
    name: String,
    /// What the lab driver prints; of others nothing is read.
    lines: Option<mpsc::Receiver<String>>,
}

impl Process {
    /// Starts it. Its standard input stays open, what it prints is dropped.
    pub(super) fn start(command: &mut Command) -> Result<Self> {
        Self::with_output(command, Stdio::null())
    }

    fn with_output(command: &mut Command, output: Stdio) -> Result<Self> {
        let name = command::shown(command);
        let child = command
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start `{name}`"))?;
        Ok(Self {
            child,
            name,
            lines: None,
        })
    }

    /// Starts the lab driver, and gives what it says when it is ready.
    pub(super) fn lab_driver(command: &mut Command) -> Result<(Self, Value)> {
        let mut process = Self::with_output(command, Stdio::piped())?;
        let stdout = process.child.stdout.take();
        let stdout = stdout.context("no standard output")?;
        let (tell, told) = mpsc::channel();
        // Reads to the end, or the driver would wait for its reader.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        process.lines = Some(told);
        let ready = process.event("ready")?;
        Ok((process, ready))
    }

    /// What the lab driver says next, which has to be this.
    pub(super) fn event(&mut self, event: &str) -> Result<Value> {
        let name = &self.name;
        let lines = self.lines.as_ref().context("nobody reads its output")?;
        let line = lines
            .recv_timeout(LIMIT)
            .with_context(|| format!("`{name}` did not say `{event}`"))?;
        let said: Value =
            serde_json::from_str(&line).with_context(|| format!("`{name}` said {line}"))?;
        ensure!(
            said["event"] == event,
            "`{name}` said {said} instead of `{event}`"
        );
        Ok(said)
    }

    /// Its number.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to its standard input.
    pub(super) fn say(&mut self, line: &str) -> Result<()> {
        let stdin = self.child.stdin.as_mut().context("no standard input")?;
        writeln!(stdin, "{line}").with_context(|| format!("write to `{}`", self.name))
    }

    /// That it is still there.
    pub(super) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait().context("wait")? {
            bail!("`{}` ended too early: {status}", self.name);
        }
        Ok(())
    }

    /// Waits for something of its doing.
    pub(super) fn wait(&mut self, what: &str, mut done: impl FnMut() -> bool) -> Result<()> {
        let limit = Instant::now() + LIMIT;
        while !done() {
            self.check().with_context(|| format!("until {what}"))?;
            ensure!(
                Instant::now() < limit,
                "`{}` takes too long until {what}",
                self.name
            );
            thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        command
    }

    #[test]
    fn a_process_that_ended_is_named() {
        let mut process = Process::start(&mut shell("exit 3")).unwrap();
        let error = process.wait("pigs fly", || false).unwrap_err();
        let text = format!("{error:#}");
        assert!(
            text.contains("pigs fly") && text.contains("exit 3"),
            "{text}"
        );
    }

    #[test]
    fn a_driver_that_is_not_ready_is_quoted() {
        let mut command = shell(r#"echo '{"event":"ready","pid":1}'; read x"#);
        let (mut process, ready) = Process::lab_driver(&mut command).unwrap();
        assert_eq!(ready["pid"], 1);
        process.check().unwrap();
        for said in ["no device", r#"{"event":"result"}"#] {
            let mut command = shell(&format!("echo '{said}'"));
            let error = Process::lab_driver(&mut command).map(|_| ()).unwrap_err();
            assert!(format!("{error:#}").contains(said), "{error:#}");
        }
    }
}
