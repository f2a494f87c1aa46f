//! Whether DKMS builds the modules, as it does on a host that gets a new kernel.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{check, check::Kind, lock, make::Subject, stamp, subject};
use crate::{
    command, paths,
    progress::Progress,
    setup::{self, Step},
};

const NAME: &str = "vhost-tuner";

/// Has DKMS build them in a tree of its own, and checks what comes of it.
pub(crate) fn run(wanted: &str) -> Result<()> {
    setup::ensure(&[Step::ModulePackages])?;
    let subject = subject(setup::kernel(wanted)?, None, None)?;
    let version = &subject.kernel.version;
    let progress = Progress::start(&format!("dkms {version}"), "as on a host with a new kernel");
    let out = paths::modules();
    fs::create_dir_all(&out).context("create target/modules")?;
    let _lock = lock(&out, &format!("dkms-{version}"))?;
    let work = out.join(format!("dkms-{version}"));
    let _ = fs::remove_dir_all(&work);
    let made = build(&subject, &work)?;
    let reference = subject.reference(&work)?;
    for kind in &subject.kinds {
        let module = unpacked(&made, *kind, &work)?;
        check::check(&module, *kind, &reference)?;
    }
    let _ = fs::remove_dir_all(&work);
    progress.done(&format!("{} modules", subject.kinds.len()));
    Ok(())
}

/// Builds in `work`; gives the directory that has the modules.
fn build(subject: &Subject, work: &Path) -> Result<PathBuf> {
    let release = release()?;
    let (sources, tree) = (work.join("source"), work.join("tree"));
    fs::create_dir_all(&tree).context("create a directory")?;
    copy(
        &paths::module_source(),
        &sources.join(format!("{NAME}-{release}")),
    )?;
    let version = &subject.kernel.version;
    let mut dkms = Command::new("dkms");
    dkms.arg("build")
        .args(["-m", NAME, "-v", &release, "-k", version])
        .arg("--sourcetree")
        .arg(&sources)
        .arg("--dkmstree")
        .arg(&tree)
        .arg("--kernelsourcedir")
        .arg(&subject.headers.dir)
        .env("VHOST_TUNER_KERNEL_SOURCE", &subject.source)
        .env("VHOST_TUNER_KERNEL_IMAGE", &subject.kernel.image);
    let output = dkms
        .output()
        .with_context(|| format!("cannot start `{}`", command::shown(&dkms)))?;
    let of_module = tree.join(NAME).join(&release);
    if output.status.success() {
        let machine = command::output(Command::new("uname").arg("-m"))?;
        return Ok(of_module.join(version).join(machine.trim()).join("module"));
    }
    let log = fs::read_to_string(of_module.join("build/make.log")).unwrap_or_default();
    bail!(
        "`{}`: {}\n{}{}{log}",
        command::shown(&dkms),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    )
}

/// What `dkms.conf` says.
fn release() -> Result<String> {
    let file = paths::module_source().join("dkms.conf");
    let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    text.lines()
        .find_map(|line| line.strip_prefix("PACKAGE_VERSION="))
        .map(|value| value.trim_matches('"').to_owned())
        .with_context(|| format!("{} has no PACKAGE_VERSION", file.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    for file in stamp::files(from)? {
        let target = to.join(file.strip_prefix(from).context("a file of module/")?);
        if let Some(dir) = target.parent() {
            fs::create_dir_all(dir).context("create a directory")?;
        }
        fs::copy(&file, &target).with_context(|| format!("copy {}", file.display()))?;
    }
    Ok(())
}

/// DKMS packs modules as the kernel's own are.
fn unpacked(made: &Path, kind: Kind, work: &Path) -> Result<PathBuf> {
    let module = made.join(kind.file());
    if module.is_file() {
        return Ok(module);
    }
    let packed = made.join(format!("{}.xz", kind.file()));
    ensure!(
        packed.is_file(),
        "DKMS reported success, but left no {} in {}",
        kind.file(),
        made.display()
    );
    let target = work.join(kind.file());
    let file = fs::File::create(&target).context("unpack a module")?;
    command::run(Command::new("xz").arg("-dc").arg(&packed).stdout(file))?;
    Ok(target)
}
