//! Who has `/dev/vhost-net` open, by procfs alone.

use std::{fs, os::linux::fs::MetadataExt, path::Path};

use super::{ProcError, ProcStat, read_text};

/// Device number of `/dev/vhost-net`: misc, minor 238, both fixed in
/// Documentation/admin-guide/devices.txt.
pub const VHOST_NET: (u32, u32) = (10, 238);

/// A process with descriptors of `/dev/vhost-net`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opener {
    /// The process.
    pub pid: i32,
    /// When it started, clock ticks since boot; read *before* its descriptors,
    /// so a pid reused in between shows as a mismatch later.
    pub start_time: u64,
    /// Its descriptors of the device, ascending. One per queue pair, and the
    /// process need not be the one that may change the rings: a descriptor can
    /// be handed on, and libvirt does.
    pub fds: Vec<i32>,
}

/// All openers that could be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Openers {
    /// Ascending by pid.
    pub openers: Vec<Opener>,
    /// Processes whose descriptors are hidden from us.
    pub hidden: usize,
}

impl Openers {
    /// One sentence when the list may be short, `None` when it is complete.
    pub fn shortfall(&self) -> Option<String> {
        (self.hidden > 0).then(|| {
            format!(
                "the open files of {} process{} are hidden from this user, so devices may be \
                 missing: run as root, or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
                self.hidden,
                if self.hidden == 1 { "" } else { "es" }
            )
        })
    }
}

/// Scans `/proc/*/fd`. One `readlink` per open file of the host: for the
/// inventory at long intervals, and where BPF cannot be used.
///
/// # Errors
///
/// Only when `/proc` itself cannot be read. Processes that end meanwhile are
/// passed over.
pub fn vhost_net_openers() -> Result<Openers, ProcError> {
    vhost_net_openers_under(Path::new("/proc"))
}

/// [`vhost_net_openers`] for a procfs mounted, or captured, elsewhere.
///
/// # Errors
///
/// When the directory cannot be read.
pub fn vhost_net_openers_under(proc: &Path) -> Result<Openers, ProcError> {
    let mut found = Openers::default();
    let entries = fs::read_dir(proc).map_err(|source| ProcError::reading(proc, source))?;
    for entry in entries.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        match opener(&entry.path(), pid) {
            Ok(Some(opener)) => found.openers.push(opener),
            Err(error) if error.is_hidden() => found.hidden += 1,
            // Ended meanwhile, or a zombie: nothing is open there.
            Ok(None) | Err(_) => {}
        }
    }
    found.openers.sort_by_key(|opener| opener.pid);
    Ok(found)
}

fn opener(process: &Path, pid: i32) -> Result<Option<Opener>, ProcError> {
    let stat = ProcStat::from_text(&read_text(&process.join("stat"))?)?;
    if stat.is_kthread() {
        // It has no files, though they are hidden like everybody's.
        return Ok(None);
    }
    let dir = process.join("fd");
    let entries = fs::read_dir(&dir).map_err(|source| ProcError::reading(&dir, source))?;
    let mut fds: Vec<i32> = entries
        .flatten()
        .filter(|entry| is_vhost_net(&entry.path()))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    fds.sort_unstable();
    Ok((!fds.is_empty()).then_some(Opener {
        pid,
        start_time: stat.start_time,
        fds,
    }))
}

/// The link's text is what the *process* would see: `/dev/vhost-net`, or
/// `/vhost-net` for a private `/dev` of another mount namespace. Any file may
/// carry that name, so where it can be, the device number is asked too.
fn is_vhost_net(link: &Path) -> bool {
    let named = fs::read_link(link)
        .ok()
        .is_some_and(|target| target.file_name().is_some_and(|name| name == "vhost-net"));
    named
        && fs::metadata(link).map_or(true, |file| {
            let device = file.st_rdev();
            (libc::major(device), libc::minor(device)) == VHOST_NET
        })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const STAT: &str = "7 (q) S 1 7 7 0 -1 4194624 1 0 0 0 3 2 0 0 20 0 6 0 51234 1 2 3 1 1 0 0 0 \
        0 0 0 0 0 0 0 17 3 0 0 0 0 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn a_captured_procfs_gives_its_openers() {
        let proc = tempfile::tempdir().unwrap();
        // Links into nowhere, as descriptors of a captured tree are.
        for (pid, fd, target) in [
            ("31", "12", "/dev/gone/vhost-net"),
            ("31", "9", "/gone/vhost-net"),
            ("31", "3", "/dev/null"),
            ("40", "5", "socket:[77]"),
            ("sys", "5", "/gone/vhost-net"),
        ] {
            let dir = proc.path().join(pid).join("fd");
            fs::create_dir_all(&dir).unwrap();
            fs::write(proc.path().join(pid).join("stat"), STAT).unwrap();
            symlink(target, dir.join(fd)).unwrap();
        }
        // A zombie: no fd directory at all.
        fs::create_dir(proc.path().join("50")).unwrap();
        let found = vhost_net_openers_under(proc.path()).unwrap();
        assert_eq!(
            found.openers,
            [Opener {
                pid: 31,
                start_time: 51234,
                fds: vec![9, 12],
            }]
        );
        assert_eq!(found.shortfall(), None);
    }

    #[test]
    fn a_plain_file_of_that_name_is_not_the_device() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("vhost-net");
        fs::write(&file, "").unwrap();
        symlink(&file, dir.path().join("3")).unwrap();
        assert!(!is_vhost_net(&dir.path().join("3")));
    }

    #[test]
    fn hidden_processes_are_told_in_a_sentence() {
        let found = Openers {
            openers: Vec::new(),
            hidden: 3,
        };
        assert!(found.shortfall().unwrap().contains("3 processes"));
    }

    #[test]
    fn the_real_procfs_can_be_scanned() {
        vhost_net_openers().unwrap();
    }
}
