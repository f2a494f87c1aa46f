//! Hours of many VMs, look by look: what the policy sees is drawn from how gaps
//! are spread, without simulating packets. This is for what shows only in the
//! long run: memory, drift, and the policy's own CPU time.

use serde::Serialize;
use tuner_common::hist::{TIME_BUCKETS, time_bucket_high_ns, time_bucket_low_ns};

use super::random::Random;
use crate::model::curve::timeout_ns;
use crate::model::{Curve, Grid, TimeHistogram};
use crate::policy::{
    Backend, Config, ConfigError, Direction, Knob, Look, Mode, PairKey, PairLook, Policy,
    VringLook, WorkerLook,
};

/// Seconds between two looks.
const LOOK_S: u64 = 1;
/// Traffic changes this often, in seconds.
const CHANGE_S: u64 = 300;
/// One VM in so many ends in an hour, and another comes.
const CHURN: u64 = 50;
/// What a wake-up is worth, in nanoseconds.
const WAKE_NS: f64 = 50.0 * 1024.0;
/// What a run and a wake-up take, in nanoseconds.
const RUN_NS: f64 = 2_000.0;
const WAKE_TAKES_NS: f64 = 13_000.0;

/// What to simulate.
#[derive(Clone, Copy, Debug)]
pub struct Day {
    /// VMs at any time.
    pub vms: u64,
    /// Hours.
    pub hours: u64,
    /// Another one gives other traffic of the same sort.
    pub seed: u64,
}

/// What came of an hour.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Hour {
    /// Which, from 0.
    pub hour: u64,
    /// Looks at a pair.
    pub looks: u64,
    /// Changes.
    pub changes: u64,
    /// Pairs that the policy remembers.
    pub pairs: usize,
    /// Cost of the timeouts that were set, of that of the best for each VM and
    /// time.
    pub cost_ratio: f64,
    /// The policy's CPU time for a look at a pair, in nanoseconds.
    pub look_cost_ns: f64,
}

/// How the gaps of one vring are spread now.
#[derive(Clone, Debug)]
struct Traffic {
    /// Buckets with their share of the gaps.
    shares: Vec<(usize, f64)>,
    mean_ns: f64,
}

impl Traffic {
    /// A mixture of exponential gaps around a short and a long mean, in
    /// nanoseconds, with this share of short ones.
    fn new(short_ns: f64, long_ns: f64, share: f64) -> Self {
        let longer =
            |ns: f64| share * (-ns / short_ns).exp() + (1.0 - share) * (-ns / long_ns).exp();
        let of = |bucket| {
            let low = longer(time_bucket_low_ns(bucket) as f64);
            if bucket + 1 == TIME_BUCKETS {
                low
            } else {
                low - longer(time_bucket_high_ns(bucket) as f64)
            }
        };
        let shares = (0..TIME_BUCKETS).map(|bucket| (bucket, of(bucket)));
        Self {
            shares: shares.filter(|(_, share)| *share > 1e-7).collect(),
            mean_ns: share * short_ns + (1.0 - share) * long_ns,
        }
    }

    /// The gaps of an interval, with this timeout set.
    fn gaps(&self, random: &mut Random, seconds: f64) -> TimeHistogram {
        let each_ns = self.mean_ns + RUN_NS + WAKE_TAKES_NS / 2.0;
        let expected = seconds * 1e9 / each_ns;
        let mut gaps = TimeHistogram::default();
        if expected < 20.0 {
            for _ in 0..random.events(expected) {
                let mut at = random.unit();
                let bucket = self.shares.iter().find(|(_, share)| {
                    at -= share;
                    at < 0.0
                });
                gaps.add(bucket.map_or(TIME_BUCKETS - 1, |(bucket, _)| *bucket), 1);
            }
        } else {
            for (bucket, share) in &self.shares {
                gaps.add(*bucket, random.events(expected * share));
            }
        }
        gaps
    }
}

/// One VM.
struct Vm {
    key: PairKey,
    kind: u64,
    backend: Backend,
    set: [u32; 2],
    traffic: [Traffic; 2],
}

impl Vm {
    fn new(random: &mut Random, number: u64) -> Self {
        let idle = Traffic::new(1e6, 1e9, 0.1);
        Self {
            key: PairKey {
                pid: 1000 + (number % 30_000) as u32,
                fd: 30,
                device: number,
            },
            kind: random.next() % 10,
            backend: if random.next().is_multiple_of(2) {
                Backend::Module
            } else {
                Backend::Inject
            },
            set: [0, 0],
            traffic: [idle.clone(), idle],
        }
    }

    /// Its traffic at a time of day: more of it by day, a little other each time.
    fn change(&mut self, random: &mut Random, second: u64) {
        let turn = second as f64 / 86_400.0 * std::f64::consts::TAU;
        let night = 0.5 + 0.5 * turn.cos();
        let slower = 8f64.powf(night) * random.between(0.8, 1.25);
        // And now and then it does something else altogether.
        if random.next().is_multiple_of(10) {
            self.kind = random.next() % 10;
        }
        for traffic in &mut self.traffic {
            let (short, long, share) = match self.kind {
                0..=4 => (400_000.0, 30e6, 0.4),
                5 => (15_000.0, 600_000.0, 0.7),
                6 => (60_000.0, 60_000.0, 1.0),
                7 => (25_000.0, 8e6, 0.95),
                8 => (20_000.0, 20_000.0, 1.0),
                _ => (150_000.0, 2e6, 0.5),
            };
            *traffic = Traffic::new(short * slower, long * slower, share);
        }
    }

