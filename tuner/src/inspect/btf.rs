//! Offsets and argument positions, by name, from BTF.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;

use btf_rs::{Backend, Btf, BtfType, Struct, Type};

/// Why something was not found in BTF.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// A BTF blob could not be read.
    #[error("{path} cannot be read as BTF: {why}")]
    Read {
        /// The file.
        path: String,
        /// What the reader said.
        why: btf_rs::Error,
    },
    /// A BTF blob is inconsistent.
    #[error("the kernel's BTF is inconsistent at `{at}`: {why}")]
    Broken {
        /// What was looked for.
        at: String,
        /// What the reader said.
        why: btf_rs::Error,
    },
    /// There is no such structure, member or function.
    #[error("this kernel's BTF has no `{0}`")]
    Absent(String),
}

/// Types of one module (on top of the kernel's) or of the kernel itself.
pub struct Types {
    btf: Btf,
}

impl Types {
    /// Types of the kernel image.
    ///
    /// # Errors
    /// If the file cannot be read as BTF.
    pub fn kernel(path: &Path) -> Result<Self, BtfError> {
        open(path)
            .map(|btf| Self { btf })
            .map_err(|why| read_error(path, why))
    }

    /// Types of a module, whose BTF is split off the kernel's.
    ///
    /// # Errors
    /// If the file cannot be read as BTF.
    pub fn module(path: &Path, kernel: &Self) -> Result<Self, BtfError> {
        read(path)
            .and_then(|bytes| Btf::from_split_bytes(&bytes, &kernel.btf))
            .map(|btf| Self { btf })
            .map_err(|why| read_error(path, why))
    }

    /// Byte offset of a member: `path` is a chain of members with `.` between
    /// them, each with `[i]` behind it if it is an array. Members of anonymous
    /// structures and unions are found as in C.
    ///
    /// # Errors
    /// If the structure or a member does not exist here.
    pub fn offset(&self, structure: &str, path: &str) -> Result<u32, BtfError> {
        let absent = || BtfError::Absent(format!("struct {structure}.{path}"));
        let mut scope = self.structure(structure)?;
        let mut offset = 0;
        let mut segments = path.split('.').peekable();
        while let Some(segment) = segments.next() {
            let (name, index) = split_index(segment);
            let (bits, mut kind) = self
                .member(&scope, name)
                .map_err(|why| broken(path, why))?
                .ok_or_else(absent)?;
            offset += bits / 8;
            if let Some(index) = index {
                let Type::Array(array) = &kind else {
                    return Err(absent());
                };
                if index as usize >= array.len() {
                    return Err(absent());
                }
                kind = self.strip(array).map_err(|why| broken(path, why))?;
                offset += index * self.size(&kind).ok_or_else(absent)?;
            }
            if segments.peek().is_some() {
                scope = match kind {
                    Type::Struct(inner) | Type::Union(inner) => inner,
                    _ => return Err(absent()),
                };
            }
        }
        Ok(offset)
    }

    /// Size of a structure in bytes.
    ///
    /// # Errors
    /// If there is no such structure.
    pub fn structure_size(&self, name: &str) -> Result<u32, BtfError> {
        let size = self.structure(name)?.size();
        u32::try_from(size).map_err(|_| BtfError::Absent(format!("struct {name}")))
    }

    /// Position of the parameter called `parameter` of `function`, from 0.
    ///
    /// # Errors
    /// If there is no such function or parameter, or it is not passed in a
    /// register (only the first six are).
    pub fn argument(&self, function: &str, parameter: &str) -> Result<u32, BtfError> {
        let absent = || BtfError::Absent(format!("{function}({parameter})"));
        let found = self
            .btf
            .resolve_types_by_name(function)
            .map_err(|_| absent())?;
        let function_type = found
            .into_iter()
            .find_map(|kind| match kind {
                Type::Func(function) => Some(function),
                _ => None,
            })
            .ok_or_else(absent)?;
        let Type::FuncProto(prototype) = self
            .btf
            .resolve_chained_type(&function_type)
            .map_err(|why| broken(function, why))?
        else {
            return Err(absent());
        };
        for (position, candidate) in prototype.parameters.iter().enumerate() {
            let name = self.btf.resolve_name(candidate).unwrap_or_default();
            if name == parameter && position < 6 {
                return Ok(position as u32);
            }
        }
        Err(absent())
    }

