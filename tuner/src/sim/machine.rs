//! Workers of queue pairs on one CPU, event by event.
//!
//! A worker handles what lies in its two vrings, then spins for as long as the
//! vring that ran dry last says, then sleeps. A packet for a sleeping worker
//! wakes it, which takes time and CPU time. A worker that spins gives way to
//! another that wants the CPU, as vhost_net does, though not at once. While it
//! spins it watches both vrings.

use std::collections::VecDeque;

use super::flow::{Flow, NEVER};
use super::random::Random;
use super::rivals::Rule;
use super::tally::{Tally, Totals};
use crate::policy::Direction;

/// What things take, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// Handling a packet.
    pub(super) packet: u64,
    /// Handing a batch over.
    pub(super) batch: u64,
    /// Going to sleep and waking, CPU time of the worker.
    pub(super) switch: u64,
    /// From the wake-up to being ready to run: at least.
    pub(super) wake_least: u64,
    /// And on average beyond that.
    pub(super) wake_mean: u64,
    /// Until a spinning worker notices that the CPU is wanted.
    pub(super) resched: u64,
    /// After that long a working worker makes room for others.
    pub(super) slice: u64,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            packet: 500,
            batch: 1_500,
            switch: 5_000,
            wake_least: 3_000,
            wake_mean: 5_000,
            resched: 50_000,
            slice: 3_000_000,
        }
    }
}

/// A packet that waits: since when, and whose it is.
#[derive(Clone, Copy, Debug)]
struct Packet {
    at_ns: u64,
    flow: usize,
}

/// What a worker is about.
#[derive(Clone, Copy, Debug)]
enum State {
    Asleep,
    /// Woken, and ready to run from then on.
    Waking {
        ready_ns: u64,
    },
    /// Waits for the CPU.
    Ready {
        since_ns: u64,
    },
    /// Gets on the CPU.
    Switching {
        until_ns: u64,
    },
    /// Handles so many packets of a vring.
    Handling {
        direction: Direction,
        packets: usize,
        until_ns: u64,
    },
    /// Watches its dry vrings.
    Spinning {
        direction: Direction,
        since_ns: u64,
        until_ns: u64,
    },
}

/// Which gaps are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sight {
    /// Until there is work for either vring, as spinning watches both.
    #[default]
    Pair,
    /// Until there is work for the vring that ran dry, whatever the other one
    /// gets.
    Own,
}

/// One queue pair and its worker.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    flows: Vec<Flow>,
    queues: [VecDeque<Packet>; 2],
    state: State,
    /// The vring that ran dry last, and when both were dry.
    dry: Option<(Direction, u64)>,
    /// Since when each vring has been dry.
    own_dry: [Option<u64>; 2],
    pub(super) sight: Sight,
    /// Since when it has the CPU.
    on_since_ns: u64,
    /// Whose wake-up is under way, and since when.
    woken: Option<(Direction, u64)>,
    pub(super) rules: [Rule; 2],
    pub(super) cap: u64,
    tallies: [Tally; 2],
    cpu_ns: u64,
    wait_ns: u64,
}

impl Pair {
    /// A pair with these flows.
    pub(super) fn new(flows: Vec<Flow>, rules: [Rule; 2]) -> Self {
        Self {
            flows,
            queues: [VecDeque::new(), VecDeque::new()],
            state: State::Asleep,
            dry: None,
            own_dry: [None, None],
            sight: Sight::default(),
            on_since_ns: 0,
            woken: None,
            rules,
            cap: 64,
            tallies: [Tally::default(), Tally::default()],
            cpu_ns: 0,
            wait_ns: 0,
        }
    }

    /// Takes the counters: both vrings', then time on the CPU and time waited for
    /// it.
    pub(super) fn take(&mut self) -> ([Tally; 2], u64, u64) {
        (
            std::mem::take(&mut self.tallies),
            std::mem::take(&mut self.cpu_ns),
            std::mem::take(&mut self.wait_ns),
        )
    }

    fn next_packet_ns(&self) -> u64 {
        self.flows.iter().map(Flow::next_ns).min().unwrap_or(NEVER)
    }

    /// When its worker has something to do next, beside packets.
    fn timer_ns(&self) -> u64 {
        match self.state {
            State::Asleep | State::Ready { .. } => NEVER,
            State::Waking { ready_ns } => ready_ns,
            State::Switching { until_ns }
            | State::Handling { until_ns, .. }
            | State::Spinning { until_ns, .. } => until_ns,
        }
    }

