//! Turns knobs of a device: chooses the way, has the journal on disk first,
//! sets, reads back. Whoever turns knobs does it here.

use std::time::{Duration, Instant};

use tuner_common::module::Knobs;

use super::backend::{Backend, Unavailable};
use super::busyloop::{self, Name, SetError, Stop};
use super::inject::{InjectError, Refusal};
use super::journal::{Entry, Journal, JournalError, Key, Record};
use super::module::{self, Change, Knob, ModuleError, Opened, Presence};
use crate::inventory::Device;
use crate::probe::{DeviceLister, DeviceRecord, ProbeError};

/// A list of devices is good for the next device for this long.
const FRESH: Duration = Duration::from_millis(100);

/// How often a set starts anew because somebody else set the device meanwhile.
const ATTEMPTS: u32 = 3;

/// Turns knobs. Who has one has to hold the host's lock ([`crate::lock`]).
pub struct Turner {
    /// None where there is no vhost_net, and so no device.
    lister: Option<DeviceLister>,
    journal: Journal,
    /// What the last list said, and when.
    last: Option<(Instant, Vec<DeviceRecord>)>,
}

/// What was done to a device, or would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turned {
    /// By which way.
    pub backend: Backend,
    /// What was asked.
    pub change: Change,
    /// What was set before. By injection, of the timeouts only.
    pub before: Knobs,
    /// What is set now, likewise.
    pub after: Knobs,
    /// For how long a thread stood still, if one did.
    pub stop: Option<Stop>,
}

