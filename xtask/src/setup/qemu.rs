//! A QEMU that emulates faithfully enough for probes.
//!
//! Before 8.1, QEMU's multi-threaded emulation could go on running code that
//! another virtual processor had just rewritten. The kernel rewrites code
//! wherever a probe is attached or detached; a stale breakpoint is then taken
//! for a kprobe that has no instruction of its own, and the kernel jumps to
//! address 0. It takes a few rounds of attaching under load.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf, process::Command};

use anyhow::{Context as _, Result};

use super::debian;
use crate::{command, paths, progress::Progress};

/// The first version that locks a page before it translates from it.
const GOOD: (u32, u32) = (8, 1);

const PROGRAM: &str = "qemu-system-x86_64";

/// The program and what it takes of others' files; their shared libraries are
/// those of the QEMU that is installed.
const PACKAGES: [&str; 4] = [
    "qemu-system-x86",
    "qemu-system-common",
    "qemu-system-data",
    "seabios",
];

/// Which QEMU to emulate with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Qemu {
    /// The program.
    pub(crate) program: PathBuf,
    /// Whether several virtual processors may run at once under emulation.
    pub(crate) threads: bool,
}

/// The QEMU that set-up found or brought.
pub(crate) fn qemu() -> Result<Qemu> {
    if version(&ours()).is_some() {
        return Ok(Qemu {
            program: ours(),
            threads: true,
        });
    }
    let program = command::find(PROGRAM).context("QEMU is missing: cargo xtask setup")?;
    let threads = version(&program).is_some_and(|version| version >= GOOD);
    Ok(Qemu { program, threads })
}

fn dir() -> PathBuf {
    paths::kept().join("qemu")
}

fn ours() -> PathBuf {
    dir().join(PROGRAM)
}

/// Says that a newer one was looked for in vain.
fn in_vain() -> PathBuf {
    paths::kept().join(".qemu-in-vain")
}

fn version(program: &PathBuf) -> Option<(u32, u32)> {
    parse(&command::output(Command::new(program).arg("--version")).ok()?)
}

fn parse(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split_once("version ")?.1.split(['.', ' ', '\n']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

pub(super) fn ready(fresh: bool) -> Option<String> {
    let found = qemu().ok()?;
    let (major, minor) = version(&found.program)?;
    (found.threads || (!fresh && in_vain().exists())).then(|| format!("QEMU {major}.{minor}"))
}

pub(super) fn make(progress: &Progress) -> Result<String> {
    match fetch(progress) {
        Ok(()) => {
            let _ = fs::remove_file(in_vain());
            let (major, minor) =
                version(&ours()).context("the QEMU from backports does not run")?;
            Ok(format!("QEMU {major}.{minor}"))
        }
        Err(error) => {
            progress.say(&format!("{error:#}"));
            fs::write(in_vain(), "").context("note that there is none")?;
            Ok(String::from(
                "no QEMU since 8.1 to be had, so emulation runs one virtual processor at a time, \
                 which is slower; better install one",
            ))
        }
    }
}

fn fetch(progress: &Progress) -> Result<()> {
    let half = paths::kept().join(".qemu.part");
    let _ = fs::remove_dir_all(&half);
    fs::create_dir_all(&half).context("create a directory for QEMU")?;
    let backports = debian::Backports::of(&half.join("apt"))?;
    backports.update(progress)?;
    for package in PACKAGES {
        progress.say(&format!("apt-get download {package} from backports"));
        backports.unpack(package, &half, progress)?;
    }
    let _ = fs::remove_dir_all(half.join("apt"));
    // It looks for its files where a package would have put them.
    let files = dir().join("usr");
    let wrapper = format!(
        "#!/bin/sh\nexec {0}/bin/{PROGRAM} -L {0}/share/qemu -L {0}/share/seabios \"$@\"\n",
        command::quoted(&files.to_string_lossy())
    );
    let program = half.join(PROGRAM);
    fs::write(&program, wrapper).context("write QEMU's wrapper")?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).context("chmod")?;
    let _ = fs::remove_dir_all(dir());
    fs::rename(&half, dir()).context("move QEMU into place")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_version() {
        let text = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)\nCopyright\n";
        assert_eq!(parse(text), Some((7, 2)));
        assert!(parse("QEMU emulator version 10.0.2 (Debian)\n") > Some(GOOD));
        assert_eq!(parse("not QEMU"), None);
    }
}
