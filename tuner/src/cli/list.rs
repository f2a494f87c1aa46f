//! `vhost-tuner list`.

use std::io::Write;

use anyhow::anyhow;
use clap::Args;
use serde::Serialize;

use super::table::{Table, or_dash};
use super::{Outcome, Output, output, write_json};
use crate::inspect::Kernel;
use crate::inventory::device::{backend_name, direction_name};
use crate::inventory::proc::in_first_pid_namespace;
use crate::inventory::proc::{vhost_net_openers, vm_name};
use crate::inventory::{Device, Inventory, QueueRef, Target};
use crate::knob::module::{Presence, Settings};
use crate::probe::DeviceLister;

/// Options of `list`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Only this VM, pid, tap or pid:fd.
    target: Option<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(Serialize)]
struct Document {
    schema: u32,
    queues: Vec<Queue>,
    notes: Vec<String>,
}

/// One queue as `list` shows it. Null is what is not known.
#[derive(Default, Serialize)]
struct Queue {
    vm: String,
    vmm: &'static str,
    pid: u32,
    fd: u32,
    owner: Option<bool>,
    tap: Option<String>,
    netns: Option<u32>,
    backend: Option<&'static str>,
    queue_enabled: Option<bool>,
    link_kind: Option<String>,
    mtu: Option<u32>,
    up: Option<bool>,
    direction: &'static str,
    ring_size: Option<u32>,
    worker_tid: Option<u32>,
    worker_comm: Option<String>,
    worker_kthread: Option<bool>,
    worker_cpus: Option<String>,
    worker_cpu: Option<u32>,
    worker_class: Option<String>,
    worker_nice: Option<i32>,
    worker_cgroup: Option<String>,
    worker_run_ns: Option<u64>,
    worker_wait_ns: Option<u64>,
    busyloop_timeout_us: Option<u32>,
    tx_batched: Option<u32>,
    poll_peer: Option<bool>,
}

/// Lists all queues.
pub(super) fn run(options: Options) -> Outcome {
    let kernel = Kernel::inspect();
    let mut notes = Vec::new();
    if !in_first_pid_namespace() {
        notes.push(
            "this process is in a pid namespace of its own: devices of processes outside it are \
             not listed, nor are workers outside it"
                .to_owned(),
        );
    }
    let target = options.target.clone().map(Target);
    let records = DeviceLister::new(&kernel).and_then(|mut lister| lister.list());
    let queues = match records {
        Ok(records) => {
            let inventory = Inventory::from_records(&records);
            notes.extend(inventory.notes.iter().cloned());
            let devices = match &target {
                Some(target) => target.resolve(&inventory)?,
                None => inventory.devices.iter().collect(),
            };
            let settings = Settings::of(devices.iter().copied());
            // That a stock vhost_net has none is nothing to note.
            if Presence::find() != Presence::None
                && let Some(why) = &settings.unknown
            {
                notes.push(format!("tx_batched and poll_peer are not known: {why}"));
            }
            devices
                .into_iter()
                .flat_map(Device::queues)
                .map(|q| queue(q, &settings))
                .collect()
        }
        Err(why) => {
            notes.push(match &kernel.lacking {
                Some(lacking) => {
                    format!("only what /proc shows is listed, since this process lacks {lacking}")
                }
                None => format!("only what /proc shows is listed, since BPF cannot be used: {why}"),
            });
            from_proc(target.as_ref(), &mut notes)?
        }
    };
    if options.output.is_json() {
        let document = Document {
            schema: 1,
            queues,
            notes,
        };
        write_json(&document, options.output.json)?;
        return Ok(());
    }
    for note in &notes {
        log::warn!("{note}");
    }
    print(&queues)?;
    Ok(())
}

