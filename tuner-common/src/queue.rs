//! What is kept for each queue.

use crate::hist::{BATCH_BUCKETS, TIME_BUCKETS};

/// Direction of a queue, as the guest sees it and as `VHOST_NET_VQ_*` numbers
/// it: the host fills RX, the guest fills TX.
pub const RX: u32 = 0;
/// See [`RX`].
pub const TX: u32 = 1;

/// Key of the queue map.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueKey {
    /// Kernel address of the `struct vhost_net`.
    pub net: u64,
    /// [`RX`] or [`TX`].
    pub direction: u32,
    /// Always zero: map keys are compared byte by byte.
    pub zero: u32,
}

/// Why a handler ran.
pub mod cause {
    /// The guest kicked.
    pub const KICK: u32 = 0;
    /// The tap's socket became readable (RX) or writable (TX).
    pub const SOCKET: u32 = 1;
    /// The handler put itself back in the queue, having reached its weight or
    /// having been interrupted while it spun.
    pub const REQUEUE: u32 = 2;
    /// The other direction found work for it while spinning.
    pub const PEER: u32 = 3;
    /// Number of causes.
    pub const COUNT: usize = 4;
}

/// How a busy poll ended. Exactly one for each poll.
pub mod outcome {
    /// The run went on to handle packets of its own direction.
    pub const OWN_HIT: u32 = 0;
    /// Work for the other direction was found and queued.
    pub const PEER_HIT: u32 = 1;
    /// The timeout passed.
    pub const MISS: u32 = 2;
    /// Other work was waiting for the worker.
    pub const INTERRUPTED: u32 = 3;
    /// The other direction's ring was locked, so nothing was polled at all.
    pub const SKIPPED: u32 = 4;
    /// The processor was wanted by another task, or a signal was pending.
    pub const RESCHED: u32 = 5;
    /// Number of outcomes.
    pub const COUNT: usize = 6;
}

/// Why a batch was handed over.
pub mod flush {
    /// It had reached the cap: `VHOST_NET_BATCH`, 64, or what the module has
    /// set instead.
    pub const CAP: u32 = 0;
    /// The queue ran dry.
    pub const DRY: u32 = 1;
    /// The run had handled its weight in packets or bytes.
    pub const WEIGHT: u32 = 2;
    /// A packet came that has to go alone (too large for the array).
    pub const SINGLE: u32 = 3;
    /// Number of causes.
    pub const COUNT: usize = 4;
}

/// Why a figure may be too low. Each is a count of events that were lost.
pub mod missed {
    /// A run whose return was not seen (no free kretprobe instance).
    pub const RUN_RETURN: u32 = 0;
    /// A run whose entry was not seen (probe recursion).
    pub const RUN_ENTRY: u32 = 1;
    /// A busy poll whose return was not seen.
    pub const POLL_RETURN: u32 = 2;
    /// Number of kinds.
    pub const COUNT: usize = 3;
}

/// Monotonic figures of one queue, and the state the programs keep between
/// events.
///
/// A queue is only ever run by one worker at a time, so most counters are
/// plain. Those that other contexts write (a kick arrives on any CPU) are
/// named so, and are added to atomically.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// When the entry was made. Another value at the same key means another
    /// device.
    pub born: u64,
    /// Runs of the handler by [`cause`].
    pub runs: [u64; cause::COUNT],
    /// Time inside the handler, spinning included, in nanoseconds.
    pub run_ns: u64,
    /// Ring entries consumed: packets, or for RX with mergeable buffers,
    /// buffers.
    pub packets: u64,
    /// Hand-overs to the other side (used buffers published together).
    pub batches: u64,
    /// Ring entries in these hand-overs.
    pub batch_packets: u64,
    /// Hand-overs by [`flush`] cause.
    pub flushes: [u64; flush::COUNT],
    /// Busy polls by [`outcome`].
    pub polls: [u64; outcome::COUNT],
    /// Time spun by [`outcome`], in nanoseconds.
    pub spin_ns: [u64; outcome::COUNT],
    /// Guest kicks that reached vhost. Written by any context.
    pub kicks: u64,
    /// Wake-ups by the tap's socket. Written by any context.
    pub socket_wakes: u64,
    /// Guest interrupts raised.
    pub interrupts: u64,
    /// Runs that ended for want of guest buffers (RX) or room in the socket
    /// (TX).
    pub starved: u64,
    /// Sum of the gaps in [`Queue::gap`], in nanoseconds. Written by any
    /// context.
    pub gap_ns: u64,
    /// Sum of the waits in [`Queue::wake`], in nanoseconds.
    pub wake_ns: u64,
    /// Lost events by [`missed`] kind.
    pub missed: [u64; missed::COUNT],
    /// Thread that ran the handler last.
    pub worker_tid: u32,
    /// Its process.
    pub worker_tgid: u32,
    /// The ring's busyloop timeout when the handler last ran, in the kernel's
    /// unit of 1.024 µs.
    pub timeout: u32,
    /// 1 once the device was released: the figures are final.
    pub closed: u32,
    /// The programs' own state.
    pub state: State,
    /// Dry moment → more work, in nanoseconds. Written by any context.
    pub gap: [u64; TIME_BUCKETS],
    /// Work queued by a kick or the socket → handler runs, in nanoseconds.
    pub wake: [u64; TIME_BUCKETS],
    /// Length of a run, in nanoseconds.
    pub run: [u64; TIME_BUCKETS],
    /// Packets in a hand-over.
    pub batch: [u64; BATCH_BUCKETS],
}

