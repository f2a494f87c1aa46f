//! Which programs of the system are needed, and what for.

use std::{path::Path, process::Command, sync::LazyLock};

use anyhow::{Result, bail};

use super::debian;
use crate::{command, progress::Progress};

/// Something that a Debian package brings.
#[derive(Debug)]
pub(crate) struct Needed {
    /// Debian's name.
    pub(crate) package: &'static str,
    /// Programs of it that are used: where all of them are there, nobody needs
    /// the package. Empty where only the package itself can tell.
    commands: &'static [&'static str],
    /// What to get where there is no Debian.
    elsewhere: &'static str,
}

const fn needed(
    package: &'static str,
    commands: &'static [&'static str],
    elsewhere: &'static str,
) -> Needed {
    Needed {
        package,
        commands,
        elsewhere,
    }
}

/// For the VM.
pub(crate) const LAB: &[Needed] = &[
    needed("qemu-system-x86", &["qemu-system-x86_64"], "QEMU for x86"),
    needed("busybox-static", &["busybox"], "a static busybox"),
    needed("kmod", &["modprobe", "depmod"], "kmod"),
    needed("iproute2", &["ip", "ss"], "iproute2"),
    needed("ethtool", &["ethtool"], "ethtool"),
    needed("iputils-ping", &["ping"], "ping"),
    needed("python3-venv", &["python3"], "Python 3 with venv"),
    needed("udev", &["udevadm"], "udev"),
    needed("util-linux", &["unshare"], "util-linux"),
    needed("zstd", &["zstd"], "zstd"),
    needed("xz-utils", &["xz"], "xz"),
    needed("cpio", &["cpio"], "cpio"),
    needed("tmux", &["tmux"], "tmux"),
    needed("procps", &["sysctl"], "procps"),
];

/// Drivers and traffic that are not ours.
pub(crate) const TRAFFIC: &[Needed] = &[
    needed("dpdk", &[], "DPDK with the virtio-user driver"),
    needed("dpdk-dev", &["dpdk-testpmd"], "dpdk-testpmd"),
    needed("iperf3", &["iperf3"], "iperf3"),
];

/// Tools to compare with.
pub(crate) const COMPARE: &[Needed] = &[
    needed("bpftrace", &["bpftrace"], "bpftrace"),
    needed("bpftool", &["bpftool"], "bpftool"),
    needed("gdb", &["gdb"], "GDB"),
];

/// For building the modules and checking them.
pub(crate) const MODULE: &[Needed] = &[
    needed("make", &["make"], "GNU make"),
    needed(
        "gcc",
        &["gcc"],
        "GCC, best the one that the kernel was built with",
    ),
    needed("coccinelle", &["spatch"], "Coccinelle"),
    needed("dkms", &["dkms"], "DKMS"),
    needed("sparse", &["sparse"], "sparse"),
    needed("pahole", &["pahole"], "pahole"),
    needed("binutils", &["objcopy", "readelf"], "GNU binutils"),
    needed("kmod", &["modprobe", "modinfo"], "kmod"),
    needed("xz-utils", &["xz"], "xz"),
    needed("zstd", &["zstd"], "zstd"),
    needed("perl", &["perl"], "Perl"),
];

const EBPF: &[Needed] = &[
    needed(
        "rustc-web",
        &[],
        "`rustup toolchain install nightly --component rust-src`",
    ),
    needed("cargo-web", &[], "(the same)"),
    needed("rust-web-src", &[], "(the same)"),
];

/// A compiler that builds for BPF: nothing where rustup's nightly can.
pub(crate) fn ebpf() -> &'static [Needed] {
    static NIGHTLY: LazyLock<bool> = LazyLock::new(nightly_has_sources);
    if *NIGHTLY { &[] } else { EBPF }
}

fn nightly_has_sources() -> bool {
    command::output(Command::new("rustup").args(["run", "nightly", "rustc", "--print", "sysroot"]))
        .is_ok_and(|sysroot| {
            Path::new(sysroot.trim())
                .join("lib/rustlib/src/rust/library/core")
                .is_dir()
        })
}

/// What is missing, found without asking a package manager that is not there.
fn missing(needed: &'static [Needed]) -> Result<Vec<&'static Needed>> {
    let mut missing = Vec::new();
    for need in needed {
        let by_command = !need.commands.is_empty()
            && need
                .commands
                .iter()
                .all(|name| command::find(name).is_some());
        if !by_command {
            missing.push(need);
        }
    }
    if missing.is_empty() || !debian::here() {
        return Ok(missing);
    }
    let installed = debian::installed()?;
    missing.retain(|need| !installed.contains(need.package));
    Ok(missing)
}

/// The set-up step's first half.
pub(crate) fn ready(needed: &'static [Needed]) -> Result<Option<String>> {
    if needed.is_empty() {
        return Ok(Some("rustup's nightly with rust-src".to_owned()));
    }
    Ok(missing(needed)?.is_empty().then(|| names(needed)))
}

/// The set-up step's second half.
pub(crate) fn install(needed: &'static [Needed], progress: &Progress) -> Result<String> {
    let missing = missing(needed)?;
    if !debian::here() {
        let mut text = String::from("this system has no apt-get, so install by hand:");
        for need in &missing {
            let commands = need.commands.join(", ");
            let looked_for = if commands.is_empty() {
                String::new()
            } else {
                format!(" (looked for: {commands})")
            };
            text.push_str(&format!(
                "\n  - {}{looked_for}; Debian calls it {}",
                need.elsewhere, need.package
            ));
        }
        bail!(text);
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    debian::install(&packages, progress)?;
    Ok(format!("installed {}", packages.join(" ")))
}

fn names(needed: &[Needed]) -> String {
    let names: Vec<&str> = needed.iter().map(|need| need.package).collect();
    names.join(" ")
}
