//! What is compared, and turning to it while traffic runs.

use std::{env, fs, path::PathBuf, process::Command};

use anyhow::{Context as _, Result};

use super::super::{memory::InMemory, said::changes_by};
use crate::{command, module};

const PARAMETERS: &str = "/sys/module/vhost_net/parameters";

/// Values of all knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) name: &'static str,
    poll_peer: bool,
    tx_batched: u32,
    /// Of both rings.
    busyloop: u32,
}

impl Setting {
    /// Busy polling, with or without a look at the other direction.
    pub(super) const fn polling(name: &'static str, busyloop: u32, poll_peer: bool) -> Self {
        Self {
            name,
            poll_peer,
            tx_batched: 64,
            busyloop,
        }
    }

    /// No polls, and at most so many packets handed over together.
    pub(super) const fn batching(name: &'static str, tx_batched: u32) -> Self {
        Self {
            name,
            poll_peer: true,
            tx_batched,
            busyloop: 0,
        }
    }
}

/// Turns the knobs of one process at a time.
pub(super) struct Knobs {
    tuner: InMemory,
    /// The process whose timeouts were set last, and to what.
    timeouts: Option<(u32, u32)>,
}

impl Knobs {
    /// Puts our module in the stock one's place, which only works as long as
    /// nothing uses vhost_net.
    pub(super) fn install(tuner: InMemory) -> Result<Self> {
        let dir = env::var_os(module::VARIABLE)
            .map(PathBuf::from)
            .with_context(|| {
                format!(
                    "{} is not set: this runs inside the lab only",
                    module::VARIABLE
                )
            })?;
        command::run(Command::new("rmmod").arg("vhost_net"))
            .context("take the stock vhost_net away")?;
        command::run(Command::new("insmod").arg(dir.join("vhost_net.ko")))
            .context("put the module in place of the stock one")?;
        Ok(Self {
            tuner,
            timeouts: None,
        })
    }

    /// Turns them for a running process.
    pub(super) fn turn(&mut self, pid: u32, setting: &Setting) -> Result<()> {
        put("poll_peer", if setting.poll_peer { "Y" } else { "N" })?;
        put("tx_batched", &setting.tx_batched.to_string())?;
        let timeouts = Some((pid, setting.busyloop));
        if self.timeouts != timeouts {
            self.set_timeouts(pid, setting.busyloop)?;
            self.timeouts = timeouts;
        }
        Ok(())
    }

    fn set_timeouts(&self, pid: u32, busyloop: u32) -> Result<()> {
        let value = busyloop.to_string();
        let said = command::output(
            self.tuner
                .command()
                .args(["set", "--json", &pid.to_string()])
                .args(["--busyloop-rx", &value, "--busyloop-tx", &value]),
        )?;
        changes_by("module", &said).map(|_| ())
    }
}

fn put(parameter: &str, value: &str) -> Result<()> {
    let file = format!("{PARAMETERS}/{parameter}");
    fs::write(&file, value).with_context(|| {
        format!("write {value} to {file}: is the vhost_net that runs vhost-tuner's own?")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_one_comparison_differ_in_one_knob() {
        let on = Setting::polling("", 100, true);
        let off = Setting::polling("", 100, false);
        assert_eq!(
            Setting {
                poll_peer: false,
                ..on
            },
            off
        );
        let one = Setting::batching("", 1);
        assert_eq!(
            Setting {
                tx_batched: 64,
                ..one
            },
            Setting::polling("", 0, true)
        );
    }
}
