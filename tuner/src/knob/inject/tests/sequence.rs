//! Injection into a restartable sequence, rseq(2), which only the kernel may
//! break off.

use std::{
    arch::asm,
    sync::atomic::{AtomicI64, Ordering::SeqCst},
    thread,
    time::Duration,
};

use super::{Child, Files, InjectError, Shared, ThreadState, raw, until};

/// `RSEQ_SIG` of x86-64, which has to stand before an abort handler.
const SIGNATURE: i64 = 0x5305_3053;

/// Where glibc (2.35) has registered an area, relative to the thread pointer.
static OFFSET: AtomicI64 = AtomicI64::new(0);

/// Room for `struct rseq` or `struct rseq_cs`.
#[repr(C, align(32))]
struct Area([u64; 4]);

static mut AREA: Area = Area([0; 4]);
static mut DESCRIPTOR: Area = Area([0; 4]);

/// Spins inside a restartable sequence until told to stop; the abort handler
/// counts and begins anew. Gives 9 where an area cannot be registered.
fn sequence(shared: &'static Shared, _: Files) -> i64 {
    let (area, descriptor) = (&raw mut AREA, &raw mut DESCRIPTOR);
    // SAFETY: reads the thread pointer, which x86-64 keeps there; then rseq(2)
    // on glibc's area, and on ours, which lives as long as the process.
    let registered = unsafe {
        let thread: i64;
        asm!("mov {}, fs:0", out(reg) thread);
        let theirs = thread.wrapping_add(OFFSET.load(SeqCst));
        raw(libc::SYS_rseq, [theirs, 32, 1, SIGNATURE, 0, 0]);
        let ours = area.addr().cast_signed() as i64;
        raw(libc::SYS_rseq, [ours, 32, 0, SIGNATURE, 0, 0])
    };
    shared.ready.store(1, SeqCst);
    if registered != 0 {
        return 9;
    }
    // SAFETY: writes the descriptor, the area and the counter only, all ours;
    // every register is declared, and the abort handler needs none restored.
    unsafe {
        asm!(
            "lea {scratch}, [rip + 3f]",
            "mov qword ptr [{descriptor} + 8], {scratch}",
            "lea {scratch}, [rip + 4f]",
            "sub {scratch}, qword ptr [{descriptor} + 8]",
            "mov qword ptr [{descriptor} + 16], {scratch}",
            "lea {scratch}, [rip + 6f]",
            "mov qword ptr [{descriptor} + 24], {scratch}",
            "jmp 2f",
            ".long 0x53053053",
            "6:",
            "lock inc dword ptr [{aborts}]",
            "2:",
            "mov qword ptr [{area} + 8], {descriptor}",
            "3:",
            "cmp dword ptr [{stop}], 0",
            "je 3b",
            "4:",
            "mov qword ptr [{area} + 8], 0",
            aborts = in(reg) shared.wrong.as_ptr(),
            stop = in(reg) shared.stop.as_ptr(),
            area = in(reg) area,
            descriptor = in(reg) descriptor,
            scratch = out(reg) _,
        );
    }
    0
}

#[test]
fn a_thread_in_a_restartable_sequence_is_not_moved() {
    // SAFETY: looks a symbol up by a C string; glibc's is an isize.
    let offset = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()) };
    if offset.is_null() {
        println!("this C library registers no area; not tested");
        return;
    }
    // SAFETY: that isize.
    OFFSET.store(unsafe { *offset.cast::<isize>() } as i64, SeqCst);
    let child = Child::new(sequence);
    thread::sleep(Duration::from_millis(20));
    if child.state() != ThreadState::Running {
        println!("the area could not be replaced; not tested");
        return;
    }
    let mut caught = 0;
    until("the kernel aborts and we keep away", || {
        match child.inject() {
            Err(InjectError::InSequence { .. }) => caught += 1,
            other => assert_eq!(other.unwrap().results, [0]),
        }
        child.shared.wrong.load(SeqCst) > 3 && caught > 1
    });
    child.shared.stop.store(1, SeqCst);
    assert!(child.ended());
    assert_eq!(child.shared.result.load(SeqCst), 0);
}
