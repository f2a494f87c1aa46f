//! Has the kernel trace who stops and who goes on, through tracefs.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use super::stops::{DETACH, ENTRY, INTERRUPT, RETURN, Stops, Threads};

const TRACEFS: &str = "/sys/kernel/tracing";
const INSTANCE: &str = "/sys/kernel/tracing/instances/knobs";
/// Of our probes in tracefs.
const GROUP: &str = "knobs";
/// Threads that may stand still at a time: what sleeps within a function that
/// is probed at its return is kept track of one by one.
const MOST: u32 = 256;
/// How long a thread that was let go may take to run, on a processor that it
/// has to wait for.
const LIMIT: Duration = Duration::from_secs(30);

/// Probes at both ends of `ptrace_stop`; dropped, they are taken away.
pub(super) struct Tracing;

impl Tracing {
    /// Starts it.
    pub(super) fn start() -> Result<Self> {
        let symbols = fs::read_to_string("/proc/kallsyms").context("read /proc/kallsyms")?;
        let function =
            stop_function(&symbols).context("this kernel has no function ptrace_stop to probe")?;
        let tracing = Self;
        append(&format!("p:{GROUP}/{ENTRY} {function}\n"))?;
        append(&format!("r{MOST}:{GROUP}/{RETURN} {function}\n"))?;
        fs::create_dir_all(INSTANCE).with_context(|| format!("create {INSTANCE}"))?;
        write("trace_clock", "mono")?;
        write(
            "events/syscalls/sys_enter_ptrace/filter",
            &format!("request == {INTERRUPT} || request == {DETACH}"),
        )?;
        write("events/syscalls/sys_enter_ptrace/enable", "1")?;
        write(&format!("events/{GROUP}/enable"), "1")?;
        Ok(tracing)
    }

    /// Forgets what was so far.
    pub(super) fn clear(&self) -> Result<()> {
        write("trace", "")
    }

    /// What these threads did since then, once all of them go on.
    pub(super) fn stops(&self, threads: &Threads) -> Result<Stops> {
        let limit = Instant::now() + LIMIT;
        loop {
            let trace = Path::new(INSTANCE).join("trace");
            let text = fs::read_to_string(&trace).context("read the kernel's trace")?;
            if let Some(stops) = Stops::read(&text, threads)? {
                let profile = Path::new(TRACEFS).join("kprobe_profile");
                let profile = fs::read_to_string(profile).context("read kprobe_profile")?;
                ensure!(none_missed(&profile), "the kernel missed stops: {profile}");
                return Ok(stops);
            }
            ensure!(
                Instant::now() < limit,
                "a thread of the target still stands still, {} s after it was let go",
                LIMIT.as_secs()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        // What was not made cannot be removed.
        let _ = fs::remove_dir(INSTANCE);
        for name in [ENTRY, RETURN] {
            let _ = append(&format!("-:{GROUP}/{name}\n"));
        }
    }
}

/// The function in which a thread waits. Where the compiler has split it, its
/// first part only looks whether there is anything to wait for, and may have
/// gone into the callers.
fn stop_function(symbols: &str) -> Option<&str> {
    let names = symbols.lines().filter_map(|line| {
        let name = line.split_whitespace().nth(2)?;
        let rest = name.strip_prefix("ptrace_stop")?;
        let ours = rest.is_empty() || (rest.starts_with('.') && !rest.ends_with(".cold"));
        ours.then_some(name)
    });
    names.max_by_key(|name| name.contains(".part."))
}

/// In each line: name, hits, misses.
fn none_missed(profile: &str) -> bool {
    let misses = |line: &str| line.split_whitespace().nth(2).map(str::to_owned);
    profile
        .lines()
        .all(|line| misses(line).as_deref() == Some("0"))
}

fn append(text: &str) -> Result<()> {
    let path = Path::new(TRACEFS).join("kprobe_events");
    OpenOptions::new()
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("write `{}` to {}", text.trim_end(), path.display()))
}

fn write(file: &str, text: &str) -> Result<()> {
    let path = Path::new(INSTANCE).join(file);
    fs::write(&path, text).with_context(|| format!("write `{text}` to {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_that_waits_is_probed() {
        let of = |names: &[&str]| {
            let lines: Vec<String> = names
                .iter()
                .map(|name| format!("ffffffffbc0b6960 t {name}\n"))
                .collect();
            stop_function(&lines.concat()).map(str::to_owned)
        };
        // As on Linux 6.12 and on 6.1.
        let is = |names: &[&str], wanted: &str| assert_eq!(of(names).as_deref(), Some(wanted));
        is(&["__ptrace_unlink", "ptrace_stop"], "ptrace_stop");
        is(&["ptrace_stop.part.0", "do"], "ptrace_stop.part.0");
        is(&["ptrace_stop.part.0", "ptrace_stop"], "ptrace_stop.part.0");
        is(
            &["ptrace_stop.isra.0", "ptrace_stop.cold"],
            "ptrace_stop.isra.0",
        );
        assert_eq!(of(&["ptrace_stopped", "__pfx_ptrace_stop"]), None);
    }

    #[test]
    fn a_miss_is_noticed() {
        let profile = |misses| format!("  stop  53  0\n  go  53  {misses}\n");
        assert!(none_missed(&profile(0)));
        assert!(!none_missed(&profile(1)));
    }
}
