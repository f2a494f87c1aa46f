//! Runs a workload under a policy.

use serde::Serialize;

use super::flow::Flow;
use super::machine::{Costs, Machine, Pair, Sight};
use super::rivals::{HaltPoll, Rule};
use super::tally::Totals;
use super::workload::Workload;
use crate::model::curve::UNIT_NS;
use crate::policy::{
    Backend, Bounds, Config, ConfigError, Decision, Knob, Look, Mode, PairKey, PairLook, Policy,
    WorkerLook,
};

/// What decides on timeouts.
#[derive(Clone, Debug)]
pub enum Contender {
    /// Our policy, which looks every so many seconds.
    Ours {
        /// Time between two looks, in seconds.
        look_s: f64,
        /// Which gaps it gets to see.
        sight: Sight,
        /// Whether it may look sooner where it asks for that.
        sooner: bool,
    },
    /// One timeout for all, in the kernel's unit.
    Fixed(u32),
    /// KVM's halt polling.
    HaltPoll,
    /// Spins for what a wake-up is worth.
    BreakEven,
    /// Knows when the next packet comes.
    Clairvoyant,
}

/// What a workload came to under a policy.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Result {
    /// Time spun plus wake-ups at what they are worth, in milliseconds.
    pub cost_ms: f64,
    /// Time spun, in percent of a core.
    pub spin_percent: f64,
    /// Wake-ups a second.
    pub wakes_per_s: f64,
    /// Half of the packets waited at most this, in microseconds, beyond what
    /// handling one takes.
    pub wait_p50_us: Option<f64>,
    /// 99 of 100 packets did.
    pub wait_p99_us: Option<f64>,
    /// Changes made.
    pub changes: u64,
    /// Of these, in the last half of the time.
    pub late_changes: u64,
    /// Looks at a pair.
    pub looks: u64,
    /// How long it took in the simulated world, in seconds.
    pub seconds: f64,
    /// Packets.
    pub packets: u64,
    /// The first of the decisions, with their time in seconds.
    #[serde(skip)]
    pub decisions: Vec<(f64, Decision)>,
}

/// So many decisions are kept.
const KEPT: usize = 1000;

/// Runs a workload for so many seconds, with the numbers of a seed. Our policy is configured as [`ours`]
/// says, unless another configuration is given.
///
/// # Errors
///
/// What our policy refuses of the configuration.
pub fn run(
    workload: &Workload,
    contender: &Contender,
    (seconds, seed): (f64, u64),
    config: Option<&Config>,
) -> std::result::Result<Result, ConfigError> {
    let wake_ns = f64::from(workload.wake_us) * 1e3;
    let rule = match contender {
        Contender::Ours { .. } => Rule::Fixed { timeout_ns: 0 },
        Contender::Fixed(timeout) => fixed(*timeout),
        Contender::HaltPoll => Rule::HaltPoll(HaltPoll::new()),
        Contender::BreakEven => Rule::Fixed {
            timeout_ns: wake_ns as u64,
        },
        Contender::Clairvoyant => Rule::Clairvoyant {
            wake_ns: wake_ns as u64,
        },
    };
    let mut machines: Vec<Machine> = workload
        .groups(seconds, seed)
        .into_iter()
        .enumerate()
        .map(|(at, pairs)| machine(pairs, rule, at as u64))
        .collect();
    let mut result = Result::default();
    match contender {
        Contender::Ours {
            look_s,
            sight,
            sooner,
        } => {
            for pair in machines.iter_mut().flat_map(|m| &mut m.pairs) {
                pair.sight = *sight;
            }
            let config = config.cloned().unwrap_or_else(|| ours(workload, *look_s));
            let mut host = Host::new(config, *look_s, *sooner)?;
            host.run(&mut machines, seconds);
            result.changes = host.changes;
            result.late_changes = host.late_changes;
            result.looks = host.looks;
            result.decisions = std::mem::take(&mut host.decisions);
        }
        _ => {
            for machine in &mut machines {
                machine.run_until(u64::MAX - 1);
                collect(machine);
            }
        }
    }
    finish(&machines, wake_ns, &mut result);
    Ok(result)
}

