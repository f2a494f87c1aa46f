//! Putting everything back and letting the thread go.

use std::time::Instant;

use super::{At, Session};
use crate::knob::inject::{
    InjectError,
    arch::{Interrupted, RemoteIoctl},
    memory,
    ptrace::{Side, Stop},
    restart,
};

/// What was seen on the way out.
#[derive(Debug)]
pub(in crate::knob::inject) struct Left {
    pub(in crate::knob::inject) stopped_ns: u64,
    pub(in crate::knob::inject) interrupted: Option<i64>,
    pub(in crate::knob::inject) reissued: bool,
}

impl<A: RemoteIoctl> Session<A> {
    /// Puts everything back and lets the thread go.
    pub(in crate::knob::inject) fn leave(mut self) -> Result<Left, InjectError> {
        let (interrupted, reissued) = match A::interrupted(&self.saved.registers) {
            Interrupted::Nothing => (None, false),
            Interrupted::Restarts { number } => (Some(number), false),
            Interrupted::Eintr { number, second } => {
                (Some(number), restart::may_start_again(number, second))
            }
        };
        if reissued {
            // EINTR becomes the kernel's own "again, unless a handler runs",
            // so it decides, with all it knows about signals pending.
            self.saved.registers = A::start_again(&self.saved.registers);
            self.altered = true;
        }
        self.put_back()?;
        Ok(Left {
            stopped_ns: u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX),
            interrupted,
            reissued,
        })
    }

    fn put_back(&mut self) -> Result<(), InjectError> {
        if self.altered {
            self.regain()?;
        }
        if self.at == At::Gone {
            return Ok(());
        }
        if self.altered {
            if self.at == At::Entry {
                self.tracee.set_registers(&A::skip(&self.registers()?))?;
                self.reach_syscall(At::Exit)?;
            }
            // What matters most comes first, should we be killed in between.
            self.tracee.set_registers(&self.saved.registers)?;
            self.tracee.set_signal_mask(self.saved.mask)?;
            if let Some((block, bytes)) = &self.saved.bytes
                && let Err(error) = memory::write(self.tracee.tid, *block, bytes)
                && error.raw_os_error() != Some(libc::ESRCH)
            {
                // Below the red zone nothing may rely on it.
                log::error!("memory of thread {} not put back: {error}", self.tracee.tid);
            }
            self.altered = false;
        }
        let signal = self.reach_signal_code()?;
        if self.at != At::Gone {
            self.tracee.detach(signal)?;
        }
        for &signal in &self.held {
            // SAFETY: takes numbers only. The thread may have ended meanwhile,
            // and then the signal has nobody to go to.
            unsafe { libc::syscall(libc::SYS_tgkill, self.pid, self.tracee.tid, signal) };
        }
        self.at = At::Gone;
        Ok(())
    }

    /// Leaves from where the thread came: the kernel's signal code, which then
    /// restarts the interrupted call or lets a pending signal have its way.
    /// Gives the signal to deliver on detaching.
    fn reach_signal_code(&mut self) -> Result<i32, InjectError> {
        match self.at {
            At::Signal(signal) => return Ok(signal),
            At::Entry | At::Exit => {}
            At::Running | At::Trap | At::Gone => return Ok(0),
        }
        self.tracee.interrupt()?;
        self.tracee.resume(0)?;
        match self.tracee.wait(Some(Instant::now() + self.limits.stop))? {
            Some(Stop::Signal(signal)) => Ok(signal),
            Some(Stop::Gone) => {
                self.at = At::Gone;
                Ok(0)
            }
            Some(_) => Ok(0),
            // Its registers are its own already; our thread's end lets it go.
            None => {
                self.at = At::Gone;
                Ok(0)
            }
        }
    }

    /// Waits, for as long as it takes, until the thread is stopped.
    fn regain(&mut self) -> Result<(), InjectError> {
        if self.at != At::Running {
            return Ok(());
        }
        self.tracee.interrupt()?;
        self.at = match self.tracee.wait(None)? {
            None | Some(Stop::Gone) => At::Gone,
            Some(Stop::Syscall) => match self.tracee.side() {
                Side::Entry { .. } => At::Entry,
                Side::Exit | Side::Untold => At::Exit,
            },
            Some(Stop::Signal(signal)) => {
                let sent = self.tracee.signal_was_sent()?;
                At::Signal(if sent { signal } else { 0 })
            }
            Some(Stop::Trap | Stop::Group(_) | Stop::Event(_)) => At::Trap,
        };
        Ok(())
    }
}

impl<A: RemoteIoctl> Drop for Session<A> {
    /// For a panic between: whatever else is lost, the thread is put back.
    fn drop(&mut self) {
        if self.at != At::Gone
            && let Err(error) = self.put_back()
            && !matches!(error, InjectError::Ended { .. })
        {
            log::error!("thread {} could not be put back: {error}", self.tracee.tid);
        }
    }
}
