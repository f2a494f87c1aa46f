//! Why a system call could not be run inside another process.

use std::{fmt, io, time::Duration};

use crate::inventory::proc::ProcError;

/// Why tracing a process was refused with `EPERM`, found out after the refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Somebody else traces it already; there can be one tracer only.
    Traced {
        /// The tracer, as procfs names it.
        tracer: i32,
    },
    /// Yama allows tracing of descendants only (1), with CAP_SYS_PTRACE only
    /// (2), or nobody until the next boot (3).
    Yama {
        /// `/proc/sys/kernel/yama/ptrace_scope`.
        scope: u32,
    },
    /// We run as another user and lack CAP_SYS_PTRACE.
    NoCapability {
        /// Effective user of the process.
        owner: Option<u32>,
    },
    /// The rights are there. What is left: a process marked not dumpable in
    /// another user namespace, or a security module (SELinux, AppArmor, …).
    SecurityModule,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Traced { tracer } => write!(
                f,
                "process {tracer} (a debugger, strace, …) traces it already, and a process has \
                 one tracer at most"
            ),
            Self::Yama { scope: 3 } => {
                f.write_str("kernel.yama.ptrace_scope is 3: nobody may trace until the next boot")
            }
            Self::Yama { scope } => write!(
                f,
                "kernel.yama.ptrace_scope is {scope} and we lack CAP_SYS_PTRACE"
            ),
            Self::NoCapability { owner: Some(owner) } => {
                write!(f, "it belongs to user {owner} and we lack CAP_SYS_PTRACE")
            }
            Self::NoCapability { owner: None } => f.write_str("we lack CAP_SYS_PTRACE"),
            Self::SecurityModule => f.write_str(
                "CAP_SYS_PTRACE is there, so a security module (SELinux, AppArmor) refuses, or \
                 it lives in a user namespace that is not ours; see the audit log",
            ),
        }
    }
}

/// Why nothing, or not everything, was run inside the target.
///
/// Whatever the error, the thread's registers, signal mask and memory are as
/// they were, except for [`InjectError::StillInside`], where that is still to
/// come.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// Only x86-64 is implemented.
    #[error("running a system call inside another process is implemented for x86-64 only")]
    Unsupported,
    /// The call itself was not usable.
    #[error("{0}")]
    Argument(&'static str),
    /// The process ended; the registers no longer matter.
    #[error("process {pid} ended")]
    Ended {
        /// The process.
        pid: i32,
    },
    /// Another process has that pid now.
    #[error("process {pid} is not the one that was looked at before: its pid was reused")]
    Reused {
        /// The process.
        pid: i32,
    },
    /// The process has replaced its program, `execve(2)`, since it was looked at.
    #[error("process {pid} started another program meanwhile")]
    Replaced {
        /// The process.
        pid: i32,
    },
    /// The kernel does not let us trace it.
    #[error("not allowed to trace process {pid}: {why}")]
    Refused {
        /// The process.
        pid: i32,
        /// Why.
        why: Refusal,
    },
    /// The process is stopped by a signal (`T`) and is left alone: whoever
    /// stopped it expects that nothing of it runs.
    #[error("process {pid} is stopped by a signal; let it continue first")]
    Stopped {
        /// The process.
        pid: i32,
    },
    /// There is no thread to do it in.
    #[error("no thread of process {pid} can run the call: {why}")]
    NoThread {
        /// The process.
        pid: i32,
        /// What kind of threads there are.
        why: String,
    },
    /// No `syscall` instruction was found in a vDSO.
    #[error(
        "process {pid} has no vDSO with a system call instruction in it; was the host booted \
         with vdso=0?"
    )]
    NoVdso {
        /// The process.
        pid: i32,
    },
    /// The thread runs 32-bit code, whose system calls are other ones.
    #[error("thread {tid} runs 32-bit code; only 64-bit processes are supported")]
    Compat {
        /// The thread.
        tid: i32,
    },
    /// The target's seccomp filter could not be suspended, and it might kill
    /// the process for a call it does not know.
    #[error(
        "process {pid} runs under a seccomp filter (mode {mode}) that may kill it for an ioctl \
         it does not expect, and the filter cannot be suspended for the call: {why}"
    )]
    Filtered {
        /// The process.
        pid: i32,
        /// `Seccomp:` of its status.
        mode: u32,
        /// Why not.
        why: &'static str,
    },
    /// The descriptor is not the file the caller meant.
    #[error("descriptor {fd} of process {pid} is {found}, not {wanted}")]
    WrongFile {
        /// The process.
        pid: i32,
        /// Its descriptor.
        fd: i32,
        /// What it is now.
        found: String,
        /// What it should be.
        wanted: String,
    },
    /// The thread did not stop in time; it was let go, unchanged.
    #[error("thread {tid} did not stop within {limit:?}: it sits in an uninterruptible call")]
    NotStopping {
        /// The thread.
        tid: i32,
        /// The limit.
        limit: Duration,
    },
    /// The thread was inside a restartable sequence (rseq) each time.
    #[error("thread {tid} was inside a restartable sequence each time it was stopped")]
    InSequence {
        /// The thread.
        tid: i32,
    },
    /// There is no room for the argument below the thread's stack pointer.
    #[error("no writable memory below the stack pointer of thread {tid}")]
    NoRoom {
        /// The thread.
        tid: i32,
    },
    /// The thread did not come to the injected call in time; it was put back
    /// and let go. Is its cgroup frozen, or its CPU fully taken?
    #[error("thread {tid} did not run within {limit:?}; nothing was changed")]
    NotRun {
        /// The thread.
        tid: i32,
        /// The limit.
        limit: Duration,
    },
    /// The call has not returned. A background thread of ours keeps waiting
    /// and puts the target's thread back as soon as it returns; see
    /// [`in_flight`](super::in_flight).
    #[error(
        "the call has not returned after {after:?}: the thread waits for a lock in the kernel. \
         It is put back as soon as the call returns; do not kill this program until then"
    )]
    StillInside {
        /// How long it was waited for.
        after: Duration,
    },
    /// The thread stopped in a way that should not occur; it was put back.
    #[error("thread {tid} stopped unexpectedly while running the call: {what}")]
    Unexpected {
        /// The thread.
        tid: i32,
        /// How.
        what: String,
    },
    /// A system call of ours failed.
    #[error("{call} for thread {tid}: {source}")]
    Call {
        /// Which one.
        call: &'static str,
        /// The thread it was about.
        tid: i32,
        /// What it said.
        source: io::Error,
    },
    /// procfs did not tell what had to be known.
    #[error(transparent)]
    Proc(#[from] ProcError),
}

impl InjectError {
    /// Whether another thread of the same process may do better.
    pub(super) fn another_thread_may_do(&self) -> bool {
        matches!(
            self,
            Self::NotStopping { .. }
                | Self::InSequence { .. }
                | Self::NoRoom { .. }
                | Self::NotRun { .. }
                | Self::Compat { .. }
                // The thread ended; the process need not have.
                | Self::Ended { .. }
        )
    }
}
