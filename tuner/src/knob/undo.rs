//! Puts back what knobs had before we turned them.

use tuner_common::module::Knobs;

use super::backend::Backend;
use super::journal::store::may_live;
use super::journal::{Entry, JournalError, Key, Record};
use super::module::{Change, Knob, Presence};
use super::turn::{Failed, TurnError, Turned, Turner};
use crate::inventory::{Device, Inventory};
use crate::probe::{DeviceRecord, ProbeError};

/// Why a knob is not there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Gone {
    /// The host was started anew.
    #[error("the host was started anew since")]
    Rebooted,
    /// The process has ended.
    #[error("its process has ended")]
    Ended,
    /// The device was closed.
    #[error("its process has closed the device")]
    Closed,
    /// The module that had it has gone.
    #[error("vhost-tuner's module, which it belonged to, is gone")]
    NoModule,
}

/// What became of a knob, or would.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has its original value again.
    Restored {
        /// What was set.
        before: u32,
    },
    /// It had its original value already.
    Already,
    /// It is not there any more.
    Dropped(Gone),
    /// Somebody else has set it.
    Left {
        /// What is set.
        now: u32,
    },
    /// It could not be restored.
    Failed(Failure),
}

/// Why a knob could not be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The reason.
    pub why: String,
    /// True where this process or this system cannot do it at all.
    pub unable: bool,
}

impl Failure {
    fn new(why: &str) -> Self {
        Self {
            why: why.to_owned(),
            unable: false,
        }
    }
}

impl From<&TurnError> for Failure {
    fn from(why: &TurnError) -> Self {
        Self {
            why: why.to_string(),
            unable: why.is_unable(),
        }
    }
}

/// A knob that was to be restored.
#[derive(Clone, Debug)]
pub struct Undone {
    /// What the journal says of it.
    pub entry: Entry,
    /// What became of it.
    pub outcome: Outcome,
    /// The set that restored it; none for a dry run.
    pub turned: Option<Turned>,
}

