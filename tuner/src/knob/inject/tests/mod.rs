//! Injection into real processes: our own children, which need no privilege.
//!
//! A child is forked, runs a few raw system calls and no Rust runtime, and
//! reports through a shared page.

mod calls;
mod refusals;
mod registers;
mod sequence;
mod signals;
mod slow;
mod threads;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU32, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    Call, InjectError, Limits, Outcome, Target, X86_64, arch::RemoteIoctl, call::Batch,
    session::Session, tracer, vdso,
};
use crate::inventory::proc::{ProcStat, ThreadState};

/// Bytes to be read from the pipe that the injected ioctl asks about.
const WAITING: i32 = 5;
/// Generous, for hosts that run many tests at once.
const LIMITS: Limits = Limits {
    stop: Duration::from_secs(5),
    call: Duration::from_secs(5),
    hold: Duration::from_secs(30),
};
const FIONREAD: u64 = libc::FIONREAD;

/// What a child and the test share.
#[derive(Debug, Default)]
#[repr(C)]
struct Shared {
    /// The child has reached its loop or call.
    ready: AtomicU32,
    /// It shall end.
    stop: AtomicU32,
    /// Signal handlers run.
    handled: AtomicU32,
    /// What did not come as it should.
    wrong: AtomicU32,
    /// A word for futexes.
    futex: AtomicU32,
    /// Result of the call under test, negative errno.
    result: AtomicI64,
    /// Whatever the test wants.
    spare: AtomicI64,
}

/// Descriptors made before the fork, the same in both.
#[derive(Clone, Copy, Debug)]
struct Files {
    /// Holds [`WAITING`] bytes.
    pipe: i32,
    /// An eventfd to wait on.
    event: i32,
    /// Two ends of a stream.
    stream: [i32; 2],
}

#[derive(Debug)]
struct Child {
    pid: i32,
    files: Files,
    shared: &'static Shared,
}

impl Child {
    /// Forks; `body` may use system calls and the shared page only.
    fn new(body: fn(&'static Shared, Files) -> i64) -> Self {
        let size = size_of::<Shared>();
        // SAFETY: a fresh anonymous mapping, never unmapped, zeroed by the
        // kernel, and Shared is atomics for which zero is a value. After the
        // fork the child stays within `body` and _exit.
        unsafe {
            let page = libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(page, libc::MAP_FAILED);
            let shared = &*page.cast::<Shared>();
            let files = files();
            let parent = libc::getpid();
            let pid = libc::fork();
            assert!(pid >= 0);
            if pid == 0 {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::getppid() != parent {
                    libc::_exit(3);
                }
                let result = body(shared, files);
                shared.result.store(result, SeqCst);
                libc::_exit(0);
            }
            let child = Self { pid, files, shared };
            until("the child is ready", || shared.ready.load(SeqCst) == 1);
            child
        }
    }

    fn target(&self) -> Target {
        Target::of(self.pid).unwrap()
    }

    fn state(&self) -> ThreadState {
        ProcStat::of_process(self.pid).unwrap().state
    }

    /// Waits until it sleeps in call `number`, or in one restarted.
    fn asleep_in(&self, number: i64) {
        until("the child sleeps in its call", || {
            let text = std::fs::read_to_string(format!("/proc/{}/syscall", self.pid)).unwrap();
            let now = text.split(' ').next().and_then(|text| text.parse().ok());
            now == Some(number) || now == Some(libc::SYS_restart_syscall)
        });
    }

    fn kill(&self, signal: i32) {
        // SAFETY: takes numbers only, and the child is ours.
        assert_eq!(unsafe { libc::kill(self.pid, signal) }, 0);
    }

    /// Waits for its end; false when a signal ended it.
    fn ended(&self) -> bool {
        let mut status = 0;
        // SAFETY: `status` is ours for the length of the call.
        let waited = unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
        waited == self.pid && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }

    /// Injects the pipe question into this very thread.
    fn inject(&self) -> Result<Outcome, InjectError> {
        let hold = Arc::new(self.target().hold()?);
        let instruction = vdso::find(self.pid, X86_64::INSTRUCTION)?;
        tracer::run_in::<X86_64>(&hold, self.pid, instruction, &self.batch(), &LIMITS)
    }

    /// Injects as callers do.
    fn inject_into(&self, target: &Target) -> Result<Outcome, InjectError> {
        super::ioctls_in(target, &[self.question()], &LIMITS)
    }

    fn inject_anywhere(&self) -> Result<Outcome, InjectError> {
        self.inject_into(&self.target())
    }

    fn batch(&self) -> Batch {
        Batch::new(&[self.question()]).unwrap()
    }

    fn question(&self) -> Call {
        Call::new(self.files.pipe, FIONREAD, &[0xff; 4])
    }

    /// Injects `times` times, or for a second and a half, and checks each
    /// answer; median stop time, ns.
    fn inject_often(&self, times: usize) -> u64 {
        let deadline = Instant::now() + Duration::from_millis(1500);
        let mut stops = Vec::new();
        while stops.len() < times && Instant::now() < deadline {
            let outcome = self.inject().unwrap();
            assert_answer(&outcome.results, &outcome.arguments);
            stops.push(outcome.stopped_ns);
        }
        stops.sort_unstable();
        stops[stops.len() / 2]
    }

    /// Stops it in the calling thread, for tests that step in between.
    fn session(&self) -> Session<X86_64> {
        let (tracee, _) = tracer::seize(self.pid, self.pid).unwrap();
        Session::stop(&self.target().hold().unwrap(), tracee, LIMITS).unwrap()
    }

    fn instruction(&self) -> u64 {
        vdso::find(self.pid, X86_64::INSTRUCTION).unwrap()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: numbers only; a child already waited for is not found, and
        // its pid is not reused within this test's moments.
        unsafe {
            if libc::waitpid(self.pid, std::ptr::null_mut(), libc::WNOHANG) == 0 {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, std::ptr::null_mut(), 0);
            }
            let Files {
                pipe,
                event,
                stream: [ours, theirs],
            } = self.files;
            for fd in [pipe, event, ours, theirs] {
                libc::close(fd);
            }
        }
    }
}

fn files() -> Files {
    let (mut pipe, mut stream) = ([0; 2], [0; 2]);
    // SAFETY: the arrays are ours and as long as the calls need.
    unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        assert_eq!(libc::write(pipe[1], b"12345".as_ptr().cast(), 5), 5);
        let unix = libc::AF_UNIX;
        let pair = libc::socketpair(unix, libc::SOCK_STREAM, 0, stream.as_mut_ptr());
        assert_eq!(pair, 0);
        // The write end stays open, in the read end's place for FIONREAD.
        Files {
            pipe: pipe[0],
            event: libc::eventfd(0, 0),
            stream,
        }
    }
}

fn assert_answer(results: &[i64], arguments: &[Vec<u8>]) {
    assert_eq!(results, [0]);
    assert_eq!(arguments, [WAITING.to_ne_bytes().to_vec()]);
}

/// Waits for a condition, ten seconds at most.
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::sleep(Duration::from_micros(200));
    }
}

/// A raw system call: the result, or the negative errno.
///
/// # Safety
///
/// As the system call's own.
unsafe fn raw(number: i64, arguments: [i64; 6]) -> i64 {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: upheld by the caller.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result == -1 {
        // SAFETY: errno is always there.
        -i64::from(unsafe { *libc::__errno_location() })
    } else {
        result
    }
}
