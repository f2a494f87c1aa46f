//! Opening taps.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use libc::{c_int, c_short, c_ulong};

use crate::packet::VNET_HEADER;

const fn tun_write(nr: c_ulong, size: usize) -> c_ulong {
    (1 << 30) | ((size as c_ulong) << 16) | (0x54 << 8) | nr
}

const TUNSETIFF: c_ulong = tun_write(202, 4);
const TUNSETOFFLOAD: c_ulong = tun_write(208, 4);
const TUNSETSNDBUF: c_ulong = tun_write(212, 4);
const TUNSETVNETHDRSZ: c_ulong = tun_write(216, 4);

const IFF_TAP: c_short = 0x0002;
const IFF_MULTI_QUEUE: c_short = 0x0100;
const IFF_NO_PI: c_short = 0x1000;
const IFF_VNET_HDR: c_short = 0x4000;

/// Just as large as the kernel's `struct ifreq`.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: c_short,
    rest: [u8; 22],
}

/// Opens one queue of the tap `name`, which is made if it is not there.
///
/// `path` is /dev/net/tun, or a macvtap's own device. `sndbuf` limits the
/// bytes in flight; without it they are unlimited, as with QEMU.
///
/// # Errors
/// What open(2) or one of the ioctls failed with.
pub(super) fn open_queue(
    path: &Path,
    name: &str,
    multi_queue: bool,
    sndbuf: Option<i32>,
) -> Result<File> {
    let tap = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    let mut request = InterfaceRequest {
        name: [0; 16],
        flags: IFF_TAP | IFF_NO_PI | IFF_VNET_HDR,
        rest: [0; 22],
    };
    ensure!(name.len() < 16, "the interface name {name} is too long");
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    if multi_queue {
        request.flags |= IFF_MULTI_QUEUE;
    }
    // SAFETY: the kernel reads and writes one ifreq, which this is.
    let result = unsafe { libc::ioctl(tap.as_raw_fd(), TUNSETIFF, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error())
            .with_context(|| format!("TUNSETIFF failed for {name}"));
    }
    // SAFETY: this ioctl takes its argument by value.
    let result = unsafe { libc::ioctl(tap.as_raw_fd(), TUNSETOFFLOAD, 0) };
    if result < 0 {
        return Err(io::Error::last_os_error()).context("TUNSETOFFLOAD failed");
    }
    set_number(&tap, TUNSETVNETHDRSZ, VNET_HEADER as c_int).context("TUNSETVNETHDRSZ failed")?;
    set_number(&tap, TUNSETSNDBUF, sndbuf.unwrap_or(c_int::MAX)).context("TUNSETSNDBUF failed")?;
    Ok(tap)
}

fn set_number(tap: &File, request: c_ulong, value: c_int) -> io::Result<()> {
    // SAFETY: both ioctls this is used for read one int from the pointer.
    let result = unsafe { libc::ioctl(tap.as_raw_fd(), request, &raw const value) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ioctl_numbers_and_ifreq_are_the_kernels() {
        assert_eq!(TUNSETIFF, 0x4004_54ca);
        assert_eq!(TUNSETVNETHDRSZ, 0x4004_54d8);
        assert_eq!(size_of::<InterfaceRequest>(), size_of::<libc::ifreq>());
    }
}