/// State between two events of one queue. Not figures.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    /// When the queue ran dry; 0 while it has not, or once the gap is
    /// counted. Taken by whoever ends the gap, with an atomic exchange.
    pub dry_since: u64,
    /// When the ring's work item was queued; 0 once a run took it.
    pub kick_at: u64,
    /// The same for the socket's work item.
    pub socket_at: u64,
    /// When the present run began.
    pub run_at: u64,
    /// When the last busy poll of this run began.
    pub poll_at: u64,
    /// When it ended.
    pub poll_end: u64,
    /// Address of the caller's `busyloop_intr`.
    pub poll_intr: u64,
    /// [`cause`] that `kick_at` stands for.
    pub kick_cause: u32,
    /// `last_avail_idx` when the run began.
    pub run_index: u32,
    /// `last_avail_idx` up to which progress has been noted.
    pub seen_index: u32,
    /// 1 inside the handler.
    pub running: u32,
    /// 1 while a poll has returned and its outcome is not decided.
    pub poll_open: u32,
    /// Bits of [`poll_saw`] of that poll.
    pub poll_saw: u32,
    /// The ring's timeout at that poll, in 1.024 µs.
    pub poll_timeout: u32,
    /// 1 while a hand-over's cause is not decided.
    pub flush_open: u32,
    /// 1 if the run put its own queue back.
    pub requeued: u32,
    /// 1 if the last poll of this run found nothing (the queue has been dry
    /// since it began).
    pub dry_poll: u32,
    /// 1 if the module has said that the next hand-over is made for the cap.
    pub cap_reached: u32,
    /// Keeps the size a multiple of eight.
    pub zero: u32,
}

/// What was seen while a poll went on.
pub mod poll_saw {
    /// The peer's lock was taken: its notifications were put back. Or it was
    /// not asked for: the module polls the own side only.
    pub const LOCKED: u32 = 1;
    /// Work was queued for the peer.
    pub const PEER_QUEUED: u32 = 2;
    /// The caller's `busyloop_intr` was set.
    pub const INTERRUPTED: u32 = 4;
}

/// What a worker thread is in the middle of, by thread id.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Worker {
    /// Device it is handling.
    pub net: u64,
    /// [`RX`] or [`TX`].
    pub direction: u32,
    /// 1 inside a handler.
    pub running: u32,
    /// 1 inside a busy poll.
    pub polling: u32,
    /// Bits of [`poll_saw`].
    pub saw: u32,
}

/// Events that could not be counted for any queue.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// A queue found no room in the map.
    pub queue_map_full: u64,
    /// A worker found no room in the map.
    pub worker_map_full: u64,
}

#[cfg(feature = "user")]
mod pod {
    use super::{Lost, Queue, QueueKey, Worker};

    // SAFETY: `repr(C)`, integers only, without padding (held by the tests
    // below), valid for any bit pattern.
    unsafe impl aya::Pod for QueueKey {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Queue {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Worker {}
    // SAFETY: as above.
    unsafe impl aya::Pod for Lost {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_values_have_no_padding() {
        let counters = (cause::COUNT + flush::COUNT + 2 * outcome::COUNT + missed::COUNT + 11) * 8;
        let histograms = (3 * TIME_BUCKETS + BATCH_BUCKETS) * 8;
        assert_eq!(size_of::<State>(), 7 * 8 + 12 * 4);
        assert_eq!(
            size_of::<Queue>(),
            counters + 4 * 4 + size_of::<State>() + histograms
        );
        assert_eq!(size_of::<QueueKey>(), 16);
        assert_eq!(size_of::<Worker>(), 24);
    }
}
