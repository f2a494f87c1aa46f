//! Whether KVM works here, found by booting a kernel with it: `/dev/kvm` may be
//! there and create VMs which then never get anywhere, for instance when the
//! machine is a VM itself.

use std::{
    fs::{self, File},
    io,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context as _, Result};

use super::{
    directory::Directory,
    machine::{Job, run_in},
    outcome::Ending,
};
use crate::{paths, setup::Kernel};

/// `_IO(KVMIO, 0x01)` of linux/kvm.h.
const KVM_CREATE_VM: libc::c_ulong = 0xae01;
/// `_IO(KVMIO, 0x41)` of linux/kvm.h.
const KVM_CREATE_VCPU: libc::c_ulong = 0xae41;

fn verdict_file() -> PathBuf {
    paths::lab().join("kvm-works")
}

/// The verdict for this boot of this machine; the first time, with a trial.
pub(crate) fn works(kernel: &Kernel) -> Result<bool> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let boot = boot.trim();
    let known = fs::read_to_string(verdict_file()).unwrap_or_default();
    if let Some(verdict) = known.strip_prefix(&format!("{boot} ")) {
        return Ok(verdict.starts_with("yes"));
    }
    let verdict = match try_out(kernel)? {
        None => "yes".to_owned(),
        Some(reason) => format!("no: {reason}"),
    };
    eprintln!("[lab] does KVM work here? {verdict}");
    fs::create_dir_all(paths::lab()).context("create target/lab")?;
    fs::write(verdict_file(), format!("{boot} {verdict}\n")).context("keep the verdict on KVM")?;
    Ok(verdict == "yes")
}

/// Why it does not work, if it does not.
fn try_out(kernel: &Kernel) -> Result<Option<String>> {
    if let Err(error) = create_vcpu() {
        return Ok(Some(error.to_string()));
    }
    let job = Job {
        cpus: 1,
        memory: "1G".to_owned(),
        timeout: Duration::from_secs(10),
        ..Job::new(kernel.clone(), vec!["true".to_owned()])
    };
    let directory = Directory::create(&job)?;
    let ending = run_in(&directory, &job, true, &mut io::sink(), &mut io::sink())?;
    directory.remove();
    Ok(match ending {
        Ending::Exited(0) => None,
        Ending::NotStarted { console } => {
            let said = console
                .lines()
                .rev()
                .find(|line| line.contains("qemu") || line.contains("KVM"))
                .unwrap_or("no output");
            Some(format!("a kernel does not boot with it ({said})"))
        }
        other => Some(format!("a trial ended with {other:?}")),
    })
}

/// The cheap half of the trial.
fn create_vcpu() -> Result<()> {
    let kvm = File::options()
        .read(true)
        .write(true)
        .open("/dev/kvm")
        .context("/dev/kvm cannot be opened")?;
    let vm = create(kvm.as_raw_fd(), KVM_CREATE_VM).context("KVM creates no VM")?;
    create(vm.as_raw_fd(), KVM_CREATE_VCPU).context("KVM creates no virtual CPU")?;
    Ok(())
}

fn create(fd: i32, request: libc::c_ulong) -> io::Result<OwnedFd> {
    // SAFETY: both requests take a plain number and give a new descriptor.
    let new = unsafe { libc::ioctl(fd, request, 0) };
    if new < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us, and nobody else
    // knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(new) })
}
