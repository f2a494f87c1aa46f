//! Network namespaces: finding the one that a tap is in, and opening sockets
//! there.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

/// Where `ip netns` and container managers keep names of namespaces that no
/// process need be in.
const NAMED: [&str; 2] = ["/run/netns", "/run/docker/netns"];

/// Why a namespace cannot be looked into.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// Nothing that we can see refers to it.
    #[error("no process or name leads there")]
    Unfound,
    /// Its processes are hidden from us.
    #[error("looking into it needs CAP_SYS_PTRACE")]
    Hidden,
    /// We may not enter it.
    #[error("entering it needs CAP_SYS_ADMIN")]
    Closed,
    /// Something else.
    #[error("{call}: {source}")]
    System {
        /// The system call.
        call: &'static str,
        /// What it said.
        source: io::Error,
    },
}

/// Inode number of the calling thread's network namespace, by which the kernel
/// calls it everywhere.
pub(super) fn own() -> io::Result<u32> {
    let meta = fs::metadata("/proc/thread-self/ns/net")?;
    u32::try_from(meta.st_ino()).map_err(io::Error::other)
}

/// Opens a namespace: through one of these processes, by a name, or through any
/// process at all.
pub(super) fn find(inode: u32, pids: &[u32]) -> Result<File, NamespaceError> {
    // A namespace is a file of a file system of its own: numbers alone may be
    // another file's.
    let own =
        fs::metadata("/proc/thread-self/ns/net").map_err(|source| NamespaceError::System {
            call: "stat",
            source,
        })?;
    let mut hidden = false;
    let mut open = |path: PathBuf| {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(why) => {
                hidden |= why.kind() == io::ErrorKind::PermissionDenied;
                return None;
            }
        };
        let meta = file.metadata().ok()?;
        let meant = meta.st_ino() == u64::from(inode) && meta.st_dev() == own.st_dev();
        meant.then_some(file)
    };
    let of = |pid: &u32| PathBuf::from(format!("/proc/{pid}/ns/net"));
    let all = |folder: &str| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let found = pids
        .iter()
        .map(of)
        .find_map(&mut open)
        .or_else(|| NAMED.iter().flat_map(|name| all(name)).find_map(&mut open))
        .or_else(|| {
            let is_process = |path: &PathBuf| {
                let name = path.file_name().and_then(|name| name.to_str());
                name.is_some_and(|name| name.parse::<u32>().is_ok())
            };
            let processes = all("/proc").into_iter().filter(is_process);
            processes
                .map(|path| path.join(Path::new("ns/net")))
                .find_map(&mut open)
        });
    found.ok_or(if hidden {
        NamespaceError::Hidden
    } else {
        NamespaceError::Unfound
    })
}

/// Does something in a thread that has entered a namespace, and ends with it.
pub(super) fn inside<T: Send>(
    namespace: &File,
    work: impl FnOnce() -> T + Send,
) -> Result<T, NamespaceError> {
    let entered = move || {
        // SAFETY: takes an open descriptor, and moves this thread only, which
        // does nothing else.
        if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(work())
    };
    let done = thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("namespace".to_owned())
            .spawn_scoped(scope, entered)?;
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread ended early")))
    });
    done.map_err(|source| match source.raw_os_error() {
        Some(libc::EPERM) => NamespaceError::Closed,
        _ => NamespaceError::System {
            call: "setns",
            source,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_namespace_is_found_through_ourselves_and_through_any_process() {
        let inode = own().unwrap();
        for pids in [&[std::process::id()][..], &[]] {
            let file = find(inode, pids).unwrap();
            assert_eq!(file.metadata().unwrap().st_ino(), u64::from(inode));
        }
    }

    #[test]
    fn a_namespace_that_nothing_leads_to_is_said() {
        assert!(matches!(
            find(1, &[std::process::id()]),
            Err(NamespaceError::Unfound | NamespaceError::Hidden)
        ));
    }

    #[test]
    fn entering_our_own_works_or_names_the_capability() {
        let file = find(own().unwrap(), &[]).unwrap();
        match inside(&file, own) {
            Ok(inode) => assert_eq!(inode.unwrap(), own().unwrap()),
            Err(why) => assert!(why.to_string().contains("CAP_SYS_ADMIN"), "{why}"),
        }
    }
}
