//! What came of a job, and how it is told.

use super::{NO_VM, TIMED_OUT, machine::Job};
use crate::progress::seconds;

/// What came of a job.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// How it ended.
    pub(crate) ending: Ending,
    /// The kernel's first complaint about itself: something it ran into is a
    /// bug, whatever the command thought of it.
    pub(crate) complaint: Option<String>,
}

impl Outcome {
    /// Tells what the command could not; gives the status to exit with.
    pub(crate) fn report(&self, job: &Job) -> i32 {
        if let Some(complaint) = &self.complaint {
            eprintln!("[lab] the kernel complained meanwhile:\n{complaint}");
        }
        self.ending.report(job)
    }

    /// Whether the command ended with 0 and the kernel had nothing to say.
    pub(crate) fn is_clean(&self) -> bool {
        self.ending == Ending::Exited(0) && self.complaint.is_none()
    }
}

/// The first thing on a console that a healthy kernel does not say, with what
/// follows. Lockups are left out: a busy host causes them under emulation.
pub(super) fn complaint(console: &str) -> Option<String> {
    let signs = [
        "BUG: ",
        "Oops: ",
        "WARNING: CPU: ",
        "general protection fault",
        "refcount_t: ",
    ];
    let lines: Vec<&str> = console.lines().collect();
    let first = lines.iter().position(|line| {
        signs.iter().any(|sign| line.contains(sign)) && !line.contains("lockup")
    })?;
    let last = lines.len().min(first + 40);
    Some(lines[first..last].join("\n"))
}

/// How a job came to its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The command ended by itself.
    Exited(i32),
    /// The command took too long.
    TimedOut,
    /// The VM never got as far as the command.
    NotStarted {
        /// The last lines of its console.
        console: String,
    },
    /// The VM was gone before the command had ended.
    Died {
        /// The last lines of its console.
        console: String,
    },
}

impl Ending {
    /// The status to exit with.
    pub(crate) fn status(&self) -> i32 {
        match self {
            Self::Exited(status) => *status,
            Self::TimedOut => TIMED_OUT,
            Self::NotStarted { .. } | Self::Died { .. } => NO_VM,
        }
    }

    /// Explains an end that was not the command's own; gives the status.
    pub(crate) fn report(&self, job: &Job) -> i32 {
        let kernel = &job.kernel.version;
        match self {
            Self::Exited(_) => {}
            Self::TimedOut => eprintln!(
                "[lab] the command did not end within {}; the VM was ended",
                seconds(job.timeout)
            ),
            Self::NotStarted { console } => eprintln!(
                "[lab] the VM with Linux {kernel} did not get as far as starting the command. \
                 The end of its console:\n{console}"
            ),
            Self::Died { console } => eprintln!(
                "[lab] the VM with Linux {kernel} died under the command. \
                 The end of its console:\n{console}"
            ),
        }
        self.status()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sick_kernel_is_noticed() {
        let sick = "[1.0] fine\n[2.0] BUG: kernel NULL pointer dereference\n[2.1] RIP: 0\n";
        let found = complaint(sick).unwrap();
        assert!(
            found.starts_with("[2.0] BUG") && found.ends_with("RIP: 0"),
            "{found}"
        );
        assert_eq!(
            complaint("[1.0] fine\n[3.0] BUG: soft lockup - CPU#1\n"),
            None
        );
    }
}
