//! Sets that break into each kind of system call: it goes on as if nothing had
//! happened.

use vhost_tuner::knob::inject::{
    Limits, Outcome, Target, busyloop_of, get_busyloop, ioctls_in, set_busyloop,
};

use crate::module::rounds;
use crate::support::{Lab, assert_undisturbed};

/// Kinds of sitters, and the system calls they sit in. Some go on as
/// restart_syscall(2) once they were interrupted.
pub(crate) const KINDS: [(&str, &[i64]); 10] = [
    ("poll", &[libc::SYS_poll, libc::SYS_restart_syscall]),
    ("read", &[libc::SYS_read]),
    (
        "nanosleep",
        &[libc::SYS_clock_nanosleep, libc::SYS_restart_syscall],
    ),
    ("futex", &[libc::SYS_futex]),
    ("epoll", &[libc::SYS_epoll_wait]),
    ("recv_timeout", &[libc::SYS_recvfrom]),
    ("ppoll", &[libc::SYS_ppoll]),
    ("pselect", &[libc::SYS_pselect6]),
    ("io_uring", &[libc::SYS_io_uring_enter]),
    ("sigtimedwait", &[libc::SYS_rt_sigtimedwait]),
];

/// All kinds, for `--sitters`.
pub(crate) fn all_kinds() -> String {
    KINDS.map(|(kind, _)| kind).join(",")
}

/// Sets both rings of a device and reads them back, in one stop.
fn set(lab: &Lab, value: u32) -> Outcome {
    let target = Target::of(lab.pid().parse().unwrap()).unwrap();
    let fd = i32::try_from(lab.descriptors()[0]).unwrap();
    let calls = [
        set_busyloop(fd, 0, value, None),
        set_busyloop(fd, 1, value + 1, None),
        get_busyloop(fd, 0),
        get_busyloop(fd, 1),
    ]
    .map(|call| call.on("/dev/vhost-net"));
    let outcome = ioctls_in(&target, &calls, &Limits::default()).unwrap();
    assert_eq!(outcome.results, [0; 4]);
    let values = [2, 3].map(|at: usize| busyloop_of(&outcome.arguments[at]).unwrap());
    assert_eq!(values, [value, value + 1]);
    outcome
}

#[test]
fn each_goes_on_as_if_nothing_had_happened() {
    for (kind, calls) in KINDS {
        let mut lab = Lab::open(&[
            "--mode",
            "echo",
            "--seconds",
            "600",
            "--sitters",
            kind,
            "--vcpu-names",
        ]);
        lab.go();
        let wanted = rounds(20, 500);
        let (mut sets, mut inside) = (0, 0);
        let mut threads = Vec::new();
        while inside < wanted {
            let outcome = set(&lab, sets % 9 * 10);
            sets += 1;
            if outcome
                .interrupted_syscall
                .is_some_and(|call| calls.contains(&call))
            {
                inside += 1;
            }
            threads.push(u64::from(outcome.tid.cast_unsigned()));
            assert!(sets < wanted * 50, "{kind}: {inside} of {sets}");
        }
        assert_undisturbed(&lab.pid());
        lab.stop();
        let result = lab.result();
        let [sitter] = &result["sitters"].as_array().unwrap()[..] else {
            panic!("{result}");
        };
        threads.retain(|tid| sitter["tid"] != *tid);
        assert!(threads.is_empty(), "{kind}: {threads:?} were taken too");
        assert!(sitter["calls"].as_u64().unwrap() > 0, "{sitter}");
        assert_eq!(sitter["failures"], 0, "{sitter}");
        println!("{kind}: {inside} of {sets} sets broke into the call");
        lab.close();
    }
}
