//! Kernel headers, and the few files of the kernel's source that the modules
//! are made from, both of exactly the kernel that they are for.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{debian, kernels};
use crate::{
    command,
    module::{Headers, version_of_source},
    paths,
    progress::Progress,
};

/// What is kept of the source; all of it would be 1.3 GB.
const FILES: [&str; 8] = [
    "Makefile",
    "drivers/vhost/net.c",
    "drivers/vhost/vhost.c",
    "drivers/vhost/vhost.h",
    "scripts/checkpatch.pl",
    "scripts/const_structs.checkpatch",
    "scripts/extract-vmlinux",
    "scripts/spelling.txt",
];

/// Names the version of the package that the files are from, beside them.
const MARK: &str = ".package-version";

/// Both for every series: what is there already, when all of it is.
pub(super) fn ready(one: impl Fn(&str) -> bool) -> Option<String> {
    let versions: Option<Vec<String>> = kernels::SERIES
        .iter()
        .map(|series| kernels::unpacked(series).map(|kernel| kernel.version))
        .collect();
    versions
        .filter(|versions| versions.iter().all(|version| one(version)))
        .map(|versions| versions.join(" "))
}

/// Makes what is missing for every series.
pub(super) fn make(
    ready: impl Fn(&str) -> bool,
    one: impl Fn(&str, &Progress) -> Result<()>,
    progress: &Progress,
) -> Result<String> {
    let mut made = Vec::new();
    for series in kernels::SERIES {
        let version = kernels::resolve(series)?.version;
        if !ready(&version) {
            one(&version, progress)?;
            made.push(version);
        }
    }
    Ok(made.join(" "))
}

/// The headers of this version, fetched if need be.
pub(crate) fn headers(version: &str) -> Result<PathBuf> {
    on_demand("headers", version, headers_ready, install_headers)?;
    Headers::place(version).with_context(|| format!("no headers of Linux {version}"))
}

/// The source of this version, fetched if need be; its headers are there.
pub(crate) fn source(version: &str) -> Result<PathBuf> {
    on_demand("source", version, source_ready, fetch_source)?;
    Ok(paths::sources(version))
}

fn on_demand(
    what: &str,
    version: &str,
    ready: impl Fn(&str) -> bool,
    one: impl Fn(&str, &Progress) -> Result<()>,
) -> Result<()> {
    if ready(version) {
        return Ok(());
    }
    let progress = Progress::start(
        &format!("{what} {version}"),
        "needed to build modules, and not here yet",
    );
    one(version, &progress)?;
    progress.done(version);
    Ok(())
}

pub(super) fn headers_ready(version: &str) -> bool {
    Headers::place(version).is_some()
}

/// Installs them: their makefiles name each other by absolute paths, so that
/// they do not work from anywhere else.
pub(super) fn install_headers(version: &str, progress: &Progress) -> Result<()> {
    let package = format!("linux-headers-{version}");
    ensure!(
        debian::here(),
        "the headers of Linux {version} are missing, and this system has no apt-get to fetch \
         them with: install them by hand, so that /lib/modules/{version}/build leads to them"
    );
    debian::update(progress)?;
    ensure!(
        debian::candidate(&package)?.is_some(),
        "Debian offers no {package}: for an old kernel of Debian's, `cargo xtask setup` brings the \
         newest of each series, with headers; for any other kernel, install its headers so that \
         /lib/modules/{version}/build leads to them, or name them with --headers"
    );
    debian::install(&[&package], progress)?;
    ensure!(
        headers_ready(version),
        "{package} is installed, but there are no headers at /usr/src/{package}"
    );
    Ok(())
}

pub(super) fn source_ready(version: &str) -> bool {
    let dir = paths::sources(version);
    let Ok(mark) = fs::read_to_string(dir.join(MARK)) else {
        return false;
    };
    // Headers that were upgraded since are those of a newer source.
    package_version(&format!("linux-headers-{version}")).is_none_or(|installed| installed == mark)
        && FILES.iter().all(|file| dir.join(file).is_file())
}

/// The version of an installed package.
fn package_version(package: &str) -> Option<String> {
    let format = "${db:Status-Status} ${Version}";
    let shown =
        command::output(Command::new("dpkg-query").args(["-W", "-f", format, package])).ok()?;
    shown.strip_prefix("installed ").map(str::to_owned)
}

/// Brings the files of the source package of the very version that the headers
/// are of.
pub(super) fn fetch_source(version: &str, progress: &Progress) -> Result<()> {
    let headers = Headers::place(version).with_context(|| {
        format!(
            "no headers of Linux {version} are installed that would tell which source they belong \
             to: name the source with --kernel-src"
        )
    })?;
    let headers = Headers::read(&headers, version)?;
    let wanted = debian::here()
        .then(|| package_version(&format!("linux-headers-{version}")))
        .flatten()
        .with_context(|| {
            format!(
                "the headers of Linux {version} are not those of a Debian package, so that the \
                 source they belong to is not known: name it with --kernel-src"
            )
        })?;
    let (major, minor, _) = headers.source_version;
    let package = format!("linux-source-{major}.{minor}");
    let place = paths::sources(version);
    let half = place.with_file_name(format!(".{version}.part"));
    let _ = fs::remove_dir_all(&half);
    fs::create_dir_all(half.join("tree")).context("create a directory for the source")?;
    let name = format!("{package}.tar.xz");
    let installed = Path::new("/usr/src").join(&name);
    let archive = if package_version(&package).as_ref() == Some(&wanted) && installed.is_file() {
        installed
    } else {
        download(&package, &wanted, &half, progress)?;
        half.join("usr/src").join(&name)
    };
    progress.say(&format!("unpacking a few files of {package} {wanted}"));
    extract(&archive, &package, &half.join("tree"), progress)?;
    let found = version_of_source(&half.join("tree"))?;
    ensure!(
        found == headers.source_version,
        "{package} {wanted} is Linux {found:?}, but the headers are {:?}",
        headers.source_version
    );
    fs::write(half.join("tree").join(MARK), &wanted).context("mark the source complete")?;
    let _ = fs::remove_dir_all(&place);
    fs::rename(half.join("tree"), &place).context("move the source into place")?;
    fs::remove_dir_all(&half).context("remove what the source was unpacked from")
}

fn download(package: &str, version: &str, dir: &Path, progress: &Progress) -> Result<()> {
    debian::update(progress)?;
    progress.say(&format!("apt-get download {package}={version}: 140 MB"));
    debian::unpack(&format!("{package}={version}"), dir, progress).with_context(|| {
        format!(
            "cannot fetch {package} {version}, the source of the headers that are installed; if \
             Debian offers a newer one only, upgrade kernel and headers first: cargo xtask setup"
        )
    })
}

/// Unpacks [`FILES`] alone, and reads no further than the last of them.
fn extract(archive: &Path, top: &str, dir: &Path, progress: &Progress) -> Result<()> {
    if !archive.is_file() {
        bail!("the package has no {}", archive.display());
    }
    let mut tar = Command::new("tar");
    tar.arg("-xJf")
        .arg(archive)
        .arg("-C")
        .arg(dir)
        .args(["--no-same-owner", "--strip-components=1", "--occurrence=1"])
        .args(FILES.map(|file| format!("{top}/{file}")));
    progress.run(&mut tar)
}
