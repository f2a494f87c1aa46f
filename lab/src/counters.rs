//! What is counted on a queue pair, while it runs and when reported.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// A counter that one thread at a time adds to and any thread may read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only one thread at a time may do so.
    pub fn add(&self, n: u64) {
        // A plain load and store: with one writer nothing gets between.
        let value = self.0.load(Ordering::Relaxed);
        self.0.store(value + n, Ordering::Relaxed);
    }

    /// The count so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// One ring's live counters.
#[derive(Debug, Default)]
pub struct RingCounters {
    /// See [`RingCounts::packets`].
    pub packets: Counter,
    /// See [`RingCounts::kicks`].
    pub kicks: Counter,
    /// See [`RingCounts::interrupts`].
    pub interrupts: Counter,
    /// See [`RingCounts::publishes`].
    pub publishes: Counter,
    /// See [`RingCounts::bursts`].
    pub bursts: Counter,
}

/// One queue pair's live counters, written by its guest thread.
#[derive(Debug, Default)]
pub struct PairCounters {
    /// Transmit ring.
    pub tx: RingCounters,
    /// Receive ring.
    pub rx: RingCounters,
    /// See [`PairCounts::rx_frames`].
    pub rx_frames: Counter,
    /// See [`PairCounts::foreign`].
    pub foreign: Counter,
    /// See [`PairCounts::misrouted`].
    pub misrouted: Counter,
    /// See [`PairCounts::primers`].
    pub primers: Counter,
    /// See [`PairCounts::round_trips`].
    pub round_trips: Counter,
    /// See [`PairCounts::timeouts`].
    pub timeouts: Counter,
}

/// What happened on one ring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RingCounts {
    /// Descriptor heads that vhost used and the driver took back.
    pub packets: u64,
    /// Writes to the kick eventfd.
    pub kicks: u64,
    /// Sum of the values read from the call eventfd.
    pub interrupts: u64,
    /// Updates of the available index.
    pub publishes: u64,
    /// Bursts sent (in the modes that make bursts).
    pub bursts: u64,
}

/// What happened on one queue pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct PairCounts {
    /// Transmit ring.
    pub tx: RingCounts,
    /// Receive ring.
    pub rx: RingCounts,
    /// Frames received; fewer than `rx.packets` when buffers were merged.
    pub rx_frames: u64,
    /// Frames received that were not made by the lab.
    pub foreign: u64,
    /// Frames of another queue's flow received on this queue.
    pub misrouted: u64,
    /// Packets sent to teach the tap a flow's queue; part of `tx.packets`.
    pub primers: u64,
    /// Questions answered.
    pub round_trips: u64,
    /// Questions given up.
    pub timeouts: u64,
}

impl RingCounters {
    fn counts(&self) -> RingCounts {
        RingCounts {
            packets: self.packets.get(),
            kicks: self.kicks.get(),
            interrupts: self.interrupts.get(),
            publishes: self.publishes.get(),
            bursts: self.bursts.get(),
        }
    }
}

impl PairCounters {
    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> PairCounts {
        PairCounts {
            tx: self.tx.counts(),
            rx: self.rx.counts(),
            rx_frames: self.rx_frames.get(),
            foreign: self.foreign.get(),
            misrouted: self.misrouted.get(),
            primers: self.primers.get(),
            round_trips: self.round_trips.get(),
            timeouts: self.timeouts.get(),
        }
    }
}

impl RingCounts {
    fn zip(&self, other: &Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            packets: f(self.packets, other.packets),
            kicks: f(self.kicks, other.kicks),
            interrupts: f(self.interrupts, other.interrupts),
            publishes: f(self.publishes, other.publishes),
            bursts: f(self.bursts, other.bursts),
        }
    }
}

impl PairCounts {
    fn zip(&self, other: &Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            tx: self.tx.zip(&other.tx, &f),
            rx: self.rx.zip(&other.rx, &f),
            rx_frames: f(self.rx_frames, other.rx_frames),
            foreign: f(self.foreign, other.foreign),
            misrouted: f(self.misrouted, other.misrouted),
            primers: f(self.primers, other.primers),
            round_trips: f(self.round_trips, other.round_trips),
            timeouts: f(self.timeouts, other.timeouts),
        }
    }

    /// Counts since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.zip(earlier, |now, then| now - then)
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a + b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_undoes_plus() {
        let counters = PairCounters::default();
        counters.tx.kicks.add(3);
        counters.round_trips.add(2);
        let early = counters.counts();
        counters.tx.kicks.add(4);
        counters.rx.interrupts.add(1);
        let late = counters.counts();
        assert_eq!(late.since(&early).tx.kicks, 4);
        assert_eq!(late.since(&early).round_trips, 0);
        assert_eq!(late.since(&early).plus(&early), late);
    }
}
