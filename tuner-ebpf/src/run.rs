//! Runs: one call of `handle_rx` or `handle_tx`.
//!
//! `last_avail_idx` moves only while the handler holds the ring's mutex, so
//! its difference between entry and return is what the run consumed.

use aya_ebpf::{
    helpers::{bpf_get_current_pid_tgid, bpf_ktime_get_ns},
    macros::{kprobe, kretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use aya_log_ebpf::info;
use tuner_common::queue::{Queue, RX, TX, cause, flush, missed, poll_saw};

use crate::counters::{end_gap, peek, put, record, take};
use crate::kernel::{last_avail, read, socket_poll_offset, vq_offset};
use crate::layout::at;
use crate::{maps, poll};

/// Bit of `vhost_work.flags` that says that the work waits to be run
/// (`VHOST_WORK_QUEUED` is a bit number).
const WORK_QUEUED: u64 = 1 << 1;

#[kprobe]
fn rx_enter(ctx: ProbeContext) -> u32 {
    enter(&ctx, RX);
    0
}

#[kprobe]
fn tx_enter(ctx: ProbeContext) -> u32 {
    enter(&ctx, TX);
    0
}

#[kretprobe]
fn rx_return(ctx: RetProbeContext) -> u32 {
    leave(&ctx);
    0
}

#[kretprobe]
fn tx_return(ctx: RetProbeContext) -> u32 {
    leave(&ctx);
    0
}

#[inline(always)]
fn enter(ctx: &ProbeContext, direction: u32) {
    let Some(net) = ctx.arg::<u64>(0) else {
        return;
    };
    if !maps::counting() {
        return;
    }
    let now = now_ns();
    let id = bpf_get_current_pid_tgid();
    let Some(queue) = maps::queue_or_new(net, direction) else {
        return;
    };
    let Some(worker) = maps::worker_or_new(id as u32) else {
        return;
    };
    let index = last_avail(net, direction);
    if queue.state.running != 0 {
        // The return of the run before was not seen. What it consumed is
        // still known; how long it took is not.
        queue.missed[missed::RUN_RETURN as usize] += 1;
        queue.packets += u64::from(index.wrapping_sub(queue.state.run_index) & 0xffff);
        poll::decide(queue, index, false);
        // A hand-over of that run stays without a cause.
        queue.state.flush_open = 0;
    }
    if worker.running != 0 && worker.polling != 0 {
        queue.missed[missed::POLL_RETURN as usize] += 1;
    }
    worker.net = net;
    worker.direction = direction;
    worker.running = 1;
    worker.polling = 0;
    worker.saw = 0;
    queue.worker_tid = id as u32;
    queue.worker_tgid = (id >> 32) as u32;
    queue.timeout = read(net, vq_offset(direction) + at!(vq_timeout));

    let (why, queued_at) = take_cause(queue, net, direction);
    count_cause(queue, why);
    if queued_at != 0 && now > queued_at && (why == cause::KICK || why == cause::SOCKET) {
        queue.wake_ns += now - queued_at;
        record(&mut queue.wake, now - queued_at);
    }
    let state = &mut queue.state;
    state.running = 1;
    state.run_at = now;
    state.run_index = index;
    state.seen_index = index;
    state.requeued = 0;
    state.poll_open = 0;
    state.dry_poll = 0;
    state.cap_reached = 0;
    if at!(debug) != 0 {
        info!(ctx, "run {} cause {} index {}", direction, why, index);
    }
}

/// Which work item this run serves, and when it was queued.
///
/// The worker clears a work item's flag before it calls the handler, so of two
/// items that were queued, the one whose flag is clear is the one being
/// served.
#[inline(always)]
fn take_cause(queue: &mut Queue, net: u64, direction: u32) -> (u32, u64) {
    let ring = peek(&queue.state.kick_at);
    let socket = peek(&queue.state.socket_at);
    let by_ring = if ring != 0 && socket != 0 {
        let flags = vq_offset(direction) + at!(vq_poll) + at!(poll_work) + at!(work_flags);
        read::<u64>(net, flags) & WORK_QUEUED == 0
    } else if ring == 0 && socket == 0 {
        // Queued again while this run was being started, so the stamp went
        // to the run before: the usual cause of the direction.
        return if direction == RX {
            (cause::SOCKET, 0)
        } else {
            (cause::KICK, 0)
        };
    } else {
        ring != 0
    };
    if by_ring {
        (queue.state.kick_cause, take(&mut queue.state.kick_at))
    } else {
        (cause::SOCKET, take(&mut queue.state.socket_at))
    }
}

#[inline(always)]
fn count_cause(queue: &mut Queue, why: u32) {
    let at = why as usize;
    if at < cause::COUNT {
        queue.runs[at] += 1;
    }
}

#[inline(always)]
fn leave(ctx: &RetProbeContext) {
    let tid = bpf_get_current_pid_tgid() as u32;
    let Some(worker) = maps::worker(tid) else {
        return;
    };
    let (net, direction) = (worker.net, worker.direction);
    let Some(queue) = maps::queue(net, direction) else {
        return;
    };
    if worker.running == 0 || queue.state.running == 0 {
        queue.missed[missed::RUN_ENTRY as usize] += 1;
        // What woke this run would be taken for the cause of the next.
        take(&mut queue.state.kick_at);
        take(&mut queue.state.socket_at);
        return;
    }
    worker.running = 0;
    if worker.polling != 0 {
        worker.polling = 0;
        queue.missed[missed::POLL_RETURN as usize] += 1;
    }
    queue.state.running = 0;

    let now = now_ns();
    let index = last_avail(net, direction);
    let took = now.saturating_sub(queue.state.run_at);
    queue.packets += u64::from(index.wrapping_sub(queue.state.run_index) & 0xffff);
    queue.run_ns += took;
    record(&mut queue.run, took);

    let polled = queue.state.poll_open != 0;
    let interrupted = polled && queue.state.poll_saw & poll_saw::INTERRUPTED != 0;
    // RX waits for its socket exactly when the socket ran dry; TX waits for
    // its socket only when that took no more. A run that went on to its weight
    // without a poll, as in a flood, waits for nothing.
    let waits: u64 = if polled || queue.state.requeued == 0 {
        read(net, socket_poll_offset(direction) + at!(poll_wqh))
    } else {
        0
    };
    let refused = direction == TX && waits != 0;
    // A packet that the socket refused is put back in the ring: the index
    // does not show that the poll had found it.
    let progress = poll::decide(queue, index, refused);
    let interrupted = interrupted && !progress;
    // The handler puts itself back in the queue for two reasons: its weight,
    // or a spin that was interrupted.
    let weight = queue.state.requeued != 0 && !interrupted;
    if queue.state.flush_open != 0 {
        queue.state.flush_open = 0;
        let why = if weight { flush::WEIGHT } else { flush::DRY };
        queue.flushes[why as usize] += 1;
    }
    if weight {
        return;
    }
    if read::<u64>(net, vq_offset(direction) + at!(vq_backend)) == 0 {
        // The ring is stopped: a guest reboots or the VM is being taken down.
        // That is no gap in its traffic.
        take(&mut queue.state.dry_since);
        return;
    }
    let dry = if direction == RX {
        waits != 0 || interrupted
    } else {
        waits == 0
    };
    if !dry {
        queue.starved += 1;
        // There is work; what is missing is the other side's room for it.
        let found = if queue.state.dry_poll != 0 {
            queue.state.poll_end
        } else {
            now
        };
        end_gap(queue, found);
        return;
    }
    note_dry(queue, direction, now);
    if at!(debug) != 0 {
        info!(ctx, "dry {} index {}", direction, index);
    }
}

/// The queue is dry from now on, unless it has been since an earlier poll or
/// more work was queued while the run ended.
#[inline(always)]
fn note_dry(queue: &mut Queue, direction: u32, now: u64) {
    if queue.state.dry_poll != 0 || peek(&queue.state.dry_since) != 0 {
        return;
    }
    put(&mut queue.state.dry_since, now);
    let queued = if direction == RX {
        peek(&queue.state.socket_at)
    } else {
        peek(&queue.state.kick_at)
    };
    if queued != 0 {
        end_gap(queue, now);
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[inline(always)]
pub(crate) fn now_ns() -> u64 {
    // SAFETY: the helper takes nothing and cannot fail.
    unsafe { bpf_ktime_get_ns() }
}
