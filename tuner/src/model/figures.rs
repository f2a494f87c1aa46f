//! Figures of a queue over an interval, as JSON and the screen name them.

use std::collections::BTreeMap;

use serde::Serialize;
use tuner_common::hist::{BATCH_BUCKETS, TIME_BUCKETS};
use tuner_common::queue::{Queue, cause, flush, missed, outcome};

use super::histogram::{Quantiles, TimeHistogram, batch_quantiles};

/// Reasons by name of the figure that is unknown.
pub type Degraded = BTreeMap<&'static str, String>;

/// Counters and histograms of one queue between two readings, or since
/// attaching. A figure that cannot be measured on this kernel is null.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counters {
    /// Calls of the handler.
    pub runs: u64,
    /// Of these, for a guest's kick.
    pub runs_kick: Option<u64>,
    /// For the tap's socket.
    pub runs_socket: Option<u64>,
    /// Put back by the handler itself: its weight, or an interrupted spin.
    pub runs_requeue: Option<u64>,
    /// Found by the other direction's busy poll.
    pub runs_peer: Option<u64>,
    /// Time inside the handler, spinning included.
    pub run_ns: u64,
    /// Ring entries consumed.
    pub packets: u64,
    /// Hand-overs of used buffers.
    pub batches: Option<u64>,
    /// Hand-overs because the batch was full.
    pub flushes_cap: Option<u64>,
    /// Because the queue ran dry.
    pub flushes_dry: Option<u64>,
    /// Because the run had handled its weight.
    pub flushes_weight: Option<u64>,
    /// Because a packet had to go alone.
    pub flushes_single: Option<u64>,
    /// Guest kicks.
    pub kicks: Option<u64>,
    /// Wake-ups by the tap's socket.
    pub socket_wakes: Option<u64>,
    /// Guest interrupts.
    pub interrupts: Option<u64>,
    /// Runs that ended for want of guest buffers (rx) or socket room (tx).
    pub starved: u64,
    /// Busy polls.
    pub polls: Option<u64>,
    /// That found work of their own direction.
    pub poll_own_hits: Option<u64>,
    /// That found work of the other direction.
    pub poll_peer_hits: Option<u64>,
    /// That found nothing in time.
    pub poll_misses: Option<u64>,
    /// That gave way to other work of the worker.
    pub poll_interrupted: Option<u64>,
    /// That could not take the other ring's lock.
    pub poll_skipped: Option<u64>,
    /// That gave way to another task or a signal.
    pub poll_resched: Option<u64>,
    /// Time spun.
    pub spin_ns: Option<u64>,
    /// Time spun in vain: all but own and peer hits.
    pub spin_wasted_ns: Option<u64>,
    /// How long the queue stayed dry before more work came.
    pub gap_us: Option<Quantiles>,
    /// From work queued by a kick or the socket to its handler.
    pub wake_us: Option<Quantiles>,
    /// Length of a run.
    pub run_us: Quantiles,
    /// Packets in a hand-over.
    pub batch: Option<Quantiles>,
    /// Events known to be missing from the figures above.
    pub missed: u64,
}

impl Counters {
    /// What happened from `before` to `after`. Without `before`, or where the
    /// entry was made anew since, all of `after` did.
    #[must_use]
    pub fn between(before: Option<&Queue>, after: &Queue, degraded: &Degraded) -> Self {
        let blank = blank();
        let before = before.filter(|b| b.born == after.born).unwrap_or(&blank);
        let known = |figure: &str, value: u64| (!degraded.contains_key(figure)).then_some(value);
        let runs = difference(&before.runs, &after.runs);
        let flushes = difference(&before.flushes, &after.flushes);
        let polls = difference(&before.polls, &after.polls);
        let spin = difference(&before.spin_ns, &after.spin_ns);
        let lost = difference(&before.missed, &after.missed);
        let run = |which: u32| known("runs_by_cause", runs[which as usize]);
        let flush = |which: u32| known("flushes", flushes[which as usize]);
        let poll = |name, which: u32| known(name, polls[which as usize]);
        let time = |name: &str, b: &[u64; TIME_BUCKETS], a: &[u64; TIME_BUCKETS]| {
            (!degraded.contains_key(name)).then(|| TimeHistogram::between(b, a).quantiles_us())
        };
        let useful = [outcome::OWN_HIT, outcome::PEER_HIT];
        let wasted = spin
            .iter()
            .enumerate()
            .filter(|(which, _)| !useful.contains(&(*which as u32)))
            .map(|(_, ns)| ns)
            .sum();
        Self {
            runs: runs.iter().sum(),
            runs_kick: run(cause::KICK),
            runs_socket: run(cause::SOCKET),
            runs_requeue: run(cause::REQUEUE),
            runs_peer: run(cause::PEER),
            run_ns: after.run_ns.saturating_sub(before.run_ns),
            packets: after.packets.saturating_sub(before.packets),
            batches: known("batches", after.batches.saturating_sub(before.batches)),
            flushes_cap: flush(flush::CAP),
            flushes_dry: flush(flush::DRY),
            flushes_weight: flush(flush::WEIGHT),
            flushes_single: flush(flush::SINGLE),
            kicks: known("kicks", after.kicks.saturating_sub(before.kicks)),
            socket_wakes: known(
                "kicks",
                after.socket_wakes.saturating_sub(before.socket_wakes),
            ),
            interrupts: known(
                "interrupts",
                after.interrupts.saturating_sub(before.interrupts),
            ),
            starved: after.starved.saturating_sub(before.starved),
            polls: known("polls", polls.iter().sum()),
            poll_own_hits: poll("poll_own_hits", outcome::OWN_HIT),
            poll_peer_hits: poll("poll_peer_hits", outcome::PEER_HIT),
            poll_misses: poll("poll_misses", outcome::MISS),
            poll_interrupted: poll("poll_interrupted", outcome::INTERRUPTED),
            poll_skipped: poll("poll_skipped", outcome::SKIPPED),
            poll_resched: poll("poll_resched", outcome::RESCHED),
            spin_ns: known("spin_ns", spin.iter().sum()),
            spin_wasted_ns: known("spin_ns", wasted),
            gap_us: time("gap_us", &before.gap, &after.gap),
            wake_us: time("wake_us", &before.wake, &after.wake),
            run_us: TimeHistogram::between(&before.run, &after.run).quantiles_us(),
            batch: (!degraded.contains_key("batch"))
                .then(|| batch_quantiles(&before.batch, &after.batch)),
            missed: lost.iter().sum(),
        }
    }
}

