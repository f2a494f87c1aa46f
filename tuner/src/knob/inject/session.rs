//! One stop of one thread, from the seizure to letting it go.
//!
//! The order of things, and why, is told in the module's own documentation.

use std::time::Instant;

use super::{
    InjectError, Limits,
    arch::RemoteIoctl,
    memory,
    ptrace::{Stop, Tracee},
    target::Hold,
};

mod leave;
mod run;

/// Where the thread is, as far as ptrace goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Running, or about to.
    Running,
    /// Stopped inside the kernel's signal code.
    Trap,
    /// Stopped before a system call.
    Entry,
    /// Stopped behind one.
    Exit,
    /// Stopped before a signal; which is to be delivered on leaving (or 0).
    Signal(i32),
    /// Ended.
    Gone,
}

/// What the thread had, to be put back.
struct Saved<R> {
    registers: R,
    mask: u64,
    /// The bytes under the arguments, and where.
    bytes: Option<(u64, Vec<u8>)>,
}

/// A seized and stopped thread.
pub(super) struct Session<A: RemoteIoctl> {
    pid: i32,
    tracee: Tracee,
    limits: Limits,
    began: Instant,
    at: At,
    saved: Saved<A::Registers>,
    /// The thread carries something of ours.
    altered: bool,
    /// Signals that cannot be blocked and came in between; sent anew at the end.
    held: Vec<i32>,
}

impl<A: RemoteIoctl> Session<A> {
    /// Stops a seized thread and looks at it; changes nothing.
    pub(super) fn stop(hold: &Hold, tracee: Tracee, limits: Limits) -> Result<Self, InjectError> {
        let (pid, tid) = (hold.target.pid, tracee.tid);
        hold.check_thread(tid)?;
        let began = Instant::now();
        tracee.interrupt()?;
        let deadline = began + limits.stop;
        loop {
            match tracee.wait(Some(deadline))? {
                Some(Stop::Trap) => break,
                Some(Stop::Group(_)) => {
                    tracee.detach(0)?;
                    return Err(InjectError::Stopped { pid });
                }
                // A signal came first and its stop has used up the interrupt.
                Some(Stop::Signal(signal)) => {
                    tracee.interrupt()?;
                    tracee.resume(signal)?;
                }
                Some(Stop::Syscall | Stop::Event(_)) => {
                    tracee.interrupt()?;
                    tracee.resume(0)?;
                }
                Some(Stop::Gone) => return Err(InjectError::Ended { pid }),
                // Our thread ends with this error, and so does the seizure.
                None => {
                    let limit = limits.stop;
                    return Err(InjectError::NotStopping { tid, limit });
                }
            }
        }
        let looked = Self::look(&tracee);
        match looked {
            Ok(saved) => Ok(Self {
                pid,
                tracee,
                limits,
                began,
                at: At::Trap,
                saved,
                altered: false,
                held: Vec::new(),
            }),
            Err(error) => {
                tracee.detach(0)?;
                Err(error)
            }
        }
    }

    fn look(tracee: &Tracee) -> Result<Saved<A::Registers>, InjectError> {
        let tid = tracee.tid;
        let registers = tracee
            .registers::<A::Registers>()?
            .filter(A::is_native)
            .ok_or(InjectError::Compat { tid })?;
        if A::in_user_mode(&registers) && in_sequence(tracee, A::program_counter(&registers)) {
            return Err(InjectError::InSequence { tid });
        }
        Ok(Saved {
            registers,
            mask: tracee.signal_mask()?,
            bytes: None,
        })
    }
}

/// Whether the thread is inside a restartable sequence, rseq(2). Moving it away
/// and back would hide from the kernel that the sequence must be aborted, so
/// such a thread is let go at once and the kernel aborts it as usual.
fn in_sequence(tracee: &Tracee, at: u64) -> bool {
    let read = |address| memory::read_u64(tracee.tid, address).ok();
    let Some(descriptor) = tracee.rseq().and_then(|rseq| read(rseq + 8)) else {
        return false;
    };
    if descriptor == 0 {
        return false;
    }
    // struct rseq_cs: version and flags, start, length, abort address.
    let (Some(start), Some(length)) = (
        descriptor.checked_add(8).and_then(read),
        descriptor.checked_add(16).and_then(read),
    ) else {
        return false;
    };
    at.wrapping_sub(start) < length
}
