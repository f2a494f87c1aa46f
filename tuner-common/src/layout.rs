//! Where things lie in this kernel, found in its BTF and kallsyms before the
//! programs are loaded.

/// Byte offsets, places of arguments and addresses, handed to the programs as
/// one read-only global.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Addresses of `handle_rx_kick`, `handle_tx_kick`.
    pub kick_fn: [u64; 2],
    /// Addresses of `handle_rx_net`, `handle_tx_net`.
    pub socket_fn: [u64; 2],
    /// `vhost_net.dev`.
    pub net_dev: u32,
    /// `vhost_net.vqs[i].vq`.
    pub net_vq: [u32; 2],
    /// `vhost_net.poll[i]`.
    pub net_poll: [u32; 2],
    /// `vhost_virtqueue.poll`.
    pub vq_poll: u32,
    /// `vhost_virtqueue.last_avail_idx` (u16).
    pub vq_last_avail: u32,
    /// `vhost_virtqueue.busyloop_timeout` (u32).
    pub vq_timeout: u32,
    /// `vhost_virtqueue.private_data` (the backend's `struct socket`).
    pub vq_backend: u32,
    /// `vhost_virtqueue.num` (u32).
    pub vq_num: u32,
    /// `vhost_poll.work`.
    pub poll_work: u32,
    /// `vhost_poll.dev`.
    pub poll_dev: u32,
    /// `vhost_poll.wqh`: set while the poll waits on its file.
    pub poll_wqh: u32,
    /// `vhost_work.fn`.
    pub work_fn: u32,
    /// `vhost_work.flags`; bit 1 is `VHOST_WORK_QUEUED`.
    pub work_flags: u32,
    /// `vhost_dev.mm`.
    pub dev_mm: u32,
    /// `file.private_data`.
    pub file_private: u32,
    /// `file.f_inode`.
    pub file_inode: u32,
    /// `inode.i_rdev`.
    pub inode_rdev: u32,
    /// `task_struct.mm`.
    pub task_mm: u32,
    /// `task_struct.thread_pid`: the thread's `struct pid`.
    pub task_thread_pid: u32,
    /// `task_struct.signal`.
    pub task_signal: u32,
    /// `signal_struct.pids[PIDTYPE_TGID]`: the process's `struct pid`.
    pub signal_tgid: u32,
    /// `pid.level`: depth of the innermost namespace that it has a number in.
    pub pid_level: u32,
    /// `pid.numbers`: one `struct upid` for each namespace from the outermost.
    pub pid_numbers: u32,
    /// `upid.nr`.
    pub upid_number: u32,
    /// `upid.ns`.
    pub upid_namespace: u32,
    /// Size of a `struct upid`.
    pub upid_size: u32,
    /// `socket.file`.
    pub socket_file: u32,
    /// Chain of pointers from a `vhost_virtqueue` (or, where
    /// [`Layout::worker_in_dev`] is set, from the `vhost_dev`) to its worker:
    /// first hop.
    pub worker: u32,
    /// 1 where the worker hangs on the device rather than on the ring.
    pub worker_in_dev: u32,
    /// `vhost_worker` → `task_struct` of a kthread worker, or [`ABSENT`]. Where
    /// this and the next are absent, the worker itself is a `task_struct`.
    pub worker_task: u32,
    /// `vhost_worker` → `vhost_task`, or [`ABSENT`].
    pub worker_vtsk: u32,
    /// `vhost_task.task`.
    pub vtsk_task: u32,
    /// `tun_file.tun`, or [`ABSENT`] while the tun module is not there.
    pub tunfile_tun: u32,
    /// `tun_file.detached`: set while the queue is turned off.
    pub tunfile_detached: u32,
    /// `tun_struct.dev`.
    pub tun_dev: u32,
    /// `tap_queue.tap`, or [`ABSENT`] while the tap module is not there.
    pub tapqueue_tap: u32,
    /// `tap_queue.enabled` (bool).
    pub tapqueue_enabled: u32,
    /// `tap_dev.dev`.
    pub tap_dev: u32,
    /// `net_device.ifindex`.
    pub netdev_ifindex: u32,
    /// `net_device.name`.
    pub netdev_name: u32,
    /// `net_device.nd_net.net`, or [`ABSENT`] in a kernel without network
    /// namespaces.
    pub netdev_net: u32,
    /// `net.ns.inum`.
    pub net_inum: u32,
    /// Device number of `/dev/vhost-net`, as the kernel packs it
    /// (`major << 20 | minor`).
    pub vhost_net_rdev: u32,
    /// Device number of `/dev/net/tun`.
    pub tun_rdev: u32,
    /// Major numbers of the files of macvtap and of ipvtap; 0 while the module
    /// is not there.
    pub tap_major: [u32; 2],
    /// Offset in `struct pt_regs` of the argument `work` of the function that queues work.
    pub arg_queue_work: u32,
    /// Offset in `struct pt_regs` of the argument `busyloop_intr` of `vhost_net_busy_poll`.
    pub arg_poll_intr: u32,
    /// Offset in `struct pt_regs` of the argument `dev` of `vhost_add_used_and_signal_n`.
    pub arg_flush_dev: u32,
    /// Offset in `struct pt_regs` of the argument `vq` there.
    pub arg_flush_vq: u32,
    /// Offset in `struct pt_regs` of the argument `count` there.
    pub arg_flush_count: u32,
    /// Packets at which a hand-over is made at the latest.
    pub batch_cap: u32,
    /// 1 to log what the programs see.
    pub debug: u32,
    /// Keeps the size a multiple of eight.
    pub zero: u32,
}

/// Stands for an offset that this kernel does not have.
pub const ABSENT: u32 = u32::MAX;

#[cfg(feature = "user")]
// SAFETY: `repr(C)`, integers only, without padding (held by the test below),
// valid for any bit pattern.
unsafe impl aya::Pod for Layout {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_has_no_padding() {
        assert_eq!(size_of::<Layout>(), 4 * 8 + 56 * 4);
    }
}
