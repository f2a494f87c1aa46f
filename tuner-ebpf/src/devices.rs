//! Lists who holds which vhost-net device: a BPF iterator over the files of
//! all tasks, and the release of a device.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::seq_file, helpers::generated::bpf_seq_write, macros::kprobe, programs::ProbeContext,
};
use tuner_common::device::{Device, Ring, backend};
use tuner_common::layout::ABSENT;
use tuner_common::queue::{RX, TX};

use crate::kernel::{read, vq_offset};
use crate::layout::at;
use crate::maps;

/// `struct bpf_iter_meta`, of which only the first member is used.
#[repr(C)]
struct Meta {
    seq: *mut seq_file,
}

/// Context of an `iter/task_file` program (`struct bpf_iter__task_file`): every
/// member takes eight bytes.
#[repr(C)]
struct TaskFile {
    meta: *const Meta,
    task: u64,
    fd: u64,
    file: u64,
}

/// Writes one [`Device`] for each open `/dev/vhost-net`.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task_file")]
extern "C" fn devices(ctx: *const c_void) -> i32 {
    let ctx = ctx.cast::<TaskFile>();
    // SAFETY: the kernel calls an iterator with its context; the members lie
    // as declared above.
    let (meta, task, fd, file) = unsafe { ((*ctx).meta, (*ctx).task, (*ctx).fd, (*ctx).file) };
    if task == 0 || file == 0 {
        // The call that ends the iteration has neither.
        return 0;
    }
    let inode: u64 = read(file, at!(file_inode));
    if inode == 0 || read::<u32>(inode, at!(inode_rdev)) != at!(vhost_net_rdev) {
        return 0;
    }
    let net: u64 = read(file, at!(file_private));
    if net == 0 {
        return 0;
    }
    let owner: u64 = read(net, at!(net_dev) + at!(dev_mm));
    let device = Device {
        net,
        pid: read(task, at!(task_tgid)),
        fd: fd as u32,
        owner: u32::from(owner != 0 && owner == read(task, at!(task_mm))),
        owned: u32::from(owner != 0),
        rings: [ring(net, RX), ring(net, TX)],
    };
    // SAFETY: `meta.seq` is what the kernel passed; the record outlives the
    // call, which copies it.
    unsafe {
        bpf_seq_write(
            (*meta).seq,
            core::ptr::from_ref(&device).cast(),
            size_of::<Device>() as u32,
        );
    }
    0
}

#[inline(always)]
fn ring(net: u64, direction: u32) -> Ring {
    let vq = net + u64::from(vq_offset(direction));
    let socket: u64 = read(vq, at!(vq_backend));
    let mut ring = Ring {
        timeout: read(vq, at!(vq_timeout)),
        size: read(vq, at!(vq_num)),
        worker_tid: worker_tid(net, vq),
        backend: u32::from(socket != 0),
        kind: backend::NONE,
        ifindex: 0,
        ifname: [0; 16],
    };
    if socket == 0 {
        return ring;
    }
    let file: u64 = read(socket, at!(socket_file));
    let operations: u64 = read(file, at!(file_op));
    let private: u64 = read(file, at!(file_private));
    let netdev = if operations != 0 && operations == at!(tun_fops) {
        ring.kind = backend::TUN;
        let tun: u64 = read(private, at!(tunfile_tun));
        pointer(tun, at!(tun_dev))
    } else if operations != 0 && operations == at!(tap_fops) {
        ring.kind = backend::TAP;
        let tap: u64 = read(private, at!(tapqueue_tap));
        pointer(tap, at!(tap_dev))
    } else {
        ring.kind = backend::OTHER;
        0
    };
    if netdev != 0 {
        ring.ifindex = read(netdev, at!(netdev_ifindex));
        ring.ifname = read(netdev, at!(netdev_name));
    }
    ring
}

/// Follows a pointer unless it is null.
#[inline(always)]
fn pointer(base: u64, offset: u32) -> u64 {
    if base == 0 { 0 } else { read(base, offset) }
}

/// Thread of the ring's worker: a kthread's task hangs on the worker itself,
/// a `vhost_task`'s one step further.
#[inline(always)]
fn worker_tid(net: u64, vq: u64) -> u32 {
    let base = if at!(worker_in_dev) != 0 {
        net + u64::from(at!(net_dev))
    } else {
        vq
    };
    let worker: u64 = read(base, at!(worker));
    if worker == 0 {
        return 0;
    }
    let mut task = 0;
    if at!(worker_vtsk) != ABSENT {
        let vtsk = pointer(worker, at!(worker_vtsk));
        task = pointer(vtsk, at!(vtsk_task));
    }
    if task == 0 && at!(worker_task) != ABSENT {
        task = read(worker, at!(worker_task));
    }
    if at!(worker_vtsk) == ABSENT && at!(worker_task) == ABSENT {
        // Before there was a structure for it, the worker was the task.
        task = worker;
    }
    if task == 0 {
        return 0;
    }
    read(task, at!(task_pid))
}

/// `vhost_net_release(inode, file)`: the device is going. Its last runs may
/// still come, and still count.
#[kprobe]
fn device_released(ctx: ProbeContext) -> u32 {
    let Some(file) = ctx.arg::<u64>(1) else {
        return 0;
    };
    let net: u64 = read(file, at!(file_private));
    if let Some(queue) = maps::queue(net, RX) {
        queue.closed = 1;
    }
    if let Some(queue) = maps::queue(net, TX) {
        queue.closed = 1;
    }
    0
}

/// `vhost_dev_init(dev, …)`: a new device, likely at the address of one that
/// was released. Other vhost devices are in no map, and nothing happens.
#[kprobe]
fn device_opened(ctx: ProbeContext) -> u32 {
    let Some(dev) = ctx.arg::<u64>(0) else {
        return 0;
    };
    let net = dev.wrapping_sub(u64::from(at!(net_dev)));
    maps::forget(net, RX);
    maps::forget(net, TX);
    0
}