fn fixed(timeout: u32) -> Rule {
    Rule::Fixed {
        timeout_ns: u64::from(timeout) * UNIT_NS,
    }
}

fn machine(pairs: Vec<Vec<Flow>>, rule: Rule, seed: u64) -> Machine {
    let pairs = pairs
        .into_iter()
        .map(|flows| Pair::new(flows, [rule; 2]))
        .collect();
    Machine::new(pairs, Costs::default(), seed)
}

/// Our policy for a workload: the balanced profile, free in its choice, and with
/// the same worth of a wake-up that costs are reckoned with.
#[must_use]
pub fn ours(workload: &Workload, look_s: f64) -> Config {
    let mut config = Config::default();
    let profile = &mut config.profiles.balanced;
    profile.wake_us = Some(f64::from(workload.wake_us));
    profile.timeout = Bounds { min: 0, max: 400 };
    config.batching.enabled = false;
    config.look.module_ms = look_s * 1e3;
    config.look.inject_ms = look_s * 1e3;
    config
}

/// Moves the pairs' counters to their machine's totals.
fn collect(machine: &mut Machine) {
    let Machine { pairs, totals, .. } = machine;
    for pair in pairs {
        let (tallies, ..) = pair.take();
        for tally in &tallies {
            totals.add(tally);
        }
    }
}

fn finish(machines: &[Machine], wake_ns: f64, result: &mut Result) {
    let mut all = Totals::default();
    let mut end_ns = 0;
    for machine in machines {
        let totals = &machine.totals;
        all.packets += totals.packets;
        all.spin_ns += totals.spin_ns;
        all.wakes += totals.wakes;
        for (bucket, count) in totals.waits.occupied() {
            all.waits.add(bucket, count);
        }
        end_ns = end_ns.max(machine.now_ns);
    }
    let seconds = (end_ns as f64 / 1e9).max(1e-9);
    let waits = all.waits.quantiles_us();
    result.cost_ms = all.cost_ns(wake_ns) / 1e6;
    result.spin_percent = 100.0 * all.spin_ns as f64 / 1e9 / seconds;
    result.wakes_per_s = all.wakes as f64 / seconds;
    result.wait_p50_us = waits.p50;
    result.wait_p99_us = waits.p99;
    result.seconds = seconds;
    result.packets = all.packets;
}

/// A pair's place, and when it was looked at last and is to be looked at next.
struct Seat {
    machine: usize,
    pair: usize,
    looked_ns: u64,
    due_ns: u64,
    open: bool,
}

/// A host on which our policy decides.
struct Host {
    policy: Policy,
    look_ns: u64,
    sooner: bool,
    backend: Backend,
    /// Whether the cap on tx batches is to be chosen too.
    batching: bool,
    changes: u64,
    late_changes: u64,
    looks: u64,
    decisions: Vec<(f64, Decision)>,
}

impl Host {
    fn new(config: Config, look_s: f64, sooner: bool) -> std::result::Result<Self, ConfigError> {
        Ok(Self {
            batching: config.batching.enabled,
            policy: Policy::new(config, Mode::Act)?,
            look_ns: (look_s * 1e9) as u64,
            sooner,
            backend: if look_s < 0.5 {
                Backend::Module
            } else {
                Backend::Inject
            },
            changes: 0,
            late_changes: 0,
            looks: 0,
            decisions: Vec::new(),
        })
    }

