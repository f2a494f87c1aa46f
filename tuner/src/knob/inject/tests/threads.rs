//! Which thread of a process with several is chosen.

use std::sync::atomic::Ordering::SeqCst;

use super::{Child, Files, Shared, assert_answer, raw, until};

extern "C" fn wait_on_futex(shared: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: the shared page, which is never unmapped; a word of it to wait
    // on, for ever.
    unsafe {
        let shared = &*shared.cast::<Shared>();
        let word = shared.futex.as_ptr().addr().cast_signed() as i64;
        shared.spare.store(raw(libc::SYS_gettid, [0; 6]), SeqCst);
        shared.ready.store(1, SeqCst);
        let result = raw(libc::SYS_futex, [word, 0, 0, 0, 0, 0]);
        shared.wrong.store(1, SeqCst);
        shared.result.store(result, SeqCst);
    }
    std::ptr::null_mut()
}

/// The first thread in epoll_wait, a second one in a futex.
fn two_threads(shared: &'static Shared, _: Files) -> i64 {
    let events = [0u64; 4];
    let events = events.as_ptr().addr().cast_signed() as i64;
    let page = (&raw const *shared).cast_mut().cast();
    // SAFETY: the thread gets the shared page; room for the one event.
    unsafe {
        let mut thread = std::mem::zeroed();
        libc::pthread_create(&raw mut thread, std::ptr::null(), wait_on_futex, page);
        let epoll = i64::from(libc::epoll_create1(0));
        raw(libc::SYS_epoll_wait, [epoll, events, 1, -1, 0, 0])
    }
}

#[test]
fn the_thread_nobody_waits_for_is_chosen() {
    let child = Child::new(two_threads);
    child.asleep_in(libc::SYS_epoll_wait);
    let tid = i32::try_from(child.shared.spare.load(SeqCst)).unwrap();
    until("the second thread sleeps", || {
        let path = format!("/proc/{}/task/{tid}/syscall", child.pid);
        std::fs::read_to_string(path).is_ok_and(|text| text.starts_with("202 "))
    });
    for _ in 0..20 {
        let outcome = child.inject_anywhere().unwrap();
        assert_answer(&outcome.results, &outcome.arguments);
        assert_eq!(outcome.tid, tid);
        assert_eq!(outcome.interrupted_syscall, Some(libc::SYS_futex));
        until("it sleeps again", || {
            let path = format!("/proc/{}/task/{tid}/syscall", child.pid);
            std::fs::read_to_string(path).is_ok_and(|text| text.starts_with("202 "))
        });
    }
    assert_eq!(child.shared.wrong.load(SeqCst), 0, "the futex wait ended");
}

#[test]
fn a_thread_that_ends_meanwhile_is_replaced_by_another() {
    let child = Child::new(two_threads);
    let hold = std::sync::Arc::new(child.target().hold().unwrap());
    let instruction = child.instruction();
    let gone = super::tracer::run_in::<super::X86_64>(
        &hold,
        i32::MAX,
        instruction,
        &child.batch(),
        &super::LIMITS,
    );
    assert!(gone.unwrap_err().another_thread_may_do());
    child.inject_anywhere().unwrap();
}
