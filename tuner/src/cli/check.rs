//! `vhost-tuner check`.

use std::io::Write;

use anyhow::anyhow;
use clap::Args;
use serde::Serialize;

use super::{Failure, Outcome, Output, write_json};
use crate::inspect::{Kernel, Requirement, requirements};
use crate::probe::{Attached, Probes};

/// Options of `check`.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    output: Output,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    kernel: &'a str,
    can_measure: bool,
    requirements: &'a [Requirement],
    attached: &'a [Attached],
}

/// Says what is there and what is not, and tries to attach: only that shows
/// that this kernel takes the programs.
pub(super) fn run(options: Options) -> Outcome {
    let kernel = Kernel::inspect();
    let mut list = requirements(&kernel);
    let mut attached = Vec::new();
    let mut able = list.iter().all(|r| r.met || !r.essential);
    if able {
        match Probes::attach(&kernel, crate::probe::Options::default()) {
            Ok(probes) => {
                attached = probes.attached();
                list.push(Requirement {
                    name: "attach",
                    met: true,
                    essential: true,
                    sentence: format!("{} programs were attached and let go.", attached.len()),
                });
            }
            Err(why) => {
                able = false;
                list.push(Requirement {
                    name: "attach",
                    met: false,
                    essential: true,
                    sentence: format!("Attaching failed: {why}."),
                });
            }
        }
    }
    let shown = show(&options, &kernel.release, able, &list, &attached);
    if able {
        Ok(shown?)
    } else {
        Err(Failure::Unable(anyhow!(
            "vhost_net cannot be measured on this system (kernel {})",
            kernel.release
        )))
    }
}

fn show(
    options: &Options,
    kernel: &str,
    can_measure: bool,
    list: &[Requirement],
    attached: &[Attached],
) -> anyhow::Result<()> {
    if options.output.is_json() {
        let document = Document {
            schema: 1,
            kernel,
            can_measure,
            requirements: list,
            attached,
        };
        write_json(&document, options.output.json)?;
    } else {
        let mut out = std::io::stdout().lock();
        for requirement in list {
            let mark = match (requirement.met, requirement.essential) {
                (true, _) => "ok",
                (false, true) => "NO",
                (false, false) => "--",
            };
            writeln!(out, "{mark}  {}", requirement.sentence)?;
        }
    }
    Ok(())
}
