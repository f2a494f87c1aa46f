//! What the policy gets to see: plain figures of one look at the host.

use std::fmt;

use serde::Serialize;

use crate::model::TimeHistogram;

/// A queue pair: one device, served by one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct PairKey {
    /// Process that owns the device.
    pub pid: u32,
    /// The device's descriptor there.
    pub fd: u32,
    /// Tells this device from another that had the same descriptor before.
    pub device: u64,
}

impl fmt::Display for PairKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.pid, self.fd)
    }
}

/// Direction of a vring, as the guest sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The host fills it.
    Rx,
    /// The guest fills it.
    Tx,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Rx, Self::Tx];
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rx => "rx",
            Self::Tx => "tx",
        })
    }
}

/// How a device's knobs can be turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// Through our module: quick, and nothing stops.
    Module,
    /// By a call inside the owner, one thread of which stands still for it.
    Inject,
    /// Not at all.
    None,
}

/// One look at the host. Counters and histograms are those of the interval since
/// the look before.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// When, in nanoseconds of a clock that never goes back.
    pub at_ns: u64,
    /// Events of the interval that could be counted for no vring. While there
    /// are any, nobody's figures are whole.
    pub lost: u64,
    /// Whether all pairs of the host are here, rather than those alone that were
    /// due. What was known of an absent one is forgotten.
    pub complete: bool,
    /// The pairs.
    pub pairs: Vec<PairLook>,
}

/// One queue pair.
#[derive(Clone, Debug)]
pub struct PairLook {
    /// Which.
    pub key: PairKey,
    /// The VM's name.
    pub vm: String,
    /// How it can be changed.
    pub backend: Backend,
    /// Length of the interval in nanoseconds.
    pub interval_ns: u64,
    /// The worker.
    pub worker: WorkerLook,
    /// The cap on tx batches that is set; unknown without the module.
    pub tx_batched: Option<u32>,
    /// The receive side.
    pub rx: VringLook,
    /// The sending side.
    pub tx: VringLook,
}

impl PairLook {
    /// A vring.
    #[must_use]
    pub fn vring(&self, direction: Direction) -> &VringLook {
        match direction {
            Direction::Rx => &self.rx,
            Direction::Tx => &self.tx,
        }
    }
}

/// The thread that serves a pair. What could not be read is `None`.
#[derive(Clone, Debug, Default)]
pub struct WorkerLook {
    /// Time on a CPU, in nanoseconds.
    pub cpu_ns: Option<u64>,
    /// Time it was ready and waited for a CPU, in nanoseconds.
    pub wait_ns: Option<u64>,
    /// Share of the interval (0…1) in which something of its cgroup waited for a
    /// CPU (`some` of `cpu.pressure`).
    pub pressure: Option<f64>,
    /// CPUs it may run on, as the kernel lists them (`0-3,8`).
    pub cpus: Option<String>,
}

/// One vring. A figure that is degraded is `None`, never zero.
#[derive(Clone, Debug, Default)]
pub struct VringLook {
    /// The busyloop timeout that is set, in the kernel's unit of 1.024 µs.
    pub timeout: u32,
    /// How long the worker had nothing to do after this vring had run dry: until
    /// there was work for it, or, where its polls watch the other direction too,
    /// for the other one. Counted when they end, whatever the timeout was: a
    /// vring that stays idle has none.
    pub gaps: Option<TimeHistogram>,
    /// Packets.
    pub packets: u64,
    /// Time inside the handler, spinning included, in nanoseconds.
    pub run_ns: u64,
    /// Times the worker was woken for it.
    pub wakes: Option<u64>,
    /// From being woken to running, all together, in nanoseconds.
    pub wake_wait_ns: Option<u64>,
    /// Time spun, in nanoseconds.
    pub spin_ns: Option<u64>,
    /// Batches handed over.
    pub batches: Option<u64>,
    /// Events known to be missing from the figures above.
    pub missed: u64,
}
