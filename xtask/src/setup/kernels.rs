//! Distribution kernels, unpacked under `target/kernels/VERSION` and never
//! installed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::debian;
use crate::{command, paths, progress::Progress};

/// The series that tests run on, oldest first.
pub(crate) const SERIES: [&str; 2] = ["6.1", "6.12"];

/// A kernel that can be booted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    /// What `uname -r` says in it.
    pub(crate) version: String,
    /// The bootable file, with `lib/modules/VERSION` two levels up.
    pub(crate) image: PathBuf,
}

/// Finds the kernel that a person means: a series (`6.12`), a full version, a
/// bootable file or a directory of an unpacked package. Fetches it if need be.
pub(crate) fn resolve(wanted: &str) -> Result<Kernel> {
    if wanted.contains('/') {
        return from_path(Path::new(wanted));
    }
    if let Some(kernel) = unpacked(wanted) {
        return Ok(kernel);
    }
    let progress = Progress::start(&format!("kernel {wanted}"), "asked for, and not here yet");
    let result = fetch(wanted, &progress)?;
    progress.done(&result);
    unpacked(wanted).with_context(|| format!("no kernel {wanted}"))
}

fn from_path(path: &Path) -> Result<Kernel> {
    let path = path
        .canonicalize()
        .with_context(|| format!("no kernel at {}", path.display()))?;
    if path.is_dir() {
        return in_dir(&path).with_context(|| format!("no boot/vmlinuz-* in {}", path.display()));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let version = name.strip_prefix("vmlinuz-").unwrap_or(&name).to_owned();
    Ok(Kernel {
        version,
        image: path,
    })
}

fn in_dir(dir: &Path) -> Option<Kernel> {
    let mut images: Vec<PathBuf> = fs::read_dir(dir.join("boot"))
        .ok()?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .collect();
    images.sort();
    images.into_iter().find_map(|image| {
        let version = image
            .file_name()?
            .to_str()?
            .strip_prefix("vmlinuz-")?
            .to_owned();
        Some(Kernel { version, image })
    })
}

/// The newest kernel here that is of this series, or is this very version.
pub(crate) fn unpacked(wanted: &str) -> Option<Kernel> {
    let dirs = fs::read_dir(paths::kernels()).ok()?;
    dirs.filter_map(Result::ok)
        .filter_map(|entry| in_dir(&entry.path()))
        .filter(|kernel| answers(&kernel.version, wanted))
        .max_by_key(|kernel| numbers(&kernel.version))
}

/// Whether a version is what was asked for. A series is the plain flavour;
/// `SERIES-cloud` and the like are the others.
fn answers(version: &str, wanted: &str) -> bool {
    let (series, flavour) = wanted.split_once('-').unwrap_or((wanted, ""));
    version == wanted
        || (version.starts_with(&format!("{series}."))
            && flavour_of(version) == flavour
            && series.matches('.').count() == 1)
}

fn flavour_of(version: &str) -> &str {
    ["cloud", "rt"]
        .into_iter()
        .find(|flavour| version.contains(&format!("-{flavour}-")))
        .unwrap_or("")
}

/// For ordering: 6.1.0-9 comes before 6.1.0-57.
fn numbers(version: &str) -> Vec<u64> {
    version
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect()
}

/// The package on offer for what was asked for.
fn package(wanted: &str) -> Option<String> {
    let (series, flavour) = wanted.split_once('-').unwrap_or((wanted, ""));
    let end = if flavour.is_empty() {
        "amd64".to_owned()
    } else {
        format!("{flavour}-amd64")
    };
    [
        format!("linux-image-{series}-{end}"),
        format!("linux-image-{end}"),
    ]
    .iter()
    .filter_map(|meta| debian::depends(meta))
    .chain([format!("linux-image-{wanted}")])
    .map(|package| package.trim_end_matches("-unsigned").to_owned())
    .find(|package| {
        package
            .strip_prefix("linux-image-")
            .is_some_and(|version| answers(version, wanted))
    })
}

/// What is here already; with `fresh`, only if nothing newer is on offer.
pub(crate) fn ready(wanted: &str, fresh: bool) -> Option<String> {
    let here = unpacked(wanted)?.version;
    if fresh && debian::here() {
        let newer = package(wanted).filter(|package| *package != format!("linux-image-{here}"));
        if newer.is_some() {
            return None;
        }
    }
    Some(here)
}

/// Downloads and unpacks the kernel; an older one that is here will do when the
/// newest cannot be had.
pub(crate) fn fetch(wanted: &str, progress: &Progress) -> Result<String> {
    let fetched = try_fetch(wanted, progress);
    match (fetched, unpacked(wanted)) {
        (Ok(version), _) => Ok(format!("Linux {version}")),
        (Err(error), Some(older)) => {
            progress.say(&format!("{error:#}"));
            Ok(format!("keeping Linux {}, which is here", older.version))
        }
        (Err(error), None) => Err(error),
    }
}

fn try_fetch(wanted: &str, progress: &Progress) -> Result<String> {
    if !debian::here() {
        bail!(
            "no apt-get here to fetch Linux {wanted} with: unpack a kernel package (boot/vmlinuz-* \
             and lib/modules/*) into {}",
            paths::kernels().join("VERSION").display()
        );
    }
    debian::update(progress)?;
    let package =
        package(wanted).with_context(|| format!("no Debian package on offer is Linux {wanted}"))?;
    let version = package.trim_start_matches("linux-image-").to_owned();
    progress.say(&format!("apt-get download {package}"));
    let place = paths::kernels().join(&version);
    let half = paths::kernels().join(format!(".{version}.part"));
    let _ = fs::remove_dir_all(&half);
    fs::create_dir_all(&half).context("create a directory for the kernel")?;
    // apt downloads as a user of its own, who may not write here; it says so
    // and goes on as root.
    debian::unpack(&package, &half, progress)?;
    complete(&half, &version)?;
    let _ = fs::remove_dir_all(&place);
    fs::rename(&half, &place).context("move the unpacked kernel into place")?;
    Ok(version)
}

/// Makes what a package's installation would have made.
fn complete(dir: &Path, version: &str) -> Result<()> {
    if !dir.join("lib").exists() && dir.join("usr/lib/modules").exists() {
        std::os::unix::fs::symlink("usr/lib", dir.join("lib")).context("link lib to usr/lib")?;
    }
    let depmod = command::find("depmod").context("depmod is missing")?;
    command::output(Command::new(depmod).arg("-b").arg(dir).arg(version)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_means_its_plain_flavour() {
        assert!(answers("6.1.0-57-amd64", "6.1"));
        assert!(answers("6.12.117+deb12-amd64", "6.12"));
        assert!(!answers("6.12.117+deb12-amd64", "6.1"));
        assert!(!answers("6.1.0-57-cloud-amd64", "6.1"));
        assert!(answers("6.1.0-57-cloud-amd64", "6.1-cloud"));
        assert!(answers("6.1.0-57-cloud-amd64", "6.1.0-57-cloud-amd64"));
        assert!(!answers("6.1.0-58-amd64", "6.1.0-57-amd64"));
    }

    #[test]
    fn versions_are_ordered_as_numbers() {
        assert!(numbers("6.1.0-9-amd64") < numbers("6.1.0-57-amd64"));
        assert!(numbers("6.12.9+deb12-amd64") < numbers("6.12.117+deb12-amd64"));
    }
}
