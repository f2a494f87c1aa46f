//! What the policy wants changed, and why.

use std::fmt;

use serde::Serialize;

use super::look::{Direction, PairKey};

/// What is turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Knob {
    /// The rx vring's timeout, in the kernel's unit of 1.024 µs.
    BusyloopRx,
    /// The tx vring's.
    BusyloopTx,
    /// The cap on packets handed over together.
    TxBatched,
}

impl Knob {
    /// The timeout of a direction.
    #[must_use]
    pub fn busyloop(direction: Direction) -> Self {
        match direction {
            Direction::Rx => Self::BusyloopRx,
            Direction::Tx => Self::BusyloopTx,
        }
    }

    /// As it is named to users.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BusyloopRx => "busyloop-rx",
            Self::BusyloopTx => "busyloop-tx",
            Self::TxBatched => "tx-batched",
        }
    }
}

/// How a timeout was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// The cheapest over the last minutes.
    Slow,
    /// The cheapest over the times that looked like this one.
    Phase,
    /// The cheapest over the last few looks.
    Fast,
    /// What a wake-up is worth: predictions have kept failing, and this never
    /// costs more than twice what knowing the future would.
    BreakEven,
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It costs least.
    Cheapest(Way),
    /// It costs least of what the host's budget for spinning allows.
    Budget,
    /// Others want the worker's CPU.
    Contended,
    /// The worker shares housekeeping CPUs.
    Housekeeping,
    /// The configuration says so for this VM.
    Pinned,
    /// What was set is outside of what the profile allows.
    Bounds,
    /// The change before made it dearer.
    WentBack,
    /// The smallest cap that keeps the worker below its target.
    Utilisation,
    /// The largest cap that keeps the first packet from waiting too long.
    FirstWait,
}

/// The figures that a decision rests on. What does not apply is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Basis {
    /// Gaps that were known.
    pub gaps: Option<f64>,
    /// What a wake-up is worth, in microseconds.
    pub wake_us: Option<f64>,
    /// What spinning is dearer by because of the budget.
    pub spin_price: Option<f64>,
    /// Cost per gap before, in microseconds.
    pub cost_before_us: Option<f64>,
    /// Cost per gap to be expected, in microseconds.
    pub cost_after_us: Option<f64>,
    /// CPU time to be spun, in percent of a core.
    pub spin_percent: Option<f64>,
    /// Share of the time that the worker waited for a CPU.
    pub wait_share: Option<f64>,
    /// How busy the worker is, spinning not counted (0…1).
    pub utilisation_before: Option<f64>,
    /// How busy it will be.
    pub utilisation_after: Option<f64>,
    /// Cost of a packet, in nanoseconds.
    pub packet_ns: Option<f64>,
    /// Cost of a batch, in nanoseconds.
    pub batch_ns: Option<f64>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// The same for the same decision, whenever the same looks are seen again.
    pub id: String,
    /// The VM's name.
    pub vm: String,
    /// The queue pair.
    pub pair: PairKey,
    /// What to turn.
    pub knob: Knob,
    /// What is set.
    pub from: u32,
    /// What to set.
    pub to: u32,
    /// Why.
    pub reason: Reason,
    /// What it rests on.
    pub basis: Basis,
}

impl Decision {
    /// Makes the decision that is the `number`th on this knob.
    #[must_use]
    pub(super) fn new(
        (vm, pair, knob): (&str, PairKey, Knob),
        (from, to): (u32, u32),
        reason: Reason,
        basis: Basis,
        number: u64,
    ) -> Self {
        let what = format!("{vm}/{pair}/{}/{}/{to}/{number}", pair.device, knob.name());
        Self {
            id: format!("{:016x}", fnv(what.as_bytes())),
            vm: vm.to_owned(),
            pair,
            knob,
            from,
            to,
            reason,
            basis,
        }
    }

    /// Why, in a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let why = Why {
            reason: self.reason,
            basis: &self.basis,
        };
        format!("{why}")
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {}: {} → {}: {}",
            self.vm,
            self.pair,
            self.knob.name(),
            self.from,
            self.to,
            self.sentence()
        )
    }
}

/// FNV-1a, 64 bits: short, and the same on every machine.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A reason with its figures, as a sentence.
struct Why<'a> {
    reason: Reason,
    basis: &'a Basis,
}

