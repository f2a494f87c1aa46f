//! The process to run something in, named so that a reused pid is noticed.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use super::InjectError;
use crate::inventory::proc::{ProcError, ProcStat, ThreadState};

/// A process, by pid and start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Its pid in our pid namespace.
    pub pid: i32,
    /// Field 22 of `/proc/PID/stat`: clock ticks since boot.
    pub start_time: u64,
}

impl Target {
    /// The process that has this pid now.
    ///
    /// # Errors
    ///
    /// [`InjectError::Ended`] when there is none.
    pub fn of(pid: i32) -> Result<Self, InjectError> {
        let start_time = stat(pid)?.start_time;
        Ok(Self { pid, start_time })
    }

    /// Checks that it is still this process, that it runs, and that it is not
    /// ourselves; gives a hold on it that notices its end.
    pub(super) fn hold(&self) -> Result<Hold, InjectError> {
        if i64::from(self.pid) == i64::from(std::process::id()) {
            return Err(InjectError::Argument(
                "a process cannot be traced by itself",
            ));
        }
        // First the pidfd, then the check: what it refers to is now known to be
        // the process meant, and it will tell when that one has ended.
        let hold = Hold::open(*self)?;
        let stat = stat(self.pid)?;
        if stat.start_time != self.start_time {
            return Err(InjectError::Reused { pid: self.pid });
        }
        match stat.state {
            ThreadState::Dead => Err(InjectError::Ended { pid: self.pid }),
            ThreadState::Stopped => Err(InjectError::Stopped { pid: self.pid }),
            _ => Ok(hold),
        }
    }

    /// Whether it still runs.
    pub(super) fn is_alive(&self) -> bool {
        stat(self.pid).is_ok_and(|stat| stat.start_time == self.start_time && !stat.is_exiting())
    }
}

fn stat(pid: i32) -> Result<ProcStat, InjectError> {
    ProcStat::of_process(pid).map_err(|error| match error {
        ProcError::Gone { .. } => InjectError::Ended { pid },
        error => error.into(),
    })
}

/// A target with a pidfd, where the kernel has them (5.3).
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) target: Target,
    pidfd: Option<OwnedFd>,
}

impl Hold {
    fn open(target: Target) -> Result<Self, InjectError> {
        let pid = target.pid;
        // SAFETY: takes two numbers and gives a descriptor or an error.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        if let Some(fd) = i32::try_from(fd).ok().filter(|&fd| fd >= 0) {
            // SAFETY: just opened, and nobody else knows it.
            let pidfd = Some(unsafe { OwnedFd::from_raw_fd(fd) });
            return Ok(Self { target, pidfd });
        }
        let source = io::Error::last_os_error();
        match source.raw_os_error() {
            Some(libc::ESRCH) => Err(InjectError::Ended { pid }),
            // The id is a thread's, not a process's; ENOENT since 6.14.
            Some(libc::EINVAL | libc::ENOENT) => Err(InjectError::Argument(
                "the id given is that of a thread, not of a process",
            )),
            // Old kernel, or out of descriptors: the start time must do.
            _ => Ok(Self {
                target,
                pidfd: None,
            }),
        }
    }

    /// Checks, once a thread is seized and cannot go away unseen, that it is
    /// one of this very process.
    pub(super) fn check_thread(&self, tid: i32) -> Result<(), InjectError> {
        let Target { pid, start_time } = self.target;
        match ProcStat::of_thread(pid, tid) {
            // While the process lives its pid means nobody else, so what was
            // just read was read of it.
            Ok(_) if self.has_ended() => Err(InjectError::Ended { pid }),
            Ok(_) if stat(pid)?.start_time == start_time => Ok(()),
            Ok(_) => Err(InjectError::Reused { pid }),
            Err(error) if error.is_gone() => Err(InjectError::Ended { pid }),
            Err(error) => Err(error.into()),
        }
    }

    /// A pidfd becomes readable when its process ends.
    fn has_ended(&self) -> bool {
        let Some(pidfd) = &self.pidfd else {
            return false;
        };
        let mut poll = libc::pollfd {
            fd: pidfd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd that lives across the call, which does not wait.
        unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
    }
}
