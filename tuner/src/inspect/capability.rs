//! Which capabilities this process has.

use std::fmt;

use crate::inventory::proc::ProcStatus;

/// One that something here asks for; the value is its number (linux/capability.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Capability {
    /// To read directories of other users' processes.
    DacReadSearch = 2,
    /// To use descriptors through the module.
    NetAdmin = 12,
    /// To look into other users' processes, to stop one of their threads, and to
    /// borrow their descriptors.
    SysPtrace = 19,
    /// To enter a network namespace.
    SysAdmin = 21,
    /// To attach probes and read kernel memory.
    Perfmon = 38,
    /// To load BPF programs.
    Bpf = 39,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DacReadSearch => "CAP_DAC_READ_SEARCH",
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::SysPtrace => "CAP_SYS_PTRACE",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
        })
    }
}

/// A set of capabilities, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(pub u64);

impl Capabilities {
    /// Those in effect for the calling thread; none where procfs does not say.
    #[must_use]
    pub fn own() -> Self {
        let status = ProcStatus::of_self().unwrap_or_default();
        Self(status.capabilities.unwrap_or(0))
    }

    /// True if it is in the set. CAP_SYS_ADMIN stands for those that were split
    /// off it.
    #[must_use]
    pub fn has(self, capability: Capability) -> bool {
        let bit = |capability: Capability| self.0 >> capability as u32 & 1 == 1;
        let of_admin = matches!(capability, Capability::Bpf | Capability::Perfmon);
        bit(capability) || (of_admin && bit(Capability::SysAdmin))
    }

    /// Those of `wanted` that are not in the set, in words; none if all are.
    #[must_use]
    pub fn lacking(self, wanted: &[Capability]) -> Option<String> {
        let lacking: Vec<String> = wanted
            .iter()
            .filter(|capability| !self.has(**capability))
            .map(ToString::to_string)
            .collect();
        (!lacking.is_empty()).then(|| lacking.join(" and "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_named() {
        let wanted = [Capability::Bpf, Capability::Perfmon];
        let lacking = |set: u64| Capabilities(set).lacking(&wanted);
        assert_eq!(lacking(0).as_deref(), Some("CAP_BPF and CAP_PERFMON"));
        assert_eq!(lacking(1 << 39).as_deref(), Some("CAP_PERFMON"));
        assert_eq!(lacking(1 << 39 | 1 << 38), None);
        assert_eq!(lacking(1 << 21), None);
        assert!(!Capabilities(1 << 21).has(Capability::SysPtrace));
    }
}
