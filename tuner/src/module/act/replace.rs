//! Our module in the place of the distribution's, and back.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::decide::{Goal, Refusal};
use super::super::facts::parameter_line;
use super::super::files::{Image, Kind};
use super::super::insert::{self, KernelLog};
use super::super::state::{Facts, State};
use super::super::status::{Found, find};
use super::super::stock::Stock;
use super::super::{LIVEPATCH, VHOST_NET};
use super::{Order, Outcome, Report};

const INTERRUPTED: &str = "interrupted before anything was changed";

/// Replaces the distribution's module, or loads ours where none is.
pub(super) fn load(facts: &Facts, found: Found, stop: &AtomicBool) -> Report {
    let Some(image) = found.image else {
        return Report::new(Outcome::Failed, "the file could not be read");
    };
    let path = image.path.clone();
    let failed = |sentence: String| Report::new(Outcome::Failed, sentence).of_file(path.clone());
    if let Err(why) = insert::dependencies(&image.contents) {
        return failed(format!("{}: {why}; nothing was changed", path.display()));
    }
    // Disabled, it does nothing, but the next livepatch could not be loaded.
    if facts.livepatch_module {
        let _ = insert::remove(LIVEPATCH);
    }
    let was_loaded = facts.state() == State::Stock;
    // What the distribution's was started with goes on to ours.
    let zero_copy = zero_copy(facts);
    let parameters = format!("{} {zero_copy}", insert::configured(VHOST_NET));
    let stock = Stock::find(&facts.release);
    // Nothing slow from here on: who opens the device while no module is there
    // has the kernel load one.
    let mut log = KernelLog::from_here();
    if stop.load(Ordering::Relaxed) {
        return failed(INTERRUPTED.to_owned());
    }
    if was_loaded && let Err(why) = insert::remove(VHOST_NET) {
        return not_removed(&why, Goal::Replace).of_file(path);
    }
    let result = insert::insert(&image, parameters.trim());
    match (result, Facts::read().state()) {
        // Also if the kernel itself loaded ours, since somebody opened the
        // device in between.
        (_, State::Replaced) => Report::new(
            Outcome::Done,
            format!(
                "vhost_net is now {}{}",
                path.display(),
                if was_loaded {
                    ", in place of the distribution's"
                } else {
                    ""
                }
            ),
        )
        .of_file(path),
        (Err(why), State::Stock) if why.raw_os_error() == Some(libc::EEXIST) => Report::new(
            Outcome::Undone,
            "a program opened /dev/vhost-net in between, and the kernel loaded the \
             distribution's vhost_net again for it: nothing was changed; try again, or use \
             `vhost-tuner module livepatch`",
        )
        .of_file(path),
        (result, _) => {
            let why = match result {
                Err(why) => insert::explain(&why),
                Ok(()) => "it was loaded and does not show its parameters".to_owned(),
            };
            let why = format!("{}: {why}{}", path.display(), log.about(VHOST_NET));
            if !was_loaded {
                return failed(format!(
                    "{why}; vhost_net was not loaded before and is not now"
                ));
            }
            put_stock_back(stock, &zero_copy, &why).of_file(path)
        }
    }
}

fn put_stock_back(stock: Result<Stock, String>, parameters: &str, why: &str) -> Report {
    // What was loaded and is not as it should be.
    let _ = insert::remove(VHOST_NET);
    match stock.and_then(|stock| stock.load(parameters)) {
        Ok(()) => Report::new(
            Outcome::Undone,
            format!("{why}; the distribution's vhost_net was put back"),
        ),
        Err(second) => Report::new(
            Outcome::Failed,
            format!(
                "{why}; and the distribution's vhost_net could not be put back: {second}; \
                 no VM can be started with vhost until `modprobe vhost_net` works"
            ),
        ),
    }
}

/// The zero-copy parameter as it is now, for the module that follows.
fn zero_copy(facts: &Facts) -> String {
    let word = |on: bool| format!("experimental_zcopytx={}", u8::from(on));
    facts.zero_copy.map(word).unwrap_or_default()
}

/// Somebody came between the check and the call, or the kernel will not.
fn not_removed(why: &io::Error, goal: Goal) -> Report {
    let facts = Facts::read();
    if why.raw_os_error() == Some(libc::EWOULDBLOCK) {
        return Report::refused(&Refusal::InUse {
            goal,
            users: facts.users,
            references: facts.references,
        });
    }
    Report::new(
        Outcome::Failed,
        format!("vhost_net could not be taken out: {why}; nothing was changed"),
    )
}

/// Takes our module out and brings the distribution's back.
pub(super) fn restore(facts: &Facts, order: &Order<'_>) -> Report {
    let stock = match Stock::find(&facts.release) {
        Ok(stock) => stock,
        Err(why) => {
            return Report::new(
                Outcome::Failed,
                format!("the distribution's vhost_net was not found: {why}; nothing was changed"),
            );
        }
    };
    // To put ours back if the other one does not load.
    let ours = find(Kind::Replacement, facts, order.dir.as_deref())
        .image
        .map(|image| (image, parameter_line(VHOST_NET)));
    if order.stop.load(Ordering::Relaxed) {
        return Report::new(Outcome::Failed, INTERRUPTED);
    }
    if let Err(why) = insert::remove(VHOST_NET) {
        return not_removed(&why, Goal::Restore);
    }
    let result = stock.load(&zero_copy(facts));
    match (result, Facts::read().state()) {
        (_, State::Stock) => {
            let report = Report::new(Outcome::Done, "vhost_net is the distribution's again");
            Report {
                file: stock.path(),
                ..report
            }
        }
        (_, State::Replaced) => Report::new(
            Outcome::Undone,
            "a program opened /dev/vhost-net in between, and the kernel loaded our vhost_net \
             again for it, since that is the one it finds: nothing was changed; stop that \
             program, or take our module out of /lib/modules (`dkms remove`)",
        ),
        (result, _) => {
            let why = result
                .err()
                .unwrap_or_else(|| "it does not show".to_owned());
            put_ours_back(ours, &why)
        }
    }
}

fn put_ours_back(ours: Option<(Image, String)>, why: &str) -> Report {
    let why = format!("the distribution's vhost_net could not be loaded: {why}");
    let Some((image, parameters)) = ours else {
        return Report::new(
            Outcome::Failed,
            format!(
                "{why}; and no file of ours was found to put back; no VM can be started with \
                 vhost until `modprobe vhost_net` works"
            ),
        );
    };
    let path = image.path.clone();
    match insert::insert(&image, &parameters) {
        Ok(()) => Report::new(
            Outcome::Undone,
            format!("{why}; ours was put back ({})", path.display()),
        )
        .of_file(path),
        Err(second) => Report::new(
            Outcome::Failed,
            format!(
                "{why}; and ours could not be put back: {}; no VM can be started with vhost \
                 until `modprobe vhost_net` works",
                insert::explain(&second)
            ),
        ),
    }
}
