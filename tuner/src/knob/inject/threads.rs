//! Choosing the thread that is to run the call.
//!
//! Any thread of the process will do for the kernel: the owner check compares
//! address spaces. For the program it matters which one is stopped, so it is
//! one that nobody waits for and whose present call survives the interruption.

use std::{fs, io, path::PathBuf};

use super::{
    InjectError, refusal,
    restart::{self, Behaviour},
};
use crate::inventory::proc::{ProcStat, ThreadState};

/// Where a thread is, from `/proc/PID/task/TID/syscall`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// On a CPU or ready for one; in user mode most likely.
    Running,
    /// Asleep outside any system call: a page fault.
    Fault,
    /// Asleep in a system call.
    Call { number: i64, first: u64 },
    /// This kernel does not tell.
    Hidden,
}

impl Place {
    fn from_text(text: &str) -> Self {
        let mut fields = text.split_ascii_whitespace();
        match fields.next() {
            Some("running") => Self::Running,
            Some("-1") => Self::Fault,
            Some(number) => {
                let hex = |field: &str| u64::from_str_radix(field.trim_start_matches("0x"), 16);
                match (number.parse(), fields.next().map(hex)) {
                    (Ok(number), Some(Ok(first))) => Self::Call { number, first },
                    _ => Self::Hidden,
                }
            }
            None => Self::Hidden,
        }
    }
}

/// How welcome a thread is, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// Waits for another thread or for time; nobody waits for it.
    Idle,
    /// Waits for files; its call starts again by itself.
    Restarts,
    /// In user mode, or so it seems.
    Running,
    /// Waits on a socket, which may carry a time limit.
    Socket,
    /// Waits in a call that comes back with EINTR and is issued again.
    Eintr,
    /// In a call nobody here knows.
    Unknown,
    /// A virtual CPU: stopping it stops the guest's.
    VirtualCpu,
}

/// One thread that can be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    standing: Standing,
    pub(super) tid: i32,
}

/// Threads of process `pid` that can be used, best first.
pub(super) fn candidates(pid: i32) -> Result<Vec<Candidate>, InjectError> {
    let dir = PathBuf::from(format!("/proc/{pid}/task"));
    let entries = fs::read_dir(&dir).map_err(|_| InjectError::Ended { pid })?;
    let mut found = Vec::new();
    let mut unfit = Vec::new();
    for tid in entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
    {
        // A thread may end between the listing and here.
        let Ok(stat) = ProcStat::of_thread(pid, tid) else {
            continue;
        };
        if let Some(why) = unusable(&stat) {
            unfit.push(format!("{tid} ({}) {why}", stat.comm));
            continue;
        }
        let place = match fs::read_to_string(dir.join(format!("{tid}/syscall"))) {
            Ok(text) => Place::from_text(&text),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) => {
                // The same right that ptrace asks for.
                return Err(refusal::refused(pid));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && dir.exists() => Place::Hidden,
            Err(_) => continue,
        };
        let file = match place {
            Place::Call { first, .. } => fs::read_link(format!("/proc/{pid}/fd/{first}"))
                .ok()
                .map(|link| link.to_string_lossy().into_owned()),
            _ => None,
        };
        found.push(Candidate {
            standing: standing(&stat.comm, place, file.as_deref()),
            tid,
        });
    }
    if found.is_empty() {
        let why = if unfit.is_empty() {
            return Err(InjectError::Ended { pid });
        } else {
            unfit.join(", ")
        };
        return Err(InjectError::NoThread { pid, why });
    }
    found.sort_by_key(|candidate| (candidate.standing, candidate.tid));
    Ok(found)
}

/// Why a thread must not be touched, if so.
fn unusable(stat: &ProcStat) -> Option<&'static str> {
    // The names cover kernels whose flags mean something else one day: such a
    // thread never goes to user mode and must not be seized.
    let worker_name = ["vhost-", "iou-wrk-", "iou-sqp-"].iter().any(|name| {
        let rest = stat.comm.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    });
    if stat.is_kernel_worker() || worker_name {
        return Some("is a worker of the kernel");
    }
    if stat.is_exiting() {
        return Some("is ending");
    }
    match stat.state {
        ThreadState::Uninterruptible => Some("is in an uninterruptible wait"),
        ThreadState::Stopped => Some("is stopped by a signal"),
        ThreadState::Traced => Some("is stopped by a tracer"),
        _ => None,
    }
}

