//! What the records of a journal come to. Pure.

use std::collections::BTreeMap;

use super::record::{Key, Record};

/// A knob that we have turned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which.
    pub key: Key,
    /// What was there before our first touch.
    pub original: u32,
    /// What we wanted last.
    pub wanted: u32,
    /// What was there then, if that was ours too: a crash may have fallen
    /// between the record and the change.
    pub previous: Option<u32>,
    /// What the VM was called.
    pub vm: String,
    /// Its net device.
    pub tap: Option<String>,
}

impl Entry {
    /// True for a value that we may have set.
    #[must_use]
    pub fn is_ours(&self, value: u32) -> bool {
        value == self.wanted || Some(value) == self.previous
    }

    fn record(&self) -> Record {
        Record::Touch {
            key: self.key.clone(),
            original: self.original,
            wanted: self.wanted,
            previous: self.previous,
            vm: self.vm.clone(),
            tap: self.tap.clone(),
        }
    }
}

/// Knobs that we have turned and not restored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    by_key: BTreeMap<Key, Entry>,
}

impl Entries {
    /// Takes a record into account. False for one about a knob whose first
    /// record is not there.
    pub fn apply(&mut self, record: &Record) -> bool {
        match record {
            Record::Touch {
                key,
                original,
                wanted,
                previous,
                vm,
                tap,
            } => {
                let entry = Entry {
                    key: key.clone(),
                    original: *original,
                    wanted: *wanted,
                    previous: *previous,
                    vm: vm.clone(),
                    tap: tap.clone(),
                };
                self.by_key.insert(key.clone(), entry);
                true
            }
            Record::Want {
                key,
                wanted,
                previous,
            } => match self.by_key.get_mut(key) {
                Some(entry) => {
                    entry.wanted = *wanted;
                    entry.previous = *previous;
                    true
                }
                None => false,
            },
            // That something ended is as good as nothing where its beginning is
            // lost.
            Record::Restored { key } | Record::Dropped { key } => {
                self.by_key.remove(key);
                true
            }
        }
    }

