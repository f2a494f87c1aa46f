//! Lists who holds which vhost-net device: a BPF iterator over the files of
//! all tasks.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::seq_file,
    helpers::generated::{bpf_get_current_task, bpf_seq_write},
};
use tuner_common::device::{Device, Ring, backend};
use tuner_common::layout::ABSENT;
use tuner_common::queue::{RX, TX};

use crate::kernel::{read, vq_offset};
use crate::layout::at;

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
    if device_number(file) != at!(vhost_net_rdev) {
        return 0;
    }
    let net: u64 = read(file, at!(file_private));
    if net == 0 {
        return 0;
    }
    let view = View::of_reader();
    let owner: u64 = read(net, at!(net_dev) + at!(dev_mm));
    let device = Device {
        net,
        pid: view.number(read(read(task, at!(task_signal)), at!(signal_tgid))),
        fd: fd as u32,
        owner: u32::from(owner != 0 && owner == read(task, at!(task_mm))),
        owned: u32::from(owner != 0),
        rings: [ring(net, RX, &view), ring(net, TX, &view)],
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

/// How processes are numbered for whoever reads: by the pid namespace that it is
/// in itself.
struct View {
    level: u32,
    namespace: u64,
}

impl View {
    /// The iterator runs in the reader's own system call.
    #[inline(always)]
    fn of_reader() -> Self {
        // SAFETY: the helper takes nothing and cannot fail.
        let reader = unsafe { bpf_get_current_task() };
        let pid: u64 = read(reader, at!(task_thread_pid));
        let level = read(pid, at!(pid_level));
        Self {
            level,
            namespace: read(number_at(pid, level), at!(upid_namespace)),
        }
    }

    /// Number of a `struct pid` there; 0 if it has none.
    #[inline(always)]
    fn number(&self, pid: u64) -> u32 {
        if pid == 0 || read::<u32>(pid, at!(pid_level)) < self.level {
            return 0;
        }
        let place = number_at(pid, self.level);
        if read::<u64>(place, at!(upid_namespace)) != self.namespace {
            return 0;
        }
        read(place, at!(upid_number))
    }
}

/// Address of a `struct pid`'s `upid` at a depth.
#[inline(always)]
fn number_at(pid: u64, level: u32) -> u64 {
    let offset = u64::from(level) * u64::from(at!(upid_size));
    pid + u64::from(at!(pid_numbers)) + offset
}

#[inline(always)]
fn ring(net: u64, direction: u32, view: &View) -> Ring {
    let vq = net + u64::from(vq_offset(direction));
    let socket: u64 = read(vq, at!(vq_backend));
    let mut ring = Ring {
        timeout: read(vq, at!(vq_timeout)),
        size: read(vq, at!(vq_num)),
        worker_tid: worker_tid(net, vq, view),
        backend: u32::from(socket != 0),
        kind: backend::NONE,
        ifindex: 0,
        netns: 0,
        enabled: 0,
        ifname: [0; 16],
    };
    if socket == 0 {
        return ring;
    }
    let file: u64 = read(socket, at!(socket_file));
    let private: u64 = read(file, at!(file_private));
    // What a file is of is told by its device number: a node may be called
    // anything, and the addresses of a driver's functions may be hidden.
    let number = device_number(file);
    let major = number >> MINOR_BITS;
    let netdev = if number != 0 && number == at!(tun_rdev) {
        ring.kind = backend::TUN;
        let tun = pointer(private, at!(tunfile_tun));
        ring.enabled = u32::from(pointer(private, at!(tunfile_detached)) == 0);
        pointer(tun, at!(tun_dev))
    } else if major != 0 && (major == at!(tap_major[0]) || major == at!(tap_major[1])) {
        ring.kind = backend::TAP;
        let tap = pointer(private, at!(tapqueue_tap));
        ring.enabled = u32::from(read::<u8>(private, at!(tapqueue_enabled)) != 0);
        pointer(tap, at!(tap_dev))
    } else {
        ring.kind = backend::OTHER;
        ring.enabled = 1;
        0
    };
    if netdev != 0 {
        ring.ifindex = read(netdev, at!(netdev_ifindex));
        ring.ifname = read(netdev, at!(netdev_name));
        ring.netns = read(pointer(netdev, at!(netdev_net)), at!(net_inum));
    }
    ring
}

/// Bits of a `dev_t` that are the minor number.
const MINOR_BITS: u32 = 20;

/// Number of the device that a file is of; 0 if it is of none.
#[inline(always)]
fn device_number(file: u64) -> u32 {
    let inode = pointer(file, at!(file_inode));
    if inode == 0 {
        0
    } else {
        read(inode, at!(inode_rdev))
    }
}

/// Follows a pointer unless it is null or its place is not known.
#[inline(always)]
fn pointer(base: u64, offset: u32) -> u64 {
    if base == 0 || offset == ABSENT {
        0
    } else {
        read(base, offset)
    }
}

/// Thread of the ring's worker: a kthread's task hangs on the worker itself,
/// a `vhost_task`'s one step further.
#[inline(always)]
fn worker_tid(net: u64, vq: u64, view: &View) -> u32 {
    let base = if at!(worker_in_dev) != 0 {
        net + u64::from(at!(net_dev))
    } else {
        vq
    };
    let worker: u64 = read(base, at!(worker));
    if worker == 0 {
        return 0;
    }
    let vtsk = pointer(worker, at!(worker_vtsk));
    let mut task = pointer(vtsk, at!(vtsk_task));
    if task == 0 {
        task = pointer(worker, at!(worker_task));
    }
    if at!(worker_vtsk) == ABSENT && at!(worker_task) == ABSENT {
        // Before there was a structure for it, the worker was the task.
        task = worker;
    }
    if task == 0 {
        return 0;
    }
    view.number(read(task, at!(task_thread_pid)))
}
