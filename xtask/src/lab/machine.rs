//! One VM, from start to certain end.

use std::{
    env, fs,
    fs::File,
    io::Write,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use super::{
    cage::caged,
    directory::{self, Directory},
    kvm,
    outcome::{Ending, Outcome, complaint},
    stream::Follow,
};
use crate::{
    command, paths,
    setup::{self, Kernel},
};

/// Under emulation a kernel is up in half a minute; loaded machines take longer.
const BOOT_LIMIT: Duration = Duration::from_secs(240);
/// With KVM it takes a few seconds.
const KVM_BOOT_LIMIT: Duration = Duration::from_secs(25);
/// How often a running VM is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long a killed VM may take to be gone.
const GONE_LIMIT: Duration = Duration::from_secs(10);

/// What to run, and in which VM.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// The kernel to boot.
    pub(crate) kernel: Kernel,
    /// Virtual CPUs.
    pub(crate) cpus: u32,
    /// Memory, as QEMU takes it.
    pub(crate) memory: String,
    /// From the command's start.
    pub(crate) timeout: Duration,
    /// Set for the command.
    pub(crate) env: Vec<(String, String)>,
    /// Program and arguments.
    pub(crate) command: Vec<String>,
}

impl Job {
    /// A job in the usual VM.
    pub(crate) fn new(kernel: Kernel, command: Vec<String>) -> Self {
        Self {
            kernel,
            cpus: 3,
            memory: "3G".to_owned(),
            timeout: Duration::from_secs(600),
            env: Vec::new(),
            command,
        }
    }
}

/// Runs the job to its end, passing its output on as it comes. When this
/// returns, the VM is gone.
pub(crate) fn run(job: &Job, stdout: &mut dyn Write, stderr: &mut dyn Write) -> Result<Outcome> {
    let accelerated = kvm::works(&job.kernel)?;
    let directory = Directory::create(job)?;
    let ending = run_in(&directory, job, accelerated, stdout, stderr)?;
    let complaint = complaint(&directory.console_text());
    if matches!(ending, Ending::Exited(_)) && complaint.is_none() {
        directory.remove();
    } else {
        let path = directory.path().display();
        eprintln!("[lab] output and console are kept in {path}");
    }
    Ok(Outcome { ending, complaint })
}

/// [`run`], with KVM or without.
pub(crate) fn run_in(
    directory: &Directory,
    job: &Job,
    accelerated: bool,
    stdout: &mut dyn Write,
    stderr: &mut dyn Write,
) -> Result<Ending> {
    let mut machine = Machine::start(job, directory, accelerated)?;
    let mut out = Follow::new(directory.stdout());
    let mut err = Follow::new(directory.stderr());
    let born = Instant::now();
    let boot_limit = if accelerated {
        KVM_BOOT_LIMIT
    } else {
        BOOT_LIMIT
    };
    let mut started = None;
    let ending = loop {
        let gone = machine.ended()?;
        let status = directory.status();
        out.pump(stdout)?;
        err.pump(stderr)?;
        if let Some(status) = status {
            break Ending::Exited(status);
        }
        if started.is_none() && directory.started() {
            started = Some(Instant::now());
        }
        match started {
            None if gone || born.elapsed() > boot_limit => {
                break Ending::NotStarted {
                    console: directory.console_tail(25),
                };
            }
            Some(_) if gone => {
                break Ending::Died {
                    console: directory.console_tail(40),
                };
            }
            Some(start) if start.elapsed() > job.timeout => break Ending::TimedOut,
            _ => thread::sleep(LOOK),
        }
    };
    machine.end()?;
    Ok(ending)
}

/// A shell on our own terminal.
pub(crate) fn shell(job: &Job) -> Result<i32> {
    let accelerated = kvm::works(&job.kernel)?;
    let script = directory::shell_script(job)?;
    let mut vng = vng(job, accelerated)?;
    vng.arg("--cwd")
        .arg(paths::root())
        .arg("--shell")
        .arg(script);
    let status = vng.status().context("cannot start the VM")?;
    Ok(status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}

/// The command line that boots the VM, without what to run in it.
fn vng(job: &Job, accelerated: bool) -> Result<Command> {
    let qemu = setup::qemu()?;
    let mut vng = caged(&paths::venv().join("bin/vng"));
    vng.arg("--qemu").arg(&qemu.program);
    if !accelerated {
        vng.arg("--disable-kvm");
        if !qemu.threads {
            vng.arg("--qemu-opts=-accel tcg,thread=single");
        }
    }
    vng.args(["--force-9p", "--disable-microvm", "--user", "root"])
        .arg("--run")
        .arg(&job.kernel.image)
        .args(["--cpus", &job.cpus.to_string(), "--memory", &job.memory])
        .arg(format!("--rwdir={}", paths::root().display()));
    // vng calls its own parts and QEMU by name.
    let mut path = vec![paths::venv().join("bin")];
    path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    path.extend(command::SYSTEM_DIRS.iter().map(Into::into));
    if let Ok(path) = env::join_paths(path) {
        vng.env("PATH", path);
    }
    Ok(vng)
}

/// A running VM; dropped, it is killed.
struct Machine {
    child: Child,
    name: String,
    over: bool,
}

impl Machine {
    fn start(job: &Job, directory: &Directory, accelerated: bool) -> Result<Self> {
        let console = File::create(directory.console()).context("create the console's file")?;
        let mut vng = vng(job, accelerated)?;
        vng.args(["--verbose", "--name", &directory.name])
            .arg("--")
            .arg(format!(
                "sh {}",
                command::quoted(&directory.script().to_string_lossy())
            ))
            .current_dir(paths::root())
            .stdin(Stdio::null())
            .stdout(
                console
                    .try_clone()
                    .context("duplicate the console's file")?,
            )
            .stderr(console);
        // SAFETY: prctl and setsid are async-signal-safe, and neither touches
        // memory of ours.
        unsafe {
            vng.pre_exec(|| {
                // Its own session: a Ctrl-C is for us, and we take it along.
                libc::setsid();
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let child = vng
            .spawn()
            .with_context(|| format!("cannot start `{}`", command::shown(&vng)))?;
        Ok(Self {
            child,
            name: directory.name.clone(),
            over: false,
        })
    }

    fn ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait().context("wait for the VM")?.is_some())
    }

    fn kill(&mut self) {
        if self.over {
            return;
        }
        self.over = true;
        if let Ok(group) = i32::try_from(self.child.id()) {
            // SAFETY: the child leads this group, and is not yet reaped or has
            // just been, so the number is not another's.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Kills what is left of it and sees that nothing is.
    fn end(&mut self) -> Result<()> {
        self.kill();
        let limit = Instant::now() + GONE_LIMIT;
        loop {
            let left = processes_of(&self.name);
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > limit {
                bail!("processes of the VM are still there: {left:?}");
            }
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The processes with the VM's name in their command line.
pub(crate) fn processes_of(name: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|&byte| byte == 0)
                .any(|word| word == name.as_bytes())
        })
        .collect()
}
