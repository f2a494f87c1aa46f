//! Everything that is known about the running kernel, gathered once.
//!
//! Nothing here asks for a version: distributions carry changes back. What is
//! asked is BTF (`/sys/kernel/btf`), `/proc/kallsyms` and `/sys`.

pub mod btf;
mod capability;
pub mod kallsyms;
pub mod layout;
mod modules;
pub mod privilege;
mod require;

use std::fs;
use std::path::{Path, PathBuf};

use tuner_common::layout::Layout;

use crate::inventory::proc;
use crate::knob::module::Presence;
use btf::Types;
pub use capability::{Capabilities, Capability};
use kallsyms::Kallsyms;
pub use modules::{Livepatch, Modules};
pub use require::{Requirement, requirements};

/// Names that some probe, offset or check asks kallsyms for.
const WANTED: [&str; 19] = [
    "handle_rx",
    "handle_tx",
    "handle_rx_kick",
    "handle_tx_kick",
    "handle_rx_net",
    "handle_tx_net",
    "vhost_net_busy_poll",
    "vhost_net_release",
    "vhost_add_used_and_signal_n",
    "vhost_enable_notify",
    "vhost_notify",
    "vhost_worker_queue",
    "vhost_work_queue",
    "vhost_net_ioctl",
    "vhost_dev_init",
    "vhost_poll_queue",
    "vnt_poll_own_side",
    "vnt_cap_reached",
    Livepatch::BUSY_POLL,
];

/// Said where symbols carry no addresses.
pub(crate) const HIDDEN: &str = "/proc/kallsyms hides addresses: run as root, or with CAP_SYSLOG, \
                                 with kernel.kptr_restrict at 1 or 0";

/// Facts about the kernel that this process runs on.
pub struct Kernel {
    /// `uname -r`, for messages only.
    pub release: String,
    /// Symbols that were asked about.
    pub symbols: Kallsyms,
    /// True if symbols carry addresses.
    pub addresses_visible: bool,
    /// Where things lie, or why that is not known.
    pub layout: Result<Layout, String>,
    /// True where the kernel can attach kprobes.
    pub kprobes: bool,
    /// `/sys/kernel/security/lockdown`'s chosen word, if it can be read.
    pub lockdown: Option<String>,
    /// State of vhost_net.
    pub vhost_net: ModuleState,
    /// The modules that all this was found in.
    pub modules: Modules,
    /// Our livepatch, while it is loaded.
    pub livepatch: Option<Livepatch>,
    /// Whether our module answers.
    pub module: Presence,
    /// True where the kernel counts how often a program was not run because
    /// another was running on the same CPU.
    pub program_misses: bool,
    /// True if vhost_net sends without copying (`experimental_zcopytx`).
    pub zero_copy: bool,
    /// True if `/dev/vhost-net` exists.
    pub device_node: bool,
    /// What this process lacks to load BPF programs and read kernel memory, in
    /// words; none if it may.
    pub lacking: Option<String>,
}

/// Whether a module's code is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleState {
    /// Loaded as a module.
    Loaded,
    /// Part of the kernel image.
    BuiltIn,
    /// Not there.
    Absent,
}

impl Kernel {
    /// Looks at the running kernel.
    #[must_use]
    pub fn inspect() -> Self {
        // Before anything else: what comes later shows as a difference.
        let modules = Modules::look();
        let text = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let symbols = Kallsyms::parse(&text, &WANTED);
        let addresses_visible = text
            .lines()
            .take(200)
            .any(|line| !line.starts_with("0000000000000000"));
        let vhost_net = module_state("vhost_net", &symbols);
        let layout = if vhost_net == ModuleState::Absent {
            Err("vhost_net is not loaded".to_owned())
        } else {
            find_layout(&symbols)
        };
        Self {
            release: read_line("/proc/sys/kernel/osrelease").unwrap_or_default(),
            kprobes: kprobes(),
            lockdown: lockdown(),
            program_misses: layout.as_ref().is_ok_and(|found| found.1),
            zero_copy: read_line("/sys/module/vhost_net/parameters/experimental_zcopytx")
                .is_some_and(|value| value != "0"),
            device_node: Path::new("/dev/vhost-net").exists(),
            lacking: Capabilities::own().lacking(&[Capability::Bpf, Capability::Perfmon]),
            livepatch: modules.livepatch.map(|_| Livepatch::with(symbols.clone())),
            modules,
            module: Presence::find(),
            symbols,
            addresses_visible,
            layout: layout.map(|found| found.0),
            vhost_net,
        }
    }
}

