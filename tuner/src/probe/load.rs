//! Loading and attaching.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use aya::maps::{Array, HashMap, MapData, MapError};
use aya::programs::kprobe::KProbeLinkId;
use aya::programs::{KProbe, ProgramError};
use aya::{Ebpf, EbpfLoader};
use aya_log::EbpfLogger;
use log::Log;
use tuner_common::layout::Layout;
use tuner_common::queue::{Lost, Queue, QueueKey, Worker};

use super::devices::{self, DeviceRecord};
use super::follow::Patch;
use super::plan::{Plan, Point};
use super::sample::{ProgramCost, QueueSample, Sample};
use crate::inspect::{HIDDEN, Kernel, Modules};
use crate::inventory::proc::in_first_pid_namespace;

/// The programs, built by this package's build script.
pub(super) static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tuner-ebpf.o"));

/// Room for this many queues (two for each queue pair).
const QUEUES: u32 = 4096;

/// Why nothing can be measured.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Structure offsets are unknown.
    #[error("structure offsets are not known: {0}")]
    Layout(String),
    /// Addresses of functions are hidden, by which work is told apart.
    #[error("{HIDDEN}")]
    Hidden,
    /// The object was refused.
    #[error("the kernel refused the eBPF object: {0}")]
    Object(#[from] aya::EbpfError),
    /// A program was refused.
    #[error("the kernel refused the program `{program}`: {why}")]
    Program {
        /// Its name.
        program: String,
        /// What the kernel said.
        why: ProgramError,
    },
    /// An essential program has nowhere to go.
    #[error("{why}; without it nothing can be measured")]
    Essential {
        /// Why not, in words.
        why: String,
    },
    /// A map could not be read.
    #[error("the figures could not be read: {0}")]
    Map(#[from] MapError),
    /// The object lacks a part: it does not belong to this program.
    #[error("the eBPF object has no `{0}`")]
    Missing(&'static str),
    /// The BPF iterator failed.
    #[error("the list of devices could not be read: {0}")]
    Devices(std::io::Error),
    /// The kernel's BTF was refused by the loader.
    #[error("the kernel's BTF could not be loaded: {0}")]
    Btf(String),
    /// The functions that were probed are gone, and the new ones cannot be.
    #[error("vhost_net was loaded anew, and cannot be measured any more: {0}")]
    Reloaded(Box<ProbeError>),
}

/// A program that is attached.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Attached {
    /// Its name.
    pub program: &'static str,
    /// Function it is attached to, as it was named to the kernel.
    pub to: String,
}

/// The attached programs. Dropping it detaches them and frees the maps.
pub struct Probes {
    pub(super) ebpf: Ebpf,
    pub(super) options: Options,
    /// What the programs were told when they were loaded.
    pub(super) layout: Layout,
    /// The modules that they are attached to.
    pub(super) modules: Modules,
    /// What is attached to the livepatch.
    pub(super) patch: Option<Patch>,
    attached: Vec<Attached>,
    degraded: BTreeMap<&'static str, String>,
    /// Prints what the programs log, if they were told to.
    logger: Option<EbpfLogger<&'static dyn Log>>,
    /// Keeps the kernel's accounting of BPF run time on.
    _statistics: Option<OwnedFd>,
}

/// What to do besides measuring.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Have the kernel account the programs' own run time, which costs a
    /// little on every BPF program of the host.
    pub own_cost: bool,
    /// Let the programs log what they see.
    pub debug: bool,
}

