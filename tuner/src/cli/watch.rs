//! Keeps samples and inventory together while a command watches.

mod relist;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

use tuner_common::queue::{Queue, RX};

use crate::inspect::Kernel;
use crate::inventory::device::direction_name;
use crate::inventory::link::{Change, Links, Place};
use crate::inventory::proc::{in_first_pid_namespace, schedstat};
use crate::inventory::{Device, Inventory};
use crate::knob::module::Settings;
use crate::model::Figures;
use crate::model::figures::{Counters, Degraded, blank};
use crate::probe::plan::{DEVICES, POLLS};
use crate::probe::{Followed, Options, ProbeError, Probes, ProgramCost, Sample};
use relist::Relist;

/// Why polls are unknown while the livepatch comes.
const NOT_FOLLOWED: &str = "vhost-tuner's livepatch came in this interval, with functions that were \
                            not probed at once";

/// What was read at one instant.
struct Reading {
    sample: Sample,
    /// Worker → (time on a CPU, time waiting for one), in nanoseconds.
    workers: HashMap<u32, (u64, u64)>,
    /// Net device → packets that it dropped on their way to the guest.
    drops: BTreeMap<Place, u64>,
    settings: Settings,
}

/// Figures of all queues over one interval.
pub(super) struct Interval {
    /// Its length in seconds.
    pub(super) seconds: f64,
    /// By process, descriptor and direction.
    pub(super) queues: Vec<Figures>,
    /// What the programs cost in the interval.
    pub(super) programs: Vec<ProgramCost>,
    /// Events that belong to no queue, since attaching.
    pub(super) lost: u64,
}

/// Attached probes with the list of devices.
pub(super) struct Watch {
    probes: Probes,
    links: Links,
    inventory: Inventory,
    /// Devices that are known, also those that ended in this interval.
    known: BTreeMap<u64, Device>,
    relist: Relist,
    /// From when times are counted.
    start: Instant,
    /// False where threads have other numbers for us than for the kernel.
    numbers_are_ours: bool,
    /// Queues whose device was gone at the last reading, with their birth.
    going: HashSet<((u64, u32), u64)>,
    last: Reading,
    /// Figures that are unknown in the interval that ended last.
    degraded: Degraded,
    /// True if the livepatch came since the last reading.
    unsettled: bool,
}

impl Watch {
    /// Attaches and takes the first reading.
    pub(super) fn start(kernel: &Kernel, options: Options) -> Result<Self, ProbeError> {
        let mut probes = Probes::attach(kernel, options)?;
        let mut links = Links::new();
        let start = Instant::now();
        let relist = Relist::new(start.elapsed(), generation(&probes)?);
        let inventory = Inventory::with(&probes.devices()?, &mut links);
        say(&inventory.notes, &[]);
        let known = by_address(&inventory);
        let last = reading(probes.sample()?, &known, &mut links);
        let mut watch = Self {
            last,
            probes,
            links,
            inventory,
            known,
            relist,
            start,
            numbers_are_ours: in_first_pid_namespace(),
            going: HashSet::new(),
            degraded: Degraded::new(),
            unsettled: false,
        };
        watch.degraded = watch.unknown(&watch.last.settings);
        Ok(watch)
    }

    /// Figures that are unknown, with reasons.
    pub(super) fn degraded(&self) -> &Degraded {
        &self.degraded
    }

    /// Devices at the last reading.
    pub(super) fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Follows our modules, links, and devices that come and go. Called more
    /// often than an interval may last, so that little goes unseen when the
    /// livepatch comes, and no network namespace outlives its VM for long.
    pub(super) fn follow(&mut self) -> Result<(), ProbeError> {
        match self.probes.follow()? {
            Followed::Nothing => {}
            Followed::Came => {
                log::info!("the livepatch came: its functions are probed too");
                self.unsettled = true;
            }
            Followed::Went => log::info!("the livepatch went"),
            Followed::Reloaded => {
                log::warn!("vhost_net was loaded anew: everything counts from nothing");
                self.last.sample.queues.clear();
                self.last.sample.programs.clear();
                self.known.clear();
                self.going.clear();
                self.list()?;
            }
        }
        self.follow_links()?;
        if self
            .relist
            .is_due(self.start.elapsed(), generation(&self.probes)?)
        {
            self.list()?;
        }
        Ok(())
    }

