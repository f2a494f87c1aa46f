//! Round trips: the guest asks, the host answers, the guest sleeps between.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::guest::Guest;
use crate::options::RunOptions;
use crate::pace::Pace;
use crate::packet::Kind;
use crate::system::now_ns;
use crate::wire::Stop;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Questions under way and questions due.
struct Questions {
    asked: Vec<(u64, Instant)>,
    due: Vec<Instant>,
}

impl Questions {
    /// Takes one that is due.
    fn take_due(&mut self, now: Instant) -> bool {
        let ready = self.due.iter().position(|due| *due <= now);
        ready.map(|i| self.due.swap_remove(i)).is_some()
    }

    /// Forgets a question; false when it was not under way.
    fn answered(&mut self, sequence: u64) -> bool {
        let found = self.asked.iter().position(|(asked, _)| *asked == sequence);
        found.map(|i| self.asked.swap_remove(i)).is_some()
    }

    /// Forgets the questions nobody will answer any more; says how many.
    fn give_up(&mut self, now: Instant) -> usize {
        let before = self.asked.len();
        self.asked
            .retain(|(_, since)| now.duration_since(*since) < PATIENCE);
        before - self.asked.len()
    }

    /// When to look again, at the latest.
    fn next_event(&self, asking: bool) -> Option<Instant> {
        let give_up = self.asked.iter().map(|(_, since)| *since + PATIENCE);
        let due = self.due.iter().copied().filter(|_| asking);
        give_up.chain(due).min()
    }
}

pub(super) fn run(guest: &mut Guest, options: &RunOptions, seed: u64, stop: &Stop) -> Result<()> {
    let think = Duration::from_secs_f64(options.think_us / 1e6);
    let mut pace = Pace::new(think, options.think, seed);
    let mut left = options.goal().unwrap_or(u64::MAX);
    let mut questions = Questions {
        asked: Vec::new(),
        due: vec![Instant::now(); usize::from(options.outstanding)],
    };
    loop {
        guest.nic.reap()?;
        let mut asking = left > 0 && !stop.is_set();
        let now = Instant::now();
        while asking && guest.nic.tx_room() > 0 && questions.take_due(now) {
            if let Some(sequence) = guest.stage(Kind::Data) {
                // Each on its own, as a stack sends what is not bulk.
                guest.nic.publish()?;
                questions.asked.push((sequence, Instant::now()));
                left -= 1;
                asking = left > 0;
            }
        }
        let mut answers = 0;
        let mut trips = Vec::new();
        let frames = guest.receive(|header| {
            if questions.answered(header.answers) {
                answers += 1;
                trips.push(now_ns().saturating_sub(header.stamp_ns));
            }
        })?;
        for trip in trips {
            guest.latency.record(Duration::from_nanos(trip));
        }
        guest.counters.round_trips.add(answers);
        let now = Instant::now();
        let given_up = questions.give_up(now) as u64;
        guest.counters.timeouts.add(given_up);
        for _ in 0..answers + given_up {
            let pause = pace.draw();
            questions.due.push(now + pause);
        }
        if frames > 0 || given_up > 0 {
            continue;
        }
        let Some(next) = questions.next_event(asking) else {
            return Ok(());
        };
        let limit = next.saturating_duration_since(now);
        if !limit.is_zero() {
            guest.sleep(None, None, stop, limit)?;
        }
    }
}
