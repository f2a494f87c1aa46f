//! From the payload of one `RTM_NEWLINK` message to a [`Link`].

use netlink_packet_core::{NLA_HEADER_SIZE, NlaBuffer};

use super::{Link, LinkKind, LinkStats};

/// `struct ifinfomsg`: family, pad, type, index, flags, change mask.
const HEADER: usize = 16;

// rtnetlink(7), linux/if_link.h.
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_STATS64: u16 = 23;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_TUN_TYPE: u16 = 3;
const IFLA_TUN_NUM_QUEUES: u16 = 8;
const IFLA_TUN_NUM_DISABLED_QUEUES: u16 = 9;

/// `struct if_stats_msg`: family, padding, index, filter mask.
const STATS_HEADER: usize = 12;
const IFLA_STATS_LINK_64: u16 = 1;

const IFF_UP: u32 = 0x1;
const IFF_RUNNING: u32 = 0x40;
/// Value of `IFLA_TUN_TYPE` for a tap.
const IFF_TAP: u8 = 2;

/// Index of the link that an `RTM_NEWLINK` or `RTM_DELLINK` message is about.
/// `None` when it is about a link's part in something else: a bridge tells with
/// the same messages that a port came or went.
pub(super) fn index(payload: &[u8]) -> Option<u32> {
    let header = payload.get(..HEADER)?;
    (i32::from(header[0]) == libc::AF_UNSPEC).then_some(u32_at(header, 4)?)
}

/// Index and counters from the payload of an `RTM_NEWSTATS` message.
pub(super) fn counters(payload: &[u8]) -> Option<(u32, LinkStats)> {
    let ifindex = u32_at(payload, 4)?;
    let mut found = None;
    each(payload.get(STATS_HEADER..)?, |kind, value| {
        if kind == IFLA_STATS_LINK_64 {
            found = stats(value);
        }
    });
    Some((ifindex, found?))
}

/// Parses the payload of an `RTM_NEWLINK` message; `None` when it is too short
/// to name a device, or as for [`index`].
pub(super) fn link(payload: &[u8]) -> Option<Link> {
    let header = payload.get(..HEADER)?;
    let mut link = Link {
        ifindex: index(payload)?,
        name: String::new(),
        kind: LinkKind::None,
        queues: None,
        disabled_queues: None,
        master: None,
        mtu: None,
        up: u32_at(header, 8)? & IFF_UP != 0,
        running: u32_at(header, 8)? & IFF_RUNNING != 0,
        stats: None,
    };
    each(payload.get(HEADER..)?, |kind, value| match kind {
        IFLA_IFNAME => link.name = text(value),
        IFLA_MTU => link.mtu = u32_at(value, 0),
        IFLA_MASTER => link.master = u32_at(value, 0).filter(|&index| index != 0),
        IFLA_LINKINFO => info(&mut link, value),
        IFLA_STATS64 => link.stats = stats(value),
        _ => {}
    });
    (!link.name.is_empty()).then_some(link)
}

/// Reads `IFLA_LINKINFO`. The kernel sends the kind before the data, but the
/// meaning of the data hangs on the kind, so it is looked up first.
fn info(link: &mut Link, value: &[u8]) {
    let mut kind = String::new();
    let mut data: &[u8] = &[];
    each(value, |inner, value| match inner {
        IFLA_INFO_KIND => kind = text(value),
        IFLA_INFO_DATA => data = value,
        _ => {}
    });
    link.kind = match kind.as_str() {
        "tun" => LinkKind::Tun,
        "macvtap" => LinkKind::Macvtap,
        "ipvtap" => LinkKind::Ipvtap,
        "bridge" => LinkKind::Bridge,
        "" => LinkKind::None,
        _ => LinkKind::Other(kind),
    };
    if link.kind == LinkKind::Tun {
        each(data, |inner, value| match inner {
            IFLA_TUN_TYPE if value.first() == Some(&IFF_TAP) => link.kind = LinkKind::Tap,
            IFLA_TUN_NUM_QUEUES => link.queues = u32_at(value, 0),
            IFLA_TUN_NUM_DISABLED_QUEUES => link.disabled_queues = u32_at(value, 0),
            _ => {}
        });
    }
}

