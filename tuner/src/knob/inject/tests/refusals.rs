//! What is refused, and in which words; and what several calls in one stop do.

use std::sync::atomic::Ordering::SeqCst;

use super::{
    Call, Child, FIONREAD, InjectError, LIMITS, Shared, Target, WAITING, assert_answer, raw, until,
};
use crate::knob::inject::{Argument, Refusal, ioctl_in, ioctls_in};

fn idle(shared: &'static Shared, _: super::Files) -> i64 {
    shared.ready.store(1, SeqCst);
    // SAFETY: no arguments.
    unsafe { raw(libc::SYS_pause, [0; 6]) }
}

#[test]
fn the_public_function_finds_a_thread_by_itself() {
    let child = Child::new(idle);
    let (target, pipe) = (child.target(), child.files.pipe);
    let outcome = ioctl_in(&target, pipe, FIONREAD, &[0; 4], &LIMITS).unwrap();
    assert_eq!(outcome.tid, child.pid);
    assert_answer(&outcome.results, &outcome.arguments);
    assert_eq!(outcome.failure().map(|(at, _)| at), None);
}

#[test]
fn a_failing_call_is_a_result_and_earlier_ones_are_undone() {
    const FIONBIO: u64 = libc::FIONBIO;
    let child = Child::new(idle);
    let pipe = child.files.pipe;
    let on = 1i32.to_ne_bytes();
    let calls = [
        Call::new(pipe, FIONREAD, &[0; 4]),
        Call::new(pipe, FIONBIO, &on).undone_by(&[0; 4]),
        Call::new(9999, FIONBIO, &on),
        Call::new(pipe, FIONREAD, &[0; 4]),
    ];
    let outcome = ioctls_in(&child.target(), &calls, &LIMITS).unwrap();
    assert_eq!(outcome.results, [0, 0, -i64::from(libc::EBADF)]);
    assert_eq!(outcome.arguments[0], WAITING.to_ne_bytes());
    assert_eq!(outcome.undone, 1);
    let (at, error) = outcome.failure().unwrap();
    assert_eq!((at, error.raw_os_error()), (2, Some(libc::EBADF)));
    // The descriptor is shared with us, and so are its flags.
    // SAFETY: numbers only.
    let flags = unsafe { libc::fcntl(pipe, libc::F_GETFL) };
    assert_eq!(flags & libc::O_NONBLOCK, 0);
}

#[test]
fn a_number_as_argument_is_passed_as_it_is() {
    let child = Child::new(idle);
    let mut call = child.question();
    call.argument = Argument::Value(8);
    let outcome = ioctls_in(&child.target(), &[call], &LIMITS).unwrap();
    assert_eq!(outcome.results, [-i64::from(libc::EFAULT)]);
    assert_eq!(outcome.arguments, [Vec::<u8>::new()]);
}

#[test]
fn another_file_under_that_descriptor_is_noticed() {
    let child = Child::new(idle);
    let call = child.question().on("/dev/vhost-net");
    let error = ioctls_in(&child.target(), &[call], &LIMITS).unwrap_err();
    assert!(error.to_string().contains("pipe:"), "{error}");
    let bad = Call::new(9999, FIONREAD, &[0; 4]).on("/dev/vhost-net");
    let error = ioctls_in(&child.target(), &[bad], &LIMITS).unwrap_err();
    assert!(error.to_string().contains("not open"), "{error}");
    child.inject_often(3);
}

#[test]
fn a_traced_process_is_refused_with_its_tracer() {
    let child = Child::new(idle);
    let session = child.session();
    let error = child.inject().unwrap_err();
    let InjectError::Refused { why, .. } = error else {
        panic!("{error}");
    };
    assert!(matches!(why, Refusal::Traced { .. }), "{why}");
    session.leave().unwrap();
    child.inject().unwrap();
}

#[test]
fn a_process_stopped_or_ended_or_replaced_is_told_apart() {
    let child = Child::new(idle);
    let target = child.target();
    child.kill(libc::SIGSTOP);
    until("it is stopped", || {
        matches!(child.inject_anywhere(), Err(InjectError::Stopped { .. }))
    });
    child.kill(libc::SIGCONT);
    let other = Target {
        start_time: target.start_time + 1,
        ..target
    };
    let reused = child.inject_into(&other);
    assert!(matches!(reused, Err(InjectError::Reused { .. })));
    child.kill(libc::SIGKILL);
    // First a zombie, then nothing at all.
    until("it has ended", || {
        matches!(child.inject_into(&target), Err(InjectError::Ended { .. }))
    });
    assert!(!child.ended());
    let gone = child.inject_into(&target);
    assert!(matches!(gone, Err(InjectError::Ended { .. })));
}

#[test]
fn we_ourselves_and_threads_are_refused() {
    let us = Target::of(std::process::id().cast_signed()).unwrap();
    let error = ioctl_in(&us, 0, FIONREAD, &[0; 4], &LIMITS).unwrap_err();
    assert!(matches!(error, InjectError::Argument(_)), "{error}");
    let thread = std::thread::spawn(|| {
        // SAFETY: no arguments.
        let tid = unsafe { libc::gettid() };
        let target = Target::of(tid).unwrap();
        ioctl_in(&target, 0, FIONREAD, &[0; 4], &LIMITS)
    });
    let error = thread.join().unwrap().unwrap_err();
    assert!(matches!(error, InjectError::Argument(_)), "{error}");
}

/// Installs a seccomp filter that kills the process for any ioctl.
fn filtered(shared: &'static Shared, files: super::Files) -> i64 {
    let rule = |code: u16, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let kill = libc::SECCOMP_RET_KILL_PROCESS;
    let filter = [
        // Loads the call's number; compares; kills or allows.
        rule(0x20, 0, 0, 0),
        rule(0x15, 0, 1, libc::SYS_ioctl as u32),
        rule(0x06, 0, 0, kill),
        rule(0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: 4,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: numbers, and a filter that lives across the call.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const program)
    };
    if installed != 0 {
        return 9;
    }
    idle(shared, files)
}

#[test]
fn a_filter_that_kills_for_ioctls_is_suspended_or_the_call_refused() {
    let child = Child::new(filtered);
    child.asleep_in(libc::SYS_pause);
    match child.inject() {
        Ok(outcome) => {
            assert!(outcome.filter_suspended);
            child.inject_often(50);
        }
        // Without CAP_SYS_ADMIN.
        Err(error) => assert!(matches!(error, InjectError::Filtered { .. }), "{error}"),
    }
    child.asleep_in(libc::SYS_pause);
}
