//! Injection into threads that sit in one system call or another: the call must
//! come back once, when it should, with what it should.

use std::{
    mem::zeroed,
    sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst},
    time::{Duration, Instant},
};

use super::{Child, Files, Shared, raw};

/// Injections per call.
const TIMES: usize = 200;

/// Long enough for all injections, short enough to wait for.
const WAIT_MS: i64 = 2500;

const WAIT: libc::timespec = libc::timespec {
    tv_sec: WAIT_MS / 1000,
    tv_nsec: WAIT_MS % 1000 * 1_000_000,
};

/// Injects into a child that sits in call `number`, then has `finish` end it.
fn survives(
    number: i64,
    body: fn(&'static Shared, Files) -> i64,
    finish: fn(&Child),
    expected: i64,
) -> Child {
    let child = Child::new(body);
    child.asleep_in(number);
    let stopped = child.inject_often(TIMES);
    assert_eq!(child.shared.result.load(SeqCst), 0, "it came back early");
    child.asleep_in(number);
    finish(&child);
    assert!(child.ended());
    assert_eq!(child.shared.result.load(SeqCst), expected);
    println!("call {number}: stopped for {} µs", stopped / 1000);
    child
}

/// The same for a call that ends by its own time limit, which must hold.
fn keeps_time(number: i64, body: fn(&'static Shared, Files) -> i64, expected: i64) {
    let began = Instant::now();
    survives(number, body, |_| {}, expected);
    let took = began.elapsed();
    let limit = Duration::from_millis(WAIT_MS.cast_unsigned());
    assert!(took >= limit, "{took:?}");
    assert!(took < limit + Duration::from_millis(1500), "{took:?}");
}

fn ready(shared: &Shared) {
    shared.ready.store(1, SeqCst);
}

fn ring(child: &Child) {
    let one = 1u64;
    // SAFETY: eight bytes of ours, which an eventfd takes.
    let wrote = unsafe { libc::write(child.files.event, (&raw const one).cast(), 8) };
    assert_eq!(wrote, 8);
}

fn address<T>(value: *const T) -> i64 {
    value.addr().cast_signed() as i64
}

fn poll_fd(files: Files) -> libc::pollfd {
    libc::pollfd {
        fd: files.event,
        events: libc::POLLIN,
        revents: 0,
    }
}

extern "C" fn count(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let page = PAGE.load(SeqCst);
    if page != 0 && !info.is_null() {
        // SAFETY: the address of the shared page, which is never unmapped.
        let shared = unsafe { &*std::ptr::with_exposed_provenance::<Shared>(page) };
        shared.handled.fetch_add(1, SeqCst);
    }
}

static PAGE: AtomicUsize = AtomicUsize::new(0);

/// Has SIGUSR1 counted in the shared page.
fn count_signals(shared: &'static Shared) {
    PAGE.store((&raw const *shared).expose_provenance(), SeqCst);
    // SAFETY: zero is a value of sigaction; the handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = count as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
    }
}

const USR1: u64 = 1 << (libc::SIGUSR1 - 1);

#[test]
fn poll() {
    let body = |shared: &'static Shared, files| {
        let fd = poll_fd(files);
        ready(shared);
        // SAFETY: one pollfd that lives across the call.
        unsafe { raw(libc::SYS_poll, [address(&raw const fd), 1, -1, 0, 0, 0]) }
    };
    survives(libc::SYS_poll, body, ring, 1);
}

#[test]
fn poll_keeps_its_time_limit() {
    let body = |shared: &'static Shared, files| {
        let fd = poll_fd(files);
        ready(shared);
        // SAFETY: one pollfd that lives across the call.
        unsafe {
            raw(
                libc::SYS_poll,
                [address(&raw const fd), 1, WAIT_MS, 0, 0, 0],
            )
        }
    };
    keeps_time(libc::SYS_poll, body, 0);
}

#[test]
fn ppoll_with_a_mask_keeps_its_time_limit() {
    let body = |shared: &'static Shared, files| {
        let (fd, wait, mask) = (poll_fd(files), WAIT, USR1);
        ready(shared);
        let wait = address(&raw const wait);
        let mask = address(&raw const mask);
        // SAFETY: all pointed to live across the call.
        unsafe {
            raw(
                libc::SYS_ppoll,
                [address(&raw const fd), 1, wait, mask, 8, 0],
            )
        }
    };
    keeps_time(libc::SYS_ppoll, body, 0);
}

