//! Who runs where: on few processors the scheduler's moods would be measured
//! otherwise.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};

/// The vhost workers of a process. They are kernel threads, or since Linux 6.4
/// threads of the process; both are called `vhost-PID`.
pub(super) fn workers(pid: u32) -> Result<Vec<i32>> {
    let name = format!("vhost-{pid}");
    let mut found = threads_of(pid)?;
    found.extend(threads("/proc")?);
    found.retain(|tid| {
        fs::read_to_string(format!("/proc/{tid}/comm")).is_ok_and(|comm| comm.trim() == name)
    });
    ensure!(!found.is_empty(), "found no vhost worker of process {pid}");
    Ok(found)
}

/// Keeps the workers of a process to one processor.
pub(super) fn pin_workers(pid: u32, cpu: usize) -> Result<()> {
    for tid in workers(pid)? {
        pin(tid, &[cpu]).context("pin a vhost worker")?;
    }
    Ok(())
}

/// Keeps all threads that a process has now to these processors.
pub(super) fn pin_process(pid: u32, cpus: &[usize]) -> Result<()> {
    for tid in threads_of(pid)? {
        pin(tid, cpus).with_context(|| format!("pin a thread of process {pid}"))?;
    }
    Ok(())
}

/// Keeps the calling thread, and those it starts from now on, to these processors.
pub(super) fn pin_self(cpus: &[usize]) -> Result<()> {
    pin(0, cpus).context("pin ourselves")
}

/// All threads that a process has now.
pub(super) fn threads_of(pid: u32) -> Result<Vec<i32>> {
    threads(&format!("/proc/{pid}/task"))
}

fn threads(dir: &str) -> Result<Vec<i32>> {
    let entries = fs::read_dir(Path::new(dir)).with_context(|| format!("read {dir}"))?;
    Ok(entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect())
}

fn pin(tid: i32, cpus: &[usize]) -> Result<()> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus {
        // SAFETY: the number of a processor that is far below CPU_SETSIZE.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    // SAFETY: the set is ours and of the size that is given.
    let done = unsafe { libc::sched_setaffinity(tid, size_of_val(&set), &raw const set) };
    if done != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(())
}