impl fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Basis {
            gaps,
            wake_us,
            cost_before_us,
            cost_after_us,
            ..
        } = self.basis;
        let costs = || match (cost_before_us, cost_after_us, gaps, wake_us) {
            (Some(before), Some(after), Some(gaps), Some(wake)) => format!(
                "{after:.1} µs a gap instead of {before:.1}, by {gaps:.0} gaps, a wake-up being \
                 worth {wake:.0} µs"
            ),
            _ => "no costs are known".to_owned(),
        };
        match self.reason {
            Reason::Cheapest(way) => {
                let over = match way {
                    Way::Slow => "it costs least",
                    Way::Phase => "it cost least when the traffic was like this",
                    Way::Fast => "it costs least of late",
                    Way::BreakEven => {
                        return write!(
                            f,
                            "what was expected did not happen again and again, so the worker spins \
                             for what a wake-up is worth, {:.0} µs",
                            wake_us.unwrap_or(0.0)
                        );
                    }
                };
                write!(f, "{over}: {}", costs())
            }
            Reason::Budget => write!(
                f,
                "the host's budget for spinning makes it {:.1} times as dear: {}",
                self.basis.spin_price.unwrap_or(1.0),
                costs()
            ),
            Reason::Contended => write!(
                f,
                "others want the worker's CPU: it waited {:.0} % of the time",
                100.0 * self.basis.wait_share.unwrap_or(0.0)
            ),
            Reason::Housekeeping => {
                f.write_str("the worker may run on housekeeping CPUs only, where nothing spins")
            }
            Reason::Pinned => f.write_str("the configuration pins it for this VM"),
            Reason::Bounds => f.write_str("what was set is outside of what the profile allows"),
            Reason::WentBack => write!(
                f,
                "the change before was taken back: a packet cost {:.2} µs before it and {:.2} after",
                cost_after_us.unwrap_or(0.0),
                cost_before_us.unwrap_or(0.0)
            ),
            Reason::Utilisation => write!(
                f,
                "the smallest cap that keeps the worker below its target: {:.0} % busy instead of \
                 {:.0} %",
                100.0 * self.basis.utilisation_after.unwrap_or(0.0),
                100.0 * self.basis.utilisation_before.unwrap_or(0.0)
            ),
            Reason::FirstWait => write!(
                f,
                "the first packet of a batch would wait too long for more, at {:.0} ns a packet",
                self.basis.packet_ns.unwrap_or(0.0)
            ),
        }
    }
}

/// Something to tell the administrator that is no change.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Notice {
    /// Somebody else set this knob: it is left alone from now on.
    SteppedAside {
        /// The VM's name.
        vm: String,
        /// The queue pair.
        pair: PairKey,
        /// The knob.
        knob: Knob,
        /// What we thought was set.
        ours: u32,
        /// What is.
        theirs: u32,
    },
    /// The spinning that the policy may not change is above the budget.
    OverBudget {
        /// Predicted, in cores.
        spin_cores: f64,
        /// Allowed, in cores.
        budget_cores: f64,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SteppedAside {
                vm,
                pair,
                knob,
                ours,
                theirs,
            } => write!(
                f,
                "{vm} {pair} {}: somebody set {theirs} where {ours} was set: left alone from now on",
                knob.name()
            ),
            Self::OverBudget {
                spin_cores,
                budget_cores,
            } => write!(
                f,
                "spinning takes {spin_cores:.2} cores, more than the {budget_cores:.2} of the \
                 budget, on queues that may not be changed now"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: PairKey = PairKey {
        pid: 7,
        fd: 30,
        device: 1,
    };

    fn decision(number: u64, reason: Reason) -> Decision {
        let basis = Basis {
            gaps: Some(1200.0),
            wake_us: Some(50.0),
            cost_before_us: Some(61.0),
            cost_after_us: Some(20.0),
            ..Basis::default()
        };
        Decision::new(
            ("web1", PAIR, Knob::BusyloopRx),
            (0, 75),
            reason,
            basis,
            number,
        )
    }

    #[test]
    fn the_same_decision_has_the_same_id_and_the_next_another() {
        let one = decision(0, Reason::Cheapest(Way::Slow));
        assert_eq!(one.id, decision(0, Reason::Cheapest(Way::Slow)).id);
        assert_ne!(one.id, decision(1, Reason::Cheapest(Way::Slow)).id);
        // Known value: the ids of recordings must not change by accident.
        assert_eq!(fnv(b"a"), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn a_decision_says_why() {
        let said = decision(0, Reason::Cheapest(Way::Slow)).to_string();
        assert_eq!(
            said,
            "web1 7:30 busyloop-rx: 0 → 75: it costs least: 20.0 µs a gap instead of 61.0, by \
             1200 gaps, a wake-up being worth 50 µs"
        );
        for reason in [
            Reason::Cheapest(Way::Phase),
            Reason::Cheapest(Way::Fast),
            Reason::Cheapest(Way::BreakEven),
            Reason::Budget,
            Reason::Contended,
            Reason::Housekeeping,
            Reason::Pinned,
            Reason::Bounds,
            Reason::WentBack,
            Reason::Utilisation,
            Reason::FirstWait,
        ] {
            assert!(decision(0, reason).sentence().contains(' '), "{reason:?}");
        }
    }
}
