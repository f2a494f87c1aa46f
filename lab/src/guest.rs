//! The guest's end of the flows: one thread per queue pair, as a vCPU has.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::counters::PairCounters;
use crate::device::mac_address;
use crate::nic::Nic;
use crate::packet::{Direction, Ends, Header, Kind, Parsed, parse_frame, write_frame};
use crate::quantiles::Times;
use crate::system::now_ns;
use crate::traffic::QUIET;
use crate::wire::{Stop, Window, Wire};

/// How long vhost may take to send what it was given. A busyloop timeout
/// does not count: it is not spent with packets in the ring.
const TX_PATIENCE: Duration = Duration::from_secs(20);
/// How long the first packet of a flow may take.
const PRIME_PATIENCE: Duration = Duration::from_secs(10);
/// Frames received before anything else is looked at.
pub(crate) const BUDGET: usize = 64;

/// One queue pair's guest.
#[derive(Debug)]
pub struct Guest {
    pub(crate) nic: Nic,
    pub(crate) counters: Arc<PairCounters>,
    pub(crate) window: Window,
    pub(crate) latency: Times,
    pub(crate) gaps: Times,
    /// Length of the last round's traffic.
    pub(crate) active: Duration,
    wires: Arc<Vec<Wire>>,
    ends: Ends,
    payload: usize,
    frame: Vec<u8>,
}

impl Guest {
    /// A guest on `nic`, whose device's flows are `wires`.
    #[must_use]
    pub fn new(
        nic: Nic,
        counters: Arc<PairCounters>,
        wires: Arc<Vec<Wire>>,
        payload: usize,
        tx_window: u64,
    ) -> Self {
        let ends = nic.pair().ends;
        Self {
            nic,
            counters,
            window: Window::new(tx_window),
            latency: Times::default(),
            gaps: Times::default(),
            active: Duration::ZERO,
            wires,
            ends,
            payload,
            frame: Vec::new(),
        }
    }

    /// Both flows of this pair.
    #[must_use]
    pub fn wire(&self) -> &Wire {
        &self.wires[usize::from(self.ends.queue)]
    }

    /// The card.
    #[must_use]
    pub const fn nic(&self) -> &Nic {
        &self.nic
    }

    /// Times of this round: round trips, and gaps between bursts.
    #[must_use]
    pub const fn times(&self) -> (&Times, &Times) {
        (&self.latency, &self.gaps)
    }

    /// Forgets the times of the last round.
    pub fn clear_times(&mut self) {
        self.latency.clear();
        self.gaps.clear();
    }

    /// Stages the next packet of the flow, and returns its number; none
    /// when the ring is full.
    pub(crate) fn stage(&mut self, kind: Kind) -> Option<u64> {
        if self.nic.tx_room() == 0 {
            return None;
        }
        let flow = &self.wires[usize::from(self.ends.queue)].tx;
        let sequence = flow.sent();
        let header = Header {
            queue: self.ends.queue,
            direction: Direction::Tx,
            kind,
            sequence,
            answers: 0,
            stamp_ns: now_ns(),
        };
        write_frame(&self.ends, &header, self.payload, &mut self.frame);
        if !self.nic.stage(&self.frame) {
            return None;
        }
        // Before it is published, so that the host never receives more than
        // was sent.
        flow.sent.store(sequence + 1, Ordering::Release);
        if kind == Kind::Primer {
            self.counters.primers.add(1);
        }
        Some(sequence)
    }

    /// Receives up to [`BUDGET`] frames, and shows those that are new and
    /// this queue's own to `handle`. Says how many frames there were.
    pub(crate) fn receive(&mut self, mut handle: impl FnMut(&Header)) -> Result<usize> {
        let Self {
            nic,
            wires,
            counters,
            ends,
            ..
        } = self;
        let own = &wires[usize::from(ends.queue)].rx;
        let mut fresh = 0;
        let frames = nic.receive(BUDGET, |frame| match parse_frame(frame) {
            Parsed::Ours(header) if header.direction == Direction::Rx => {
                let Some(wire) = wires.get(usize::from(header.queue)) else {
                    return counters.foreign.add(1);
                };
                let new = wire.rx.tracker().arrived(header.sequence);
                if header.queue != ends.queue {
                    counters.misrouted.add(1);
                    wire.rx.received.add(u64::from(new));
                } else if new {
                    fresh += 1;
                    handle(&header);
                }
            }
            Parsed::Foreign => counters.foreign.add(1),
            _ => own.tracker().damaged(),
        })?;
        own.received.add(fresh);
        Ok(frames)
    }

