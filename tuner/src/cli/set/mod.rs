//! `vhost-tuner set`.

mod options;
mod show;

use std::sync::atomic::Ordering;

use anyhow::anyhow;

pub(super) use self::options::Options;
use self::show::{Failed, Shown};
use super::turning::{self, Reasons};
use super::{Failure, Outcome};
use crate::inventory::{Device, Inventory, Target, TargetError};
use crate::knob::backend::Backend;
use crate::knob::busyloop::LONGEST_US;
use crate::knob::module::Presence;
use crate::knob::turn::{self, TurnError, Turner};

/// Sets what is asked on every device that is meant.
pub(super) fn run(options: Options) -> Outcome {
    let change = options.change().map_err(Failure::Usage)?;
    let presence = Presence::find();
    Backend::choose(presence, &change).map_err(|why| {
        let lasting = why.is_lasting();
        let why = anyhow!("nothing was set: {why}");
        if lasting {
            Failure::Unable(why)
        } else {
            Failure::Failed(why)
        }
    })?;
    turning::permitted(presence)?;
    let Some(lister) = turning::lister()? else {
        return Err(Failure::Unable(anyhow!(
            "nothing was set: vhost_net is not loaded, so there is no device"
        )));
    };
    let _lock = if options.dry_run {
        None
    } else {
        Some(turning::lock("set")?)
    };
    let mut turner = Turner::new(Some(lister), options.place.journal()?);
    let inventory = turning::inventory(&mut turner)?;
    let devices = meant(&options, &inventory)?;
    if options.longest() > LONGEST_US {
        log::warn!(
            "a worker that spins for {} ms holds its ring as long, and whatever sets the ring \
             again by injection has a thread of the VM's process wait for it",
            options.longest() / 1000
        );
    }
    if devices.is_empty() {
        log::warn!("there is no vhost-net device; nothing was set");
    } else if !options.dry_run {
        turning::prepare(&mut turner)?;
    }
    // From here on a signal must not end this program: a thread of the target
    // may be running our call.
    let stop = super::signals::deferred()?;
    let mut shown = Shown::default();
    let mut reasons = Reasons::new();
    for (at, device) in devices.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            let why = "interrupted; devices that are not listed were left alone";
            reasons.add(why.to_owned(), false);
            break;
        }
        let done = if options.dry_run {
            turn::plan(device, &change)
        } else {
            turner.turn(device, &change)
        };
        match done {
            Ok(turned) => shown.changes.extend(show::changes(device, &turned)),
            Err(why) => {
                shown.failures.push(Failed::new(device, &why));
                reasons.add(why.to_string(), why.is_unable());
                if why.is_everywhere() {
                    let left = devices.len() - at - 1;
                    if left > 0 {
                        reasons.add(format!("{left} more devices were left alone"), false);
                    }
                    break;
                }
            }
        }
    }
    let done = !shown.changes.is_empty();
    let summary = summary(&shown, devices.len());
    let written = show::show(options.output, options.dry_run, shown);
    turning::settle();
    // That nobody reads the output any more hides no failure.
    reasons.end(&summary, done)?;
    Ok(written?)
}

fn summary(shown: &Shown, devices: usize) -> String {
    let failed = shown.failures.len();
    format!("{failed} of {devices} devices failed")
}

/// The devices that are meant, each once.
fn meant<'a>(options: &Options, inventory: &'a Inventory) -> Result<Vec<&'a Device>, TargetError> {
    if options.all {
        return Ok(inventory.devices.iter().collect());
    }
    let mut devices: Vec<&Device> = Vec::new();
    for target in &options.targets {
        for device in Target(target.clone()).resolve(inventory)? {
            if devices.iter().all(|known| known.net != device.net) {
                devices.push(device);
            }
        }
    }
    Ok(devices)
}

impl Failed {
    fn new(device: &Device, why: &TurnError) -> Self {
        Self {
            vm: device.vm.name.clone(),
            pid: device.pid,
            fd: device.fd,
            tap: device.tap.clone(),
            reason: why.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::options::tests::parse;
    use super::*;
    use crate::inventory::device::tests::sample;

    fn inventory() -> Inventory {
        Inventory {
            devices: vec![
                sample(1, 100, 7, "web", "tap0"),
                sample(2, 100, 8, "web", "tap1"),
                sample(3, 200, 7, "db", "tap2"),
            ],
            notes: Vec::new(),
        }
    }

    fn found(targets: &[&str]) -> Result<Vec<u64>, TargetError> {
        let arguments = [targets, &["--busyloop-rx", "1"]].concat();
        let inventory = inventory();
        let devices = meant(&parse(&arguments).unwrap(), &inventory)?;
        Ok(devices.iter().map(|device| device.net).collect())
    }

    #[test]
    fn a_device_that_is_named_twice_is_meant_once() {
        assert_eq!(found(&["web", "tap1", "100:7"]), Ok(vec![1, 2]));
        assert_eq!(found(&["tap2", "web"]), Ok(vec![3, 1, 2]));
        assert_eq!(found(&["--all"]), Ok(vec![1, 2, 3]));
    }

    #[test]
    fn one_target_that_is_unknown_makes_all_of_them_an_error() {
        let why = found(&["web", "mail"]).unwrap_err();
        assert!(matches!(why, TargetError::Unknown { .. }));
    }
}