    fn look(&self, random: &mut Random, grid: &Grid, sums: &mut [f64; 2]) -> PairLook {
        let seconds = LOOK_S as f64;
        let [rx, tx] = Direction::ALL.map(|direction| {
            let at = direction as usize;
            let gaps = self.traffic[at].gaps(random, seconds);
            let curve = Curve::of(grid, &gaps);
            let price = curve.price(grid, timeout_ns(self.set[at]));
            let best = curve.cheapest(grid, WAKE_NS, (0, 200)).unwrap_or(0);
            sums[0] += price.cost_ns(WAKE_NS);
            sums[1] += curve.price(grid, timeout_ns(best)).cost_ns(WAKE_NS);
            let packets = gaps.count();
            let wakes = price.misses.round() as u64;
            let spin_ns = price.spin_ns as u64;
            VringLook {
                timeout: self.set[at],
                packets,
                run_ns: spin_ns + packets * RUN_NS as u64,
                wakes: Some(wakes),
                wake_wait_ns: Some(wakes * 8_000),
                spin_ns: Some(spin_ns),
                batches: Some(packets),
                missed: 0,
                gaps: Some(gaps),
            }
        });
        let wakes = rx.wakes.unwrap_or(0) + tx.wakes.unwrap_or(0);
        PairLook {
            key: self.key,
            vm: format!("vm{}", self.key.device),
            backend: self.backend,
            interval_ns: LOOK_S * 1_000_000_000,
            worker: WorkerLook {
                cpu_ns: Some(rx.run_ns + tx.run_ns + wakes * 5_000),
                wait_ns: Some(0),
                pressure: None,
                cpus: None,
            },
            tx_batched: None,
            rx,
            tx,
        }
    }
}

/// The configuration: looks once a second, however they are set.
fn config() -> Config {
    let mut config = Config::default();
    config.profiles.balanced.wake_us = Some(WAKE_NS / 1e3);
    config.look.module_ms = LOOK_S as f64 * 1e3;
    config
}

/// Simulates; `cpu_ns` tells this thread's CPU time, and `each` gets every hour.
///
/// # Errors
///
/// What the policy refuses of its configuration.
pub fn run(
    day: &Day,
    cpu_ns: impl Fn() -> u64,
    mut each: impl FnMut(&Hour),
) -> Result<(), ConfigError> {
    let config = config();
    let grid = Grid::new(&config.busyloop.candidates);
    let mut policy = Policy::new(config, Mode::Act)?;
    let mut random = Random::new(day.seed);
    let mut vms: Vec<Vm> = (0..day.vms).map(|n| Vm::new(&mut random, n)).collect();
    let mut born = day.vms;
    for hour in 0..day.hours {
        let mut sum = Hour {
            hour,
            ..Hour::default()
        };
        let (mut costs, mut spent_ns) = ([0.0; 2], 0);
        for second in (hour * 3600..(hour + 1) * 3600).step_by(LOOK_S as usize) {
            for (at, vm) in vms.iter_mut().enumerate() {
                // Not all at once.
                if (second + at as u64).is_multiple_of(CHANGE_S) || second == 0 {
                    vm.change(&mut random, second);
                }
                if random.next().is_multiple_of(CHURN * 3600) {
                    *vm = Vm::new(&mut random, born);
                    vm.change(&mut random, second);
                    born += 1;
                }
            }
            let pairs = vms.iter();
            let look = Look {
                at_ns: (second + LOOK_S) * 1_000_000_000,
                lost: 0,
                complete: true,
                pairs: pairs
                    .map(|vm| vm.look(&mut random, &grid, &mut costs))
                    .collect(),
            };
            let before_ns = cpu_ns();
            let outcome = policy.look(&look);
            spent_ns += cpu_ns().saturating_sub(before_ns);
            sum.looks += look.pairs.len() as u64;
            sum.changes += outcome.decisions.len() as u64;
            for decision in outcome.decisions {
                let vm = vms.iter_mut().find(|vm| vm.key == decision.pair);
                let at = match decision.knob {
                    Knob::BusyloopRx => 0,
                    Knob::BusyloopTx => 1,
                    Knob::TxBatched => continue,
                };
                if let Some(vm) = vm {
                    vm.set[at] = decision.to;
                }
            }
        }
        sum.pairs = policy.pairs();
        sum.cost_ratio = costs[0] / costs[1];
        sum.look_cost_ns = spent_ns as f64 / sum.looks.max(1) as f64;
        each(&sum);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_the_mean_is_right() {
        let traffic = Traffic::new(50_000.0, 5e6, 0.7);
        let all: f64 = traffic.shares.iter().map(|(_, share)| share).sum();
        assert!((all - 1.0).abs() < 1e-4, "{all}");
        let gaps = traffic.gaps(&mut Random::new(1), 1000.0);
        let expected = 1000.0 * 1e9 / (traffic.mean_ns + RUN_NS + WAKE_TAKES_NS / 2.0);
        let off = gaps.count() as f64 / expected - 1.0;
        assert!(off.abs() < 0.02, "{off}");
        let few = traffic.gaps(&mut Random::new(1), 0.01);
        assert!(few.count() < 40);
    }

    #[test]
    fn nothing_grows_and_nothing_drifts() {
        let day = Day {
            vms: 8,
            hours: 2,
            seed: 1,
        };
        let mut hours = Vec::new();
        run(&day, || 0, |hour| hours.push(*hour)).unwrap();
        assert_eq!(hours.len(), 2);
        for hour in &hours {
            assert_eq!(hour.pairs, 8, "those that ended are forgotten");
            assert!(hour.cost_ratio < 1.1, "{hour:?}");
            // Traffic changes twelve times an hour.
            let per_vring = hour.changes as f64 / 16.0;
            assert!(per_vring < 20.0, "{hour:?}");
        }
    }
}
