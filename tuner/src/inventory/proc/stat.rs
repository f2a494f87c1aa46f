//! `/proc/PID/stat` and `/proc/PID/task/TID/stat`.

use std::{path::PathBuf, str::FromStr, sync::OnceLock};

use super::{ProcError, read_text};

/// Fields after the command name that [`ProcStat`] reads: up to `policy`,
/// which is field 41 of proc(5), the third field being the first one here.
const FIELDS: usize = 39;

/// `PF_EXITING` of the kernel's `task_struct`: the thread is on its way out.
const PF_EXITING: u64 = 0x4;
/// `PF_IO_WORKER`: an io_uring worker, a thread that never sees user mode.
const PF_IO_WORKER: u64 = 0x10;
/// `PF_USER_WORKER` (since 6.4): a kernel thread inside a user process, as
/// vhost workers are.
const PF_USER_WORKER: u64 = 0x4000;
/// `PF_KTHREAD`: a plain kernel thread.
const PF_KTHREAD: u64 = 0x0020_0000;

/// What a thread is doing, the letter of proc(5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadState {
    /// `R`: on a CPU or waiting for one, in user or kernel mode.
    Running,
    /// `S`: asleep, a signal or a tracer can wake it.
    Sleeping,
    /// `D`: asleep, and nothing but the event itself wakes it.
    Uninterruptible,
    /// `T`: stopped by a signal.
    Stopped,
    /// `t`: stopped by a tracer.
    Traced,
    /// `Z`, `X`, `x`: ended.
    Dead,
    /// `I`: an idle kernel thread; and any letter of a later kernel.
    Other,
}

impl ThreadState {
    fn from_letter(letter: &str) -> Self {
        match letter {
            "R" => Self::Running,
            "S" => Self::Sleeping,
            "D" => Self::Uninterruptible,
            "T" => Self::Stopped,
            "t" => Self::Traced,
            "Z" | "X" | "x" => Self::Dead,
            _ => Self::Other,
        }
    }
}

/// CPU time a process or thread has used, in nanoseconds.
///
/// The kernel gives it in clock ticks (10 ms nearly everywhere), so this is
/// good for totals only; `schedstat` is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// In user mode.
    pub user_ns: u64,
    /// In the kernel.
    pub system_ns: u64,
}

/// One process or thread, from its `stat` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcStat {
    /// Process or thread id.
    pub id: i32,
    /// Command name, at most 15 bytes; a thread names itself, so it may hold
    /// spaces and parentheses.
    pub comm: String,
    /// What it is doing.
    pub state: ThreadState,
    /// Parent process.
    pub parent: i32,
    /// The kernel's `PF_*` bits. Not stable ABI by promise; in practice those
    /// read here have not moved since they came.
    pub flags: u64,
    /// User time, clock ticks.
    pub utime_ticks: u64,
    /// System time, clock ticks.
    pub stime_ticks: u64,
    /// Nice value, −20…19.
    pub nice: i32,
    /// When it started, clock ticks since boot. With the id this names a
    /// process for good: a reused id has another start time.
    pub start_time: u64,
    /// CPU it last ran on.
    pub cpu: u32,
    /// Real-time priority, 1…99, or 0.
    pub rt_priority: u32,
    /// Scheduling policy, `SCHED_*`.
    pub policy: u32,
}

impl ProcStat {
    /// Reads `/proc/PID/stat`.
    ///
    /// # Errors
    ///
    /// [`ProcError::Gone`] when the process has ended and was waited for.
    pub fn of_process(pid: i32) -> Result<Self, ProcError> {
        Self::from_text(&read_text(&PathBuf::from(format!("/proc/{pid}/stat")))?)
    }

    /// Reads `/proc/PID/task/TID/stat`: one thread, and only if it belongs to
    /// that process.
    ///
    /// # Errors
    ///
    /// [`ProcError::Gone`] when there is no such thread in that process.
    pub fn of_thread(pid: i32, tid: i32) -> Result<Self, ProcError> {
        Self::from_text(&read_text(&PathBuf::from(format!(
            "/proc/{pid}/task/{tid}/stat"
        )))?)
    }

    /// Parses the text of a `stat` file.
    ///
    /// The command name ends at the *last* parenthesis: everything behind it is
    /// numbers, everything in it is the thread's own choice.
    ///
    /// # Errors
    ///
    /// [`ProcError::Malformed`] when fields are missing or are no numbers.
    pub fn from_text(text: &str) -> Result<Self, ProcError> {
        let bad = || ProcError::malformed("/proc/PID/stat", text);
        let (head, tail) = text.rsplit_once(')').ok_or_else(bad)?;
        let (id, comm) = head.split_once('(').ok_or_else(bad)?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        if fields.len() < FIELDS {
            return Err(bad());
        }
        // `number` is proc(5)'s; fields[0] is field 3.
        let field = |number: usize| fields.get(number - 3).copied().unwrap_or_default();
        fn parse<T: FromStr>(field: &str, text: &str) -> Result<T, ProcError> {
            field
                .parse()
                .map_err(|_| ProcError::malformed("/proc/PID/stat", text))
        }
        Ok(Self {
            id: parse(id.trim(), text)?,
            comm: comm.to_owned(),
            state: ThreadState::from_letter(field(3)),
            parent: parse(field(4), text)?,
            flags: parse(field(9), text)?,
            utime_ticks: parse(field(14), text)?,
            stime_ticks: parse(field(15), text)?,
            nice: parse(field(19), text)?,
            start_time: parse(field(22), text)?,
            cpu: parse(field(39), text)?,
            rt_priority: parse(field(40), text)?,
            policy: parse(field(41), text)?,
        })
    }

