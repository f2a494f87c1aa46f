//! Busy polls: one call of `vhost_net_busy_poll`.
//!
//! The helper returns nothing, so how a poll ended is put together from what
//! is seen around it: work queued for the other direction from inside it,
//! notifications put back (which happens exactly when the other ring's lock
//! was got), the caller's `busyloop_intr`, the time, and whether the run made
//! progress afterwards.

use aya_ebpf::{
    helpers::bpf_get_current_pid_tgid,
    macros::{kprobe, kretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use tuner_common::queue::{Queue, flush, missed, outcome, poll_saw};

use crate::counters::{end_gap, peek, put};
use crate::kernel::{argument, last_avail, read, vq_offset};
use crate::layout::at;
use crate::maps;
use crate::run::now_ns;

#[kprobe]
fn poll_enter(ctx: ProbeContext) -> u32 {
    let Some(worker) = maps::handling(bpf_get_current_pid_tgid() as u32) else {
        return 0;
    };
    let (net, direction) = (worker.net, worker.direction);
    let Some(queue) = maps::queue(net, direction) else {
        return 0;
    };
    if worker.polling != 0 {
        queue.missed[missed::POLL_RETURN as usize] += 1;
    }
    worker.polling = 1;
    worker.saw = 0;
    let index = last_avail(net, direction);
    decide(queue, index, false);
    if queue.state.flush_open != 0 {
        queue.state.flush_open = 0;
        queue.flushes[flush::DRY as usize] += 1;
    }
    queue.state.poll_intr = argument(&ctx, at!(arg_poll_intr));
    queue.state.poll_timeout = read(net, vq_offset(direction) + at!(vq_timeout));
    let now = now_ns();
    queue.state.poll_at = now;
    if peek(&queue.state.dry_since) == 0 {
        put(&mut queue.state.dry_since, now);
    }
    0
}

#[kretprobe]
fn poll_return(_ctx: RetProbeContext) -> u32 {
    let now = now_ns();
    let Some(worker) = maps::handling(bpf_get_current_pid_tgid() as u32) else {
        return 0;
    };
    if worker.polling == 0 {
        return 0;
    }
    worker.polling = 0;
    let Some(queue) = maps::queue(worker.net, worker.direction) else {
        return 0;
    };
    let mut saw = worker.saw;
    if queue.state.poll_intr != 0 && read::<u8>(queue.state.poll_intr, 0) != 0 {
        saw |= poll_saw::INTERRUPTED;
    }
    queue.state.poll_saw = saw;
    queue.state.poll_end = now;
    queue.state.poll_open = 1;
    queue.state.dry_poll = 1;
    0
}

/// `vhost_enable_notify`: inside a poll it means that the other ring's lock
/// was got.
#[kprobe]
fn notify_enabled(_ctx: ProbeContext) -> u32 {
    if let Some(worker) = maps::worker(bpf_get_current_pid_tgid() as u32)
        && worker.polling != 0
    {
        worker.saw |= poll_saw::LOCKED;
    }
    0
}

/// `vnt_poll_own_side` of the module: called inside a poll that leaves the other
/// ring alone. Its lock was not asked for, so it was not refused.
#[kprobe]
fn own_side_polled(_ctx: ProbeContext) -> u32 {
    if let Some(worker) = maps::worker(bpf_get_current_pid_tgid() as u32)
        && worker.polling != 0
    {
        worker.saw |= poll_saw::LOCKED;
    }
    0
}

/// Settles what happened up to ring index `index`: the outcome of the last
/// poll, and the end of a gap that progress has ended. True if there was
/// progress since the last time; `found` says that there was although the
/// index does not show it.
#[inline(always)]
pub(crate) fn decide(queue: &mut Queue, index: u32, found: bool) -> bool {
    let progress = found || queue.state.seen_index != index;
    queue.state.seen_index = index;
    let polled = queue.state.poll_open != 0;
    if progress {
        // Work came while the last poll spun, or had come before the run.
        let since = if polled {
            queue.state.poll_end
        } else {
            queue.state.run_at
        };
        end_gap(queue, since);
        queue.state.dry_poll = 0;
    }
    if polled {
        queue.state.poll_open = 0;
        let spun = queue.state.poll_end.saturating_sub(queue.state.poll_at);
        let at = outcome_of(queue, progress, spun) as usize;
        if at < outcome::COUNT {
            queue.polls[at] += 1;
            queue.spin_ns[at] += spun;
        }
    }
    progress
}

#[inline(always)]
fn outcome_of(queue: &Queue, progress: bool, spun: u64) -> u32 {
    let saw = queue.state.poll_saw;
    if saw & (poll_saw::LOCKED | poll_saw::PEER_QUEUED) == 0 {
        outcome::SKIPPED
    } else if progress {
        outcome::OWN_HIT
    } else if saw & poll_saw::PEER_QUEUED != 0 {
        outcome::PEER_HIT
    } else if saw & poll_saw::INTERRUPTED != 0 {
        outcome::INTERRUPTED
    } else if spun < u64::from(queue.state.poll_timeout) << 10 {
        // The loop ends before its time for a pending reschedule or signal.
        outcome::RESCHED
    } else {
        outcome::MISS
    }
}