/// Why restoring cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The journal cannot be written to.
    #[error("what was restored could not be written down: {0}")]
    Journal(#[from] JournalError),
    /// Devices cannot be listed.
    #[error("devices cannot be looked up: {0}")]
    List(#[from] Box<ProbeError>),
}

/// Entries, those of a device together.
#[must_use]
pub fn by_device(entries: Vec<Entry>) -> Vec<Vec<Entry>> {
    let device = |entry: &Entry| Key {
        knob: Knob::PollPeer,
        ..entry.key.clone()
    };
    let mut groups: Vec<Vec<Entry>> = Vec::new();
    for entry in entries {
        match groups.last_mut() {
            Some(group) if device(&group[0]) == device(&entry) => group.push(entry),
            _ => groups.push(vec![entry]),
        }
    }
    groups
}

/// Whether a device is not there any more.
fn gone(key: &Key, boot: &str, lives: bool, records: &[DeviceRecord]) -> Option<Gone> {
    let is_it = |r: &DeviceRecord| (r.net, r.pid, r.fd) == (key.net, key.pid, key.fd);
    if key.boot != boot {
        Some(Gone::Rebooted)
    } else if !lives {
        Some(Gone::Ended)
    } else if !records.iter().any(is_it) {
        Some(Gone::Closed)
    } else {
        None
    }
}

/// What is to be done about a knob that has `now`, by what the journal says;
/// none where it is to be restored.
fn judge(entry: &Entry, now: u32, force: bool) -> Option<Outcome> {
    if now == entry.original {
        Some(Outcome::Already)
    } else if entry.is_ours(now) || force {
        None
    } else {
        Some(Outcome::Left { now })
    }
}

/// True where knobs that only the module has are there.
fn has(backend: Backend, knob: Knob) -> bool {
    matches!(backend, Backend::Module(_)) || !knob.needs_module()
}

/// The change that restores what is to be.
fn change(group: &[Entry], found: &Knobs, backend: Backend, force: bool) -> Change {
    let mut change = Change::default();
    for entry in group {
        let knob = entry.key.knob;
        if has(backend, knob) && judge(entry, knob.of(found), force).is_none() {
            change.ask(knob, entry.original);
        }
    }
    change
}

impl Turner {
    /// Restores the knobs of one device: all that can be, or none. With `force`
    /// also those that somebody else has set since. A dry run only says what
    /// would be done. `inventory` is where the device may be found.
    ///
    /// # Errors
    /// If the journal cannot be written to, or devices cannot be listed.
    pub fn restore(
        &mut self,
        group: &[Entry],
        inventory: &Inventory,
        force: bool,
        dry_run: bool,
    ) -> Result<Vec<Undone>, RestoreError> {
        let Some(first) = group.first() else {
            return Ok(Vec::new());
        };
        let (when, records) = self.recent().map_err(Box::new)?;
        let boot = self.journal().boot();
        let gone = gone(&first.key, boot, may_live(&first.key), &records);
        self.keep(when, records);
        let undone = match gone {
            Some(gone) => all(group, &Outcome::Dropped(gone)),
            None => match inventory.at(first.key.net) {
                Some(device) => self.restore_on(device, group, force, dry_run),
                None => all(
                    group,
                    &Outcome::Failed(Failure::new("it came just now; try again")),
                ),
            },
        };
        if !dry_run {
            let records: Vec<Record> = undone.iter().filter_map(record).collect();
            self.journal_mut().append(&records)?;
        }
        Ok(undone)
    }

    fn restore_on(
        &mut self,
        device: &Device,
        group: &[Entry],
        force: bool,
        dry_run: bool,
    ) -> Vec<Undone> {
        let failed = |why: &TurnError| all(group, &Outcome::Failed(why.into()));
        // Which way it goes does not depend on what is to be restored: what only
        // the module has went with it.
        let backend = match Backend::choose(Presence::find(), &Change::default()) {
            Ok(backend) => backend,
            Err(why) => return failed(&why.into()),
        };
        let found = match self.look(device, backend) {
            Ok(found) => found,
            Err(why) => return failed(&why),
        };
        let change = change(group, &found, backend, force);
        let turned = if change == Change::default() || dry_run {
            Ok(None)
        } else {
            self.apply(device, &change, &found, backend).map(Some)
        };
        let ended = turned.is_err() && !may_live(&group[0].key);
        let outcome = |entry: &Entry| {
            let knob = entry.key.knob;
            if ended {
                return (Outcome::Dropped(Gone::Ended), None);
            }
            if !has(backend, knob) {
                return (Outcome::Dropped(Gone::NoModule), None);
            }
            let before = knob.of(&found);
            if let Some(outcome) = judge(entry, before, force) {
                return (outcome, None);
            }
            match &turned {
                Ok(turned) => (Outcome::Restored { before }, *turned),
                Err(Failed::For(why)) => (Outcome::Failed(why.into()), None),
                Err(Failed::Moved(_)) => {
                    let why = "somebody else has set the device just now; try again";
                    (Outcome::Failed(Failure::new(why)), None)
                }
            }
        };
        let undone = |entry: &Entry| {
            let (outcome, turned) = outcome(entry);
            Undone {
                entry: entry.clone(),
                outcome,
                turned,
            }
        };
        group.iter().map(undone).collect()
    }
}

/// The same for all knobs of a device.
fn all(group: &[Entry], outcome: &Outcome) -> Vec<Undone> {
    let undone = |entry: &Entry| Undone {
        entry: entry.clone(),
        outcome: outcome.clone(),
        turned: None,
    };
    group.iter().map(undone).collect()
}

/// What the journal is told.
fn record(undone: &Undone) -> Option<Record> {
    let key = undone.entry.key.clone();
    match undone.outcome {
        Outcome::Restored { .. } | Outcome::Already => Some(Record::Restored { key }),
        Outcome::Dropped(_) => Some(Record::Dropped { key }),
        Outcome::Left { .. } | Outcome::Failed(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use tuner_common::queue::{RX, TX};

    use super::super::journal::Entries;
    use super::super::journal::record::tests::{key, touch};
    use super::*;

    const RX_TIMEOUT: Knob = Knob::Busyloop { direction: RX };
    const TX_TIMEOUT: Knob = Knob::Busyloop { direction: TX };
    const MODULE: Backend = Backend::Module(Presence::Replaced);

    fn entries(records: &[Record]) -> Vec<Entry> {
        let mut entries = Entries::default();
        for record in records {
            assert!(entries.apply(record));
        }
        entries.iter().cloned().collect()
    }

    /// Turned from 5 to 50, then to 60, with a crash that leaves either.
    fn timeout() -> Entry {
        let key = key(42, RX_TIMEOUT);
        let want = Record::Want {
            key: key.clone(),
            wanted: 60,
            previous: Some(50),
        };
        entries(&[touch(key, 5, 50), want]).remove(0)
    }

    #[test]
    fn what_we_may_have_set_is_restored_and_what_others_set_is_left() {
        for ours in [50, 60] {
            assert_eq!(judge(&timeout(), ours, false), None);
        }
        assert_eq!(judge(&timeout(), 5, false), Some(Outcome::Already));
        assert_eq!(judge(&timeout(), 5, true), Some(Outcome::Already));
        let left = Some(Outcome::Left { now: 70 });
        assert_eq!(judge(&timeout(), 70, false), left);
        assert_eq!(judge(&timeout(), 70, true), None);
    }

    #[test]
    fn a_device_is_restored_by_one_change() {
        let group = entries(&[
            touch(key(42, RX_TIMEOUT), 0, 50),
            touch(key(42, TX_TIMEOUT), 10, 60),
            touch(key(42, Knob::TxBatched), 0, 8),
            touch(key(42, Knob::PollPeer), 2, 0),
        ]);
        let found = Knobs {
            busyloop: [50, 70],
            tx_batched: 8,
            poll_peer: 0,
            ..Knobs::request()
        };
        let asked = change(&group, &found, MODULE, false).asked();
        assert_eq!(
            asked,
            [(RX_TIMEOUT, 0), (Knob::TxBatched, 0), (Knob::PollPeer, 2)]
        );
        let forced = change(&group, &found, MODULE, true).asked();
        assert_eq!(forced[1], (TX_TIMEOUT, 10));
        // What went with the module is no part of a change by injection.
        let injected = change(&group, &found, Backend::Inject, true).asked();
        assert_eq!(injected, [(RX_TIMEOUT, 0), (TX_TIMEOUT, 10)]);
    }

    #[test]
    fn what_is_gone_is_told_by_the_first_thing_that_is() {
        let key = key(42, RX_TIMEOUT);
        let record = DeviceRecord {
            net: key.net,
            pid: key.pid,
            fd: key.fd,
            ..DeviceRecord::default()
        };
        let there = [record];
        let boot = key.boot.as_str();
        assert_eq!(gone(&key, boot, true, &there), None);
        assert_eq!(gone(&key, "later", true, &there), Some(Gone::Rebooted));
        assert_eq!(gone(&key, boot, false, &there), Some(Gone::Ended));
        assert_eq!(gone(&key, boot, true, &[]), Some(Gone::Closed));
        // Another device under the same number, or the same address elsewhere.
        for other in [
            DeviceRecord { net: 1, ..record },
            DeviceRecord { fd: 31, ..record },
            DeviceRecord { pid: 43, ..record },
        ] {
            assert_eq!(gone(&key, boot, true, &[other]), Some(Gone::Closed));
        }
    }

    #[test]
    fn knobs_of_a_device_stay_together() {
        let groups = by_device(entries(&[
            touch(key(43, TX_TIMEOUT), 0, 1),
            touch(key(42, RX_TIMEOUT), 0, 1),
            touch(key(43, RX_TIMEOUT), 0, 1),
            touch(key(42, Knob::PollPeer), 2, 1),
        ]));
        let shape: Vec<_> = groups
            .iter()
            .map(|group| (group[0].key.pid, group.len()))
            .collect();
        assert_eq!(shape, [(42, 2), (43, 2)]);
    }

    #[test]
    fn the_journal_forgets_what_is_settled_and_nothing_else() {
        let outcome = |outcome| {
            record(&Undone {
                entry: timeout(),
                outcome,
                turned: None,
            })
        };
        let key = timeout().key;
        assert_eq!(
            outcome(Outcome::Restored { before: 50 }),
            Some(Record::Restored { key: key.clone() })
        );
        assert_eq!(
            outcome(Outcome::Already),
            Some(Record::Restored { key: key.clone() })
        );
        assert_eq!(
            outcome(Outcome::Dropped(Gone::Closed)),
            Some(Record::Dropped { key })
        );
        assert_eq!(outcome(Outcome::Left { now: 70 }), None);
        assert_eq!(outcome(Outcome::Failed(Failure::new("x"))), None);
    }
}
