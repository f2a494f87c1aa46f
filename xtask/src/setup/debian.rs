//! apt and dpkg.

use std::{
    collections::HashSet,
    path::Path,
    process::Command,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, bail};

use crate::{command, progress::Progress};

/// Package lists older than this name versions that may be gone by now.
const LISTS_FRESH: Duration = Duration::from_secs(60 * 60);

/// Debian's own keys.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

static UPDATED: Mutex<bool> = Mutex::new(false);

/// Whether packages come with apt here.
pub(crate) fn here() -> bool {
    command::find("apt-get").is_some() && command::find("dpkg-query").is_some()
}

/// The names of all packages that are installed.
pub(crate) fn installed() -> Result<HashSet<String>> {
    let format = "${db:Status-Status} ${Package}\n";
    let list = command::output(Command::new("dpkg-query").args(["-W", "-f", format]))?;
    Ok(list
        .lines()
        .filter_map(|line| line.strip_prefix("installed "))
        .map(str::to_owned)
        .collect())
}

/// Reads the package lists anew, at most once, and only when they are old.
pub(crate) fn update(progress: &Progress) -> Result<()> {
    let mut updated = UPDATED.lock().unwrap_or_else(PoisonError::into_inner);
    if *updated {
        return Ok(());
    }
    *updated = true;
    if lists_are_fresh() || !is_root() {
        return Ok(());
    }
    progress.say("apt-get update: the package lists are old or absent");
    progress.run(apt_get().arg("update"))
}

/// Files of the lists bear their server's dates; the directory for those on
/// their way bears that of the last update.
fn lists_are_fresh() -> bool {
    let lists = Path::new("/var/lib/apt/lists");
    let any = std::fs::read_dir(lists).is_ok_and(|mut entries| {
        entries.any(|entry| {
            entry.is_ok_and(|entry| entry.file_name().to_string_lossy().ends_with("Release"))
        })
    });
    let updated = lists
        .join("partial")
        .metadata()
        .and_then(|meta| meta.modified());
    any && updated.is_ok_and(|then| {
        SystemTime::now()
            .duration_since(then)
            .is_ok_and(|age| age < LISTS_FRESH)
    })
}

fn is_root() -> bool {
    // SAFETY: geteuid takes no argument and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

fn apt_get() -> Command {
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive")
        .args(["-q", "-o", "DPkg::Lock::Timeout=300"]);
    apt
}

/// What `apt-get install` is given besides the names: nothing that is
/// installed may be removed, nothing that is only recommended comes along.
const INSTALL: [&str; 4] = ["install", "-y", "--no-install-recommends", "--no-remove"];

/// Installs packages, removing none.
pub(crate) fn install(packages: &[&str], progress: &Progress) -> Result<()> {
    if !is_root() {
        bail!(
            "installing needs root; run: sudo apt-get install --no-install-recommends {}",
            packages.join(" ")
        );
    }
    update(progress)?;
    progress.say(&format!("apt-get install {}", packages.join(" ")));
    let simulated = simulate(packages, &[]);
    let Err(reason) = simulated else {
        return progress.run(apt_get().args(INSTALL).args(packages));
    };
    // One of QEMU's packages from elsewhere (backports, say), newer than what
    // this release offers, keeps the others of QEMU out.
    let back = older_siblings("qemu-system-x86")?;
    if !packages.contains(&"qemu-system-x86") || back.is_empty() {
        return Err(reason);
    }
    let plan: Vec<String> = back
        .iter()
        .map(|sibling| format!("{}={}", sibling.package, sibling.candidate))
        .collect();
    simulate(packages, &plan).context(reason)?;
    for sibling in &back {
        progress.say(&format!(
            "NOTE: {} goes back from {} to {}, or QEMU itself could not be installed beside it",
            sibling.package, sibling.installed, sibling.candidate
        ));
    }
    progress.run(
        apt_get()
            .args(INSTALL)
            .arg("--allow-downgrades")
            .args(packages)
            .args(&plan),
    )
}

fn simulate(packages: &[&str], versions: &[String]) -> Result<()> {
    let mut apt = apt_get();
    apt.arg("-s").args(INSTALL);
    if !versions.is_empty() {
        apt.arg("--allow-downgrades").args(versions);
    }
    command::output(apt.args(packages)).map(drop)
}

#[derive(Debug, PartialEq, Eq)]
struct Sibling {
    package: String,
    installed: String,
    candidate: String,
}

/// Installed packages of the same source whose version is not the one on offer.
fn older_siblings(package: &str) -> Result<Vec<Sibling>> {
    let Some(candidate) = candidate(package)? else {
        return Ok(Vec::new());
    };
    let show =
        command::output(Command::new("apt-cache").args(["show", "--no-all-versions", package]))?;
    let source = source_of(&show, package);
    let format = "${db:Status-Status} ${source:Package} ${Package} ${Version}\n";
    let list = command::output(Command::new("dpkg-query").args(["-W", "-f", format]))?;
    Ok(siblings(&list, &source, &candidate))
}

fn source_of(show: &str, package: &str) -> String {
    show.lines()
        .find_map(|line| line.strip_prefix("Source: "))
        .and_then(|source| source.split_whitespace().next())
        .unwrap_or(package)
        .to_owned()
}

fn siblings(list: &str, source: &str, candidate: &str) -> Vec<Sibling> {
    list.lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (status, from) = (words.next()?, words.next()?);
            let (package, installed) = (words.next()?, words.next()?);
            (status == "installed" && from == source && installed != candidate).then(|| Sibling {
                package: package.to_owned(),
                installed: installed.to_owned(),
                candidate: candidate.to_owned(),
            })
        })
        .collect()
}

