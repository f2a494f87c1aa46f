//! Reads and sets through our kernel module: its ioctl on a descriptor that is
//! borrowed from whoever has the device, for as long as the call takes. No
//! thread of the VM is stopped.

mod change;
mod handle;
mod presence;
mod settings;

pub use change::{Change, Knob, Setting};
pub use handle::{Handle, ModuleError};
pub use presence::{LIVEPATCH, Parameters, Presence};
pub use settings::Settings;

use tuner_common::module::{FOLLOW_POLL_PEER, FOLLOW_TX_BATCHED, Knobs};

use super::busyloop::Name;
use crate::inventory::Device;
use crate::probe::{DeviceLister, ProbeError};

/// What a set did to one device, or would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// What was set before.
    pub before: Knobs,
    /// What is set now.
    pub after: Knobs,
}

/// Why a device was not set. All its knobs have the values they had, unless the
/// text says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// The module could not be asked.
    #[error("{what} was not set: {why}")]
    Refused {
        /// The device.
        what: String,
        /// Why.
        why: ModuleError,
    },
    /// It is not known whether the descriptor still means this device.
    #[error("{what} was not set: {why}")]
    Unknown {
        /// The device.
        what: String,
        /// Why.
        why: Box<ProbeError>,
    },
    /// The device is gone.
    #[error("{0} ended before it was set")]
    Ended(String),
    /// It was set, and is not any more.
    #[error("{what}: {knob} is {found} after {wanted} was set; somebody else is setting it too")]
    Different {
        /// The device.
        what: String,
        /// Which knob.
        knob: Knob,
        /// What was set.
        wanted: u32,
        /// What is there.
        found: u32,
    },
    /// It was set and could not be read back.
    #[error("{what} was set, but could not be read back: {why}")]
    Unread {
        /// The device.
        what: String,
        /// Why.
        why: ModuleError,
    },
}

/// What is set on a device.
///
/// # Errors
/// If the module cannot be asked.
pub fn read(device: &Device, presence: Presence) -> Result<Knobs, ModuleError> {
    open(device, presence)?.knobs()
}

/// A descriptor of a device that was found to be of this very device, and what
/// is set. For the next few calls only.
pub(super) struct Opened {
    handle: Handle,
    what: String,
    /// What is set.
    pub(super) before: Knobs,
}

impl Opened {
    /// Borrows the descriptor.
    pub(super) fn open(
        device: &Device,
        presence: Presence,
        lister: &mut DeviceLister,
    ) -> Result<Self, SetError> {
        let what = || Name(device).to_string();
        let refused = |why| SetError::Refused { what: what(), why };
        let handle = open(device, presence).map_err(refused)?;
        if !is_of(&handle, device, lister).map_err(|why| SetError::Unknown {
            what: what(),
            why: Box::new(why),
        })? {
            return Err(SetError::Ended(what()));
        }
        Ok(Self {
            before: handle.knobs().map_err(refused)?,
            handle,
            what: what(),
        })
    }

    /// Sets all that is asked or nothing, and reads it back.
    pub(super) fn set(self, change: &Change) -> Result<Report, SetError> {
        let Self {
            handle,
            what,
            before,
        } = self;
        if let Err(why) = handle.set(change) {
            return Err(SetError::Refused { what, why });
        }
        let after = match handle.knobs() {
            Ok(after) => after,
            Err(why) => return Err(SetError::Unread { what, why }),
        };
        match change.unmet(&after) {
            None => Ok(Report { before, after }),
            Some((knob, wanted, found)) => Err(SetError::Different {
                what,
                knob,
                wanted,
                found,
            }),
        }
    }
}

/// What a set would do.
///
/// # Errors
/// If the module cannot be asked.
pub fn plan(device: &Device, change: &Change, presence: Presence) -> Result<Report, SetError> {
    let before = read(device, presence).map_err(|why| SetError::Refused {
        what: Name(device).to_string(),
        why,
    })?;
    let after = expected(&before, change, presence.parameters());
    Ok(Report { before, after })
}

/// What `before` becomes by a change, as far as that can be said.
fn expected(before: &Knobs, change: &Change, parameters: Option<Parameters>) -> Knobs {
    let asked = change.request();
    let mut after = *before;
    for knob in change.knobs() {
        match knob {
            Knob::Busyloop { direction } => {
                let ring = direction as usize & 1;
                after.busyloop[ring] = asked.busyloop[ring];
            }
            Knob::TxBatched => {
                after.tx_batched = asked.tx_batched;
                after.tx_batched_now = match asked.tx_batched {
                    FOLLOW_TX_BATCHED => {
                        parameters.map_or(before.tx_batched_now, |said| said.tx_batched)
                    }
                    own => own,
                };
            }
            Knob::PollPeer => {
                after.poll_peer = asked.poll_peer;
                after.poll_peer_now = match asked.poll_peer {
                    FOLLOW_POLL_PEER => {
                        parameters.map_or(before.poll_peer_now, |said| said.poll_peer.into())
                    }
                    own => own,
                };
            }
        }
    }
    after
}

fn open(device: &Device, presence: Presence) -> Result<Handle, ModuleError> {
    let pid = device.pid;
    let start_time = device.start_time.ok_or(ModuleError::Ended { pid })?;
    Handle::open(presence, pid, device.fd, start_time)
}

/// True if the descriptor that was taken is of this very device: its number may
/// have come to mean another one of the same process since the list was made.
fn is_of(handle: &Handle, device: &Device, lister: &mut DeviceLister) -> Result<bool, ProbeError> {
    let ours = std::process::id();
    Ok(lister.list()?.iter().any(|record| {
        record.net == device.net
            && record.pid == ours
            && i32::try_from(record.fd) == Ok(handle.fd())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETERS: Parameters = Parameters {
        tx_batched: 32,
        poll_peer: true,
    };

    fn own() -> Knobs {
        Knobs {
            busyloop: [5, 6],
            tx_batched: 8,
            poll_peer: 0,
            tx_batched_now: 8,
            poll_peer_now: 0,
            ..Knobs::request()
        }
    }

    #[test]
    fn a_plan_leaves_alone_what_is_not_asked_for() {
        let nothing = expected(&own(), &Change::default(), Some(PARAMETERS));
        assert_eq!(nothing, own());
        let change = Change {
            busyloop: crate::knob::Change {
                rx: Some(50),
                tx: None,
            },
            tx_batched: Some(Setting::Own(4)),
            ..Change::default()
        };
        let after = expected(&own(), &change, Some(PARAMETERS));
        assert_eq!(after.busyloop, [50, 6]);
        assert_eq!((after.tx_batched, after.tx_batched_now), (4, 4));
        assert_eq!((after.poll_peer, after.poll_peer_now), (0, 0));
    }

    #[test]
    fn a_device_that_goes_back_to_the_default_gets_the_parameters() {
        let change = Change {
            tx_batched: Some(Setting::Follow),
            poll_peer: Some(Setting::Follow),
            ..Change::default()
        };
        let after = expected(&own(), &change, Some(PARAMETERS));
        assert_eq!((after.tx_batched, after.tx_batched_now), (0, 32));
        assert_eq!((after.poll_peer, after.poll_peer_now), (2, 1));
    }
}
