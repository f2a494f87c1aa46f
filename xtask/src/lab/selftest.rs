//! The runner's own test. Two boots: one for what a command sees and what is
//! seen of it, one for the time-out.

use std::{fs, time::Duration};

use anyhow::{Result, ensure};

use super::{
    directory::Directory,
    kvm,
    machine::{self, Job},
    outcome::Ending,
};
use crate::paths;

/// Prints to both streams, early and late, and ends with a status of its own.
const SCRIPT: &str = r#"
    test "$(id -u)" = 0 && test "$PWD" = "$1" && test "$VHOST_TUNER_LAB" = 1 || exit 1
    test "$VHOST_TUNER_LAB_KERNEL" = "$(uname -r)" || exit 2
    test -c /dev/vhost-net && test -c /dev/net/tun || exit 3
    echo written >"$2" || exit 4
    echo 'a line on stdout'; echo 'a line on stderr' >&2
    i=0; while [ $i -lt 2000 ]; do echo "line $i"; i=$((i + 1)); done
    printf 'the end'; exit 37
"#;

/// Runs it in VMs like that of `like`.
pub(super) fn run(like: &Job) -> Result<()> {
    passes_output_and_status(like)?;
    ends_what_takes_too_long(like)?;
    eprintln!("[lab] selftest on Linux {}: ok", like.kernel.version);
    Ok(())
}

fn passes_output_and_status(like: &Job) -> Result<()> {
    let mark = paths::lab().join("selftest-written-by-the-vm");
    let _ = fs::remove_file(&mark);
    let root = paths::root().to_string_lossy().into_owned();
    let written = mark.to_string_lossy().into_owned();
    let words = ["sh", "-c", SCRIPT, "sh", &root, &written];
    let job = Job {
        command: words.map(str::to_owned).to_vec(),
        ..like.clone()
    };
    let (ending, out, err) = outcome(&job)?;
    let (out, err) = (String::from_utf8_lossy(&out), String::from_utf8_lossy(&err));
    ensure!(
        ending == Ending::Exited(37),
        "status: {ending:?}\n{out}\n{err}"
    );
    ensure!(
        out.starts_with("a line on stdout\nline 0\n"),
        "stdout: {out}"
    );
    ensure!(
        out.ends_with("line 1999\nthe end"),
        "the end of stdout is lost"
    );
    ensure!(
        out.lines().count() == 2002,
        "lines: {}",
        out.lines().count()
    );
    ensure!(err == "a line on stderr\n", "stderr: {err}");
    ensure!(
        fs::read_to_string(&mark)? == "written\n",
        "the checkout is not writable"
    );
    fs::remove_file(&mark)?;
    Ok(())
}

fn ends_what_takes_too_long(like: &Job) -> Result<()> {
    let words = ["sh", "-c", "echo begun; sleep 1000"];
    let job = Job {
        command: words.map(str::to_owned).to_vec(),
        timeout: Duration::from_secs(2),
        ..like.clone()
    };
    let (ending, out, _) = outcome(&job)?;
    ensure!(ending == Ending::TimedOut, "{ending:?}");
    ensure!(out == b"begun\n", "output before the time-out is lost");
    Ok(())
}

/// Runs the job and keeps no trace of it: what ends early here does so on
/// purpose.
fn outcome(job: &Job) -> Result<(Ending, Vec<u8>, Vec<u8>)> {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let accelerated = kvm::works(&job.kernel)?;
    let directory = Directory::create(job)?;
    let ending = machine::run_in(&directory, job, accelerated, &mut out, &mut err)?;
    directory.remove();
    Ok((ending, out, err))
}
