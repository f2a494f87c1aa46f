//! Work queued for a worker.
//!
//! Kicks and the socket's wake-ups come to a worker through
//! `vhost_worker_queue(worker, work)` or, in older kernels,
//! `vhost_work_queue(dev, work)`. (Not through `vhost_poll_queue`: compilers
//! copy that into its callers in vhost.) What a handler of vhost_net queues
//! itself, its own ring again or the other one, it queues with
//! `vhost_poll_queue(poll)`, which is another module's function and so really
//! called; whether that then calls the function above is the compiler's choice
//! again. So both are probed, and what a handler queues is noted in a way that
//! does not mind being told twice.
//!
//! Which of vhost_net's four work functions the work names says which queue it
//! is for and whether the ring or the socket asked.

use aya_ebpf::{helpers::bpf_get_current_pid_tgid, macros::kprobe, programs::ProbeContext};
use tuner_common::queue::{RX, TX, cause, poll_saw};

use crate::counters::{add, end_gap, peek, put};
use crate::kernel::{argument, read};
use crate::layout::at;
use crate::maps;
use crate::run::now_ns;

#[kprobe]
fn work_queued(ctx: ProbeContext) -> u32 {
    queued(argument(&ctx, at!(arg_queue_work)), false);
    0
}

#[kprobe]
fn poll_queued(ctx: ProbeContext) -> u32 {
    if let Some(poll) = ctx.arg::<u64>(0) {
        queued(poll + u64::from(at!(poll_work)), true);
    }
    0
}

/// Notes that `work` was queued; with `by_handler`, only if a handler of the
/// same device did so.
#[inline(always)]
fn queued(work: u64, by_handler: bool) {
    let function: u64 = read(work, at!(work_fn));
    let (direction, by_socket) = if function == 0 {
        return;
    } else if function == at!(kick_fn[1]) {
        (TX, false)
    } else if function == at!(kick_fn[0]) {
        (RX, false)
    } else if function == at!(socket_fn[0]) {
        (RX, true)
    } else if function == at!(socket_fn[1]) {
        (TX, true)
    } else {
        return;
    };
    if (by_socket && by_handler) || !maps::counting() {
        return;
    }
    let poll = work - u64::from(at!(poll_work));
    let net = read::<u64>(poll, at!(poll_dev)).wrapping_sub(u64::from(at!(net_dev)));
    let Some(queue) = maps::queue_or_new(net, direction) else {
        return;
    };
    let now = now_ns();
    if by_socket {
        add(&mut queue.socket_wakes, 1);
        if peek(&queue.state.socket_at) == 0 {
            put(&mut queue.state.socket_at, now);
        }
        if direction == RX {
            end_gap(queue, now);
        }
        return;
    }
    let mut why = cause::KICK;
    if let Some(worker) = maps::handling(bpf_get_current_pid_tgid() as u32)
        && worker.net == net
    {
        if worker.direction == direction {
            why = cause::REQUEUE;
            queue.state.requeued = 1;
        } else if worker.polling != 0 {
            why = cause::PEER;
            worker.saw |= poll_saw::PEER_QUEUED;
        }
    }
    if why == cause::KICK {
        if by_handler {
            return;
        }
        add(&mut queue.kicks, 1);
    }
    if peek(&queue.state.kick_at) == 0 {
        queue.state.kick_cause = why;
        put(&mut queue.state.kick_at, now);
    }
    // A kick of the RX ring brings buffers, not packets: the socket stays
    // as dry as it was.
    if (direction == TX && why != cause::REQUEUE) || why == cause::PEER {
        end_gap(queue, now);
    }
}
