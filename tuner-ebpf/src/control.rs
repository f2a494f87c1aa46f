//! What changes the list of devices: one is opened, released, gets or loses its
//! owner or a backend. Such events are only counted; user space then lists
//! anew.

use aya_ebpf::{
    helpers::bpf_get_current_pid_tgid,
    macros::{kprobe, kretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use tuner_common::queue::{RX, TX};

use crate::kernel::read;
use crate::layout::at;
use crate::maps;

/// Type and number of the ioctls that change what a list shows
/// (`include/uapi/linux/vhost.h`). Direction and size do not matter here.
mod command {
    /// `VHOST_SET_OWNER`: a worker comes too.
    pub(super) const SET_OWNER: u32 = 0xaf01;
    /// `VHOST_RESET_OWNER`.
    pub(super) const RESET_OWNER: u32 = 0xaf02;
    /// `VHOST_SET_VRING_NUM`.
    pub(super) const SET_VRING_NUM: u32 = 0xaf10;
    /// `VHOST_SET_VRING_BUSYLOOP_TIMEOUT`.
    pub(super) const SET_VRING_BUSYLOOP_TIMEOUT: u32 = 0xaf23;
    /// `VHOST_NET_SET_BACKEND`.
    pub(super) const SET_BACKEND: u32 = 0xaf30;
}

/// `vhost_net_release(inode, file)`: the device is going. Its last runs may
/// still come, and still count.
#[kprobe]
fn device_released(ctx: ProbeContext) -> u32 {
    maps::changed();
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
/// was released. Other vhost devices are in no map; for them user space lists
/// once too often.
#[kprobe]
fn device_opened(ctx: ProbeContext) -> u32 {
    maps::changed();
    let Some(dev) = ctx.arg::<u64>(0) else {
        return 0;
    };
    let net = dev.wrapping_sub(u64::from(at!(net_dev)));
    maps::forget(net, RX);
    maps::forget(net, TX);
    0
}

/// `vhost_net_ioctl(file, cmd, arg)` begins. What it changes is not there yet;
/// that is noted here all the same, since the return may be missed.
#[kprobe]
fn control_enter(ctx: ProbeContext) -> u32 {
    let Some(number) = ctx.arg::<u64>(1) else {
        return 0;
    };
    match number as u32 & 0xffff {
        command::SET_OWNER
        | command::RESET_OWNER
        | command::SET_VRING_NUM
        | command::SET_VRING_BUSYLOOP_TIMEOUT
        | command::SET_BACKEND => {
            maps::control_began(bpf_get_current_pid_tgid());
            maps::changed();
        }
        _ => {}
    }
    0
}

/// It has ended, and the list shows what it did.
#[kretprobe]
fn control_return(_ctx: RetProbeContext) -> u32 {
    if maps::control_ended(bpf_get_current_pid_tgid()) {
        maps::changed();
    }
    0
}
