//! Looking after a round: its end, its progress, and what is told meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::console::{Console, Input};
use crate::counters::{PairCounters, PairCounts};
use crate::hold::Holder;
use crate::options::RunOptions;
use crate::report::Event;
use crate::wire::{Progress, Stop};

/// Waits until all threads have left, and tells them when to stop.
pub(super) fn watch(
    counters: &[Arc<PairCounters>],
    options: &RunOptions,
    (console, holder): (&mut Console, &mut Holder),
    stop: &Stop,
    left: &Progress,
    threads: usize,
    start: Instant,
) -> Result<()> {
    let end = options
        .seconds
        .map(|seconds| start + Duration::from_secs_f64(seconds));
    let every = options.report_ms.map(Duration::from_millis);
    let mut report = every.map(|every| start + every);
    while !left.expect(threads as u64) {
        let now = Instant::now();
        if end.is_some_and(|end| now >= end) {
            stop.set();
        }
        if let (Some(when), Some(every)) = (report, every)
            && now >= when
        {
            progress(counters, start).print()?;
            report = Some(when + every);
        }
        let next = end
            .filter(|_| !stop.is_set())
            .into_iter()
            .chain(report)
            .min();
        let limit = next.map(|next| next.saturating_duration_since(now));
        for input in console.listen(Some(left.fd()), limit)? {
            match input {
                Input::Signal | Input::Line => stop.set(),
                Input::Go => console.keep(input),
                Input::Hold(order) => holder.obey(order)?.print()?,
                Input::End => {}
            }
        }
        left.hush();
    }
    Ok(())
}

fn progress(counters: &[Arc<PairCounters>], start: Instant) -> Event {
    let sum = counters
        .iter()
        .fold(PairCounts::default(), |sum, pair| sum.plus(&pair.counts()));
    Event::Progress {
        seconds: start.elapsed().as_secs_f64(),
        round_trips: sum.round_trips,
        tx_packets: sum.tx.packets,
        rx_packets: sum.rx.packets,
    }
}
