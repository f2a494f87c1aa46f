//! What a person sees of a long step: one moving line on a terminal, plain
//! lines anywhere else. All of it goes to standard error, so that standard
//! output carries results only.

use std::{
    collections::VecDeque,
    io::{self, BufRead as _, BufReader, IsTerminal as _, Write as _},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use crate::command;

/// Lines kept of a failed program.
const KEPT: usize = 40;

/// A step on its way.
pub(crate) struct Progress {
    name: String,
    started: Instant,
    terminal: bool,
}

impl Progress {
    /// Announces a step and why it is taken.
    pub(crate) fn start(name: &str, why: &str) -> Self {
        eprintln!("[{name}] {why}");
        Self {
            name: name.to_owned(),
            started: Instant::now(),
            terminal: io::stderr().is_terminal(),
        }
    }

    /// A line that stays.
    pub(crate) fn say(&self, line: &str) {
        self.clear();
        eprintln!("[{}] {line}", self.name);
    }

    /// The step is over.
    pub(crate) fn done(self, result: &str) {
        self.say(&format!("{result} ({})", seconds(self.started.elapsed())));
    }

    /// Runs a program, showing the last line it printed; a failure shows the
    /// last of them all.
    pub(crate) fn run(&self, command: &mut Command) -> Result<()> {
        let (reader, writer) = io::pipe().context("pipe")?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(writer.try_clone().context("pipe")?)
            .stderr(writer)
            .spawn()
            .with_context(|| format!("cannot start `{}`", command::shown(command)))?;
        // The command holds the writing end: left open, reading never ends.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut last = VecDeque::with_capacity(KEPT);
        for line in BufReader::new(reader).split(b'\n') {
            let line = line.context("read from a pipe")?;
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            self.show(&line);
            if last.len() == KEPT {
                last.pop_front();
            }
            last.push_back(line);
        }
        let status = child.wait().context("wait")?;
        self.clear();
        if !status.success() {
            let tail = Vec::from(last).join("\n    ");
            bail!("`{}`: {status}\n    {tail}", command::shown(command));
        }
        Ok(())
    }

    fn show(&self, line: &str) {
        // What a program rewrites with carriage returns ends with what it says now.
        let now = line.rsplit('\r').find(|part| !part.is_empty());
        if let (true, Some(now)) = (self.terminal, now) {
            let now: String = now.chars().filter(|c| !c.is_control()).take(60).collect();
            let elapsed = seconds(self.started.elapsed());
            eprint!("\r\x1b[K[{}] {elapsed}: {now}", self.name);
            let _ = io::stderr().flush();
        }
    }

    fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}

/// A duration as tables and messages show it.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_what_the_program_said() {
        let step = Progress::start("test", "because");
        let error = step
            .run(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 1"]))
            .unwrap_err()
            .to_string();
        assert!(error.contains("out") && error.contains("err"), "{error}");
    }
}
