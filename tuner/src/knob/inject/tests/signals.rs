//! Signals that arrive while the thread is stopped: none is lost, none runs at
//! the wrong moment, and a call that a handler must end is ended.

use std::{
    mem::zeroed,
    sync::atomic::{
        AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
    thread,
    time::Duration,
};

use super::{Child, Files, InjectError, Shared, ThreadState, assert_answer, raw, until};

/// Real-time signals sent in the storm. They queue, so each must arrive.
const STORM: i64 = 3000;

static PAGE: AtomicUsize = AtomicUsize::new(0);

/// Counts; `wrong` counts those out of order, `spare` is the last value.
extern "C" fn count(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: PAGE is the shared page by the time the handler is installed, and
    // the kernel passes a valid siginfo.
    let (shared, value) = unsafe {
        let page = std::ptr::with_exposed_provenance::<Shared>(PAGE.load(SeqCst));
        (&*page, (*info).si_value().sival_ptr.addr())
    };
    let value = value.cast_signed() as i64;
    if value != 0 && shared.spare.swap(value, SeqCst) != value - 1 {
        shared.wrong.fetch_add(1, SeqCst);
    }
    shared.handled.fetch_add(1, SeqCst);
}

fn handle(shared: &'static Shared, signal: i32, flags: i32) {
    PAGE.store((&raw const *shared).expose_provenance(), SeqCst);
    // SAFETY: zero is a value of sigaction; the handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = count as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | flags;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}

fn poll_once(files: Files, limit: i64) -> i64 {
    let fd = libc::pollfd {
        fd: files.event,
        events: libc::POLLIN,
        revents: 0,
    };
    let fd = (&raw const fd).addr().cast_signed() as i64;
    // SAFETY: one pollfd that lives across the call.
    unsafe { raw(libc::SYS_poll, [fd, 1, limit, 0, 0, 0]) }
}

#[test]
fn a_storm_of_queued_signals_loses_none_and_keeps_its_order() {
    let body = |shared: &'static Shared, files| {
        handle(shared, libc::SIGRTMIN(), 0);
        shared.ready.store(1, SeqCst);
        while shared.stop.load(SeqCst) == 0 {
            let result = poll_once(files, 1000);
            if result != -i64::from(libc::EINTR) && result != 0 {
                shared.wrong.fetch_add(1, SeqCst);
            }
        }
        0
    };
    let child = Child::new(body);
    let pid = child.pid;
    let sender = thread::spawn(move || {
        for number in 1..=STORM {
            let value = libc::sigval {
                sival_ptr: std::ptr::without_provenance_mut(number as usize),
            };
            // SAFETY: numbers only; EAGAIN says that the queue is full.
            while unsafe { libc::sigqueue(pid, libc::SIGRTMIN(), value) } != 0 {
                thread::sleep(Duration::from_micros(100));
            }
            if number % 8 == 0 {
                thread::sleep(Duration::from_micros(200));
            }
        }
    });
    let mut injected = 0;
    while !sender.is_finished() || injected < 200 {
        let outcome = child.inject().unwrap();
        assert_answer(&outcome.results, &outcome.arguments);
        injected += 1;
    }
    sender.join().unwrap();
    let handled = || i64::from(child.shared.handled.load(SeqCst));
    until("all signals are handled", || handled() == STORM);
    child.shared.stop.store(1, SeqCst);
    assert!(child.ended());
    assert_eq!(child.shared.wrong.load(SeqCst), 0, "out of order");
    println!("{STORM} signals over {injected} injections");
}

/// A signal sent while the child is stopped in call `number` ends that call
/// with EINTR, once its handler has run.
fn ended_by_a_signal(number: i64, body: fn(&'static Shared, Files) -> i64) {
    let child = Child::new(body);
    child.asleep_in(number);
    let mut session = child.session();
    child.kill(libc::SIGUSR1);
    let ran = session.run(child.instruction(), &child.batch()).unwrap();
    assert_answer(&ran.results, &ran.arguments);
    assert_eq!(child.shared.handled.load(SeqCst), 0, "not while stopped");
    let left = session.leave().unwrap();
    assert_eq!(left.interrupted, Some(number));
    assert!(child.ended());
    assert_eq!(child.shared.handled.load(SeqCst), 1);
    assert_eq!(child.shared.result.load(SeqCst), -i64::from(libc::EINTR));
}

#[test]
fn a_handler_run_during_the_stop_ends_poll() {
    ended_by_a_signal(libc::SYS_poll, |shared, files| {
        handle(shared, libc::SIGUSR1, libc::SA_RESTART);
        shared.ready.store(1, SeqCst);
        poll_once(files, -1)
    });
}

#[test]
fn a_handler_run_during_the_stop_ends_pause() {
    // Restarting by hand would run the handler first and then sleep for ever.
    ended_by_a_signal(libc::SYS_pause, |shared, _| {
        handle(shared, libc::SIGUSR1, libc::SA_RESTART);
        shared.ready.store(1, SeqCst);
        // SAFETY: no arguments.
        unsafe { raw(libc::SYS_pause, [0; 6]) }
    });
}

#[test]
fn a_handler_run_during_the_stop_ends_epoll_wait() {
    ended_by_a_signal(libc::SYS_epoll_wait, |shared, _| {
        handle(shared, libc::SIGUSR1, libc::SA_RESTART);
        let events = [0u64; 4];
        let events = events.as_ptr().addr().cast_signed() as i64;
        // SAFETY: room for the one event asked for.
        unsafe {
            let epoll = i64::from(libc::epoll_create1(0));
            shared.ready.store(1, SeqCst);
            raw(libc::SYS_epoll_wait, [epoll, events, 1, -1, 0, 0])
        }
    });
}

#[test]
fn a_signal_that_only_sigsuspend_lets_in_ends_it() {
    ended_by_a_signal(libc::SYS_rt_sigsuspend, |shared, _| {
        handle(shared, libc::SIGUSR1, 0);
        let (all, none) = (1u64 << (libc::SIGUSR1 - 1), 0u64);
        let at = |set: &u64| (&raw const *set).addr().cast_signed() as i64;
        // SAFETY: kernel signal sets that live across the calls.
        unsafe {
            raw(libc::SYS_rt_sigprocmask, [0, at(&all), 0, 8, 0, 0]);
            shared.ready.store(1, SeqCst);
            let result = raw(libc::SYS_rt_sigsuspend, [at(&none), 8, 0, 0, 0, 0]);
            // The mask must be the one from before, or the next one gets in.
            let mut now = 0u64;
            raw(libc::SYS_rt_sigprocmask, [0, 0, at(&now), 8, 0, 0]);
            now = std::ptr::read_volatile(&raw const now);
            if now == all { result } else { 77 }
        }
    });
}

#[test]
fn the_signal_mask_is_the_old_one_afterwards() {
    let body = |shared: &'static Shared, files| {
        handle(shared, libc::SIGUSR1, 0);
        let set = 1u64 << (libc::SIGUSR2 - 1) | 1 << (libc::SIGSEGV - 1);
        let now = 0u64;
        let at = |set: &u64| (&raw const *set).addr().cast_signed() as i64;
        // SAFETY: kernel signal sets that live across the calls.
        unsafe {
            raw(libc::SYS_rt_sigprocmask, [2, at(&set), 0, 8, 0, 0]);
            shared.ready.store(1, SeqCst);
            poll_once(files, -1);
            raw(libc::SYS_rt_sigprocmask, [0, 0, at(&now), 8, 0, 0]);
            i64::from(std::ptr::read_volatile(&raw const now) == set)
        }
    };
    let child = Child::new(body);
    child.asleep_in(libc::SYS_poll);
    child.inject_often(50);
    child.kill(libc::SIGUSR1);
    assert!(child.ended());
    assert_eq!(child.shared.result.load(SeqCst), 1);
}

fn poll_for_ever(shared: &'static Shared, files: Files) -> i64 {
    shared.ready.store(1, Relaxed);
    poll_once(files, -1)
}

#[test]
fn a_stop_signal_in_between_takes_effect_afterwards() {
    let child = Child::new(poll_for_ever);
    child.asleep_in(libc::SYS_poll);
    let mut session = child.session();
    child.kill(libc::SIGSTOP);
    let ran = session.run(child.instruction(), &child.batch()).unwrap();
    assert_answer(&ran.results, &ran.arguments);
    session.leave().unwrap();
    until("it is stopped", || child.state() == ThreadState::Stopped);
    assert!(matches!(
        child.inject_anywhere(),
        Err(InjectError::Stopped { .. })
    ));
    child.kill(libc::SIGCONT);
    child.asleep_in(libc::SYS_poll);
    assert_eq!(child.shared.result.load(SeqCst), 0);
    child.inject_often(10);
}

#[test]
fn a_target_killed_in_between_is_a_clean_error() {
    let child = Child::new(poll_for_ever);
    child.asleep_in(libc::SYS_poll);
    let instruction = child.instruction();
    let mut session = child.session();
    child.kill(libc::SIGKILL);
    let ended = |error| matches!(error, InjectError::Ended { .. });
    assert!(ended(session.run(instruction, &child.batch()).unwrap_err()));
    // Nothing is left to put back, and that is no error worth a panic.
    if let Err(error) = session.leave() {
        assert!(ended(error));
    }
}

#[test]
fn targets_killed_at_any_instant_never_hang_or_panic() {
    for round in 0..60u64 {
        let child = Child::new(poll_for_ever);
        let pid = child.pid;
        let killer = thread::spawn(move || {
            thread::sleep(Duration::from_micros(round * 20));
            // SAFETY: numbers only; the child is reaped after this thread ends.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        });
        let target = child.target();
        let error = loop {
            match child.inject_into(&target) {
                Ok(outcome) => assert_answer(&outcome.results, &outcome.arguments),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, InjectError::Ended { .. }), "{error}");
        killer.join().unwrap();
    }
}

#[test]
fn dropping_a_session_puts_the_thread_back() {
    let child = Child::new(poll_for_ever);
    child.asleep_in(libc::SYS_poll);
    for _ in 0..20 {
        let mut session = child.session();
        session.run(child.instruction(), &child.batch()).unwrap();
        drop(session);
        child.asleep_in(libc::SYS_poll);
    }
    assert_eq!(child.shared.result.load(SeqCst), 0);
}
