//! Every number of the policy. All have defaults; each can be set.
//!
//! Busyloop timeouts are in the kernel's unit of 1.024 µs here too. All other
//! times are in the unit of their name.

use serde::{Deserialize, Serialize};

use super::cpus::Cpus;
use super::profile::{Bounds, ProfileName, Profiles};

/// The longest busyloop timeout that we ever set, in the kernel's unit.
pub const LONGEST_TIMEOUT: u32 = 10_000;
/// The most packets that vhost_net hands over together.
pub const LARGEST_BATCH: u32 = 64;

/// The policy's configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Profile of all VMs for which no override names another.
    pub profile: ProfileName,
    /// How often to look.
    pub look: LookTimes,
    /// How timeouts are chosen.
    pub busyloop: Busyloop,
    /// What a wake-up is taken to cost.
    pub wake: Wake,
    /// How much CPU time may be spun away on the whole host.
    pub budget: Budget,
    /// When a worker leaves its CPU to others.
    pub guard: Guard,
    /// How the cap on tx batches is chosen.
    pub batching: Batching,
    /// How often something may change.
    pub change: Change,
    /// What happens after a change.
    pub verify: Verify,
    /// The profiles' numbers.
    pub profiles: Profiles,
    /// Rules for VMs by name; the first that fits counts.
    pub overrides: Vec<Override>,
}

/// How often to look.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LookTimes {
    /// Where the module sets, in milliseconds.
    pub module_ms: f64,
    /// Where a call is injected, in milliseconds.
    pub inject_ms: f64,
    /// First look at a pair of which little is known, in milliseconds. The time
    /// doubles from look to look.
    pub first_ms: f64,
    /// A pair that loses by being looked at too seldom is looked at more often
    /// where the module sets, but no more often than this, in milliseconds.
    pub shortest_ms: f64,
    /// CPU time of a look at a pair, in microseconds: looks are as frequent as
    /// what they save pays for.
    pub cost_us: f64,
    /// So many pairs at most are looked at more often.
    pub quick_pairs: usize,
}

impl Default for LookTimes {
    fn default() -> Self {
        Self {
            module_ms: 100.0,
            inject_ms: 1000.0,
            first_ms: 10.0,
            shortest_ms: 2.0,
            cost_us: 10.0,
            quick_pairs: 32,
        }
    }
}

/// How timeouts are chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Busyloop {
    /// Whether they are.
    pub enabled: bool,
    /// Timeouts to choose from.
    pub candidates: Vec<u32>,
    /// What is set is left alone until so many gaps are known.
    pub min_gaps: f64,
    /// Half-life of the quick curve, in looks.
    pub fast_half_life_looks: f64,
    /// Half-life of the slow curve and of each remembered phase, in seconds.
    pub slow_half_life_s: f64,
    /// Phases that are remembered.
    pub phases: usize,
    /// Gaps belong to a phase if their distribution is this near to its: the
    /// largest difference of two shares.
    pub phase_distance: f64,
    /// A change has to save this many times the standard error of what it saves.
    pub confidence: f64,
    /// Half-life of the comparison of the ways to choose, in looks.
    pub score_half_life_looks: f64,
    /// Another way to choose is followed once it would have saved this part of
    /// the recent cost.
    pub min_lead: f64,
}

impl Default for Busyloop {
    fn default() -> Self {
        Self {
            enabled: true,
            candidates: vec![0, 10, 20, 30, 50, 75, 100, 125, 150, 200, 300, 400],
            min_gaps: 30.0,
            fast_half_life_looks: 3.0,
            slow_half_life_s: 60.0,
            phases: 4,
            phase_distance: 0.1,
            confidence: 5.0,
            score_half_life_looks: 50.0,
            min_lead: 0.05,
        }
    }
}

/// What a wake-up is taken to cost. Measured figures take the place of the
/// assumed ones as soon as there are enough of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Wake {
    /// CPU time of the worker for going to sleep and waking, assumed.
    pub worker_us: f64,
    /// CPU time of whoever wakes it for rx.
    pub rx_kick_us: f64,
    /// CPU time of the guest that kicks for tx.
    pub tx_kick_us: f64,
    /// From being woken to running, assumed.
    pub latency_us: f64,
    /// Wake-ups from which on the measured figures count.
    pub min_wakes: f64,
    /// Half-life of the measured figures, in seconds.
    pub half_life_s: f64,
    /// What a wake-up is worth follows the figures only in steps of this part.
    pub step: f64,
}

impl Default for Wake {
    fn default() -> Self {
        Self {
            worker_us: 5.0,
            rx_kick_us: 1.0,
            tx_kick_us: 3.0,
            latency_us: 10.0,
            min_wakes: 100.0,
            half_life_s: 60.0,
            step: 0.1,
        }
    }
}

/// How much CPU time may be spun away on the whole host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// In cores; unlimited if not set.
    pub spin_cores: Option<f64>,
}