impl Probes {
    /// Loads every program that this kernel can take and attaches it.
    ///
    /// # Errors
    /// If an essential one cannot be attached. Nothing stays attached then.
    pub fn attach(kernel: &Kernel, options: Options) -> Result<Self, ProbeError> {
        if !kernel.addresses_visible {
            return Err(ProbeError::Hidden);
        }
        let mut layout = *kernel
            .layout
            .as_ref()
            .map_err(|why| ProbeError::Layout(why.clone()))?;
        layout.debug = u32::from(options.debug);
        let plan = Plan::make(&kernel.symbols, &layout);
        if let Some(refused) = plan.refused.iter().find(|r| r.essential) {
            return Err(ProbeError::Essential {
                why: refused.why.clone(),
            });
        }
        let mut probes = Self {
            ebpf: load(&layout, QUEUES)?,
            options,
            layout,
            modules: kernel.modules,
            patch: None,
            attached: Vec::new(),
            degraded: BTreeMap::new(),
            logger: None,
            _statistics: options.own_cost.then(statistics).flatten(),
        };
        if options.debug {
            match EbpfLogger::init(&mut probes.ebpf) {
                Ok(logger) => probes.logger = Some(logger),
                Err(why) => log::warn!("the programs' log cannot be read: {why}"),
            }
        }
        devices::prepare(&mut probes.ebpf)?;
        for refused in plan.refused {
            probes.degrade(refused.figures, &refused.why);
        }
        if kernel.zero_copy {
            probes.degrade(
                &["kicks", "batches", "batch", "flushes", "gap_us"],
                "vhost_net sends without copying (experimental_zcopytx), whose completions \
                 look like kicks and are handed over in another way",
            );
        }
        if !kernel.program_misses {
            probes.degrade(
                &["probe_misses"],
                "this kernel does not count how often a kprobe's program was not run",
            );
        }
        for point in plan.points {
            match attach_one(&mut probes.ebpf, &point) {
                Ok((attached, _)) => probes.attached.push(attached),
                Err(why) if point.essential => return Err(ProbeError::Essential { why }),
                Err(why) => probes.degrade(point.figures, &why),
            }
        }
        if let Some(livepatch) = &kernel.livepatch {
            probes.attach_patch(livepatch);
        }
        let mut counting: Array<&mut MapData, u32> = Array::try_from(
            probes
                .ebpf
                .map_mut("COUNTING")
                .ok_or(ProbeError::Missing("map COUNTING"))?,
        )?;
        counting.set(0, 1, 0)?;
        Ok(probes)
    }

    fn degrade(&mut self, figures: &[&'static str], why: &str) {
        for figure in figures {
            self.degraded
                .entry(figure)
                .or_insert_with(|| why.to_owned());
        }
    }

    /// Programs that are attached.
    #[must_use]
    pub fn attached(&self) -> Vec<Attached> {
        let patch = self.patch.iter().flat_map(|patch| &patch.attached);
        self.attached.iter().chain(patch).cloned().collect()
    }

    /// Figures that are unknown here, each with its reason.
    #[must_use]
    pub fn degraded(&self) -> BTreeMap<&'static str, String> {
        let mut all = self.degraded.clone();
        for (figure, why) in self.patch.iter().flat_map(|patch| &patch.degraded) {
            all.entry(figure).or_insert_with(|| why.clone());
        }
        all
    }

    /// All open descriptors of vhost-net devices; see
    /// [`DeviceLister::list`](super::DeviceLister::list).
    ///
    /// # Errors
    /// If the iteration fails.
    pub fn devices(&mut self) -> Result<Vec<DeviceRecord>, ProbeError> {
        devices::list(&mut self.ebpf)
    }

    /// How often something happened that changes the list of devices, since
    /// attaching. Not everything, where `devices` is among what is
    /// [degraded](Self::degraded).
    ///
    /// # Errors
    /// If the map cannot be read.
    pub fn generation(&self) -> Result<u64, ProbeError> {
        let map = self
            .ebpf
            .map("GENERATION")
            .ok_or(ProbeError::Missing("map GENERATION"))?;
        let generation: Array<&MapData, u64> = Array::try_from(map)?;
        Ok(generation.get(&0, 0)?)
    }

    /// Reads all raw counters, and prints what was logged meanwhile.
    ///
    /// # Errors
    /// If a map cannot be read.
    pub fn sample(&mut self) -> Result<Sample, ProbeError> {
        if let Some(logger) = &mut self.logger {
            logger.flush();
        }
        let map = self.queues()?;
        let mut queues = BTreeMap::new();
        for entry in map.iter() {
            // A queue that another context is just removing reads as gone.
            let (key, queue) = match entry {
                Ok(entry) => entry,
                Err(MapError::KeyNotFound) => continue,
                Err(why) => return Err(why.into()),
            };
            queues.insert((key.net, key.direction), QueueSample(Box::new(queue)));
        }
        let lost: Array<&MapData, Lost> = Array::try_from(
            self.ebpf
                .map("LOST")
                .ok_or(ProbeError::Missing("map LOST"))?,
        )?;
        Ok(Sample {
            at_ns: monotonic_ns(),
            queues,
            lost: lost.get(&0, 0)?,
            programs: self.costs(),
        })
    }

