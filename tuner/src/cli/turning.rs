//! What `set` and `undo` have in common: rights, the lock, the journal, the
//! devices.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;

use super::{Failure, Outcome};
use crate::inspect::privilege::Privilege;
use crate::inspect::{Kernel, ModuleState};
use crate::inventory::Inventory;
use crate::knob::inject;
use crate::knob::journal::{Journal, store};
use crate::knob::module::{Knob, Presence};
use crate::knob::turn::Turner;
use crate::lock::{self, Lock};
use crate::probe::DeviceLister;
use tuner_common::module::{FOLLOW_POLL_PEER, FOLLOW_TX_BATCHED};

/// Where the journal is.
#[derive(Debug, Args)]
pub(super) struct Place {
    /// Folder of the journal.
    #[arg(long, value_name = "DIR", default_value = store::FOLDER)]
    state_dir: PathBuf,
}

/// What a trouble with the journal comes to.
const UNCHANGED: &str = "nothing was changed";

impl Place {
    /// Reads the journal and says what is wrong with it.
    pub(super) fn journal(&self) -> Result<Journal, Failure> {
        let journal = Journal::read(&self.state_dir).context(UNCHANGED)?;
        for note in journal.notes() {
            log::warn!("{}: {note}", journal.path().display());
        }
        Ok(journal)
    }
}

/// Makes sure that the journal can be written to.
pub(super) fn prepare(turner: &mut Turner) -> Outcome {
    Ok(turner.journal_mut().prepare().context(UNCHANGED)?)
}

/// Whether this process may turn knobs here.
pub(super) fn permitted(presence: Presence) -> Outcome {
    match Privilege::of_self().missing_to_turn(presence.answers()) {
        None => Ok(()),
        Some(missing) => Err(Failure::Unable(anyhow!(
            "knobs cannot be turned: {missing}"
        ))),
    }
}

/// Has this command be the only one that turns knobs.
pub(super) fn lock(command: &str) -> Result<Lock, Failure> {
    Ok(Lock::take(Path::new(lock::KNOBS), command, lock::PATIENCE)?)
}

/// What lists devices; none where there is no vhost_net.
pub(super) fn lister() -> Result<Option<DeviceLister>, Failure> {
    let kernel = Kernel::inspect();
    if kernel.vhost_net == ModuleState::Absent {
        return Ok(None);
    }
    let lister = DeviceLister::new(&kernel)
        .map_err(|why| Failure::Unable(anyhow!(why).context("devices cannot be looked up")))?;
    Ok(Some(lister))
}

/// All devices that there are now.
pub(super) fn inventory(turner: &mut Turner) -> Result<Inventory, Failure> {
    Ok(Inventory::from_records(&turner.list()?))
}

/// Waits for a thread that could not be put back yet: it must not be left
/// behind.
pub(super) fn settle() {
    while !inject::wait_until_idle(Duration::from_secs(10)) {
        log::warn!("waiting for a call inside the target to return; do not kill this program");
    }
}

/// The reasons of several failures: what kind of failure they come to.
pub(super) struct Reasons {
    reasons: Vec<String>,
    /// Whether each of them says that it cannot be done here at all.
    unable: bool,
}

impl Reasons {
    pub(super) fn new() -> Self {
        Self {
            reasons: Vec::new(),
            unable: true,
        }
    }

    pub(super) fn add(&mut self, reason: String, unable: bool) {
        self.unable &= unable;
        self.reasons.push(reason);
    }

    /// How the command ends: with the one reason, or with all of them and
    /// `summary`. `done` says whether anything was done.
    pub(super) fn end(self, summary: &str, done: bool) -> Outcome {
        let why = match &self.reasons[..] {
            [] => return Ok(()),
            [only] => anyhow!("{only}"),
            several => {
                for reason in several {
                    super::complain(reason);
                }
                anyhow!("{summary}")
            }
        };
        Err(if self.unable && !done {
            Failure::Unable(why)
        } else {
            Failure::Failed(why)
        })
    }
}

/// A value of a knob in words, as the module numbers it.
pub(super) fn words(knob: Knob, value: u32) -> String {
    match (knob, value) {
        (Knob::Busyloop { .. }, us) => format!("{us} µs"),
        (Knob::TxBatched, FOLLOW_TX_BATCHED) | (Knob::PollPeer, FOLLOW_POLL_PEER) => {
            "the module's parameter".to_owned()
        }
        (Knob::TxBatched, cap) => cap.to_string(),
        (Knob::PollPeer, 0) => "off".to_owned(),
        (Knob::PollPeer, _) => "on".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(reasons: &[(&str, bool)], done: bool) -> Outcome {
        let mut all = Reasons::new();
        for (reason, unable) in reasons {
            all.add((*reason).to_owned(), *unable);
        }
        all.end("two failed", done)
    }

    #[test]
    fn it_is_this_system_only_if_nothing_could_be_done() {
        assert!(end(&[], false).is_ok());
        let all_unable = [("a", true), ("b", true)];
        assert!(matches!(end(&all_unable, false), Err(Failure::Unable(_))));
        assert!(matches!(end(&all_unable, true), Err(Failure::Failed(_))));
        let mixed = [("a", true), ("b", false)];
        assert!(matches!(end(&mixed, false), Err(Failure::Failed(_))));
    }

    #[test]
    fn one_reason_stands_for_itself() {
        let said = |reasons: &[(&str, bool)]| match end(reasons, false) {
            Err(Failure::Failed(why)) => why.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(said(&[("a", false)]), "a");
        assert_eq!(said(&[("a", false), ("b", false)]), "two failed");
    }

    #[test]
    fn values_are_said_as_they_are_given() {
        let rx = Knob::Busyloop { direction: 0 };
        assert_eq!(words(rx, 50), "50 µs");
        assert_eq!(words(Knob::TxBatched, 8), "8");
        assert_eq!(words(Knob::TxBatched, 0), "the module's parameter");
        assert_eq!(words(Knob::PollPeer, 0), "off");
        assert_eq!(words(Knob::PollPeer, 1), "on");
        assert_eq!(words(Knob::PollPeer, 2), "the module's parameter");
    }
}
