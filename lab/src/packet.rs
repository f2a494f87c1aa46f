//! The frames of the lab: Ethernet, IPv4, UDP and a payload that says who
//! sent it, in which order, and whether it came through whole.

use std::net::Ipv4Addr;

/// Smallest UDP payload in bytes: the lab's own header.
pub const MIN_PAYLOAD: usize = 48;
/// Bytes of Ethernet, IPv4 and UDP header before the payload.
pub const HEADERS: usize = 14 + 20 + 8;
/// Bytes of virtio-net header before a frame (with VIRTIO_F_VERSION_1).
pub const VNET_HEADER: usize = 12;
/// Queue q's guest socket has port `GUEST_PORT + q`.
pub const GUEST_PORT: u16 = 9100;
/// Queue q's host socket has port `HOST_PORT + q`.
pub const HOST_PORT: u16 = 9200;
/// No device has more queues than this.
pub const MAX_QUEUES: u16 = 64;

const MAGIC: u32 = u32::from_le_bytes(*b"VLAB");
const CHECKSUM_AT: usize = 40;

/// Which way a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Guest to host: the guest's transmit ring.
    Tx,
    /// Host to guest: the guest's receive ring.
    Rx,
}

/// What a packet is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Ordinary traffic.
    Data,
    /// Teaches the tap which queue a flow belongs to; nobody answers it.
    Primer,
}

/// The lab's header in front of every payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Queue the flow belongs to.
    pub queue: u16,
    /// Direction of the packet.
    pub direction: Direction,
    /// What it is for.
    pub kind: Kind,
    /// Running number in its flow and direction, from 0.
    pub sequence: u64,
    /// In an echo: the sequence number of the packet it answers.
    pub answers: u64,
    /// When it left, in ns of the monotonic clock; an echo keeps it.
    pub stamp_ns: u64,
}

/// What a payload turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// One of ours, undamaged.
    Ours(Header),
    /// Sent to us, but not as we send.
    Damaged,
    /// None of our traffic.
    Foreign,
}

/// Writes a payload of `len` bytes (at least [`MIN_PAYLOAD`]) to `into`,
/// replacing what was there.
pub fn write_payload(header: &Header, len: usize, into: &mut Vec<u8>) {
    into.clear();
    append_payload(header, len, into);
}

fn append_payload(header: &Header, len: usize, into: &mut Vec<u8>) {
    let len = len.max(MIN_PAYLOAD);
    let start = into.len();
    into.extend_from_slice(&MAGIC.to_le_bytes());
    into.extend_from_slice(&header.queue.to_le_bytes());
    into.push(match header.direction {
        Direction::Tx => 0,
        Direction::Rx => 1,
    });
    into.push(match header.kind {
        Kind::Data => 0,
        Kind::Primer => 1,
    });
    into.extend_from_slice(&header.sequence.to_le_bytes());
    into.extend_from_slice(&header.answers.to_le_bytes());
    into.extend_from_slice(&header.stamp_ns.to_le_bytes());
    into.extend_from_slice(&(len as u64).to_le_bytes());
    into.extend_from_slice(&[0; 8]);
    // Contents differ from packet to packet, so that a stale buffer cannot
    // pass for a fresh one.
    let mut word = header.sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(header.queue);
    let mut left = len - MIN_PAYLOAD;
    while left > 0 {
        let bytes = word.to_le_bytes();
        let take = left.min(8);
        into.extend_from_slice(&bytes[..take]);
        word = word.wrapping_add(0x0101_0101_0101_0101);
        left -= take;
    }
    let sum = checksum(&into[start..]);
    into[start + CHECKSUM_AT..start + CHECKSUM_AT + 8].copy_from_slice(&sum.to_le_bytes());
}

/// Reads a payload that came from one of our sockets.
#[must_use]
pub fn parse_payload(payload: &[u8]) -> Parsed {
    parse_header(payload).map_or(Parsed::Damaged, Parsed::Ours)
}

