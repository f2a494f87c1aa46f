//! Calls that have to do with signal masks: those that bring one along, and the
//! one that waits for what the mask keeps back.

use std::mem::zeroed;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use vmm_sys_util::eventfd::EventFd;

use super::calls::{EARLY, Failure, expect};

/// Much longer than a sitter is ever left alone.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Size of the kernel's signal set, bytes; the C library's is larger.
const SIGSET: usize = 8;

/// The signal that is waited for. All sitters block it.
fn letter() -> i32 {
    libc::SIGRTMIN() + 3
}

/// The kernel's signal set with this signal alone.
const fn only(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Has the calling thread keep letters back.
pub(super) fn block_letters() {
    // SAFETY: an all-zero signal set is a valid place to initialise, and all
    // else takes numbers and locals.
    unsafe {
        let mut set: libc::sigset_t = zeroed();
        libc::sigaddset(&raw mut set, letter());
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// Fails unless letters are kept back: calls that bring a mask along have to
/// put the old one back.
fn check_mask() -> Result<(), Failure> {
    // SAFETY: as above; a null set asks for the present one.
    let blocked = unsafe {
        let mut set: libc::sigset_t = zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set);
        libc::sigismember(&raw const set, letter())
    };
    if blocked == 1 { Ok(()) } else { Err(EARLY) }
}

/// ppoll(2) with an empty mask.
pub(super) fn ppoll(event: &EventFd) -> Result<(), Failure> {
    let mut polled = libc::pollfd {
        fd: event.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mask = 0u64;
    // SAFETY: one entry and a mask of the size told, which live across the
    // call; a null time means to wait for ever.
    let result = unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            &raw mut polled,
            1,
            std::ptr::null::<libc::timespec>(),
            &raw const mask,
            SIGSET,
        )
    };
    let answer = expect(1, result);
    check_mask()?;
    answer
}

/// pselect(2) with an empty mask.
pub(super) fn pselect(event: &EventFd) -> Result<(), Failure> {
    let fd = event.as_raw_fd();
    if !usize::try_from(fd).is_ok_and(|fd| fd < libc::FD_SETSIZE) {
        return Err(libc::EBADF + 1);
    }
    let mask = 0u64;
    let with_size = [(&raw const mask).addr(), SIGSET];
    // SAFETY: an all-zero set is an empty one, and the descriptor fits into it.
    // Sets and mask live across the call.
    let result = unsafe {
        let mut set: libc::fd_set = zeroed();
        libc::FD_SET(fd, &raw mut set);
        libc::syscall(
            libc::SYS_pselect6,
            fd + 1,
            &raw mut set,
            std::ptr::null_mut::<libc::fd_set>(),
            std::ptr::null_mut::<libc::fd_set>(),
            std::ptr::null::<libc::timespec>(),
            with_size.as_ptr(),
        )
    };
    let answer = expect(1, result);
    check_mask()?;
    answer
}

/// A thread that waits for letters.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    /// The thread; 0 before there is one.
    tid: AtomicI32,
}

impl Mailbox {
    /// Makes the calling thread the one that waits.
    pub(super) fn take(&self) {
        // SAFETY: takes nothing and cannot fail.
        self.tid.store(unsafe { libc::gettid() }, Ordering::Release);
    }

    /// sigtimedwait(2) for a letter.
    pub(super) fn sit(&self) -> Result<(), Failure> {
        let set = only(letter());
        let limit = libc::timespec {
            tv_sec: TIMEOUT.as_secs() as libc::time_t,
            tv_nsec: 0,
        };
        // SAFETY: a set of the size told and a time, which live across the
        // call; a null place means that nobody asks for the siginfo.
        let result = unsafe {
            libc::syscall(
                libc::SYS_rt_sigtimedwait,
                &raw const set,
                std::ptr::null_mut::<libc::siginfo_t>(),
                &raw const limit,
                SIGSET,
            )
        };
        expect(i64::from(letter()), result)
    }

    /// Sends one.
    pub(super) fn wake(&self) {
        let tid = self.tid.load(Ordering::Acquire);
        if tid == 0 {
            return;
        }
        // SAFETY: takes plain numbers. It may fail where the thread has just
        // left, and with a full queue, where letters wait.
        unsafe {
            libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, letter());
        }
    }
}
