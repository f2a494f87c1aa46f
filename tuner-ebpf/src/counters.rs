//! Counting.

use core::arch::asm;

use tuner_common::hist::{TIME_BUCKETS, time_bucket};
use tuner_common::queue::Queue;

// The compiler offers no atomic read-modify-write for this target (it has no
// compare-and-swap before BPF v3), so the two that are needed stand here.

/// Adds to a counter that any context may add to.
#[inline(always)]
pub(crate) fn add(counter: *mut u64, by: u64) {
    // SAFETY: callers pass a counter inside a map value, aligned to eight
    // bytes; all concurrent access to it is atomic.
    unsafe {
        asm!("lock *(u64 *)({0} + 0) += {1}", in(reg) counter, in(reg) by);
    }
}

/// Takes a stamp: what it was, leaving zero.
#[inline(always)]
pub(crate) fn take(stamp: *mut u64) -> u64 {
    let mut value = 0u64;
    // SAFETY: as for `add`.
    unsafe {
        asm!("{1} = xchg_64({0} + 0, {1})", in(reg) stamp, inout(reg) value);
    }
    value
}

/// Reads a stamp that another context may be writing.
#[inline(always)]
pub(crate) fn peek(stamp: &u64) -> u64 {
    // SAFETY: a reference is valid for reads.
    unsafe { core::ptr::read_volatile(stamp) }
}

/// Sets a stamp that another context may be reading.
#[inline(always)]
pub(crate) fn put(stamp: &mut u64, value: u64) {
    // SAFETY: a reference is valid for writes.
    unsafe { core::ptr::write_volatile(stamp, value) }
}

/// Adds a time to a histogram that only the queue's worker writes.
#[inline(always)]
pub(crate) fn record(histogram: &mut [u64; TIME_BUCKETS], ns: u64) {
    let bucket = time_bucket(ns);
    if bucket < TIME_BUCKETS {
        histogram[bucket] += 1;
    }
}

/// Ends the gap that is open on a queue, if one is, at `now`. Any context may
/// do so; the exchange lets one of them count it.
#[inline(always)]
pub(crate) fn end_gap(queue: &mut Queue, now: u64) {
    if peek(&queue.state.dry_since) == 0 {
        return;
    }
    let since = take(&mut queue.state.dry_since);
    if since == 0 {
        return;
    }
    let gap = now.saturating_sub(since);
    add(&mut queue.gap_ns, gap);
    let bucket = time_bucket(gap);
    if bucket < TIME_BUCKETS {
        add(&mut queue.gap[bucket], 1);
    }
}