    fn run(&mut self, machines: &mut [Machine], seconds: f64) {
        let mut seats = Vec::new();
        for (machine, group) in machines.iter().enumerate() {
            for pair in 0..group.pairs.len() {
                seats.push(Seat {
                    machine,
                    pair,
                    looked_ns: 0,
                    due_ns: 0,
                    open: true,
                });
            }
        }
        let late_ns = (seconds / 2.0 * 1e9) as u64;
        while let Some(now_ns) = seats.iter().filter(|s| s.open).map(|s| s.due_ns).min() {
            let due: Vec<usize> = (0..seats.len())
                .filter(|at| seats[*at].open && seats[*at].due_ns <= now_ns)
                .collect();
            let open = seats.iter().filter(|seat| seat.open).count();
            let mut look = Look {
                at_ns: now_ns,
                lost: 0,
                complete: due.len() == open,
                pairs: Vec::with_capacity(due.len()),
            };
            for at in &due {
                let seat = &mut seats[*at];
                let machine = &mut machines[seat.machine];
                seat.open = machine.run_until(now_ns);
                look.pairs.push(self.see(machine, seat, *at, now_ns));
                seat.looked_ns = now_ns;
                seat.due_ns = (now_ns / self.look_ns + 1) * self.look_ns;
            }
            let outcome = self.policy.look(&look);
            self.looks += due.len() as u64;
            for decision in &outcome.decisions {
                apply(decision, machines, &seats);
                self.changes += 1;
                self.late_changes += u64::from(now_ns >= late_ns);
            }
            let at_s = now_ns as f64 / 1e9;
            let room = KEPT.saturating_sub(self.decisions.len());
            let kept = outcome.decisions.into_iter().take(room);
            self.decisions.extend(kept.map(|decision| (at_s, decision)));
            for (key, ms) in outcome.again.iter().filter(|_| self.sooner) {
                let seat = &mut seats[key.device as usize];
                let sooner_ns = now_ns + (ms * 1e6) as u64;
                seat.due_ns = seat.due_ns.min(sooner_ns);
            }
        }
    }

    fn see(&self, machine: &mut Machine, seat: &Seat, at: usize, now_ns: u64) -> PairLook {
        let pair = &mut machine.pairs[seat.pair];
        let (tallies, cpu_ns, wait_ns) = pair.take();
        for tally in &tallies {
            machine.totals.add(tally);
        }
        let set = |rule: Rule| match rule {
            Rule::Fixed { timeout_ns } => (timeout_ns / UNIT_NS) as u32,
            _ => 0,
        };
        let [rx, tx] = tallies;
        PairLook {
            key: PairKey {
                pid: 1000,
                fd: 30,
                device: at as u64,
            },
            vm: "vm".to_owned(),
            backend: self.backend,
            interval_ns: now_ns - seat.looked_ns,
            worker: WorkerLook {
                cpu_ns: Some(cpu_ns),
                wait_ns: Some(wait_ns),
                pressure: None,
                cpus: None,
            },
            tx_batched: self.batching.then_some(pair.cap as u32),
            rx: rx.into_look(set(pair.rules[0])),
            tx: tx.into_look(set(pair.rules[1])),
        }
    }
}

fn apply(decision: &Decision, machines: &mut [Machine], seats: &[Seat]) {
    let seat = &seats[decision.pair.device as usize];
    let pair = &mut machines[seat.machine].pairs[seat.pair];
    match decision.knob {
        Knob::BusyloopRx => pair.rules[0] = fixed(decision.to),
        Knob::BusyloopTx => pair.rules[1] = fixed(decision.to),
        Knob::TxBatched => pair.cap = u64::from(decision.to),
    }
}

#[cfg(test)]
mod tests {
    use super::super::flow::Gaps;
    use super::*;
    use crate::policy::{Direction, ProfileName};

    /// Runs our policy on one pair that sends at random, every so many
    /// microseconds, with all that is configured by default.
    fn sending((mean, seconds): (f64, f64), profile: ProfileName, cap: u64) -> (Machine, Host) {
        let flow = Flow::clocked(Direction::Tx, Gaps::Exponential { mean }, seconds, 1);
        let mut machine = machine(vec![vec![flow]], fixed(0), 1);
        machine.pairs[0].cap = cap;
        let config = Config {
            profile,
            ..Config::default()
        };
        let mut host = Host::new(config, 0.1, true).unwrap();
        let mut machines = [machine];
        host.run(&mut machines, seconds);
        let [machine] = machines;
        (machine, host)
    }

    #[test]
    fn the_cap_settles_where_the_worker_keeps_up() {
        // 0.5 µs for each packet and 1.5 µs / cap for its share of a batch, in
        // 1.1 µs: 45 % and 136 % / cap. From below 8 keeps to 70 %.
        let (machine, host) = sending((1.1, 6.0), ProfileName::Balanced, 4);
        assert_eq!(machine.pairs[0].cap, 8);
        assert!(host.changes <= 4, "{} changes", host.changes);
    }

