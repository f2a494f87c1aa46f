//! Handlers that count, and how their signals are sent.

use std::cell::Cell;
use std::io;
use std::mem::zeroed;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// When an alarm goes off.
const ALARM_AFTER: Duration = Duration::from_micros(100);

/// A kind of signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// SIGALRM.
    Alarm,
    /// SIGUSR1.
    User,
    /// SIGCHLD.
    Child,
    /// A real-time signal.
    Queued,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Alarm, Self::User, Self::Child, Self::Queued];

    fn number(self) -> i32 {
        match self {
            Self::Alarm => libc::SIGALRM,
            Self::User => libc::SIGUSR1,
            Self::Child => libc::SIGCHLD,
            Self::Queued => libc::SIGRTMIN() + 4,
        }
    }
}

static HANDLED: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
static MISPLACED: AtomicU64 = AtomicU64::new(0);
static INSTALLED: AtomicBool = AtomicBool::new(false);

thread_local! {
    // Made by the compiler and never dropped, so that a handler may use them.
    static HERE: Cell<u64> = const { Cell::new(0) };
    static LAST: Cell<u64> = const { Cell::new(0) };
}

/// Handlers that have run so far.
pub(super) fn count(kind: Kind) -> u64 {
    HANDLED[kind as usize].load(Ordering::SeqCst)
}

/// Numbers that were not the last one plus one.
pub(super) fn misplaced() -> u64 {
    MISPLACED.load(Ordering::SeqCst)
}

/// Handlers that have run in the calling thread so far.
#[must_use]
pub fn handled_here() -> u64 {
    HERE.get()
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    HERE.set(HERE.get() + 1);
    let kind = match signal {
        libc::SIGALRM => Kind::Alarm,
        libc::SIGUSR1 => Kind::User,
        libc::SIGCHLD => Kind::Child,
        _ => Kind::Queued,
    };
    if kind == Kind::Queued {
        // SAFETY: the kernel passes a siginfo, of a signal queued with a value.
        let value = unsafe { (*info).si_value() };
        let number = value.sival_ptr.addr() as u64;
        if number != LAST.replace(number) + 1 {
            MISPLACED.fetch_add(1, Ordering::SeqCst);
        }
    }
    HANDLED[kind as usize].fetch_add(1, Ordering::SeqCst);
}

/// Has all kinds handled from now on.
pub(super) fn install() -> io::Result<()> {
    // Children that have ended so far have left a SIGCHLD that nobody takes.
    // Setting what ignores it takes it away.
    set_action(Kind::Child, libc::SIG_DFL, 0)?;
    for kind in Kind::ALL {
        set_action(kind, handle as *const () as usize, libc::SA_SIGINFO)?;
    }
    INSTALLED.store(true, Ordering::SeqCst);
    Ok(())
}

fn set_action(kind: Kind, handler: usize, flags: i32) -> io::Result<()> {
    // SAFETY: all bits zero is a sigaction with an empty mask; the handler uses
    // atomics and plain thread-local cells only.
    done(i64::from(unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        libc::sigaction(kind.number(), &raw const action, std::ptr::null_mut())
    }))
}

/// True once there are handlers. Before, a signal would end this process, or
/// interrupt a call although nothing handles it.
#[must_use]
pub fn is_expected() -> bool {
    INSTALLED.load(Ordering::SeqCst)
}

/// Has the calling thread, and those it starts, not be the ones that handle.
pub fn keep_away() {
    change_mask(libc::SIG_BLOCK, &Kind::ALL);
}

/// Has the calling thread handle what is sent to it, and with `all` also what
/// is sent to the process.
///
/// Only one thread may do the latter. Otherwise the kernel wakes one of them,
/// another takes the signal first, and the one that was woken finds that its
/// call was interrupted for nothing.
pub fn let_in(all: bool) {
    let kinds: &[Kind] = if all {
        &Kind::ALL
    } else {
        &[Kind::User, Kind::Queued]
    };
    change_mask(libc::SIG_UNBLOCK, kinds);
}

fn change_mask(how: i32, kinds: &[Kind]) {
    // SAFETY: all bits zero is a valid place to initialise; all else takes
    // numbers and locals, and fails for numbers out of range only.
    unsafe {
        let mut set: libc::sigset_t = zeroed();
        for kind in kinds {
            libc::sigaddset(&raw mut set, kind.number());
        }
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut());
    }
}

/// Sets the alarm, once.
pub(super) fn set_alarm() -> io::Result<()> {
    let once = libc::itimerval {
        it_interval: libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        },
        it_value: libc::timeval {
            tv_sec: 0,
            tv_usec: libc::suseconds_t::from(ALARM_AFTER.subsec_micros()),
        },
    };
    // SAFETY: reads a local; a null place means that nobody asks for the last.
    let result =
        unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const once, std::ptr::null_mut()) };
    done(i64::from(result))
}

/// Sends SIGUSR1 to a thread of this process.
pub(super) fn send_user(tid: i32) -> io::Result<()> {
    let signal = Kind::User.number();
    // SAFETY: takes plain numbers.
    done(unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal) })
}

/// `siginfo_t` of a signal queued with a value.
#[repr(C)]
struct Queued {
    signal: i32,
    errno: i32,
    code: i32,
    pad: i32,
    pid: i32,
    uid: u32,
    value: u64,
    rest: [u64; 12],
}

/// Queues a signal with a number to a thread of this process.
pub(super) fn queue(tid: i32, number: u64) -> io::Result<()> {
    let signal = Kind::Queued.number();
    // SAFETY: take nothing and cannot fail.
    let (pid, uid) = unsafe { (libc::getpid(), libc::getuid()) };
    let info = Queued {
        signal,
        errno: 0,
        code: libc::SI_QUEUE,
        pad: 0,
        pid,
        uid,
        value: number,
        rest: [0; 12],
    };
    // SAFETY: numbers, and a structure of the size of a siginfo_t.
    done(unsafe {
        libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            pid,
            tid,
            signal,
            &raw const info,
        )
    })
}

fn done(result: i64) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

const _: () = assert!(size_of::<Queued>() == size_of::<libc::siginfo_t>());