fn read_line(path: &str) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

/// A kernel that can attach kprobes offers them as a perf event source, whose
/// type number the loader needs.
fn kprobes() -> bool {
    Path::new("/sys/bus/event_source/devices/kprobe/type").exists()
}

/// The word in brackets: none, integrity or confidentiality.
fn lockdown() -> Option<String> {
    let text = read_line("/sys/kernel/security/lockdown")?;
    let (_, rest) = text.split_once('[')?;
    Some(rest.split(']').next()?.to_owned())
}

fn module_state(name: &str, symbols: &Kallsyms) -> ModuleState {
    match symbols.functions("handle_tx", name).first() {
        Some(symbol) if symbol.module.is_some() => ModuleState::Loaded,
        Some(_) => ModuleState::BuiltIn,
        None if Path::new("/sys/module")
            .join(name)
            .join("initstate")
            .exists() =>
        {
            ModuleState::Loaded
        }
        None => ModuleState::Absent,
    }
}

/// The layout, and whether this kernel counts programs that were not run: it
/// does since it reports that of links too.
fn find_layout(symbols: &Kallsyms) -> Result<(Layout, bool), String> {
    let folder = Path::new("/sys/kernel/btf");
    let kernel_path = folder.join("vmlinux");
    if !kernel_path.exists() {
        return Err("this kernel carries no BTF (CONFIG_DEBUG_INFO_BTF)".to_owned());
    }
    let kernel = Types::kernel(&kernel_path).map_err(|why| why.to_string())?;
    let module = |name: &str| -> Result<Option<Types>, String> {
        let path: PathBuf = folder.join(name);
        if !path.exists() {
            return Ok(None);
        }
        Types::module(&path, &kernel)
            .map(Some)
            .map_err(|why| why.to_string())
    };
    let (vhost, vhost_net) = (module("vhost")?, module("vhost_net")?);
    let (tun, tap) = (module("tun")?, module("tap")?);
    let types = layout::AllTypes {
        kernel: &kernel,
        vhost: vhost.as_ref().unwrap_or(&kernel),
        vhost_net: vhost_net.as_ref().unwrap_or(&kernel),
        tun: tun.as_ref().or_else(|| built_in(&kernel, "tun_file")),
        tap: tap.as_ref().or_else(|| built_in(&kernel, "tap_queue")),
    };
    let mut layout = layout::find(&types, symbols).map_err(|why| {
        if vhost_net.is_none() && Path::new("/sys/module/vhost_net").exists() {
            format!("vhost_net was built without BTF: {why}")
        } else {
            why.to_string()
        }
    })?;
    layout.vhost_net_rdev = packed(proc::VHOST_NET);
    layout.tun_rdev = packed(NET_TUN);
    let devices = fs::read_to_string("/proc/devices").unwrap_or_default();
    layout.tap_major = ["macvtap", "ipvtap"].map(|driver| major(&devices, driver).unwrap_or(0));
    let misses = kernel.offset("bpf_link_info", "perf_event.kprobe.missed");
    Ok((layout, misses.is_ok()))
}

fn built_in<'a>(kernel: &'a Types, structure: &str) -> Option<&'a Types> {
    match kernel.offset(structure, "socket") {
        Ok(_) => Some(kernel),
        Err(_) => kernel.offset(structure, "sock").is_ok().then_some(kernel),
    }
}

/// Device number of `/dev/net/tun`: misc, minor 200
/// (Documentation/admin-guide/devices.txt).
const NET_TUN: (u32, u32) = (10, 200);

/// A device number in the kernel's own packing (20 bits of minor).
fn packed((major, minor): (u32, u32)) -> u32 {
    major << 20 | minor
}

/// Major number of a driver of character devices, from the text of
/// `/proc/devices`; none while it is not there.
fn major(devices: &str, driver: &str) -> Option<u32> {
    let characters = devices.split("Block devices:").next()?;
    characters.lines().find_map(|line| {
        let (number, name) = line.trim().split_once(' ')?;
        (name == driver).then(|| number.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drivers_major_number_is_found() {
        let text = "Character devices:\n  1 mem\n 10 misc\n243 macvtap\n\nBlock devices:\n  7 loop\n\
                    242 ipvtap\n";
        assert_eq!(major(text, "macvtap"), Some(243));
        assert_eq!(major(text, "ipvtap"), None);
        assert_eq!(major("", "macvtap"), None);
    }
}
