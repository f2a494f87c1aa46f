//! Runs an `ioctl` inside another process.
//!
//! The kernel lets only the process that owns a vhost device change its rings
//! (`vhost_dev_check_owner` compares address spaces), so on a stock vhost_net
//! the one way to change a busyloop timeout from outside is to have one thread
//! of the VMM make the call. The VM and the guest are not touched.
//!
//! # What happens
//!
//! 1. *Before the stop*, everything that can be done: a pidfd of the process
//!    is opened and its start time checked; a `syscall` instruction is looked up in
//!    its vDSO; its threads are ranked by how little they are missed
//!    (`threads.rs`). Workers of the kernel inside the process (vhost since
//!    6.4, io_uring) never go to user mode and are never touched.
//! 2. One thread is seized (`PTRACE_SEIZE` changes nothing yet), checked to be
//!    the one meant, and interrupted. It stops inside the kernel's signal code,
//!    on its way to user mode.
//! 3. Its registers and signal mask are read; all signals but those that
//!    instructions cause are blocked, so that they stay pending, siginfo and
//!    all, and none is lost or reordered. In a call that swaps the mask (ppoll,
//!    sigsuspend, …) the kernel has the outer mask set aside at this point and
//!    reads and writes are of that one; the call, when it starts again, swaps
//!    anew.
//! 4. The arguments are written below the red zone, with the old bytes kept.
//!    Registers are pointed at the `syscall` instruction, and the thread runs
//!    up to the entry of that call, then up to its exit; each stop is checked
//!    to be the one expected. A batch does this several times in one stop.
//! 5. Registers, mask and bytes are put back at the exit, and from there the
//!    thread is taken to a second stop inside the signal code and let go. That
//!    way the *kernel* restarts the interrupted call, or returns `EINTR` from
//!    it when a handler is to run, as it would have done without us. Doing it
//!    by hand (the call's number back into `rax`, `rip` back by two) would run
//!    a handler *before* the call starts again, and lose the wake-up of a
//!    program that waits for one.
//! 6. Calls that return a plain `EINTR` to any interruption (epoll_wait,
//!    sigtimedwait, sockets with SO_RCVTIMEO, … in signal(7)) get the kernel's
//!    own mark for "start again unless a handler runs" instead. Only where
//!    `EINTR` says that nothing was done. Their relative time limit then starts
//!    afresh; those whose limit matters are the last to be chosen.
//!
//! Not saved, because a system call does not touch it: the floating-point and
//! vector registers (the kernel keeps them across every call), the shadow stack
//! (`syscall` pushes nothing) and debug registers. A thread caught inside a
//! restartable sequence (rseq) is let go and tried again, since only the kernel
//! can abort that properly.
//!
//! # What can still go wrong
//!
//! * **The call takes long.** Setting a ring's timeout waits for its mutex, so
//!   for a worker's spin. A thread waiting there cannot be called back. After
//!   [`Limits::hold`] the caller gets [`InjectError::StillInside`], and a
//!   background thread goes on waiting and puts the thread back.
//! * **We are killed with `kill -9`** between pointing the registers at the call
//!   and putting them back (tens of microseconds, unless the call waits): the
//!   kernel lets the thread go as it is. It makes the ioctl and then goes on in
//!   the vDSO with registers that are not its own, and the VMM most likely
//!   crashes. A few microseconds before and after that window only its signal
//!   mask or some bytes below its stack would be off; outside nothing is lost.
//!   Signals that can be handled do no harm if the program handles them or
//!   blocks them in all threads: the tracing thread blocks all; see
//!   [`wait_until_idle`].
//! * **A partial transfer.** A blocking `write` or a `recv(MSG_WAITALL)` that
//!   has moved some bytes returns that count when interrupted, as for any
//!   signal.
//! * **Another user of `SIGCHLD`.** Stops of a traced thread raise it in this
//!   process, and `waitpid(-1, …)` elsewhere in this process would steal them.

#[cfg(target_arch = "x86_64")]
mod arch;
mod call;
mod error;
#[cfg(target_arch = "x86_64")]
mod memory;
#[cfg(target_arch = "x86_64")]
mod ptrace;
#[cfg(target_arch = "x86_64")]
mod refusal;
#[cfg(target_arch = "x86_64")]
mod restart;
#[cfg(target_arch = "x86_64")]
mod session;
mod target;
#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests;
#[cfg(target_arch = "x86_64")]
mod threads;
#[cfg(target_arch = "x86_64")]
mod tracer;
#[cfg(target_arch = "x86_64")]
mod vdso;
mod vring;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::{io, time::Duration};

