//! The thread of ours that does the tracing.
//!
//! ptrace ties a seizure to the thread that made it, and the end of that thread
//! is the one way to let go a thread that never stopped. So each attempt gets a
//! thread of its own. It also outlives a caller that has waited long enough,
//! because the target's thread must be put back whatever it takes.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    InjectError, Limits, Outcome, Target, arch::RemoteIoctl, call::Batch, ptrace::Tracee, refusal,
    session::Session, target::Hold, threads, vdso,
};
use crate::inventory::proc::{ProcStat, ProcStatus};

/// `PTRACE_O_SUSPEND_SECCOMP`, since 4.3 with CONFIG_CHECKPOINT_RESTORE.
const SUSPEND_SECCOMP: i32 = 1 << 21;
const CAP_SYS_ADMIN: u64 = 1 << 21;

/// Threads to try before giving up.
const THREADS_MAX: usize = 4;
/// Tries on one thread that sits in a restartable sequence; those last
/// nanoseconds, so one more is enough nearly always.
const SEQUENCE_TRIES: u32 = 8;

/// Tracing threads that have not finished.
static IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);

/// Stops under way in this process, including those whose caller was told
/// [`InjectError::StillInside`].
///
/// Ending this process while it is not 0 leaves a thread of the target with
/// foreign registers and crashes the target. See [`wait_until_idle`].
pub fn in_flight() -> usize {
    IN_FLIGHT.load(Ordering::SeqCst)
}