    /// The entry of a knob.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&Entry> {
        self.by_key.get(key)
    }

    /// All entries, those of a device together.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.by_key.values()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// True without any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Keeps those of which something is true.
    pub fn retain(&mut self, mut keep: impl FnMut(&Entry) -> bool) {
        self.by_key.retain(|_, entry| keep(entry));
    }

    /// One record for each entry.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        self.iter().map(Entry::record).collect()
    }

    /// What has to be on disk before a knob goes from `found` to `wanted`; none
    /// if the journal says all that is needed already.
    #[must_use]
    pub fn before(
        &self,
        key: &Key,
        found: u32,
        wanted: u32,
        vm: &str,
        tap: Option<&str>,
    ) -> Option<Record> {
        match self.get(key) {
            None if found == wanted => None,
            None => Some(Record::Touch {
                key: key.clone(),
                original: found,
                wanted,
                previous: None,
                vm: vm.to_owned(),
                tap: tap.map(str::to_owned),
            }),
            Some(entry) if found == wanted && entry.is_ours(found) => None,
            Some(entry) => Some(Record::Want {
                key: key.clone(),
                wanted,
                // A value of somebody else's never becomes one of ours by a
                // change that may not come.
                previous: entry.is_ours(found).then_some(found),
            }),
        }
    }

    /// What takes a record back whose change did not come; `earlier` is the
    /// entry as it was before.
    #[must_use]
    pub fn take_back(&self, key: &Key, earlier: Option<&Entry>) -> Option<Record> {
        let now = self.get(key);
        if now == earlier {
            return None;
        }
        Some(match earlier {
            None => Record::Restored { key: key.clone() },
            Some(entry) if now.is_none() => entry.record(),
            Some(entry) => Record::Want {
                key: key.clone(),
                wanted: entry.wanted,
                previous: entry.previous,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{key, touch};
    use super::*;
    use crate::knob::module::Knob;

    fn entries(records: &[Record]) -> Entries {
        let mut entries = Entries::default();
        for record in records {
            assert!(entries.apply(record));
        }
        entries
    }

    fn cap() -> Key {
        key(42, Knob::TxBatched)
    }

    fn before(entries: &Entries, found: u32, wanted: u32) -> Option<Record> {
        entries.before(&cap(), found, wanted, "web", Some("tap0"))
    }

    #[test]
    fn the_original_is_what_was_there_before_the_first_touch() {
        let mut entries = Entries::default();
        for (found, wanted) in [(0, 8), (8, 16), (16, 4), (99, 5)] {
            let record = before(&entries, found, wanted).unwrap();
            assert!(entries.apply(&record));
            let entry = entries.get(&cap()).unwrap();
            assert_eq!((entry.original, entry.wanted), (0, wanted));
            assert!(entry.is_ours(wanted));
        }
        assert!(entries.apply(&Record::Restored { key: cap() }));
        assert!(entries.is_empty());
        assert_eq!(before(&entries, 7, 9), Some(touch(cap(), 7, 9)));
    }

    #[test]
    fn a_crash_before_a_change_leaves_what_was_there_ours() {
        let mut entries = entries(&[touch(cap(), 0, 8)]);
        for wanted in [16, 4] {
            // Each time the change does not come: 8 stays.
            let record = before(&entries, 8, wanted).unwrap();
            assert!(entries.apply(&record));
            let entry = entries.get(&cap()).unwrap();
            assert!(entry.is_ours(8) && entry.is_ours(wanted));
        }
    }

    #[test]
    fn what_somebody_else_set_is_not_ours_until_we_set_it() {
        let mut entries = entries(&[touch(cap(), 0, 8)]);
        let record = before(&entries, 33, 16).unwrap();
        assert!(entries.apply(&record));
        let entry = entries.get(&cap()).unwrap();
        assert!(!entry.is_ours(33) && entry.is_ours(16));
        assert_eq!(entry.original, 0);
        // To ask for what somebody else has set is to want it.
        let record = before(&entries, 33, 33).unwrap();
        assert!(entries.apply(&record));
        assert!(entries.get(&cap()).unwrap().is_ours(33));
    }

    #[test]
    fn nothing_is_written_where_nothing_changes() {
        assert_eq!(before(&Entries::default(), 8, 8), None);
        let known = entries(&[touch(cap(), 0, 8)]);
        assert_eq!(before(&known, 8, 8), None);
        let after_a_crash = entries(&[
            touch(cap(), 0, 8),
            Record::Want {
                key: cap(),
                wanted: 16,
                previous: Some(8),
            },
        ]);
        assert_eq!(before(&after_a_crash, 8, 8), None);
    }

    #[test]
    fn a_change_that_did_not_come_leaves_no_trace() {
        let empty = Entries::default();
        let known = entries(&[touch(cap(), 0, 8)]);
        for earlier in [empty, known] {
            let mut entries = earlier.clone();
            let record = before(&entries, 8, 16).unwrap();
            assert!(entries.apply(&record));
            assert_ne!(entries, earlier);
            let back = entries.take_back(&cap(), earlier.get(&cap())).unwrap();
            assert!(entries.apply(&back));
            assert_eq!(entries, earlier);
            assert_eq!(entries.take_back(&cap(), earlier.get(&cap())), None);
        }
    }

    #[test]
    fn an_entry_that_went_comes_back_whole() {
        let earlier = entries(&[touch(cap(), 0, 8)]);
        let mut entries = Entries::default();
        let back = entries.take_back(&cap(), earlier.get(&cap())).unwrap();
        assert!(entries.apply(&back));
        assert_eq!(entries, earlier);
    }

    #[test]
    fn a_want_without_its_touch_counts_for_nothing() {
        let mut entries = Entries::default();
        let want = Record::Want {
            key: cap(),
            wanted: 8,
            previous: None,
        };
        assert!(!entries.apply(&want));
        assert!(entries.is_empty());
    }

    #[test]
    fn one_record_an_entry_says_it_all() {
        let known = entries(&[
            touch(cap(), 0, 8),
            Record::Want {
                key: cap(),
                wanted: 16,
                previous: Some(8),
            },
            touch(key(43, Knob::PollPeer), 2, 1),
            touch(key(44, Knob::PollPeer), 2, 1),
            Record::Dropped {
                key: key(44, Knob::PollPeer),
            },
        ]);
        assert_eq!(known.records().len(), 2);
        assert_eq!(entries(&known.records()), known);
    }
}