    /// Drops the queues of devices that are gone, named by key and birth, and
    /// what is kept for threads that are.
    ///
    /// # Errors
    /// If a map cannot be changed.
    pub fn forget(&mut self, gone: &[((u64, u32), u64)]) -> Result<(), ProbeError> {
        let mut queues: HashMap<&mut MapData, QueueKey, Queue> = HashMap::try_from(
            self.ebpf
                .map_mut("QUEUES")
                .ok_or(ProbeError::Missing("map QUEUES"))?,
        )?;
        for ((net, direction), born) in gone {
            let key = QueueKey {
                net: *net,
                direction: *direction,
                zero: 0,
            };
            // The address may be another device's by now.
            if queues.get(&key, 0).is_ok_and(|queue| queue.born == *born) {
                // Gone already is as good.
                let _ = queues.remove(&key);
            }
        }
        if !in_first_pid_namespace() {
            // Threads have other numbers in /proc.
            return Ok(());
        }
        let mut workers: HashMap<&mut MapData, u32, Worker> = HashMap::try_from(
            self.ebpf
                .map_mut("WORKERS")
                .ok_or(ProbeError::Missing("map WORKERS"))?,
        )?;
        let gone: Vec<u32> = workers
            .keys()
            .filter_map(Result::ok)
            .filter(|tid| !fs::exists(format!("/proc/{tid}")).unwrap_or(true))
            .collect();
        for tid in gone {
            let _ = workers.remove(&tid);
        }
        Ok(())
    }

    fn queues(&self) -> Result<HashMap<&MapData, QueueKey, Queue>, ProbeError> {
        let map = self
            .ebpf
            .map("QUEUES")
            .ok_or(ProbeError::Missing("map QUEUES"))?;
        Ok(HashMap::try_from(map)?)
    }

    /// What the kernel says of each program in its descriptor's fdinfo.
    fn costs(&self) -> Vec<ProgramCost> {
        let mut costs = Vec::new();
        for (name, program) in self.ebpf.programs() {
            let Ok(fd) = program.fd() else { continue };
            let path = format!("/proc/self/fdinfo/{}", fd.as_fd().as_raw_fd());
            let text = fs::read_to_string(path).unwrap_or_default();
            costs.push(ProgramCost::parse(name, &text));
        }
        costs
    }
}

/// Loads the object, with the layout in its read-only data and room for so many
/// queues: the maps' memory is taken at once.
pub(super) fn load(layout: &Layout, queues: u32) -> Result<Ebpf, ProbeError> {
    Ok(EbpfLoader::new()
        .override_global("LAYOUT", layout, true)
        .map_max_entries("QUEUES", queues)
        .map_max_entries("WORKERS", queues)
        .load(OBJECT)?)
}

/// Attaches a program to one more function, under the first of its names that
/// the kernel takes.
pub(super) fn attach_one(
    ebpf: &mut Ebpf,
    point: &Point,
) -> Result<(Attached, KProbeLinkId), String> {
    let refused = |why: String| format!("{} cannot be probed: {why}", point.symbol);
    let program = point.program;
    let probe: &mut KProbe = ebpf
        .program_mut(program)
        .ok_or_else(|| refused(format!("the eBPF object has no program `{program}`")))?
        .try_into()
        .map_err(|why: ProgramError| refused(why.to_string()))?;
    match probe.load() {
        // Attached to another function already.
        Ok(()) | Err(ProgramError::AlreadyLoaded) => {}
        Err(why) => return Err(refused(chain(&why))),
    }
    let mut said = Vec::new();
    for name in &point.names {
        match probe.attach(name, 0) {
            Ok(link) => {
                log::debug!("{program} attached to {name}");
                let to = name.clone();
                return Ok((Attached { program, to }, link));
            }
            Err(why) => said.push(format!("as `{name}`: {}", chain(&why))),
        }
    }
    Err(refused(said.join("; ")))
}

fn statistics() -> Option<OwnedFd> {
    match aya::sys::enable_stats(aya::sys::Stats::RunTime) {
        Ok(fd) => Some(fd),
        Err(why) => {
            log::warn!("the programs' own cost cannot be measured: {why}");
            None
        }
    }
}

/// An error with what is behind it, in one line. The verifier's log is for
/// whoever mends the program: it goes to the debug log.
fn chain(error: &dyn std::error::Error) -> String {
    let text = whole(error);
    match text.split_once(" Verifier output:") {
        Some((said, log)) => {
            log::debug!("{log}");
            said.to_owned()
        }
        None => text,
    }
}

fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

/// The clock of `bpf_ktime_get_ns`.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is valid for writes; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
