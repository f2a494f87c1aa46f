//! `cargo xtask build-module`: vhost_net with the tuner's hooks, as a module in
//! place of the stock one and as a livepatch over it.

mod check;
mod dkms;
mod headers;
mod lints;
mod make;
mod parse;
mod stamp;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use self::{check::Kind, make::Subject};
pub(crate) use self::{
    dkms::run as dkms,
    headers::{Headers, version_of_source},
    lints::run as lint,
};
use crate::{
    command, paths,
    progress::Progress,
    setup::{self, Kernel, Step},
};

/// Tells those inside the VM where the modules for their kernel are.
pub(crate) const VARIABLE: &str = "VHOST_TUNER_MODULES";

/// Options of `cargo xtask build-module`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// A series, a full version, an image, or `running` [default: both series of the lab]
    #[arg(long, value_name = "VERSION", value_delimiter = ',')]
    kernel: Vec<String>,
    /// The top of the kernel's source [default: fetched]
    #[arg(long, value_name = "DIR")]
    kernel_src: Option<PathBuf>,
    /// The kernel's build directory [default: looked for, else installed]
    #[arg(long, value_name = "DIR")]
    headers: Option<PathBuf>,
    /// Put the modules into a directory in here, named after the kernel [default: target/modules]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Modules for one kernel.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    /// Holds both, and what they were made from.
    pub(crate) dir: PathBuf,
    /// `vhost_net.ko`
    pub(crate) replace: PathBuf,
    /// `livepatch-vhost-net.ko`, where the kernel takes livepatches.
    pub(crate) livepatch: Option<PathBuf>,
}

/// Builds what was asked for, and prints where it is.
pub(crate) fn run(options: &Options) -> Result<()> {
    let wanted = if options.kernel.is_empty() {
        setup::SERIES.map(str::to_owned).to_vec()
    } else {
        options.kernel.clone()
    };
    ensure!(
        wanted.len() == 1 || (options.kernel_src.is_none() && options.headers.is_none()),
        "--kernel-src and --headers are of one kernel: name it with --kernel"
    );
    setup::ensure(&[Step::ModulePackages])?;
    let out = options.out.clone().unwrap_or_else(paths::modules);
    for wanted in wanted {
        let kernel = kernel(&wanted, options)?;
        let subject = subject(
            kernel,
            options.headers.as_deref(),
            options.kernel_src.as_deref(),
        )?;
        let built = build_in(&subject, &out)?;
        println!("{}", built.replace.display());
        match built.livepatch {
            Some(livepatch) => println!("{}", livepatch.display()),
            None => eprintln!(
                "Linux {} takes no livepatches (CONFIG_LIVEPATCH is not set): only vhost_net.ko \
                 was built, which can be loaded while no VM uses the stock one",
                subject.kernel.version
            ),
        }
    }
    Ok(())
}

/// Builds the modules for a kernel, if they are not there yet.
pub(crate) fn build(kernel: &Kernel) -> Result<Built> {
    setup::ensure(&[Step::ModulePackages])?;
    build_in(&subject(kernel.clone(), None, None)?, &paths::modules())
}

/// The kernel that is meant. Only one that nothing is known of is fetched.
fn kernel(wanted: &str, options: &Options) -> Result<Kernel> {
    let installed = |version: String| Kernel {
        image: Path::new("/boot").join(format!("vmlinuz-{version}")),
        version,
    };
    if wanted == "running" {
        return Ok(installed(make::running_version()?));
    }
    let here = options.headers.is_some() || Headers::place(wanted).is_some();
    if here && !wanted.contains('/') && setup::kernel_here(wanted).is_none() {
        return Ok(installed(wanted.to_owned()));
    }
    setup::kernel(wanted)
}

fn subject(kernel: Kernel, headers: Option<&Path>, source: Option<&Path>) -> Result<Subject> {
    let version = &kernel.version;
    let headers = match headers {
        Some(dir) => dir.to_owned(),
        None => setup::headers(version).with_context(|| format!("headers of Linux {version}"))?,
    };
    let source = match source {
        Some(dir) => dir.to_owned(),
        None => setup::source(version).with_context(|| format!("source of Linux {version}"))?,
    };
    Subject::of(kernel, &headers, &source)
}

fn build_in(subject: &Subject, out: &Path) -> Result<Built> {
    let version = &subject.kernel.version;
    fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    let out = out.canonicalize().context("the output directory")?;
    let dir = out.join(version);
    let built = Built {
        replace: dir.join(Kind::Replacement.file()),
        livepatch: subject
            .kinds
            .contains(&Kind::Livepatch)
            .then(|| dir.join(Kind::Livepatch.file())),
        dir,
    };
    let _lock = lock(&out, version)?;
    let (made_from, mark) = (stamp::stamp(subject)?, built.dir.join("made-from"));
    let there = subject
        .kinds
        .iter()
        .all(|kind| built.dir.join(kind.file()).is_file());
    if there && fs::read_to_string(&mark).is_ok_and(|mark| mark == made_from) {
        return Ok(built);
    }
    // A failure must not leave modules of other sources behind.
    let _ = fs::remove_dir_all(&built.dir);
    let progress = Progress::start(&format!("modules {version}"), "built from the kernel's own");
    make_all(subject, &built.dir, &progress)?;
    fs::write(&mark, made_from).context("note what the modules were made from")?;
    progress.done(&built.dir.display().to_string());
    Ok(built)
}

/// Two builds at once would remove each other's files.
fn lock(out: &Path, version: &str) -> Result<File> {
    let lock = File::create(out.join(format!(".{version}.lock"))).context("the modules' lock")?;
    lock.lock().context("the modules' lock")?;
    Ok(lock)
}

fn make_all(subject: &Subject, dir: &Path, progress: &Progress) -> Result<()> {
    let tree = dir.join("build");
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    if let Some(remark) = subject.compiler.remark(&subject.headers) {
        progress.say(&remark);
    }
    subject.prepare(&tree, progress)?;
    progress.run(subject.make(&tree).arg("modules"))?;
    let work = dir.join("compared-with");
    fs::create_dir_all(&work).context("create a directory")?;
    let reference = subject.reference(&work)?;
    let mut finished = Vec::new();
    for &kind in &subject.kinds {
        let built = tree.join(kind.built());
        ensure!(
            built.is_file(),
            "the build went well, but made no {}: see the Kbuild files in {}",
            kind.built(),
            tree.display()
        );
        subject.add_types(&built, &reference.types)?;
        // Debug information is ten times the rest; .BTF stays.
        let stripped = work.join(kind.file());
        command::output(
            Command::new("objcopy")
                .arg("--strip-debug")
                .args([&built, &stripped]),
        )?;
        check::check(&stripped, kind, &reference)?;
        finished.push((stripped, dir.join(kind.file())));
    }
    for (from, to) in finished {
        fs::rename(from, to).context("move a module into place")?;
    }
    Ok(())
}
