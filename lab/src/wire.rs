//! What the two ends of a flow tell each other behind the packets' back:
//! how far each has come. It is how nothing is sent that would be dropped,
//! and how the end of a run is known.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use crate::sequence::{FlowCounts, Tracker};
use crate::system::wait_readable;

/// A count that goes up, and that another thread can wait for.
#[derive(Debug)]
pub struct Progress {
    count: AtomicU64,
    /// Somebody sleeps until the count reaches this.
    wanted: AtomicU64,
    bell: EventFd,
}

const NOBODY: u64 = u64::MAX;

impl Progress {
    /// A count of 0.
    ///
    /// # Errors
    /// When no eventfd can be made.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            count: AtomicU64::new(0),
            wanted: AtomicU64::new(NOBODY),
            bell: EventFd::new(EFD_NONBLOCK)?,
        })
    }

    /// The count so far.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Adds `n` and wakes whoever waits for the count to get here.
    pub fn add(&self, n: u64) {
        // Sequential consistency on both words, as in `expect`: one of the
        // two sides must see the other's store.
        let now = self.count.fetch_add(n, Ordering::SeqCst) + n;
        if now >= self.wanted.load(Ordering::SeqCst) {
            self.wanted.store(NOBODY, Ordering::SeqCst);
            self.ring();
        }
    }

    /// Wakes the waiter whatever the count is.
    pub fn ring(&self) {
        // Fails only when the counter of the eventfd is full, and then it
        // is readable already.
        let _ = self.bell.write(1);
    }

    /// Asks for the bell when the count reaches `target`. True when it has,
    /// and there is nothing to wait for. Only one thread may wait.
    pub fn expect(&self, target: u64) -> bool {
        self.wanted.store(target, Ordering::SeqCst);
        let there = self.count.load(Ordering::SeqCst) >= target;
        if there {
            self.wanted.store(NOBODY, Ordering::SeqCst);
        }
        there
    }

    /// Readable when the bell has rung.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Makes the bell silent again.
    pub fn hush(&self) {
        // Nothing to read is as good as having read it.
        let _ = self.bell.read();
    }

    /// Sleeps until the count reaches `target`, the bell rings, or `limit`
    /// has passed. True when the count is there.
    ///
    /// # Errors
    /// When poll fails.
    pub fn wait(&self, target: u64, limit: Duration) -> io::Result<bool> {
        if !self.expect(target) {
            wait_readable(&[self.fd()], &[], Some(limit))?;
            self.hush();
        }
        Ok(self.get() >= target)
    }
}

/// One flow in one direction.
#[derive(Debug)]
pub struct Flow {
    /// Packets sent; written by the sender.
    pub sent: AtomicU64,
    /// Different packets received; advanced by the receiver.
    pub received: Progress,
    /// The sender has sent its last packet of this round.
    pub finished: AtomicBool,
    tracker: Mutex<Tracker>,
}

impl Flow {
    fn new() -> io::Result<Self> {
        Ok(Self {
            sent: AtomicU64::new(0),
            received: Progress::new()?,
            finished: AtomicBool::new(false),
            tracker: Mutex::new(Tracker::default()),
        })
    }

    /// The receiver's notes.
    pub fn tracker(&self) -> MutexGuard<'_, Tracker> {
        // A thread that panicked left whole numbers behind, so go on.
        self.tracker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Packets sent so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    /// True when the sender is done and all it sent has arrived.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.finished.load(Ordering::Acquire) && self.received.get() >= self.sent()
    }

    /// What became of the packets so far.
    #[must_use]
    pub fn counts(&self) -> FlowCounts {
        self.tracker().counts(self.sent())
    }
}

/// Both flows of a queue pair.
#[derive(Debug)]
pub struct Wire {
    /// Guest to host.
    pub tx: Flow,
    /// Host to guest.
    pub rx: Flow,
    /// Rounds in which the tap has learned where the flow belongs.
    pub primed: Progress,
    /// Tells the host's receiver that the guest has finished.
    pub host_bell: EventFd,
    /// Tells the guest that the host's sender has finished.
    pub guest_bell: EventFd,
}