fn standing(comm: &str, place: Place, file: Option<&str>) -> Standing {
    let on_vcpu = file.is_some_and(|link| link.starts_with("anon_inode:kvm-vcpu"));
    if is_vcpu_name(comm) || on_vcpu {
        return Standing::VirtualCpu;
    }
    match place {
        Place::Running => Standing::Running,
        Place::Fault | Place::Hidden => Standing::Unknown,
        Place::Call { number, .. } => match restart::behaviour(number) {
            Behaviour::Idle => Standing::Idle,
            Behaviour::Restarts => Standing::Restarts,
            Behaviour::ByFile if file.is_some_and(restart::file_restarts) => Standing::Restarts,
            Behaviour::ByFile => Standing::Socket,
            Behaviour::Eintr if file.is_some_and(|link| link.starts_with("socket:")) => {
                Standing::Socket
            }
            Behaviour::Eintr => Standing::Eintr,
            Behaviour::Ioctl | Behaviour::Unknown => Standing::Unknown,
        },
    }
}

/// QEMU's `CPU 0/KVM` (with debug-threads=on), Cloud Hypervisor's `vcpu0`,
/// crosvm's `crosvm_vcpu0`, Firecracker's `fc_vcpu 0`.
fn is_vcpu_name(comm: &str) -> bool {
    (comm.starts_with("CPU ") && comm.contains('/')) || comm.contains("vcpu")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: i64) -> Place {
        Place::Call { number, first: 5 }
    }

    #[test]
    fn the_places_procfs_names_are_read() {
        let text = "271 0x55d0 0x1 0x7ffd 0x0 0x8 0x0 0x7ffd5d9f 0x7f00\n";
        let ppoll = Place::Call {
            number: 271,
            first: 0x55d0,
        };
        assert_eq!(Place::from_text(text), ppoll);
        assert_eq!(Place::from_text("running\n"), Place::Running);
        assert_eq!(Place::from_text("-1 0x7ffd 0x7f00\n"), Place::Fault);
        for odd in ["", "x", "12", "12 zz"] {
            assert_eq!(Place::from_text(odd), Place::Hidden);
        }
    }

    #[test]
    fn threads_of_a_vm_are_ranked_by_how_little_they_are_missed() {
        let ranked = [
            ("call_rcu", call(libc::SYS_futex), None),
            ("qemu", call(libc::SYS_ppoll), None),
            ("qemu", Place::Running, None),
            ("vnc", call(libc::SYS_recvfrom), Some("socket:[7]")),
            (
                "IO iothread1",
                call(libc::SYS_epoll_pwait),
                Some("anon_inode:[eventpoll]"),
            ),
            ("odd", call(9999), None),
            ("CPU 0/KVM", Place::Running, None),
        ];
        let standings: Vec<_> = ranked
            .iter()
            .map(|(comm, place, file)| standing(comm, *place, *file))
            .collect();
        assert!(
            standings.is_sorted() && standings.len() == 7,
            "{standings:?}"
        );
        let unnamed = standing("qemu", call(libc::SYS_ioctl), Some("anon_inode:kvm-vcpu:0"));
        assert_eq!(unnamed, Standing::VirtualCpu);
        let pipe = standing("x", call(libc::SYS_read), Some("pipe:[3]"));
        assert_eq!(pipe, Standing::Restarts);
    }

    #[test]
    fn workers_of_the_kernel_are_never_touched() {
        let stat = |comm: &str, state: &str, flags: u64| {
            let text = format!(
                "9 ({comm}) {state} 1 9 9 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 6 0 5 1 2 3 0 0 0 0 0 \
                 0 0 0 0 0 0 0 -1 1 0 0 0 0 0 0 0\n"
            );
            ProcStat::from_text(&text).unwrap()
        };
        assert!(unusable(&stat("anything", "S", 0x4000)).is_some());
        assert!(unusable(&stat("anything", "S", 0x10)).is_some());
        assert!(unusable(&stat("vhost-1417", "S", 0)).is_some());
        assert!(unusable(&stat("iou-wrk-1417", "S", 0)).is_some());
        assert!(unusable(&stat("q", "D", 0)).is_some());
        assert!(unusable(&stat("q", "Z", 0)).is_some());
        assert!(unusable(&stat("q", "t", 0)).is_some());
        assert!(unusable(&stat("vhost-lab", "S", 0)).is_none());
        assert!(unusable(&stat("q", "R", 0)).is_none());
    }
}
