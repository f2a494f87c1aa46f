//! Builds the eBPF programs and puts the object where the library includes it.
//!
//! The BPF target has no ready-made `core`, so it is built from source. Two
//! compilers can: rustup's nightly with its rust-src component, or Debian's
//! rustc-web with rust-web-src, a stable compiler told to accept unstable
//! flags. `cargo xtask setup` brings what is missing.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "bpfel-unknown-none";

fn main() {
    if let Err(why) = build() {
        // Cargo shows a build script's standard error when it fails.
        eprintln!("the eBPF programs were not built: {why}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    let here = PathBuf::from(var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(var("OUT_DIR")?);
    let root = here.parent().ok_or("the package has no parent folder")?;
    for source in [
        "tuner-ebpf/src",
        "tuner-ebpf/Cargo.toml",
        "tuner-common/src",
        "Cargo.lock",
    ] {
        println!("cargo:rerun-if-changed={}", root.join(source).display());
    }
    println!("cargo:rerun-if-env-changed=VHOST_TUNER_BPF_LINKER");
    println!("cargo:rerun-if-changed=build.rs");

    let linker = linker(root)?;
    let target = out.join("ebpf");
    let mut cargo = compiler()?;
    let flags = [
        format!("-Clinker={}", linker.display()),
        // XCHG and 32-bit operations; Linux 5.12 and later.
        "-Ctarget-cpu=v3".to_owned(),
        "-Cdebuginfo=0".to_owned(),
    ];
    let status = cargo
        .current_dir(root.join("tuner-ebpf"))
        .args([
            "build",
            "--release",
            "--target",
            TARGET,
            "-Z",
            "build-std=core",
        ])
        .arg("--target-dir")
        .arg(&target)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        // bpf-linker takes LLVM from the toolchain that built it.
        .env("LD_LIBRARY_PATH", library_path()?)
        .status()
        .map_err(|why| format!("cargo for the BPF target did not start: {why}"))?;
    if !status.success() {
        return Err(format!("cargo for the BPF target ended with {status}"));
    }
    let built = target.join(TARGET).join("release/tuner-ebpf");
    std::fs::copy(&built, out.join("tuner-ebpf.o"))
        .map_err(|why| format!("{}: {why}", built.display()))?;
    Ok(())
}

fn var(name: &str) -> Result<String, String> {
    env::var(name).map_err(|why| format!("{name}: {why}"))
}

/// A command without what cargo set for this build, which the inner build
/// would take for its own.
fn clean(program: &str) -> Command {
    const SET: [&str; 5] = ["CARGO_", "RUSTC", "RUSTFLAGS", "RUSTDOC", "CLIPPY_"];
    const KEPT: [&str; 5] = [
        "CARGO_HOME",
        "CARGO_HTTP",
        "CARGO_NET",
        "CARGO_REGISTR",
        "CARGO_SOURCE",
    ];
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        let starts = |list: &[&str]| list.iter().any(|prefix| name.starts_with(prefix));
        if starts(&SET) && !starts(&KEPT) {
            command.env_remove(name.as_ref());
        }
    }
    command
}

/// The command that builds for the BPF target.
fn compiler() -> Result<Command, String> {
    if let Some(sysroot) = output("rustup", &["run", "nightly", "rustc", "--print", "sysroot"])
        && Path::new(&sysroot)
            .join("lib/rustlib/src/rust/library/core")
            .exists()
    {
        let mut command = clean("rustup");
        command.args(["run", "nightly", "cargo"]);
        command.env_remove("RUSTUP_TOOLCHAIN");
        return Ok(command);
    }
    let debian = Path::new("/usr/bin/rustc");
    if let Some(sysroot) = output(&debian.to_string_lossy(), &["--print", "sysroot"])
        && Path::new(&sysroot)
            .join("lib/rustlib/src/rust/library/core")
            .exists()
    {
        let mut command = clean("/usr/bin/cargo");
        // Lets a stable compiler take -Z.
        command.env("RUSTC_BOOTSTRAP", "1").env("RUSTC", debian);
        return Ok(command);
    }
    Err(
        "no compiler with the source of `core`: run `cargo xtask setup`, or install \
         rustup's nightly with rust-src, or Debian's rustc-web, cargo-web and rust-web-src"
            .to_owned(),
    )
}

fn linker(root: &Path) -> Result<PathBuf, String> {
    if let Ok(given) = env::var("VHOST_TUNER_BPF_LINKER") {
        return Ok(PathBuf::from(given));
    }
    let ours = root.join("target/tools/bin/bpf-linker");
    if ours.exists() {
        return Ok(ours);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|folder| folder.join("bpf-linker"))
        .find(|candidate| candidate.exists())
        .ok_or_else(|| "bpf-linker was not found: run `cargo xtask setup`".to_owned())
}

/// Library folder of the toolchain that builds this workspace.
fn library_path() -> Result<String, String> {
    let rustc = var("RUSTC")?;
    let sysroot = output(&rustc, &["--print", "sysroot"])
        .ok_or_else(|| format!("`{rustc} --print sysroot` failed"))?;
    let mut path = format!("{sysroot}/lib");
    if let Ok(before) = env::var("LD_LIBRARY_PATH") {
        path.push(':');
        path.push_str(&before);
    }
    Ok(path)
}

fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(args)
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