/// The leading counters of `struct rtnl_link_stats64`, which has grown at its
/// end and will again.
fn stats(value: &[u8]) -> Option<LinkStats> {
    let counter = |at: usize| {
        let bytes = value.get(at * 8..at * 8 + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    Some(LinkStats {
        rx_packets: counter(0)?,
        tx_packets: counter(1)?,
        rx_bytes: counter(2)?,
        tx_bytes: counter(3)?,
        rx_errors: counter(4)?,
        tx_errors: counter(5)?,
        rx_dropped: counter(6)?,
        tx_dropped: counter(7)?,
    })
}

/// Calls `with` for every whole attribute and stops at the first cut-off one.
fn each<'a>(bytes: &'a [u8], mut with: impl FnMut(u16, &'a [u8])) {
    let mut rest = bytes;
    while let Ok(attribute) = NlaBuffer::new_checked(rest) {
        let length = usize::from(attribute.length());
        let Some(value) = rest.get(NLA_HEADER_SIZE..length) else {
            return;
        };
        with(attribute.kind(), value);
        // Attributes begin at multiples of four.
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// A NUL-ended string; bytes that are not UTF-8 become U+FFFD.
fn text(value: &[u8]) -> String {
    let end = value.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&value[..end.unwrap_or(value.len())]).into_owned()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Payload of a message about a link that has nothing but a name.
    pub(in super::super) fn payload(family: u8, ifindex: u32, name: &str) -> Vec<u8> {
        let mut bytes = vec![family, 0, 0, 0];
        bytes.extend(ifindex.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(u16::try_from(name.len() + 5).unwrap().to_ne_bytes());
        bytes.extend(IFLA_IFNAME.to_ne_bytes());
        bytes.extend(name.as_bytes());
        bytes.push(0);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// `RTM_NEWLINK` payload for a multiqueue tap that is up, has one queue
    /// open and belongs to a bridge; captured on Linux 6.18 without the
    /// attributes nobody here reads.
    fn tap7() -> Vec<u8> {
        let digits: String = include_str!("tap7.hex").split_whitespace().collect();
        (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
            .collect()
    }

    #[test]
    fn a_captured_tap_is_read() {
        assert_eq!(
            link(&tap7()).unwrap(),
            Link {
                ifindex: 3,
                name: "tap7".into(),
                kind: LinkKind::Tap,
                queues: Some(1),
                disabled_queues: Some(0),
                master: Some(2),
                mtu: Some(1500),
                up: true,
                running: true,
                stats: Some(LinkStats::default()),
            }
        );
    }

    #[test]
    fn any_prefix_of_a_message_is_read_as_far_as_it_goes() {
        let whole = tap7();
        for end in 0..whole.len() {
            let cut = link(&whole[..end]);
            assert_eq!(cut.is_some(), end >= 25, "{end}");
        }
    }

    #[test]
    fn counters_are_read_by_place_and_may_be_followed_by_later_ones() {
        let mut message = vec![0; HEADER];
        let mut put = |kind: u16, value: &[u8]| {
            message.extend(u16::try_from(value.len() + 4).unwrap().to_ne_bytes());
            message.extend(kind.to_ne_bytes());
            message.extend(value);
            message.resize(message.len().next_multiple_of(4), 0);
        };
        put(IFLA_IFNAME, b"eth0\0");
        put(999, &[1, 2, 3]);
        let counters: Vec<u8> = (1..=40u64).flat_map(u64::to_ne_bytes).collect();
        put(IFLA_STATS64, &counters);
        let stats = link(&message).unwrap().stats.unwrap();
        assert_eq!((stats.rx_packets, stats.tx_packets), (1, 2));
        assert_eq!((stats.rx_dropped, stats.tx_dropped), (7, 8));
        assert_eq!(link(&message).unwrap().kind, LinkKind::None);
    }

    #[test]
    fn what_a_bridge_tells_of_its_ports_is_no_link() {
        let port = payload(libc::AF_BRIDGE as u8, 5, "tap5");
        assert_eq!(link(&port), None);
        assert_eq!(index(&port), None);
        assert_eq!(index(&payload(0, 5, "tap5")), Some(5));
    }

    #[test]
    fn counters_of_a_link_are_read_from_an_answer_of_their_own() {
        let mut message = vec![0; STATS_HEADER];
        message[4] = 9;
        message.extend((4 + 24 * 8u16).to_ne_bytes());
        message.extend(IFLA_STATS_LINK_64.to_ne_bytes());
        message.extend((1..=24u64).flat_map(u64::to_ne_bytes));
        let (ifindex, stats) = counters(&message).unwrap();
        assert_eq!((ifindex, stats.tx_dropped), (9, 8));
        assert_eq!(counters(&message[..STATS_HEADER + 40]), None);
        assert_eq!(counters(&message[..3]), None);
    }

    #[test]
    fn an_attribute_of_no_length_does_not_hang() {
        let mut message = tap7();
        message.truncate(HEADER);
        message.extend([0; 64]);
        assert_eq!(link(&message), None);
    }
}