    /// Takes in what became of links. A tap that went may have gone elsewhere,
    /// and what it was the end of has to be looked up.
    fn follow_links(&mut self) -> Result<(), ProbeError> {
        let changes = self.links.follow();
        let places = self.known.values().filter_map(|device| device.place);
        let concern: Vec<Change> = places
            .filter_map(|place| changes.get(&place).copied())
            .collect();
        if concern.contains(&Change::Moved) {
            return self.list();
        }
        if !concern.is_empty() {
            let known = self.known.values_mut();
            for device in known.chain(&mut self.inventory.devices) {
                device.relink(&self.links);
            }
        }
        Ok(())
    }

    /// Reads the list of devices anew. Those that are not in it any more stay
    /// known for their last figures.
    fn list(&mut self) -> Result<(), ProbeError> {
        // Before the list: what changes meanwhile has it read again.
        let generation = generation(&self.probes)?;
        let records = self.probes.devices()?;
        let inventory = Inventory::with(&records, &mut self.links);
        say(&inventory.notes, &self.inventory.notes);
        self.inventory = inventory;
        self.known.extend(by_address(&self.inventory));
        self.relist.done(self.start.elapsed(), generation);
        Ok(())
    }

    /// Figures that are unknown, where these settings were read.
    fn unknown(&self, settings: &Settings) -> Degraded {
        let mut degraded = self.probes.degraded();
        if self.unsettled {
            for figure in POLLS {
                degraded
                    .entry(figure)
                    .or_insert_with(|| NOT_FOLLOWED.to_owned());
            }
        }
        if let Some(why) = &settings.unknown {
            for figure in ["tx_batched", "poll_peer"] {
                degraded.insert(figure, why.clone());
            }
        }
        degraded
    }

    /// Reads again: what happened since the last time.
    pub(super) fn next(&mut self) -> Result<Interval, ProbeError> {
        // First: what the next interval shows is then seen from its beginning.
        self.follow()?;
        let sample = self.probes.sample()?;
        let strangers = sample.queues.iter().any(|(key, queue)| {
            let before = self.last.sample.queues.get(key);
            let reborn = before.is_some_and(|before| before.0.born != queue.0.born);
            reborn || !self.known.contains_key(&key.0)
        });
        if strangers {
            self.list()?;
        }
        let now = reading(sample, &self.known, &mut self.links);
        self.degraded = self.unknown(&now.settings);
        self.unsettled = false;
        let interval = self.between(&now);
        let live: HashSet<u64> = self.inventory.devices.iter().map(|d| d.net).collect();
        // A device that is being released still has its last figures to show.
        let going = |net: u64| {
            let of_device = now.sample.queues.range((net, 0)..=(net, 1));
            of_device.into_iter().any(|(_, queue)| queue.0.closed == 0)
        };
        self.known
            .retain(|net, _| live.contains(net) || going(*net));
        self.forget(&now.sample, &live)?;
        self.last = now;
        Ok(interval)
    }

    /// Drops what the probes keep of devices that are gone: seen in the sample
    /// before this one already, since a device that is just being released has
    /// its last runs still to come.
    fn forget(&mut self, sample: &Sample, live: &HashSet<u64>) -> Result<(), ProbeError> {
        let gone: Vec<((u64, u32), u64)> = sample
            .queues
            .iter()
            .filter(|(key, queue)| !live.contains(&key.0) || queue.0.closed != 0)
            .map(|(key, queue)| (*key, queue.0.born))
            .collect();
        let (again, first): (Vec<_>, Vec<_>) =
            gone.into_iter().partition(|key| self.going.contains(key));
        self.going = first.into_iter().collect();
        if again.is_empty() {
            return Ok(());
        }
        self.probes.forget(&again)
    }

    fn between(&self, now: &Reading) -> Interval {
        let seconds = now.sample.at_ns.saturating_sub(self.last.sample.at_ns) as f64 / 1e9;
        let mut queues = Vec::new();
        for (net, device) in &self.known {
            for direction in [0, 1] {
                let key = (*net, direction);
                let after = now.sample.queues.get(&key).map(|q| &*q.0);
                let before = self.last.sample.queues.get(&key).map(|q| &*q.0);
                queues.push(self.figures(device, direction, before, after, now, seconds));
            }
        }
        queues.sort_by(|a, b| (a.pid, a.fd, a.direction).cmp(&(b.pid, b.fd, b.direction)));
        Interval {
            seconds,
            queues,
            programs: costs_between(&self.last.sample.programs, &now.sample.programs),
            lost: now.sample.lost.queue_map_full + now.sample.lost.worker_map_full,
        }
    }