/// Waits until nothing is [`in_flight`], `limit` at most; false when it still
/// is. To be called before a program ends.
pub fn wait_until_idle(limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while in_flight() > 0 {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

struct Flight;

impl Flight {
    fn new() -> Self {
        IN_FLIGHT.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        IN_FLIGHT.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Finds a thread and runs the batch in it.
///
/// A process on its way out fails each step in that step's own way, so whatever
/// went wrong is looked at once more.
pub(super) fn run<A: RemoteIoctl>(
    target: &Target,
    batch: &Batch,
    limits: &Limits,
) -> Result<Outcome, InjectError> {
    let hold = Arc::new(target.hold()?);
    in_some_thread::<A>(&hold, batch, limits).map_err(|error| match error {
        InjectError::StillInside { .. } | InjectError::Reused { .. } => error,
        _ if target.is_alive() => error,
        _ => InjectError::Ended { pid: target.pid },
    })
}

fn in_some_thread<A: RemoteIoctl>(
    hold: &Arc<Hold>,
    batch: &Batch,
    limits: &Limits,
) -> Result<Outcome, InjectError> {
    let pid = hold.target.pid;
    let instruction = vdso::find(pid, A::INSTRUCTION)?;
    let mut last = InjectError::Ended { pid };
    for candidate in threads::candidates(pid)?.iter().take(THREADS_MAX) {
        match run_in::<A>(hold, candidate.tid, instruction, batch, limits) {
            Err(error) if error.another_thread_may_do() => last = error,
            done => return done,
        }
    }
    Err(last)
}

/// Runs the batch in one thread of the target.
pub(super) fn run_in<A: RemoteIoctl>(
    hold: &Arc<Hold>,
    tid: i32,
    instruction: u64,
    batch: &Batch,
    limits: &Limits,
) -> Result<Outcome, InjectError> {
    let (hold, batch, limits) = (Arc::clone(hold), batch.clone(), *limits);
    let flight = Flight::new();
    let (send, receive) = mpsc::sync_channel(1);
    let spawned = thread::Builder::new()
        .name("vhost-tuner-inj".into())
        .spawn(move || {
            // Sent after the flight ended, so that a caller who has the answer
            // sees none under way.
            let answer = {
                let _flight = flight;
                quiet();
                attempt::<A>(&hold, tid, instruction, &batch, &limits)
            };
            // The caller may have left.
            let _ = send.send(answer);
        });
    spawned.map_err(|source| InjectError::Call {
        call: "clone of a tracing thread",
        tid,
        source,
    })?;
    match receive.recv_timeout(limits.hold) {
        Ok(answer) => answer,
        Err(mpsc::RecvTimeoutError::Timeout) => {
            Err(InjectError::StillInside { after: limits.hold })
        }
        // It panicked, and its session's guard has put the thread back.
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(InjectError::Unexpected {
            tid,
            what: "the tracing thread panicked".into(),
        }),
    }
}

/// Keeps signals away from this thread, and its sleeps short.
fn quiet() {
    // SAFETY: the set is ours and is filled before it is used; prctl takes
    // numbers only. Both concern the calling thread alone.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0);
    }
}

fn attempt<A: RemoteIoctl>(
    hold: &Hold,
    tid: i32,
    instruction: u64,
    batch: &Batch,
    limits: &Limits,
) -> Result<Outcome, InjectError> {
    let mut tries = 0;
    loop {
        let (tracee, filter_suspended) = seize(hold.target.pid, tid)?;
        match Session::<A>::stop(hold, tracee, *limits) {
            Err(InjectError::InSequence { .. }) if tries < SEQUENCE_TRIES => {
                tries += 1;
                thread::yield_now();
            }
            Err(error) => return Err(error),
            Ok(mut session) => {
                let ran = session.run(instruction, batch);
                let left = session.leave();
                // What went wrong first is what counts.
                let ran = ran?;
                let left = left?;
                return Ok(Outcome {
                    tid,
                    results: ran.results,
                    arguments: ran.arguments,
                    undone: ran.undone,
                    stopped_ns: left.stopped_ns,
                    interrupted_syscall: left.interrupted,
                    reissued: left.reissued,
                    filter_suspended,
                });
            }
        }
    }
}

/// Seizes a thread, with its seccomp filter suspended if it has one.
///
/// A filter may kill the process for an ioctl it does not expect, as those of
/// crosvm and Cloud Hypervisor do. CRIU's option switches the filter off for
/// this one thread while it is traced, also when we die.
pub(super) fn seize(pid: i32, tid: i32) -> Result<(Tracee, bool), InjectError> {
    let status = ProcStatus::of_thread(pid, tid).map_err(|error| {
        if error.is_gone() {
            InjectError::Ended { pid }
        } else {
            error.into()
        }
    })?;
    let mode = status.seccomp.unwrap_or(0);
    let filtered = |why| InjectError::Filtered { pid, mode, why };
    if mode == 1 {
        return Err(filtered("strict mode allows no ioctl, so this is no VMM"));
    }
    let options = libc::PTRACE_O_TRACESYSGOOD | if mode == 0 { 0 } else { SUSPEND_SECCOMP };
    match Tracee::seize(tid, options) {
        Ok(tracee) => Ok((tracee, mode != 0)),
        Err(error) => Err(match error.raw_os_error() {
            Some(libc::ESRCH) => InjectError::Ended { pid },
            // Threads on their way out are refused like forbidden ones.
            Some(libc::EPERM) if has_ended(pid, tid) => InjectError::Ended { pid },
            Some(libc::EINVAL) if mode != 0 => {
                filtered("this kernel is built without CONFIG_CHECKPOINT_RESTORE")
            }
            Some(libc::EPERM) if mode != 0 => match why_not_suspended() {
                Some(why) if status.tracer.is_none() => filtered(why),
                _ => refusal::refused(pid),
            },
            Some(libc::EPERM) => refusal::refused(pid),
            _ => seize_failed(tid, error),
        }),
    }
}

fn has_ended(pid: i32, tid: i32) -> bool {
    ProcStat::of_thread(pid, tid).map_or(true, |stat| stat.is_exiting())
}

fn why_not_suspended() -> Option<&'static str> {
    let ours = ProcStatus::of_self().ok()?;
    if ours.seccomp != Some(0) {
        return Some("we run under a seccomp filter ourselves");
    }
    let capable = ours
        .capabilities
        .is_some_and(|set| set & CAP_SYS_ADMIN != 0);
    (!capable).then_some("that needs CAP_SYS_ADMIN")
}

fn seize_failed(tid: i32, source: io::Error) -> InjectError {
    InjectError::Call {
        call: "ptrace(PTRACE_SEIZE)",
        tid,
        source,
    }
}
