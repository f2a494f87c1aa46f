//! Hand-overs: `vhost_add_used_and_signal_n`, called once for each batch of
//! used buffers, and `vhost_notify`, which says whether the guest gets an
//! interrupt for it.

use aya_ebpf::{
    helpers::bpf_get_current_pid_tgid,
    macros::{kprobe, kretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use tuner_common::hist::{BATCH_BUCKETS, batch_bucket};
use tuner_common::queue::{RX, TX, flush};

use crate::kernel::argument;
use crate::layout::at;
use crate::maps;

#[kprobe]
fn batch_done(ctx: ProbeContext) -> u32 {
    let dev = argument(&ctx, at!(arg_flush_dev));
    let vq = argument(&ctx, at!(arg_flush_vq));
    // An unsigned int: the upper half of the register is undefined.
    let count = argument(&ctx, at!(arg_flush_count)) as u32;
    let net = dev.wrapping_sub(u64::from(at!(net_dev)));
    let direction = if vq == net + u64::from(at!(net_vq[1])) {
        TX
    } else {
        RX
    };
    // Other vhost devices call this too; they are in no map.
    let Some(queue) = maps::queue(net, direction) else {
        return 0;
    };
    let count = u64::from(count);
    queue.batches += 1;
    queue.batch_packets += count;
    let bucket = batch_bucket(count);
    if bucket < BATCH_BUCKETS {
        queue.batch[bucket] += 1;
    }
    if queue.state.flush_open != 0 {
        // A second hand-over with neither a poll nor the run's end between:
        // the first was made for a packet that had to go alone.
        queue.flushes[flush::SINGLE as usize] += 1;
        queue.state.flush_open = 0;
    }
    let capped = queue.state.cap_reached != 0;
    queue.state.cap_reached = 0;
    if capped || count >= u64::from(at!(batch_cap)) {
        queue.flushes[flush::CAP as usize] += 1;
    } else {
        queue.state.flush_open = 1;
    }
    0
}

/// `vnt_cap_reached` of the module: its worker is about to hand over a batch
/// that has reached the cap, which may be any number of packets.
#[kprobe]
fn cap_reached(_ctx: ProbeContext) -> u32 {
    if let Some(worker) = maps::handling(bpf_get_current_pid_tgid() as u32)
        && let Some(queue) = maps::queue(worker.net, worker.direction)
    {
        queue.state.cap_reached = 1;
    }
    0
}

/// `vhost_notify` returns true exactly when `vhost_signal` goes on to write
/// the guest's call eventfd.
#[kretprobe]
fn notify_return(ctx: RetProbeContext) -> u32 {
    // A C bool comes back in the lowest byte alone.
    if ctx.ret::<u64>() & 0xff == 0 {
        return 0;
    }
    if let Some(worker) = maps::handling(bpf_get_current_pid_tgid() as u32)
        && let Some(queue) = maps::queue(worker.net, worker.direction)
    {
        queue.interrupts += 1;
    }
    0
}
