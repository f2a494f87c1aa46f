//! Devices and what belongs to them, put together from the BPF iterator,
//! netlink and procfs.

use std::collections::{BTreeMap, HashMap};

use tuner_common::device::{Device as Record, Ring, backend};

use super::link::{self, Link};
use super::proc::{ProcStat, VmName, Vmm, WorkerFacts, vm_name};

/// One vhost-net device: one queue pair.
#[derive(Clone, Debug)]
pub struct Device {
    /// Kernel address of its `struct vhost_net`: the key of its figures.
    pub net: u64,
    /// Process that may change its rings; where that is not known, one that
    /// holds a descriptor.
    pub pid: u32,
    /// The device's descriptor in that process.
    pub fd: u32,
    /// Start time of that process, in clock ticks since boot.
    pub start_time: Option<u64>,
    /// True if the process above is the owner.
    pub owner_known: bool,
    /// Name of the VM and the program that runs it.
    pub vm: VmName,
    /// Name of the net device, if the backend is one.
    pub tap: Option<String>,
    /// What netlink says of it; none in another network namespace.
    pub link: Option<Link>,
    /// RX and TX.
    pub rings: [RingInfo; 2],
}

/// One ring of a device.
#[derive(Clone, Debug)]
pub struct RingInfo {
    /// What the kernel holds.
    pub ring: Ring,
    /// Facts about its worker.
    pub worker: Option<WorkerFacts>,
}

/// One queue of a device.
#[derive(Clone, Copy, Debug)]
pub struct QueueRef<'a> {
    /// The device.
    pub device: &'a Device,
    /// 0 for RX, 1 for TX.
    pub direction: u32,
}

/// All devices at one instant.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    /// By process and descriptor.
    pub devices: Vec<Device>,
    /// What could not be found out, in sentences.
    pub notes: Vec<String>,
}

impl Inventory {
    /// Puts records of the iterator together with what netlink and procfs say.
    /// What ends meanwhile is left out or stays without its facts.
    #[must_use]
    pub fn from_records(records: &[Record]) -> Self {
        let mut notes = Vec::new();
        let links = link::links().unwrap_or_else(|why| {
            notes.push(format!("network devices are not listed: {why}"));
            Vec::new()
        });
        let by_index: HashMap<u32, &Link> = links.iter().map(|l| (l.ifindex, l)).collect();
        let mut by_device: BTreeMap<u64, &Record> = BTreeMap::new();
        for record in records {
            let best = by_device.entry(record.net).or_insert(record);
            if record.owner > best.owner {
                *best = record;
            }
        }
        let mut devices: Vec<Device> = by_device
            .into_values()
            .filter_map(|record| device(record, &by_index))
            .collect();
        devices.sort_by_key(|d| (d.pid, d.fd));
        Self { devices, notes }
    }

    /// The device at a kernel address.
    #[must_use]
    pub fn at(&self, net: u64) -> Option<&Device> {
        self.devices.iter().find(|d| d.net == net)
    }

    /// All queues, RX before TX of each device.
    pub fn queues(&self) -> impl Iterator<Item = QueueRef<'_>> {
        self.devices
            .iter()
            .flat_map(|device| [0, 1].map(|direction| QueueRef { device, direction }))
    }
}

fn device(record: &Record, links: &HashMap<u32, &Link>) -> Option<Device> {
    let pid = i32::try_from(record.pid).ok()?;
    // A process that has ended since took its devices along.
    let stat = ProcStat::of_process(pid).ok()?;
    let vm = vm_name(pid).unwrap_or_else(|_| VmName {
        name: stat.comm.clone(),
        vmm: Vmm::Other,
    });
    let backend = record.rings.iter().find(|r| r.ifindex != 0);
    let tap = backend.map(|ring| text(&ring.ifname));
    // An index means something in one namespace only: the name must fit too.
    let link = backend
        .and_then(|ring| links.get(&ring.ifindex))
        .filter(|link| Some(&link.name) == tap.as_ref())
        .map(|link| (*link).clone());
    Some(Device {
        net: record.net,
        pid: record.pid,
        fd: record.fd,
        start_time: Some(stat.start_time),
        owner_known: record.owner != 0,
        vm,
        tap,
        link,
        rings: record.rings.map(|ring| RingInfo {
            worker: i32::try_from(ring.worker_tid)
                .ok()
                .filter(|tid| *tid != 0)
                .and_then(|tid| WorkerFacts::read(tid).ok()),
            ring,
        }),
    })
}

/// Text up to the first zero.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The word for a kind of backend.
#[must_use]
pub fn backend_name(kind: u32) -> &'static str {
    match kind {
        backend::NONE => "none",
        backend::TUN => "tun",
        backend::TAP => "macvtap",
        _ => "other",
    }
}

/// The word for a direction.
#[must_use]
pub fn direction_name(direction: u32) -> &'static str {
    if direction == tuner_common::queue::RX {
        "rx"
    } else {
        "tx"
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A device for tests of what uses inventories.
    pub(crate) fn sample(net: u64, pid: u32, fd: u32, name: &str, tap: &str) -> Device {
        let ring = RingInfo {
            ring: Ring::default(),
            worker: None,
        };
        Device {
            net,
            pid,
            fd,
            start_time: Some(1),
            owner_known: true,
            vm: VmName {
                name: name.to_owned(),
                vmm: Vmm::Qemu,
            },
            tap: Some(tap.to_owned()),
            link: None,
            rings: [ring.clone(), ring],
        }
    }

    #[test]
    fn the_owners_record_wins_over_another_holders() {
        let me = std::process::id();
        let mut opener = Record {
            net: 1,
            pid: me,
            fd: 3,
            ..Record::default()
        };
        let owner = Record {
            fd: 9,
            owner: 1,
            owned: 1,
            ..opener
        };
        opener.owned = 1;
        let inventory = Inventory::from_records(&[opener, owner]);
        assert_eq!(inventory.devices.len(), 1);
        assert_eq!(inventory.devices[0].fd, 9);
        assert!(inventory.devices[0].owner_known);
    }

    #[test]
    fn a_process_that_is_gone_has_no_devices() {
        let record = Record {
            net: 1,
            pid: 0x7fff_fff0,
            fd: 3,
            ..Record::default()
        };
        assert!(Inventory::from_records(&[record]).devices.is_empty());
    }

    #[test]
    fn a_name_ends_at_the_first_zero() {
        assert_eq!(text(b"tap0\0\0junk"), "tap0");
        assert_eq!(text(b"sixteen-bytes-xy"), "sixteen-bytes-xy");
    }
}