#[test]
fn select() {
    let body = |shared: &'static Shared, files: Files| {
        let mut set = [0u64; 16];
        set[files.event as usize / 64] = 1 << (files.event % 64);
        ready(shared);
        let set = address(set.as_ptr());
        // SAFETY: the set is larger than the descriptors asked about.
        unsafe {
            raw(
                libc::SYS_select,
                [i64::from(files.event) + 1, set, 0, 0, 0, 0],
            )
        }
    };
    survives(libc::SYS_select, body, ring, 1);
}

#[test]
fn read_of_an_eventfd() {
    let body = |shared: &'static Shared, files: Files| {
        let number = 0u64;
        ready(shared);
        let to = address(&raw const number);
        // SAFETY: eight bytes to read into.
        unsafe { raw(libc::SYS_read, [i64::from(files.event), to, 8, 0, 0, 0]) }
    };
    survives(libc::SYS_read, body, ring, 8);
}

#[test]
fn nanosleep_keeps_its_time() {
    let body = |shared: &'static Shared, _| {
        let wait = WAIT;
        ready(shared);
        // SAFETY: a timespec that lives across the call.
        unsafe {
            raw(
                libc::SYS_nanosleep,
                [address(&raw const wait), 0, 0, 0, 0, 0],
            )
        }
    };
    keeps_time(libc::SYS_nanosleep, body, 0);
}

#[test]
fn absolute_clock_nanosleep_keeps_its_time() {
    let body = |shared: &'static Shared, _| {
        let mut wait = WAIT;
        // SAFETY: a timespec to write to, then one to read from.
        unsafe {
            libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut wait);
            wait.tv_sec += WAIT.tv_sec + 1;
            wait.tv_nsec = (wait.tv_nsec + WAIT.tv_nsec) % 500_000_000;
            ready(shared);
            let until = address(&raw const wait);
            raw(libc::SYS_clock_nanosleep, [1, 1, until, 0, 0, 0])
        }
    };
    survives(libc::SYS_clock_nanosleep, body, |_| {}, 0);
}

fn futex(word: &AtomicU32, operation: i32, value: i64, wait: i64) -> i64 {
    let word = address(word.as_ptr());
    // SAFETY: a word of a mapping that is never unmapped.
    unsafe {
        raw(
            libc::SYS_futex,
            [word, i64::from(operation), value, wait, 0, 0],
        )
    }
}

#[test]
fn futex_wait() {
    let body = |shared: &'static Shared, _| {
        ready(shared);
        futex(&shared.futex, libc::FUTEX_WAIT, 0, 0)
    };
    let finish = |child: &Child| {
        child.shared.futex.store(1, SeqCst);
        assert_eq!(futex(&child.shared.futex, libc::FUTEX_WAKE, 1, 0), 1);
    };
    survives(libc::SYS_futex, body, finish, 0);
}

#[test]
fn futex_wait_keeps_its_time_limit() {
    let body = |shared: &'static Shared, _| {
        let wait = WAIT;
        ready(shared);
        futex(&shared.futex, libc::FUTEX_WAIT, 0, address(&raw const wait))
    };
    let expected = -i64::from(libc::ETIMEDOUT);
    keeps_time(libc::SYS_futex, body, expected);
}

fn epoll(files: Files) -> i64 {
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN.cast_unsigned(),
        u64: 7,
    };
    // SAFETY: an event that lives across the calls.
    unsafe {
        let epoll = libc::epoll_create1(0);
        libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, files.event, &raw mut event);
        i64::from(epoll)
    }
}

#[test]
fn epoll_wait_is_issued_again() {
    let body = |shared: &'static Shared, files| {
        let epoll = epoll(files);
        let events = [0u64; 4];
        ready(shared);
        let events = address(events.as_ptr());
        // SAFETY: room for the one event asked for.
        unsafe { raw(libc::SYS_epoll_wait, [epoll, events, 1, -1, 0, 0]) }
    };
    survives(libc::SYS_epoll_wait, body, ring, 1);
}

#[test]
fn epoll_pwait_with_a_mask_is_issued_again() {
    let body = |shared: &'static Shared, files| {
        let epoll = epoll(files);
        let (events, mask) = ([0u64; 4], USR1);
        ready(shared);
        let events = address(events.as_ptr());
        let mask = address(&raw const mask);
        // SAFETY: room for the one event asked for, and a kernel signal set.
        unsafe { raw(libc::SYS_epoll_pwait, [epoll, events, 1, -1, mask, 8]) }
    };
    survives(libc::SYS_epoll_pwait, body, ring, 1);
}

