//! Facts from procfs: what a process is called, what its threads do, and who
//! has `/dev/vhost-net` open.
//!
//! Every file of procfs has a pure parser, tested on captured text, and a thin
//! reader. Nothing here needs BPF. What another user's process hides
//! (`/proc/PID/fd` asks for ptrace rights) makes the answer shorter and is
//! said, it is not an error.

mod cmdline;
mod error;
mod openers;
mod stat;
mod status;
mod tun;
mod worker;

pub use cmdline::{VmName, Vmm, vm_name, vm_name_from};
pub use error::ProcError;
pub use openers::{Opener, Openers, VHOST_NET, vhost_net_openers, vhost_net_openers_under};
pub use stat::{CpuTimes, ProcStat, ThreadState, clock_tick_ns};
pub use status::ProcStatus;
pub use tun::{tun_name, tun_name_from};
pub use worker::{CpuPolicy, WorkerFacts, cgroup_from, schedstat, schedstat_from};

use std::{fs, os::unix::fs::MetadataExt, path::Path};

/// Inode number of the pid namespace that every other one is inside
/// (`PROC_PID_INIT_INO`), fixed in the kernel.
const FIRST_PID_NAMESPACE: u64 = 0xeffffffc;

/// True if this process is in the first pid namespace, where its numbers for
/// processes and threads are the kernel's own.
#[must_use]
pub fn in_first_pid_namespace() -> bool {
    // Where it cannot be told, it is nearly always so.
    fs::metadata("/proc/self/ns/pid").map_or(true, |meta| meta.ino() == FIRST_PID_NAMESPACE)
}

/// Reads one procfs file whole.
///
/// The files of procfs say nothing about their size, and a process can end
/// between `open` and `read`, which comes back as `ESRCH`: both "no such file"
/// and "no such process" are [`ProcError::Gone`].
fn read(path: &Path) -> Result<Vec<u8>, ProcError> {
    fs::read(path).map_err(|source| ProcError::reading(path, source))
}

/// [`read`], as text; bytes that are not UTF-8 (a thread may call itself
/// anything) become U+FFFD.
fn read_text(path: &Path) -> Result<String, ProcError> {
    read(path).map(|bytes| match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}
