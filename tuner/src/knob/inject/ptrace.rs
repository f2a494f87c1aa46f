//! The ptrace requests needed, one method each, and waiting with a limit.
//!
//! ptrace is per thread: all of this must be called by the thread that seized.

use std::{
    io,
    marker::PhantomData,
    mem::MaybeUninit,
    thread,
    time::{Duration, Instant},
};

use super::InjectError;

/// `NT_PRSTATUS`: the register set with the general registers.
const NT_PRSTATUS: usize = 1;
/// Size of the kernel's signal set, bytes; the C library's is larger.
const SIGSET: usize = 8;
/// Since 5.13, linux/ptrace.h.
const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
/// Since 5.3.
const PTRACE_GET_SYSCALL_INFO: libc::c_uint = 0x420e;
const PTRACE_EVENT_STOP: i32 = 128;

/// How long to look for a stop without sleeping. A thread that is running or
/// wakes at once stops within this.
const EAGER: Duration = Duration::from_micros(300);
/// Longest sleep between two looks.
const NAP_MAX: Duration = Duration::from_micros(500);

/// How a thread has stopped, ptrace(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// By `PTRACE_INTERRUPT`, inside the kernel's signal code.
    Trap,
    /// With its whole process, by this signal.
    Group(i32),
    /// At the entry or exit of a system call.
    Syscall,
    /// About to receive this signal.
    Signal(i32),
    /// Another event, none of which is asked for.
    Event(i32),
    /// It ended.
    Gone,
}

/// Which side of a system call a [`Stop::Syscall`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Entry {
        number: i64,
    },
    Exit,
    /// Kernels before 5.3 do not tell.
    Untold,
}

/// A seized thread. Letting our own thread end lets it go, stopped or not.
#[derive(Debug)]
pub(super) struct Tracee {
    pub(super) tid: i32,
    /// Tied to the thread that seized.
    not_send: PhantomData<*const ()>,
}

/// `struct ptrace_rseq_configuration`.
#[repr(C)]
struct RseqConfiguration {
    pointer: u64,
    size: u32,
    signature: u32,
    flags: u32,
    pad: u32,
}

impl Tracee {
    /// `PTRACE_SEIZE`: becomes the tracer without stopping the thread. The
    /// error is the kernel's own; its meaning depends on `options`.
    pub(super) fn seize(tid: i32, options: i32) -> io::Result<Self> {
        let tracee = Self {
            tid,
            not_send: PhantomData,
        };
        tracee.raw(libc::PTRACE_SEIZE, 0, options as usize)?;
        Ok(tracee)
    }

    /// Asks for a [`Stop::Trap`]. The next stop of *any* kind answers it.
    pub(super) fn interrupt(&self) -> Result<(), InjectError> {
        self.call("ptrace(PTRACE_INTERRUPT)", libc::PTRACE_INTERRUPT, 0, 0)
    }

    /// Lets it run, delivering `signal` (0: none) at a signal stop.
    pub(super) fn resume(&self, signal: i32) -> Result<(), InjectError> {
        self.call("ptrace(PTRACE_CONT)", libc::PTRACE_CONT, 0, signal as usize)
    }

    /// Lets it run up to the next entry or exit of a system call.
    pub(super) fn resume_to_syscall(&self) -> Result<(), InjectError> {
        self.call("ptrace(PTRACE_SYSCALL)", libc::PTRACE_SYSCALL, 0, 0)
    }

    /// Lets it go for good, delivering `signal` (0: none) at a signal stop.
    pub(super) fn detach(&self, signal: i32) -> Result<(), InjectError> {
        self.call(
            "ptrace(PTRACE_DETACH)",
            libc::PTRACE_DETACH,
            0,
            signal as usize,
        )
    }

    /// The general registers; `None` when the kernel's set has another size,
    /// as it has for 32-bit threads.
    pub(super) fn registers<R: Copy>(&self) -> Result<Option<R>, InjectError> {
        let mut registers = MaybeUninit::<R>::zeroed();
        let mut io = libc::iovec {
            iov_base: registers.as_mut_ptr().cast(),
            iov_len: size_of::<R>(),
        };
        self.call(
            "ptrace(PTRACE_GETREGSET)",
            libc::PTRACE_GETREGSET,
            NT_PRSTATUS,
            (&raw mut io).addr(),
        )?;
        // SAFETY: R is a plain register struct of integers; the kernel has
        // filled all of it, or part over zeros.
        let registers = unsafe { registers.assume_init() };
        Ok((io.iov_len == size_of::<R>()).then_some(registers))
    }

    /// Replaces the general registers.
    pub(super) fn set_registers<R: Copy>(&self, registers: &R) -> Result<(), InjectError> {
        let io = libc::iovec {
            iov_base: (&raw const *registers).cast_mut().cast(),
            iov_len: size_of::<R>(),
        };
        self.call(
            "ptrace(PTRACE_SETREGSET)",
            libc::PTRACE_SETREGSET,
            NT_PRSTATUS,
            (&raw const io).addr(),
        )
    }

