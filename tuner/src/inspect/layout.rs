//! Fills the [`Layout`] that the programs need from this kernel's BTF and
//! symbols.

use tuner_common::layout::{ABSENT, Layout};

use super::btf::{BtfError, Types};
use super::kallsyms::Kallsyms;

/// Packets after which stock vhost_net hands a batch over (`VHOST_NET_BATCH`,
/// a constant of `net.c` that BTF does not carry).
pub const VHOST_NET_BATCH: u32 = 64;

/// Offsets in `struct pt_regs` of the registers that carry the first arguments
/// of a function: rdi, rsi, rdx, rcx, r8, r9.
#[cfg(target_arch = "x86_64")]
const ARGUMENT_REGISTERS: [u32; 6] = [112, 104, 96, 88, 72, 64];
/// The same: x0 to x5.
#[cfg(target_arch = "aarch64")]
const ARGUMENT_REGISTERS: [u32; 6] = [0, 8, 16, 24, 32, 40];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("where a function's arguments lie is known for x86-64 and arm64 only");

/// Types by where they come from. Where a module is built into the kernel its
/// types are the kernel's.
pub struct AllTypes<'a> {
    /// The kernel image's.
    pub kernel: &'a Types,
    /// vhost's, or the kernel's.
    pub vhost: &'a Types,
    /// vhost_net's, or the kernel's.
    pub vhost_net: &'a Types,
    /// tun's; none while it is not loaded.
    pub tun: Option<&'a Types>,
    /// tap's (behind macvtap and ipvtap); none while it is not loaded.
    pub tap: Option<&'a Types>,
}

/// The process's own number among those that a `signal_struct` keeps
/// (`enum pid_type`).
const PIDTYPE_TGID: &str = "pids[1]";

/// Names of the function that all queueing of work passes through, the newest
/// first (`drivers/vhost/vhost.c`).
pub const QUEUE_WORK: [&str; 2] = ["vhost_worker_queue", "vhost_work_queue"];

