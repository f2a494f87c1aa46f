//! One vhost-net device file with its two rings.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use libc::{c_uint, c_ulong};
use vhost::net::VhostNet as _;
use vhost::vhost_kern::net::Net;
use vhost::{VhostBackend as _, VhostUserMemoryRegionInfo, VringConfigData};
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_net::VIRTIO_NET_F_MRG_RXBUF;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use vm_memory::GuestMemoryMmap;
use vmm_sys_util::eventfd::EventFd;

use crate::hold::Pages;
use crate::packet::Direction;
use crate::ring::{Area, Layout};

/// Index of the receive ring in every vhost-net device.
const RX: usize = 0;
/// Index of the transmit ring.
const TX: usize = 1;

const VHOST_SET_VRING_BUSYLOOP_TIMEOUT: c_ulong = (1 << 30) | (8 << 16) | (0xaf << 8) | 0x23;
/// Said to be one that is written by the caller, but the kernel answers in it.
const VHOST_GET_VRING_BUSYLOOP_TIMEOUT: c_ulong = (1 << 30) | (8 << 16) | (0xaf << 8) | 0x24;

#[repr(C)]
struct VringState {
    index: c_uint,
    num: c_uint,
}

/// What one ring is set up with.
pub(super) struct RingSetup<'a> {
    /// Where it lies.
    pub(super) layout: &'a Layout,
    /// The driver's bell.
    pub(super) kick: &'a EventFd,
    /// The device's bell.
    pub(super) call: &'a EventFd,
    /// Busyloop timeout in units of 1.024 µs; the kernel's own without.
    pub(super) busyloop: Option<u32>,
}

/// Features beyond VIRTIO_F_VERSION_1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Features {
    /// VIRTIO_RING_F_EVENT_IDX.
    pub(super) event_idx: bool,
    /// VIRTIO_NET_F_MRG_RXBUF.
    pub(super) mergeable: bool,
}

/// Moves what `given` refers to to the number `place`.
fn take_place(given: RawFd, place: RawFd) -> std::io::Result<()> {
    // SAFETY: takes two numbers; what `place` referred to is closed, and its
    // owner goes on with what takes its place.
    if unsafe { libc::dup3(given, place, libc::O_CLOEXEC) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: whoever gave us the number leaves it to us, and it is not used
    // again.
    unsafe { libc::close(given) };
    Ok(())
}

/// An open /dev/vhost-net.
pub struct VhostNet {
    net: Net<Arc<GuestMemoryMmap<()>>>,
}

impl std::fmt::Debug for VhostNet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VhostNet").field("fd", &self.fd()).finish()
    }
}

