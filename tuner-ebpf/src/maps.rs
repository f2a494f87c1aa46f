//! The maps and the look-ups that every program shares.

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    macros::map,
    maps::{Array, HashMap, LruHashMap},
};
use tuner_common::queue::{Lost, Queue, QueueKey, Worker};

/// Figures and state by queue. User space sets the size.
#[map]
static QUEUES: HashMap<QueueKey, Queue> = HashMap::with_max_entries(8192, 0);

/// What each worker thread is in the middle of. An entry stays once made: its
/// thread will run again, and user space drops the entries of dead threads.
#[map]
static WORKERS: HashMap<u32, Worker> = HashMap::with_max_entries(8192, 0);

/// A queue with all figures zero: too large to be made on the 512-byte stack.
#[map]
static BLANK: Array<Queue> = Array::with_max_entries(1, 0);

/// Not zero once every program is attached: what some see before, others would
/// take for an event that was missed.
#[map]
static COUNTING: Array<u32> = Array::with_max_entries(1, 0);

/// What could be counted for no queue.
#[map]
static LOST: Array<Lost> = Array::with_max_entries(1, 0);

/// Counts what changes the list of devices.
#[map]
static GENERATION: Array<u64> = Array::with_max_entries(1, 0);

/// Threads in an ioctl that is such a change. The oldest gives way: an entry
/// whose end was missed does no harm.
#[map]
static CONTROLS: LruHashMap<u64, u32> = LruHashMap::with_max_entries(1024, 0);

/// Notes that the list of devices may be another one from now on.
#[inline(always)]
pub(crate) fn changed() {
    if let Some(generation) = GENERATION.get_ptr_mut(0) {
        // The array's only value stays in place.
        crate::counters::add(generation, 1);
    }
}

/// Notes that a thread is in such an ioctl.
#[inline(always)]
pub(crate) fn control_began(thread: u64) {
    let _ = CONTROLS.insert(thread, 1, 0);
}

/// True if a thread was.
#[inline(always)]
pub(crate) fn control_ended(thread: u64) -> bool {
    CONTROLS.remove(thread).is_ok()
}

/// True once every program is attached.
#[inline(always)]
pub(crate) fn counting() -> bool {
    COUNTING.get(0).is_some_and(|set| *set != 0)
}

#[inline(always)]
fn key(net: u64, direction: u32) -> QueueKey {
    QueueKey {
        net,
        direction,
        zero: 0,
    }
}

/// The queue's entry, if it has one.
#[inline(always)]
pub(crate) fn queue(net: u64, direction: u32) -> Option<&'static mut Queue> {
    let entry = QUEUES.get_ptr_mut(key(net, direction))?;
    // SAFETY: the map's values stay in place while the program runs; other
    // contexts write only fields that are accessed atomically.
    Some(unsafe { &mut *entry })
}

/// The queue's entry, made if there is none.
#[inline(always)]
pub(crate) fn queue_or_new(net: u64, direction: u32) -> Option<&'static mut Queue> {
    if let Some(found) = queue(net, direction) {
        return Some(found);
    }
    let blank = BLANK.get(0)?;
    // Losing the race to another CPU is fine: its entry is found below.
    let inserted = QUEUES.insert(key(net, direction), blank, u64::from(BPF_NOEXIST));
    let Some(made) = queue(net, direction) else {
        if let Some(lost) = LOST.get_ptr_mut(0) {
            // SAFETY: the array's only value stays in place.
            crate::counters::add(
                unsafe { core::ptr::addr_of_mut!((*lost).queue_map_full) },
                1,
            );
        }
        return None;
    };
    if inserted.is_ok() {
        made.born = crate::run::now_ns();
    }
    Some(made)
}

/// Drops the queue's entry: its address belongs to another device from now on.
#[inline(always)]
pub(crate) fn forget(net: u64, direction: u32) {
    // Most addresses have none.
    let _ = QUEUES.remove(key(net, direction));
}

/// Entry of a worker thread, if it has one.
#[inline(always)]
pub(crate) fn worker(tid: u32) -> Option<&'static mut Worker> {
    let entry = WORKERS.get_ptr_mut(tid)?;
    // SAFETY: only the thread itself writes its entry.
    Some(unsafe { &mut *entry })
}

/// Entry of a worker thread, made if there is none.
#[inline(always)]
pub(crate) fn worker_or_new(tid: u32) -> Option<&'static mut Worker> {
    if let Some(found) = worker(tid) {
        return Some(found);
    }
    let idle = Worker {
        net: 0,
        direction: 0,
        running: 0,
        polling: 0,
        saw: 0,
    };
    let _ = WORKERS.insert(tid, idle, 0);
    let made = worker(tid);
    if made.is_none()
        && let Some(lost) = LOST.get_ptr_mut(0)
    {
        // SAFETY: the array's only value stays in place.
        crate::counters::add(
            unsafe { core::ptr::addr_of_mut!((*lost).worker_map_full) },
            1,
        );
    }
    made
}

/// What this thread is handling, if it is inside a handler.
#[inline(always)]
pub(crate) fn handling(tid: u32) -> Option<&'static mut Worker> {
    worker(tid).filter(|worker| worker.running != 0)
}
