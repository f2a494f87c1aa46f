//! Waiting for a completion of io_uring(7).

use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError};

use io_uring::{IoUring, opcode, types};
use vmm_sys_util::eventfd::EventFd;

use super::calls::{EARLY, Failure, drain, expect};

/// IORING_ENTER_GETEVENTS of linux/io_uring.h.
const GET_EVENTS: u32 = 1;

/// A ring that polls an eventfd.
#[derive(Debug)]
pub(super) struct Ring {
    /// Only the sitter uses it.
    state: Mutex<State>,
    event: EventFd,
}

struct State {
    ring: IoUring,
    /// A poll was submitted and has not completed.
    armed: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("armed", &self.armed).finish()
    }
}

impl Ring {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            state: Mutex::new(State {
                ring: IoUring::new(4)?,
                armed: false,
            }),
            event: EventFd::new(0)?,
        })
    }

    /// Waits for the eventfd. What is waited for is submitted by a call of its
    /// own, so that the one that waits has nothing else to report.
    pub(super) fn sit(&self) -> Result<(), Failure> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.armed {
            let fd = types::Fd(self.event.as_raw_fd());
            let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32).build();
            // SAFETY: the entry names a descriptor that lives as long as the
            // ring, and no memory.
            unsafe { state.ring.submission().push(&poll) }.map_err(|_| EARLY)?;
            outcome(1, state.ring.submit())?;
            state.armed = true;
        }
        // SAFETY: without an argument the kernel reads no memory of ours.
        let waited = unsafe {
            let submitter = state.ring.submitter();
            submitter.enter::<libc::sigset_t>(0, 1, GET_EVENTS, None)
        };
        outcome(0, waited)?;
        let completed = state.ring.completion().next().ok_or(EARLY)?;
        state.armed = false;
        if completed.result() & i32::from(libc::POLLIN) == 0 {
            return Err(1 - completed.result().min(0));
        }
        drain(&self.event)
    }

    pub(super) fn wake(&self) {
        // Can only fail by overflow, when nobody reads any more.
        let _ = self.event.write(1);
    }
}

fn outcome(wanted: i64, result: io::Result<usize>) -> Result<(), Failure> {
    match result {
        Ok(count) => expect(wanted, count as i64),
        Err(e) => Err(e.raw_os_error().unwrap_or(0) + 1),
    }
}
