//! What is counted, as the eBPF programs count it.

use tuner_common::hist::time_bucket;

use crate::model::TimeHistogram;
use crate::policy::VringLook;

/// Counters of one vring since they were taken last.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) gaps: TimeHistogram,
    pub(super) packets: u64,
    pub(super) run_ns: u64,
    pub(super) wakes: u64,
    pub(super) wake_wait_ns: u64,
    pub(super) spin_ns: u64,
    pub(super) batches: u64,
    /// Packets of the largest.
    pub(super) largest: u64,
}

impl Tally {
    /// A gap has ended.
    pub(super) fn gap(&mut self, gap_ns: u64) {
        self.gaps.add(time_bucket(gap_ns), 1);
    }

    /// A batch was handed over.
    pub(super) fn batch(&mut self, packets: u64) {
        self.batches += 1;
        self.largest = self.largest.max(packets);
    }

    /// As the policy sees it.
    pub(super) fn into_look(self, timeout: u32) -> VringLook {
        VringLook {
            timeout,
            gaps: Some(self.gaps),
            packets: self.packets,
            run_ns: self.run_ns,
            wakes: Some(self.wakes),
            wake_wait_ns: Some(self.wake_wait_ns),
            spin_ns: Some(self.spin_ns),
            batches: Some(self.batches),
            missed: 0,
        }
    }
}

/// What everything together came to.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    pub(super) packets: u64,
    pub(super) spin_ns: u64,
    pub(super) wakes: u64,
    /// Waiting of packets beyond what handling one alone takes.
    pub(super) waits: TimeHistogram,
}

impl Totals {
    /// Adds counters that were taken.
    pub(super) fn add(&mut self, tally: &Tally) {
        self.packets += tally.packets;
        self.spin_ns += tally.spin_ns;
        self.wakes += tally.wakes;
    }

    /// Time spun, and wake-ups at what they are worth, in nanoseconds.
    pub(super) fn cost_ns(&self, wake_ns: f64) -> f64 {
        self.spin_ns as f64 + self.wakes as f64 * wake_ns
    }
}
