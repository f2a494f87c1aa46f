//! By which way knobs can be turned here. Pure.

use super::inject;
use super::module::{Change, Knob, Presence};

/// A way to turn knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Our module's ioctl.
    Module(Presence),
    /// An ioctl inside the process that owns the device.
    Inject,
}

/// Why there is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The livepatch is on its way.
    #[error(
        "vhost-tuner's livepatch is just being applied or reverted; try again when \
         `vhost-tuner module status` says that it is done"
    )]
    Transition,
    /// Only the module has it.
    #[error("{}", stock(.0))]
    Stock(Vec<Knob>),
    /// Injection is written for x86-64.
    #[error(
        "on a stock vhost_net a thread of the VM's process has to make the call, which is \
         implemented for x86-64 only; with vhost-tuner's module it is not needed"
    )]
    Processor,
}

/// What a stock vhost_net has instead of these.
fn stock(knobs: &[Knob]) -> String {
    let mut said = String::new();
    if knobs.contains(&Knob::TxBatched) {
        said.push_str(
            "a stock vhost_net has no tx_batched: it hands over up to 64 packets of a guest \
             together, a constant (`ethtool -C TAP rx-frames N` does not change that: it only \
             concerns packets that reach the tap one by one, as with a limited sndbuf, which is \
             not QEMU's default); ",
        );
    }
    if knobs.contains(&Knob::PollPeer) {
        said.push_str("a stock vhost_net has no poll_peer: it always polls both directions; ");
    }
    said + "`vhost-tuner module livepatch` brings what is missing without restarting a VM"
}

impl Unavailable {
    /// True where this system cannot do it, rather than just now.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        *self != Self::Transition
    }
}

impl Backend {
    /// The way for a change.
    ///
    /// # Errors
    /// If there is none: half of a change is not done.
    pub fn choose(presence: Presence, change: &Change) -> Result<Self, Unavailable> {
        match presence {
            Presence::Replaced | Presence::Livepatched => Ok(Self::Module(presence)),
            Presence::Transition => Err(Unavailable::Transition),
            Presence::None => {
                let mut lacking = change.knobs();
                lacking.retain(|knob| knob.needs_module());
                if !lacking.is_empty() {
                    Err(Unavailable::Stock(lacking))
                } else if !inject::IMPLEMENTED {
                    Err(Unavailable::Processor)
                } else {
                    Ok(Self::Inject)
                }
            }
        }
    }

    /// Its name in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Module(_) => "module",
            Self::Inject => "inject",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::module::Setting;

    #[test]
    fn the_module_is_taken_where_it_answers() {
        let timeout = Change {
            busyloop: crate::knob::Change {
                rx: Some(1),
                tx: None,
            },
            ..Change::default()
        };
        let both = Change {
            tx_batched: Some(Setting::Follow),
            ..timeout
        };
        for change in [timeout, both] {
            for presence in [Presence::Replaced, Presence::Livepatched] {
                let chosen = Backend::choose(presence, &change);
                assert_eq!(chosen, Ok(Backend::Module(presence)));
            }
            let why = Backend::choose(Presence::Transition, &change).unwrap_err();
            assert!(!why.is_lasting());
        }
        if inject::IMPLEMENTED {
            let chosen = Backend::choose(Presence::None, &timeout);
            assert_eq!(chosen, Ok(Backend::Inject));
        }
        let why = Backend::choose(Presence::None, &both).unwrap_err();
        assert!(why.is_lasting());
    }

    #[test]
    fn what_a_stock_vhost_net_lacks_is_said_with_what_helps() {
        let cap = stock(&[Knob::TxBatched]);
        assert!(
            cap.contains("rx-frames") && !cap.contains("poll_peer"),
            "{cap}"
        );
        let peer = stock(&[Knob::PollPeer]);
        assert!(
            peer.contains("poll_peer") && !peer.contains("tx_batched"),
            "{peer}"
        );
        for said in [cap, peer] {
            assert!(said.contains("vhost-tuner module livepatch"), "{said}");
        }
    }
}
