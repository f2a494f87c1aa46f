//! Network devices over rtnetlink: name, kind, master, MTU and 64-bit counters,
//! in every network namespace that a known tap is in.
//!
//! Read once for each namespace, and from then on followed by what the kernel
//! tells of links that come, go and change. Only the attributes needed are
//! decoded, each bounded by its own length: an attribute that a later kernel
//! adds, lengthens or changes can neither fail the listing nor shift what
//! stands beside it.

mod links;
mod message;
mod namespace;
mod parse;
mod socket;
mod table;

pub use links::{Links, Place};
pub use namespace::NamespaceError;
pub use table::{Change, Changes, Table};

use std::{fmt, io};

/// Why links are not known.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// A system call on the netlink socket failed.
    #[error("{call} on a rtnetlink socket: {source}")]
    Socket {
        /// Which one.
        call: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The kernel answered the request with an error.
    #[error("the kernel refused a request about links: {source}")]
    Refused {
        /// What it said.
        source: io::Error,
    },
    /// The kernel's answer breaks the rules of netlink(7).
    #[error("what the kernel says about links cannot be read: {0}")]
    Malformed(&'static str),
    /// Links changed during every one of the attempts.
    #[error(
        "network devices came or went during each of {0} attempts to list them; the last \
         list would have been incomplete"
    )]
    Unsettled(u32),
}

/// What kind of device a link is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LinkKind {
    /// A tap: Ethernet frames, what VMs use.
    Tap,
    /// A tun: IP packets. Also a tap on kernels before 4.20, which do not tell
    /// the two apart over netlink.
    Tun,
    /// A macvtap.
    Macvtap,
    /// An ipvtap.
    Ipvtap,
    /// A bridge.
    Bridge,
    /// Another kind, by the kernel's name for it (`IFLA_INFO_KIND`).
    Other(String),
    /// The driver gives no kind: hardware and loopback.
    None,
}

impl LinkKind {
    /// Whether vhost_net can have it as its backend.
    pub fn is_vhost_backend(&self) -> bool {
        matches!(self, Self::Tap | Self::Tun | Self::Macvtap | Self::Ipvtap)
    }
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tap => "tap",
            Self::Tun => "tun",
            Self::Macvtap => "macvtap",
            Self::Ipvtap => "ipvtap",
            Self::Bridge => "bridge",
            Self::Other(kind) => kind,
            Self::None => "none",
        })
    }
}

/// Counters of a device, since it was made (`IFLA_STATS64`).
///
/// For a tap, *tx* is what the host hands to the guest, and `tx_dropped`
/// counts packets for which the guest left no room in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Packets the device received.
    pub rx_packets: u64,
    /// Packets it sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Bad packets received.
    pub rx_errors: u64,
    /// Packets that could not be sent.
    pub tx_errors: u64,
    /// Received packets dropped.
    pub rx_dropped: u64,
    /// Packets dropped instead of sent.
    pub tx_dropped: u64,
}

/// One network device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Interface index, unique in this network namespace.
    pub ifindex: u32,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// Its kind.
    pub kind: LinkKind,
    /// Queues of a tun or tap, where the kernel tells (since 4.20, multiqueue
    /// devices only).
    pub queues: Option<u32>,
    /// Of these, queues that are turned off; they are not in [`Link::queues`].
    pub disabled_queues: Option<u32>,
    /// The bridge, bond or virtual router it belongs to.
    pub master: Option<u32>,
    /// MTU, bytes.
    pub mtu: Option<u32>,
    /// Set up by the administrator (`IFF_UP`).
    pub up: bool,
    /// Ready to carry packets (`IFF_RUNNING`); for a tap: somebody has it open.
    pub running: bool,
    /// Counters; `None` where the kernel sent none.
    pub stats: Option<LinkStats>,
}
