//! What the kernel module understands: two ioctls on a descriptor of
//! `/dev/vhost-net`. `module/vnt_uapi.h` in Rust; the tests below hold them
//! together.

use crate::queue::{flush, outcome};

/// Version of both structures.
pub const VERSION: u32 = 1;
/// Most packets that are handed over together: the kernel's own constant.
pub const TX_BATCHED_MAX: u32 = 64;

/// Bits of [`Knobs::set`]: which fields are taken over, all of them or none.
pub mod set {
    /// `busyloop[0]`.
    pub const BUSYLOOP_RX: u32 = 1 << 0;
    /// `busyloop[1]`.
    pub const BUSYLOOP_TX: u32 = 1 << 1;
    /// `tx_batched`.
    pub const TX_BATCHED: u32 = 1 << 2;
    /// `poll_peer`.
    pub const POLL_PEER: u32 = 1 << 3;
    /// Every bit that means something.
    pub const ALL: u32 = 0xf;
}

/// [`Knobs::tx_batched`]: what the module's parameter says.
pub const FOLLOW_TX_BATCHED: u32 = 0;
/// [`Knobs::poll_peer`]: what the module's parameter says.
pub const FOLLOW_POLL_PEER: u32 = 2;

/// What can be turned on one device (`struct vnt_knobs`). On return every field
/// holds what is set now.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Knobs {
    /// Bytes in this structure, for the caller to set.
    pub size: u32,
    /// [`VERSION`], for the caller to set.
    pub version: u32,
    /// Bits of [`set`]; 0 only reads.
    pub set: u32,
    /// Timeout of each ring, RX and TX, in 1.024 µs.
    pub busyloop: [u32; 2],
    /// The device's own cap, 1 to [`TX_BATCHED_MAX`], or [`FOLLOW_TX_BATCHED`].
    pub tx_batched: u32,
    /// The device's own choice, 0 or 1, or [`FOLLOW_POLL_PEER`].
    pub poll_peer: u32,
    /// The cap in effect; written by the kernel.
    pub tx_batched_now: u32,
    /// The choice in effect; written by the kernel.
    pub poll_peer_now: u32,
    /// How many devices the module keeps state for; written by the kernel.
    pub states: u32,
}

impl Knobs {
    /// A request that changes nothing until bits and fields are filled in.
    #[must_use]
    pub const fn request() -> Self {
        Self {
            size: size_of::<Self>() as u32,
            version: VERSION,
            set: 0,
            busyloop: [0; 2],
            tx_batched: FOLLOW_TX_BATCHED,
            poll_peer: FOLLOW_POLL_PEER,
            tx_batched_now: 0,
            poll_peer_now: 0,
            states: 0,
        }
    }
}

/// What was counted for one ring since it has state (`struct vnt_counters`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes in this structure, for the caller to set.
    pub size: u32,
    /// [`VERSION`], for the caller to set.
    pub version: u32,
    /// [`RX`](crate::queue::RX) or [`TX`](crate::queue::TX), for the caller to
    /// set.
    pub index: u32,
    /// Must be 0.
    pub zero: u32,
    /// Runs of the handler that have ended.
    pub runs: u64,
    /// Ring entries that these runs took.
    pub packets: u64,
    /// Hand-overs of used buffers.
    pub batches: u64,
    /// Ring entries in these.
    pub batch_packets: u64,
    /// Hand-overs by cause, numbered as [`flush`].
    pub flushes: [u64; flush::COUNT],
    /// Busy polls by how they ended, numbered as [`outcome`].
    pub polls: [u64; outcome::COUNT],
    /// Time in these, in nanoseconds of `CLOCK_MONOTONIC`.
    pub spin_ns: [u64; outcome::COUNT],
}

impl Counters {
    /// A request for one ring.
    #[must_use]
    pub fn request(index: u32) -> Self {
        Self {
            size: size_of::<Self>() as u32,
            version: VERSION,
            index,
            ..Self::default()
        }
    }
}

/// `_IOWR('\xAF', number, T)` as all architectures but three spell it; vhost
/// has none of these (alpha, mips, sparc).
const fn iowr<T>(number: u64) -> u64 {
    const READ_WRITE: u64 = 3;
    const VHOST: u64 = 0xAF;
    READ_WRITE << 30 | (size_of::<T>() as u64) << 16 | VHOST << 8 | number
}

/// Reads and sets [`Knobs`].
pub const VNT_KNOBS: u64 = iowr::<Knobs>(0xE0);
/// Reads [`Counters`].
pub const VNT_COUNTERS: u64 = iowr::<Counters>(0xE1);

#[cfg(test)]
mod tests {
    extern crate std;

    use std::{string::String, vec::Vec};

    use super::*;

    /// What the kernel side is built from.
    const HEADER: &str = include_str!("../../module/vnt_uapi.h");