/// Why a device was not turned. All its knobs have the values they had, unless
/// the text says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum TurnError {
    /// There is no way.
    #[error("nothing was set: {0}")]
    Unavailable(#[from] Unavailable),
    /// What is there could not be written down first.
    #[error("{what} was not set, since what it has could not be written down: {why}")]
    Journal {
        /// The device.
        what: String,
        /// Why.
        why: JournalError,
    },
    /// The device is gone.
    #[error("{0} ended before it was set")]
    Ended(String),
    /// Somebody else sets it all the time.
    #[error("{0} was not set: somebody else is setting it at this moment")]
    Contended(String),
    /// Devices could not be listed.
    #[error("{what} was not set: {why}")]
    Unknown {
        /// The device.
        what: String,
        /// Why.
        why: Box<ProbeError>,
    },
    /// Injection failed.
    #[error(transparent)]
    Inject(#[from] SetError),
    /// The module refused.
    #[error(transparent)]
    Module(#[from] module::SetError),
}

impl TurnError {
    /// True where this process or this system cannot do it at all.
    #[must_use]
    pub fn is_unable(&self) -> bool {
        match self {
            Self::Unavailable(why) => why.is_lasting(),
            Self::Inject(SetError::Inject { why, .. }) => matches!(
                why,
                InjectError::Unsupported
                    | InjectError::Refused {
                        why: Refusal::NoCapability { .. } | Refusal::Yama { .. },
                        ..
                    }
            ),
            Self::Module(module::SetError::Refused { why, .. }) => matches!(
                why,
                ModuleError::Forbidden { .. } | ModuleError::NoCapability
            ),
            _ => false,
        }
    }

    /// True if every other device would fail for the same reason.
    #[must_use]
    pub fn is_everywhere(&self) -> bool {
        matches!(self, Self::Journal { .. } | Self::Unavailable(_))
    }

    /// True if a call may still be made after all: nothing can be said about
    /// what is set.
    fn is_open(&self) -> bool {
        matches!(
            self,
            Self::Inject(SetError::Inject {
                why: InjectError::StillInside { .. },
                ..
            })
        )
    }
}

/// Why a set did not come about.
pub(super) enum Failed {
    /// It has other values than those that were looked at.
    Moved(Knobs),
    /// Something else.
    For(TurnError),
}

impl<E: Into<TurnError>> From<E> for Failed {
    fn from(why: E) -> Self {
        Self::For(why.into())
    }
}

/// What [`Turner::turn`] would do.
///
/// # Errors
/// If it could not be done, as far as that can be said.
pub fn plan(device: &Device, change: &Change) -> Result<Turned, TurnError> {
    let backend = Backend::choose(Presence::find(), change)?;
    let (before, after) = match backend {
        Backend::Module(presence) => {
            let report = module::plan(device, change, presence)?;
            (report.before, report.after)
        }
        Backend::Inject => {
            let before = timeouts(device.rings.each_ref().map(|info| info.ring.timeout));
            (before, with(before, change))
        }
    };
    Ok(Turned {
        backend,
        change: *change,
        before,
        after,
        stop: None,
    })
}

impl Turner {
    /// Turns by what this lists and writes down there.
    #[must_use]
    pub fn new(lister: Option<DeviceLister>, journal: Journal) -> Self {
        Self {
            lister,
            journal,
            last: None,
        }
    }

    /// The journal.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The journal, to write to.
    pub fn journal_mut(&mut self) -> &mut Journal {
        &mut self.journal
    }

    /// All devices now.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub fn list(&mut self) -> Result<Vec<DeviceRecord>, ProbeError> {
        match &mut self.lister {
            Some(lister) => lister.list(),
            None => Ok(Vec::new()),
        }
    }

    /// Changes all that is asked of a device or nothing, with its original
    /// values on disk before.
    ///
    /// # Errors
    /// See [`TurnError`].
    pub fn turn(&mut self, device: &Device, change: &Change) -> Result<Turned, TurnError> {
        let what = || Name(device).to_string();
        let backend = Backend::choose(Presence::find(), change)?;
        let mut found = self.look(device, backend)?;
        for _ in 0..ATTEMPTS {
            let earlier = self.write_down(device, change, &found)?;
            match self.apply(device, change, &found, backend) {
                Ok(turned) => return Ok(turned),
                Err(Failed::Moved(now)) => {
                    self.take_back(earlier);
                    found = now;
                }
                Err(Failed::For(why)) => {
                    if !why.is_open() && self.is_as_it_was(device, change, &found, backend) {
                        self.take_back(earlier);
                    }
                    return Err(why);
                }
            }
        }
        Err(TurnError::Contended(what()))
    }

    /// What is set on a device.
    pub(super) fn look(&mut self, device: &Device, backend: Backend) -> Result<Knobs, TurnError> {
        let what = || Name(device).to_string();
        match backend {
            Backend::Module(presence) => module::read(device, presence)
                .map_err(|why| module::SetError::Refused { what: what(), why }.into()),
            Backend::Inject => {
                let (_, records) = self.recent().map_err(|why| TurnError::Unknown {
                    what: what(),
                    why: Box::new(why),
                })?;
                let found = record_of(&records, device).map(of_record);
                found.ok_or_else(|| TurnError::Ended(what()))
            }
        }
    }

    /// Keeps a list for what is next; `when` is when it was made.
    pub(super) fn keep(&mut self, when: Instant, records: Vec<DeviceRecord>) {
        self.last = Some((when, records));
    }

    /// The list that was kept, if it was made just now, else a new one; and when
    /// it was made.
    pub(super) fn recent(&mut self) -> Result<(Instant, Vec<DeviceRecord>), ProbeError> {
        match self.last.take() {
            Some((when, records)) if when.elapsed() < FRESH => Ok((when, records)),
            _ => {
                let when = Instant::now();
                Ok((when, self.list()?))
            }
        }
    }

    /// Has on disk what is there and what is about to be set. Gives the entries
    /// as they were.
    fn write_down(
        &mut self,
        device: &Device,
        change: &Change,
        found: &Knobs,
    ) -> Result<Vec<(Key, Option<Entry>)>, TurnError> {
        let what = || Name(device).to_string();
        let Some(start_time) = device.start_time else {
            return Err(TurnError::Ended(what()));
        };
        let entries = self.journal.entries();
        let mut records = Vec::new();
        let mut earlier = Vec::new();
        for (knob, wanted) in change.asked() {
            let key = Key {
                boot: self.journal.boot().to_owned(),
                pid: device.pid,
                start_time,
                fd: device.fd,
                net: device.net,
                knob,
            };
            let (vm, tap) = (&device.vm.name, device.tap.as_deref());
            records.extend(entries.before(&key, knob.of(found), wanted, vm, tap));
            earlier.push((key.clone(), entries.get(&key).cloned()));
        }
        let written = self.journal.append(&records);
        written.map_err(|why| TurnError::Journal { what: what(), why })?;
        Ok(earlier)
    }

    /// Takes records back whose change did not come. If that cannot be done, it
    /// is no great harm: `undo` looks at what is there.
    fn take_back(&mut self, earlier: Vec<(Key, Option<Entry>)>) {
        let entries = self.journal.entries();
        let records: Vec<Record> = earlier
            .iter()
            .filter_map(|(key, entry)| entries.take_back(key, entry.as_ref()))
            .collect();
        if let Err(why) = self.journal.append(&records) {
            log::warn!("the journal says more than was done: {why}");
        }
    }

    /// True if a set that failed has left everything as it was.
    fn is_as_it_was(
        &mut self,
        device: &Device,
        change: &Change,
        found: &Knobs,
        backend: Backend,
    ) -> bool {
        self.last = None;
        let now = self.look(device, backend);
        now.is_ok_and(|now| same(change, &now, found))
    }

    /// Sets and reads back, with `found` being there before.
    pub(super) fn apply(
        &mut self,
        device: &Device,
        change: &Change,
        found: &Knobs,
        backend: Backend,
    ) -> Result<Turned, Failed> {
        let done = |before, after, stop| Turned {
            backend,
            change: *change,
            before,
            after,
            stop,
        };
        let Some(lister) = &mut self.lister else {
            return Err(TurnError::Ended(Name(device).to_string()).into());
        };
        match backend {
            Backend::Module(presence) => {
                let opened = Opened::open(device, presence, lister)?;
                if !same(change, &opened.before, found) {
                    return Err(Failed::Moved(opened.before));
                }
                let report = opened.set(change)?;
                Ok(done(report.before, report.after, None))
            }
            Backend::Inject => {
                let (device, asked) = only_what_differs(device, change, found);
                if asked == busyloop::Change::default() {
                    return Ok(done(*found, *found, None));
                }
                let stop = busyloop::make_calls(&device, asked)?;
                let when = Instant::now();
                let records = lister.list().map_err(|why| SetError::Unread {
                    what: Name(&device).to_string(),
                    why: Box::new(why),
                })?;
                busyloop::check(&device, asked, &records)?;
                let after = record_of(&records, &device).map_or(*found, of_record);
                self.keep(when, records);
                Ok(done(*found, after, Some(stop)))
            }
        }
    }
}

/// A device that has what was found, and the timeouts that are not there yet:
/// no thread is stopped for what is.
fn only_what_differs(
    device: &Device,
    change: &Change,
    found: &Knobs,
) -> (Device, busyloop::Change) {
    let mut device = device.clone();
    for (info, timeout) in device.rings.iter_mut().zip(found.busyloop) {
        info.ring.timeout = timeout;
    }
    let [rx, tx] = found.busyloop;
    let asked = change.busyloop;
    let asked = busyloop::Change {
        rx: asked.rx.filter(|wanted| *wanted != rx),
        tx: asked.tx.filter(|wanted| *wanted != tx),
    };
    (device, asked)
}

/// True if two have the same in what is asked for.
fn same(change: &Change, one: &Knobs, other: &Knobs) -> bool {
    let same = |knob: Knob| knob.of(one) == knob.of(other);
    change.knobs().into_iter().all(same)
}

/// The record of a device under the descriptor that it is known by.
fn record_of<'a>(records: &'a [DeviceRecord], device: &Device) -> Option<&'a DeviceRecord> {
    let is_it = |r: &&DeviceRecord| (r.net, r.pid, r.fd) == (device.net, device.pid, device.fd);
    records.iter().find(is_it)
}

