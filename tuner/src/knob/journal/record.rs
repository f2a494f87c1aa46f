//! One record of the journal, and the line it is written as. Pure.

use serde::{Deserialize, Serialize};
use tuner_common::queue::{RX, TX};

use crate::knob::module::Knob;

/// The format that is written and understood.
pub const VERSION: u32 = 1;

/// What the first line's `format` says.
const FORMAT: &str = "vhost-tuner journal";

/// Characters of a line before its JSON: the checksum and a space.
const CHECKSUM: usize = 9;

/// What an entry is about: one knob of one device. A pid, a descriptor or an
/// address that is used again makes another key, for the process that started
/// then is another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot: String,
    /// The process that has the device.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_time: u64,
    /// The device's descriptor there.
    pub fd: u32,
    /// Address of its `struct vhost_net`.
    #[serde(with = "address")]
    pub net: u64,
    /// The knob.
    #[serde(with = "knob_name")]
    pub knob: Knob,
}

/// A line of the journal. Values are those of the kernel or of the module:
/// timeouts in 1.024 µs, 0 for a `tx_batched` and 2 for a `poll_peer` that
/// follow the module's parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// A knob is about to be changed for the first time.
    Touch {
        /// Which.
        #[serde(flatten)]
        key: Key,
        /// What was there.
        original: u32,
        /// What is about to be set.
        wanted: u32,
        /// What we wanted before, in an entry that was written anew.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        previous: Option<u32>,
        /// What the VM is called, for messages.
        vm: String,
        /// Its net device, for messages.
        tap: Option<String>,
    },
    /// It is about to be changed again.
    Want {
        /// Which.
        #[serde(flatten)]
        key: Key,
        /// What is about to be set.
        wanted: u32,
        /// What was there, if that was ours too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        previous: Option<u32>,
    },
    /// It has its original value again.
    Restored {
        /// Which.
        #[serde(flatten)]
        key: Key,
    },
    /// It is not there any more.
    Dropped {
        /// Which.
        #[serde(flatten)]
        key: Key,
    },
}

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
}

/// The first line of a journal of this version, with its newline.
#[must_use]
pub fn header() -> Vec<u8> {
    line(&Header {
        format: FORMAT.to_owned(),
        version: VERSION,
    })
}

/// The version that a first line names; none if it is damaged or none of ours.
/// Every version keeps to this form of its first line.
#[must_use]
pub fn version_of(line: &[u8]) -> Option<u32> {
    let header: Header = serde_json::from_slice(checked(line)?).ok()?;
    (header.format == FORMAT).then_some(header.version)
}

impl Record {
    /// Its line, with the newline.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        line(self)
    }

    /// What a line without its newline says; none if it is damaged.
    #[must_use]
    pub fn decode(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(checked(line)?).ok()
    }
}

fn line(value: &impl Serialize) -> Vec<u8> {
    // Strings, numbers and nothing else: there is always JSON for these.
    let json = serde_json::to_vec(value).unwrap_or_default();
    let mut line = format!("{:08x} ", crc32fast::hash(&json)).into_bytes();
    line.extend_from_slice(&json);
    line.push(b'\n');
    line
}

/// The JSON of a line whose checksum is right.
fn checked(line: &[u8]) -> Option<&[u8]> {
    let (checksum, json) = line.split_at_checked(CHECKSUM)?;
    let right = format!("{:08x} ", crc32fast::hash(json));
    (checksum == right.as_bytes()).then_some(json)
}

/// A knob by the name that it has in the journal and in JSON.
#[must_use]
pub fn name_of(knob: Knob) -> &'static str {
    match knob {
        Knob::Busyloop { direction: RX } => "busyloop_rx",
        Knob::Busyloop { .. } => "busyloop_tx",
        Knob::TxBatched => "tx_batched",
        Knob::PollPeer => "poll_peer",
    }
}

fn knob_of(name: &str) -> Option<Knob> {
    let every = [
        Knob::Busyloop { direction: RX },
        Knob::Busyloop { direction: TX },
        Knob::TxBatched,
        Knob::PollPeer,
    ];
    every.into_iter().find(|knob| name_of(*knob) == name)
}

mod knob_name {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::knob::module::Knob;

    pub(super) fn serialize<S: Serializer>(knob: &Knob, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(super::name_of(*knob))
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Knob, D::Error> {
        let name = String::deserialize(from)?;
        super::knob_of(&name).ok_or_else(|| D::Error::custom("no such knob"))
    }
}

/// Addresses as everybody writes them: in hexadecimal.
mod address {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(address: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{address:#018x}"))
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        let digits = text.strip_prefix("0x");
        digits
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .ok_or_else(|| D::Error::custom("no address"))
    }
}

#[cfg(test)]
pub(in crate::knob) mod tests {
    use super::*;

