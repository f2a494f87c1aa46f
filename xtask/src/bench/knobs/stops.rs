//! What the kernel's trace says about a target that was stopped.
//!
//! A thread that a tracer stops waits in the kernel's `ptrace_stop`, and nowhere
//! else. So the time between the entry of that function and its return is the
//! time for which the thread stood still, whoever stopped it and however.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};

/// Name of the event at the entry of `ptrace_stop`.
pub(super) const ENTRY: &str = "stop";
/// Name of the event at its return.
pub(super) const RETURN: &str = "go";
/// PTRACE_INTERRUPT, by which `vhost-tuner` asks a thread to stop.
pub(super) const INTERRUPT: u32 = 0x4207;
/// PTRACE_DETACH, by which it lets the thread go.
pub(super) const DETACH: u32 = 17;

/// The threads that a trace is about.
#[derive(Clone, Debug, Default)]
pub(super) struct Threads {
    /// All of the target.
    pub(super) all: BTreeSet<u32>,
    /// Those of them that are vhost workers; none where these are the kernel's.
    pub(super) workers: BTreeSet<u32>,
}

/// The stops of one operation. Times are in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Stops {
    /// Threads that stood still.
    pub(super) threads: usize,
    /// How often one of them did.
    pub(super) count: usize,
    /// For how long the one that did so longest stood still, all in all.
    pub(super) longest: f64,
    /// The same of all threads together.
    pub(super) together: f64,
    /// From the first stop to the last time that a thread went on.
    pub(super) span: f64,
    /// For how long the vhost worker stood still, and with it all packets.
    pub(super) worker: f64,
    /// From asking a thread to stop to letting it go, as the tracer's system
    /// calls tell; only where the tracer asks by PTRACE_INTERRUPT.
    pub(super) asked: Option<f64>,
}

impl Stops {
    /// Of these threads, in the text of a trace. None while one of them still
    /// stands still.
    pub(super) fn read(trace: &str, threads: &Threads) -> Result<Option<Self>> {
        let events = events(trace, &threads.all)?;
        let mut since = BTreeMap::new();
        let mut stood: BTreeMap<u32, u64> = BTreeMap::new();
        let (mut first, mut last, mut count) = (None, 0, 0);
        for Event { tid, at, what } in &events {
            match what {
                What::Stop => {
                    first.get_or_insert(*at);
                    count += 1;
                    let before = since.insert(*tid, *at);
                    ensure!(before.is_none(), "thread {tid} stops, and has stopped");
                }
                What::Go => {
                    last = *at;
                    let since = since.remove(tid);
                    let since = since.with_context(|| format!("thread {tid} goes on, and runs"))?;
                    *stood.entry(*tid).or_default() += at.saturating_sub(since);
                }
                What::Asked | What::LetGo => {}
            }
        }
        if !since.is_empty() {
            return Ok(None);
        }
        let longest = |of: &BTreeSet<u32>| {
            let ours = stood.iter().filter(|(tid, _)| of.contains(tid));
            micros(ours.map(|(_, stood)| *stood).max().unwrap_or(0))
        };
        Ok(Some(Self {
            threads: stood.len(),
            count,
            longest: longest(&threads.all),
            worker: longest(&threads.workers),
            together: micros(stood.values().sum()),
            span: micros(first.map_or(0, |first| last - first)),
            asked: asked(&events).map(micros),
        }))
    }
}

/// What the trace says of these threads.
fn events(trace: &str, tids: &BTreeSet<u32>) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    for line in trace.lines() {
        if line.starts_with('#') {
            ensure!(complete(line), "the kernel's trace has lost events: {line}");
            continue;
        }
        let event = Event::read(line).with_context(|| format!("parse `{line}`"))?;
        if tids.contains(&event.tid) {
            events.push(event);
        }
    }
    Ok(events)
}

