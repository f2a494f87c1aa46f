//! Injection into code that runs: all it has must be there afterwards.

use std::{
    arch::asm,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
};

use super::{Child, Shared};

/// Runs until `stop` is set with a value in every general register, in two
/// vector registers and in the kilobyte below the stack pointer; 1 when one
/// changed.
fn spin(stop: &AtomicU32) -> u64 {
    let wrong: u64;
    // SAFETY: the registers LLVM keeps for itself are saved on the stack, the
    // stack pointer is moved away from the surrounding red zone before memory
    // below it is written, and all else is declared.
    unsafe {
        asm!(
            "push rbx",
            "push rbp",
            "sub rsp, 4096",
            "mov rax, 0x5a5a5a5a",
            "movq xmm3, rax",
            "movq xmm15, rax",
            "lea rdi, [rsp - 1024]",
            "mov rcx, 128",
            "rep stosq",
            "mov rax, 0x11111111",
            "mov rbx, 0x22222222",
            "mov rcx, 0x33333333",
            "mov rdx, 0x44444444",
            "mov rsi, 0x55555555",
            "mov rdi, 0x66666666",
            "mov rbp, 0x77777777",
            "mov r8, 0x08080808",
            "mov r9, 0x09090909",
            "mov r10, 0x10101010",
            "mov r11, 0x12121212",
            "mov r12, 0x13131313",
            "mov r13, 0x14141414",
            "mov r14, 0x15151515",
            "2:",
            "cmp rax, 0x11111111", "jne 3f",
            "cmp rbx, 0x22222222", "jne 3f",
            "cmp rcx, 0x33333333", "jne 3f",
            "cmp rdx, 0x44444444", "jne 3f",
            "cmp rsi, 0x55555555", "jne 3f",
            "cmp rdi, 0x66666666", "jne 3f",
            "cmp rbp, 0x77777777", "jne 3f",
            "cmp r8, 0x08080808", "jne 3f",
            "cmp r9, 0x09090909", "jne 3f",
            "cmp r10, 0x10101010", "jne 3f",
            "cmp r11, 0x12121212", "jne 3f",
            "cmp r12, 0x13131313", "jne 3f",
            "cmp r13, 0x14141414", "jne 3f",
            "cmp r14, 0x15151515", "jne 3f",
            "cmp dword ptr [r15], 0",
            "je 2b",
            "movq rax, xmm3",
            "cmp rax, 0x5a5a5a5a", "jne 3f",
            "movq rax, xmm15",
            "cmp rax, 0x5a5a5a5a", "jne 3f",
            "lea rdi, [rsp - 1024]",
            "mov rcx, 128",
            "repe scasq",
            "jne 3f",
            "xor eax, eax",
            "jmp 4f",
            "3:",
            "mov eax, 1",
            "4:",
            "add rsp, 4096",
            "pop rbp",
            "pop rbx",
            inout("r15") stop.as_ptr() => _,
            out("rax") wrong, out("rcx") _, out("rdx") _, out("rsi") _, out("rdi") _,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _, out("r12") _,
            out("r13") _, out("r14") _, out("xmm3") _, out("xmm15") _,
        );
    }
    wrong
}

#[test]
fn a_running_thread_keeps_registers_and_stack() {
    let body = |shared: &'static Shared, _| {
        shared.ready.store(1, SeqCst);
        i64::try_from(spin(&shared.stop)).unwrap_or(9)
    };
    let child = Child::new(body);
    let stopped = child.inject_often(500);
    let outcome = child.inject().unwrap();
    assert_eq!(
        (outcome.interrupted_syscall, outcome.reissued),
        (None, false)
    );
    child.shared.stop.store(1, SeqCst);
    assert!(child.ended());
    assert_eq!(
        child.shared.result.load(SeqCst),
        0,
        "a register or the stack changed"
    );
    println!("running: stopped for {} µs", stopped / 1000);
}

#[test]
fn system_calls_back_to_back_return_what_they_should() {
    // Stops fall on entries and exits of calls, where results are in flight.
    let body = |shared: &'static Shared, _| {
        let us = i64::from(std::process::id());
        shared.ready.store(1, SeqCst);
        while shared.stop.load(SeqCst) == 0 {
            // SAFETY: no arguments; and a descriptor that is not open.
            let (pid, bad) = unsafe {
                (
                    super::raw(libc::SYS_getpid, [0; 6]),
                    super::raw(libc::SYS_close, [-1, 0, 0, 0, 0, 0]),
                )
            };
            if pid != us || bad != -i64::from(libc::EBADF) {
                shared.wrong.fetch_add(1, SeqCst);
            }
        }
        0
    };
    let child = Child::new(body);
    child.inject_often(500);
    child.shared.stop.store(1, SeqCst);
    assert!(child.ended());
    assert_eq!(child.shared.wrong.load(SeqCst), 0);
}