fn queue(queue: QueueRef<'_>, settings: &Settings) -> Queue {
    let device = queue.device;
    let info = &device.rings[queue.direction as usize];
    let link = device.link.as_ref();
    let worker = info.worker.as_ref();
    Queue {
        vm: device.vm.name.clone(),
        vmm: device.vm.vmm.as_str(),
        pid: device.pid,
        fd: device.fd,
        owner: Some(device.owner_known),
        tap: device.tap.clone(),
        netns: device.place.map(|(netns, _)| netns).filter(|n| *n != 0),
        backend: Some(backend_name(info.ring.kind)),
        queue_enabled: (info.ring.ifindex != 0).then_some(info.ring.enabled != 0),
        link_kind: link.map(|l| l.kind.to_string()),
        mtu: link.and_then(|l| l.mtu),
        up: link.map(|l| l.up),
        direction: direction_name(queue.direction),
        ring_size: Some(info.ring.size),
        worker_tid: (info.ring.worker_tid != 0).then_some(info.ring.worker_tid),
        worker_comm: worker.map(|w| w.comm.clone()),
        worker_kthread: worker.map(|w| !w.in_process),
        worker_cpus: worker.and_then(|w| w.allowed_cpus.clone()),
        worker_cpu: worker.map(|w| w.cpu),
        worker_class: worker.map(|w| w.policy.to_string()),
        worker_nice: worker.map(|w| w.nice),
        worker_cgroup: worker.and_then(|w| w.cgroup.clone()),
        worker_run_ns: worker.map(|w| w.run_ns),
        worker_wait_ns: worker.and_then(|w| w.wait_ns),
        busyloop_timeout_us: Some(info.ring.timeout),
        tx_batched: settings.tx_batched(device.net, queue.direction),
        poll_peer: settings.poll_peer(device.net),
    }
}

/// Devices by procfs alone: which process, which descriptor.
fn from_proc(target: Option<&Target>, notes: &mut Vec<String>) -> anyhow::Result<Vec<Queue>> {
    let openers = vhost_net_openers()?;
    notes.extend(openers.shortfall());
    let mut queues = Vec::new();
    let mut candidates = Vec::new();
    for opener in openers.openers {
        let Ok(name) = vm_name(opener.pid) else {
            continue;
        };
        let pid = u32::try_from(opener.pid)?;
        for fd in opener.fds {
            let fd_number = u32::try_from(fd)?;
            let meant = target.is_none_or(|t| t.names(&name.name, pid, fd_number, None));
            candidates.push(format!("{pid}:{fd_number} ({})", name.name));
            if !meant {
                continue;
            }
            for direction in [0, 1] {
                queues.push(Queue {
                    vm: name.name.clone(),
                    vmm: name.vmm.as_str(),
                    pid,
                    fd: fd_number,
                    direction: direction_name(direction),
                    ..Queue::default()
                });
            }
        }
    }
    match target {
        Some(target) if queues.is_empty() => Err(anyhow!(
            "no VM, process or device is called `{}`; there is: {}",
            target.0,
            if candidates.is_empty() {
                "nothing".to_owned()
            } else {
                candidates.join(", ")
            }
        )),
        _ => Ok(queues),
    }
}

/// Kind of the net device, and whether the queue is turned off there.
fn kind(queue: &Queue) -> String {
    let kind = or_dash(queue.link_kind.as_deref().or(queue.backend));
    match queue.queue_enabled {
        Some(false) => format!("{kind} (off)"),
        _ => kind,
    }
}

fn seconds(ns: Option<u64>) -> String {
    or_dash(ns.map(|ns| format!("{:.1}", ns as f64 / 1e9)))
}

fn print(queues: &[Queue]) -> anyhow::Result<()> {
    let mut table = Table::new(&[
        ("VM", true),
        ("VMM", true),
        ("PID", false),
        ("FD", false),
        ("DIR", true),
        ("TAP", true),
        ("KIND", true),
        ("RING", false),
        ("WORKER", false),
        ("CLASS", true),
        ("NICE", false),
        ("CPUS", true),
        ("CPU", false),
        ("RUN-S", false),
        ("WAIT-S", false),
        ("POLL-US", false),
        ("BATCHED", false),
        ("PEER", true),
    ]);
    for queue in queues {
        table.row(vec![
            queue.vm.clone(),
            queue.vmm.to_owned(),
            queue.pid.to_string(),
            queue.fd.to_string(),
            queue.direction.to_owned(),
            or_dash(queue.tap.as_ref()),
            kind(queue),
            or_dash(queue.ring_size),
            or_dash(queue.worker_tid),
            or_dash(queue.worker_class.as_ref()),
            or_dash(queue.worker_nice),
            or_dash(queue.worker_cpus.as_ref()),
            or_dash(queue.worker_cpu),
            seconds(queue.worker_run_ns),
            seconds(queue.worker_wait_ns),
            or_dash(queue.busyloop_timeout_us),
            or_dash(queue.tx_batched),
            or_dash(queue.poll_peer.map(|on| if on { "on" } else { "off" })),
        ]);
    }
    let mut out = output();
    table.write(&mut out)?;
    out.flush()?;
    Ok(())
}
