//! Telling lost, repeated and overtaken packets apart, exactly.

use std::collections::BTreeMap;

use serde::Serialize;

/// Follows the sequence numbers of one flow in one direction.
///
/// It remembers the holes, not the packets, so memory grows with losses only.
#[derive(Debug, Default)]
pub struct Tracker {
    /// The number after the highest one seen.
    next: u64,
    /// Holes below `next`: first number → number after the last.
    holes: BTreeMap<u64, u64>,
    received: u64,
    duplicated: u64,
    reordered: u64,
    damaged: u64,
}

/// What became of a flow's packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct FlowCounts {
    /// Packets sent.
    pub sent: u64,
    /// Different packets that arrived whole.
    pub received: u64,
    /// Packets sent that did not arrive whole (so far).
    pub lost: u64,
    /// Arrivals of a packet that had arrived before.
    pub duplicated: u64,
    /// Packets that arrived after a later one.
    pub reordered: u64,
    /// Arrivals that were not as sent.
    pub damaged: u64,
}

impl FlowCounts {
    /// Counts since `earlier`. `lost` may have shrunk, when stragglers came.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            sent: self.sent - earlier.sent,
            received: self.received - earlier.received,
            lost: self.lost.saturating_sub(earlier.lost),
            duplicated: self.duplicated - earlier.duplicated,
            reordered: self.reordered - earlier.reordered,
            damaged: self.damaged - earlier.damaged,
        }
    }

    /// Adds another flow's counts.
    pub const fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.damaged += other.damaged;
    }
}

impl Tracker {
    /// Takes an arrival in. True when it is the first of that number.
    pub fn arrived(&mut self, sequence: u64) -> bool {
        if sequence >= self.next {
            if sequence > self.next {
                self.holes.insert(self.next, sequence);
            }
            self.next = sequence.saturating_add(1);
            self.received += 1;
            return true;
        }
        let hole = self
            .holes
            .range(..=sequence)
            .next_back()
            .map(|(first, end)| (*first, *end))
            .filter(|(_, end)| sequence < *end);
        let Some((first, end)) = hole else {
            self.duplicated += 1;
            return false;
        };
        self.holes.remove(&first);
        if first < sequence {
            self.holes.insert(first, sequence);
        }
        if sequence + 1 < end {
            self.holes.insert(sequence + 1, end);
        }
        self.received += 1;
        self.reordered += 1;
        true
    }

    /// Takes the arrival of a packet that cannot be read in.
    pub const fn damaged(&mut self) {
        self.damaged += 1;
    }

    /// Different packets that arrived.
    #[must_use]
    pub const fn received(&self) -> u64 {
        self.received
    }

    /// The counts, given that `sent` packets were sent.
    #[must_use]
    pub const fn counts(&self, sent: u64) -> FlowCounts {
        FlowCounts {
            sent,
            received: self.received,
            lost: sent.saturating_sub(self.received),
            duplicated: self.duplicated,
            reordered: self.reordered,
            damaged: self.damaged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn after(arrivals: &[u64], sent: u64) -> FlowCounts {
        let mut tracker = Tracker::default();
        for sequence in arrivals {
            tracker.arrived(*sequence);
        }
        tracker.counts(sent)
    }

    #[test]
    fn a_clean_flow_has_nothing_to_report() {
        let counts = after(&[0, 1, 2, 3], 4);
        assert_eq!(
            counts,
            FlowCounts {
                sent: 4,
                received: 4,
                ..FlowCounts::default()
            }
        );
    }

    #[test]
    fn loss_at_either_end_is_seen() {
        assert_eq!(after(&[2, 3], 6).lost, 4);
        assert_eq!(after(&[], 6).lost, 6);
    }

    #[test]
    fn a_late_packet_is_reordered_and_not_lost() {
        let counts = after(&[0, 3, 1, 2], 4);
        assert_eq!(
            (counts.lost, counts.reordered, counts.duplicated),
            (0, 2, 0)
        );
    }

    #[test]
    fn a_repeated_packet_is_duplicated_even_when_it_was_late() {
        let counts = after(&[0, 2, 1, 1, 2, 0], 3);
        assert_eq!(
            (counts.received, counts.reordered, counts.duplicated),
            (3, 1, 3)
        );
    }

    proptest! {
        #[test]
        fn any_order_is_counted_as_a_plain_set_would(arrivals in prop::collection::vec(0u64..60, 0..200)) {
            let (mut seen, mut highest) = (HashSet::new(), None);
            let mut expected = FlowCounts { sent: 60, ..FlowCounts::default() };
            for sequence in &arrivals {
                if !seen.insert(*sequence) {
                    expected.duplicated += 1;
                    continue;
                }
                expected.received += 1;
                expected.reordered += u64::from(highest > Some(*sequence));
                highest = highest.max(Some(*sequence));
            }
            expected.lost = 60 - expected.received;
            prop_assert_eq!(after(&arrivals, 60), expected);
        }
    }
}