impl Wire {
    /// Two flows without a packet.
    ///
    /// # Errors
    /// When no eventfd can be made.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            tx: Flow::new()?,
            rx: Flow::new()?,
            primed: Progress::new()?,
            host_bell: EventFd::new(EFD_NONBLOCK)?,
            guest_bell: EventFd::new(EFD_NONBLOCK)?,
        })
    }

    /// Makes ready for another round.
    pub fn rewind(&self) {
        self.tx.finished.store(false, Ordering::Release);
        self.rx.finished.store(false, Ordering::Release);
        let _ = self.host_bell.read();
        let _ = self.guest_bell.read();
    }

    /// The guest has sent its last packet.
    pub fn finish_tx(&self) {
        self.tx.finished.store(true, Ordering::Release);
        let _ = self.host_bell.write(1);
    }

    /// The host has sent its last packet.
    pub fn finish_rx(&self) {
        self.rx.finished.store(true, Ordering::Release);
        let _ = self.guest_bell.write(1);
    }
}

/// How far a sender may be ahead of the receiver.
#[derive(Debug)]
pub struct Window {
    limit: u64,
    /// Packets taken for lost, which no longer count as under way.
    forgiven: u64,
}

impl Window {
    /// At most `limit` packets under way.
    #[must_use]
    pub const fn new(limit: u64) -> Self {
        Self { limit, forgiven: 0 }
    }

    /// The most packets under way.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// How many more packets may be sent now.
    #[must_use]
    pub fn room(&self, flow: &Flow) -> u64 {
        let missing = flow.sent().saturating_sub(flow.received.get());
        self.limit
            .saturating_sub(missing.saturating_sub(self.forgiven))
    }

    /// The received count at which `n` more packets (at most the limit)
    /// may be sent.
    #[must_use]
    pub fn target(&self, flow: &Flow, n: u64) -> u64 {
        let ahead = self.limit.saturating_sub(n) + self.forgiven;
        flow.sent().saturating_sub(ahead)
    }

    /// Gives up on all that is under way, so that losses cannot block the
    /// sender for ever.
    pub fn forgive(&mut self, flow: &Flow) {
        self.forgiven = flow.sent().saturating_sub(flow.received.get());
    }
}

/// A request to stop making traffic.
#[derive(Debug)]
pub struct Stop {
    flag: AtomicBool,
    bell: EventFd,
}

impl Stop {
    /// Not stopped.
    ///
    /// # Errors
    /// When no eventfd can be made.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            flag: AtomicBool::new(false),
            bell: EventFd::new(EFD_NONBLOCK)?,
        })
    }

    /// Asks everybody to stop.
    pub fn set(&self) {
        self.flag.store(true, Ordering::Release);
        let _ = self.bell.write(1);
    }

    /// True once asked to stop.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    /// Readable, and staying so, once asked to stop.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.bell.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_waiter_is_woken_when_the_count_is_there() {
        let progress = Progress::new().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| (0..1000).for_each(|_| progress.add(1)));
            while !progress.wait(1000, Duration::from_secs(10)).unwrap() {}
        });
        assert_eq!(progress.get(), 1000);
    }

    #[test]
    fn a_wait_ends_at_its_limit() {
        let progress = Progress::new().unwrap();
        assert!(!progress.wait(1, Duration::from_millis(1)).unwrap());
    }

    #[test]
    fn a_window_opens_as_packets_arrive_or_are_given_up() {
        let flow = Flow::new().unwrap();
        let mut window = Window::new(10);
        assert_eq!(window.room(&flow), 10);
        flow.sent.store(10, Ordering::Release);
        assert_eq!(window.room(&flow), 0);
        assert_eq!(window.target(&flow, 4), 4);
        flow.received.add(4);
        assert_eq!(window.room(&flow), 4);
        window.forgive(&flow);
        assert_eq!(window.room(&flow), 10);
        flow.received.add(6);
        assert_eq!(window.room(&flow), 10);
    }

    #[test]
    fn a_flow_is_complete_when_finished_and_received() {
        let wire = Wire::new().unwrap();
        wire.tx.sent.store(1, Ordering::Release);
        wire.finish_tx();
        assert!(!wire.tx.complete());
        wire.tx.received.add(1);
        assert!(wire.tx.complete());
        wire.rewind();
        assert!(!wire.tx.complete());
    }
}
