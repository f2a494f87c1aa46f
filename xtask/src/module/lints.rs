//! What the kernel's own tools say of the files in `module/`.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::{lock, make::Subject, parse, stamp, subject};
use crate::{
    command, paths,
    progress::Progress,
    setup::{self, Step},
};

/// checkpatch, then warnings of gcc and sparse on each of these kernels.
pub(crate) fn run(kernels: &[String]) -> Result<()> {
    setup::ensure(&[Step::ModulePackages])?;
    let subjects = kernels
        .iter()
        .map(|wanted| subject(setup::kernel(wanted)?, None, None))
        .collect::<Result<Vec<Subject>>>()?;
    let files: Vec<PathBuf> = stamp::files(&paths::module_source())?
        .into_iter()
        .filter(|file| file.extension().is_some_and(|end| end == "c" || end == "h"))
        .collect();
    let mut wrong = Vec::new();
    // The last one is of the newest series, and its checkpatch knows most.
    if let Some(subject) = subjects.last() {
        wrong.extend(checkpatch(&subject.source, &files)?);
    }
    let names: HashSet<String> = files
        .iter()
        .filter_map(|file| file.file_name())
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    for subject in &subjects {
        wrong.extend(compile(subject, &names)?);
    }
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("{} complaints:\n{}", wrong.len(), wrong.join("\n"))
}

fn checkpatch(source: &Path, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut checkpatch = Command::new("perl");
    checkpatch
        .current_dir(paths::module_source())
        .arg(source.join("scripts/checkpatch.pl"))
        .args(["--no-tree", "--strict", "--terse", "--show-types"])
        .args(["--no-summary", "--color=never"])
        .arg("-f")
        .args(files);
    let output = checkpatch
        .output()
        .with_context(|| format!("cannot start `{}`", command::shown(&checkpatch)))?;
    let (said, errors) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    let complaints: Vec<String> = said
        .lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect();
    // It also exits with 1 where it complains.
    if !output.status.success() && complaints.is_empty() {
        bail!("checkpatch.pl did not run: {}", errors.trim());
    }
    Ok(complaints)
}

/// Builds with all warnings; gives those about our own files.
fn compile(subject: &Subject, names: &HashSet<String>) -> Result<Vec<String>> {
    let version = &subject.kernel.version;
    let progress = Progress::start(
        &format!("module lints {version}"),
        "built with all warnings, and read by sparse",
    );
    let out = paths::modules();
    fs::create_dir_all(&out).context("create target/modules")?;
    let _lock = lock(&out, &format!("lint-{version}"))?;
    let tree = out.join(format!("lint-{version}"));
    subject.prepare(&tree, &progress)?;
    let mut make = subject.make(&tree);
    // A warning must not hide those of the files after it.
    make.args(["W=1", "C=2", "CHECK=sparse", "--keep-going", "modules"]);
    let output = make
        .output()
        .with_context(|| format!("cannot start `{}`", command::shown(&make)))?;
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let wrong: Vec<String> = parse::complaints(&said, names)
        .into_iter()
        .map(|line| format!("Linux {version}: {line}"))
        .collect();
    if !output.status.success() && wrong.is_empty() {
        bail!("`{}`: {}\n{said}", command::shown(&make), output.status);
    }
    let _ = fs::remove_dir_all(&tree);
    progress.done(&format!("{} complaints", wrong.len()));
    Ok(wrong)
}
