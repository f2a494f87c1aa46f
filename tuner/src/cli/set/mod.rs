//! `vhost-tuner set`.

mod show;

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use tuner_common::module::TX_BATCHED_MAX;

use self::show::Changed;
use super::{Failure, Outcome, Output};
use crate::inspect::Kernel;
use crate::inventory::{Device, Inventory, Target};
use crate::knob::busyloop::LONGEST_US;
use crate::knob::inject::{self, InjectError};
use crate::knob::module::{self, Presence, Setting};
use crate::knob::{self, SetError};
use crate::probe::DeviceLister;

/// Options of `set`.
#[derive(Debug, Args)]
#[group(
    id = "what",
    required = true,
    multiple = true,
    args = ["busyloop_rx", "busyloop_tx", "tx_batched", "poll_peer"]
)]
pub(super) struct Options {
    /// A VM's name, a pid, a tap or pid:fd.
    target: String,
    /// Busyloop timeout of the rings the guest receives on, in µs.
    #[arg(long, value_name = "US", value_parser = timeout())]
    busyloop_rx: Option<u32>,
    /// Busyloop timeout of the rings the guest sends on, in µs.
    #[arg(long, value_name = "US", value_parser = timeout())]
    busyloop_tx: Option<u32>,
    /// Most guest packets handed over together, 1 to 64, or `default` for the
    /// module's parameter. Needs the module.
    #[arg(long, value_name = "N", value_parser = tx_batched)]
    tx_batched: Option<Setting<u32>>,
    /// Whether a poll watches the other direction too: `on`, `off`, or
    /// `default` for the module's parameter. Needs the module.
    #[arg(long, value_name = "HOW", value_parser = poll_peer)]
    poll_peer: Option<Setting<bool>>,
    /// Say what would be changed and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: Output,
}

fn timeout() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(0..=i64::from(LONGEST_US))
}

fn tx_batched(text: &str) -> Result<Setting<u32>, String> {
    if text == "default" {
        return Ok(Setting::Follow);
    }
    match text.parse() {
        Ok(cap) if (1..=TX_BATCHED_MAX).contains(&cap) => Ok(Setting::Own(cap)),
        _ => Err(format!(
            "must be a number from 1 to {TX_BATCHED_MAX}, or `default`"
        )),
    }
}

fn poll_peer(text: &str) -> Result<Setting<bool>, String> {
    match text {
        "on" => Ok(Setting::Own(true)),
        "off" => Ok(Setting::Own(false)),
        "default" => Ok(Setting::Follow),
        _ => Err("must be `on`, `off` or `default`".to_owned()),
    }
}

/// Sets what is asked on every device of the target.
pub(super) fn run(options: Options) -> Outcome {
    let change = module::Change {
        busyloop: knob::Change {
            rx: options.busyloop_rx,
            tx: options.busyloop_tx,
        },
        tx_batched: options.tx_batched,
        poll_peer: options.poll_peer,
    };
    let presence = Presence::find();
    fits(presence, &change)?;
    let kernel = Kernel::inspect();
    let mut lister = DeviceLister::new(&kernel)
        .map_err(|why| Failure::Unable(anyhow!(why).context("devices cannot be looked up")))?;
    let inventory = Inventory::from_records(&lister.list()?);
    let devices = Target(options.target.clone()).resolve(&inventory)?;
    // From here on a signal must not end this program: a thread of the target
    // may be running our call.
    let stop = super::signals::deferred()?;
    let mut changes = Vec::new();
    let mut failure = None;
    for device in devices {
        if stop.load(Ordering::Relaxed) {
            failure = Some(Failure::Failed(anyhow!(
                "interrupted; devices that are not listed were left alone"
            )));
            break;
        }
        let done = if presence.answers() {
            by_module(device, &change, presence, options.dry_run, &mut lister)
        } else {
            by_injection(device, change.busyloop, options.dry_run, &mut lister)
        };
        match done {
            Ok(rows) => changes.extend(rows),
            Err(why) => {
                failure = Some(why);
                break;
            }
        }
    }
    let shown = show::show(options.output, options.dry_run, changes);
    // A thread that could not be put back yet must not be left behind.
    while !inject::wait_until_idle(Duration::from_secs(10)) {
        log::warn!("waiting for a call inside the target to return; do not kill this program");
    }
    match failure {
        Some(why) => Err(why),
        None => Ok(shown?),
    }
}

/// Whether what is asked can be had here at all. Half of it is not done.
fn fits(presence: Presence, change: &module::Change) -> Outcome {
    match presence {
        Presence::Transition => Err(Failure::Failed(anyhow!(
            "vhost-tuner's livepatch is just being applied or reverted; nothing was set; \
             try again when `vhost-tuner module status` says that it is done"
        ))),
        Presence::None if change.needs_module() => Err(Failure::Unable(anyhow!(
            "nothing was set: a stock vhost_net has no such setting as tx_batched or poll_peer; \
             `vhost-tuner module livepatch` brings them without restarting a VM"
        ))),
        _ => Ok(()),
    }
}

fn by_module(
    device: &Device,
    change: &module::Change,
    presence: Presence,
    dry_run: bool,
    lister: &mut DeviceLister,
) -> Result<Vec<Changed>, Failure> {
    let report = if dry_run {
        module::plan(device, change, presence)?
    } else {
        module::set(device, change, presence, lister)?
    };
    Ok(show::by_module(device, change, &report))
}

fn by_injection(
    device: &Device,
    change: knob::Change,
    dry_run: bool,
    lister: &mut DeviceLister,
) -> Result<Vec<Changed>, Failure> {
    if dry_run {
        return Ok(show::planned(device, change));
    }
    match knob::set(device, change, lister) {
        Ok(report) => Ok(show::injected(device, &report)),
        Err(why) => Err(because(why)),
    }
}

fn because(why: SetError) -> Failure {
    match why {
        SetError::Inject {
            why: InjectError::Unsupported,
            ..
        } => Failure::Unable(why.into()),
        why => Failure::Failed(why.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_numbers_words_or_the_default() {
        assert_eq!(tx_batched("1"), Ok(Setting::Own(1)));
        assert_eq!(tx_batched("64"), Ok(Setting::Own(64)));
        assert_eq!(tx_batched("default"), Ok(Setting::Follow));
        for wrong in ["0", "65", "-1", "", "off"] {
            assert!(tx_batched(wrong).is_err(), "{wrong}");
        }
        assert_eq!(poll_peer("on"), Ok(Setting::Own(true)));
        assert_eq!(poll_peer("off"), Ok(Setting::Own(false)));
        assert_eq!(poll_peer("default"), Ok(Setting::Follow));
        assert!(poll_peer("1").is_err());
    }

    #[test]
    fn a_stock_kernel_is_told_from_one_in_between() {
        let busyloop = module::Change {
            busyloop: knob::Change {
                rx: Some(1),
                tx: None,
            },
            ..module::Change::default()
        };
        let both = module::Change {
            tx_batched: Some(Setting::Follow),
            ..busyloop
        };
        assert!(fits(Presence::None, &busyloop).is_ok());
        assert!(matches!(
            fits(Presence::None, &both),
            Err(Failure::Unable(_))
        ));
        for change in [busyloop, both] {
            assert!(matches!(
                fits(Presence::Transition, &change),
                Err(Failure::Failed(_))
            ));
            assert!(fits(Presence::Livepatched, &change).is_ok());
            assert!(fits(Presence::Replaced, &change).is_ok());
        }
    }
}
