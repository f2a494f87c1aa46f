//! Keeps two of these commands from working at once.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The lock's file. It stays: who removed it would let a third one in.
pub const PATH: &str = "/run/vhost-tuner-module.lock";

/// Held until it is dropped, also by a process that is killed.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Why the lock was not got.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody has it.
    #[error(
        "another `vhost-tuner module` command is at work{}: wait until it is done",
        .0.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    Held(Option<u32>),
    /// The file cannot be used.
    #[error("{path}, which keeps two such commands apart: {why}")]
    File {
        /// The file.
        path: String,
        /// What the system said.
        why: std::io::Error,
    },
}

impl Lock {
    /// Takes the lock.
    ///
    /// # Errors
    /// If somebody else has it.
    pub fn take() -> Result<Self, LockError> {
        Self::take_at(Path::new(PATH))
    }

    fn take_at(path: &Path) -> Result<Self, LockError> {
        let failed = |why| LockError::File {
            path: path.display().to_string(),
            why,
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let _ = file.read_to_string(&mut text);
                return Err(LockError::Held(text.trim().parse().ok()));
            }
            Err(TryLockError::Error(why)) => return Err(failed(why)),
        }
        // Only for the message above: without it the lock holds as well.
        let _ = file.set_len(0);
        let _ = file.rewind();
        let _ = writeln!(file, "{}", std::process::id());
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_one_is_told_who_has_it_and_gets_it_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = Lock::take_at(&path).unwrap();
        let why = Lock::take_at(&path).unwrap_err().to_string();
        let me = format!("process {}", std::process::id());
        assert!(why.contains(&me), "{why}");
        drop(first);
        Lock::take_at(&path).unwrap();
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        assert!(matches!(Lock::take_at(&path), Err(LockError::File { .. })));
    }
}
