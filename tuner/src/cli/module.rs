//! `vhost-tuner module`.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::table::Table;
use super::{Failure, Outcome as CliOutcome, Output, write_json};
use crate::module::act::{self, Order, Outcome, Report};
use crate::module::status::{FileStatus, Status, status};
use crate::module::transition::Progress;

/// Options of `module`.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What is loaded, who uses it, and which files fit this kernel.
    Status {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        output: Output,
    },
    /// Load our vhost_net in place of the distribution's, while no VM uses it.
    Load {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        output: Output,
    },
    /// Patch the running vhost_net, with all VMs going on.
    Livepatch {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        time: Time,
        #[command(flatten)]
        output: Output,
    },
    /// Bring the distribution's vhost_net back.
    Revert {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        time: Time,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Debug, Args)]
struct Place {
    /// Where the built modules are, if not in the usual places.
    #[arg(long)]
    dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Time {
    /// Seconds that the transition may take.
    #[arg(long, value_name = "SEC", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

impl Options {
    /// True if the command only shows something.
    pub(super) fn reading(&self) -> bool {
        matches!(self.command, Command::Status { .. })
    }
}

#[derive(Serialize)]
struct Document<'a, T> {
    schema: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'static str>,
    #[serde(flatten)]
    what: &'a T,
}

/// Does what was asked.
pub(super) fn run(options: Options) -> CliOutcome {
    // A signal must not end this program between taking one module out and
    // putting the other in, nor half way through a transition.
    let (name, place, time, output) = match options.command {
        Command::Status { place, output } => return Ok(show_status(place, output)?),
        Command::Load { place, output } => ("load", place, Time { timeout: 60 }, output),
        Command::Livepatch {
            place,
            time,
            output,
        } => ("livepatch", place, time, output),
        Command::Revert {
            place,
            time,
            output,
        } => ("revert", place, time, output),
    };
    let stop = super::signals::deferred()?;
    let mut order = Order {
        dir: place.dir,
        timeout: Duration::from_secs(time.timeout),
        stop: &stop,
        progress: Progress::default(),
    };
    let report = match name {
        "load" => act::load(&order),
        "livepatch" => act::livepatch(&mut order),
        _ => act::revert(&mut order),
    };
    let shown = show_report(name, &report, output);
    match report.outcome {
        Outcome::Done | Outcome::Already => Ok(shown?),
        Outcome::Refused | Outcome::Undone | Outcome::Failed => {
            let why = anyhow!(report.sentence);
            Err(if report.unable {
                Failure::Unable(why)
            } else {
                Failure::Failed(why)
            })
        }
    }
}

fn show_report(command: &'static str, report: &Report, output: Output) -> anyhow::Result<()> {
    if output.is_json() {
        let document = Document {
            schema: 1,
            command: Some(command),
            what: report,
        };
        return write_json(&document, output.json);
    }
    if matches!(report.outcome, Outcome::Done | Outcome::Already) {
        writeln!(std::io::stdout(), "{}", report.sentence).context("standard output")?;
    }
    Ok(())
}

fn show_status(place: Place, output: Output) -> anyhow::Result<()> {
    let status = status(place.dir.as_deref());
    if output.is_json() {
        let document = Document {
            schema: 1,
            command: None,
            what: &status,
        };
        return write_json(&document, output.json);
    }
    let mut out = std::io::stdout().lock();
    print(&status, &mut out)?;
    out.flush()?;
    Ok(())
}

fn print(status: &Status, out: &mut impl Write) -> anyhow::Result<()> {
    writeln!(out, "{:<11} {}", "state", status.state.as_str())?;
    writeln!(out, "{:<11} {}", "", status.state.sentence())?;
    writeln!(out, "{:<11} {}", "kernel", kernel(status))?;
    if let Some(parameters) = status.parameters {
        let cap = parameters
            .tx_batched
            .map_or("–".to_owned(), |n| n.to_string());
        let peer = match parameters.poll_peer {
            Some(true) => "on",
            Some(false) => "off",
            None => "–",
        };
        writeln!(
            out,
            "{:<11} tx_batched {cap}, poll_peer {peer}",
            "parameters"
        )?;
    }
    if let Some(zero_copy) = status.zero_copy {
        let word = if zero_copy { "on" } else { "off" };
        writeln!(out, "{:<11} {word}", "zero copy")?;
    }
    writeln!(out, "{:<11} {}", "vhost_net", file(&status.replacement))?;
    writeln!(out, "{:<11} {}", "livepatch", file(&status.livepatch))?;
    for command in &status.commands {
        let word = match (&command.reason, command.possible) {
            (Some(reason), true) => reason.clone(),
            (None, true) => "possible".to_owned(),
            (reason, false) => format!("refused: {}", reason.as_deref().unwrap_or("–")),
        };
        writeln!(out, "{:<11} {word}", format!("› {}", command.command))?;
    }
    for task in &status.waiting {
        writeln!(out, "{:<11} {task}", "waits for")?;
    }
    let references = status.references.map_or(String::new(), |n| {
        format!(" ({n} reference{})", if n == 1 { "" } else { "s" })
    });
    writeln!(out, "{:<11} {}{references}", "users", status.users.len())?;
    if status.hidden_processes > 0 {
        let hidden = status.hidden_processes;
        log::warn!("{hidden} processes are hidden from this user, who may be users too");
    }
    if status.users.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&[("VM", true), ("VMM", true), ("PID", false), ("FD", false)]);
    for user in &status.users {
        table.row(vec![
            user.vm.clone(),
            user.vmm.to_owned(),
            user.pid.to_string(),
            user.fd.to_string(),
        ]);
    }
    table.write(out)?;
    Ok(())
}

