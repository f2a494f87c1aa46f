//! Threads that sit in system calls, and notice when one of them returns
//! as it should not.
//!
//! Whoever stops a thread from outside, to make it do a system call, must
//! leave no trace in the call it was sitting in: no EINTR, no early return.

mod calls;
mod masked;
mod ring;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use calls::Seat;

/// How often a sitter is woken.
const WAKE_EVERY: Duration = Duration::from_millis(20);

/// A system call to sit in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// poll(2) without a timeout.
    Poll,
    /// read(2) from an eventfd.
    Read,
    /// nanosleep(2) of 5 ms, which must not end early.
    Nanosleep,
    /// futex(2), FUTEX_WAIT.
    Futex,
    /// epoll_wait(2) without a timeout. It is never restarted after a stop.
    Epoll,
    /// recv(2) with SO_RCVTIMEO set. It is never restarted after a stop.
    #[value(name = "recv_timeout")]
    RecvTimeout,
    /// ppoll(2) without a timeout, with a signal mask of its own.
    Ppoll,
    /// pselect(2) without a timeout, with a signal mask of its own.
    Pselect,
    /// io_uring_enter(2), waiting for a completion. It is never restarted
    /// after a stop.
    #[value(name = "io_uring")]
    IoUring,
    /// sigtimedwait(2) for a signal sent to the thread. It is never restarted
    /// after a stop.
    Sigtimedwait,
}

/// What a sitter saw.
#[derive(Debug, Clone, Serialize)]
pub struct SitterCounts {
    /// The system call.
    pub syscall: Call,
    /// Thread it sits in.
    pub tid: u32,
    /// Calls that returned.
    pub calls: u64,
    /// Calls that returned as they should not: early, or with EINTR.
    pub failures: u64,
    /// errno of the last failure; 0 for an early return, none without one.
    pub last_errno: Option<i32>,
}

#[derive(Debug)]
struct Record {
    call: Call,
    tid: AtomicU64,
    calls: AtomicU64,
    failures: AtomicU64,
    /// errno + 1; 0 without a failure.
    errno: AtomicU64,
    done: AtomicBool,
}

/// Sitters at work; dropping them ends them.
#[derive(Debug)]
pub struct Sitters {
    records: Vec<Arc<Record>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Sitters {
    /// Starts one thread for each of `calls`, and one that wakes them, called
    /// `waker`.
    ///
    /// # Errors
    /// When descriptors or threads cannot be had.
    pub fn start(calls: &[Call], waker: &str) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut sitters = Self {
            records: Vec::new(),
            stop: Arc::clone(&stop),
            threads: Vec::new(),
        };
        let mut seats = Vec::new();
        for call in calls {
            let seat = Arc::new(Seat::new(*call)?);
            let record = Arc::new(Record {
                call: *call,
                tid: AtomicU64::new(0),
                calls: AtomicU64::new(0),
                failures: AtomicU64::new(0),
                errno: AtomicU64::new(0),
                done: AtomicBool::new(false),
            });
            seats.push((Arc::clone(&seat), Arc::clone(&record)));
            sitters.records.push(Arc::clone(&record));
            let stop = Arc::clone(&stop);
            let thread = thread::Builder::new()
                .name("sitter".to_owned())
                .spawn(move || sit(&seat, &record, &stop))?;
            sitters.threads.push(thread);
        }
        if !seats.is_empty() {
            let waker = thread::Builder::new()
                .name(waker.to_owned())
                .spawn(move || wake(&seats))?;
            sitters.threads.push(waker);
        }
        Ok(sitters)
    }

    /// What they saw so far.
    #[must_use]
    pub fn counts(&self) -> Vec<SitterCounts> {
        self.records
            .iter()
            .map(|record| SitterCounts {
                syscall: record.call,
                tid: record.tid.load(Ordering::Relaxed) as u32,
                calls: record.calls.load(Ordering::Relaxed),
                failures: record.failures.load(Ordering::Relaxed),
                last_errno: match record.errno.load(Ordering::Relaxed) {
                    0 => None,
                    errno => i32::try_from(errno - 1).ok(),
                },
            })
            .collect()
    }
}

impl Drop for Sitters {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // A sitter that panicked has said so on stderr.
            let _ = thread.join();
        }
    }
}

fn sit(seat: &Seat, record: &Record, stop: &AtomicBool) {
    record.tid.store(calls::thread_id(), Ordering::Relaxed);
    seat.take();
    while !stop.load(Ordering::Acquire) {
        let result = seat.sit();
        record.calls.fetch_add(1, Ordering::Relaxed);
        if let Err(errno) = result {
            record.failures.fetch_add(1, Ordering::Relaxed);
            let errno = u64::from(errno.unsigned_abs());
            record.errno.store(errno, Ordering::Relaxed);
        }
    }
    record.done.store(true, Ordering::Release);
}

fn wake(seats: &[(Arc<Seat>, Arc<Record>)]) {
    // Until all have left: one may sit down again just after being told to
    // stop, and must be woken once more.
    while !seats
        .iter()
        .all(|(_, record)| record.done.load(Ordering::Acquire))
    {
        thread::sleep(WAKE_EVERY);
        for (seat, record) in seats {
            if !record.done.load(Ordering::Acquire) {
                seat.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn undisturbed_sitters_see_no_failure_and_end_when_dropped() {
        let calls = Call::value_variants();
        let sitters = Sitters::start(calls, "waker").unwrap();
        let patience = Instant::now() + Duration::from_secs(20);
        while sitters.counts().iter().any(|s| s.calls < 3) {
            assert!(Instant::now() < patience, "{:?}", sitters.counts());
            thread::sleep(Duration::from_millis(10));
        }
        for sitter in sitters.counts() {
            assert_eq!(sitter.failures, 0, "{sitter:?}");
            assert_ne!(sitter.tid, 0);
        }
    }
}
