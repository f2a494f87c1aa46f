//! What is loaded, from plain facts.

use serde::Serialize;

/// How vhost_net is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Not at all.
    #[default]
    Absent,
    /// As a module.
    Loaded,
    /// As a part of the kernel image.
    BuiltIn,
}

/// Our livepatch as sysfs shows it. It has no entry there once it is disabled
/// for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Livepatch {
    /// Whether it is, or is being, applied rather than taken back.
    pub enabled: bool,
    /// Whether tasks are still moving over.
    pub transition: bool,
}

/// Our parameters; `None` where one is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Parameters {
    /// Cap on packets per hand-over.
    pub tx_batched: Option<u32>,
    /// Whether both directions are polled.
    pub poll_peer: Option<bool>,
}

impl Parameters {
    /// True for a module of ours: the stock one has neither.
    #[must_use]
    pub fn ours(self) -> bool {
        self.tx_batched.is_some() && self.poll_peer.is_some()
    }
}

/// A process with a descriptor of a vhost-net device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct User {
    /// Name of its VM, else of the program.
    pub vm: String,
    /// Which program that is.
    pub vmm: &'static str,
    /// The process.
    pub pid: i32,
    /// The descriptor.
    pub fd: i32,
}

/// What was found out about this kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `uname -r`.
    pub release: String,
    /// Whether the kernel knows modules.
    pub modules: bool,
    /// How vhost_net is there.
    pub vhost_net: Form,
    /// Parameters of vhost_net.
    pub parameters: Parameters,
    /// `experimental_zcopytx` of vhost_net; none if it is not loaded.
    pub zero_copy: Option<bool>,
    /// References to vhost_net; none if it is not loaded as a module.
    pub references: Option<u32>,
    /// Our livepatch.
    pub livepatch: Option<Livepatch>,
    /// Whether the livepatch's module is loaded, at work or not.
    pub livepatch_module: bool,
    /// Parameters of the livepatch.
    pub livepatch_parameters: Parameters,
    /// Whether this kernel can be patched live.
    pub livepatch_supported: bool,
    /// The word that kernel lockdown is at.
    pub lockdown: Option<String>,
    /// Whether `module.sig_enforce` is on.
    pub signature_enforced: bool,
    /// Whether `kernel.modules_disabled` is on.
    pub modules_disabled: bool,
    /// Whether this process may load modules.
    pub privileged: bool,
    /// Who holds devices.
    pub users: Vec<User>,
    /// Processes whose descriptors could not be seen.
    pub hidden: usize,
}

/// The state that vhost_net is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Not loaded.
    Absent,
    /// Part of the kernel image.
    BuiltIn,
    /// The distribution's, as it is.
    Stock,
    /// Ours in its place.
    Replaced,
    /// The distribution's with our livepatch.
    Livepatched,
    /// The livepatch is being applied.
    Applying,
    /// The livepatch is being taken back.
    Reverting,
}

impl State {
    /// The state as a word for people.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::BuiltIn => "built in",
            Self::Stock => "stock",
            Self::Replaced => "replaced",
            Self::Livepatched => "livepatched",
            Self::Applying => "in transition to livepatched",
            Self::Reverting => "in transition to stock",
        }
    }

    /// One sentence about it.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Absent => "vhost_net is not loaded.",
            Self::BuiltIn => "vhost_net is part of this kernel, not a module.",
            Self::Stock => "vhost_net is the distribution's.",
            Self::Replaced => "vhost_net is ours, loaded in place of the distribution's.",
            Self::Livepatched => "vhost_net is the distribution's with our livepatch.",
            Self::Applying => "Our livepatch is being applied to vhost_net.",
            Self::Reverting => "Our livepatch is being taken back from vhost_net.",
        }
    }
}

impl Facts {
    /// The state. A livepatch without vhost_net patches nothing yet.
    #[must_use]
    pub fn state(&self) -> State {
        match (self.vhost_net, self.livepatch) {
            (Form::BuiltIn, _) => State::BuiltIn,
            (_, Some(patch)) if patch.transition && patch.enabled => State::Applying,
            (_, Some(patch)) if patch.transition => State::Reverting,
            (Form::Absent, _) => State::Absent,
            (Form::Loaded, _) if self.parameters.ours() => State::Replaced,
            (Form::Loaded, Some(patch)) if patch.enabled => State::Livepatched,
            (Form::Loaded, _) => State::Stock,
        }
    }

