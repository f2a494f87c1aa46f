//! `/proc/PID/status`: the few lines that decide what may be done to a process.

use std::path::PathBuf;

use super::{ProcError, read_text};

/// Lines of `/proc/PID/status` (or of a thread's). A line this kernel does not
/// print is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcStatus {
    /// Process that traces this one.
    pub tracer: Option<i32>,
    /// Effective user id.
    pub euid: Option<u32>,
    /// 0 no seccomp, 1 strict, 2 a filter.
    pub seccomp: Option<u32>,
    /// Effective capabilities.
    pub capabilities: Option<u64>,
    /// CPUs it may run on, as the kernel lists them (`0-3,8`).
    pub allowed_cpus: Option<String>,
    /// Number of threads.
    pub threads: Option<u32>,
    /// Signals that wait for this thread or for the whole process, bit N-1 for
    /// signal N.
    pub pending: u64,
}

impl ProcStatus {
    /// Reads `/proc/PID/status`.
    ///
    /// # Errors
    ///
    /// [`ProcError::Gone`] when the process has ended.
    pub fn of_process(pid: i32) -> Result<Self, ProcError> {
        Self::at(PathBuf::from(format!("/proc/{pid}/status")))
    }

    /// Reads `/proc/PID/task/TID/status`.
    ///
    /// # Errors
    ///
    /// [`ProcError::Gone`] when there is no such thread in that process.
    pub fn of_thread(pid: i32, tid: i32) -> Result<Self, ProcError> {
        Self::at(PathBuf::from(format!("/proc/{pid}/task/{tid}/status")))
    }

    /// Reads our own.
    ///
    /// # Errors
    ///
    /// Only where procfs is not mounted.
    pub fn of_self() -> Result<Self, ProcError> {
        Self::at(PathBuf::from("/proc/thread-self/status"))
    }

    /// Whether it has been killed and has not ended yet.
    pub fn is_killed(&self) -> bool {
        self.pending >> (libc::SIGKILL - 1) & 1 == 1
    }

    fn at(path: PathBuf) -> Result<Self, ProcError> {
        Ok(Self::from_text(&read_text(&path)?))
    }

    /// Picks the known lines out of the text; unknown ones are passed over.
    pub fn from_text(text: &str) -> Self {
        let mut status = Self::default();
        for (key, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            match key {
                "TracerPid" => status.tracer = value.parse().ok().filter(|&pid| pid != 0),
                // real, effective, saved, file system
                "Uid" => {
                    let effective = value.split_ascii_whitespace().nth(1);
                    status.euid = effective.and_then(|id| id.parse().ok());
                }
                "Seccomp" => status.seccomp = value.parse().ok(),
                "CapEff" => status.capabilities = u64::from_str_radix(value, 16).ok(),
                "Cpus_allowed_list" => status.allowed_cpus = Some(value.to_owned()),
                "SigPnd" | "ShdPnd" => {
                    status.pending |= u64::from_str_radix(value, 16).unwrap_or(0);
                }
                "Threads" => status.threads = value.parse().ok(),
                _ => {}
            }
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tvhost-1417\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t1417\n\
        Pid:\t1431\nPPid:\t1\nTracerPid:\t0\nUid:\t64055\t64055\t64055\t64055\n\
        Threads:\t6\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n\
        CapEff:\t0000000000080000\nNoNewPrivs:\t0\nSeccomp:\t2\nSeccomp_filters:\t1\n\
        Cpus_allowed:\t10f\nCpus_allowed_list:\t0-3,8\n";

    #[test]
    fn known_lines_are_picked_and_others_passed_over() {
        let status = ProcStatus::from_text(STATUS);
        assert_eq!(
            status,
            ProcStatus {
                tracer: None,
                euid: Some(64055),
                seccomp: Some(2),
                capabilities: Some(1 << 19),
                allowed_cpus: Some("0-3,8".into()),
                threads: Some(6),
                pending: 0,
            }
        );
        let traced = ProcStatus::from_text("TracerPid:\t77\nnonsense\nUid:\tx\n");
        assert_eq!((traced.tracer, traced.euid), (Some(77), None));
    }

    #[test]
    fn a_killed_process_is_told_from_one_with_other_signals() {
        let killed = "SigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n";
        assert!(ProcStatus::from_text(killed).is_killed());
        let other = "SigPnd:\t0000000000000000\nShdPnd:\t0000000000004000\n";
        assert!(!ProcStatus::from_text(other).is_killed());
    }

    #[test]
    fn our_own_status_is_read() {
        assert!(ProcStatus::of_self().unwrap().threads.unwrap() >= 1);
    }
}
