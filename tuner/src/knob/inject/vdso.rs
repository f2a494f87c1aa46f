//! Finding an instruction that enters the kernel.
//!
//! Every process has the kernel's vDSO mapped, readable and executable, at a
//! place of its own; the functions in it fall back to real system calls, so the
//! instruction is there. Nothing has to be written into code.

use std::{fs, io, path::PathBuf};

use super::{InjectError, memory, refusal};
use crate::inventory::proc::ProcError;

/// No vDSO is larger, bytes.
const LARGEST: u64 = 64 * 1024;

/// Finds `instruction` in the vDSO of process `pid`.
pub(super) fn find(pid: i32, instruction: &[u8]) -> Result<u64, InjectError> {
    let path = PathBuf::from(format!("/proc/{pid}/maps"));
    let maps = fs::read(&path).map_err(|source| hidden_or_ended(pid, path, source))?;
    let (start, end) =
        mapping(&String::from_utf8_lossy(&maps)).ok_or(InjectError::NoVdso { pid })?;
    let length = end.saturating_sub(start).min(LARGEST) as usize;
    let mut code = vec![0; length];
    memory::read(pid, start, &mut code).map_err(|source| match source.raw_os_error() {
        // Asks for more rights than reading the maps did.
        Some(libc::EPERM) => refusal::refused(pid),
        Some(libc::ESRCH) => InjectError::Ended { pid },
        _ => InjectError::Call {
            call: "process_vm_readv of the vDSO",
            tid: pid,
            source,
        },
    })?;
    code.windows(instruction.len())
        .position(|window| window == instruction)
        .map(|at| start + at as u64)
        .ok_or(InjectError::NoVdso { pid })
}

fn hidden_or_ended(pid: i32, path: PathBuf, source: io::Error) -> InjectError {
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => InjectError::Ended { pid },
        Some(libc::EACCES | libc::EPERM) => refusal::refused(pid),
        _ => ProcError::Read { path, source }.into(),
    }
}

/// The executable `[vdso]` line of a `maps` text.
fn mapping(maps: &str) -> Option<(u64, u64)> {
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let executable = fields.next()?.contains('x');
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    executable.then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vdso_line_is_found() {
        let maps = "55d0c8a00000-55d0c8a02000 r--p 00000000 fe:00 1 /usr/bin/[vdso]x\n\
            7ffd5d9f2000-7ffd5d9f6000 r--p 00000000 00:00 0                          [vvar]\n\
            7ffd5d9f6000-7ffd5d9f8000 r-xp 00000000 00:00 0                          [vdso]\n";
        assert_eq!(mapping(maps), Some((0x7ffd_5d9f_6000, 0x7ffd_5d9f_8000)));
        assert_eq!(mapping("7ffd-7ffe r--p 0 0 0 [vdso]\n"), None);
        assert_eq!(mapping("nonsense [vdso]\n"), None);
        assert_eq!(mapping(""), None);
    }

    #[test]
    fn our_own_vdso_has_the_instruction() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let at = find(pid, &[0x0f, 0x05]).unwrap();
        let mut code = [0; 2];
        memory::read(pid, at, &mut code).unwrap();
        assert_eq!(code, [0x0f, 0x05]);
    }
}