    /// The thread's signal mask. In a call that swaps the mask (ppoll,
    /// sigsuspend, …) the one that comes back when the call ends.
    pub(super) fn signal_mask(&self) -> Result<u64, InjectError> {
        let mut mask = 0u64;
        self.call(
            "ptrace(PTRACE_GETSIGMASK)",
            libc::PTRACE_GETSIGMASK,
            SIGSET,
            (&raw mut mask).addr(),
        )?;
        Ok(mask)
    }

    /// Replaces the signal mask, also the one a call would bring back.
    pub(super) fn set_signal_mask(&self, mask: u64) -> Result<(), InjectError> {
        self.call(
            "ptrace(PTRACE_SETSIGMASK)",
            libc::PTRACE_SETSIGMASK,
            SIGSET,
            (&raw const mask).addr(),
        )
    }

    /// Whether the signal it is about to receive was sent by somebody
    /// (`si_code` ≤ 0), rather than caused by what it executed.
    pub(super) fn signal_was_sent(&self) -> Result<bool, InjectError> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        self.call(
            "ptrace(PTRACE_GETSIGINFO)",
            libc::PTRACE_GETSIGINFO,
            0,
            info.as_mut_ptr().addr(),
        )?;
        // SAFETY: zeroed, then filled by the kernel; any bits are a siginfo_t.
        Ok(unsafe { info.assume_init() }.si_code <= 0)
    }

    /// Which side of a system call it stopped at.
    pub(super) fn side(&self) -> Side {
        // op, three bytes of padding, arch, two addresses, then the union.
        let mut info = [0u64; 11];
        let size = size_of_val(&info);
        if self
            .raw(PTRACE_GET_SYSCALL_INFO, size, info.as_mut_ptr().addr())
            .is_err()
        {
            return Side::Untold;
        }
        match info[0].to_ne_bytes()[0] {
            1 => Side::Entry {
                number: info[3].cast_signed(),
            },
            2 => Side::Exit,
            _ => Side::Untold,
        }
    }

    /// Address of the thread's `struct rseq`, if it has registered one and the
    /// kernel tells.
    pub(super) fn rseq(&self) -> Option<u64> {
        let mut rseq = MaybeUninit::<RseqConfiguration>::zeroed();
        let size = size_of::<RseqConfiguration>();
        self.raw(
            PTRACE_GET_RSEQ_CONFIGURATION,
            size,
            rseq.as_mut_ptr().addr(),
        )
        .ok()?;
        // SAFETY: zeroed, then filled by the kernel; integers only.
        let pointer = unsafe { rseq.assume_init() }.pointer;
        (pointer != 0).then_some(pointer)
    }

    /// Waits for the next stop, `None` when there is none up to `deadline`.
    ///
    /// Polled, because `waitpid` takes no limit and a signal to end it would
    /// need a handler of ours: without sleeping first, then ever more lazily.
    pub(super) fn wait(&self, deadline: Option<Instant>) -> Result<Option<Stop>, InjectError> {
        let began = Instant::now();
        let mut nap = Duration::from_micros(20);
        loop {
            let mut status = 0;
            let options = libc::__WALL | libc::WNOHANG;
            // SAFETY: `status` is ours for the length of the call.
            let waited = unsafe { libc::waitpid(self.tid, &raw mut status, options) };
            if waited == self.tid {
                return Ok(Some(decode(status)));
            }
            if waited < 0 {
                let source = io::Error::last_os_error();
                return match source.raw_os_error() {
                    // No longer ours: it ended, or another thread of its
                    // process called execve.
                    Some(libc::ECHILD | libc::ESRCH) => Ok(Some(Stop::Gone)),
                    Some(libc::EINTR) => continue,
                    _ => Err(self.error("waitpid", source)),
                };
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(None);
            }
            if now - began < EAGER {
                thread::yield_now();
            } else {
                thread::sleep(nap);
                nap = (nap * 2).min(NAP_MAX);
            }
        }
    }

    fn call(
        &self,
        call: &'static str,
        request: libc::c_uint,
        address: usize,
        data: usize,
    ) -> Result<(), InjectError> {
        self.raw(request, address, data)
            .map_err(|source| match source.raw_os_error() {
                // Stopped threads leave only by being killed.
                Some(libc::ESRCH) => InjectError::Ended { pid: self.tid },
                _ => self.error(call, source),
            })
    }

    fn raw(&self, request: libc::c_uint, address: usize, data: usize) -> io::Result<()> {
        // SAFETY: the requests used here read or write at most what `address`
        // and `data` describe, which the callers above keep alive and sized;
        // everything else happens in the other thread.
        let result = unsafe { libc::ptrace(request, self.tid, address, data) };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    fn error(&self, call: &'static str, source: io::Error) -> InjectError {
        InjectError::Call {
            call,
            tid: self.tid,
            source,
        }
    }
}

fn decode(status: i32) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Gone;
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Stop::Trap,
        PTRACE_EVENT_STOP => Stop::Group(signal),
        0 if signal == libc::SIGTRAP | 0x80 => Stop::Syscall,
        0 => Stop::Signal(signal),
        event => Stop::Event(event),
    }
}