    fn figures(
        &self,
        device: &Device,
        direction: u32,
        before: Option<&Queue>,
        after: Option<&Queue>,
        now: &Reading,
        seconds: f64,
    ) -> Figures {
        let nothing = blank();
        let seen = after.unwrap_or(&nothing);
        let info = &device.rings[direction as usize];
        // What the handler saw last is newer than the list; a queue that never
        // ran has only the list.
        let ran = seen.worker_tid != 0;
        let tid = if ran && self.numbers_are_ours {
            seen.worker_tid
        } else {
            info.ring.worker_tid
        };
        let cpu = now.workers.get(&tid).zip(self.last.workers.get(&tid));
        let share = |ns: u64| round(ns as f64 / 1e7 / seconds);
        let drops = device.place.and_then(|place| {
            let then = self.last.drops.get(&place)?;
            Some((now.drops.get(&place)?, then))
        });
        Figures {
            vm: device.vm.name.clone(),
            vmm: device.vm.vmm.as_str(),
            pid: device.pid,
            fd: device.fd,
            tap: device.tap.clone(),
            direction: direction_name(direction),
            worker_tid: (tid != 0).then_some(tid),
            busyloop_timeout_us: if ran { seen.timeout } else { info.ring.timeout },
            tx_batched: now.settings.tx_batched(device.net, direction),
            poll_peer: now.settings.poll_peer(device.net),
            worker_cpu_percent: cpu.map(|(now, then)| share(now.0.saturating_sub(then.0))),
            worker_wait_percent: cpu.map(|(now, then)| share(now.1.saturating_sub(then.1))),
            tap_dropped: drops
                .filter(|_| direction == RX)
                .map(|(now, then)| now.saturating_sub(*then)),
            ended: seen.closed != 0,
            interval: Counters::between(before, seen, &self.degraded),
            totals: Counters::between(None, seen, &self.degraded),
        }
    }
}

fn by_address(inventory: &Inventory) -> BTreeMap<u64, Device> {
    inventory
        .devices
        .iter()
        .map(|device| (device.net, device.clone()))
        .collect()
}

/// Says what could not be found out and had not been said before.
fn say(notes: &[String], before: &[String]) {
    for note in notes.iter().filter(|note| !before.contains(note)) {
        log::warn!("{note}");
    }
}

/// How many events there were that change the list of devices; none where they
/// are not told.
fn generation(probes: &Probes) -> Result<Option<u64>, ProbeError> {
    if probes.degraded().contains_key(DEVICES) {
        return Ok(None);
    }
    probes.generation().map(Some)
}

fn reading(sample: Sample, known: &BTreeMap<u64, Device>, links: &mut Links) -> Reading {
    let mut tids: HashSet<u32> = sample.queues.values().map(|q| q.0.worker_tid).collect();
    let rings = known.values().flat_map(|d| &d.rings);
    tids.extend(rings.map(|info| info.ring.worker_tid));
    tids.remove(&0);
    let workers = tids
        .into_iter()
        .filter_map(|tid| {
            let (run_ns, wait_ns) = schedstat(i32::try_from(tid).ok()?).ok()??;
            Some((tid, (run_ns, wait_ns)))
        })
        .collect();
    let drops = links.dropped(&known.values().filter_map(|device| device.place).collect());
    // Each device's descriptor is borrowed for one call and given back: kept, it
    // would keep the device alive after its VM has closed it. That costs a few
    // system calls for each device, no more than the figures above.
    let settings = Settings::of(known.values());
    Reading {
        sample,
        workers,
        drops,
        settings,
    }
}

fn costs_between(before: &[ProgramCost], after: &[ProgramCost]) -> Vec<ProgramCost> {
    after
        .iter()
        .map(|now| {
            let then = before.iter().find(|b| b.program == now.program);
            let then = then.cloned().unwrap_or_default();
            ProgramCost {
                program: now.program.clone(),
                run_ns: now.run_ns.saturating_sub(then.run_ns),
                runs: now.runs.saturating_sub(then.runs),
                missed: now.missed.saturating_sub(then.missed),
            }
        })
        .collect()
}

/// Two decimals of a percentage.
fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
