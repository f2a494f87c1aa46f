//! `cargo xtask test`: everything that must hold, on every kernel series.

mod summary;

use std::{io, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};

use self::summary::Summary;
use crate::{
    build::{self, Programs},
    command, lab, module,
    setup::{self, Step},
};

/// For the lab tests on one kernel, and for soaking.
const LIMIT: Duration = Duration::from_secs(25 * 60);
const SOAK_LIMIT: Duration = Duration::from_secs(3 * 60 * 60);

/// Options of `cargo xtask test`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Also the long-running lab tests
    #[arg(long)]
    soak: bool,
    /// Only this part
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Lab tests on this kernel only, written as for `lab run`
    #[arg(long, value_delimiter = ',')]
    kernel: Vec<String>,
    /// How long the lab tests may take on one kernel, in seconds
    #[arg(long, value_name = "SECS")]
    timeout: Option<u64>,
    /// Only tests with this in their name
    filter: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Formatting, clippy, and the kernel's own checks of the module
    Lints,
    /// Tests that need neither root nor a VM
    Unit,
    /// Tests of the lab and in the lab
    Lab,
}

/// Everything that the lab tests use.
const FOR_LAB_TESTS: &[Step] = &[
    Step::LabPackages,
    Step::Qemu,
    Step::TrafficPackages,
    Step::ComparePackages,
    Step::VirtmeNg,
    Step::Guest,
    Step::ModulePackages,
];

/// Runs what was asked for; gives the status to exit with.
pub(crate) fn run(options: &Options) -> Result<i32> {
    let wanted = |part| options.only.is_empty() || options.only.contains(&part);
    let mut summary = Summary::new();
    setup::ensure(setup::FOR_BUILD)?;
    if wanted(Part::Lints) {
        summary.step("format", || {
            command::run(command::cargo().args(["fmt", "--all", "--check"]))
        });
        summary.step("clippy", clippy);
        summary.step("module lints", || module::lint(&kernels(options)));
        // One will do: what differs between kernels, building the modules shows.
        let first = kernels(options).swap_remove(0);
        summary.step(&format!("module by DKMS, Linux {first}"), || {
            module::dkms(&first)
        });
    }
    if wanted(Part::Unit) {
        summary.step("unit tests", || unit(options));
    }
    if wanted(Part::Lab) {
        summary.step("lab set-up", || lab_setup(options));
        // Without the programs there is nothing to test.
        let built = summary.step("lab build", || {
            Ok((Programs::build()?, build::lab_tests()?))
        });
        if let Some((programs, tests)) = built {
            if options.filter.is_none() {
                let kernel = kernels(options).pop().unwrap_or_default();
                summary.step(&format!("lab runner, Linux {kernel}"), || {
                    lab::selftest(&kernel)
                });
            }
            for kernel in kernels(options) {
                // Without them, the tests that need none still have something to say.
                let modules = summary.step(&format!("modules, Linux {kernel}"), || {
                    module::build(&setup::kernel(&kernel)?)
                });
                summary.step(&format!("lab tests, Linux {kernel}"), || {
                    in_lab(options, &kernel, &programs, &tests, modules.as_ref())
                });
            }
        }
    }
    Ok(summary.close())
}

fn kernels(options: &Options) -> Vec<String> {
    if options.kernel.is_empty() {
        setup::SERIES.map(str::to_owned).to_vec()
    } else {
        options.kernel.clone()
    }
}

fn clippy() -> Result<()> {
    let mut cargo = command::cargo();
    cargo
        .args(["clippy", "--workspace", "--exclude", "tuner-ebpf"])
        .args(["--all-targets", "--features", "vhost-tuner/lab"])
        .args(["--", "-D", "warnings"]);
    command::run(&mut cargo)
}

fn unit(options: &Options) -> Result<()> {
    let mut cargo = command::cargo();
    cargo.args(["test", "--workspace", "--exclude", "tuner-ebpf"]);
    if let Some(filter) = &options.filter {
        cargo.arg(filter);
    }
    command::run(&mut cargo)
}

fn lab_setup(options: &Options) -> Result<()> {
    setup::ensure(FOR_LAB_TESTS)?;
    for kernel in kernels(options) {
        setup::kernel(&kernel)?;
    }
    Ok(())
}

/// Boots the kernel once and runs the tests in it.
fn in_lab(
    options: &Options,
    kernel: &str,
    programs: &Programs,
    tests: &Path,
    modules: Option<&module::Built>,
) -> Result<()> {
    let guest = setup::guest()?;
    let mut words = vec![
        tests.to_string_lossy().into_owned(),
        "--test-threads=1".to_owned(),
    ];
    words.extend(options.filter.clone());
    let mut job = lab::Job::new(setup::kernel(kernel)?, words);
    job.timeout = match options.timeout {
        Some(seconds) => Duration::from_secs(seconds),
        None if options.soak => SOAK_LIMIT,
        None => LIMIT,
    };
    job.env = programs.variables();
    let guest = [
        ("VHOST_TUNER_GUEST_KERNEL", guest.kernel),
        ("VHOST_TUNER_GUEST_INITRD", guest.initrd),
    ];
    let modules = modules.map(|built| (module::VARIABLE, built.dir.clone()));
    for (name, path) in guest.into_iter().chain(modules) {
        job.env
            .push((name.to_owned(), path.to_string_lossy().into_owned()));
    }
    if options.soak {
        job.env
            .push(("VHOST_TUNER_SOAK".to_owned(), "1".to_owned()));
    }
    let outcome = lab::run_job(&job, &mut io::stdout(), &mut io::stderr()).context("the VM")?;
    let status = outcome.report(&job);
    ensure!(
        outcome.is_clean(),
        "the tests on Linux {} ended with status {status}{}",
        job.kernel.version,
        if outcome.complaint.is_some() {
            ", and the kernel complained"
        } else {
            ""
        }
    );
    Ok(())
}
