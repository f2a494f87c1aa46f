//! From options to devices that are ready to run.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::link::{self, LinkCounts};
use super::macvtap::{self, VethPair};
use super::tap;
use super::vhost::{Features, RingSetup, VhostNet};
use crate::options::{Backend, RunOptions};
use crate::packet::{Ends, VNET_HEADER};
use crate::ring::{Area, DriverRing, Layout};

/// One device: a tap with one or more queue pairs.
#[derive(Debug)]
pub struct Device {
    /// The pairs, by queue.
    pub pairs: Vec<QueuePair>,
    /// Name of the tap.
    pub tap: String,
    // Last, so that the files are closed before the devices go.
    _below: Option<VethPair>,
}

/// A receive and a transmit ring, served by one vhost-net file.
#[derive(Debug)]
pub struct QueuePair {
    /// Transmit ring.
    pub tx: DriverRing,
    /// Receive ring, already filled with buffers.
    pub rx: DriverRing,
    /// Bell for the transmit ring.
    pub tx_kick: EventFd,
    /// Interrupts of the transmit ring.
    pub tx_call: EventFd,
    /// Bell for the receive ring.
    pub rx_kick: EventFd,
    /// Interrupts of the receive ring.
    pub rx_call: EventFd,
    /// The vhost-net file.
    pub vhost: Arc<VhostNet>,
    /// The tap's file of this queue.
    pub tap: File,
    /// Who is who on this pair.
    pub ends: Ends,
    /// Name of the network device that is the host's end.
    pub host_link: String,
    /// VIRTIO_NET_F_MRG_RXBUF was negotiated.
    pub mergeable: bool,
}

/// How large buffers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxGeometry {
    /// Bytes per transmit buffer, enough for any frame.
    pub tx_buffer: usize,
    /// Bytes per receive buffer.
    pub rx_buffer: usize,
}

impl RxGeometry {
    fn of(options: &RunOptions) -> Self {
        // Ethernet header and a VLAN tag come on top of the MTU.
        let whole = (VNET_HEADER + 18 + usize::from(options.mtu)).next_multiple_of(64);
        Self {
            tx_buffer: whole,
            rx_buffer: options.rx_buffer.unwrap_or(whole),
        }
    }
}

impl Device {
    /// Makes device number `index` and starts it.
    ///
    /// # Errors
    /// Which step failed, and how.
    pub fn open(options: &RunOptions, index: u16) -> Result<Self> {
        let name = if index == 0 {
            options.ifname.clone()
        } else {
            format!("{}{index}", options.ifname)
        };
        Self::open_named(options, index, &name).with_context(|| format!("cannot set up {name}"))
    }

    fn open_named(options: &RunOptions, index: u16, name: &str) -> Result<Self> {
        let (host_ip, guest_ip) = options.net.pair(index);
        let (host_mac, guest_mac) = (mac_of(host_ip), mac_of(guest_ip));
        let (host_text, guest_text) = (link::mac_text(host_mac), link::mac_text(guest_mac));
        let multi_queue = options.pairs > 1;
        let (below, path) = match options.backend {
            Backend::Tap => (None, "/dev/net/tun".into()),
            Backend::Macvtap => {
                let (pair, path) = macvtap::create(name, &guest_text, options.mtu)?;
                (Some(pair), path)
            }
        };
        let open_tap = |path: &Path| tap::open_queue(path, name, multi_queue, options.sndbuf);
        let taps = (0..options.pairs)
            .map(|_| open_tap(&path))
            .collect::<Result<Vec<_>>>()?;
        let addressed = below.as_ref().map_or(name, |pair| pair.host.as_str());
        if !options.bare {
            link::silence(addressed)?;
            link::settle_udev();
            link::ip(&link::address_lines(
                addressed,
                options.mtu,
                (&host_text, host_ip),
                (&guest_text, guest_ip),
            ))?;
        }
        let mut pairs = Vec::new();
        let first = usize::from(index) * usize::from(options.pairs);
        for (queue, tap) in (0..).zip(taps) {
            let ends = Ends {
                guest_mac,
                host_mac,
                guest_ip,
                host_ip,
                queue,
            };
            let given = options.vhost_fd.get(first + usize::from(queue)).copied();
            pairs.push(
                QueuePair::open(options, given, tap, ends, addressed)
                    .with_context(|| format!("queue {queue}"))?,
            );
        }
        Ok(Self {
            pairs,
            tap: name.to_owned(),
            _below: below,
        })
    }

    /// The tap's own counters.
    #[must_use]
    pub fn link_counts(&self) -> Option<LinkCounts> {
        LinkCounts::read(&self.tap)
    }
}

/// A locally administered address that tells devices and ends apart.
const fn mac_of(ip: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = ip.octets();
    [0x02, 0x56, a, b, c, d]
}

impl QueuePair {
    fn open(
        options: &RunOptions,
        given: Option<RawFd>,
        tap: File,
        ends: Ends,
        host_link: &str,
    ) -> Result<Self> {
        let size = usize::from(options.ring_size);
        let buffers = RxGeometry::of(options);
        let tx_layout = Layout::new(0, size)?;
        let rx_layout = Layout::new(tx_layout.end, size)?;
        let tx_buffers = rx_layout.end.next_multiple_of(4096);
        let rx_buffers = tx_buffers + size * buffers.tx_buffer;
        let end = (rx_buffers + size * buffers.rx_buffer).next_multiple_of(4096);
        let area = Arc::new(Area::new(end)?);
        let ring = |layout, buffers, buffer_size| {
            DriverRing::new(
                Arc::clone(&area),
                layout,
                buffers,
                buffer_size,
                options.event_idx,
            )
        };
        let tx = ring(tx_layout, tx_buffers, buffers.tx_buffer);
        let mut rx = ring(rx_layout, rx_buffers, buffers.rx_buffer);
        let bell = || EventFd::new(EFD_NONBLOCK).context("cannot make an eventfd");
        let (tx_kick, tx_call, rx_kick, rx_call) = (bell()?, bell()?, bell()?, bell()?);
        let vhost = VhostNet::open(
            &area,
            given,
            Features {
                event_idx: options.event_idx,
                mergeable: options.mergeable,
            },
            &RingSetup {
                layout: rx.layout(),
                kick: &rx_kick,
                call: &rx_call,
                busyloop: options.busyloop_rx,
            },
            &RingSetup {
                layout: tx.layout(),
                kick: &tx_kick,
                call: &tx_call,
                busyloop: options.busyloop_tx,
            },
        )?;
        // Buffers first, then the device: as drivers do, so that the first
        // packet finds room. Nothing runs yet, so nobody needs a kick.
        rx.stage_writable();
        rx.publish();
        let _ = rx.needs_kick();
        vhost.start(&tap)?;
        Ok(Self {
            tx,
            rx,
            tx_kick,
            tx_call,
            rx_kick,
            rx_call,
            vhost: Arc::new(vhost),
            tap,
            ends,
            host_link: host_link.to_owned(),
            mergeable: options.mergeable,
        })
    }
}
