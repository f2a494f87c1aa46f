//! Holds the mutex of a ring inside the kernel, for as long as wanted.
//!
//! To set a busyloop timeout, vhost reads the ring's index from the caller's
//! memory, takes the ring's mutex, and only then reads the value. Here the
//! value lies on a page that comes when we say so: until then the ioctl waits
//! with the mutex held. The value that comes is the one that was set, so
//! nothing is changed in the end.
//!
//! Whoever only tries the mutex, as the busy poll of the other ring does, finds
//! it taken. Whoever takes it waits: the worker for a kick of that ring, and any
//! other ioctl of the owner for the mutex of the device, which is held too.

mod page;

pub use page::Pages;

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use crate::device::VhostNet;
use crate::packet::Direction;
use crate::report::Event;
use crate::system::block_signals;

/// How long the ioctl may take to reach the value: it waits for a run, and
/// for a spin, in progress.
const PATIENCE: Duration = Duration::from_secs(30);

/// What to do with a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Take the mutex of this ring.
    Hold(Direction),
    /// Give it back.
    Free,
}

/// Holds one ring of a device at a time; gives it back when dropped.
#[derive(Debug, Default)]
pub struct Holder {
    vhost: Option<Arc<VhostNet>>,
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    pages: Arc<Pages>,
    value: u32,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Holder {
    /// For the rings of `vhost`.
    #[must_use]
    pub const fn new(vhost: Arc<VhostNet>) -> Self {
        Self {
            vhost: Some(vhost),
            held: None,
        }
    }

    /// True while a ring is held.
    #[must_use]
    pub const fn holds(&self) -> bool {
        self.held.is_some()
    }

    /// Does it, and says so once it is done.
    ///
    /// # Errors
    /// When a ring is held already, or none is; and when userfaultfd or the
    /// ioctl fails.
    pub fn obey(&mut self, order: Order) -> Result<Event> {
        match order {
            Order::Hold(_) if self.holds() => bail!("a ring is held already"),
            Order::Hold(ring) => {
                let vhost = self.vhost.as_ref().context("there is no device")?;
                self.held = Some(Held::take(vhost, ring)?);
                let ring = match ring {
                    Direction::Rx => "rx",
                    Direction::Tx => "tx",
                };
                Ok(Event::Held { ring })
            }
            Order::Free => {
                let Some(mut held) = self.held.take() else {
                    bail!("no ring is held");
                };
                held.give_back()?;
                Ok(Event::Freed)
            }
        }
    }
}

impl Held {
    fn take(vhost: &Arc<VhostNet>, ring: Direction) -> Result<Self> {
        let value = vhost.busyloop(ring)?;
        let pages = Arc::new(Pages::new().context("userfaultfd failed")?);
        let thread = thread::Builder::new()
            .name("hold".to_owned())
            .spawn({
                let (vhost, pages) = (Arc::clone(vhost), Arc::clone(&pages));
                move || {
                    // A pending signal would have the fault taken again and
                    // again instead of waiting.
                    block_signals();
                    vhost.set_busyloop_from(ring, &pages)
                }
            })
            .context("cannot start a thread")?;
        let mut held = Self {
            pages,
            value,
            thread: Some(thread),
        };
        if !held.pages.wait_for_reader(PATIENCE)? {
            held.give_back()?;
            bail!("the ioctl did not come to its value within {PATIENCE:?}");
        }
        Ok(held)
    }

    fn give_back(&mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        self.pages
            .fill(&self.value.to_ne_bytes())
            .context("UFFDIO_COPY failed")?;
        thread
            .join()
            .map_err(|_| anyhow!("the thread that held a ring panicked"))?
            .context("VHOST_SET_VRING_BUSYLOOP_TIMEOUT failed")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Err(e) = self.give_back() {
            eprintln!("vhost-lab: {e:#}");
        }
    }
}
