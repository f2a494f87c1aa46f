//! What can go wrong when procfs is read.

use std::{
    io,
    path::{Path, PathBuf},
};

/// Why a fact could not be had from procfs.
#[derive(Debug, thiserror::Error)]
pub enum ProcError {
    /// The process or thread ended, or the file never existed.
    #[error("{path}: the process, thread or descriptor is gone")]
    Gone {
        /// The file that was read.
        path: PathBuf,
    },
    /// The file is hidden from us (`EACCES`, `EPERM`).
    #[error(
        "{path}: not allowed; this file of another user's process can be read by root, or with \
         CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, only"
    )]
    Hidden {
        /// The file that was read.
        path: PathBuf,
    },
    /// `open` or `read` failed in another way.
    #[error("read {path}: {source}")]
    Read {
        /// The file that was read.
        path: PathBuf,
        /// What the system call said.
        source: io::Error,
    },
    /// The kernel's text is not laid out as proc(5) describes.
    #[error("{what} is not laid out as proc(5) describes: {text:?}")]
    Malformed {
        /// Which file or field.
        what: &'static str,
        /// Its beginning.
        text: String,
    },
}

impl ProcError {
    /// Sorts an error of `open` or `read` on a procfs file.
    pub(super) fn reading(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => Self::Gone { path },
            Some(libc::EACCES | libc::EPERM) => Self::Hidden { path },
            _ => Self::Read { path, source },
        }
    }

    /// The text did not parse; keeps enough of it to see why.
    pub(super) fn malformed(what: &'static str, text: &str) -> Self {
        Self::Malformed {
            what,
            text: text.chars().take(120).collect(),
        }
    }

    /// Whether the process, thread or descriptor no longer exists.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. })
    }

    /// Whether more rights would have helped.
    pub fn is_hidden(&self) -> bool {
        matches!(self, Self::Hidden { .. })
    }
}
