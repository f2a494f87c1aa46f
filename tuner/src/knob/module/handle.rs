//! A descriptor of another process's device, and the module's ioctls on it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use tuner_common::module::{Counters, Knobs, VNT_COUNTERS, VNT_KNOBS};

use super::{Change, Presence};
use crate::inventory::proc::{ProcError, ProcStat, VHOST_NET};

/// Why the module could not be asked about a device.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// Nobody there, or not for everybody yet.
    #[error("the module does not answer: {}", .0.sentence().trim_end_matches('.'))]
    Absent(Presence),
    /// The process ended.
    #[error("process {pid} has ended")]
    Ended {
        /// Which.
        pid: u32,
    },
    /// The pid belongs to another process.
    #[error("pid {pid} belongs to another process by now")]
    Reused {
        /// Which.
        pid: u32,
    },
    /// The descriptor is not open any more.
    #[error("process {pid} has closed its descriptor {fd}")]
    Closed {
        /// The process.
        pid: u32,
        /// The descriptor.
        fd: u32,
    },
    /// The descriptor means something else.
    #[error("descriptor {fd} of process {pid} is not of /dev/vhost-net (any more)")]
    Other {
        /// The process.
        pid: u32,
        /// The descriptor.
        fd: u32,
    },
    /// The kernel does not let us take the descriptor.
    #[error(
        "the descriptor of process {pid} may not be used: run as root, or with CAP_SYS_PTRACE and \
         CAP_NET_ADMIN (Yama's ptrace_scope 3 and some security modules forbid it even then)"
    )]
    Forbidden {
        /// The process.
        pid: u32,
    },
    /// The module does not let us ask.
    #[error("the module refuses whoever lacks CAP_NET_ADMIN: run as root or with that capability")]
    NoCapability,
    /// The module does not understand us.
    #[error(
        "the module does not understand this request ({why}): it is of another version than this \
         program; load the one that was built with it"
    )]
    Version {
        /// What it said.
        why: io::Error,
    },
    /// The module went between our look and our call.
    #[error("the module came or went just now; try again")]
    Changed,
    /// Something else.
    #[error("{call} failed: {why}")]
    System {
        /// The system call.
        call: &'static str,
        /// What it said.
        why: io::Error,
    },
    /// Procfs could not be read.
    #[error(transparent)]
    Proc(#[from] ProcError),
}

/// A descriptor of a device, for a few calls. Not for keeping: a device lives
/// as long as somebody has a descriptor of it, also after the VM closed its
/// own.
#[derive(Debug)]
pub struct Handle {
    file: OwnedFd,
    presence: Presence,
}

impl Handle {
    /// Takes descriptor `fd` of process `pid`, which has to be the one that
    /// started at `start_time`.
    ///
    /// # Errors
    /// If the module does not answer, the process or its descriptor is not the
    /// one meant, or we may not have it.
    pub fn open(
        presence: Presence,
        pid: u32,
        fd: u32,
        start_time: u64,
    ) -> Result<Self, ModuleError> {
        if !presence.answers() {
            return Err(ModuleError::Absent(presence));
        }
        // First the pidfd, then the check: what it refers to is now known to
        // be the process meant.
        let process = pidfd(pid)?;
        let number = i32::try_from(pid).map_err(|_| ModuleError::Ended { pid })?;
        match ProcStat::of_process(number) {
            Ok(stat) if stat.start_time == start_time => {}
            Ok(_) => return Err(ModuleError::Reused { pid }),
            Err(why) if why.is_gone() => return Err(ModuleError::Ended { pid }),
            Err(why) => return Err(why.into()),
        }
        let file = take(&process, pid, fd)?;
        if !is_vhost_net(&file)? {
            return Err(ModuleError::Other { pid, fd });
        }
        Ok(Self { file, presence })
    }

    /// Number of our own descriptor.
    #[must_use]
    pub fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// What is set now.
    ///
    /// # Errors
    /// If the module refuses.
    pub fn knobs(&self) -> Result<Knobs, ModuleError> {
        self.ask(Knobs::request())
    }

    /// Sets all that is asked or nothing; what is set then.
    ///
    /// # Errors
    /// If the module refuses.
    pub fn set(&self, change: &Change) -> Result<Knobs, ModuleError> {
        self.ask(change.request())
    }

    /// What the module counted for a ring.
    ///
    /// # Errors
    /// If the module refuses.
    pub fn counters(&self, direction: u32) -> Result<Counters, ModuleError> {
        let mut counters = Counters::request(direction);
        // SAFETY: the descriptor is of a vhost-net device whose module knows
        // this call (`open` has made sure), which reads and writes a structure
        // of this size, laid out as the kernel's and valid for any content.
        let result = unsafe {
            libc::ioctl(
                self.file.as_raw_fd(),
                VNT_COUNTERS as libc::Ioctl,
                &raw mut counters,
            )
        };
        self.outcome(result).map(|()| counters)
    }

