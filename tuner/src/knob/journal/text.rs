//! A whole journal, as it was found on disk. Pure.

use super::entries::Entries;
use super::record::{Record, VERSION, header, version_of};

/// What a file says, as far as it can be read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parsed {
    /// What its records come to.
    pub(super) entries: Entries,
    /// How many records it holds, with those that are over and done with and
    /// those that are damaged.
    pub(super) records: usize,
    /// Bytes up to the end of the last line that can be read. What follows is
    /// for the next append to cut off.
    pub(super) good: usize,
    /// Whether that line has its newline.
    pub(super) ended: bool,
    /// Whether there is no first line, or a damaged one.
    pub(super) headless: bool,
    /// What is wrong with it, in sentences.
    pub(super) notes: Vec<String>,
}

/// Why a file is not read, nor written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// A later program's.
    Version(u32),
    /// Not a journal.
    Foreign,
}

/// A line and where it ends, its newline included.
struct Line<'a> {
    text: &'a [u8],
    end: usize,
    ended: bool,
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = Line<'_>> {
    let mut end = 0;
    bytes
        .split_inclusive(|byte| *byte == b'\n')
        .map(move |all| {
            end += all.len();
            let text = all.strip_suffix(b"\n");
            Line {
                text: text.unwrap_or(all),
                end,
                ended: text.is_some(),
            }
        })
}

/// Reads a file's bytes. A damaged end is left out, a damaged line in the midst
/// is passed over.
pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, Unreadable> {
    let mut parsed = Parsed {
        ended: true,
        headless: true,
        ..Parsed::default()
    };
    let mut lines = lines(bytes);
    let Some(first) = lines.next() else {
        return Ok(parsed);
    };
    match version_of(first.text) {
        Some(VERSION) => {
            parsed.headless = false;
            parsed.good = first.end;
            parsed.ended = first.ended;
        }
        Some(version) => return Err(Unreadable::Version(version)),
        // A file that was cut off while it was new.
        None if header().starts_with(bytes) => {
            parsed.notes.push("its first line was cut off".to_owned());
            return Ok(parsed);
        }
        None => {}
    }
    let mut damaged = Vec::new();
    for (at, line) in lines.enumerate() {
        // As people and editors count.
        let number = at + 2;
        let Some(record) = Record::decode(line.text) else {
            damaged.push(number);
            continue;
        };
        parsed.skip(&mut damaged);
        parsed.records += 1;
        parsed.good = line.end;
        parsed.ended = line.ended;
        if !parsed.entries.apply(&record) {
            parsed.notes.push(format!(
                "line {number} was passed over: the first record of its knob is lost"
            ));
        }
    }
    if parsed.headless {
        // Whatever can be read shows that this is a journal after all.
        if parsed.records == 0 {
            return Err(Unreadable::Foreign);
        }
        parsed.notes.push("its first line is damaged".to_owned());
    }
    if parsed.good < bytes.len() {
        let rest = bytes.len() - parsed.good;
        parsed.notes.push(format!(
            "its last {rest} byte{} cannot be read and were left out",
            if rest == 1 { "" } else { "s" }
        ));
    }
    Ok(parsed)
}

impl Parsed {
    /// Damaged lines that a good one follows.
    fn skip(&mut self, damaged: &mut Vec<usize>) {
        self.records += damaged.len();
        for number in damaged.drain(..) {
            self.notes
                .push(format!("line {number} is damaged and was passed over"));
        }
    }
}

#[cfg(test)]
mod tests {
    use tuner_common::queue::{RX, TX};

    use super::super::record::tests::{key, touch};
    use super::*;
    use crate::knob::module::Knob;

    /// A journal with every kind of record, many times over.
    fn sample() -> Vec<Record> {
        let mut records = Vec::new();
        for pid in 40..46 {
            let rx = key(pid, Knob::Busyloop { direction: RX });
            let tx = key(pid, Knob::Busyloop { direction: TX });
            let cap = key(pid, Knob::TxBatched);
            records.extend([
                touch(rx.clone(), 0, 50),
                touch(tx.clone(), 10, 60),
                Record::Want {
                    key: rx.clone(),
                    wanted: 100,
                    previous: Some(50),
                },
                touch(cap.clone(), 0, 16),
                Record::Restored { key: rx },
                Record::Want {
                    key: tx,
                    wanted: 70,
                    previous: None,
                },
            ]);
            if pid % 2 == 0 {
                records.push(Record::Dropped { key: cap });
            }
        }
        records
    }

    fn text(records: &[Record]) -> Vec<u8> {
        let mut text = header();
        for record in records {
            text.extend(record.encode());
        }
        text
    }

    fn entries(records: &[Record]) -> Entries {
        let mut entries = Entries::default();
        for record in records {
            entries.apply(record);
        }
        entries
    }