/// The version that apt would install.
pub(crate) fn candidate(package: &str) -> Result<Option<String>> {
    let policy = command::output(Command::new("apt-cache").args(["policy", package]))?;
    Ok(policy
        .lines()
        .find_map(|line| line.trim().strip_prefix("Candidate: "))
        .filter(|version| *version != "(none)")
        .map(str::to_owned))
}

/// The first package that a metapackage depends on.
pub(crate) fn depends(package: &str) -> Option<String> {
    let mut apt = Command::new("apt-cache");
    let list = command::output(apt.args(["depends", "--important", package])).ok()?;
    list.lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "))
        .map(str::to_owned)
}

/// Fetches a package into `dir` and unpacks it there, without installing it.
pub(crate) fn unpack(package: &str, dir: &Path, progress: &Progress) -> Result<()> {
    unpack_with(&mut apt_get(), package, dir, progress)
}

fn unpack_with(apt: &mut Command, package: &str, dir: &Path, progress: &Progress) -> Result<()> {
    progress.run(apt.args(["download", package]).current_dir(dir))?;
    let entries = std::fs::read_dir(dir).context("read the download directory")?;
    let archive = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|end| end == "deb"))
        .with_context(|| format!("apt-get downloaded nothing for {package}"))?;
    progress.say("unpacking");
    progress.run(Command::new("dpkg").arg("-x").arg(&archive).arg(dir))?;
    std::fs::remove_file(&archive).context("remove the unpacked archive")
}

/// Debian's backports, read without making them known to the system.
pub(crate) struct Backports {
    options: Vec<String>,
}

impl Backports {
    /// From where this system gets its release; apt's files go into `dir`.
    pub(crate) fn of(dir: &Path) -> Result<Self> {
        let release = std::fs::read_to_string("/etc/os-release").context("read os-release")?;
        let codename = release
            .lines()
            .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
            .context("no VERSION_CODENAME in os-release")?;
        let format = "$(CODENAME) $(COMPONENT) $(REPO_URI)";
        let targets = command::output(
            Command::new("apt-get")
                .args(["indextargets", "--format", format])
                .arg("Created-By: Packages"),
        )?;
        // Where it is not there, the keys are among those trusted for all.
        let key = Some(KEYS)
            .filter(|file| Path::new(file).exists())
            .map_or_else(String::new, |file| format!("[signed-by={file}] "));
        let source = backports_source(&targets, codename, &key)
            .with_context(|| format!("no source of Debian {codename} to find its backports by"))?;
        for sub in ["lists/partial", "cache/archives/partial"] {
            std::fs::create_dir_all(dir.join(sub)).context("create a directory for apt")?;
        }
        let list = dir.join("sources.list");
        std::fs::write(&list, source).context("write a list of sources")?;
        Ok(Self {
            options: vec![
                format!("Dir::Etc::sourcelist={}", list.display()),
                "Dir::Etc::sourceparts=/dev/null".to_owned(),
                format!("Dir::State::lists={}", dir.join("lists").display()),
                format!("Dir::Cache={}", dir.join("cache").display()),
            ],
        })
    }

    fn apt_get(&self) -> Command {
        let mut apt = apt_get();
        for option in &self.options {
            apt.args(["-o", option]);
        }
        apt
    }

    /// Reads their package list.
    pub(crate) fn update(&self, progress: &Progress) -> Result<()> {
        progress.run(self.apt_get().args(["update", "--error-on=any"]))
    }

    /// As [`unpack`].
    pub(crate) fn unpack(&self, package: &str, dir: &Path, progress: &Progress) -> Result<()> {
        unpack_with(&mut self.apt_get(), package, dir, progress)
    }
}

/// The line for a list of sources; `targets` has codename, component and
/// address of each that is known.
fn backports_source(targets: &str, codename: &str, key: &str) -> Option<String> {
    let release = format!("{codename} main ");
    let address = targets
        .lines()
        .find_map(|line| line.strip_prefix(&release))?;
    Some(format!("deb {key}{address} {codename}-backports main\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_package_of_the_same_source_goes_back() {
        let list = "installed qemu qemu-utils 1:10.0.2+ds-2~bpo12+1\n\
                    installed ipxe ipxe-qemu 1.0.0\n\
                    config-files qemu qemu-block-extra 1:10.0.2\n\
                    installed qemu qemu-guest-agent 1:7.2\n";
        let found = siblings(list, "qemu", "1:7.2");
        assert_eq!(
            found,
            [Sibling {
                package: "qemu-utils".to_owned(),
                installed: "1:10.0.2+ds-2~bpo12+1".to_owned(),
                candidate: "1:7.2".to_owned(),
            }]
        );
    }

    #[test]
    fn the_source_is_the_package_itself_unless_said_otherwise() {
        assert_eq!(source_of("Package: a\nSource: qemu (1:7.2)\n", "a"), "qemu");
        assert_eq!(source_of("Package: a\n", "a"), "a");
    }

    #[test]
    fn backports_are_where_the_release_is() {
        let targets = "bookworm-updates main http://a/x\nbookworm main http://a/debian\n";
        assert_eq!(
            backports_source(targets, "bookworm", "[k] ").as_deref(),
            Some("deb [k] http://a/debian bookworm-backports main\n")
        );
        assert_eq!(backports_source(targets, "trixie", ""), None);
    }
}
