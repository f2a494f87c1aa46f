//! What is to be run inside the target.

use std::{fs, path::PathBuf};

use super::InjectError;

/// Most calls in one stop.
const CALLS_MAX: usize = 32;
/// Most bytes of arguments in one stop: they lie on the target's stack.
const BYTES_MAX: usize = 512;

/// Third argument of an ioctl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A number.
    Value(u64),
    /// Memory the call reads or writes: a pointer to a copy of these bytes.
    Bytes(Vec<u8>),
}

/// One ioctl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Descriptor *in the target*.
    pub fd: i32,
    /// Request code.
    pub request: u64,
    /// Its argument.
    pub argument: Argument,
    /// Argument that makes the same request undo this call, should a later one
    /// of the batch fail.
    pub undo: Option<Argument>,
    /// What `/proc/PID/fd/FD` must point to, checked while the thread is
    /// stopped.
    pub file: Option<PathBuf>,
}

impl Call {
    /// An ioctl on memory.
    pub fn new(fd: i32, request: u64, bytes: &[u8]) -> Self {
        Self {
            fd,
            request,
            argument: Argument::Bytes(bytes.to_vec()),
            undo: None,
            file: None,
        }
    }

    /// With an argument to undo it.
    #[must_use]
    pub fn undone_by(mut self, bytes: &[u8]) -> Self {
        self.undo = Some(Argument::Bytes(bytes.to_vec()));
        self
    }

    /// Only if the descriptor is this file.
    #[must_use]
    pub fn on(mut self, file: impl Into<PathBuf>) -> Self {
        self.file = Some(file.into());
        self
    }
}

/// An argument with its place in the block of all arguments.
#[derive(Clone, Copy, Debug)]
pub(super) enum Placed {
    Value(u64),
    At { offset: usize, length: usize },
}

impl Placed {
    /// The value to pass when the block lies at `block`.
    pub(super) fn place(self, block: u64) -> u64 {
        match self {
            Self::Value(value) => value,
            Self::At { offset, .. } => block + offset as u64,
        }
    }

    /// Its bytes in a copy of the block.
    pub(super) fn of(self, block: &[u8]) -> &[u8] {
        match self {
            Self::Value(_) => &[],
            Self::At { offset, length } => block.get(offset..offset + length).unwrap_or_default(),
        }
    }
}

/// A call whose arguments have their places.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) fd: i32,
    pub(super) request: u64,
    pub(super) argument: Placed,
    pub(super) undo: Option<Placed>,
    file: Option<PathBuf>,
}

/// Several calls for one stop, and all that can be prepared before it.
#[derive(Clone, Debug, Default)]
pub(super) struct Batch {
    pub(super) calls: Vec<Planned>,
    pub(super) bytes: Vec<u8>,
}

impl Batch {
    pub(super) fn new(calls: &[Call]) -> Result<Self, InjectError> {
        if calls.is_empty() || calls.len() > CALLS_MAX {
            return Err(InjectError::Argument(
                "between 1 and 32 calls can be run in one stop",
            ));
        }
        let mut batch = Self::default();
        for call in calls {
            let planned = Planned {
                fd: call.fd,
                request: call.request,
                argument: batch.place(&call.argument),
                undo: call.undo.as_ref().map(|undo| batch.place(undo)),
                file: call.file.clone(),
            };
            batch.calls.push(planned);
        }
        if batch.bytes.len() > BYTES_MAX {
            return Err(InjectError::Argument(
                "the arguments of one stop are limited to 512 bytes",
            ));
        }
        Ok(batch)
    }

    fn place(&mut self, argument: &Argument) -> Placed {
        match argument {
            Argument::Value(value) => Placed::Value(*value),
            Argument::Bytes(bytes) => {
                let offset = self.bytes.len();
                self.bytes.extend_from_slice(bytes);
                // Structures may hold 64-bit fields.
                self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
                Placed::At {
                    offset,
                    length: bytes.len(),
                }
            }
        }
    }

    /// Checks that each descriptor is the file it should be.
    pub(super) fn check_files(&self, pid: i32) -> Result<(), InjectError> {
        for call in &self.calls {
            let Some(wanted) = &call.file else { continue };
            let found = fs::read_link(format!("/proc/{pid}/fd/{}", call.fd));
            if found.as_ref().ok() != Some(wanted) {
                return Err(InjectError::WrongFile {
                    pid,
                    fd: call.fd,
                    found: found.map_or_else(
                        |_| "not open".into(),
                        |path| path.to_string_lossy().into_owned(),
                    ),
                    wanted: wanted.to_string_lossy().into_owned(),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_laid_out_side_by_side_and_aligned() {
        let calls = [
            Call::new(3, 1, &[1; 8]).undone_by(&[2; 3]),
            Call::new(3, 1, &[3; 8]),
        ];
        let batch = Batch::new(&calls).unwrap();
        assert_eq!(batch.bytes.len(), 24);
        assert_eq!(batch.calls[1].argument.place(0x1000), 0x1010);
        assert_eq!(batch.calls[0].undo.unwrap().of(&batch.bytes), [2; 3]);
        assert_eq!(batch.calls[1].argument.of(&batch.bytes), [3; 8]);
    }

    #[test]
    fn what_does_not_fit_into_one_stop_is_refused() {
        let call = Call::new(3, 1, &[0; 100]);
        assert!(Batch::new(&[]).is_err());
        assert!(Batch::new(&vec![call.clone(); 5]).is_err());
        assert!(Batch::new(&vec![call; 4]).is_ok());
    }
}