    fn ask(&self, mut knobs: Knobs) -> Result<Knobs, ModuleError> {
        // SAFETY: as in `counters`.
        let result = unsafe {
            libc::ioctl(
                self.file.as_raw_fd(),
                VNT_KNOBS as libc::Ioctl,
                &raw mut knobs,
            )
        };
        self.outcome(result).map(|()| knobs)
    }

    fn outcome(&self, result: i32) -> Result<(), ModuleError> {
        if result == 0 {
            return Ok(());
        }
        let why = io::Error::last_os_error();
        // A stock vhost_net refuses a stranger with EPERM too.
        if Presence::find() != self.presence {
            return Err(ModuleError::Changed);
        }
        Err(refusal(why))
    }
}

/// What an errno of the module means.
fn refusal(why: io::Error) -> ModuleError {
    match why.raw_os_error() {
        Some(libc::EPERM) => ModuleError::NoCapability,
        // Values are in range: what it does not know is the structure.
        Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOTTY) => ModuleError::Version { why },
        _ => ModuleError::System { call: "ioctl", why },
    }
}

fn pidfd(pid: u32) -> Result<OwnedFd, ModuleError> {
    // SAFETY: takes two numbers and gives a descriptor or an error.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    owned(fd).map_err(|why| match why.raw_os_error() {
        // EINVAL and ENOENT: a thread's id, so the process is another one.
        Some(libc::ESRCH | libc::EINVAL | libc::ENOENT) => ModuleError::Ended { pid },
        _ => ModuleError::System {
            call: "pidfd_open",
            why,
        },
    })
}

/// A copy of the process's descriptor, closed on exec.
fn take(process: &OwnedFd, pid: u32, fd: u32) -> Result<OwnedFd, ModuleError> {
    // SAFETY: takes three numbers and gives a descriptor or an error.
    let copy = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) };
    owned(copy).map_err(|why| match why.raw_os_error() {
        Some(libc::EBADF) => ModuleError::Closed { pid, fd },
        Some(libc::ESRCH) => ModuleError::Ended { pid },
        Some(libc::EPERM | libc::EACCES) => ModuleError::Forbidden { pid },
        _ => ModuleError::System {
            call: "pidfd_getfd",
            why,
        },
    })
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(fd) {
        // SAFETY: just opened, and nobody else knows it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The device number says so, whatever the file is called where the process
/// opened it.
fn is_vhost_net(file: &OwnedFd) -> Result<bool, ModuleError> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `stat` is valid for writes of its size.
    if unsafe { libc::fstat(file.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
        return Err(ModuleError::System {
            call: "fstat",
            why: io::Error::last_os_error(),
        });
    }
    // SAFETY: the call has filled it in.
    let stat = unsafe { stat.assume_init() };
    let number = (libc::major(stat.st_rdev), libc::minor(stat.st_rdev));
    Ok(stat.st_mode & libc::S_IFMT == libc::S_IFCHR && number == VHOST_NET)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn me() -> (u32, u64) {
        let pid = std::process::id();
        let stat = ProcStat::of_process(pid.cast_signed()).unwrap();
        (pid, stat.start_time)
    }

    /// As if the module were there: nothing below gets as far as its ioctl.
    const THERE: Presence = Presence::Replaced;

    #[test]
    fn without_the_module_nothing_is_even_opened() {
        for presence in [Presence::None, Presence::Transition] {
            let error = Handle::open(presence, u32::MAX, 0, 0).unwrap_err();
            assert!(matches!(error, ModuleError::Absent(_)), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_no_vhost_net_device_is_refused() {
        let (pid, start_time) = me();
        let null = File::open("/dev/null").unwrap();
        let fd = null.as_raw_fd().cast_unsigned();
        let error = Handle::open(THERE, pid, fd, start_time).unwrap_err();
        assert!(
            matches!(
                error,
                ModuleError::Other { .. } | ModuleError::Forbidden { .. }
            ),
            "{error}"
        );
    }

    #[test]
    fn a_closed_descriptor_and_a_reused_pid_are_noticed() {
        let (pid, start_time) = me();
        let error = Handle::open(THERE, pid, 1_000_000, start_time).unwrap_err();
        assert!(
            matches!(
                error,
                ModuleError::Closed { .. } | ModuleError::Forbidden { .. }
            ),
            "{error}"
        );
        let error = Handle::open(THERE, pid, 0, start_time + 1).unwrap_err();
        assert!(matches!(error, ModuleError::Reused { .. }), "{error}");
        let error = Handle::open(THERE, 0x3fff_fff0, 0, 1).unwrap_err();
        assert!(matches!(error, ModuleError::Ended { .. }), "{error}");
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        for (errno, part) in [
            (libc::EPERM, "CAP_NET_ADMIN"),
            (libc::EINVAL, "another version"),
            (libc::EOPNOTSUPP, "another version"),
            (libc::ENOMEM, "ioctl failed"),
        ] {
            let said = refusal(io::Error::from_raw_os_error(errno)).to_string();
            assert!(said.contains(part), "{said}");
        }
    }
}
