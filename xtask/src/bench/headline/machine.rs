//! Where it was measured, which any figure has to be read with.

use std::{env, fs, thread};

/// Tells those inside the VM how many processors there are outside.
pub(super) const CORES_VARIABLE: &str = "VHOST_TUNER_HOST_CORES";

/// What the VM runs on.
pub(super) struct Machine {
    kernel: String,
    emulated: bool,
    cores: String,
}

impl Machine {
    /// The one that runs us.
    pub(super) fn here() -> Self {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            kernel: env::var("VHOST_TUNER_LAB_KERNEL").unwrap_or_default(),
            emulated: emulated(&cpus),
            cores: env::var(CORES_VARIABLE).unwrap_or_else(|_| "an unknown number of".to_owned()),
        }
    }

    /// In one line.
    pub(super) fn line(&self) -> String {
        let Self { kernel, cores, .. } = self;
        let how = if self.emulated {
            "emulated"
        } else {
            "with KVM"
        };
        format!("Linux {kernel}, {how}, on {cores} cores")
    }

    /// What it cannot show.
    pub(super) fn caveats(&self) -> String {
        let shared = format!(
            "* Worker, guest and traffic share {} cores: where these are fewer than three, a worker \
             that spins takes its CPU from the guest, and polls look worse than where it has a core \
             of its own.\n",
            self.cores
        );
        let emulated = "* Under emulation a wake-up, an interrupt between processors and a system \
                        call cost far more than on hardware, and so does each packet. What saves \
                        wake-ups looks better than it is, what saves work on a packet cannot be told. \
                        There are no VM exits at all: a kick is a system call.\n";
        let always = "* A ratio tells the direction, and whether the effect is large. Absolute \
                      figures, and ratios within a tenth of 1, are those of this machine.\n\
                      * poll_peer off is the own side only, in both directions. Before the patch a \
                      receive ring that was polled did watch the transmit ring; so off is slower \
                      here than what the patch was compared with.\n";
        let emulated = if self.emulated { emulated } else { "" };
        format!("{shared}{emulated}{always}")
    }
}

/// QEMU's emulated processors say so.
fn emulated(cpus: &str) -> bool {
    cpus.lines()
        .any(|line| line.starts_with("model name") && line.contains("TCG"))
}

/// How many processors this machine has, to be handed on in [`CORES_VARIABLE`].
pub(super) fn cores() -> String {
    thread::available_parallelism().map_or_else(|_| "unknown".to_owned(), |n| n.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulation_is_told_from_hardware() {
        assert!(emulated(
            "vendor_id\t: x\nmodel name\t: QEMU TCG CPU version 2.5+\n"
        ));
        assert!(!emulated("model name\t: Some CPU @ 2 GHz\nflags\t: TCG\n"));
    }

    #[test]
    fn only_emulation_is_blamed_for_what_it_does() {
        let machine = |emulated| Machine {
            kernel: "6.99".to_owned(),
            emulated,
            cores: "2".to_owned(),
        };
        assert!(machine(true).caveats().contains("Under emulation"));
        assert!(!machine(false).caveats().contains("Under emulation"));
        assert_eq!(machine(true).line(), "Linux 6.99, emulated, on 2 cores");
    }
}
