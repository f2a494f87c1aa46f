//! Tasks that have not moved over yet, and what they are.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::inventory::proc::{ProcStat, ThreadState, vm_name};

/// A task that a transition waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Task {
    /// Its process.
    pub pid: i32,
    /// Its thread.
    pub tid: i32,
    /// Its command name.
    pub comm: String,
    /// VM that it works for, if it is a vhost worker.
    pub vm: Option<String>,
    /// CPU that it ran on last.
    pub cpu: u32,
    /// Whether it runs or wants to.
    pub running: bool,
    /// The function of vhost_net that it is in, if the kernel shows it.
    pub function: Option<String>,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.comm, self.pid)?;
        if self.tid != self.pid {
            write!(f, ":{}", self.tid)?;
        }
        f.write_str(")")?;
        if let Some(vm) = &self.vm {
            write!(f, ", worker of VM {vm}")?;
        }
        if self.running {
            write!(f, ", running on CPU {}", self.cpu)?;
        } else {
            f.write_str(", asleep")?;
        }
        if let Some(function) = &self.function {
            write!(f, " in {function}")?;
        }
        Ok(())
    }
}

/// All tasks, joined for a sentence; the first few of many.
#[must_use]
pub fn sentence(tasks: &[Task]) -> String {
    const MOST: usize = 8;
    if tasks.is_empty() {
        // Only these have no entry in /proc.
        return "a CPU's idle task".to_owned();
    }
    let list: Vec<String> = tasks.iter().take(MOST).map(ToString::to_string).collect();
    let more = tasks.len().saturating_sub(MOST);
    let text = list.join("; ");
    if more > 0 {
        format!("{text}; and {more} more")
    } else {
        text
    }
}

/// Process and thread of every task that has not moved over yet: `patch_state`
/// is where a task is in a transition, -1 without one.
#[must_use]
pub fn left(proc: &Path, patched: bool) -> Vec<(i32, i32)> {
    let mut found = Vec::new();
    for pid in numbers(proc) {
        for tid in numbers(&proc.join(pid.to_string()).join("task")) {
            if is_left(proc, (pid, tid), patched) {
                found.push((pid, tid));
            }
        }
    }
    found
}

/// Whether one of them still has not.
#[must_use]
pub fn is_left(proc: &Path, (pid, tid): (i32, i32), patched: bool) -> bool {
    let path = proc.join(format!("{pid}/task/{tid}/patch_state"));
    let wait = if patched { "0" } else { "1" };
    fs::read_to_string(path).is_ok_and(|text| text.trim() == wait)
}

/// What is known of these tasks, vhost workers first: they are what is most
/// likely to hold a transition. Tasks that have ended are left out.
#[must_use]
pub fn describe_all(tasks: &[(i32, i32)]) -> Vec<Task> {
    let mut list: Vec<Task> = tasks.iter().filter_map(|task| describe(*task)).collect();
    list.sort_by_key(|task| worker_of(&task.comm).is_none());
    list
}

fn describe((pid, tid): (i32, i32)) -> Option<Task> {
    let stat = ProcStat::of_thread(pid, tid).ok()?;
    let stack = fs::read_to_string(format!("/proc/{pid}/task/{tid}/stack")).unwrap_or_default();
    let owner = worker_of(&stat.comm);
    Some(Task {
        pid,
        tid,
        vm: owner
            .and_then(|owner| vm_name(owner).ok())
            .map(|name| name.name),
        cpu: stat.cpu,
        running: stat.state == ThreadState::Running,
        function: patched_function(&stack),
        comm: stat.comm,
    })
}

/// The process that a vhost worker works for: the worker is called
/// `vhost-PID`, be it a kthread or a thread of the VMM.
fn worker_of(comm: &str) -> Option<i32> {
    comm.strip_prefix("vhost-")?.parse().ok()
}

/// The first function on a stack that the livepatch replaces or brings.
fn patched_function(stack: &str) -> Option<String> {
    const REPLACED: [&str; 4] = [
        "handle_tx",
        "handle_rx",
        "vhost_net_ioctl",
        "vhost_net_release",
    ];
    stack.lines().find_map(|line| {
        let name = line.split_ascii_whitespace().nth(1)?.split('+').next()?;
        let replaced = REPLACED.contains(&name) || name.starts_with("vnt_");
        replaced.then(|| name.to_owned())
    })
}

fn numbers(folder: &Path) -> Vec<i32> {
    let mut list: Vec<i32> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    list.sort_unstable();
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        Task {
            pid: 100,
            tid: 104,
            comm: "vhost-100".to_owned(),
            vm: Some("web".to_owned()),
            cpu: 3,
            running: true,
            function: Some("handle_tx".to_owned()),
        }
    }

    #[test]
    fn tasks_that_have_not_moved_are_found_for_both_ways() {
        let proc = tempfile::tempdir().unwrap();
        for (path, state) in [
            ("10/task/10", "1\n"),
            ("10/task/11", "0\n"),
            ("20/task/20", "-1\n"),
            ("sys/task/1", "0\n"),
        ] {
            let folder = proc.path().join(path);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("patch_state"), state).unwrap();
        }
        assert_eq!(left(proc.path(), true), [(10, 11)]);
        assert_eq!(left(proc.path(), false), [(10, 10)]);
        assert!(!is_left(proc.path(), (30, 30), true));
    }

    #[test]
    fn a_task_is_told_with_its_vm_and_what_it_does() {
        assert_eq!(
            task().to_string(),
            "vhost-100 (100:104), worker of VM web, running on CPU 3 in handle_tx"
        );
        let asleep = Task {
            tid: 100,
            vm: None,
            running: false,
            function: None,
            ..task()
        };
        assert_eq!(asleep.to_string(), "vhost-100 (100), asleep");
    }

    #[test]
    fn many_tasks_are_cut_short_and_none_are_idle_tasks() {
        let text = sentence(&vec![task(); 10]);
        assert!(text.ends_with("; and 2 more"), "{text}");
        assert!(sentence(&[]).contains("idle"));
    }

    #[test]
    fn workers_are_known_by_their_names() {
        assert_eq!(worker_of("vhost-1417"), Some(1417));
        assert_eq!(worker_of("vhost-worker"), None);
        assert_eq!(worker_of("kworker/0:1"), None);
    }

    #[test]
    fn a_function_that_matters_is_found_on_a_stack() {
        let stack = "[<0>] do_wait+0x1/0x2\n[<0>] vnt_handle_rx+0x10/0x20 [livepatch_vhost_net]\n";
        assert_eq!(patched_function(stack).as_deref(), Some("vnt_handle_rx"));
        assert_eq!(
            patched_function("[<0>] vhost_worker+0x1/0x2 [vhost]\n"),
            None
        );
        assert_eq!(patched_function(""), None);
    }

    #[test]
    fn our_own_thread_is_described() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert_eq!(describe((pid, pid)).unwrap().vm, None);
        assert!(describe((i32::MAX, 1)).is_none());
    }
}