    #[test]
    fn under_latency_a_light_load_is_handed_over_packet_by_packet() {
        let (machine, _) = sending((400.0, 40.0), ProfileName::Latency, 64);
        assert_eq!(machine.pairs[0].cap, 1);
        let (machine, _) = sending((400.0, 40.0), ProfileName::Efficiency, 64);
        assert_eq!(machine.pairs[0].cap, 32);
    }

    #[test]
    fn what_a_wake_up_is_worth_is_found_out() {
        // 5 µs of the worker, 3 of the kick, and 13 µs of waiting at 10 each.
        let (machine, host) = sending((100.0, 8.0), ProfileName::Latency, 1);
        let decisions = &host.decisions;
        let (_, last) = decisions
            .iter()
            .rfind(|(_, d)| d.knob == Knob::BusyloopTx)
            .unwrap();
        let worth = last.basis.wake_us.unwrap();
        assert!((100.0..180.0).contains(&worth), "{worth}");
        assert!(machine.totals.spin_ns > 0);
    }

    /// Runs our policy on these CPUs' pairs, wake-ups being worth 150 µs.
    fn host(
        groups: Vec<Vec<Vec<Flow>>>,
        seconds: f64,
        change: impl FnOnce(&mut Config),
    ) -> (Vec<Machine>, Host) {
        let dear = Workload::named("round-trips-dear").unwrap();
        let mut config = ours(&dear, 0.1);
        change(&mut config);
        let groups = groups.into_iter().enumerate();
        let mut machines: Vec<Machine> = groups
            .map(|(at, pairs)| machine(pairs, fixed(0), at as u64))
            .collect();
        let mut host = Host::new(config, 0.1, true).unwrap();
        host.run(&mut machines, seconds);
        (machines, host)
    }

    fn spin_cores(machines: &[Machine], seconds: f64) -> f64 {
        let spun: u64 = machines.iter().map(|machine| machine.totals.spin_ns).sum();
        spun as f64 / 1e9 / seconds
    }

    #[test]
    fn the_budget_holds_for_what_is_really_spun() {
        let groups = || {
            let means = [20.0, 40.0, 60.0, 80.0, 100.0, 120.0];
            let flow = |mean| {
                let gaps = Gaps::Exponential { mean };
                Flow::clocked(Direction::Rx, gaps, 4.0, 1)
            };
            means.map(|mean| vec![vec![flow(mean)]]).to_vec()
        };
        let (free, _) = host(groups(), 4.0, |_| {});
        assert!(spin_cores(&free, 4.0) > 3.5);
        let (kept, host) = host(groups(), 4.0, |c| c.budget.spin_cores = Some(1.5));
        let spun = spin_cores(&kept, 4.0);
        assert!(spun < 1.5 * 1.05, "{spun}");
        // They spin all the time or hardly at all: two would be too many.
        assert!(spun > 0.8, "and it is made use of: {spun}");
        assert!(host.changes < 60, "{} changes", host.changes);
    }

    #[test]
    fn workers_that_share_a_cpu_stop_spinning_where_that_keeps_others_waiting() {
        let groups = || {
            let busy = || {
                let gaps = Gaps::Exponential { mean: 60.0 };
                vec![Flow::clocked(Direction::Rx, gaps, 8.0, 7)]
            };
            vec![vec![busy(), busy(), busy()]]
        };
        let p99 = |machines: &[Machine]| machines[0].totals.waits.quantiles_us().p99.unwrap();
        let (guarded, host_1) = host(groups(), 8.0, |_| {});
        let (unguarded, _) = host(groups(), 8.0, |c| c.guard.wait_share = 1.0);
        let contended = |(_, d): &(f64, Decision)| d.reason == crate::policy::Reason::Contended;
        assert!(host_1.decisions.iter().any(contended));
        let (with, without) = (p99(&guarded), p99(&unguarded));
        assert!(with < 0.8 * without, "{with} {without}");
    }
}
