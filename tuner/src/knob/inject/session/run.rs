//! The calls themselves, in a stopped thread.

use std::{io, time::Instant};

use super::{At, Session};
use crate::knob::inject::{
    InjectError,
    arch::RemoteIoctl,
    call::Batch,
    memory,
    ptrace::{Side, Stop},
};

/// Stops of other kinds that are let pass while one of the call is awaited.
const OTHER_STOPS: u32 = 64;

/// Signals that the kernel raises for what a thread executes. They stay as
/// they were: forcing a blocked one makes the kernel reset its handler.
const SYNCHRONOUS: [i32; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// What came of the calls.
#[derive(Debug, Default)]
pub(in crate::knob::inject) struct Ran {
    pub(in crate::knob::inject) results: Vec<i64>,
    pub(in crate::knob::inject) arguments: Vec<Vec<u8>>,
    pub(in crate::knob::inject) undone: usize,
}

impl<A: RemoteIoctl> Session<A> {
    /// Runs the calls of `batch` one after the other, up to the first that
    /// fails; then undoes those before it that can be undone.
    pub(in crate::knob::inject) fn run(
        &mut self,
        instruction: u64,
        batch: &Batch,
    ) -> Result<Ran, InjectError> {
        let block = self.prepare(instruction, batch)?;
        let mut ran = Ran::default();
        for call in &batch.calls {
            let argument = call.argument.place(block);
            let result = self.call(instruction, call.fd, call.request, argument)?;
            ran.results.push(result);
            if result < 0 {
                break;
            }
        }
        if ran.results.last().is_some_and(|&result| result < 0) {
            let done = ran.results.len() - 1;
            for call in batch.calls.iter().take(done).rev() {
                if let Some(undo) = &call.undo {
                    let argument = undo.place(block);
                    let result = self.call(instruction, call.fd, call.request, argument)?;
                    ran.undone += usize::from(result >= 0);
                }
            }
        }
        let mut after = batch.bytes.clone();
        if !after.is_empty() {
            memory::read(self.tracee.tid, block, &mut after).map_err(|source| {
                InjectError::Call {
                    call: "process_vm_readv of the arguments",
                    tid: self.tracee.tid,
                    source,
                }
            })?;
        }
        ran.arguments = batch
            .calls
            .iter()
            .map(|call| call.argument.of(&after).to_vec())
            .collect();
        Ok(ran)
    }

    /// Checks that the world is as it was before the stop, blocks signals and
    /// writes the arguments; says where those are.
    fn prepare(&mut self, instruction: u64, batch: &Batch) -> Result<u64, InjectError> {
        let tid = self.tracee.tid;
        // Memory of a thread that is being killed is gone, too.
        let pid = self.pid;
        let fault = |fault| {
            move |source: io::Error| match source.raw_os_error() {
                Some(libc::ESRCH) => InjectError::Ended { pid },
                _ => fault,
            }
        };
        // An execve since has another vDSO elsewhere.
        let mut code = vec![0; A::INSTRUCTION.len()];
        memory::read(tid, instruction, &mut code).map_err(fault(InjectError::Replaced { pid }))?;
        if code != A::INSTRUCTION {
            return Err(InjectError::Replaced { pid });
        }
        batch.check_files(self.pid)?;
        let length = batch.bytes.len();
        let block = A::scratch(&self.saved.registers, length).ok_or(InjectError::NoRoom { tid })?;
        let no_room = || fault(InjectError::NoRoom { tid });
        let mut old = vec![0; length];
        memory::read(tid, block, &mut old).map_err(no_room())?;
        self.altered = true;
        self.saved.bytes = Some((block, old));
        memory::write(tid, block, &batch.bytes).map_err(no_room())?;
        self.tracee
            .set_signal_mask(all_but_synchronous(self.saved.mask))?;
        Ok(block)
    }

    /// Runs one ioctl; the result is the kernel's, raw.
    fn call(
        &mut self,
        instruction: u64,
        fd: i32,
        request: u64,
        argument: u64,
    ) -> Result<i64, InjectError> {
        let aimed = A::aim(&self.saved.registers, instruction, fd, request, argument);
        self.tracee.set_registers(&aimed)?;
        self.reach_syscall(At::Entry)?;
        self.reach_syscall(At::Exit)?;
        let registers = self.registers()?;
        Ok(A::result(&registers))
    }

    pub(super) fn registers(&self) -> Result<A::Registers, InjectError> {
        self.tracee.registers()?.ok_or(InjectError::Compat {
            tid: self.tracee.tid,
        })
    }

    /// Lets the thread run to the entry or the exit of the call.
    ///
    /// Before the entry it can be called back. Behind it, it cannot: a thread
    /// that waits for a lock in the kernel listens to nobody, and only at the
    /// exit can its registers be put back. So that wait has no end of its own.
    pub(super) fn reach_syscall(&mut self, wanted: At) -> Result<(), InjectError> {
        let tid = self.tracee.tid;
        self.at = At::Running;
        self.tracee.resume_to_syscall()?;
        let mut deadline = Some(Instant::now() + self.limits.call);
        for _ in 0..OTHER_STOPS {
            let Some(stop) = self.tracee.wait(deadline)? else {
                if wanted == At::Entry {
                    let limit = self.limits.call;
                    return Err(InjectError::NotRun { tid, limit });
                }
                log::warn!(
                    "the call in thread {tid} takes longer than {:?}; waiting on",
                    self.limits.call
                );
                // Ends a wait that listens to signals after all.
                self.tracee.interrupt()?;
                deadline = None;
                continue;
            };
            match stop {
                Stop::Syscall => {
                    self.at = wanted;
                    return match (wanted, self.tracee.side()) {
                        (At::Entry, Side::Entry { number }) if number == A::ioctl_number() => {
                            Ok(())
                        }
                        (At::Exit, Side::Exit) | (_, Side::Untold) => Ok(()),
                        (_, side) => {
                            self.at = match side {
                                Side::Entry { .. } => At::Entry,
                                Side::Exit | Side::Untold => At::Exit,
                            };
                            Err(self.unexpected(format!("at {side:?} instead of {wanted:?}")))
                        }
                    };
                }
                Stop::Gone => {
                    self.at = At::Gone;
                    return Err(InjectError::Ended { pid: self.pid });
                }
                Stop::Signal(signal) => {
                    if !self.tracee.signal_was_sent()? {
                        // Our own doing: a filter's SIGSYS, a fault. The
                        // program must not see it.
                        self.at = At::Signal(0);
                        let what = format!("signal {signal} was raised by the call itself");
                        return Err(self.unexpected(what));
                    }
                    self.held.push(signal);
                }
                // Its process is being stopped, or an answer to an interrupt
                // that came late. It rejoins the stop when it is let go.
                Stop::Trap | Stop::Group(_) | Stop::Event(_) => {}
            }
            self.tracee.resume_to_syscall()?;
        }
        Err(self.unexpected("too many other stops".into()))
    }

    fn unexpected(&self, what: String) -> InjectError {
        InjectError::Unexpected {
            tid: self.tracee.tid,
            what,
        }
    }
}

/// All signals blocked but those the kernel raises for what is executed.
fn all_but_synchronous(mask: u64) -> u64 {
    let bits = |set: u64, signal: &i32| set | 1 << (signal - 1);
    let synchronous = SYNCHRONOUS.iter().fold(0, bits);
    !synchronous | mask
}