    /// How many records are whole in the first `length` bytes, with or without
    /// the last newline.
    fn whole(records: &[Record], length: usize) -> usize {
        let mut end = header().len();
        let fits = |record: &&Record| {
            end += record.encode().len();
            end - 1 <= length
        };
        records.iter().take_while(fits).count()
    }

    #[test]
    fn cut_off_anywhere_it_says_what_its_whole_records_say() {
        let records = sample();
        let all = text(&records);
        for length in 0..=all.len() {
            let cut = &all[..length];
            let parsed = parse(cut).unwrap();
            let kept = whole(&records, length);
            assert_eq!(parsed.entries, entries(&records[..kept]), "{length}");
            assert_eq!(parsed.records, kept);
            // What is not kept is said.
            assert_eq!(parsed.notes.is_empty(), parsed.good == length, "{length}");
            assert!(parsed.good <= length);
            assert_eq!(
                parsed.ended,
                parsed.good == 0 || cut[parsed.good - 1] == b'\n'
            );
        }
    }

    #[test]
    fn cut_off_anywhere_it_can_be_gone_on_with() {
        let records = sample();
        let all = text(&records);
        let more = touch(key(99, Knob::PollPeer), 2, 0);
        for length in 0..=all.len() {
            let parsed = parse(&all[..length]).unwrap();
            let mut text = all[..parsed.good].to_vec();
            if parsed.headless {
                assert!(text.is_empty());
                text = header();
            } else if !parsed.ended {
                text.push(b'\n');
            }
            text.extend(more.encode());
            let again = parse(&text).unwrap();
            assert_eq!(again.notes, Vec::<String>::new(), "{length}");
            assert!(again.ended && again.good == text.len());
            let mut wanted = entries(&records[..whole(&records, length)]);
            wanted.apply(&more);
            assert_eq!(again.entries, wanted, "{length}");
        }
    }

    #[test]
    fn a_damaged_byte_costs_the_lines_it_touches_and_no_other() {
        let records = sample();
        let all = text(&records);
        // Where each record's line begins.
        let mut starts = vec![header().len()];
        for record in &records {
            starts.push(starts[starts.len() - 1] + record.encode().len());
        }
        for at in 0..all.len() {
            for flip in [0x01, 0x80] {
                let mut bytes = all.clone();
                bytes[at] ^= flip;
                let parsed = parse(&bytes).unwrap();
                assert!(!parsed.notes.is_empty(), "byte {at} went unnoticed");
                // The line with that byte, and the next one where it was the
                // newline between them.
                let line = starts.iter().rposition(|start| *start <= at);
                let is_newline = all[at] == b'\n';
                let mut lost = Vec::from_iter(line);
                if is_newline {
                    lost.push(line.map_or(0, |line| line + 1));
                }
                let mut kept = Entries::default();
                for (number, record) in records.iter().enumerate() {
                    if !lost.contains(&number) {
                        kept.apply(record);
                    }
                }
                assert_eq!(parsed.entries, kept, "byte {at}");
            }
        }
    }

    #[test]
    fn what_is_damaged_is_said_by_its_line() {
        let records = sample();
        let mut bytes = text(&records);
        let second = header().len() + records[0].encode().len() + 20;
        bytes[second] ^= 1;
        let parsed = parse(&bytes).unwrap();
        assert_eq!(
            parsed.notes,
            [
                "line 3 is damaged and was passed over",
                "line 7 was passed over: the first record of its knob is lost",
            ]
        );
        assert_eq!(parsed.records, records.len());
        let end = bytes.len() - 3;
        let parsed = parse(&bytes[..end]).unwrap();
        let last = parsed.notes.last().unwrap();
        assert!(last.contains("cannot be read and were left out"), "{last}");
    }

    #[test]
    fn zeros_at_the_end_are_a_damaged_end() {
        let records = sample();
        let mut bytes = text(&records);
        let length = bytes.len();
        bytes.resize(length + 4096, 0);
        let parsed = parse(&bytes).unwrap();
        assert_eq!(parsed.entries, entries(&records));
        assert_eq!(parsed.good, length);
        assert_eq!(parsed.notes.len(), 1);
    }

    #[test]
    fn a_later_version_is_not_read_however_much_is_understood() {
        let json = r#"{"format":"vhost-tuner journal","version":2,"more":true}"#;
        let mut bytes = format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes())).into_bytes();
        bytes.extend(sample()[0].encode());
        assert_eq!(parse(&bytes), Err(Unreadable::Version(2)));
    }

    #[test]
    fn another_file_is_not_taken_for_a_journal() {
        for text in ["\n", "[options]\nset = 1\n", "vhost-tuner", "\0\0\0\0"] {
            assert_eq!(parse(text.as_bytes()), Err(Unreadable::Foreign), "{text:?}");
        }
    }
}