/// Finds everything. Arguments that cannot be found are [`ABSENT`]:
/// the probe that needs one is then not attached.
///
/// # Errors
/// If an offset that every figure needs is not in BTF.
pub fn find(types: &AllTypes<'_>, symbols: &Kallsyms) -> Result<Layout, BtfError> {
    let net = types.vhost_net;
    let kernel = types.kernel;
    let function = |name| symbols.function(name, "vhost_net").map_or(0, |s| s.address);
    let mut layout = Layout {
        kick_fn: [function("handle_rx_kick"), function("handle_tx_kick")],
        socket_fn: [function("handle_rx_net"), function("handle_tx_net")],
        net_dev: net.offset("vhost_net", "dev")?,
        net_vq: [
            net.offset("vhost_net", "vqs[0].vq")?,
            net.offset("vhost_net", "vqs[1].vq")?,
        ],
        net_poll: [
            net.offset("vhost_net", "poll[0]")?,
            net.offset("vhost_net", "poll[1]")?,
        ],
        vq_poll: net.offset("vhost_virtqueue", "poll")?,
        vq_last_avail: net.offset("vhost_virtqueue", "last_avail_idx")?,
        vq_timeout: net.offset("vhost_virtqueue", "busyloop_timeout")?,
        vq_backend: net.offset("vhost_virtqueue", "private_data")?,
        vq_num: net.offset("vhost_virtqueue", "num")?,
        poll_work: net.offset("vhost_poll", "work")?,
        poll_dev: net.offset("vhost_poll", "dev")?,
        poll_wqh: net.offset("vhost_poll", "wqh")?,
        work_fn: net.offset("vhost_work", "fn")?,
        work_flags: net.offset("vhost_work", "flags")?,
        dev_mm: net.offset("vhost_dev", "mm")?,
        file_private: kernel.offset("file", "private_data")?,
        file_inode: kernel.offset("file", "f_inode")?,
        inode_rdev: kernel.offset("inode", "i_rdev")?,
        task_mm: kernel.offset("task_struct", "mm")?,
        task_thread_pid: kernel.offset("task_struct", "thread_pid")?,
        task_signal: kernel.offset("task_struct", "signal")?,
        signal_tgid: kernel.offset("signal_struct", PIDTYPE_TGID)?,
        pid_level: kernel.offset("pid", "level")?,
        pid_numbers: kernel.offset("pid", "numbers")?,
        upid_number: kernel.offset("upid", "nr")?,
        upid_namespace: kernel.offset("upid", "ns")?,
        upid_size: kernel.structure_size("upid")?,
        socket_file: kernel.offset("socket", "file")?,
        netdev_ifindex: kernel.offset("net_device", "ifindex")?,
        netdev_name: kernel.offset("net_device", "name")?,
        // Not in a kernel without network namespaces.
        netdev_net: kernel.offset("net_device", "nd_net.net").unwrap_or(ABSENT),
        net_inum: kernel.offset("net", "ns.inum").unwrap_or(ABSENT),
        tunfile_tun: ABSENT,
        tunfile_detached: ABSENT,
        tapqueue_tap: ABSENT,
        worker_task: ABSENT,
        worker_vtsk: ABSENT,
        batch_cap: VHOST_NET_BATCH,
        ..Layout::default()
    };
    worker(types, &mut layout)?;
    if let Some(tun) = types.tun {
        layout.tunfile_tun = tun.offset("tun_file", "tun")?;
        layout.tunfile_detached = tun.offset("tun_file", "detached")?;
        layout.tun_dev = tun.offset("tun_struct", "dev")?;
    }
    if let Some(tap) = types.tap {
        layout.tapqueue_tap = tap.offset("tap_queue", "tap")?;
        layout.tapqueue_enabled = tap.offset("tap_queue", "enabled")?;
        layout.tap_dev = tap.offset("tap_dev", "dev")?;
    }
    layout.arg_queue_work =
        queue_work(symbols).map_or(ABSENT, |function| argument(types.vhost, function, "work"));
    layout.arg_poll_intr = argument(net, "vhost_net_busy_poll", "busyloop_intr");
    let flush = "vhost_add_used_and_signal_n";
    layout.arg_flush_dev = argument(types.vhost, flush, "dev");
    layout.arg_flush_vq = argument(types.vhost, flush, "vq");
    layout.arg_flush_count = argument(types.vhost, flush, "count");
    Ok(layout)
}

/// Offset in `struct pt_regs` of an argument, by name; [`ABSENT`] where BTF does
/// not say.
pub(super) fn argument(types: &Types, function: &str, name: &str) -> u32 {
    let position = types.argument(function, name).ok();
    let register = position.and_then(|at| ARGUMENT_REGISTERS.get(at as usize));
    register.copied().unwrap_or(ABSENT)
}

/// The function that this kernel queues work with, if it is one of those known.
#[must_use]
pub fn queue_work(symbols: &Kallsyms) -> Option<&'static str> {
    QUEUE_WORK
        .into_iter()
        .find(|name| symbols.function(name, "vhost").is_some())
}

/// The way from a ring to its worker's thread: one worker hung on the device
/// until rings could have their own; its task has been a kthread's, a
/// `vhost_task`'s, or either.
fn worker(types: &AllTypes<'_>, layout: &mut Layout) -> Result<(), BtfError> {
    let net = types.vhost_net;
    match net.offset("vhost_virtqueue", "worker") {
        Ok(offset) => layout.worker = offset,
        Err(_) => {
            layout.worker = net.offset("vhost_dev", "worker")?;
            layout.worker_in_dev = 1;
        }
    }
    for name in ["kthread_task", "task"] {
        if let Ok(offset) = net.offset("vhost_worker", name) {
            layout.worker_task = offset;
        }
    }
    if let Ok(offset) = net.offset("vhost_worker", "vtsk") {
        layout.worker_vtsk = offset;
        layout.vtsk_task = types.kernel.offset("vhost_task", "task")?;
    }
    Ok(())
}