    fn structure(&self, name: &str) -> Result<Struct, BtfError> {
        self.btf
            .resolve_types_by_name(name)
            .unwrap_or_default()
            .into_iter()
            .find_map(|kind| match kind {
                Type::Struct(found) => Some(found),
                _ => None,
            })
            .ok_or_else(|| BtfError::Absent(format!("struct {name}")))
    }

    /// Bit offset and type of a member, looked for in anonymous members too.
    fn member(&self, scope: &Struct, name: &str) -> Result<Option<(u32, Type)>, btf_rs::Error> {
        for member in &scope.members {
            let its_name = self.btf.resolve_name(member).unwrap_or_default();
            if its_name == name {
                return Ok(Some((member.bit_offset(), self.strip(member)?)));
            }
            if its_name.is_empty()
                && let Type::Struct(inner) | Type::Union(inner) = self.strip(member)?
                && let Some((bits, kind)) = self.member(&inner, name)?
            {
                return Ok(Some((member.bit_offset() + bits, kind)));
            }
        }
        Ok(None)
    }

    /// The type behind typedefs and qualifiers.
    fn strip<T: BtfType>(&self, of: &T) -> Result<Type, btf_rs::Error> {
        let mut kind = self.btf.resolve_chained_type(of)?;
        loop {
            kind = match &kind {
                Type::Typedef(inner) => self.btf.resolve_chained_type(inner)?,
                Type::Volatile(inner) | Type::Const(inner) | Type::Restrict(inner) => {
                    self.btf.resolve_chained_type(inner)?
                }
                Type::TypeTag(inner) => self.btf.resolve_chained_type(inner)?,
                _ => return Ok(kind),
            };
        }
    }

    /// Size in bytes of what can be an element of an array here.
    fn size(&self, kind: &Type) -> Option<u32> {
        match kind {
            Type::Struct(inner) | Type::Union(inner) => u32::try_from(inner.size()).ok(),
            Type::Int(inner) => u32::try_from(inner.size()).ok(),
            Type::Ptr(_) => Some(8),
            _ => None,
        }
    }
}

/// The kernel's own types. Some hundred thousand, of which a few dozen are asked
/// for: read where they lie, that takes a fifth of the time of sorting them all.
///
/// # Errors
/// If the file cannot be read as BTF.
pub(crate) fn open(path: &Path) -> Result<Btf, btf_rs::Error> {
    let in_place = memory_copy(path).and_then(|copy| {
        let copy = format!("/proc/self/fd/{}", copy.as_raw_fd());
        Btf::from_file_with_backend(copy, Backend::Mmap).map_err(io::Error::other)
    });
    in_place.or_else(|_| Btf::from_bytes(&read(path)?))
}

/// A copy that can be mapped and that nobody else can write to: most kernels do
/// not let their own file be mapped.
fn memory_copy(path: &Path) -> io::Result<File> {
    // SAFETY: the name ends with a zero; gives a descriptor or an error.
    let fd = unsafe { libc::memfd_create(c"btf".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, and nobody else knows it.
    let mut copy = unsafe { File::from_raw_fd(fd) };
    io::copy(&mut File::open(path)?, &mut copy)?;
    Ok(copy)
}

/// Reads a BTF blob whole: a reader of the file itself seeks more than a hundred
/// thousand times, each a system call.
fn read(path: &Path) -> Result<Vec<u8>, btf_rs::Error> {
    Ok(fs::read(path)?)
}

fn read_error(path: &Path, why: btf_rs::Error) -> BtfError {
    BtfError::Read {
        path: path.display().to_string(),
        why,
    }
}

fn broken(at: &str, why: btf_rs::Error) -> BtfError {
    BtfError::Broken {
        at: at.to_owned(),
        why,
    }
}

/// Splits `vqs[1]` into `vqs` and 1.
fn split_index(segment: &str) -> (&str, Option<u32>) {
    match segment.split_once('[') {
        Some((name, index)) => (name, index.trim_end_matches(']').parse().ok()),
        None => (segment, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_split_from_its_member() {
        assert_eq!(split_index("vqs[1]"), ("vqs", Some(1)));
        assert_eq!(split_index("dev"), ("dev", None));
    }
}
