//! `cargo xtask setup`: everything that the other commands need, each of which
//! asks for just its own part with [`ensure`].

mod debian;
mod guest;
mod kernels;
mod packages;
mod qemu;
mod sources;
mod tools;

use std::fs::{self, File};

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};

pub(crate) use self::{
    guest::guest,
    kernels::{Kernel, SERIES, resolve as kernel, unpacked as kernel_here},
    qemu::qemu,
    sources::{headers, source},
};
use crate::{paths, progress::Progress};

/// Options of `cargo xtask setup`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only these steps
    #[arg(long, value_enum, value_delimiter = ',', value_name = "STEP")]
    only: Vec<Step>,
}

/// One thing that set-up brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Step {
    /// The Rust compiler that builds the eBPF programs
    EbpfPackages,
    /// QEMU and what the VM needs of this system
    LabPackages,
    /// A QEMU whose emulation withstands probes, under target/qemu if need be
    Qemu,
    /// Third-party traffic: DPDK and iperf3
    TrafficPackages,
    /// What our figures and our cost are compared with
    ComparePackages,
    /// bpf-linker, under target/tools
    BpfLinker,
    /// virtme-ng, under target/venv
    VirtmeNg,
    /// Linux 6.1, under target/kernels
    #[value(name = "kernel-6.1")]
    Kernel61,
    /// Linux 6.12, under target/kernels
    #[value(name = "kernel-6.12")]
    Kernel612,
    /// What building and checking the modules takes
    ModulePackages,
    /// The headers of both kernels, installed
    Headers,
    /// A few files of both kernels' sources, under target/sources
    Sources,
    /// A kernel and an initramfs for the QEMU guest inside the lab
    Guest,
}

/// What the lab itself needs, besides a kernel.
pub(crate) const FOR_LAB: &[Step] = &[Step::LabPackages, Step::Qemu, Step::VirtmeNg];
/// What building the workspace needs.
pub(crate) const FOR_BUILD: &[Step] = &[Step::EbpfPackages, Step::BpfLinker];

impl Step {
    fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn why(self) -> &'static str {
        match self {
            Self::EbpfPackages => {
                "eBPF programs need the compiler's core library as source, which stable Rust lacks"
            }
            Self::LabPackages => "the lab boots real kernels in QEMU over this system's own files",
            Self::Qemu => "emulation before QEMU 8.1 crashes kernels when probes come and go",
            Self::TrafficPackages => "third-party drivers of vhost_net keep our own one honest",
            Self::ComparePackages => "our figures and our cost are compared with others' tools",
            Self::BpfLinker => "links the eBPF programs",
            Self::VirtmeNg => "boots a kernel over this system's files, copy-on-write",
            Self::Kernel61 => "the oldest kernel series that is tested",
            Self::Kernel612 => "the newest kernel series that is tested",
            Self::ModulePackages => "the modules are built from the kernel's own vhost_net",
            Self::Headers => "modules are built against the headers of the very kernel",
            Self::Sources => "the modules are the kernel's own vhost_net with hooks in it",
            Self::Guest => "a real QEMU guest with vhost=on, inside the lab",
        }
    }

    /// What is there already, when nothing is left to do. With `fresh`, a newer
    /// version on offer counts as something to do.
    fn ready(self, fresh: bool) -> Result<Option<String>> {
        match self {
            Self::EbpfPackages => packages::ready(packages::ebpf()),
            Self::LabPackages => packages::ready(packages::LAB),
            Self::Qemu => Ok(qemu::ready(fresh)),
            Self::TrafficPackages => packages::ready(packages::TRAFFIC),
            Self::ComparePackages => packages::ready(packages::COMPARE),
            Self::BpfLinker => tools::bpf_linker_ready(),
            Self::VirtmeNg => tools::virtme_ng_ready(),
            Self::Kernel61 => Ok(kernels::ready("6.1", fresh)),
            Self::Kernel612 => Ok(kernels::ready("6.12", fresh)),
            Self::ModulePackages => packages::ready(packages::MODULE),
            Self::Headers => Ok(sources::ready(sources::headers_ready)),
            Self::Sources => Ok(sources::ready(sources::source_ready)),
            Self::Guest => guest::ready(fresh),
        }
    }

    fn make(self, progress: &Progress) -> Result<String> {
        match self {
            Self::EbpfPackages => packages::install(packages::ebpf(), progress),
            Self::LabPackages => packages::install(packages::LAB, progress),
            Self::Qemu => qemu::make(progress),
            Self::TrafficPackages => packages::install(packages::TRAFFIC, progress),
            Self::ComparePackages => packages::install(packages::COMPARE, progress),
            Self::BpfLinker => tools::install_bpf_linker(progress),
            Self::VirtmeNg => tools::install_virtme_ng(progress),
            Self::Kernel61 => kernels::fetch("6.1", progress),
            Self::Kernel612 => kernels::fetch("6.12", progress),
            Self::ModulePackages => packages::install(packages::MODULE, progress),
            Self::Headers => {
                sources::make(sources::headers_ready, sources::install_headers, progress)
            }
            Self::Sources => sources::make(sources::source_ready, sources::fetch_source, progress),
            Self::Guest => guest::make(progress),
        }
    }
}

/// Runs `cargo xtask setup`.
pub(crate) fn run(options: &Options) -> Result<()> {
    let all = Step::value_variants();
    let wanted = if options.only.is_empty() {
        all
    } else {
        &options.only
    };
    take(wanted, true)
}

/// Takes those of the steps that are still to be taken; says nothing of others.
pub(crate) fn ensure(steps: &[Step]) -> Result<()> {
    take(steps, false)
}

fn take(steps: &[Step], tell_all: bool) -> Result<()> {
    fs::create_dir_all(paths::kept()).context("cannot create target/")?;
    // Two set-ups at once would install the same thing over each other.
    let lock = File::create(paths::kept().join(".setup-lock")).context("set-up lock")?;
    if lock.try_lock().is_err() {
        eprintln!("[setup] another set-up is running in this checkout; waiting for it");
        lock.lock().context("set-up lock")?;
    }
    for &step in steps {
        if let Some(what) = step.ready(tell_all)? {
            if tell_all {
                eprintln!("[{}] there already: {what}", step.name());
            }
            continue;
        }
        let progress = Progress::start(&step.name(), step.why());
        let result = step
            .make(&progress)
            .with_context(|| format!("set-up step {}", step.name()))?;
        progress.done(&result);
    }
    Ok(())
}
