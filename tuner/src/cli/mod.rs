//! The commands. Data goes to standard output, everything else to standard
//! error.

mod check;
mod limits;
mod list;
mod module;
mod set;
mod signals;
mod simulate;
mod stat;
mod table;
mod turning;
mod undo;
mod watch;

use std::io::{BufWriter, StdoutLock, Write};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// Sees and turns vhost_net on a running host.
#[derive(Debug, Parser)]
#[command(name = "vhost-tuner", version, about)]
struct Cli {
    /// Say more on standard error; twice for everything.
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// One sentence for each thing that measuring needs.
    Check(check::Options),
    /// VMs, devices, queues, workers, taps and what is set.
    List(list::Options),
    /// Figures of every queue, interval by interval.
    Stat(stat::Options),
    /// Changes what is set on running VMs.
    Set(set::Options),
    /// Puts back what was set before vhost-tuner changed it.
    Undo(undo::Options),
    /// Compares ways to choose busyloop timeouts on simulated traffic.
    Simulate(simulate::Options),
    /// Brings our kernel module in and out, and says what is loaded.
    Module(module::Options),
}

/// How a reading command writes.
#[derive(Clone, Copy, Debug, Args)]
struct Output {
    /// One JSON document.
    #[arg(long, conflicts_with = "json_lines")]
    json: bool,
    /// One JSON document a line.
    #[arg(long)]
    json_lines: bool,
}

impl Output {
    fn is_json(self) -> bool {
        self.json || self.json_lines
    }
}

/// How a command ended, by its exit code.
#[derive(Debug)]
enum Failure {
    /// It failed (1).
    Failed(anyhow::Error),
    /// The command line is wrong (2).
    Usage(anyhow::Error),
    /// This system cannot do it (3).
    Unable(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

type Outcome = Result<(), Failure>;

/// Runs the command line.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    limits::raise_open_files();
    let wanted = matches!(&cli.command, Command::Stat(options) if options.debug_probes);
    let verbose = cli.verbose.max(u8::from(wanted));
    let level = ["warn", "info", "debug"][usize::from(verbose.min(2))];
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level))
        .format_timestamp(None)
        .init();
    // Only what is there to be read goes down with its reader.
    let reading = match &cli.command {
        Command::List(_) | Command::Stat(_) | Command::Simulate(_) => true,
        Command::Module(options) => options.reading(),
        _ => false,
    };
    let outcome = match cli.command {
        Command::Check(options) => check::run(options),
        Command::List(options) => list::run(options),
        Command::Stat(options) => stat::run(options),
        Command::Set(options) => set::run(options),
        Command::Undo(options) => undo::run(options),
        Command::Simulate(options) => simulate::run(options),
        Command::Module(options) => module::run(options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output has seen enough.
        Err(Failure::Failed(error)) if reading && is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(Failure::Failed(error)) => end(&error, 1),
        Err(Failure::Usage(error)) => end(&error, 2),
        Err(Failure::Unable(error)) => end(&error, 3),
    }
}

fn end(error: &anyhow::Error, code: u8) -> ExitCode {
    complain(&format!("{error:#}"));
    ExitCode::from(code)
}

/// Says on standard error what went wrong.
fn complain(sentence: &str) {
    // Nothing is left to be done where it is closed.
    let _ = writeln!(std::io::stderr(), "vhost-tuner: {sentence}");
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = cause
            .downcast_ref::<std::io::Error>()
            .map(std::io::Error::kind);
        let json = cause
            .downcast_ref::<serde_json::Error>()
            .and_then(serde_json::Error::io_error_kind);
        io.or(json) == Some(std::io::ErrorKind::BrokenPipe)
    })
}

/// Standard output for what has many lines: by itself it makes a system call
/// for each of them. It has to be flushed.
fn output() -> BufWriter<StdoutLock<'static>> {
    BufWriter::with_capacity(64 * 1024, std::io::stdout().lock())
}

/// Writes a document and a newline.
fn write_json<T: serde::Serialize>(value: &T, pretty: bool) -> anyhow::Result<()> {
    let mut out = output();
    if pretty {
        serde_json::to_writer_pretty(&mut out, value)?;
    } else {
        serde_json::to_writer(&mut out, value)?;
    }
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}