    /// A key for tests.
    pub(in crate::knob) fn key(pid: u32, knob: Knob) -> Key {
        Key {
            boot: "b0071d".to_owned(),
            pid,
            start_time: 51_234,
            fd: 30,
            net: 0xffff_8881_0000_4000,
            knob,
        }
    }

    pub(in crate::knob) fn touch(key: Key, original: u32, wanted: u32) -> Record {
        Record::Touch {
            key,
            original,
            wanted,
            previous: None,
            vm: "web".to_owned(),
            tap: Some("tap0".to_owned()),
        }
    }

    const RX_TIMEOUT: Knob = Knob::Busyloop { direction: RX };

    #[test]
    fn a_record_is_a_line_that_a_person_can_read() {
        let text = String::from_utf8(touch(key(42, RX_TIMEOUT), 0, 50).encode()).unwrap();
        let (checksum, json) = text.split_once(' ').unwrap();
        assert_eq!(
            json,
            "{\"record\":\"touch\",\"boot\":\"b0071d\",\"pid\":42,\"start_time\":51234,\"fd\":30,\
             \"net\":\"0xffff888100004000\",\"knob\":\"busyloop_rx\",\"original\":0,\"wanted\":50,\
             \"vm\":\"web\",\"tap\":\"tap0\"}\n"
        );
        assert_eq!(checksum.len(), 8);
    }

    #[test]
    fn every_kind_of_record_comes_back_as_it_was() {
        for knob in [
            RX_TIMEOUT,
            Knob::Busyloop { direction: TX },
            Knob::TxBatched,
            Knob::PollPeer,
        ] {
            let key = key(u32::MAX, knob);
            let records = [
                touch(key.clone(), u32::MAX, 0),
                Record::Touch {
                    key: key.clone(),
                    original: 1,
                    wanted: 2,
                    previous: Some(3),
                    vm: "line\nbreak \"quoted\" \u{fc}".to_owned(),
                    tap: None,
                },
                Record::Want {
                    key: key.clone(),
                    wanted: 7,
                    previous: Some(8),
                },
                Record::Want {
                    key: key.clone(),
                    wanted: 7,
                    previous: None,
                },
                Record::Restored { key: key.clone() },
                Record::Dropped { key },
            ];
            for record in records {
                let line = record.encode();
                let (newline, text) = line.split_last().unwrap();
                assert_eq!(*newline, b'\n');
                assert!(!text.contains(&b'\n'), "{record:?}");
                assert_eq!(Record::decode(text).as_ref(), Some(&record));
            }
        }
    }

    #[test]
    fn the_lines_in_the_documents_are_real() {
        let page = include_str!("../../../../docs/undo.md");
        let lines: Vec<_> = page
            .lines()
            .filter_map(|line| line.strip_prefix("    "))
            .filter(|line| line.contains(" {\""))
            .map(str::as_bytes)
            .collect();
        let [first, touch, want, restored] = lines[..] else {
            panic!("{} lines", lines.len());
        };
        assert_eq!(version_of(first), Some(VERSION));
        assert!(matches!(Record::decode(touch), Some(Record::Touch { .. })));
        assert!(matches!(Record::decode(want), Some(Record::Want { .. })));
        let restored = Record::decode(restored);
        assert!(matches!(restored, Some(Record::Restored { .. })));
    }

    #[test]
    fn no_flipped_bit_goes_unnoticed() {
        let mut line = touch(key(42, RX_TIMEOUT), 0, 50).encode();
        line.pop();
        for at in 0..line.len() {
            for bit in 0..8 {
                line[at] ^= 1 << bit;
                assert_eq!(Record::decode(&line), None, "bit {bit} of byte {at}");
                line[at] ^= 1 << bit;
            }
        }
        assert!(Record::decode(&line).is_some());
    }

    #[test]
    fn a_kind_or_a_knob_that_is_not_known_is_no_record() {
        let known = Record::Restored {
            key: key(1, RX_TIMEOUT),
        };
        for (from, to) in [("restored", "renamed"), ("busyloop_rx", "busyloop_xx")] {
            let json = serde_json::to_string(&known).unwrap().replace(from, to);
            let line = format!("{:08x} {json}", crc32fast::hash(json.as_bytes()));
            assert!(checked(line.as_bytes()).is_some());
            assert_eq!(Record::decode(line.as_bytes()), None, "{json}");
        }
    }

    #[test]
    fn the_first_line_names_its_version() {
        let mut line = header();
        assert_eq!(line.pop(), Some(b'\n'));
        assert_eq!(version_of(&line), Some(VERSION));
        assert_eq!(Record::decode(&line), None);
        assert_eq!(version_of(b"12345678 {}"), None);
        assert_eq!(version_of(b""), None);
        let record = touch(key(1, RX_TIMEOUT), 0, 1).encode();
        assert_eq!(version_of(&record[..record.len() - 1]), None);
    }
}
