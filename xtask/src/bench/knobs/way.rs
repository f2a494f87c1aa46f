//! The ways to set the timeouts of a running process.

use std::{
    env,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{
    super::{memory::InMemory, said::changes_by},
    target::Target,
};
use crate::{command, module};

/// VHOST_SET_VRING_BUSYLOOP_TIMEOUT.
const REQUEST: u32 = 0x4008_af23;
/// How long a livepatch may take to come or go, in seconds.
const TRANSITION: &str = "180";

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// `vhost-tuner set` on the stock vhost_net.
    Inject,
    /// gdb's `call`, on the stock vhost_net.
    Gdb,
    /// `vhost-tuner set` under our livepatch.
    Module,
}

impl Way {
    /// All of them, in the order of a round.
    pub(super) const ALL: [Self; 3] = [Self::Inject, Self::Gdb, Self::Module];

    /// As the table calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Inject => "set, by injection",
            Self::Gdb => "gdb's call",
            Self::Module => "set, by the module",
        }
    }
}

/// What a set took, seen from the one who gave the command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    /// The whole command, from its start to its end.
    pub(super) command: Duration,
    /// For how long a thread stood still, in microseconds, as `set` itself says.
    pub(super) reported: Option<f64>,
}

/// The programs it takes.
pub(super) struct Ways {
    tuner: InMemory,
    gdb: InMemory,
    modules: PathBuf,
    livepatched: bool,
}

impl Ways {
    /// With the stock vhost_net at work.
    pub(super) fn new(tuner: InMemory) -> Result<Self> {
        let modules = env::var_os(module::VARIABLE).map(PathBuf::from);
        let modules = modules.with_context(|| {
            format!(
                "{} is not set: this runs inside the lab only",
                module::VARIABLE
            )
        })?;
        let gdb = command::find("gdb").context("gdb is missing")?;
        Ok(Self {
            tuner,
            gdb: InMemory::copy(&gdb)?,
            modules,
            livepatched: false,
        })
    }

    /// Has the livepatch come or go, whichever this way takes.
    pub(super) fn prepare(&mut self, way: Way) -> Result<()> {
        let wanted = way == Way::Module;
        if wanted == self.livepatched {
            return Ok(());
        }
        let mut command = self.tuner.command();
        command.args(["module", if wanted { "livepatch" } else { "revert" }]);
        command.arg("--dir").arg(&self.modules);
        command.args(["--timeout", TRANSITION]);
        command::output(&mut command)?;
        self.livepatched = wanted;
        Ok(())
    }

    /// Sets both rings of the target, in this way.
    pub(super) fn set(&self, way: Way, target: &Target, value: u32) -> Result<Done> {
        let mut command = match way {
            Way::Inject | Way::Module => self.by_tuner(target, value),
            Way::Gdb => self.by_gdb(target, value),
        };
        let start = Instant::now();
        let said = command::output(&mut command)?;
        let took = start.elapsed();
        let reported = match way {
            Way::Inject => {
                let changes = changes_by("inject", &said)?;
                let stopped = changes[0]["stopped_us"].as_f64();
                Some(stopped.with_context(|| format!("no stop time in {said}"))?)
            }
            Way::Module => changes_by("module", &said).map(|_| None)?,
            Way::Gdb => None,
        };
        Ok(Done {
            command: took,
            reported,
        })
    }

    fn by_tuner(&self, target: &Target, value: u32) -> Command {
        let mut command = self.tuner.command();
        let value = value.to_string();
        command
            .args(["set", "--json", &target.pid().to_string()])
            .args(["--busyloop-rx", &value, "--busyloop-tx", &value]);
        command
    }

    /// As one would type it, without anything that gdb could read besides and
    /// that a host may not have: the longer it reads, the longer all stand still.
    fn by_gdb(&self, target: &Target, value: u32) -> Command {
        let mut command = self.gdb.command();
        command
            .args(["-q", "-batch", "-nx"])
            .args(["-iex", "set debug-file-directory /nonexistent"])
            .args(["-iex", "set auto-load off", "-iex", "set language c"])
            .args(["-p", &target.pid().to_string()]);
        for ring in 0..2 {
            // gdb puts the array into memory that it has the target allocate.
            command.arg("-ex").arg(format!(
                "call ((int (*)(int, unsigned long, ...)) ioctl)({}, {REQUEST:#x}, {{{ring}, {value}}})",
                target.fd
            ));
        }
        command
    }

    /// That both rings have this value now, read from kernel memory or through
    /// the module.
    pub(super) fn check(&self, target: &Target, value: u32) -> Result<()> {
        let pid = target.pid().to_string();
        let said = command::output(self.tuner.command().args(["list", "--json", &pid]))?;
        let list: Value = serde_json::from_str(&said).context("parse the output of list")?;
        let rings = list["queues"].as_array().context("no queues in a list")?;
        let right = |ring: &Value| ring["busyloop_timeout_us"] == value;
        ensure!(
            rings.len() == 2 && rings.iter().all(right),
            "{value} was set, and this is what is there: {said}"
        );
        Ok(())
    }
}
