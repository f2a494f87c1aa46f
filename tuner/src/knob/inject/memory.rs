//! The target's memory: `process_vm_readv(2)` and `process_vm_writev(2)`.
//!
//! Unlike `/proc/PID/mem` and `PTRACE_POKEDATA` these respect the protection of
//! a mapping, so nothing is ever written where the thread itself could not.

use std::io;

/// Reads exactly `bytes.len()` bytes at `address` of thread `tid`.
pub(super) fn read(tid: i32, address: u64, bytes: &mut [u8]) -> io::Result<()> {
    let local = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let remote = remote(address, bytes.len());
    // SAFETY: `local` describes `bytes`, exclusively ours during the call; the
    // remote address is checked by the kernel against the other process.
    let done = unsafe { libc::process_vm_readv(tid, &raw const local, 1, &raw const remote, 1, 0) };
    whole(done, bytes.len())
}

/// Writes `bytes` at `address` of thread `tid`.
pub(super) fn write(tid: i32, address: u64, bytes: &[u8]) -> io::Result<()> {
    let local = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let remote = remote(address, bytes.len());
    // SAFETY: `local` describes `bytes`, which the kernel only reads in this
    // call; the remote address is checked against the other process.
    let done =
        unsafe { libc::process_vm_writev(tid, &raw const local, 1, &raw const remote, 1, 0) };
    whole(done, bytes.len())
}

/// Reads a `u64`.
pub(super) fn read_u64(tid: i32, address: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    read(tid, address, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

fn remote(address: u64, length: usize) -> libc::iovec {
    libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address as usize),
        iov_len: length,
    }
}

/// A transfer stops at the first page that cannot be had: less than all is a
/// fault, too.
fn whole(done: isize, wanted: usize) -> io::Result<()> {
    match usize::try_from(done) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(done) if done == wanted => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}
