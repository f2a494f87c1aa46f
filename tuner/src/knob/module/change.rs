//! What is asked of a device, and whether it was done. Pure.

use std::fmt;

use tuner_common::module::{FOLLOW_POLL_PEER, FOLLOW_TX_BATCHED, Knobs, set};
use tuner_common::queue::{RX, TX};

use crate::knob::busyloop;

/// A device's own value, or the module's parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting<T> {
    /// Whatever the module's parameter says, also when that changes.
    Follow,
    /// This, whatever the parameter says.
    Own(T),
}

/// What is asked for a device; none leaves a knob alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Timeouts of both rings.
    pub busyloop: busyloop::Change,
    /// The cap on packets handed over together, 1 to 64.
    pub tx_batched: Option<Setting<u32>>,
    /// Whether a poll watches the other direction too.
    pub poll_peer: Option<Setting<bool>>,
}

/// A knob by its name in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Knob {
    /// The busyloop timeout of a ring.
    Busyloop {
        /// 0 for RX, 1 for TX.
        direction: u32,
    },
    /// The cap on packets handed over together.
    TxBatched,
    /// Whether a poll watches the other direction too.
    PollPeer,
}

impl Knob {
    /// The knob's own value, as the module numbers it.
    #[must_use]
    pub fn of(self, knobs: &Knobs) -> u32 {
        match self {
            Self::Busyloop { direction } => knobs.busyloop[direction as usize & 1],
            Self::TxBatched => knobs.tx_batched,
            Self::PollPeer => knobs.poll_peer,
        }
    }

    /// True for a knob that only the module has.
    #[must_use]
    pub fn needs_module(self) -> bool {
        !matches!(self, Self::Busyloop { .. })
    }

    /// The direction that it belongs to; none for both.
    #[must_use]
    pub fn direction(self) -> Option<u32> {
        match self {
            Self::Busyloop { direction } => Some(direction),
            Self::TxBatched => Some(TX),
            Self::PollPeer => None,
        }
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busyloop { direction: RX } => "the rx busyloop timeout",
            Self::Busyloop { .. } => "the tx busyloop timeout",
            Self::TxBatched => "tx_batched",
            Self::PollPeer => "poll_peer",
        })
    }
}

impl Change {
    /// True if it asks for what only the module has.
    #[must_use]
    pub fn needs_module(&self) -> bool {
        self.tx_batched.is_some() || self.poll_peer.is_some()
    }

    /// The knobs that it asks for.
    #[must_use]
    pub fn knobs(&self) -> Vec<Knob> {
        let rings = [RX, TX].into_iter().filter_map(|direction| {
            self.busyloop.of(direction)?;
            Some(Knob::Busyloop { direction })
        });
        rings
            .chain(self.tx_batched.map(|_| Knob::TxBatched))
            .chain(self.poll_peer.map(|_| Knob::PollPeer))
            .collect()
    }

    /// What it asks for, as the module numbers it.
    #[must_use]
    pub fn asked(&self) -> Vec<(Knob, u32)> {
        let request = self.request();
        let knobs = self.knobs().into_iter();
        knobs.map(|knob| (knob, knob.of(&request))).collect()
    }

    /// Has it ask for a value of a knob, as the module numbers it.
    pub fn ask(&mut self, knob: Knob, value: u32) {
        match knob {
            Knob::Busyloop { direction: RX } => self.busyloop.rx = Some(value),
            Knob::Busyloop { .. } => self.busyloop.tx = Some(value),
            Knob::TxBatched => {
                self.tx_batched = Some(match value {
                    FOLLOW_TX_BATCHED => Setting::Follow,
                    own => Setting::Own(own),
                });
            }
            Knob::PollPeer => {
                self.poll_peer = Some(match value {
                    0 => Setting::Own(false),
                    1 => Setting::Own(true),
                    _ => Setting::Follow,
                });
            }
        }
    }

