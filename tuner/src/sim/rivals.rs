//! What decides how long a worker spins: our policy's value, or a rule that
//! sees every gap.

/// How long to spin on a vring that ran dry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rule {
    /// So many nanoseconds. What is set does not change by itself.
    Fixed { timeout_ns: u64 },
    /// KVM's halt polling, as its documentation describes it.
    HaltPoll(HaltPoll),
    /// Spins exactly if that is cheaper than the wake-up, which is worth so many
    /// nanoseconds: knows when the next packet comes.
    Clairvoyant { wake_ns: u64 },
}

impl Rule {
    /// For how long to spin, where the next packet comes after so many
    /// nanoseconds.
    pub(super) fn timeout_ns(&self, next_ns: u64) -> u64 {
        match self {
            Self::Fixed { timeout_ns } => *timeout_ns,
            Self::HaltPoll(rule) => rule.timeout_ns,
            // One more, so that the packet comes first.
            Self::Clairvoyant { wake_ns } if next_ns <= *wake_ns => next_ns + 1,
            Self::Clairvoyant { .. } => 0,
        }
    }

    /// A gap has ended.
    pub(super) fn ended(&mut self, gap_ns: u64) {
        if let Self::HaltPoll(rule) = self {
            rule.ended(gap_ns);
        }
    }
}

/// Grows while a little longer would have done, and gives up when even the
/// ceiling would not have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HaltPoll {
    timeout_ns: u64,
}

impl HaltPoll {
    /// What it grows to from 0.
    const START_NS: u64 = 10_000;
    /// What it grows by.
    const GROW: u64 = 2;
    /// What it never exceeds.
    const CEILING_NS: u64 = 200_000;

    pub(super) fn new() -> Self {
        Self { timeout_ns: 0 }
    }

    fn ended(&mut self, gap_ns: u64) {
        if gap_ns <= self.timeout_ns {
            // It was long enough.
        } else if gap_ns <= Self::CEILING_NS {
            let grown = self.timeout_ns * Self::GROW;
            self.timeout_ns = grown.clamp(Self::START_NS, Self::CEILING_NS);
        } else {
            self.timeout_ns = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halt_polling_doubles_up_to_its_ceiling_and_drops_beyond() {
        let mut rule = HaltPoll::new();
        let mut grown = Vec::new();
        for _ in 0..7 {
            rule.ended(190_000);
            grown.push(rule.timeout_ns / 1000);
        }
        assert_eq!(grown, [10, 20, 40, 80, 160, 200, 200]);
        rule.ended(201_000);
        assert_eq!(rule.timeout_ns, 0);
        rule.ended(201_000);
        assert_eq!(rule.timeout_ns, 0);
    }

    #[test]
    fn the_clairvoyant_spins_exactly_as_long_as_it_pays() {
        let rule = Rule::Clairvoyant { wake_ns: 50_000 };
        assert_eq!(rule.timeout_ns(50_000), 50_001);
        assert_eq!(rule.timeout_ns(50_001), 0);
    }
}
