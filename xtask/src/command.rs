//! Running other programs, with errors that name them.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

/// Where system programs lie that an ordinary user's `PATH` leaves out.
pub(crate) const SYSTEM_DIRS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// The command line as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let words = [command.get_program()]
        .into_iter()
        .chain(command.get_args());
    words
        .map(|word| quoted(&word.to_string_lossy()))
        .collect::<Vec<_>>()
        .join(" ")
}

/// One word for a POSIX shell.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Runs it with our own streams; anything but success is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !status.success() {
        bail!("`{}`: {status}", shown(command));
    }
    Ok(())
}

/// Runs it and gives its standard output; anything but success is an error
/// that quotes standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !output.status.success() {
        bail!(
            "`{}`: {}: {}",
            shown(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Looks a program up in `PATH` and in the system directories.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(SYSTEM_DIRS.iter().map(PathBuf::from))
        .map(|dir| dir.join(program))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    file.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The cargo that runs us, or the one in `PATH`; at the top of the checkout.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(crate::paths::root());
    // What cargo tells the crate it runs must not reach the one it builds next.
    for name in ["CARGO_MANIFEST_DIR", "CARGO_MANIFEST_PATH"] {
        cargo.env_remove(name);
    }
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_survives_the_shell() {
        for word in [
            "plain",
            "",
            "two words",
            "it's",
            "$HOME `id` \"q\" \\",
            "a;b&c|d",
        ] {
            let script = format!("printf %s {}", quoted(word));
            let got = output(Command::new("sh").args(["-c", &script])).unwrap();
            assert_eq!(got, word);
        }
    }

    #[test]
    fn failure_names_the_command() {
        let error = run(Command::new("sh").args(["-c", "exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("sh -c 'exit 3'"), "{text}");
        assert!(text.contains('3'), "{text}");
    }
}
