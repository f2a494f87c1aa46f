//! What this process may do, by its capabilities.

use crate::inventory::proc::ProcStatus;

/// A capability, by its number in linux/capability.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// To use descriptors through the module.
    NetAdmin = 12,
    /// To stop a thread of another user's process, and to borrow its
    /// descriptors.
    SysPtrace = 19,
    /// The old one for everything.
    SysAdmin = 21,
    /// To read kernel memory by BPF.
    Perfmon = 38,
    /// To load BPF programs.
    Bpf = 39,
}

impl Capability {
    fn name(self) -> &'static str {
        match self {
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
        }
    }
}

/// The effective capabilities of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privilege {
    effective: u64,
    root: bool,
}

impl Privilege {
    /// Our own; none where procfs does not say.
    #[must_use]
    pub fn of_self() -> Self {
        Self::of(&ProcStatus::of_self().unwrap_or_default())
    }

    fn of(status: &ProcStatus) -> Self {
        Self {
            effective: status.capabilities.unwrap_or(0),
            root: status.euid == Some(0),
        }
    }

    /// True with this one.
    #[must_use]
    pub fn has(self, capability: Capability) -> bool {
        self.effective >> capability as u32 & 1 == 1
    }

    /// True if BPF programs that read kernel memory may be loaded.
    #[must_use]
    pub fn may_use_bpf(self) -> bool {
        self.has(Capability::SysAdmin)
            || (self.has(Capability::Bpf) && self.has(Capability::Perfmon))
    }

    /// What is missing to turn knobs, as a sentence; none if nothing is. The
    /// right to trace processes is asked for too, although an owner of all VMs
    /// may do without: whether that is so shows at each device.
    #[must_use]
    pub fn missing_to_turn(self, by_module: bool) -> Option<String> {
        let mut missing = Vec::new();
        if !self.has(Capability::SysAdmin) {
            missing.extend([Capability::Bpf, Capability::Perfmon]);
            missing.retain(|capability| !self.has(*capability));
        }
        let must = !missing.is_empty() || (by_module && !self.has(Capability::NetAdmin));
        if !must {
            return None;
        }
        let bpf = !missing.is_empty();
        let wanted = [
            Some(Capability::SysPtrace),
            by_module.then_some(Capability::NetAdmin),
        ];
        let wanted = wanted.into_iter().flatten();
        missing.extend(wanted.filter(|capability| !self.has(*capability)));
        let names: Vec<_> = missing.iter().map(|missing| missing.name()).collect();
        let advice = if self.root {
            "this root lacks them, as inside a container"
        } else {
            "run as root, or with that"
        };
        let or = if bpf {
            "; CAP_SYS_ADMIN does for CAP_BPF and CAP_PERFMON"
        } else {
            ""
        };
        Some(format!(
            "this process lacks {}: {advice}{or}",
            enumerate(&names)
        ))
    }
}

/// "a, b and c".
fn enumerate(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(capabilities: &[Capability]) -> Privilege {
        let bits = capabilities.iter().map(|one| 1 << *one as u32);
        Privilege {
            effective: bits.sum(),
            root: false,
        }
    }

    #[test]
    fn whoever_has_nothing_is_told_all_that_is_missing() {
        let said = with(&[]).missing_to_turn(false).unwrap();
        assert_eq!(
            said,
            "this process lacks CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE: run as root, or with \
             that; CAP_SYS_ADMIN does for CAP_BPF and CAP_PERFMON"
        );
        let said = with(&[]).missing_to_turn(true).unwrap();
        assert!(said.contains("CAP_SYS_PTRACE and CAP_NET_ADMIN:"), "{said}");
    }

    #[test]
    fn only_what_is_missing_is_named() {
        use Capability::{Bpf, NetAdmin, Perfmon, SysAdmin, SysPtrace};
        let said = with(&[Bpf, SysPtrace]).missing_to_turn(false).unwrap();
        assert!(
            said.starts_with("this process lacks CAP_PERFMON:"),
            "{said}"
        );
        let said = with(&[SysAdmin, SysPtrace]).missing_to_turn(true).unwrap();
        assert_eq!(
            said,
            "this process lacks CAP_NET_ADMIN: run as root, or with that"
        );
        for enough in [&[Bpf, Perfmon][..], &[SysAdmin]] {
            assert_eq!(with(enough).missing_to_turn(false), None);
            assert!(with(enough).may_use_bpf());
        }
        let all = with(&[SysAdmin, NetAdmin]);
        assert_eq!(all.missing_to_turn(true), None);
        assert!(!with(&[Bpf]).may_use_bpf());
    }

    #[test]
    fn a_root_without_them_is_not_told_to_be_root() {
        let status = ProcStatus::from_text("Uid:\t0\t0\t0\t0\nCapEff:\t0000000000000000\n");
        let said = Privilege::of(&status).missing_to_turn(false).unwrap();
        assert!(said.contains("container"), "{said}");
    }
}
