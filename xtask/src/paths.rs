//! Where things lie in a checkout.

use std::{
    env,
    path::{Path, PathBuf},
    sync::LazyLock,
};

static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
    // Cargo names the crate it runs. In the VM there is no cargo, so what was
    // true at build time has to do: the checkout lies at the same path there.
    let krate = env::var_os("CARGO_MANIFEST_DIR")
        .map(PathBuf::from)
        .filter(|dir| dir.ends_with("xtask"))
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    krate.parent().unwrap_or(&krate).to_path_buf()
});

/// The top of the checkout.
pub(crate) fn root() -> &'static Path {
    &ROOT
}

/// Where everything that set-up makes is kept, whatever `CARGO_TARGET_DIR` says.
pub(crate) fn kept() -> PathBuf {
    root().join("target")
}

/// Where cargo puts what it builds.
pub(crate) fn cargo_target() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => kept(),
    }
}

/// A program of this workspace, built for release.
pub(crate) fn release(program: &str) -> PathBuf {
    cargo_target().join("release").join(program)
}

/// Programs installed by cargo for our use only.
pub(crate) fn tools() -> PathBuf {
    kept().join("tools")
}

/// The Python virtual environment that holds virtme-ng.
pub(crate) fn venv() -> PathBuf {
    kept().join("venv")
}

/// Kernel packages, unpacked, one directory per version.
pub(crate) fn kernels() -> PathBuf {
    kept().join("kernels")
}

/// The files that are kept of the source of this kernel.
pub(crate) fn sources(version: &str) -> PathBuf {
    kept().join("sources").join(version)
}

/// The modules, one directory per kernel version.
pub(crate) fn modules() -> PathBuf {
    kept().join("modules")
}

/// What the modules are made with.
pub(crate) fn module_source() -> PathBuf {
    root().join("module")
}

/// What the lab keeps between runs, and the directories of the runs.
pub(crate) fn lab() -> PathBuf {
    kept().join("lab")
}

/// The initramfs of the guest that QEMU boots inside the lab.
pub(crate) fn guest_initrd() -> PathBuf {
    lab().join("guest-initrd.cpio.gz")
}