    /// Takes all that is under way to the host for lost.
    pub(crate) fn forgive(&mut self) {
        self.window
            .forgive(&self.wires[usize::from(self.ends.queue)].tx);
    }

    /// Sleeps as [`Nic::sleep`] does; being told to stop, or that the host
    /// has finished, ends it too.
    pub(crate) fn sleep(
        &mut self,
        tx_after: Option<u16>,
        other: Option<RawFd>,
        stop: &Stop,
        limit: Duration,
    ) -> Result<()> {
        let others = [
            self.wire().guest_bell.as_raw_fd(),
            if stop.is_set() { -1 } else { stop.fd() },
            other.unwrap_or(-1),
        ];
        let [bell, ..] = self.nic.sleep(tx_after, others, limit)?;
        if bell {
            // What it stands for is looked at after every sleep anyway.
            let _ = self.wire().guest_bell.read();
        }
        Ok(())
    }

    /// Sleeps until vhost has used every frame.
    pub(crate) fn drain_tx(&mut self, stop: &Stop) -> Result<()> {
        let patience = Instant::now() + TX_PATIENCE;
        loop {
            self.nic.reap()?;
            self.receive(|_| {})?;
            let left = self.nic.tx_outstanding();
            if left == 0 {
                return Ok(());
            }
            if Instant::now() > patience {
                bail!(
                    "vhost left {left} frames unsent on queue {}",
                    self.ends.queue
                );
            }
            self.sleep(Some(left - 1), None, stop, Duration::from_millis(100))?;
        }
    }

    /// Teaches the tap which queue this flow belongs to, by a packet that
    /// has gone all the way.
    pub(crate) fn prime(&mut self, stop: &Stop) -> Result<()> {
        let patience = Instant::now() + PRIME_PATIENCE;
        loop {
            let sequence = self.stage(Kind::Primer);
            self.nic.publish()?;
            // The tap learns after it has delivered, so being received is
            // not enough; once the frame is used, it has.
            self.drain_tx(stop)?;
            let flow = &self.wire().tx;
            let limit = Duration::from_millis(500);
            if let Some(sequence) = sequence
                && flow.received.wait(sequence + 1, limit)?
            {
                break;
            }
            if stop.is_set() {
                return Ok(());
            }
            if Instant::now() > patience {
                bail!(
                    "no packet of queue {} reaches the host through {}",
                    self.ends.queue,
                    self.nic.pair().host_link
                );
            }
            // The host takes only what is sent to its own MAC address, and
            // somebody may have given the device another one.
            if let Some(mac) = mac_address(&self.nic.pair().host_link) {
                self.ends.host_mac = mac;
            }
        }
        self.wire().primed.add(1);
        Ok(())
    }

    /// Sees the round to its end: every frame used, and everything the host
    /// sent received, or nothing more coming.
    pub(crate) fn finish(&mut self, stop: &Stop) -> Result<()> {
        self.drain_tx(stop)?;
        self.wire().finish_tx();
        let mut last = Instant::now();
        loop {
            if self.receive(|_| {})? > 0 {
                last = Instant::now();
                continue;
            }
            let flow = &self.wire().rx;
            let finished = flow.finished.load(Ordering::Acquire);
            if flow.complete() || (finished && last.elapsed() > QUIET) {
                return Ok(());
            }
            self.sleep(None, None, stop, Duration::from_millis(100))?;
        }
    }

    /// Takes in whatever the rings still hold once all traffic has ended.
    /// Says whether there was anything.
    ///
    /// # Errors
    /// When the device breaks the protocol.
    pub fn settle(&mut self) -> Result<bool> {
        self.nic.pair().vhost.settle()?;
        let reaped = self.nic.reap()?;
        let mut received = 0;
        loop {
            match self.receive(|_| {})? {
                0 => break,
                frames => received += frames,
            }
        }
        Ok(reaped + received > 0)
    }

    /// Leaves the card as a driver with nothing to do leaves it, and reads
    /// the interrupts that came late. True when frames wait after all.
    ///
    /// # Errors
    /// When an eventfd cannot be read.
    pub fn rest(&mut self) -> Result<bool> {
        let ready = self.nic.arm();
        self.nic.read_interrupts()?;
        Ok(ready)
    }
}
