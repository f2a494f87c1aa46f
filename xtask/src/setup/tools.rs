//! Programs that are not in Debian, kept under `target/`.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::{command, paths, progress::Progress};

const BPF_LINKER: &str = "0.10.1";
const VIRTME_NG: &str = "1.42";

/// `LD_LIBRARY_PATH` with the Rust compiler's libraries in it, where bpf-linker
/// finds LLVM.
pub(crate) fn toolchain_libraries() -> Result<OsString> {
    let sysroot = command::output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let libraries = Path::new(sysroot.trim()).join("lib");
    let mut dirs = vec![libraries.clone()];
    if let Some(others) = env::var_os("LD_LIBRARY_PATH") {
        dirs.extend(env::split_paths(&others).filter(|dir| *dir != libraries));
    }
    env::join_paths(dirs).context("a directory with a colon in its name")
}

/// The bpf-linker to use: the one that the environment names, else ours.
pub(crate) fn bpf_linker() -> PathBuf {
    env::var_os("VHOST_TUNER_BPF_LINKER")
        .map_or_else(|| paths::tools().join("bin/bpf-linker"), PathBuf::from)
}

pub(super) fn bpf_linker_ready() -> Result<Option<String>> {
    let linker = bpf_linker();
    if !linker.is_file() {
        return Ok(None);
    }
    let mut version = Command::new(&linker);
    version
        .arg("--version")
        .env("LD_LIBRARY_PATH", toolchain_libraries()?);
    // One that no longer finds its LLVM, because the toolchain changed, is
    // built again.
    Ok(command::output(&mut version)
        .ok()
        .filter(|text| env::var_os("VHOST_TUNER_BPF_LINKER").is_some() || text.contains(BPF_LINKER))
        .map(|text| text.trim().to_owned()))
}

pub(super) fn install_bpf_linker(progress: &Progress) -> Result<String> {
    let mut cargo = command::cargo();
    cargo
        .args(["install", "bpf-linker", "--version", BPF_LINKER])
        .args(["--locked", "--force", "--root"])
        .arg(paths::tools())
        .env("LD_LIBRARY_PATH", toolchain_libraries()?)
        // Its own directory: the workspace's would be locked by a build.
        .env("CARGO_TARGET_DIR", paths::kept().join("tools-build"));
    progress.say("cargo install bpf-linker: about a minute");
    progress.run(&mut cargo)?;
    let _ = fs::remove_dir_all(paths::kept().join("tools-build"));
    Ok(format!("bpf-linker {BPF_LINKER}"))
}

/// A file that says which version is complete in the virtual environment.
fn virtme_ng_mark() -> PathBuf {
    paths::venv().join(".virtme-ng-version")
}

pub(super) fn virtme_ng_ready() -> Result<Option<String>> {
    let mark = fs::read_to_string(virtme_ng_mark()).unwrap_or_default();
    let ready = mark == VIRTME_NG && paths::venv().join("bin/vng").is_file();
    Ok(ready.then(|| format!("virtme-ng {VIRTME_NG}")))
}

pub(super) fn install_virtme_ng(progress: &Progress) -> Result<String> {
    let venv = paths::venv();
    progress.run(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&venv),
    )?;
    progress.run(
        Command::new(venv.join("bin/python"))
            .args(["-m", "pip", "install", "--disable-pip-version-check"])
            .arg(format!("virtme-ng=={VIRTME_NG}")),
    )?;
    fs::write(virtme_ng_mark(), VIRTME_NG).context("mark the virtual environment complete")?;
    Ok(format!("virtme-ng {VIRTME_NG}"))
}