/// One queue: who it is, what is set, what happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// The VM's name.
    pub vm: String,
    /// The program that runs it.
    pub vmm: &'static str,
    /// Its process.
    pub pid: u32,
    /// The device's descriptor there.
    pub fd: u32,
    /// Net device behind the queue.
    pub tap: Option<String>,
    /// `rx` or `tx`, as the guest sees it.
    pub direction: &'static str,
    /// Thread that works for it.
    pub worker_tid: Option<u32>,
    /// What is set now, in the kernel's microseconds (1.024 µs).
    pub busyloop_timeout_us: u32,
    /// The cap on packets handed over together; of tx only.
    pub tx_batched: Option<u32>,
    /// Whether a poll watches the other direction too.
    pub poll_peer: Option<bool>,
    /// CPU the worker used, of one core. Both directions share a worker.
    pub worker_cpu_percent: Option<f64>,
    /// Time the worker waited for a CPU, of the interval.
    pub worker_wait_percent: Option<f64>,
    /// Packets dropped by the tap because the queue was full.
    pub tap_dropped: Option<u64>,
    /// True if the device was released: these are its last figures.
    pub ended: bool,
    /// What happened in the interval.
    #[serde(flatten)]
    pub interval: Counters,
    /// What happened since attaching.
    pub totals: Counters,
}

fn difference<const N: usize>(before: &[u64; N], after: &[u64; N]) -> [u64; N] {
    std::array::from_fn(|i| after[i].saturating_sub(before[i]))
}

/// A queue that nothing happened to.
#[must_use]
pub fn blank() -> Queue {
    Queue {
        born: 0,
        runs: [0; cause::COUNT],
        run_ns: 0,
        packets: 0,
        batches: 0,
        batch_packets: 0,
        flushes: [0; flush::COUNT],
        polls: [0; outcome::COUNT],
        spin_ns: [0; outcome::COUNT],
        kicks: 0,
        socket_wakes: 0,
        interrupts: 0,
        starved: 0,
        gap_ns: 0,
        wake_ns: 0,
        missed: [0; missed::COUNT],
        worker_tid: 0,
        worker_tgid: 0,
        timeout: 0,
        closed: 0,
        state: tuner_common::queue::State::default(),
        gap: [0; TIME_BUCKETS],
        wake: [0; TIME_BUCKETS],
        run: [0; TIME_BUCKETS],
        batch: [0; BATCH_BUCKETS],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy() -> Queue {
        let mut queue = blank();
        queue.runs = [5, 3, 2, 1];
        queue.packets = 1000;
        queue.polls = [4, 3, 2, 1, 1, 1];
        queue.spin_ns = [40, 30, 20, 10, 1, 5];
        queue.kicks = 7;
        queue
    }

    #[test]
    fn an_interval_is_the_difference_and_outcomes_add_up() {
        let mut after = busy();
        after.packets += 10;
        after.polls[outcome::MISS as usize] += 5;
        let counters = Counters::between(Some(&busy()), &after, &Degraded::new());
        assert_eq!(counters.packets, 10);
        assert_eq!(counters.polls, Some(5));
        assert_eq!(counters.poll_misses, Some(5));
        assert_eq!(counters.runs, 0);
    }

    #[test]
    fn without_an_earlier_reading_everything_counts() {
        let counters = Counters::between(None, &busy(), &Degraded::new());
        assert_eq!(counters.runs, 11);
        assert_eq!(counters.polls, Some(12));
        assert_eq!(counters.spin_ns, Some(106));
        assert_eq!(counters.spin_wasted_ns, Some(36));
    }

    #[test]
    fn another_device_at_the_same_address_starts_from_nothing() {
        let mut after = busy();
        after.born = 1;
        let counters = Counters::between(Some(&busy()), &after, &Degraded::new());
        assert_eq!(counters.packets, 1000);
    }

    #[test]
    fn a_degraded_figure_is_null_and_never_zero() {
        let degraded = Degraded::from([("kicks", "why".to_owned()), ("polls", "why".to_owned())]);
        let counters = Counters::between(None, &busy(), &degraded);
        assert_eq!(counters.kicks, None);
        assert_eq!(counters.polls, None);
        assert_eq!(counters.poll_own_hits, Some(4));
        let json = serde_json::to_value(&counters).unwrap();
        assert!(json["kicks"].is_null());
    }
}
