//! What this process lacks to turn knobs.

use super::capability::{Capabilities, Capability};
use crate::inventory::proc::ProcStatus;

/// What a process may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Privilege {
    effective: Capabilities,
    root: bool,
}

impl Privilege {
    /// Our own; nothing where procfs does not say.
    #[must_use]
    pub fn of_self() -> Self {
        Self::of(&ProcStatus::of_self().unwrap_or_default())
    }

    fn of(status: &ProcStatus) -> Self {
        Self {
            effective: Capabilities(status.capabilities.unwrap_or(0)),
            root: status.euid == Some(0),
        }
    }

    fn has(self, capability: Capability) -> bool {
        self.effective.has(capability)
    }

    /// What is missing to turn knobs, as a sentence; none if nothing is. The
    /// right to trace processes is asked for too, although an owner of all VMs
    /// may do without: whether that is so shows at each device.
    #[must_use]
    pub fn missing_to_turn(self, by_module: bool) -> Option<String> {
        let mut missing = vec![Capability::Bpf, Capability::Perfmon];
        missing.retain(|capability| !self.has(*capability));
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
        let names: Vec<String> = missing.iter().map(ToString::to_string).collect();
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
fn enumerate(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(capabilities: &[Capability]) -> Privilege {
        let bits = capabilities.iter().map(|one| 1 << *one as u32);
        Privilege {
            effective: Capabilities(bits.sum()),
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
        }
        let all = with(&[SysAdmin, NetAdmin]);
        assert_eq!(all.missing_to_turn(true), None);
    }

    #[test]
    fn a_root_without_them_is_not_told_to_be_root() {
        let status = ProcStatus::from_text("Uid:\t0\t0\t0\t0\nCapEff:\t0000000000000000\n");
        let said = Privilege::of(&status).missing_to_turn(false).unwrap();
        assert!(said.contains("container"), "{said}");
    }
}
