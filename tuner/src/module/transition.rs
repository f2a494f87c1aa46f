//! Follows a livepatch's transition until every task has moved over.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::LIVEPATCH;
use super::contend::Contention;
use super::facts::livepatch_now;
use super::state::Livepatch;
use super::tasks::{self, Task};

/// How often is looked.
const LOOK: Duration = Duration::from_millis(100);
/// The kernel moves most tasks over by itself, one look a second.
const HELP_AFTER: Duration = Duration::from_secs(2);
/// How wide a line on a terminal may be.
const WIDTH: usize = 79;

/// Which way a transition goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the livepatch.
    Apply,
    /// Back to the distribution's functions.
    Revert,
}

/// How following it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Every task has moved over.
    Done,
    /// The time was up, with these left.
    Late(Vec<Task>),
    /// A signal came, with these left.
    Stopped(Vec<Task>),
    /// Somebody else turned it round.
    Turned,
}

/// Where a transition stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    Going,
    Done,
    Turned,
}

fn stand(way: Way, now: Option<Livepatch>) -> Stand {
    match (way, now) {
        (Way::Apply, Some(patch)) if patch.enabled && patch.transition => Stand::Going,
        (Way::Apply, Some(patch)) if patch.enabled => Stand::Done,
        (Way::Apply, _) => Stand::Turned,
        (Way::Revert, Some(patch)) if patch.enabled => Stand::Turned,
        (Way::Revert, Some(patch)) if patch.transition => Stand::Going,
        (Way::Revert, _) => Stand::Done,
    }
}

/// Turns a livepatch on or off; also in the middle of a transition, which then
/// goes the other way. Nothing happens if it goes that way already.
///
/// # Errors
/// What the kernel says.
pub fn turn(way: Way) -> io::Result<()> {
    let enable = way == Way::Apply;
    let there = || livepatch_now().map(|patch| patch.enabled);
    match there() {
        Some(enabled) if enabled != enable => {}
        None if enable => return Err(io::ErrorKind::NotFound.into()),
        _ => return Ok(()),
    }
    let path = format!("/sys/kernel/livepatch/{LIVEPATCH}/enabled");
    match fs::write(path, if enable { "1" } else { "0" }) {
        // It turned, or went away, between the two.
        Err(_) if there() == Some(enable) || (!enable && there().is_none()) => Ok(()),
        result => result,
    }
}

/// Follows until the end, `until`, or a signal. Helps tasks along that keep
/// their CPUs. Never forces.
pub fn follow(way: Way, until: Instant, stop: &AtomicBool, progress: &mut Progress) -> End {
    let proc = Path::new("/proc");
    let patched = way == Way::Apply;
    let began = Instant::now();
    let mut contention = Contention::default();
    let mut waiting: Vec<(i32, i32)> = Vec::new();
    let end = loop {
        match stand(way, livepatch_now()) {
            Stand::Done => break End::Done,
            Stand::Turned => break End::Turned,
            Stand::Going => {}
        }
        // Tasks never move back, and a new one is where its parent is; so the
        // whole of /proc has to be read only when there seems to be none left.
        waiting.retain(|task| tasks::is_left(proc, *task, patched));
        if waiting.is_empty() {
            waiting = tasks::left(proc, patched);
        }
        let list = tasks::describe_all(&waiting);
        progress.show(way, &list, began.elapsed());
        if stop.load(Ordering::Relaxed) {
            break End::Stopped(list);
        }
        if Instant::now() >= until {
            break End::Late(list);
        }
        if began.elapsed() >= HELP_AFTER {
            let running = list.iter().filter(|task| task.running);
            contention.on(&running.map(|task| task.cpu).collect::<BTreeSet<u32>>());
        }
        thread::sleep(LOOK);
    };
    progress.end();
    end
}

/// Says on standard error how far it is: on a terminal in one line that is
/// written anew, else in a line whenever other tasks are left.
pub struct Progress {
    terminal: bool,
    /// Threads that were left when a line was written last.
    shown: Option<Vec<i32>>,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            terminal: io::stderr().is_terminal(),
            shown: None,
        }
    }
}

impl Progress {
    fn show(&mut self, way: Way, tasks: &[Task], elapsed: Duration) {
        let text = line(way, tasks);
        let left: Vec<i32> = tasks.iter().map(|task| task.tid).collect();
        let mut out = io::stderr().lock();
        // Progress that nobody can read is no reason to stop.
        let _ = if self.terminal {
            let text = format!("{:.0} s: {text}", elapsed.as_secs_f64());
            let text: String = text.chars().take(WIDTH).collect();
            write!(out, "\r\x1b[K{text}").and_then(|()| out.flush())
        } else if self.shown.as_ref() != Some(&left) {
            writeln!(out, "{text}")
        } else {
            Ok(())
        };
        self.shown = Some(left);
    }

    fn end(&mut self) {
        if self.terminal && self.shown.is_some() {
            let mut out = io::stderr().lock();
            let _ = write!(out, "\r\x1b[K").and_then(|()| out.flush());
        }
        self.shown = None;
    }
}

fn line(way: Way, tasks: &[Task]) -> String {
    let what = match way {
        Way::Apply => "applying the livepatch",
        Way::Revert => "taking the livepatch back",
    };
    match tasks {
        [] => format!("{what}: no task left that /proc shows"),
        [one] => format!("{what}: 1 task left: {one}"),
        [first, ..] => format!("{what}: {} tasks left: {first}; …", tasks.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patch(enabled: bool, transition: bool) -> Option<Livepatch> {
        Some(Livepatch {
            enabled,
            transition,
        })
    }

    #[test]
    fn applying_is_done_when_it_is_on_and_no_task_is_left() {
        assert_eq!(stand(Way::Apply, patch(true, true)), Stand::Going);
        assert_eq!(stand(Way::Apply, patch(true, false)), Stand::Done);
        assert_eq!(stand(Way::Apply, patch(false, true)), Stand::Turned);
        assert_eq!(stand(Way::Apply, None), Stand::Turned);
    }

    #[test]
    fn taking_back_is_done_when_it_is_off_or_gone() {
        assert_eq!(stand(Way::Revert, patch(false, true)), Stand::Going);
        assert_eq!(stand(Way::Revert, patch(false, false)), Stand::Done);
        assert_eq!(stand(Way::Revert, None), Stand::Done);
        assert_eq!(stand(Way::Revert, patch(true, true)), Stand::Turned);
    }

    #[test]
    fn a_line_says_how_many_are_left() {
        let task = Task {
            pid: 7,
            tid: 7,
            comm: "vhost-5".to_owned(),
            vm: None,
            cpu: 0,
            running: true,
            function: None,
        };
        let one = std::slice::from_ref(&task);
        assert_eq!(
            line(Way::Apply, one),
            "applying the livepatch: 1 task left: vhost-5 (7), running on CPU 0"
        );
        assert!(line(Way::Revert, &[task.clone(), task]).contains("2 tasks left"));
        assert!(line(Way::Apply, &[]).contains("no task left"));
    }
}
