//! What decides how soon a vhost worker runs: CPU time, waiting for a CPU,
//! affinity, scheduling class and cgroup.

use std::{fmt, path::PathBuf};

use super::{ProcError, ProcStat, ProcStatus, read_text};

/// Scheduling policy of a thread, sched(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuPolicy {
    /// `SCHED_OTHER`.
    Other,
    /// `SCHED_FIFO`, with its priority.
    Fifo(u32),
    /// `SCHED_RR`, with its priority.
    RoundRobin(u32),
    /// `SCHED_BATCH`.
    Batch,
    /// `SCHED_IDLE`.
    Idle,
    /// `SCHED_DEADLINE`.
    Deadline,
    /// `SCHED_EXT`, a BPF scheduler.
    Ext,
    /// A number of a later kernel.
    Unknown(u32),
}

impl CpuPolicy {
    fn new(policy: u32, priority: u32) -> Self {
        match policy {
            0 => Self::Other,
            1 => Self::Fifo(priority),
            2 => Self::RoundRobin(priority),
            3 => Self::Batch,
            5 => Self::Idle,
            6 => Self::Deadline,
            7 => Self::Ext,
            number => Self::Unknown(number),
        }
    }
}

impl fmt::Display for CpuPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other => f.write_str("other"),
            Self::Fifo(priority) => write!(f, "fifo:{priority}"),
            Self::RoundRobin(priority) => write!(f, "rr:{priority}"),
            Self::Batch => f.write_str("batch"),
            Self::Idle => f.write_str("idle"),
            Self::Deadline => f.write_str("deadline"),
            Self::Ext => f.write_str("ext"),
            Self::Unknown(number) => write!(f, "policy {number}"),
        }
    }
}

/// One worker thread: a kthread `vhost-PID` or, since 6.4, a thread of the VMM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerFacts {
    /// Its thread id.
    pub tid: i32,
    /// Command name.
    pub comm: String,
    /// Whether it is a thread inside a process rather than a kthread.
    pub in_process: bool,
    /// Time on a CPU, nanoseconds since it started.
    pub run_ns: u64,
    /// Time spent ready to run but waiting for a CPU, nanoseconds; `None` where
    /// the kernel keeps no schedstat.
    pub wait_ns: Option<u64>,
    /// CPUs it may run on, as the kernel lists them (`0-3,8`).
    pub allowed_cpus: Option<String>,
    /// CPU it last ran on.
    pub cpu: u32,
    /// Scheduling policy.
    pub policy: CpuPolicy,
    /// Nice value.
    pub nice: i32,
    /// Its cgroup: the v2 path, else the v1 path of the `cpu` controller.
    pub cgroup: Option<String>,
}

impl WorkerFacts {
    /// Reads the facts about one thread.
    ///
    /// `/proc/TID` answers for every thread, also where it is not listed, so
    /// the process need not be known.
    ///
    /// # Errors
    ///
    /// [`ProcError::Gone`] when the thread has ended. A part this kernel does
    /// not offer or does not show us is `None`, no error.
    pub fn read(tid: i32) -> Result<Self, ProcError> {
        let stat = ProcStat::of_process(tid)?;
        let status = ProcStatus::of_process(tid)?;
        let extra = |name: &str| read_text(&PathBuf::from(format!("/proc/{tid}/{name}"))).ok();
        let times = stat.cpu_times();
        let sched = extra("schedstat").and_then(|text| schedstat_from(&text));
        Ok(Self {
            tid,
            in_process: !stat.is_kthread(),
            run_ns: sched.map_or(times.user_ns + times.system_ns, |(run, _)| run),
            wait_ns: sched.map(|(_, wait)| wait),
            allowed_cpus: status.allowed_cpus,
            cpu: stat.cpu,
            policy: CpuPolicy::new(stat.policy, stat.rt_priority),
            nice: stat.nice,
            cgroup: extra("cgroup").and_then(|text| cgroup_from(&text)),
            comm: stat.comm,
        })
    }
}

/// Time on a CPU and time waiting for one, both in nanoseconds, of one thread:
/// the two facts that change all the time, without the rest. `None` where the
/// kernel does not count.
///
/// # Errors
///
/// [`ProcError::Gone`] when the thread has ended.
pub fn schedstat(tid: i32) -> Result<Option<(u64, u64)>, ProcError> {
    let text = read_text(&PathBuf::from(format!("/proc/{tid}/schedstat")))?;
    Ok(schedstat_from(&text))
}

/// Time on a CPU and time waiting for one, both in nanoseconds, from the text
/// of `/proc/TID/schedstat`. All zeros mean that the kernel does not count
/// (schedstats off on old kernels) and is `None`.
pub fn schedstat_from(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
    let (run, wait) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    let slices = numbers.next()?.ok()?;
    (slices > 0 || run > 0).then_some((run, wait))
}

/// The cgroup path from the text of `/proc/TID/cgroup`: the line of the unified
/// hierarchy, or where that one is empty (v1 hosts) the one of the `cpu`
/// controller, which is the one that decides about CPU time.
pub fn cgroup_from(text: &str) -> Option<String> {
    let mut unified = None;
    let mut cpu = None;
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        if id == "0" && controllers.is_empty() {
            unified = Some(path);
        } else if controllers.split(',').any(|name| name == "cpu") {
            cpu = Some(path);
        }
    }
    cpu.or(unified).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedstat_gives_run_and_wait_time() {
        assert_eq!(
            schedstat_from("9412345678 120456 88123\n"),
            Some((9_412_345_678, 120_456))
        );
        assert_eq!(schedstat_from("0 0 0\n"), None);
        assert_eq!(schedstat_from("12\n"), None);
        assert_eq!(schedstat_from("a b c\n"), None);
    }

    #[test]
    fn the_cgroup_that_rules_cpu_time_is_chosen() {
        let v2 = "0::/machine.slice/machine-qemu\\x2d1\\x2dvm.scope/libvirt/emulator\n";
        assert_eq!(
            cgroup_from(v2).unwrap(),
            "/machine.slice/machine-qemu\\x2d1\\x2dvm.scope/libvirt/emulator"
        );
        let v1 = "5:memory:/m\n4:cpu,cpuacct:/machine/vm:1\n1:name=systemd:/s\n0::/s\n";
        assert_eq!(cgroup_from(v1).unwrap(), "/machine/vm:1");
        assert_eq!(cgroup_from("garbage\n"), None);
    }

    #[test]
    fn policies_are_named_with_their_priority() {
        assert_eq!(CpuPolicy::new(1, 50).to_string(), "fifo:50");
        assert_eq!(CpuPolicy::new(0, 0).to_string(), "other");
        assert_eq!(CpuPolicy::new(99, 0).to_string(), "policy 99");
    }

    #[test]
    fn a_live_thread_has_facts() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let facts = WorkerFacts::read(pid).unwrap();
        assert!(facts.in_process);
        assert!(facts.run_ns > 0);
        assert!(facts.allowed_cpus.is_some());
        assert!(WorkerFacts::read(i32::MAX).unwrap_err().is_gone());
    }
}
