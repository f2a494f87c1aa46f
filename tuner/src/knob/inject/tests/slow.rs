//! A call that does not return for a while, as one that waits for a ring's
//! mutex. A page that userfaultfd(2) holds back makes an ioctl wait as long as
//! we like.

use std::{
    sync::atomic::Ordering::SeqCst,
    thread,
    time::{Duration, Instant},
};

use super::{Call, Child, FIONREAD, Files, InjectError, LIMITS, Limits, Shared, raw, until};
use crate::knob::inject::{Argument, call::Batch, in_flight, ioctls_in, wait_until_idle};

// linux/userfaultfd.h.
const UFFDIO_API: u64 = 0xc018_aa3f;
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
const UFFDIO_ZEROPAGE: u64 = 0xc020_aa04;
const PAGE: u64 = 4096;

/// Registers a page nobody fills and waits; `spare` is its address, `futex` the
/// descriptor. Gives 9 where that is not allowed.
fn with_a_held_page(shared: &'static Shared, _: Files) -> i64 {
    // SAFETY: a fresh mapping, and structures of the sizes the ioctls expect.
    let result = unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            PAGE as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        let fd = raw(libc::SYS_userfaultfd, [0; 6]);
        let mut api = [0xaa_u64, 0, 0];
        let mut register = [page.addr() as u64, PAGE, 1, 0];
        let fd = i32::try_from(fd).unwrap_or(-1);
        let agreed = libc::ioctl(fd, UFFDIO_API, api.as_mut_ptr());
        let registered = libc::ioctl(fd, UFFDIO_REGISTER, register.as_mut_ptr());
        shared.futex.store(fd.cast_unsigned(), SeqCst);
        shared.spare.store(page.addr().cast_signed() as i64, SeqCst);
        if agreed == 0 && registered == 0 {
            0u32
        } else {
            9
        }
    };
    shared.wrong.store(result, SeqCst);
    shared.ready.store(1, SeqCst);
    // SAFETY: no arguments.
    unsafe { raw(libc::SYS_pause, [0; 6]) }
}

/// Lets the child's page come.
fn release(child: &Child) {
    let page = child.shared.spare.load(SeqCst).cast_unsigned();
    let mut zero = [page, PAGE, 0, 0];
    // SAFETY: numbers, and a structure of the size the ioctl expects.
    unsafe {
        let pidfd = libc::syscall(libc::SYS_pidfd_open, child.pid, 0);
        let theirs = child.shared.futex.load(SeqCst);
        let fd = libc::syscall(libc::SYS_pidfd_getfd, pidfd, theirs, 0);
        assert!(fd >= 0);
        let fd = i32::try_from(fd).unwrap();
        assert_eq!(libc::ioctl(fd, UFFDIO_ZEROPAGE, zero.as_mut_ptr()), 0);
        libc::close(fd);
        libc::close(i32::try_from(pidfd).unwrap());
    }
}

fn held_child() -> Option<(Child, Call)> {
    let child = Child::new(with_a_held_page);
    if child.shared.wrong.load(SeqCst) != 0 {
        println!("userfaultfd is not allowed here; not tested");
        return None;
    }
    child.asleep_in(libc::SYS_pause);
    let mut call = child.question();
    call.argument = Argument::Value(child.shared.spare.load(SeqCst).cast_unsigned());
    Some((child, call))
}

fn short(hold_ms: u64) -> Limits {
    Limits {
        call: Duration::from_millis(20),
        hold: Duration::from_millis(hold_ms),
        ..LIMITS
    }
}

#[test]
fn a_call_beyond_its_limit_is_waited_for() {
    let Some((child, call)) = held_child() else {
        return;
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(150));
            release(&child);
        });
        let outcome = ioctls_in(&child.target(), &[call], &short(5000)).unwrap();
        assert_eq!(outcome.results, [0]);
        assert!(outcome.stopped_ns >= 100_000_000);
    });
    child.asleep_in(libc::SYS_pause);
    child.inject_often(5);
}

#[test]
fn a_caller_is_let_go_and_the_thread_put_back_later() {
    let Some((child, call)) = held_child() else {
        return;
    };
    let began = Instant::now();
    let error = ioctls_in(&child.target(), &[call], &short(60)).unwrap_err();
    assert!(matches!(error, InjectError::StillInside { .. }), "{error}");
    assert!(began.elapsed() < Duration::from_secs(1));
    assert!(in_flight() > 0);
    assert!(!wait_until_idle(Duration::from_millis(5)));
    release(&child);
    child.asleep_in(libc::SYS_pause);
    // It must be free again, and unharmed.
    until("it can be seized again", || child.inject().is_ok());
    assert_eq!(child.shared.result.load(SeqCst), 0);
}

#[test]
fn a_target_killed_inside_the_call_is_a_clean_error() {
    let Some((child, call)) = held_child() else {
        return;
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(60));
            child.kill(libc::SIGKILL);
        });
        let result = ioctls_in(&child.target(), &[call], &short(5000));
        assert!(matches!(result, Err(InjectError::Ended { .. })));
    });
}

/// A cgroup of our own to freeze, where cgroup v2 is and lets us make one.
struct Freezer(std::path::PathBuf);

impl Freezer {
    fn new(child: &Child) -> Option<Self> {
        ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
            .into_iter()
            .find_map(|root| {
                let dir = std::path::Path::new(root).join(format!("vt-{}", child.pid));
                std::fs::create_dir(&dir).ok()?;
                let freezer = Self(dir);
                freezer.write("cgroup.procs", &child.pid.to_string())?;
                freezer.write("cgroup.freeze", "1")?;
                Some(freezer)
            })
    }

    fn write(&self, file: &str, text: &str) -> Option<()> {
        std::fs::write(self.0.join(file), text).ok()
    }

    fn is_frozen(&self) -> bool {
        std::fs::read_to_string(self.0.join("cgroup.events"))
            .is_ok_and(|events| events.contains("frozen 1"))
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_frozen_process_is_put_back_and_stays_frozen() {
    let child = Child::new(|shared, _| {
        shared.ready.store(1, SeqCst);
        // SAFETY: no arguments.
        unsafe { raw(libc::SYS_pause, [0; 6]) }
    });
    child.asleep_in(libc::SYS_pause);
    let Some(freezer) = Freezer::new(&child) else {
        println!("no cgroup can be frozen here; not tested");
        return;
    };
    until("it is frozen", || freezer.is_frozen());
    let error = ioctls_in(&child.target(), &[child.question()], &short(5000)).unwrap_err();
    assert!(matches!(error, InjectError::NotRun { .. }), "{error}");
    until("it is frozen again", || freezer.is_frozen());
    freezer.write("cgroup.freeze", "0").unwrap();
    child.asleep_in(libc::SYS_pause);
    child.inject_often(10);
    assert_eq!(child.shared.result.load(SeqCst), 0);
    drop(child);
    drop(freezer);
}

#[test]
fn a_batch_is_checked_before_anything_is_touched() {
    let calls = vec![Call::new(0, FIONREAD, &[0; 400]); 2];
    assert!(matches!(Batch::new(&calls), Err(InjectError::Argument(_))));
}