    /// The parameters that are in effect, if a module of ours is.
    #[must_use]
    pub fn in_effect(&self) -> Option<Parameters> {
        match self.state() {
            State::Replaced => Some(self.parameters),
            State::Livepatched | State::Applying | State::Reverting => {
                Some(self.livepatch_parameters)
            }
            _ => None,
        }
    }

    /// Why this kernel takes signed modules only, if it does.
    #[must_use]
    pub fn signature_demanded(&self) -> Option<String> {
        match self.lockdown.as_deref() {
            Some(word @ ("integrity" | "confidentiality")) => {
                Some(format!("kernel lockdown is `{word}`, as with Secure Boot"))
            }
            _ if self.signature_enforced => Some("module.sig_enforce is on".to_owned()),
            _ => None,
        }
    }

    /// Whether anybody uses vhost_net.
    #[must_use]
    pub fn in_use(&self) -> bool {
        !self.users.is_empty() || self.references.is_some_and(|count| count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Parameters = Parameters {
        tx_batched: Some(64),
        poll_peer: Some(true),
    };

    fn loaded() -> Facts {
        Facts {
            vhost_net: Form::Loaded,
            ..Facts::default()
        }
    }

    #[test]
    fn each_state_is_told_from_its_facts() {
        let patched = |enabled, transition| Facts {
            livepatch: Some(Livepatch {
                enabled,
                transition,
            }),
            livepatch_parameters: OURS,
            ..loaded()
        };
        assert_eq!(Facts::default().state(), State::Absent);
        assert_eq!(loaded().state(), State::Stock);
        assert_eq!(patched(true, false).state(), State::Livepatched);
        assert_eq!(patched(true, true).state(), State::Applying);
        assert_eq!(patched(false, true).state(), State::Reverting);
        assert_eq!(patched(false, false).state(), State::Stock);
        let replaced = Facts {
            parameters: OURS,
            ..loaded()
        };
        assert_eq!(replaced.state(), State::Replaced);
        assert_eq!(replaced.in_effect(), Some(OURS));
        assert_eq!(patched(true, false).in_effect(), Some(OURS));
        assert_eq!(loaded().in_effect(), None);
    }

    #[test]
    fn a_module_with_one_of_our_parameters_is_not_ours() {
        let facts = Facts {
            parameters: Parameters {
                tx_batched: Some(64),
                poll_peer: None,
            },
            ..loaded()
        };
        assert_eq!(facts.state(), State::Stock);
    }

    #[test]
    fn built_in_is_built_in_whatever_else_is_there() {
        let facts = Facts {
            vhost_net: Form::BuiltIn,
            parameters: OURS,
            ..Facts::default()
        };
        assert_eq!(facts.state(), State::BuiltIn);
    }

    #[test]
    fn a_livepatch_that_waits_for_vhost_net_patches_nothing() {
        let facts = Facts {
            livepatch: Some(Livepatch {
                enabled: true,
                transition: false,
            }),
            ..Facts::default()
        };
        assert_eq!(facts.state(), State::Absent);
    }

    #[test]
    fn lockdown_and_enforcement_demand_signatures() {
        let mut facts = loaded();
        assert_eq!(facts.signature_demanded(), None);
        facts.lockdown = Some("none".to_owned());
        assert_eq!(facts.signature_demanded(), None);
        facts.signature_enforced = true;
        assert!(facts.signature_demanded().unwrap().contains("sig_enforce"));
        facts.lockdown = Some("integrity".to_owned());
        assert!(facts.signature_demanded().unwrap().contains("integrity"));
    }

    #[test]
    fn a_reference_that_nobody_shows_is_use_too() {
        let mut facts = loaded();
        facts.references = Some(0);
        assert!(!facts.in_use());
        facts.references = Some(1);
        assert!(facts.in_use());
    }
}
