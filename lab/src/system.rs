//! The few system calls that the standard library has no name for.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

/// Which descriptors of a wait can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready(u32);

impl Ready {
    /// True when the descriptor at `index` can be read, or has failed.
    #[must_use]
    pub const fn contains(self, index: usize) -> bool {
        index < 32 && self.0 & (1 << index) != 0
    }
}

/// Waits until one of `first` and `more` (at most 8 together, numbered in
/// this order; negative ones are passed over) can be read, or `timeout` has
/// passed.
///
/// May also return early, when a signal came: callers look again anyway.
///
/// # Errors
/// What ppoll(2) failed with, except EINTR.
pub fn wait_readable(
    first: &[RawFd],
    more: &[RawFd],
    timeout: Option<Duration>,
) -> io::Result<Ready> {
    const MOST: usize = 8;
    let mut polled = [libc::pollfd {
        fd: -1,
        events: libc::POLLIN,
        revents: 0,
    }; MOST];
    let count = (first.len() + more.len()).min(MOST);
    for (slot, fd) in polled.iter_mut().zip(first.iter().chain(more)) {
        slot.fd = *fd;
    }
    let limit = timeout.map(|timeout| libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the array has at least `count` entries; the timeout is null or
    // points to a value that lives across the call.
    let ready = unsafe { libc::ppoll(polled.as_mut_ptr(), count as _, limit, std::ptr::null()) };
    if ready >= 0 {
        let bits = polled
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.revents != 0)
            .fold(0, |bits, (i, _)| bits | 1 << i);
        return Ok(Ready(bits));
    }
    match io::Error::last_os_error() {
        e if e.kind() == io::ErrorKind::Interrupted => Ok(Ready(0)),
        e => Err(e),
    }
}

/// Lets this thread's timeouts end on time, not up to 50 µs late.
pub fn want_exact_timers() {
    // SAFETY: takes plain numbers, and concerns this thread only. Failing
    // costs exactness, which is measured anyway.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0);
    }
}

/// Names this thread; 15 characters are kept.
///
/// # Errors
/// What prctl(2) failed with; a NUL in the name is invalid.
pub fn name_this_thread(name: &str) -> io::Result<()> {
    let name = std::ffi::CString::new(name)?;
    // SAFETY: a string with its NUL, which lives across the call.
    if unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Keeps signals away from this thread, all but SIGKILL and SIGSTOP.
pub fn block_signals() {
    // SAFETY: an all-zero signal set is a valid place to initialise.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `all` is a local that lives across the calls, which fail for
    // numbers out of range only.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}

/// Nanoseconds of the monotonic clock.
#[must_use]
pub fn now_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes to a local; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    // The monotonic clock counts from boot and is never negative.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Open files that a thousand devices need.
const MANY_FILES: libc::rlim_t = 1 << 16;

/// Lets this process have as many open files as it may; root may have more
/// than it was given.
pub fn want_many_files() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: reads and writes a local. Failing leaves things as they were,
    // and opening files will say so.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            let many = libc::rlimit {
                rlim_cur: limit.rlim_max.max(MANY_FILES),
                rlim_max: limit.rlim_max.max(MANY_FILES),
            };
            if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const many) != 0 {
                limit.rlim_cur = limit.rlim_max;
                libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
            }
        }
    }
}

/// Sets an integer socket option.
///
/// # Errors
/// What setsockopt(2) failed with.
pub fn set_socket_option(
    socket: &impl AsRawFd,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the value's address and size are those of a local integer.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Packets that a socket dropped because its queue was full; none when the
/// kernel does not tell.
#[must_use]
pub fn socket_drops(socket: &impl AsRawFd) -> Option<u64> {
    const DROPS: usize = 8;
    let mut figures = [0u32; 16];
    let mut len = size_of_val(&figures) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into the local array.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            figures.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    (result == 0 && len as usize > DROPS * 4).then(|| u64::from(figures[DROPS]))
}

/// Blocks SIGINT and SIGTERM in this thread, and those it starts later, and
/// returns a descriptor that becomes readable when one comes.
///
/// # Errors
/// What signalfd(2) or pthread_sigmask(3) failed with.
pub fn signals_as_fd() -> io::Result<std::fs::File> {
    use std::os::fd::FromRawFd;
    // SAFETY: an all-zero signal set is a valid place to initialise.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a local that lives across all calls.
    let fd = unsafe {
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        let error = libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { std::fs::File::from_raw_fd(fd) })
}
