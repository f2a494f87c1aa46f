//! `cargo xtask bench headline`: what `poll_peer` and `tx_batched` bring.

mod bridge;
mod caveats;
mod inside;
mod roundtrips;
mod session;
mod setting;
mod table;
mod workload;

use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum as _};

/// `headline-inside`: the part that runs in the VM.
pub(crate) use self::inside::run as run_inside;
use self::workload::Name;
use super::boot::Inside;
use crate::setup::Step;

/// Options of `bench headline`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Kernel to measure on, written as for `lab run`
    #[arg(long, default_value = "6.12")]
    kernel: String,
    #[command(flatten)]
    plan: Plan,
}

/// How much to measure.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// Rounds, each with every setting of a workload
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=1000))]
    rounds: u32,
    /// Length of a phase in seconds
    #[arg(long, default_value_t = 2.0, value_name = "SECS")]
    phase: f64,
    /// Only these workloads
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WORKLOAD")]
    only: Vec<Name>,
}

impl Plan {
    /// Whether a workload is asked for.
    fn has(&self, name: Name) -> bool {
        self.only.is_empty() || self.only.contains(&name)
    }

    /// As arguments of [`run_inside`].
    fn words(&self) -> Vec<String> {
        let mut words = vec![
            format!("--rounds={}", self.rounds),
            format!("--phase={}", self.phase),
        ];
        words.extend(
            self.only
                .iter()
                .map(|name| format!("--only={}", name.shown())),
        );
        words
    }

    /// More than it takes on a machine that is busy otherwise.
    fn limit(&self) -> Duration {
        let workloads = Name::value_variants()
            .iter()
            .filter(|name| self.has(**name));
        // Three settings a round, each of which may take a while to turn to.
        let rounds = f64::from(self.rounds) * 3.0 * (self.phase + 10.0);
        let each = Duration::from_secs_f64(rounds) + Duration::from_secs(180);
        each * u32::try_from(workloads.count()).unwrap_or(u32::MAX)
    }
}

const NEEDED: &[Step] = &[
    Step::LabPackages,
    Step::Qemu,
    Step::TrafficPackages,
    Step::VirtmeNg,
];

/// Boots the lab and measures in it; gives the status to exit with.
pub(super) fn run(options: &Options) -> Result<i32> {
    Inside {
        kernel: &options.kernel,
        command: "headline-inside",
        words: options.plan.words(),
        limit: options.plan.limit(),
        modules: true,
    }
    .run(NEEDED)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        plan: Plan,
    }

    #[test]
    fn the_plan_reaches_the_vm() {
        let given = ["x", "--rounds=3", "--phase=0.5", "--only=tcp,echo"];
        let plan = Cli::parse_from(given).plan;
        let words = [vec!["x".to_owned()], plan.words()].concat();
        let there = Cli::parse_from(words).plan;
        assert_eq!(there.rounds, 3);
        assert!((there.phase - 0.5).abs() < 1e-12);
        assert_eq!(there.only, [Name::Tcp, Name::Echo]);
        assert!(there.has(Name::Echo) && !there.has(Name::Flood));
    }
}
