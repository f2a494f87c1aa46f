//! The threads of a round: one guest and its host peers per queue pair.

use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};

use super::Pair;
use crate::host::{HostPeer, SendPlan, Sent};
use crate::options::{Mode, RunOptions};
use crate::pace::Pace;
use crate::system::want_exact_timers;
use crate::traffic;
use crate::wire::{Progress, Stop};

/// What the threads of one pair need to know.
#[derive(Clone, Copy)]
pub(super) struct Crew<'a> {
    pub(super) options: &'a RunOptions,
    pub(super) stop: &'a Stop,
    pub(super) left: &'a Progress,
    pub(super) round: u64,
    pub(super) seed: u64,
}

/// Counts a thread as gone when dropped, also after a panic.
struct Leaving<'a>(&'a Progress);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.add(1);
    }
}

impl<'a> Crew<'a> {
    pub(super) fn start<'scope>(
        self,
        scope: &'scope thread::Scope<'scope, '_>,
        pair: &'scope mut Pair,
    ) -> Result<Vec<ScopedJoinHandle<'scope, Result<()>>>>
    where
        'a: 'scope,
    {
        let Pair {
            guest,
            peer,
            counters,
            wires,
            files,
            host_gaps,
            ..
        } = pair;
        let peer: &'scope HostPeer = peer
            .as_ref()
            .context("without addresses there is no traffic")?;
        let wire = &wires[usize::from(files.queue)];
        wire.rewind();
        let mode = self.options.mode;
        let name = |role: &str| {
            let role = format!("{role}-{}.{}", files.device, files.queue);
            self.options.thread_name(&role)
        };
        let mut threads = Vec::new();
        let spawn = |role: &str, work: Box<dyn FnOnce() -> Result<()> + Send + 'scope>| {
            thread::Builder::new()
                .name(name(role))
                .spawn_scoped(scope, move || {
                    let _leaving = Leaving(self.left);
                    let result = work();
                    if result.is_err() {
                        self.stop.set();
                    }
                    result
                })
                .context("cannot start a thread")
        };
        threads.push(spawn(
            "host-rx",
            Box::new(move || {
                let result = peer.receive(mode == Mode::Echo);
                if !traffic::host_sends(mode) {
                    wire.finish_rx();
                }
                result
            }),
        )?);
        if traffic::host_sends(mode) {
            let mut plan = self.send_plan();
            threads.push(spawn(
                "host-tx",
                Box::new(move || {
                    let result = peer.send(&mut plan, self.round, self.stop);
                    wire.finish_rx();
                    let Sent { bursts, gaps } = result?;
                    counters.rx.bursts.add(bursts);
                    *host_gaps = gaps;
                    Ok(())
                }),
            )?);
        }
        threads.push(spawn(
            "guest",
            Box::new(move || {
                want_exact_timers();
                let result = traffic::run(guest, self.options, self.seed, self.stop);
                wire.finish_tx();
                result
            }),
        )?);
        Ok(threads)
    }

    fn send_plan(&self) -> SendPlan {
        let options = self.options;
        let pace = Pace::new(
            Duration::from_secs_f64(options.gap_us / 1e6),
            options.gap,
            self.seed,
        );
        SendPlan {
            goal: options.goal(),
            window: options.window,
            bursts: (options.mode == Mode::Rxburst).then(|| (u64::from(options.burst), pace)),
        }
    }
}
