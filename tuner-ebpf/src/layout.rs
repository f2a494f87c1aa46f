//! The read-only global that user space fills in before loading.

use tuner_common::layout::Layout;

#[unsafe(no_mangle)]
pub(crate) static LAYOUT: Layout = Layout {
    kick_fn: [0; 2],
    socket_fn: [0; 2],
    net_dev: 0,
    net_vq: [0; 2],
    net_poll: [0; 2],
    vq_poll: 0,
    vq_last_avail: 0,
    vq_timeout: 0,
    vq_backend: 0,
    vq_num: 0,
    poll_work: 0,
    poll_dev: 0,
    poll_wqh: 0,
    work_fn: 0,
    work_flags: 0,
    dev_mm: 0,
    file_private: 0,
    file_inode: 0,
    inode_rdev: 0,
    task_mm: 0,
    task_thread_pid: 0,
    task_signal: 0,
    signal_tgid: 0,
    pid_level: 0,
    pid_numbers: 0,
    upid_number: 0,
    upid_namespace: 0,
    upid_size: 0,
    socket_file: 0,
    worker: 0,
    worker_in_dev: 0,
    worker_task: 0,
    worker_vtsk: 0,
    vtsk_task: 0,
    tunfile_tun: 0,
    tunfile_detached: 0,
    tun_dev: 0,
    tapqueue_tap: 0,
    tapqueue_enabled: 0,
    tap_dev: 0,
    netdev_ifindex: 0,
    netdev_name: 0,
    netdev_net: 0,
    net_inum: 0,
    vhost_net_rdev: 0,
    tun_rdev: 0,
    tap_major: [0; 2],
    arg_queue_work: 0,
    arg_poll_intr: 0,
    arg_flush_dev: 0,
    arg_flush_vq: 0,
    arg_flush_count: 0,
    batch_cap: 0,
    debug: 0,
    zero: 0,
};

/// One field of the layout, as user space set it: read so that the compiler
/// does not take the zero that stands in the object file for its value.
macro_rules! at {
    ($($field:tt)+) => {{
        let field = core::ptr::addr_of!($crate::layout::LAYOUT.$($field)+);
        // SAFETY: `field` points into a static that outlives the program.
        unsafe { core::ptr::read_volatile(field) }
    }};
}
pub(crate) use at;
