//! The two that measure vhost_net: ours, and a script that a user would write.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use super::memory::InMemory;
use crate::command;

const ATTACH_LIMIT: Duration = Duration::from_secs(60);
const DETACH_LIMIT: Duration = Duration::from_secs(30);

/// What a user writes today: packets and batches of every worker, how long its
/// runs take, once a second.
const SCRIPT: &str = "\
kprobe:vhost_get_vq_desc { @packets[pid] = count(); }
kprobe:vhost_add_used_and_signal_n { @batch = hist(arg3); }
kprobe:handle_tx { @start[tid] = nsecs; @runs = count(); }
kretprobe:handle_tx /@start[tid]/ { @us = hist((nsecs - @start[tid]) / 1000); delete(@start[tid]); }
interval:s:1 { print(@packets); print(@batch); print(@us); print(@runs); clear(@packets); clear(@batch); clear(@us); clear(@runs); }
";

/// Something that can be attached to vhost_net.
pub(super) struct Tool {
    program: InMemory,
    arguments: Vec<String>,
    /// The start of a line that is printed only once it measures.
    measuring: &'static str,
}

impl Tool {
    /// `vhost-tuner stat -i 1`.
    pub(super) fn ours(program: &Path) -> Result<Self> {
        Self::in_memory(program, &["stat", "-i", "1"], "")
    }

    /// bpftrace with the script.
    pub(super) fn bpftrace() -> Result<Self> {
        let program = command::find("bpftrace").context("bpftrace is missing")?;
        Self::in_memory(&program, &["-e", SCRIPT], "@")
    }

    fn in_memory(program: &Path, arguments: &[&str], measuring: &'static str) -> Result<Self> {
        Ok(Self {
            program: InMemory::copy(program)?,
            arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
            measuring,
        })
    }

    /// Starts it and waits until it measures.
    pub(super) fn attach(&self) -> Result<Attached> {
        let mut command = self.program.command();
        let mut child = command
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .with_context(|| format!("cannot start `{}`", command::shown(&command)))?;
        let stdout = child.stdout.take().context("no standard output")?;
        let attached = Attached { child };
        let (tell, told) = mpsc::channel();
        let measuring = self.measuring;
        // Reads to the end, or the program would wait for its reader.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if !line.is_empty() && line.starts_with(measuring) {
                    let _ = tell.send(());
                }
            }
        });
        match told.recv_timeout(ATTACH_LIMIT) {
            Ok(()) => Ok(attached),
            Err(_) => bail!("{} does not start measuring", self.program.path().display()),
        }
    }
}

/// A tool at work; dropped, it is ended.
pub(super) struct Attached {
    child: Child,
}

impl Attached {
    /// Ends it as a user does, with an interrupt.
    pub(super) fn detach(mut self) -> Result<()> {
        let pid = i32::try_from(self.child.id()).context("a process id out of range")?;
        // SAFETY: the child is not reaped yet, so the number is its own.
        unsafe { libc::kill(pid, libc::SIGINT) };
        let limit = Instant::now() + DETACH_LIMIT;
        while Instant::now() < limit {
            if self.child.try_wait().context("wait")?.is_some() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(50));
        }
        bail!("a measuring program does not end when interrupted")
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Nanoseconds that BPF programs other than those of `before` have run.
pub(super) fn bpf_time(before: &[u64]) -> Result<u64> {
    let programs = programs()?;
    Ok(programs
        .iter()
        .filter(|program| !before.contains(&program.id))
        .map(|program| program.run_time_ns)
        .sum())
}

/// Ids of the BPF programs that are loaded now.
pub(super) fn loaded() -> Result<Vec<u64>> {
    Ok(programs()?.iter().map(|program| program.id).collect())
}

struct Program {
    id: u64,
    run_time_ns: u64,
}

fn programs() -> Result<Vec<Program>> {
    let bpftool = command::find("bpftool").context("bpftool is missing")?;
    let text = command::output(Command::new(bpftool).args(["prog", "show", "-j"]))?;
    let list: serde_json::Value = serde_json::from_str(&text).context("parse bpftool's list")?;
    Ok(list
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            Some(Program {
                id: entry["id"].as_u64()?,
                run_time_ns: entry["run_time_ns"].as_u64().unwrap_or(0),
            })
        })
        .collect())
}