fn kernel(status: &Status) -> String {
    format!(
        "{}, lockdown {}, {}, {}",
        status.kernel,
        status.lockdown.as_deref().unwrap_or("not there"),
        match (status.modules, status.signature_demanded) {
            (false, _) => "takes no modules",
            (true, true) => "takes signed modules only",
            (true, false) => "takes unsigned modules",
        },
        if status.livepatch_supported {
            "can be patched live"
        } else {
            "cannot be patched live"
        }
    )
}

fn file(file: &FileStatus) -> String {
    let Some(path) = &file.path else {
        return "no file for this kernel was found".to_owned();
    };
    let path = path.display();
    let signed = match file.signed {
        Some(true) => ", signed",
        Some(false) => ", not signed",
        None => "",
    };
    match &file.problem {
        None => format!("{path} fits this kernel{signed}"),
        Some(problem) => format!("{path} does not fit{signed}: {problem}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::module::state::{Parameters, State, User};
    use crate::module::status::CommandStatus;

    fn sample() -> Status {
        let file = |fits, problem: Option<&str>| FileStatus {
            path: Some(PathBuf::from("/m/x.ko")),
            fits,
            signed: Some(false),
            problem: problem.map(str::to_owned),
        };
        Status {
            kernel: "6.1.0".to_owned(),
            modules: true,
            state: State::Livepatched,
            users: vec![User {
                vm: "web".to_owned(),
                vmm: "qemu",
                pid: 100,
                fd: 30,
            }],
            hidden_processes: 0,
            references: Some(1),
            parameters: Some(Parameters {
                tx_batched: Some(64),
                poll_peer: Some(true),
            }),
            zero_copy: Some(false),
            waiting: Vec::new(),
            livepatch_supported: true,
            lockdown: Some("none".to_owned()),
            signature_demanded: false,
            replacement: file(true, None),
            livepatch: file(false, Some("it is old")),
            commands: vec![CommandStatus {
                command: "load",
                possible: false,
                reason: Some("it is in use".to_owned()),
            }],
        }
    }

    #[test]
    fn status_is_plain_text_with_a_table_of_users() {
        let mut out = Vec::new();
        print(&sample(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for line in [
            "state       livepatched",
            "kernel      6.1.0, lockdown none, takes unsigned modules, can be patched live",
            "parameters  tx_batched 64, poll_peer on",
            "vhost_net   /m/x.ko fits this kernel, not signed",
            "livepatch   /m/x.ko does not fit, not signed: it is old",
            "› load      refused: it is in use",
            "users       1 (1 reference)",
            "web qemu 100 30",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }

    #[test]
    fn status_as_json_has_its_schema_and_names() {
        let status = sample();
        let document = Document {
            schema: 1,
            command: None,
            what: &status,
        };
        let value = serde_json::to_value(&document).unwrap();
        assert_eq!(value["schema"], 1);
        assert_eq!(value["state"], "livepatched");
        assert_eq!(value["parameters"]["tx_batched"], 64);
        assert_eq!(value["users"][0]["fd"], 30);
        assert!(value.get("command").is_none());
    }
}