/// What kernel memory says: the timeouts.
fn of_record(record: &DeviceRecord) -> Knobs {
    timeouts(record.rings.map(|ring| ring.timeout))
}

fn timeouts(busyloop: [u32; 2]) -> Knobs {
    Knobs {
        busyloop,
        ..Knobs::request()
    }
}

/// Timeouts after a change.
fn with(mut knobs: Knobs, change: &Change) -> Knobs {
    let asked = [change.busyloop.rx, change.busyloop.tx];
    for (timeout, asked) in knobs.busyloop.iter_mut().zip(asked) {
        *timeout = asked.unwrap_or(*timeout);
    }
    knobs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::device::tests::sample;

    fn timeout(rx: Option<u32>, tx: Option<u32>) -> Change {
        Change {
            busyloop: busyloop::Change { rx, tx },
            ..Change::default()
        }
    }

    #[test]
    fn no_thread_is_stopped_for_what_is_there_already() {
        let device = sample(1, 42, 7, "web", "tap0");
        let found = timeouts([50, 60]);
        let asked = |change: &Change| only_what_differs(&device, change, &found).1;
        let both = timeout(Some(50), Some(60));
        assert_eq!(asked(&both), busyloop::Change::default());
        let one = asked(&timeout(Some(50), Some(61)));
        assert_eq!((one.rx, one.tx), (None, Some(61)));
        // What is undone within the stop is what was found, not what was listed
        // when the command began.
        let (device, _) = only_what_differs(&device, &both, &found);
        assert_eq!(device.rings[1].ring.timeout, 60);
    }

    #[test]
    fn only_what_is_asked_for_may_have_moved() {
        let change = timeout(Some(1), None);
        let found = timeouts([50, 60]);
        assert!(same(&change, &found, &timeouts([50, 61])));
        assert!(!same(&change, &found, &timeouts([51, 60])));
        assert_eq!(with(found, &change), timeouts([1, 60]));
    }

    #[test]
    fn a_call_that_may_still_come_leaves_the_journal_as_it_is() {
        let inside = TurnError::from(SetError::Inject {
            what: String::new(),
            why: InjectError::StillInside {
                after: Duration::ZERO,
            },
        });
        assert!(inside.is_open() && !inside.is_unable());
        let lacking = TurnError::from(SetError::Inject {
            what: String::new(),
            why: InjectError::Refused {
                pid: 1,
                why: Refusal::NoCapability { owner: None },
            },
        });
        assert!(!lacking.is_open() && lacking.is_unable());
        assert!(!lacking.is_everywhere());
    }
}
