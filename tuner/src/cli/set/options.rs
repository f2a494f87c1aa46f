//! The command line of `set`.

use anyhow::{Result, ensure};
use clap::Args;
use tuner_common::module::TX_BATCHED_MAX;

use crate::cli::Output;
use crate::cli::turning::Place;
use crate::knob;
use crate::knob::busyloop::{LONGEST_FORCED_US, LONGEST_US};
use crate::knob::module::{Change, Setting};

/// Options of `set`.
#[derive(Debug, Args)]
#[group(
    id = "what",
    required = true,
    multiple = true,
    args = ["busyloop_rx", "busyloop_tx", "tx_batched", "poll_peer"]
)]
pub(in crate::cli) struct Options {
    /// VMs' names, pids, taps or pid:fd.
    #[arg(value_name = "TARGET", required_unless_present = "all")]
    pub(super) targets: Vec<String>,
    /// Every vhost-net device of this host.
    #[arg(long, conflicts_with = "targets")]
    pub(super) all: bool,
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
    /// Set timeouts of more than 10000 µs too, up to 1000000.
    #[arg(long)]
    force: bool,
    /// Say what would be changed and change nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    #[command(flatten)]
    pub(super) place: Place,
    #[command(flatten)]
    pub(super) output: Output,
}

impl Options {
    /// What is asked.
    ///
    /// # Errors
    /// If it is too much for not being forced.
    pub(super) fn change(&self) -> Result<Change> {
        ensure!(
            self.force || self.longest() <= LONGEST_US,
            "a timeout of {} µs has a worker burn its CPU for that long on an empty ring; above \
             {LONGEST_US} µs that takes --force",
            self.longest()
        );
        Ok(Change {
            busyloop: knob::Change {
                rx: self.busyloop_rx,
                tx: self.busyloop_tx,
            },
            tx_batched: self.tx_batched,
            poll_peer: self.poll_peer,
        })
    }

    /// The longer one of the timeouts.
    pub(super) fn longest(&self) -> u32 {
        let timeouts = [self.busyloop_rx, self.busyloop_tx];
        timeouts.into_iter().flatten().max().unwrap_or(0)
    }
}

fn timeout() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(0..=i64::from(LONGEST_FORCED_US))
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

#[cfg(test)]
pub(super) mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    /// Options as given on the command line.
    pub(in crate::cli::set) fn parse(arguments: &[&str]) -> Result<Options, clap::Error> {
        let all = ["set"].iter().chain(arguments);
        Ok(Cli::try_parse_from(all)?.options)
    }

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
    fn targets_or_all_and_something_to_set() {
        assert!(parse(&["a", "b", "--busyloop-rx", "1"]).is_ok());
        assert!(parse(&["--all", "--busyloop-rx", "1"]).is_ok());
        for wrong in [
            &["--busyloop-rx", "1"][..],
            &["a", "--all", "--busyloop-rx", "1"],
            &["a"],
            &["--all"],
            &["a", "--busyloop-rx", "1000001", "--force"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn long_timeouts_take_force() {
        let long = ["a", "--busyloop-rx", "5", "--busyloop-tx", "10001"];
        let why = parse(&long).unwrap().change().unwrap_err().to_string();
        assert!(why.contains("--force") && why.contains("10001"), "{why}");
        let forced = parse(&[&long[..], &["--force"]].concat()).unwrap();
        assert_eq!(forced.change().unwrap().busyloop.tx, Some(10_001));
        let longest = ["a", "--busyloop-tx", "10000"];
        assert!(parse(&longest).unwrap().change().is_ok());
    }
}