fn parse_header(payload: &[u8]) -> Option<Header> {
    if payload.len() < MIN_PAYLOAD
        || word32(payload, 0)? != MAGIC
        || word64(payload, 32)? != payload.len() as u64
        || word64(payload, CHECKSUM_AT)? != checksum(payload)
    {
        return None;
    }
    Some(Header {
        queue: word16(payload, 4)?,
        direction: match payload[6] {
            0 => Direction::Tx,
            1 => Direction::Rx,
            _ => return None,
        },
        kind: match payload[7] {
            0 => Kind::Data,
            1 => Kind::Primer,
            _ => return None,
        },
        sequence: word64(payload, 8)?,
        answers: word64(payload, 16)?,
        stamp_ns: word64(payload, 24)?,
    })
}

fn word16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn word64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Sums everything but the place of the sum itself. Every step is a
/// bijection of the state, so one changed word always changes the sum.
fn checksum(payload: &[u8]) -> u64 {
    let mix = |sum: u64, word: u64| {
        (sum ^ word)
            .wrapping_mul(0xff51_afd7_ed55_8ccd)
            .rotate_left(31)
    };
    let mut sum = payload.len() as u64;
    let (words, rest) = payload.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        if i != CHECKSUM_AT / 8 {
            sum = mix(sum, u64::from_le_bytes(*word));
        }
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(sum, u64::from_le_bytes(last))
}

/// Both ends of one flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The guest's MAC address.
    pub guest_mac: [u8; 6],
    /// The host's MAC address.
    pub host_mac: [u8; 6],
    /// The guest's address.
    pub guest_ip: Ipv4Addr,
    /// The host's address on the tap.
    pub host_ip: Ipv4Addr,
    /// Queue, which gives the ports.
    pub queue: u16,
}

/// Builds a whole frame from guest to host in `into`, replacing what was
/// there.
pub fn write_frame(ends: &Ends, header: &Header, payload_len: usize, into: &mut Vec<u8>) {
    let payload_len = payload_len.max(MIN_PAYLOAD);
    into.clear();
    into.extend_from_slice(&ends.host_mac);
    into.extend_from_slice(&ends.guest_mac);
    into.extend_from_slice(&[0x08, 0x00]);
    let mut ip = [0; 20];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&((20 + 8 + payload_len) as u16).to_be_bytes());
    ip[6] = 0x40; // don't fragment
    ip[8] = 64;
    ip[9] = 17;
    ip[12..16].copy_from_slice(&ends.guest_ip.octets());
    ip[16..20].copy_from_slice(&ends.host_ip.octets());
    let sum = ip_checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    into.extend_from_slice(&ip);
    into.extend_from_slice(&(GUEST_PORT + ends.queue).to_be_bytes());
    into.extend_from_slice(&(HOST_PORT + ends.queue).to_be_bytes());
    into.extend_from_slice(&((8 + payload_len) as u16).to_be_bytes());
    // No UDP checksum, as IPv4 allows: the payload has a better one.
    into.extend_from_slice(&[0, 0]);
    append_payload(header, payload_len, into);
}

/// Reads a whole frame that reached the guest.
#[must_use]
pub fn parse_frame(frame: &[u8]) -> Parsed {
    let Some((headers, payload)) = frame.split_at_checked(HEADERS) else {
        return Parsed::Foreign;
    };
    let port = |at: usize| u16::from_be_bytes([headers[at], headers[at + 1]]);
    let ours = headers[12..14] == [0x08, 0x00]
        && headers[14] == 0x45
        && headers[23] == 17
        && (HOST_PORT..HOST_PORT + MAX_QUEUES).contains(&port(34))
        && (GUEST_PORT..GUEST_PORT + MAX_QUEUES).contains(&port(36));
    if !ours {
        return Parsed::Foreign;
    }
    // Short frames may carry Ethernet padding behind the payload.
    let Some(len) = usize::from(port(38)).checked_sub(8) else {
        return Parsed::Damaged;
    };
    match payload.get(..len) {
        Some(payload) if ip_checksum(&headers[14..34]) == 0 => parse_payload(payload),
        _ => Parsed::Damaged,
    }
}

/// The Internet checksum; over a header that contains its own, it is 0.
fn ip_checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
#[path = "packet_tests.rs"]
mod tests;