    fn tally(&mut self, direction: Direction) -> &mut Tally {
        &mut self.tallies[direction as usize]
    }
}

/// The pairs whose workers share a CPU.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) pairs: Vec<Pair>,
    costs: Costs,
    /// Whose worker has the CPU.
    on: Option<usize>,
    ready: VecDeque<usize>,
    random: Random,
    /// When it all ended, or how far it has come.
    pub(super) now_ns: u64,
    pub(super) totals: Totals,
}

impl Machine {
    /// Workers that share a CPU.
    pub(super) fn new(pairs: Vec<Pair>, costs: Costs, seed: u64) -> Self {
        Self {
            pairs,
            costs,
            on: None,
            ready: VecDeque::new(),
            random: Random::new(seed),
            now_ns: 0,
            totals: Totals::default(),
        }
    }

    /// Goes on until a time. Gives whether anything is left to happen after it.
    pub(super) fn run_until(&mut self, end_ns: u64) -> bool {
        loop {
            let mut next = (NEVER, 0, false);
            for (at, pair) in self.pairs.iter().enumerate() {
                // Timers first: who is done at this instant is done before the
                // packet.
                let (timer, packet) = (pair.timer_ns(), pair.next_packet_ns());
                if timer < next.0 {
                    next = (timer, at, false);
                }
                if packet < next.0 {
                    next = (packet, at, true);
                }
            }
            let (at_ns, at, is_packet) = next;
            if at_ns > end_ns || at_ns == NEVER {
                if at_ns != NEVER {
                    self.now_ns = end_ns;
                }
                return at_ns != NEVER;
            }
            self.now_ns = at_ns;
            if is_packet {
                self.packet(at);
            } else {
                self.timer(at);
            }
        }
    }

    /// A packet comes.
    fn packet(&mut self, at: usize) {
        let now_ns = self.now_ns;
        let pair = &mut self.pairs[at];
        let flows = pair.flows.iter().enumerate();
        let Some(flow) = flows.min_by_key(|(_, f)| f.next_ns()).map(|(i, _)| i) else {
            return;
        };
        let direction = pair.flows[flow].send();
        pair.queues[direction as usize].push_back(Packet {
            at_ns: now_ns,
            flow,
        });
        if let Some(since_ns) = pair.own_dry[direction as usize].take()
            && pair.sight == Sight::Own
        {
            pair.tally(direction).gap(now_ns - since_ns);
        }
        if let Some((dry, since_ns)) = pair.dry.take() {
            let gap_ns = now_ns - since_ns;
            if pair.sight == Sight::Pair {
                pair.tally(dry).gap(gap_ns);
            }
            pair.rules[dry as usize].ended(gap_ns);
        }
        match pair.state {
            State::Asleep => {
                let beyond = self.random.exponential(self.costs.wake_mean as f64);
                let ready_ns = now_ns + self.costs.wake_least + beyond as u64;
                pair.tally(direction).wakes += 1;
                pair.woken = Some((direction, now_ns));
                pair.state = State::Waking { ready_ns };
            }
            State::Spinning {
                direction,
                since_ns,
                ..
            } => {
                pair.spun(direction, now_ns - since_ns);
                self.handle(at);
            }
            _ => {}
        }
    }

    /// A worker's time has come.
    fn timer(&mut self, at: usize) {
        let now_ns = self.now_ns;
        match self.pairs[at].state {
            State::Asleep | State::Ready { .. } => {}
            State::Waking { .. } => {
                self.pairs[at].state = State::Ready { since_ns: now_ns };
                self.ready.push_back(at);
                self.dispatch();
            }
            State::Switching { .. } => {
                let pair = &mut self.pairs[at];
                pair.cpu_ns += self.costs.switch;
                if let Some((direction, since_ns)) = pair.woken.take() {
                    pair.tally(direction).wake_wait_ns += now_ns - since_ns;
                }
                self.handle(at);
            }
            State::Handling {
                direction, packets, ..
            } => {
                self.handled(at, direction, packets);
                self.carry_on(at, direction);
            }
            State::Spinning {
                direction,
                since_ns,
                ..
            } => {
                self.pairs[at].spun(direction, now_ns - since_ns);
                self.sleep(at);
            }
        }
    }

