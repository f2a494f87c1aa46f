//! `vhost-tuner undo`.

mod select;
mod show;

use std::sync::atomic::Ordering;

use clap::Args;

use self::show::Row;
use super::turning::{self, Place, Reasons};
use super::{Outcome, Output};
use crate::knob::journal::Entry;
use crate::knob::module::Presence;
use crate::knob::turn::Turner;
use crate::knob::undo::by_device;

/// Options of `undo`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// VMs' names, pids, taps or pid:fd.
    #[arg(value_name = "TARGET", required_unless_present = "all")]
    targets: Vec<String>,
    /// Everything that vhost-tuner has changed on this host.
    #[arg(long, conflicts_with = "targets")]
    all: bool,
    /// Also what somebody else has changed since.
    #[arg(long)]
    force: bool,
    /// Say what would be done and do nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    output: Output,
}

/// Puts back what is in the journal.
pub(super) fn run(options: Options) -> Outcome {
    turning::permitted(Presence::find())?;
    let lister = turning::lister()?;
    let _lock = if options.dry_run {
        None
    } else {
        Some(turning::lock("undo")?)
    };
    let mut turner = Turner::new(lister, options.place.journal()?);
    let inventory = turning::inventory(&mut turner)?;
    let entries = turner.journal().entries();
    let meant: Vec<Entry> = if options.all {
        entries.iter().cloned().collect()
    } else {
        select::named(&options.targets, entries, &inventory)?
    };
    if meant.is_empty() {
        log::warn!(
            "there is nothing to undo: {} names no change{}",
            turner.journal().path().display(),
            if options.all { "" } else { " of these" }
        );
    } else if !options.dry_run {
        turning::prepare(&mut turner)?;
    }
    // As in `set`.
    let stop = super::signals::deferred()?;
    let mut rows: Vec<Row> = Vec::new();
    let mut reasons = Reasons::new();
    for group in by_device(meant) {
        if stop.load(Ordering::Relaxed) {
            let why = "interrupted; devices that are not listed were left alone";
            reasons.add(why.to_owned(), false);
            break;
        }
        match turner.restore(&group, &inventory, options.force, options.dry_run) {
            Ok(undone) => rows.extend(undone.iter().map(|one| Row::new(one, options.dry_run))),
            Err(why) => {
                reasons.add(why.to_string(), false);
                break;
            }
        }
    }
    for row in &rows {
        if let Some((reason, unable)) = row.complaint() {
            reasons.add(reason, unable);
        }
    }
    let done = rows.iter().any(|row| row.complaint().is_none());
    let summary = format!(
        "{} of {} knobs were not restored",
        rows.iter().filter(|row| row.complaint().is_some()).count(),
        rows.len()
    );
    let written = show::show(options.output, options.dry_run, &rows);
    turning::settle();
    reasons.end(&summary, done)?;
    Ok(written?)
}
