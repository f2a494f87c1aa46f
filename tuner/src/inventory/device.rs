//! Devices and what belongs to them, put together from the BPF iterator,
//! netlink and procfs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tuner_common::device::{Device as Record, Ring, backend};

use super::link::{Link, Links, Place};
use super::proc::{ProcStat, VmName, WorkerFacts};

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
    /// Where it is, if the backend is one.
    pub place: Option<Place>,
    /// What netlink says of it; none where its network namespace cannot be
    /// entered.
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
        Self::with(records, &mut Links::new())
    }

    /// The same with links that are followed. Other network namespaces are let
    /// go of, where no device is in them any more.
    #[must_use]
    pub fn with(records: &[Record], links: &mut Links) -> Self {
        let mut by_device: BTreeMap<u64, &Record> = BTreeMap::new();
        for record in records {
            let best = by_device.entry(record.net).or_insert(record);
            if record.owner > best.owner {
                *best = record;
            }
        }
        let mut procfs = Procfs::default();
        let mut devices: Vec<Device> = by_device
            .into_values()
            .filter_map(|record| device(record, links.own(), &mut procfs))
            .collect();
        devices.sort_by_key(|d| (d.pid, d.fd));
        let mut pids: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for device in &devices {
            if let Some((netns, _)) = device.place {
                let pids = pids.entry(netns).or_default();
                if pids.last() != Some(&device.pid) {
                    pids.push(device.pid);
                }
            }
        }
        links.keep(&pids.keys().copied().collect());
        // Ours always: why it cannot be read is worth a note in any case.
        links.need(links.own(), &[]);
        for (netns, pids) in &pids {
            links.need(*netns, pids);
        }
        for device in &mut devices {
            device.relink(links);
        }
        Self {
            devices,
            notes: links.notes(),
        }
    }

    /// The device at a kernel address.
    #[must_use]
    pub fn at(&self, net: u64) -> Option<&Device> {
        self.devices.iter().find(|device| device.net == net)
    }

    /// All queues, RX before TX of each device.
    pub fn queues(&self) -> impl Iterator<Item = QueueRef<'_>> {
        self.devices.iter().flat_map(Device::queues)
    }

    /// Where the net devices of all these devices are.
    #[must_use]
    pub fn places(&self) -> BTreeSet<Place> {
        self.devices.iter().filter_map(|d| d.place).collect()
    }
}

impl Device {
    /// Its queues, RX before TX.
    pub fn queues(&self) -> impl Iterator<Item = QueueRef<'_>> {
        [0, 1].into_iter().map(|direction| QueueRef {
            device: self,
            direction,
        })
    }

    /// Takes what netlink says of the net device now, its name too.
    pub fn relink(&mut self, links: &Links) {
        self.link = self.place.and_then(|place| links.get(place)).cloned();
        if let Some(link) = &self.link {
            self.tap = Some(link.name.clone());
        }
    }
}

/// What procfs says, asked once for each process and thread.
#[derive(Default)]
struct Procfs {
    processes: HashMap<u32, Option<(u64, VmName)>>,
    workers: HashMap<u32, Option<WorkerFacts>>,
}

impl Procfs {
    /// Start time and name of a process; none if it has ended.
    fn process(&mut self, pid: u32) -> Option<&(u64, VmName)> {
        let read = || {
            let pid = i32::try_from(pid).ok()?;
            let stat = ProcStat::of_process(pid).ok()?;
            Some((stat.start_time, VmName::of(pid, &stat.comm)))
        };
        self.processes.entry(pid).or_insert_with(read).as_ref()
    }

    /// Facts about a worker; none if it has ended or there is none.
    fn worker(&mut self, tid: u32) -> Option<&WorkerFacts> {
        let read = || {
            let tid = i32::try_from(tid).ok().filter(|tid| *tid != 0)?;
            WorkerFacts::read(tid).ok()
        };
        self.workers.entry(tid).or_insert_with(read).as_ref()
    }
}

fn device(record: &Record, own_netns: u32, procfs: &mut Procfs) -> Option<Device> {
    // A process that has ended since took its devices along.
    let (start_time, vm) = procfs.process(record.pid)?.clone();
    let backend = record.rings.iter().find(|r| r.ifindex != 0);
    Some(Device {
        net: record.net,
        pid: record.pid,
        fd: record.fd,
        start_time: Some(start_time),
        owner_known: record.owner != 0,
        vm,
        tap: backend.map(|ring| text(&ring.ifname)),
        place: backend.map(|ring| match ring.netns {
            // A kernel without network namespaces.
            0 => (own_netns, ring.ifindex),
            netns => (netns, ring.ifindex),
        }),
        link: None,
        rings: record.rings.map(|ring| RingInfo {
            worker: procfs.worker(ring.worker_tid).cloned(),
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
    use super::super::proc::Vmm;
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
            place: None,
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
    fn a_net_device_is_called_what_netlink_calls_it_now() {
        let mut record = Record {
            net: 1,
            pid: std::process::id(),
            fd: 3,
            ..Record::default()
        };
        let mut links = Links::new();
        record.rings[0].kind = backend::TUN;
        record.rings[0].ifindex = 1;
        record.rings[0].netns = links.own();
        record.rings[0].ifname[..3].copy_from_slice(b"old");
        let inventory = Inventory::with(&[record], &mut links);
        let device = &inventory.devices[0];
        assert_eq!(device.tap.as_deref(), Some("lo"));
        assert!(device.link.is_some());
        assert_eq!(inventory.places(), BTreeSet::from([(links.own(), 1)]));
    }

    #[test]
    fn a_net_device_elsewhere_keeps_its_name_and_is_not_taken_for_ours() {
        let mut record = Record {
            net: 1,
            pid: std::process::id(),
            fd: 3,
            ..Record::default()
        };
        record.rings[1].kind = backend::TUN;
        record.rings[1].ifindex = 1;
        record.rings[1].netns = 1;
        record.rings[1].ifname[..2].copy_from_slice(b"lo");
        let inventory = Inventory::from_records(&[record]);
        let device = &inventory.devices[0];
        assert_eq!(device.tap.as_deref(), Some("lo"));
        assert_eq!(device.link, None);
        assert!(inventory.notes[0].contains("another network namespace"));
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
