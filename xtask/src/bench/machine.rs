//! Where it was measured, which any figure has to be read with.

use std::{env, fs, thread};

/// Tells those inside the VM how many processors there are outside.
pub(super) const CORES_VARIABLE: &str = "VHOST_TUNER_HOST_CORES";

/// What the VM runs on.
pub(super) struct Machine {
    kernel: String,
    /// Whether its processors are QEMU's own.
    pub(super) emulated: bool,
    /// How many the VM shares with all else.
    pub(super) cores: String,
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
    fn a_line_says_what_it_was() {
        let machine = Machine {
            kernel: "6.99".to_owned(),
            emulated: true,
            cores: "2".to_owned(),
        };
        assert_eq!(machine.line(), "Linux 6.99, emulated, on 2 cores");
    }
}
