//! The exact list of vhost-net devices, from a BPF iterator over the files of
//! all tasks (Linux 5.8 and later).

use std::io::{ErrorKind, Read};

use aya::Btf;
use aya::Ebpf;
use aya::programs::Iter;
use tuner_common::device::{Device, Ring};
use tuner_common::layout::Layout;

use super::load::{ProbeError, load};
use crate::inspect::Kernel;

/// One open descriptor of a vhost-net device.
pub type DeviceRecord = Device;

/// Lists devices as often as it is asked to. Needs no probe.
pub struct DeviceLister {
    ebpf: Ebpf,
}

impl DeviceLister {
    /// Loads the iterator.
    ///
    /// # Errors
    /// If offsets are unknown or the kernel refuses it.
    pub fn new(kernel: &Kernel) -> Result<Self, ProbeError> {
        let layout: &Layout = kernel
            .layout
            .as_ref()
            .map_err(|why| ProbeError::Layout(why.clone()))?;
        let mut ebpf = load(layout, 1)?;
        prepare(&mut ebpf)?;
        Ok(Self { ebpf })
    }

    /// All descriptors of all processes that refer to a vhost-net device.
    /// Threads share their process's table, which is listed once.
    ///
    /// # Errors
    /// If the iteration fails.
    pub fn list(&mut self) -> Result<Vec<DeviceRecord>, ProbeError> {
        list(&mut self.ebpf)
    }
}

/// Loads the iterator of a loaded object.
pub(super) fn prepare(ebpf: &mut Ebpf) -> Result<(), ProbeError> {
    let btf = Btf::from_sys_fs().map_err(|why| ProbeError::Btf(why.to_string()))?;
    iterator(ebpf)?
        .load("task_file", &btf)
        .map_err(|why| ProbeError::Program {
            program: "devices".to_owned(),
            why,
        })
}

/// Runs the iterator of a prepared object once.
pub(super) fn list(ebpf: &mut Ebpf) -> Result<Vec<DeviceRecord>, ProbeError> {
    let program = iterator(ebpf)?;
    let refused = |why| ProbeError::Program {
        program: "devices".to_owned(),
        why,
    };
    let link = program.attach().map_err(refused)?;
    let link = program.take_link(link).map_err(refused)?;
    let mut file = link
        .into_file()
        .map_err(|why| ProbeError::Devices(std::io::Error::other(why)))?;
    let mut bytes = Vec::new();
    loop {
        match file.read_to_end(&mut bytes) {
            Ok(_) => break,
            // The kernel asks to come again after a million files without one
            // of ours.
            Err(why) if why.kind() == ErrorKind::WouldBlock => {}
            Err(why) => return Err(ProbeError::Devices(why)),
        }
    }
    let mut devices: Vec<_> = bytes
        .chunks_exact(size_of::<Device>())
        .map(record)
        .collect();
    devices.sort_by_key(|d| (d.pid, d.fd));
    devices.dedup();
    Ok(devices)
}

fn iterator(ebpf: &mut Ebpf) -> Result<&mut Iter, ProbeError> {
    ebpf.program_mut("devices")
        .ok_or(ProbeError::Missing("program devices"))?
        .try_into()
        .map_err(|why| ProbeError::Program {
            program: "devices".to_owned(),
            why,
        })
}

/// Reads one record as the iterator wrote it.
fn record(bytes: &[u8]) -> Device {
    let u32_at = |at: usize| {
        let mut word = [0; 4];
        word.copy_from_slice(&bytes[at..at + 4]);
        u32::from_ne_bytes(word)
    };
    let ring = |at: usize| {
        let mut ifname = [0; 16];
        ifname.copy_from_slice(&bytes[at + 32..at + 48]);
        Ring {
            timeout: u32_at(at),
            size: u32_at(at + 4),
            worker_tid: u32_at(at + 8),
            backend: u32_at(at + 12),
            kind: u32_at(at + 16),
            ifindex: u32_at(at + 20),
            netns: u32_at(at + 24),
            enabled: u32_at(at + 28),
            ifname,
        }
    };
    Device {
        net: u64::from(u32_at(0)) | u64::from(u32_at(4)) << 32,
        pid: u32_at(8),
        fd: u32_at(12),
        owner: u32_at(16),
        owned: u32_at(20),
        rings: [ring(24), ring(72)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_lies_in_memory() {
        let mut device = Device {
            net: 0xffff_8881_0000_4000,
            pid: 42,
            fd: 7,
            owner: 1,
            owned: 1,
            rings: [Ring::default(); 2],
        };
        device.rings[1].timeout = 200;
        device.rings[1].ifname[..4].copy_from_slice(b"tap0");
        device.rings[0].worker_tid = 43;
        device.rings[1].netns = 0xf000_0001;
        device.rings[0].enabled = 1;
        // SAFETY: `Device` has no padding (held by a test beside it).
        let bytes = unsafe {
            std::slice::from_raw_parts((&raw const device).cast::<u8>(), size_of::<Device>())
        };
        assert_eq!(record(bytes), device);
    }
}
