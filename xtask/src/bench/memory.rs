//! Programs kept in memory: files of the VM's root come from the host,
//! uncached, at every start.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::command;

/// A program and its libraries, in memory.
pub(super) struct InMemory {
    program: PathBuf,
    libraries: PathBuf,
}

impl InMemory {
    /// Copies both.
    pub(super) fn copy(program: &Path) -> Result<Self> {
        let name = program.file_name().context("a program without a name")?;
        let libraries = Path::new("/run/vhost-tuner-bench").join(name);
        fs::create_dir_all(&libraries).context("create a directory in memory")?;
        let copy = |from: &Path| -> Result<PathBuf> {
            let to = libraries.join(from.file_name().unwrap_or_default());
            fs::copy(from, &to).with_context(|| format!("copy {}", from.display()))?;
            Ok(to)
        };
        let program = copy(program)?;
        for line in command::output(Command::new("ldd").arg(&program))?.lines() {
            let path = line.split_once("=> ").map(|(_, rest)| rest);
            if let Some(path) = path.and_then(|rest| rest.split(" (").next()) {
                copy(Path::new(path))?;
            }
        }
        Ok(Self { program, libraries })
    }

    /// Where it lies.
    pub(super) fn path(&self) -> &Path {
        &self.program
    }

    /// To start it with.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("LD_LIBRARY_PATH", &self.libraries);
        command
    }
}
