//! The kernel module, in both of its forms.

mod cap;
mod devices;
mod ioctl;
mod livepatch;
mod load;
mod peer;
mod stock;
mod truth;

use std::env;
use std::path::PathBuf;

use tuner_common::module::{Counters, Knobs};
use tuner_common::queue::{RX, TX};
use vhost_tuner::inventory::proc::ProcStat;
use vhost_tuner::knob::module::{Change, Handle, Presence};

use crate::support::{Lab, tuner_json, tuner_output};

/// Folder of the modules that were built for this kernel.
pub(crate) fn folder() -> String {
    let name = "VHOST_TUNER_MODULES";
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run by `cargo xtask test`"))
}

/// Path of one of the modules.
pub(crate) fn file(name: &str) -> String {
    let path = PathBuf::from(folder()).join(name);
    path.to_string_lossy().into_owned()
}

/// Our module in one of its forms; the stock one is back when it is dropped.
pub(crate) struct Module {
    /// Its name in /sys/module.
    name: &'static str,
}

impl Module {
    /// Takes the place of the stock module.
    pub(crate) fn replacing() -> Self {
        tuner_json(&["module", "load", "--dir", &folder(), "--json"]);
        Self { name: "vhost_net" }
    }

    /// Patches the stock module.
    pub(crate) fn livepatching() -> Self {
        tuner_json(&["module", "livepatch", "--dir", &folder(), "--json"]);
        Self {
            name: "livepatch_vhost_net",
        }
    }

    /// Path of a parameter.
    fn parameter(&self, parameter: &str) -> String {
        format!("/sys/module/{}/parameters/{parameter}", self.name)
    }

    /// What a parameter says.
    pub(crate) fn get(&self, parameter: &str) -> String {
        let text = std::fs::read_to_string(self.parameter(parameter)).unwrap();
        text.trim().to_owned()
    }

    /// Writes a parameter.
    pub(crate) fn put(&self, parameter: &str, value: &str) -> std::io::Result<()> {
        std::fs::write(self.parameter(parameter), value)
    }

    /// Goes back to stock, where that has to work.
    pub(crate) fn revert(self) {
        tuner_json(&["module", "revert", "--json"]);
        std::mem::forget(self);
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let output = tuner_output(&["module", "revert"]);
        if !output.status.success() {
            // Also called while a test is failing already.
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// A handle on a descriptor of a process.
pub(crate) fn handle(pid: &str, fd: u64) -> Handle {
    let pid: u32 = pid.parse().unwrap();
    let start = ProcStat::of_process(pid.cast_signed()).unwrap().start_time;
    Handle::open(Presence::find(), pid, fd.try_into().unwrap(), start).unwrap()
}

/// What the module counted for a device: receive and transmit ring.
pub(crate) fn counters(lab: &Lab, fd: u64) -> [Counters; 2] {
    let handle = handle(&lab.pid(), fd);
    [RX, TX].map(|direction| handle.counters(direction).unwrap())
}

/// Knobs of a device, after a change if there is one.
pub(crate) fn knobs(lab: &Lab, fd: u64, change: Option<&Change>) -> Knobs {
    let handle = handle(&lab.pid(), fd);
    match change {
        Some(change) => handle.set(change).unwrap(),
        None => handle.knobs().unwrap(),
    }
}

/// How many rounds of something: few, or as many as the soak test does.
pub(crate) fn rounds(few: u32, soak: u32) -> u32 {
    if env::var_os("VHOST_TUNER_SOAK").is_some() {
        soak
    } else {
        few
    }
}