#[test]
fn recv_with_a_time_limit_is_issued_again() {
    let body = |shared: &'static Shared, files: Files| {
        let limit = libc::timeval {
            tv_sec: 60,
            tv_usec: 0,
        };
        let byte = 0u8;
        let socket = files.stream[1];
        let size = size_of::<libc::timeval>() as libc::socklen_t;
        let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVTIMEO);
        // SAFETY: a timeval of its size, and one byte to read into.
        unsafe {
            libc::setsockopt(socket, level, name, (&raw const limit).cast(), size);
            ready(shared);
            let to = address(&raw const byte);
            raw(libc::SYS_recvfrom, [i64::from(socket), to, 1, 0, 0, 0])
        }
    };
    let finish = |child: &Child| {
        // SAFETY: one byte to write.
        let wrote = unsafe { libc::write(child.files.stream[0], b"x".as_ptr().cast(), 1) };
        assert_eq!(wrote, 1);
    };
    survives(libc::SYS_recvfrom, body, finish, 1);
}

#[test]
fn semop_is_issued_again() {
    let body = |shared: &'static Shared, _| {
        let down = libc::sembuf {
            sem_num: 0,
            sem_op: -1,
            sem_flg: 0,
        };
        // SAFETY: one operation that lives across the call.
        unsafe {
            let set = libc::semget(libc::IPC_PRIVATE, 1, 0o600);
            shared.spare.store(i64::from(set), SeqCst);
            ready(shared);
            raw(
                libc::SYS_semop,
                [i64::from(set), address(&raw const down), 1, 0, 0, 0],
            )
        }
    };
    let set = |child: &Child| i32::try_from(child.shared.spare.load(SeqCst)).unwrap();
    let finish = |child: &Child| {
        let set = i32::try_from(child.shared.spare.load(SeqCst)).unwrap();
        // SAFETY: sets the one semaphore of a set the child made.
        assert_eq!(unsafe { libc::semctl(set, 0, libc::SETVAL, 1) }, 0);
    };
    let child = survives(libc::SYS_semop, body, finish, 0);
    // SAFETY: removes that set.
    unsafe { libc::semctl(set(&child), 0, libc::IPC_RMID) };
}

#[test]
fn sigtimedwait_is_issued_again() {
    let body = |shared: &'static Shared, _| {
        let set = USR1;
        let limit = libc::timespec {
            tv_sec: 60,
            tv_nsec: 0,
        };
        let set = address(&raw const set);
        // SAFETY: a kernel signal set and a timespec that live across the call.
        unsafe {
            raw(libc::SYS_rt_sigprocmask, [0, set, 0, 8, 0, 0]);
            ready(shared);
            let limit = address(&raw const limit);
            raw(libc::SYS_rt_sigtimedwait, [set, 0, limit, 8, 0, 0])
        }
    };
    let finish = |child: &Child| child.kill(libc::SIGUSR1);
    let expected = i64::from(libc::SIGUSR1);
    survives(libc::SYS_rt_sigtimedwait, body, finish, expected);
}

#[test]
fn pause_ends_by_a_signal_and_by_nothing_else() {
    let body = |shared: &'static Shared, _| {
        count_signals(shared);
        ready(shared);
        // SAFETY: no arguments.
        unsafe { raw(libc::SYS_pause, [0; 6]) }
    };
    let finish = |child: &Child| child.kill(libc::SIGUSR1);
    let child = survives(libc::SYS_pause, body, finish, -i64::from(libc::EINTR));
    assert_eq!(child.shared.handled.load(SeqCst), 1);
}

#[test]
fn sigsuspend_ends_by_the_signal_it_lets_in() {
    let body = |shared: &'static Shared, _| {
        count_signals(shared);
        let (all, none) = (USR1, 0u64);
        // SAFETY: kernel signal sets that live across the calls.
        unsafe {
            raw(
                libc::SYS_rt_sigprocmask,
                [0, address(&raw const all), 0, 8, 0, 0],
            );
            ready(shared);
            let none = address(&raw const none);
            raw(libc::SYS_rt_sigsuspend, [none, 8, 0, 0, 0, 0])
        }
    };
    let finish = |child: &Child| child.kill(libc::SIGUSR1);
    let child = survives(
        libc::SYS_rt_sigsuspend,
        body,
        finish,
        -i64::from(libc::EINTR),
    );
    assert_eq!(child.shared.handled.load(SeqCst), 1);
}