    /// What a `#define` stands for.
    fn define(name: &str) -> &'static str {
        HEADER
            .lines()
            .filter_map(|line| line.strip_prefix("#define ")?.split_once(' '))
            .find_map(|(key, value)| (key == name).then_some(value.trim()))
            .unwrap_or_else(|| panic!("{name} is not in the header"))
    }

    /// The same as a number, however it is spelled.
    fn number(name: &str) -> u32 {
        let text = define(name).trim_end_matches('U');
        let number = match text.strip_prefix("0x") {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => text.parse(),
        };
        number.unwrap_or_else(|why| panic!("{name} is {text}: {why}"))
    }

    /// Lines between `opening` and the brace that ends it, without comments.
    fn body(opening: &str) -> Vec<&'static str> {
        let (_, rest) = HEADER.split_once(opening).expect(opening);
        let (body, _) = rest.split_once("\n}").expect(opening);
        body.lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with("/*"))
            .collect()
    }

    /// Names of an enum, in order, without their prefix.
    fn names(of: &str) -> Vec<String> {
        let prefix = std::format!("VNT_{}_", of.to_uppercase());
        body(&std::format!("enum vnt_{of} {{"))
            .iter()
            .map(|line| line.trim_end_matches(',').replace(&prefix, ""))
            .collect()
    }

    #[test]
    fn sizes_are_those_of_the_header() {
        assert_eq!(size_of::<Knobs>(), 40);
        assert_eq!(size_of::<Counters>(), 16 + 8 * (4 + 4 + 6 + 6));
    }

    #[test]
    fn numbers_are_those_of_the_header() {
        assert_eq!(define("VNT_KNOBS"), "_IOWR(0xAF, 0xE0, struct vnt_knobs)");
        assert_eq!(VNT_KNOBS, 0xC028_AFE0);
        assert_eq!(
            define("VNT_COUNTERS"),
            "_IOWR(0xAF, 0xE1, struct vnt_counters)"
        );
        assert_eq!(VNT_COUNTERS, 0xC0B0_AFE1);
    }

    #[test]
    fn constants_are_those_of_the_header() {
        for (name, value) in [
            ("VNT_VERSION", VERSION),
            ("VNT_RX", crate::queue::RX),
            ("VNT_TX", crate::queue::TX),
            ("VNT_TX_BATCHED_MAX", TX_BATCHED_MAX),
            ("VNT_SET_BUSYLOOP_RX", set::BUSYLOOP_RX),
            ("VNT_SET_BUSYLOOP_TX", set::BUSYLOOP_TX),
            ("VNT_SET_TX_BATCHED", set::TX_BATCHED),
            ("VNT_SET_POLL_PEER", set::POLL_PEER),
            ("VNT_SET_ALL", set::ALL),
            ("VNT_FOLLOW_TX_BATCHED", FOLLOW_TX_BATCHED),
            ("VNT_FOLLOW_POLL_PEER", FOLLOW_POLL_PEER),
        ] {
            assert_eq!(number(name), value, "{name}");
        }
    }

    #[test]
    fn fields_lie_as_in_the_header() {
        assert_eq!(
            body("struct vnt_knobs {"),
            [
                "__u32 size;",
                "__u32 version;",
                "__u32 set;",
                "__u32 busyloop[VNT_RINGS];",
                "__u32 tx_batched;",
                "__u32 poll_peer;",
                "__u32 tx_batched_now;",
                "__u32 poll_peer_now;",
                "__u32 states;",
            ]
        );
        assert_eq!(
            body("struct vnt_counters {"),
            [
                "__u32 size;",
                "__u32 version;",
                "__u32 index;",
                "__u32 zero;",
                "__u64 runs;",
                "__u64 packets;",
                "__u64 batches;",
                "__u64 batch_packets;",
                "__u64 flushes[VNT_FLUSH_COUNT];",
                "__u64 polls[VNT_POLL_COUNT];",
                "__u64 spin_ns[VNT_POLL_COUNT];",
            ]
        );
    }

    /// So that the module's counters can be held against those of the probes
    /// index by index.
    #[test]
    fn outcomes_and_causes_are_numbered_as_the_probes_number_them() {
        let polls = names("poll");
        for (name, number) in [
            ("OWN_HIT", outcome::OWN_HIT as usize),
            ("PEER_HIT", outcome::PEER_HIT as usize),
            ("MISS", outcome::MISS as usize),
            ("INTERRUPTED", outcome::INTERRUPTED as usize),
            ("SKIPPED", outcome::SKIPPED as usize),
            ("RESCHED", outcome::RESCHED as usize),
            ("COUNT", outcome::COUNT),
        ] {
            assert_eq!(polls[number], name);
        }
        let flushes = names("flush");
        for (name, number) in [
            ("CAP", flush::CAP as usize),
            ("DRY", flush::DRY as usize),
            ("WEIGHT", flush::WEIGHT as usize),
            ("SINGLE", flush::SINGLE as usize),
            ("COUNT", flush::COUNT),
        ] {
            assert_eq!(flushes[number], name);
        }
    }
}