/// When a worker leaves its CPU to others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Guard {
    /// Share of the time (0…1) that a worker may wait for a CPU.
    pub wait_share: f64,
    /// Share of the time (0…1) that something of its cgroup may.
    pub pressure: f64,
    /// For how long it does not spin then, in seconds. Doubles each time it is
    /// needed again soon.
    pub hold_s: f64,
    /// At most, in seconds.
    pub longest_hold_s: f64,
    /// Workers that may run nowhere else never spin.
    pub housekeeping_cpus: Cpus,
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            wait_share: 0.05,
            pressure: 0.2,
            hold_s: 10.0,
            longest_hold_s: 600.0,
            housekeeping_cpus: Cpus::default(),
        }
    }
}

/// How the cap on tx batches is chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Batching {
    /// Whether it is.
    pub enabled: bool,
    /// Caps to choose from.
    pub candidates: Vec<u32>,
    /// What is set is left alone until so many batches are known.
    pub min_batches: f64,
    /// Half-life of loads, in seconds.
    pub half_life_s: f64,
    /// Half-life of the costs of packets and batches, in seconds.
    pub cost_half_life_s: f64,
    /// Cost of a packet in nanoseconds, until it is measured.
    pub packet_ns: f64,
    /// Cost of a batch in nanoseconds, until it is measured.
    pub batch_ns: f64,
    /// A smaller cap has to stay this far (0…1) below the target.
    pub margin: f64,
    /// Shortest time between two changes, in seconds.
    pub dwell_s: f64,
    /// A cap that was made smaller and turned out too small is not made smaller
    /// again for so long, in seconds. Doubles each time.
    pub rest_s: f64,
    /// At most, in seconds.
    pub longest_rest_s: f64,
}

impl Default for Batching {
    fn default() -> Self {
        Self {
            enabled: true,
            candidates: vec![1, 2, 4, 8, 16, 32, 64],
            min_batches: 200.0,
            half_life_s: 3.0,
            cost_half_life_s: 300.0,
            packet_ns: 500.0,
            batch_ns: 1500.0,
            margin: 0.1,
            dwell_s: 5.0,
            rest_s: 60.0,
            longest_rest_s: 3600.0,
        }
    }
}

/// How often something may change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Change {
    /// Shortest time between two changes of a vring through the module, in
    /// milliseconds.
    pub module_dwell_ms: f64,
    /// By injection, in milliseconds.
    pub inject_dwell_ms: f64,
    /// Changes of a vring a minute, at most, through the module.
    pub module_per_minute: f64,
    /// By injection.
    pub inject_per_minute: f64,
    /// Part of the cost that a change through the module has to save.
    pub module_min_gain: f64,
    /// That one by injection has to.
    pub inject_min_gain: f64,
    /// What a change is taken to cost through the module, in microseconds.
    pub module_cost_us: f64,
    /// By injection.
    pub inject_cost_us: f64,
}

impl Default for Change {
    fn default() -> Self {
        Self {
            module_dwell_ms: 10.0,
            inject_dwell_ms: 1000.0,
            module_per_minute: 240.0,
            inject_per_minute: 12.0,
            module_min_gain: 0.01,
            inject_min_gain: 0.03,
            module_cost_us: 20.0,
            inject_cost_us: 1000.0,
        }
    }
}

/// What happens after a change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Verify {
    /// Whether it is compared with what was before.
    pub enabled: bool,
    /// Packets of which the cost is taken, before and after.
    pub min_packets: f64,
    /// Looks after the change, at least.
    pub looks: u32,
    /// After so many, a change stays that has not turned out worse.
    pub most_looks: u32,
    /// A change that costs more than before by this part is taken back.
    pub tolerance: f64,
    /// And by this many standard errors.
    pub confidence: f64,
    /// Gaps before and after are comparable if their distributions are this
    /// near: the largest difference of two shares.
    pub distance: f64,
    /// And loads, if they differ by no more than this part.
    pub load: f64,
    /// A pair that went back is left alone for so long, in seconds. Doubles each
    /// time.
    pub rest_s: f64,
    /// At most, in seconds.
    pub longest_rest_s: f64,
}

impl Default for Verify {
    fn default() -> Self {
        Self {
            enabled: true,
            min_packets: 100.0,
            looks: 3,
            most_looks: 50,
            tolerance: 0.02,
            confidence: 1.0,
            distance: 0.15,
            load: 0.3,
            rest_s: 300.0,
            longest_rest_s: 3600.0,
        }
    }
}

/// A rule for VMs by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// Names it is for: `*` stands for any text, `?` for one character.
    pub vm: String,
    /// Leave these VMs alone.
    #[serde(default)]
    pub exclude: bool,
    /// Another profile.
    #[serde(default)]
    pub profile: Option<ProfileName>,
    /// What a wake-up is worth, in microseconds.
    #[serde(default)]
    pub wake_us: Option<f64>,
    /// Bounds of the timeouts.
    #[serde(default)]
    pub timeout: Option<Bounds>,
    /// This rx timeout, whatever is measured.
    #[serde(default)]
    pub pin_busyloop_rx: Option<u32>,
    /// This tx timeout.
    #[serde(default)]
    pub pin_busyloop_tx: Option<u32>,
    /// This cap on tx batches.
    #[serde(default)]
    pub pin_tx_batched: Option<u32>,
}