    /// CPU time in nanoseconds, to the clock tick.
    pub fn cpu_times(&self) -> CpuTimes {
        CpuTimes {
            user_ns: self.utime_ticks.saturating_mul(clock_tick_ns()),
            system_ns: self.stime_ticks.saturating_mul(clock_tick_ns()),
        }
    }

    /// Whether it is a thread of the kernel itself, in no process of user space.
    pub fn is_kthread(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }

    /// Whether this thread never runs in user mode: a kernel thread, or a
    /// worker the kernel put into a user process (vhost since 6.4, io_uring).
    pub fn is_kernel_worker(&self) -> bool {
        self.flags & (PF_KTHREAD | PF_USER_WORKER | PF_IO_WORKER) != 0
    }

    /// Whether it is on its way out or has ended.
    pub fn is_exiting(&self) -> bool {
        self.flags & PF_EXITING != 0 || self.state == ThreadState::Dead
    }
}

/// Length of the clock tick that procfs counts in, in nanoseconds; 10 ms where
/// the C library does not say.
pub fn clock_tick_ns() -> u64 {
    static TICK: OnceLock<u64> = OnceLock::new();
    *TICK.get_or_init(|| {
        // SAFETY: sysconf takes a number and touches no memory of ours.
        let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        let per_second = u64::try_from(per_second).ok().filter(|&n| n > 0);
        1_000_000_000 / per_second.unwrap_or(100)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const QEMU_MAIN: &str = "1417 (qemu-system-x86) S 1 1416 1416 0 -1 4194624 18034 0 12 0 \
        318 209 0 0 20 0 6 0 51234 1234567168 22222 18446744073709551615 1 1 0 0 0 0 0 4096 \
        17663 0 0 0 17 3 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
    const WORKER: &str = "1431 (vhost-1417) S 1 1416 1416 0 -1 4210752 0 0 0 0 0 941 0 0 20 0 6 0 \
        51240 1234567168 22222 18446744073709551615 0 0 0 0 0 0 256 0 0 0 0 0 -1 1 0 0 0 0 0 0 0 0 \
        0 0 0 0 0\n";

    #[test]
    fn a_process_is_read_whole() {
        let stat = ProcStat::from_text(QEMU_MAIN).unwrap();
        assert_eq!(stat.id, 1417);
        assert_eq!(stat.comm, "qemu-system-x86");
        assert_eq!(stat.state, ThreadState::Sleeping);
        assert_eq!((stat.utime_ticks, stat.stime_ticks), (318, 209));
        assert_eq!(stat.start_time, 51234);
        assert_eq!((stat.cpu, stat.rt_priority, stat.policy), (3, 0, 0));
        assert!(!stat.is_kernel_worker());
        assert_eq!(stat.cpu_times().user_ns, 318 * clock_tick_ns());
    }

    #[test]
    fn a_vhost_worker_inside_the_vmm_is_told_by_its_flags() {
        let stat = ProcStat::from_text(WORKER).unwrap();
        assert_eq!(stat.flags & PF_USER_WORKER, PF_USER_WORKER);
        assert!(stat.is_kernel_worker());
    }

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let text = QEMU_MAIN.replace("(qemu-system-x86)", "(a) S 1 (b) R)");
        let stat = ProcStat::from_text(&text).unwrap();
        assert_eq!(stat.comm, "a) S 1 (b) R");
        assert_eq!(stat.start_time, 51234);
    }

    #[test]
    fn cut_off_and_foreign_text_is_an_error() {
        for text in ["", "1 (x", "1 (x) S 1 2", "x (y) S 1 2 3", &QEMU_MAIN[..90]] {
            assert!(matches!(
                ProcStat::from_text(text),
                Err(ProcError::Malformed { .. })
            ));
        }
    }

    #[test]
    fn our_own_threads_are_read() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let process = ProcStat::of_process(pid).unwrap();
        assert_eq!(process.id, pid);
        assert!(process.start_time > 0);
        assert_eq!(
            ProcStat::of_thread(pid, pid).unwrap().start_time,
            process.start_time
        );
        assert!(ProcStat::of_process(i32::MAX).unwrap_err().is_gone());
    }
}
