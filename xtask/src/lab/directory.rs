//! The directory of one run. The VM writes what matters into files here,
//! because the last lines on a console may be lost when a VM powers off.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result};

use super::machine::Job;
use crate::{command::quoted, paths};

/// Failed runs are kept this long for a look.
const KEEP: Duration = Duration::from_secs(24 * 60 * 60);

static RUNS: AtomicU32 = AtomicU32::new(0);

/// `target/lab/run-PID-N`.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// What the VM is called: in QEMU's command line, so that it can be told
    /// from every other QEMU of the system.
    pub(crate) name: String,
}

impl Directory {
    /// Makes one, with the script in it that the VM runs.
    pub(crate) fn create(job: &Job) -> Result<Self> {
        forget_old_runs();
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let name = format!("vhost-tuner-lab-{}-{run}", process::id());
        let path = paths::lab().join(format!("run-{}-{run}", process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).context("create the run's directory")?;
        let directory = Self { path, name };
        let script = script(&directory.path, job);
        fs::write(directory.script(), script).context("write the run's script")?;
        Ok(directory)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn script(&self) -> PathBuf {
        self.path.join("script")
    }

    pub(crate) fn stdout(&self) -> PathBuf {
        self.path.join("stdout")
    }

    pub(crate) fn stderr(&self) -> PathBuf {
        self.path.join("stderr")
    }

    pub(crate) fn console(&self) -> PathBuf {
        self.path.join("console")
    }

    /// Whether the VM has got as far as starting the command.
    pub(crate) fn started(&self) -> bool {
        self.path.join("started").exists()
    }

    /// The command's exit status, once it has ended.
    pub(crate) fn status(&self) -> Option<i32> {
        fs::read_to_string(self.path.join("status"))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// All that the console showed.
    pub(crate) fn console_text(&self) -> String {
        let bytes = fs::read(self.console()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The last lines of the console.
    pub(crate) fn console_tail(&self, lines: usize) -> String {
        let text = self.console_text();
        let text: String = text
            .chars()
            .filter(|&c| c == '\n' || !c.is_control())
            .collect();
        let all: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Nothing in it is of interest any more.
    pub(crate) fn remove(self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// What a command finds in the VM, whether typed or not.
fn prelude(job: &Job) -> String {
    let mut text =
        String::from("export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n");
    let ours = [
        ("VHOST_TUNER_LAB".to_owned(), "1".to_owned()),
        (
            "VHOST_TUNER_LAB_KERNEL".to_owned(),
            job.kernel.version.clone(),
        ),
    ];
    for (name, value) in ours.iter().chain(&job.env) {
        text.push_str(&format!("export {name}={}\n", quoted(value)));
    }
    text.push_str(&format!(
        "for module in tun tap vhost_net macvtap; do modprobe -q $module; done\n\
         ulimit -l unlimited 2>/dev/null\n\
         cd {}\n",
        quoted(&paths::root().to_string_lossy())
    ));
    text
}

/// The status file appears by a rename, so it is never read half-written.
fn script(dir: &Path, job: &Job) -> String {
    let dir = quoted(&dir.to_string_lossy());
    let command: Vec<String> = job.command.iter().map(|word| quoted(word)).collect();
    format!(
        "{prelude}\
         : >{dir}/started\n\
         ( exec {command} ) </dev/null >{dir}/stdout 2>{dir}/stderr\n\
         echo $? >{dir}/status.part\n\
         mv {dir}/status.part {dir}/status\n",
        prelude = prelude(job),
        command = command.join(" "),
    )
}

/// A login shell for `lab shell`, which finds the same as a command does.
pub(crate) fn shell_script(job: &Job) -> Result<PathBuf> {
    let path = paths::lab().join("shell");
    fs::create_dir_all(paths::lab()).context("create target/lab")?;
    let text = format!("#!/bin/sh\n{}exec bash --norc\n", prelude(job));
    fs::write(&path, text).context("write the shell's script")?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).context("chmod")?;
    Ok(path)
}

fn forget_old_runs() {
    let Ok(entries) = fs::read_dir(paths::lab()) else {
        return;
    };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(pid) = name
            .strip_prefix("run-")
            .and_then(|rest| rest.split('-').next())
        else {
            continue;
        };
        let old = entry
            .metadata()
            .and_then(|meta| meta.modified())
            .is_ok_and(|then| {
                SystemTime::now()
                    .duration_since(then)
                    .is_ok_and(|age| age > KEEP)
            });
        if old && !Path::new("/proc").join(pid).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
