//! Keeps two of our programs from working on the same thing at once.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Held by whoever turns knobs on this host, wherever its journal is. The file
/// stays: who removed it would let a third one in.
pub const KNOBS: &str = "/run/vhost-tuner.lock";
/// Held by whoever brings our module in or out.
pub const MODULE: &str = "/run/vhost-tuner-module.lock";

/// For how long a command that turns knobs waits for another one to be done.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Held until it is dropped, also by a process that is killed.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Why the lock was not got.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody has it.
    #[error("{} is at work; try again when it has ended", holder(.0))]
    Held(String),
    /// The file cannot be used.
    #[error("{path}, which keeps two of these commands apart, cannot be used: {why}")]
    File {
        /// The file.
        path: String,
        /// What the system said.
        why: io::Error,
    },
}

/// What the file says of its holder, in words.
fn holder(said: &str) -> String {
    match said.trim().split_once(' ') {
        Some((pid, command)) if pid.parse::<u32>().is_ok() => {
            format!("`vhost-tuner {command}` (process {pid})")
        }
        // It has the lock and has not yet written who it is.
        _ => "another vhost-tuner".to_owned(),
    }
}

impl Lock {
    /// Takes the lock at `path` for a command, waiting for up to `patience`.
    ///
    /// # Errors
    /// If somebody else has it for longer, or the file cannot be used.
    pub fn take(path: &Path, command: &str, patience: Duration) -> Result<Self, LockError> {
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
        let until = Instant::now() + patience;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    std::thread::sleep(PAUSE);
                }
                Err(TryLockError::WouldBlock) => {
                    let mut text = String::new();
                    let _ = file.read_to_string(&mut text);
                    return Err(LockError::Held(text));
                }
                Err(TryLockError::Error(why)) => return Err(failed(why)),
            }
        }
        // Only for the message above: without it the lock holds as well.
        let _ = file.set_len(0);
        let _ = file.rewind();
        let _ = writeln!(file, "{} {command}", std::process::id());
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
        let first = Lock::take(&path, "set", Duration::ZERO).unwrap();
        let why = Lock::take(&path, "undo", Duration::ZERO).unwrap_err();
        assert_eq!(
            why.to_string(),
            format!(
                "`vhost-tuner set` (process {}) is at work; try again when it has ended",
                std::process::id()
            )
        );
        drop(first);
        Lock::take(&path, "undo", Duration::ZERO).unwrap();
    }

    #[test]
    fn one_that_is_soon_done_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = Lock::take(&path, "set", Duration::ZERO).unwrap();
        let second = std::thread::spawn({
            let path = path.clone();
            move || Lock::take(&path, "undo", Duration::from_secs(600))
        });
        drop(first);
        second.join().unwrap().unwrap();
    }

    #[test]
    fn a_holder_that_has_not_said_who_it_is_is_another_one() {
        for text in ["", "x", "12", "set 12"] {
            let why = LockError::Held(text.to_owned()).to_string();
            assert!(why.starts_with("another vhost-tuner is at work"), "{why}");
        }
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        let why = Lock::take(&path, "set", Duration::ZERO).unwrap_err();
        assert!(matches!(why, LockError::File { .. }));
    }
}