impl VhostNet {
    /// Opens the device, or takes one that was opened before, and sets it up,
    /// all but the backend: nothing moves yet.
    ///
    /// # Errors
    /// Which step failed, and how.
    pub(super) fn open(
        area: &Area,
        given: Option<RawFd>,
        features: Features,
        rx: &RingSetup<'_>,
        tx: &RingSetup<'_>,
    ) -> Result<Self> {
        let net = Net::new(area.memory())
            .context("cannot open /dev/vhost-net (is the module vhost_net loaded?)")?;
        if let Some(given) = given {
            take_place(given, net.as_raw_fd())
                .with_context(|| format!("cannot take descriptor {given}"))?;
        }
        net.set_owner().context("VHOST_SET_OWNER failed")?;
        let mut wanted = 1u64 << VIRTIO_F_VERSION_1;
        if features.event_idx {
            wanted |= 1 << VIRTIO_RING_F_EVENT_IDX;
        }
        if features.mergeable {
            wanted |= 1 << VIRTIO_NET_F_MRG_RXBUF;
        }
        let offered = net.get_features().context("VHOST_GET_FEATURES failed")?;
        if wanted & !offered != 0 {
            bail!(
                "vhost offers features {offered:#x}, without {:#x}",
                wanted & !offered
            );
        }
        net.set_features(wanted)
            .context("VHOST_SET_FEATURES failed")?;
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: area.len() as u64,
            userspace_addr: area.host_address(),
            mmap_offset: 0,
            mmap_handle: -1,
        };
        net.set_mem_table(&[region])
            .context("VHOST_SET_MEM_TABLE failed")?;
        let vhost = Self { net };
        vhost.set_ring(RX, rx).context("receive ring")?;
        vhost.set_ring(TX, tx).context("transmit ring")?;
        Ok(vhost)
    }

    fn set_ring(&self, index: usize, ring: &RingSetup<'_>) -> Result<()> {
        let size = ring.layout.size;
        self.net
            .set_vring_num(index, size)
            .context("VHOST_SET_VRING_NUM failed")?;
        let addresses = VringConfigData {
            queue_max_size: size,
            queue_size: size,
            flags: 0,
            desc_table_addr: ring.layout.desc as u64,
            used_ring_addr: ring.layout.used as u64,
            avail_ring_addr: ring.layout.avail as u64,
            log_addr: None,
        };
        self.net
            .set_vring_addr(index, &addresses)
            .context("VHOST_SET_VRING_ADDR failed")?;
        self.net
            .set_vring_base(index, 0)
            .context("VHOST_SET_VRING_BASE failed")?;
        self.net
            .set_vring_kick(index, ring.kick)
            .context("VHOST_SET_VRING_KICK failed")?;
        self.net
            .set_vring_call(index, ring.call)
            .context("VHOST_SET_VRING_CALL failed")?;
        if let Some(units) = ring.busyloop {
            self.set_busyloop(index, units)?;
        }
        Ok(())
    }

    fn set_busyloop(&self, index: usize, units: u32) -> Result<()> {
        let state = VringState {
            index: index as c_uint,
            num: units,
        };
        // SAFETY: the kernel reads one vhost_vring_state, which this is.
        let result = unsafe {
            libc::ioctl(
                self.fd(),
                VHOST_SET_VRING_BUSYLOOP_TIMEOUT,
                &raw const state,
            )
        };
        if result < 0 {
            return Err(std::io::Error::last_os_error())
                .context("VHOST_SET_VRING_BUSYLOOP_TIMEOUT failed");
        }
        Ok(())
    }

    /// A ring's busyloop timeout, in units of 1.024 µs.
    ///
    /// # Errors
    /// What the ioctl failed with.
    pub fn busyloop(&self, ring: Direction) -> Result<u32> {
        let mut state = VringState {
            index: index_of(ring) as c_uint,
            num: 0,
        };
        // SAFETY: the kernel writes one vhost_vring_state, which this is.
        let result =
            unsafe { libc::ioctl(self.fd(), VHOST_GET_VRING_BUSYLOOP_TIMEOUT, &raw mut state) };
        if result < 0 {
            return Err(std::io::Error::last_os_error())
                .context("VHOST_GET_VRING_BUSYLOOP_TIMEOUT failed");
        }
        Ok(state.num)
    }

    /// Sets a ring's busyloop timeout to what the second of `pages` begins
    /// with; waits for that with the mutex of the ring held.
    ///
    /// # Errors
    /// What the ioctl failed with.
    pub fn set_busyloop_from(&self, ring: Direction, pages: &Pages) -> std::io::Result<()> {
        let index = index_of(ring) as c_uint;
        let state = pages.before(index.to_ne_bytes());
        // SAFETY: the kernel reads one vhost_vring_state: its index lies at the
        // end of one page, its number at the beginning of the next.
        let result = unsafe { libc::ioctl(self.fd(), VHOST_SET_VRING_BUSYLOOP_TIMEOUT, state) };
        if result < 0 {
            Err(std::io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Starts both rings on the tap.
    ///
    /// # Errors
    /// What VHOST_NET_SET_BACKEND failed with.
    pub(super) fn start(&self, tap: &File) -> Result<()> {
        for index in [RX, TX] {
            self.net
                .set_backend(index, Some(tap))
                .context("VHOST_NET_SET_BACKEND failed")?;
        }
        Ok(())
    }

    /// Waits until the worker has finished what it was asked to do so far,
    /// interrupts included.
    ///
    /// # Errors
    /// What the ioctl failed with.
    pub fn settle(&self) -> Result<()> {
        // Of the calls the owner may make, taking away the error log that
        // was never set is the one that changes nothing. Like all of them
        // it takes both rings' mutexes, which waits for a pass in progress,
        // and flushes the worker.
        self.net.set_log_fd(-1).context("VHOST_SET_LOG_FD failed")
    }

    /// The open file's number.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.net.as_raw_fd()
    }
}

const fn index_of(ring: Direction) -> usize {
    match ring {
        Direction::Rx => RX,
        Direction::Tx => TX,
    }
}
