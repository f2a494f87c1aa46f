//! As many packets as go through, in either direction or both.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{guest_sends, host_sends};
use crate::guest::Guest;
use crate::options::RunOptions;
use crate::packet::Kind;
use crate::wire::Stop;

/// Packets sent before anything else is looked at.
const SPRINT: usize = 64;
/// A tap forgets a flow's queue after 3 s without a packet from the guest.
const REFRESH: Duration = Duration::from_secs(1);
/// How long the window may stay closed before losses are assumed.
const PATIENCE: Duration = Duration::from_secs(2);

/// A flood in progress.
struct Flood<'a> {
    stop: &'a Stop,
    /// Packets to send yet.
    left: u64,
    publish: usize,
    /// When to remind the tap of the flow, if it can forget.
    refresh: Option<Instant>,
    /// Since when the window has been closed.
    closed: Option<Instant>,
}

pub(super) fn run(guest: &mut Guest, options: &RunOptions, stop: &Stop) -> Result<()> {
    let mut flood = Flood::new(options, stop);
    if !guest_sends(options.mode) {
        flood.left = 0;
    }
    loop {
        if flood.go(guest, None)? && (!host_sends(options.mode) || host_finished(guest)) {
            return Ok(());
        }
    }
}

pub(super) fn run_on_off(guest: &mut Guest, options: &RunOptions, stop: &Stop) -> Result<()> {
    let on = Duration::from_secs_f64(options.on_ms / 1e3);
    let off = Duration::from_secs_f64(options.off_ms / 1e3);
    let mut flood = Flood::new(options, stop);
    loop {
        let end = Instant::now() + on;
        while Instant::now() < end && !flood.go(guest, Some(end))? {}
        guest.counters.tx.bursts.add(1);
        if flood.left == 0 || stop.is_set() {
            return Ok(());
        }
        let end = Instant::now() + off;
        loop {
            guest.nic.reap()?;
            guest.receive(|_| {})?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || stop.is_set() {
                break;
            }
            guest.sleep(None, None, stop, left)?;
        }
    }
}

fn host_finished(guest: &Guest) -> bool {
    guest.wire().rx.finished.load(Ordering::Acquire)
}

impl<'a> Flood<'a> {
    fn new(options: &RunOptions, stop: &'a Stop) -> Self {
        Self {
            stop,
            left: options.goal().unwrap_or(u64::MAX),
            publish: usize::from(options.publish),
            refresh: (options.pairs > 1).then(|| Instant::now() + REFRESH),
            closed: None,
        }
    }

    /// Sends and receives what goes at once, and sleeps when nothing does,
    /// until `end` at the latest. True when all is sent.
    fn go(&mut self, guest: &mut Guest, end: Option<Instant>) -> Result<bool> {
        let mut moved = guest.nic.reap()?;
        moved += self.sprint(guest)?;
        moved += guest.receive(|_| {})?;
        let sending = self.left > 0 && !self.stop.is_set();
        if moved == 0 {
            self.pause(guest, sending, end)?;
        }
        Ok(!sending)
    }

    fn sprint(&mut self, guest: &mut Guest) -> Result<usize> {
        let mut staged = 0;
        if self.refresh.is_some_and(|when| Instant::now() >= when)
            && guest.stage(Kind::Primer).is_some()
        {
            self.refresh = Some(Instant::now() + REFRESH);
            staged += 1;
        }
        let mut room = guest.window.room(&guest.wire().tx);
        while staged < SPRINT && self.left > 0 && room > 0 && !self.stop.is_set() {
            if guest.stage(Kind::Data).is_none() {
                break;
            }
            self.left -= 1;
            room -= 1;
            staged += 1;
            if staged % self.publish == 0 {
                guest.nic.publish()?;
            }
        }
        guest.nic.publish()?;
        if room > 0 {
            self.closed = None;
        }
        Ok(staged)
    }

    fn pause(&mut self, guest: &mut Guest, sending: bool, end: Option<Instant>) -> Result<()> {
        let mut limit = Duration::from_millis(100);
        if let Some(end) = end {
            limit = limit.min(end.saturating_duration_since(Instant::now()));
        }
        let full = guest.nic.tx_room() == 0;
        // Half a ring of room makes the wake-up worth while, and leaves
        // half a ring to go on with.
        let tx_after = (sending && full).then(|| guest.nic.tx_outstanding() / 2);
        let flow = &guest.wire().tx;
        let closed = sending && guest.window.room(flow) == 0;
        let mut other = None;
        if closed {
            let since = *self.closed.get_or_insert_with(Instant::now);
            let target = guest.window.target(flow, guest.window.limit() / 4);
            if flow.received.expect(target) {
                return Ok(());
            }
            other = Some(flow.received.fd());
            if since.elapsed() > PATIENCE {
                guest.forgive();
                self.closed = None;
                return Ok(());
            }
        }
        guest.sleep(tx_after, other, self.stop, limit)?;
        if closed {
            guest.wire().tx.received.hush();
        }
        Ok(())
    }
}