#[cfg(target_arch = "x86_64")]
pub use arch::{Interrupted, RemoteIoctl};
pub use call::{Argument, Call};
pub use error::{InjectError, Refusal};
pub use target::Target;
#[cfg(target_arch = "x86_64")]
pub use tracer::{in_flight, wait_until_idle};
pub use vring::{
    VHOST_GET_VRING_BUSYLOOP_TIMEOUT, VHOST_SET_VRING_BUSYLOOP_TIMEOUT, busyloop_of, get_busyloop,
    set_busyloop,
};
#[cfg(target_arch = "x86_64")]
pub use x86_64::X86_64;

/// True on the processors that this is written for.
pub const IMPLEMENTED: bool = cfg!(target_arch = "x86_64");

/// Nothing is ever under way where nothing is implemented.
#[cfg(not(target_arch = "x86_64"))]
pub fn in_flight() -> usize {
    0
}

/// Returns true at once: see [`in_flight`].
#[cfg(not(target_arch = "x86_64"))]
pub fn wait_until_idle(_limit: Duration) -> bool {
    true
}

/// How long each part may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For a thread to stop. Beyond it the thread is let go and another tried.
    pub stop: Duration,
    /// For one call to begin; beyond it the thread is put back. Also for it to
    /// end; beyond that a warning is logged and the wait goes on.
    pub call: Duration,
    /// For everything; beyond it the caller gets [`InjectError::StillInside`].
    pub hold: Duration,
}

impl Default for Limits {
    /// 100 ms, 200 ms, 5 s.
    fn default() -> Self {
        Self {
            stop: Duration::from_millis(100),
            call: Duration::from_millis(200),
            hold: Duration::from_secs(5),
        }
    }
}

/// What came of a batch of calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The thread they ran in.
    pub tid: i32,
    /// The kernel's results, raw: a value, or a negative errno. As many as
    /// calls were made: a failed one is the last.
    pub results: Vec<i64>,
    /// The arguments as they are after the calls, one per call of the batch;
    /// empty for [`Argument::Value`].
    pub arguments: Vec<Vec<u8>>,
    /// Calls undone after a failure.
    pub undone: usize,
    /// From asking the thread to stop until it was let go, nanoseconds. The
    /// thread stood still for at most this long.
    pub stopped_ns: u64,
    /// Number of the system call that was interrupted, if one was.
    pub interrupted_syscall: Option<i64>,
    /// Whether that call had returned `EINTR` and was issued again.
    pub reissued: bool,
    /// Whether the thread has a seccomp filter, which was suspended for it.
    pub filter_suspended: bool,
}

impl Outcome {
    /// The call that failed, by its place in the batch, and its error.
    pub fn failure(&self) -> Option<(usize, io::Error)> {
        let (at, &result) = self.results.iter().enumerate().next_back()?;
        if result >= 0 {
            return None;
        }
        let errno = i32::try_from(result.unsigned_abs()).unwrap_or(libc::EINVAL);
        // The kernel's "start again" marks mean that a signal broke in.
        let errno = if errno >= 512 { libc::EINTR } else { errno };
        Some((at, io::Error::from_raw_os_error(errno)))
    }
}

/// Runs one `ioctl(fd, request, argument)` inside `target`, with a pointer to a
/// copy of `argument`; see [`ioctls_in`].
///
/// # Errors
///
/// See [`InjectError`]. A failing ioctl is no error here but a result.
pub fn ioctl_in(
    target: &Target,
    fd: i32,
    request: u64,
    argument: &[u8],
    limits: &Limits,
) -> Result<Outcome, InjectError> {
    ioctls_in(target, &[Call::new(fd, request, argument)], limits)
}

/// Runs several ioctls inside `target`, in one thread and one stop.
///
/// They run in order up to the first that fails; those before it that have an
/// [`undo`](Call::undo) are then undone, last first, within the same stop.
///
/// Needs the right to trace the target: CAP_SYS_PTRACE, or the same user and no
/// Yama in the way; and CAP_SYS_ADMIN where it runs under a seccomp filter.
/// Blocks the calling thread for [`Limits::hold`] per thread tried at most. A
/// target that is a child of this process and ends during the stop is reaped
/// here, so a `waitpid` for it elsewhere finds nothing.
///
/// # Errors
///
/// See [`InjectError`]. A failing ioctl is no error here but a result.
pub fn ioctls_in(target: &Target, calls: &[Call], limits: &Limits) -> Result<Outcome, InjectError> {
    let batch = call::Batch::new(calls)?;
    #[cfg(target_arch = "x86_64")]
    return tracer::run::<X86_64>(target, &batch, limits);
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (target, limits, batch);
        Err(InjectError::Unsupported)
    }
}
