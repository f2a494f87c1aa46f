//! The guest that a real QEMU boots inside the lab: Debian's cloud kernel and an
//! initramfs of busybox and the modules of virtio_net.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

use super::kernels::{self, Kernel};
use crate::{command, paths, progress::Progress};

/// Small and quick to boot; any series will do, one that both releases of
/// Debian in use have is not needed.
const CLOUD: [&str; 2] = ["6.1-cloud", "6.12-cloud"];

/// What the guest needs beyond what its kernel has built in.
const MODULES: [&str; 2] = ["virtio_pci", "virtio_net"];

const INIT: &str = include_str!("guest-init.sh");

/// A kernel and an initramfs to boot with QEMU.
#[derive(Debug)]
pub(crate) struct Guest {
    /// For `-kernel`.
    pub(crate) kernel: PathBuf,
    /// For `-initrd`.
    pub(crate) initrd: PathBuf,
}

/// The guest that set-up made.
pub(crate) fn guest() -> Result<Guest> {
    let kernel =
        cloud().context("the guest's kernel is missing: cargo xtask setup --only guest")?;
    Ok(Guest {
        kernel: kernel.image,
        initrd: paths::guest_initrd(),
    })
}

fn cloud() -> Option<Kernel> {
    CLOUD.iter().find_map(|wanted| kernels::unpacked(wanted))
}

/// Names what the initramfs was made from, beside it.
fn stamp(kernel: &Kernel) -> String {
    format!("{}\n{INIT}", kernel.version)
}

fn stamp_file() -> PathBuf {
    paths::lab().join("guest-initrd.made-from")
}

pub(super) fn ready(fresh: bool) -> Result<Option<String>> {
    let Some(kernel) = cloud() else {
        return Ok(None);
    };
    let newest = CLOUD
        .iter()
        .any(|wanted| kernels::ready(wanted, fresh).is_some());
    let made = fs::read_to_string(stamp_file()).unwrap_or_default();
    let ready = newest && made == stamp(&kernel) && paths::guest_initrd().is_file();
    Ok(ready.then(|| format!("Linux {} with busybox", kernel.version)))
}

pub(super) fn make(progress: &Progress) -> Result<String> {
    if CLOUD
        .iter()
        .all(|wanted| kernels::ready(wanted, true).is_none())
        && let Err(error) = kernels::fetch(CLOUD[0], progress)
    {
        progress.say(&format!("{error:#}"));
        kernels::fetch(CLOUD[1], progress)?;
    }
    let kernel = cloud().context("no cloud kernel")?;
    let tree = paths::lab().join(".guest-tree");
    let _ = fs::remove_dir_all(&tree);
    populate(&tree, &kernel)?;
    pack(&tree, &paths::guest_initrd())?;
    let _ = fs::remove_dir_all(&tree);
    fs::write(stamp_file(), stamp(&kernel)).context("note what the initramfs was made from")?;
    Ok(format!("Linux {} with busybox", kernel.version))
}

fn populate(tree: &Path, kernel: &Kernel) -> Result<()> {
    for dir in ["bin", "dev", "proc", "sys", "modules"] {
        fs::create_dir_all(tree.join(dir)).context("create the guest's tree")?;
    }
    let busybox = command::find("busybox").context("busybox is missing")?;
    fs::copy(&busybox, tree.join("bin/busybox")).context("copy busybox")?;
    std::os::unix::fs::symlink("busybox", tree.join("bin/sh")).context("link sh to busybox")?;
    let init = tree.join("init");
    fs::write(&init, INIT).context("write the guest's init")?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).context("chmod init")?;
    let unpacked = kernel.image.parent().and_then(Path::parent);
    let modules = unpacked
        .map(|dir| dir.join("lib/modules").join(&kernel.version))
        .context("no modules beside the guest's kernel")?;
    let table = fs::read_to_string(modules.join("modules.dep")).context("read modules.dep")?;
    // The order of the names is the order of loading.
    for (position, file) in in_order(&table, &MODULES).iter().enumerate() {
        let name = Path::new(file).file_name().unwrap_or_default();
        let target = tree
            .join("modules")
            .join(format!("{position:02}-{}", name.to_string_lossy()));
        copy_module(&modules.join(file), &target)?;
    }
    Ok(())
}

/// Busybox's insmod takes plain modules only.
fn copy_module(from: &Path, to: &Path) -> Result<()> {
    let unpacker = match from.extension().and_then(|end| end.to_str()) {
        Some("ko") => {
            fs::copy(from, to).with_context(|| format!("copy {}", from.display()))?;
            return Ok(());
        }
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => bail!("a module packed in an unknown way: {}", from.display()),
    };
    let file = fs::File::create(to.with_extension("")).context("create a module")?;
    command::run(Command::new(unpacker).arg("-dc").arg(from).stdout(file))
}

/// Files of the modules and of all they depend on, dependencies first. A module
/// that is not in the table is built in.
fn in_order(table: &str, wanted: &[&str]) -> Vec<String> {
    let entries: HashMap<String, (&str, Vec<&str>)> = table
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(file, needs)| {
            (
                module_name(file),
                (file, needs.split_whitespace().collect()),
            )
        })
        .collect();
    let mut order: Vec<String> = Vec::new();
    for name in wanted {
        let Some((file, needs)) = entries.get(*name) else {
            continue;
        };
        // modules.dep lists the whole closure, the last one needed first.
        for file in needs.iter().rev().chain([file]) {
            if !order.iter().any(|there| there == file) {
                order.push((*file).to_owned());
            }
        }
    }
    order
}

fn module_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split('.').next().unwrap_or(name).replace('-', "_")
}

fn pack(tree: &Path, archive: &Path) -> Result<()> {
    let half = archive.with_extension("part");
    let script = "find . | sort | cpio --quiet -o -H newc -R 0:0 | gzip -1n";
    let file = fs::File::create(&half).context("create the guest's initramfs")?;
    command::run(
        Command::new("sh")
            .args(["-ec", script])
            .current_dir(tree)
            .stdin(Stdio::null())
            .stdout(file),
    )?;
    fs::rename(&half, archive).context("move the guest's initramfs into place")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_loaded_first_and_once() {
        let table = "kernel/net/core/failover.ko:\n\
                     kernel/drivers/net/net_failover.ko: kernel/net/core/failover.ko\n\
                     kernel/drivers/net/virtio_net.ko: kernel/drivers/net/net_failover.ko kernel/net/core/failover.ko\n";
        assert_eq!(
            in_order(table, &["virtio_pci", "net_failover", "virtio_net"]),
            [
                "kernel/net/core/failover.ko",
                "kernel/drivers/net/net_failover.ko",
                "kernel/drivers/net/virtio_net.ko"
            ]
        );
    }
}
