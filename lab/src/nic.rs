//! The guest's network card: rings, bells and counters of one queue pair.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use vmm_sys_util::eventfd::EventFd;

use crate::counters::{Counter, PairCounters};
use crate::device::QueuePair;
use crate::packet::VNET_HEADER;
use crate::system::wait_readable;

/// One queue pair as its driver sees it.
#[derive(Debug)]
pub struct Nic {
    pair: QueuePair,
    counters: Arc<PairCounters>,
    frame: Vec<u8>,
}

impl Nic {
    /// Takes a queue pair over.
    #[must_use]
    pub fn new(pair: QueuePair, counters: Arc<PairCounters>) -> Self {
        Self {
            pair,
            counters,
            frame: Vec::new(),
        }
    }

    /// The queue pair.
    #[must_use]
    pub const fn pair(&self) -> &QueuePair {
        &self.pair
    }

    /// Frames that can be staged now.
    #[must_use]
    pub const fn tx_room(&self) -> usize {
        self.pair.tx.free()
    }

    /// Frames given to the device and not taken back.
    #[must_use]
    pub const fn tx_outstanding(&self) -> u16 {
        self.pair.tx.outstanding()
    }

    /// Stages a frame; false when the ring is full.
    pub fn stage(&mut self, frame: &[u8]) -> bool {
        self.pair.tx.stage_readable(&[&[0; VNET_HEADER], frame])
    }

    /// Kicks both rings, though nothing is new there.
    ///
    /// # Errors
    /// When a kick fails.
    pub fn kick_for_nothing(&self) -> Result<()> {
        kick(&self.pair.rx_kick, &self.counters.rx.kicks)?;
        kick(&self.pair.tx_kick, &self.counters.tx.kicks)
    }

    /// Publishes what is staged, and kicks when the device asks for it.
    ///
    /// # Errors
    /// When the kick fails.
    pub fn publish(&mut self) -> Result<()> {
        if self.pair.tx.publish() {
            self.counters.tx.publishes.add(1);
            if self.pair.tx.needs_kick() {
                kick(&self.pair.tx_kick, &self.counters.tx.kicks)?;
            }
        }
        Ok(())
    }

    /// Takes sent frames back; says how many.
    ///
    /// # Errors
    /// When the device breaks the protocol.
    pub fn reap(&mut self) -> Result<usize> {
        let mut count = 0;
        while self.pair.tx.take().context("transmit ring")?.is_some() {
            count += 1;
        }
        self.counters.tx.packets.add(count as u64);
        Ok(count)
    }

    /// Hands up to `budget` received frames to `handle`, and their buffers
    /// back to the device. Says how many frames there were.
    ///
    /// # Errors
    /// When the device breaks the protocol or the kick fails.
    pub fn receive(&mut self, budget: usize, mut handle: impl FnMut(&[u8])) -> Result<usize> {
        let mut frames = 0;
        while frames < budget && self.next_frame()? {
            frames += 1;
            // A frame without even a header is none; let it be told apart
            // by its emptiness.
            handle(self.frame.get(VNET_HEADER..).unwrap_or_default());
        }
        if frames > 0 {
            self.counters.rx_frames.add(frames as u64);
            self.pair.rx.stage_writable();
            if self.pair.rx.publish() {
                self.counters.rx.publishes.add(1);
            }
            if self.pair.rx.needs_kick() {
                kick(&self.pair.rx_kick, &self.counters.rx.kicks)?;
            }
        }
        Ok(frames)
    }

    /// Puts the next frame together from its buffers.
    fn next_frame(&mut self) -> Result<bool> {
        let rx = &mut self.pair.rx;
        let Some(first) = rx.take().context("receive ring")? else {
            return Ok(false);
        };
        self.frame.clear();
        rx.read(first, &mut self.frame);
        self.counters.rx.packets.add(1);
        let buffers = match self.frame.get(10..12) {
            Some(&[low, high]) if self.pair.mergeable => u16::from_le_bytes([low, high]),
            _ => 1,
        };
        for _ in 1..buffers {
            let Some(next) = rx.take().context("receive ring")? else {
                bail!("the device used too few buffers for a frame of {buffers}");
            };
            rx.read(next, &mut self.frame);
            self.counters.rx.packets.add(1);
        }
        Ok(true)
    }

    /// Asks for no interrupts, as a driver does while it polls.
    pub fn suppress(&mut self) {
        self.pair.tx.suppress();
        self.pair.rx.suppress();
    }

    /// Asks for all interrupts, as a driver does that has nothing to do.
    /// True when there is something to do.
    pub fn arm(&mut self) -> bool {
        let rx = self.pair.rx.arm(0);
        self.pair.tx.arm(0) || rx
    }

    /// Sleeps until a frame is received; with `tx_after`, also when more
    /// than so many of the frames sent are used; or until one of `others`
    /// is readable, or `limit` has passed. Returns at once when frames wait.
    /// Says which of `others` are readable.
    ///
    /// # Errors
    /// When poll or an eventfd fails.
    pub fn sleep<const N: usize>(
        &mut self,
        tx_after: Option<u16>,
        others: [RawFd; N],
        limit: Duration,
    ) -> Result<[bool; N]> {
        let mut rung = [false; N];
        let ready = self.pair.rx.arm(0);
        let ready = tx_after.is_some_and(|after| self.pair.tx.arm(after)) || ready;
        if !ready {
            let calls = [self.pair.rx_call.as_raw_fd(), self.pair.tx_call.as_raw_fd()];
            let ready = wait_readable(&calls, &others, Some(limit)).context("cannot poll")?;
            if ready.contains(0) {
                count(&self.pair.rx_call, &self.counters.rx.interrupts)?;
            }
            if ready.contains(1) {
                count(&self.pair.tx_call, &self.counters.tx.interrupts)?;
            }
            for (i, rung) in rung.iter_mut().enumerate() {
                *rung = ready.contains(calls.len() + i);
            }
        }
        self.suppress();
        Ok(rung)
    }

    /// Counts the interrupts that have come.
    ///
    /// # Errors
    /// When an eventfd cannot be read.
    pub fn read_interrupts(&self) -> Result<()> {
        count(&self.pair.rx_call, &self.counters.rx.interrupts)?;
        count(&self.pair.tx_call, &self.counters.tx.interrupts)
    }
}

fn count(call: &EventFd, counter: &Counter) -> Result<()> {
    match call.read() {
        Ok(count) => counter.add(count),
        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
        Err(e) => return Err(e).context("cannot read a call eventfd"),
    }
    Ok(())
}

fn kick(bell: &EventFd, counter: &Counter) -> Result<()> {
    bell.write(1).context("cannot write a kick eventfd")?;
    counter.add(1);
    Ok(())
}