    /// The change as the module takes it.
    #[must_use]
    pub fn request(&self) -> Knobs {
        let mut knobs = Knobs::request();
        if let Some(timeout) = self.busyloop.rx {
            knobs.set |= set::BUSYLOOP_RX;
            knobs.busyloop[RX as usize] = timeout;
        }
        if let Some(timeout) = self.busyloop.tx {
            knobs.set |= set::BUSYLOOP_TX;
            knobs.busyloop[TX as usize] = timeout;
        }
        if let Some(cap) = self.tx_batched {
            knobs.set |= set::TX_BATCHED;
            knobs.tx_batched = match cap {
                Setting::Follow => FOLLOW_TX_BATCHED,
                Setting::Own(cap) => cap,
            };
        }
        if let Some(choice) = self.poll_peer {
            knobs.set |= set::POLL_PEER;
            knobs.poll_peer = match choice {
                Setting::Follow => FOLLOW_POLL_PEER,
                Setting::Own(choice) => u32::from(choice),
            };
        }
        knobs
    }

    /// The first knob that `found` does not have as asked: with what was asked
    /// and what is there, as the module numbers them.
    #[must_use]
    pub fn unmet(&self, found: &Knobs) -> Option<(Knob, u32, u32)> {
        let asked = self.request();
        self.knobs().into_iter().find_map(|knob| {
            let (wanted, there) = (knob.of(&asked), knob.of(found));
            (wanted != there).then_some((knob, wanted, there))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything() -> Change {
        Change {
            busyloop: busyloop::Change {
                rx: Some(10),
                tx: Some(20),
            },
            tx_batched: Some(Setting::Own(8)),
            poll_peer: Some(Setting::Own(false)),
        }
    }

    #[test]
    fn a_change_asks_for_nothing_else() {
        assert_eq!(Change::default().request().set, 0);
        let request = everything().request();
        assert_eq!(request.set, set::ALL);
        assert_eq!((request.size, request.version), (40, 1));
        assert_eq!(request.busyloop, [10, 20]);
        assert_eq!((request.tx_batched, request.poll_peer), (8, 0));
        let only_tx = Change {
            busyloop: busyloop::Change {
                rx: None,
                tx: Some(0),
            },
            ..Change::default()
        };
        assert_eq!(only_tx.request().set, set::BUSYLOOP_TX);
        assert!(!only_tx.needs_module());
        assert!(everything().needs_module());
    }

    #[test]
    fn following_the_parameter_has_its_own_values() {
        let request = Change {
            tx_batched: Some(Setting::Follow),
            poll_peer: Some(Setting::Follow),
            ..Change::default()
        }
        .request();
        assert_eq!(request.set, set::TX_BATCHED | set::POLL_PEER);
        assert_eq!((request.tx_batched, request.poll_peer), (0, 2));
    }

    #[test]
    fn what_is_asked_for_by_number_is_what_is_asked_for_by_name() {
        let following = Change {
            tx_batched: Some(Setting::Follow),
            poll_peer: Some(Setting::Follow),
            ..Change::default()
        };
        for change in [everything(), following, Change::default()] {
            let mut again = Change::default();
            for (knob, value) in change.asked() {
                again.ask(knob, value);
            }
            assert_eq!(again, change);
        }
    }

    #[test]
    fn what_was_not_asked_for_may_be_anything() {
        let mut found = everything().request();
        assert_eq!(everything().unmet(&found), None);
        found.busyloop[1] = 21;
        let (knob, wanted, there) = everything().unmet(&found).unwrap();
        assert_eq!(
            (knob, wanted, there),
            (Knob::Busyloop { direction: 1 }, 20, 21)
        );
        assert_eq!(knob.to_string(), "the tx busyloop timeout");
        let only_cap = Change {
            tx_batched: Some(Setting::Own(8)),
            ..Change::default()
        };
        assert_eq!(only_cap.unmet(&found), None);
        // The parameter may say the same; it is not the device's own.
        found.tx_batched = FOLLOW_TX_BATCHED;
        assert_eq!(only_cap.unmet(&found), Some((Knob::TxBatched, 8, 0)));
    }
}