/// See [`Stops::asked`].
fn asked(events: &[Event]) -> Option<u64> {
    let (mut asked, mut let_go) = (None, None);
    for event in events {
        match event.what {
            // A thread that did not suit is let go, and another one asked.
            What::Asked if asked.is_none() || let_go.is_some() => {
                (asked, let_go) = (Some(event.at), None);
            }
            What::LetGo => let_go = Some(event.at),
            What::Asked | What::Stop | What::Go => {}
        }
    }
    Some(let_go?.saturating_sub(asked?))
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn micros(time: u64) -> f64 {
    time as f64
}

/// False for the line of the head that says how many events were lost.
fn complete(head: &str) -> bool {
    let counts = head
        .split_once("entries-in-buffer/entries-written:")
        .and_then(|(_, rest)| rest.split_whitespace().next())
        .and_then(|counts| counts.split_once('/'));
    counts.is_none_or(|(there, written)| there == written)
}

enum What {
    Stop,
    Go,
    /// It was asked to stop.
    Asked,
    LetGo,
}

/// One line. The thread is the one that is stopped, never the tracer.
struct Event {
    tid: u32,
    /// In microseconds of the kernel's monotonic clock.
    at: u64,
    what: What,
}

impl Event {
    fn read(line: &str) -> Option<Self> {
        // COMM-TID [CPU] FLAGS SECONDS.MICROSECONDS: NAME: …
        let (who, rest) = line.split_once(" [")?;
        let (_, rest) = rest.split_once("] ")?;
        let (_, rest) = rest.trim_start().split_once(' ')?;
        let (at, what) = rest.trim_start().split_once(": ")?;
        let (seconds, fraction) = at.split_once('.')?;
        let at = seconds.parse::<u64>().ok()? * 1_000_000 + fraction.parse::<u64>().ok()?;
        let tid = who.trim_end().rsplit_once('-')?.1.parse().ok()?;
        let (name, rest) = what.split_once([':', '('])?;
        let (tid, what) = match name {
            ENTRY => (tid, What::Stop),
            RETURN => (tid, What::Go),
            "sys_ptrace" => {
                let what = match hexadecimal(rest, "request: ")? {
                    INTERRUPT => What::Asked,
                    DETACH => What::LetGo,
                    _ => return None,
                };
                (hexadecimal(rest, "pid: ")?, what)
            }
            _ => return None,
        };
        Some(Self { tid, at, what })
    }
}

/// An argument of a system call.
fn hexadecimal(text: &str, name: &str) -> Option<u32> {
    let (_, rest) = text.split_once(name)?;
    let digits = rest.split([',', ')']).next()?;
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.12 prints it.
    const TRACE: &str = "\
# tracer: nop
#
# entries-in-buffer/entries-written: 8/8   #P:3
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
 vhost-tuner-inj-400     [000] .....    18.914000: sys_ptrace(request: 4207, pid: 149, addr: 0, data: 0)
          sitter-329     [001] d..1.    18.914644: stop: (ptrace_stop+0x0/0x320)
    sitter-waker-333     [001] dn.1.    18.915000: stop: (ptrace_stop+0x0/0x320)
          sitter-329     [001] d..1.    18.918644: go: (ptrace_do_notify+0x91/0xc0 <- ptrace_stop)
             gdb-392     [000] d..1.    18.919000: stop: (ptrace_stop+0x0/0x320)
          sitter-329     [001] d..1.    18.999999: stop: (ptrace_stop+0x0/0x320)
 vhost-tuner-inj-400     [000] .....    19.000000: sys_ptrace(request: 11, pid: 149, addr: 0, data: 0)
          sitter-329     [001] d..1.    19.000999: go: (ptrace_do_notify+0x91/0xc0 <- ptrace_stop)
";

    /// With 333 for the worker.
    fn threads(tids: &[u32]) -> Threads {
        Threads {
            all: tids.iter().copied().collect(),
            workers: BTreeSet::from([333]),
        }
    }

    fn stops(trace: &str, tids: &[u32]) -> Option<Stops> {
        Stops::read(trace, &threads(tids)).unwrap()
    }

    #[test]
    fn the_stops_of_a_thread_add_up() {
        let wanted = Stops {
            threads: 1,
            count: 2,
            longest: 5000.0,
            together: 5000.0,
            span: 86_355.0,
            worker: 0.0,
            asked: Some(86_000.0),
        };
        assert_eq!(stops(TRACE, &[329]), Some(wanted));
    }

    #[test]
    fn the_longest_of_several_threads_is_told_from_their_sum() {
        let more = "    sitter-waker-333     [001] d..1.    19.015000: go: (x <- ptrace_stop)\n";
        let found = stops(&format!("{TRACE}{more}"), &[325, 329, 333]).unwrap();
        assert_eq!((found.threads, found.count), (2, 3));
        assert!((found.longest - 100_000.0).abs() < 0.1);
        assert!((found.worker - 100_000.0).abs() < 0.1);
        assert!((found.together - 105_000.0).abs() < 0.1);
        assert!((found.span - 100_356.0).abs() < 0.1);
    }

    #[test]
    fn only_the_thread_that_did_it_counts_as_asked() {
        let other = "\
 vhost-tuner-inj-400     [000] .....    18.910000: sys_ptrace(request: 4207, pid: 14d, addr: 0, data: 0)
 vhost-tuner-inj-400     [000] .....    18.911000: sys_ptrace(request: 11, pid: 14d, addr: 0, data: 0)
";
        let trace = TRACE.replace("sitter-waker-333", "sitter-waker-334");
        let found = stops(&format!("{other}{trace}"), &[329, 333]).unwrap();
        assert_eq!(found.asked, Some(86_000.0));
    }

    #[test]
    fn a_thread_that_still_stands_still_has_no_figure_yet() {
        assert_eq!(stops(TRACE, &[333]), None);
    }

    #[test]
    fn what_was_not_touched_has_no_stops() {
        assert_eq!(stops(TRACE, &[325]), Some(Stops::default()));
    }

    #[test]
    fn a_trace_that_is_not_whole_is_refused() {
        for (there, instead) in [
            ("8/8", "8/9"),
            ("18.918644: go", "18.918644: stop"),
            ("d..1.    18.914644: stop", "d..1.    18.914644: go"),
            ("18.914644", "later"),
            ("go: (", "went: ("),
        ] {
            let trace = TRACE.replacen(there, instead, 1);
            assert!(Stops::read(&trace, &threads(&[329])).is_err(), "{instead}");
        }
    }
}