    /// Gives a free CPU to who has waited longest; asks a spinning worker to
    /// make room.
    fn dispatch(&mut self) {
        let now_ns = self.now_ns;
        if let Some(on) = self.on {
            let room_ns = now_ns + self.costs.resched;
            if let State::Spinning { until_ns, .. } = &mut self.pairs[on].state {
                *until_ns = room_ns.min(*until_ns);
            }
            return;
        }
        let Some(at) = self.ready.pop_front() else {
            return;
        };
        let pair = &mut self.pairs[at];
        if let State::Ready { since_ns } = pair.state {
            pair.wait_ns += now_ns - since_ns;
        }
        pair.on_since_ns = now_ns;
        pair.state = State::Switching {
            until_ns: now_ns + self.costs.switch,
        };
        self.on = Some(at);
    }

    /// Begins to handle the vring whose packet has waited longest: as many as
    /// lie there, up to the cap.
    fn handle(&mut self, at: usize) {
        let Costs { packet, batch, .. } = self.costs;
        let now_ns = self.now_ns;
        let pair = &mut self.pairs[at];
        let first = |direction: &Direction| {
            let queue = &pair.queues[*direction as usize];
            queue.front().map(|packet| packet.at_ns)
        };
        let waiting = Direction::ALL.into_iter().filter(|d| first(d).is_some());
        let Some(direction) = waiting.min_by_key(first) else {
            return;
        };
        let here = pair.queues[direction as usize].len();
        let packets = here.min(pair.cap.max(1) as usize);
        pair.state = State::Handling {
            direction,
            packets,
            until_ns: now_ns + packets as u64 * packet + batch,
        };
    }

    /// A batch has been handed over.
    fn handled(&mut self, at: usize, direction: Direction, packets: usize) {
        let Costs { packet, batch, .. } = self.costs;
        let now_ns = self.now_ns;
        let took_ns = packets as u64 * packet + batch;
        let pair = &mut self.pairs[at];
        pair.cpu_ns += took_ns;
        let tally = pair.tally(direction);
        tally.run_ns += took_ns;
        tally.packets += packets as u64;
        tally.batch(packets as u64);
        for _ in 0..packets {
            let Some(done) = pair.queues[direction as usize].pop_front() else {
                break;
            };
            let waited_ns = (now_ns - done.at_ns).saturating_sub(packet + batch);
            let bucket = tuner_common::hist::time_bucket(waited_ns);
            self.totals.waits.add(bucket, 1);
            pair.flows[done.flow].answered_at(now_ns);
        }
    }

    /// Handles on, makes room, spins or sleeps.
    fn carry_on(&mut self, at: usize, direction: Direction) {
        let now_ns = self.now_ns;
        let pair = &mut self.pairs[at];
        if pair.queues[direction as usize].is_empty() {
            pair.own_dry[direction as usize] = Some(now_ns);
        }
        if pair.queues.iter().any(|queue| !queue.is_empty()) {
            let used_ns = now_ns - pair.on_since_ns;
            if used_ns >= self.costs.slice && !self.ready.is_empty() {
                pair.state = State::Ready { since_ns: now_ns };
                self.ready.push_back(at);
                self.on = None;
                self.dispatch();
            } else {
                self.handle(at);
            }
            return;
        }
        pair.dry = Some((direction, now_ns));
        let next_ns = pair.next_packet_ns().saturating_sub(now_ns);
        let timeout_ns = pair.rules[direction as usize].timeout_ns(next_ns);
        if timeout_ns == 0 {
            self.sleep(at);
            return;
        }
        let room_ns = if self.ready.is_empty() {
            NEVER
        } else {
            now_ns + self.costs.resched
        };
        self.pairs[at].state = State::Spinning {
            direction,
            since_ns: now_ns,
            until_ns: (now_ns + timeout_ns).min(room_ns),
        };
    }

    fn sleep(&mut self, at: usize) {
        self.pairs[at].state = State::Asleep;
        self.on = None;
        self.dispatch();
    }
}

impl Pair {
    /// Spinning on a vring has ended.
    fn spun(&mut self, direction: Direction, spun_ns: u64) {
        let tally = self.tally(direction);
        tally.spin_ns += spun_ns;
        tally.run_ns += spun_ns;
        self.cpu_ns += spun_ns;
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
