//! What each program asks of a kernel.

use tuner_common::layout::Layout;

use crate::inspect::Livepatch;
use crate::inspect::layout::QUEUE_WORK;
use crate::knob::module::LIVEPATCH;

const RUNS: &[&str] = &["runs", "packets", "run_ns"];
/// What cannot be told without seeing every poll.
pub(crate) const POLLS: &[&str] = &[
    "polls",
    "poll_own_hits",
    "poll_peer_hits",
    "poll_misses",
    "poll_interrupted",
    "poll_skipped",
    "poll_resched",
    "spin_ns",
    // A hand-over or a gap is told from others by the poll that follows it.
    "flushes",
    "gap_us",
];
const BATCHES: &[&str] = &["batches", "batch", "flushes"];
const INTERRUPTS: &[&str] = &["interrupts"];
const WAKES: &[&str] = &[
    "kicks",
    "runs_by_cause",
    "wake_us",
    "gap_us",
    "poll_peer_hits",
    "poll_skipped",
    "flushes",
];
const OWN_QUEUEING: &[&str] = &[
    "runs_by_cause",
    "poll_peer_hits",
    "poll_skipped",
    "flushes",
    "gap_us",
];
const OWN_SIDE: &[&str] = &[
    "poll_own_hits",
    "poll_misses",
    "poll_interrupted",
    "poll_skipped",
    "poll_resched",
    "spin_ns",
];
pub(super) const CAP: &[&str] = &["flushes"];
/// Stands for following what comes and goes by events; no figure of a queue.
pub(crate) const DEVICES: &str = "devices";
const EVENTS: &[&str] = &[DEVICES];

/// What a program asks of a function.
pub(super) struct Wish {
    pub(super) program: &'static str,
    pub(super) module: &'static str,
    /// Functions, any of which will do, the best first.
    pub(super) functions: &'static [&'static str],
    /// Positions of the arguments that the program reads; none means that a
    /// compiler's clone will do as well.
    pub(super) reads: fn(&Layout) -> Vec<u32>,
    pub(super) essential: bool,
    pub(super) figures: &'static [&'static str],
}

fn none(_: &Layout) -> Vec<u32> {
    Vec::new()
}

/// The first argument of the handlers, and the second of a release and of an
/// ioctl: their types allow no other order.
fn fixed(_: &Layout) -> Vec<u32> {
    vec![0]
}

impl Wish {
    const fn new(
        program: &'static str,
        module: &'static str,
        functions: &'static [&'static str],
        reads: fn(&Layout) -> Vec<u32>,
        essential: bool,
        figures: &'static [&'static str],
    ) -> Self {
        Self {
            program,
            module,
            functions,
            reads,
            essential,
            figures,
        }
    }
}

/// For every kernel.
pub(super) const WISHES: [Wish; 15] = [
    Wish::new("rx_return", "vhost_net", &["handle_rx"], none, true, RUNS),
    Wish::new("tx_return", "vhost_net", &["handle_tx"], none, true, RUNS),
    Wish::new(
        "poll_return",
        "vhost_net",
        &["vhost_net_busy_poll"],
        none,
        false,
        POLLS,
    ),
    Wish::new(
        "poll_enter",
        "vhost_net",
        &["vhost_net_busy_poll"],
        |layout| vec![layout.arg_poll_intr],
        false,
        POLLS,
    ),
    Wish::new(
        "notify_enabled",
        "vhost",
        &["vhost_enable_notify"],
        none,
        false,
        POLLS,
    ),
    Wish::new(
        "batch_done",
        "vhost",
        &["vhost_add_used_and_signal_n"],
        |layout| {
            vec![
                layout.arg_flush_dev,
                layout.arg_flush_vq,
                layout.arg_flush_count,
            ]
        },
        false,
        BATCHES,
    ),
    Wish::new(
        "notify_return",
        "vhost",
        &["vhost_notify"],
        none,
        false,
        INTERRUPTS,
    ),
    Wish::new(
        "work_queued",
        "vhost",
        &QUEUE_WORK,
        |layout| vec![layout.arg_queue_work],
        false,
        WAKES,
    ),
    Wish::new(
        "poll_queued",
        "vhost",
        &["vhost_poll_queue"],
        fixed,
        false,
        OWN_QUEUEING,
    ),
    Wish::new(
        "device_released",
        "vhost_net",
        &["vhost_net_release"],
        fixed,
        false,
        EVENTS,
    ),
    Wish::new(
        "device_opened",
        "vhost",
        &["vhost_dev_init"],
        fixed,
        false,
        EVENTS,
    ),
    Wish::new(
        "control_return",
        "vhost_net",
        &["vhost_net_ioctl"],
        none,
        false,
        EVENTS,
    ),
    Wish::new(
        "control_enter",
        "vhost_net",
        &["vhost_net_ioctl"],
        fixed,
        false,
        EVENTS,
    ),
    Wish::new("rx_enter", "vhost_net", &["handle_rx"], fixed, true, RUNS),
    Wish::new("tx_enter", "vhost_net", &["handle_tx"], fixed, true, RUNS),
];

/// What our module tells by calling functions that do nothing. They are in
/// vhost_net where it is ours, else in the livepatch.
pub(super) const fn told_by(module: &'static str) -> [Wish; 2] {
    [
        Wish::new(
            "own_side_polled",
            module,
            &["vnt_poll_own_side"],
            none,
            false,
            OWN_SIDE,
        ),
        Wish::new(
            "cap_reached",
            module,
            &["vnt_cap_reached"],
            none,
            false,
            CAP,
        ),
    ]
}

/// The livepatch has its own copy of the poll. Handlers, ioctl and release,
/// which it replaces, are still entered at the stock functions, where their
/// probes sit, and return there.
pub(super) const COPIED: [Wish; 2] = [
    Wish::new(
        "poll_return",
        LIVEPATCH,
        &[Livepatch::BUSY_POLL],
        none,
        false,
        POLLS,
    ),
    Wish::new(
        "poll_enter",
        LIVEPATCH,
        &[Livepatch::BUSY_POLL],
        |layout| vec![layout.arg_poll_intr],
        false,
        POLLS,
    ),
];
