//! [`RemoteIoctl`] for x86-64.

use super::arch::{Interrupted, RemoteIoctl};

/// User code segment of 64-bit code, and the same under Xen PV.
const CODE_64: [u64; 2] = [0x33, 0xe033];

/// Bytes below the stack pointer that belong to the function running (System V
/// ABI, AMD64 supplement, 3.2.2): it may keep data there without moving the
/// stack pointer.
const RED_ZONE: u64 = 128;

/// Kernel-internal results (linux/errno.h) that never reach user mode: the
/// signal code turns them into another try or into `EINTR` on the way out.
const ERESTARTSYS: i64 = 512;
const ERESTARTNOINTR: i64 = 513;
const ERESTARTNOHAND: i64 = 514;
const ERESTART_RESTARTBLOCK: i64 = 516;

const EINTR: i64 = libc::EINTR as i64;

/// This processor.
#[derive(Debug)]
pub struct X86_64;

impl RemoteIoctl for X86_64 {
    type Registers = libc::user_regs_struct;

    /// `syscall`. It uses no stack, and pushes nothing to a shadow stack.
    const INSTRUCTION: &'static [u8] = &[0x0f, 0x05];

    fn is_native(registers: &Self::Registers) -> bool {
        CODE_64.contains(&registers.cs)
    }

    fn program_counter(registers: &Self::Registers) -> u64 {
        registers.rip
    }

    fn in_user_mode(registers: &Self::Registers) -> bool {
        // Interrupts and exceptions enter with -1 here, system calls with
        // their number.
        registers.orig_rax.cast_signed() < 0
    }

    fn scratch(registers: &Self::Registers, length: usize) -> Option<u64> {
        // As little as possible below the red zone: a signal frame would go
        // there, so the stack must have the room, but stacks that programs
        // manage themselves (coroutines, Go) end soon after.
        let length = u64::try_from(length).ok()?;
        Some(registers.rsp.checked_sub(RED_ZONE)?.checked_sub(length)? & !15)
    }

    fn aim(
        registers: &Self::Registers,
        instruction: u64,
        fd: i32,
        request: u64,
        argument: u64,
    ) -> Self::Registers {
        let mut aimed = *registers;
        aimed.rip = instruction;
        aimed.rax = libc::SYS_ioctl.cast_unsigned();
        aimed.rdi = i64::from(fd).cast_unsigned();
        aimed.rsi = request;
        aimed.rdx = argument;
        // Says "not in a system call", or the kernel would restart the
        // interrupted one with our registers on the way to user mode.
        aimed.orig_rax = u64::MAX;
        aimed
    }

    fn skip(registers: &Self::Registers) -> Self::Registers {
        let mut skipped = *registers;
        skipped.orig_rax = u64::MAX;
        skipped
    }

    fn ioctl_number() -> i64 {
        libc::SYS_ioctl
    }

    fn result(registers: &Self::Registers) -> i64 {
        registers.rax.cast_signed()
    }

    fn interrupted(registers: &Self::Registers) -> Interrupted {
        let number = registers.orig_rax.cast_signed();
        if number < 0 {
            return Interrupted::Nothing;
        }
        match -registers.rax.cast_signed() {
            ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND | ERESTART_RESTARTBLOCK => {
                Interrupted::Restarts { number }
            }
            EINTR => Interrupted::Eintr {
                number,
                second: registers.rsi,
            },
            _ => Interrupted::Nothing,
        }
    }

    fn start_again(registers: &Self::Registers) -> Self::Registers {
        let mut again = *registers;
        again.rax = (-ERESTARTNOHAND).cast_unsigned();
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers() -> libc::user_regs_struct {
        // SAFETY: a struct of integers, for which all bits zero is a value.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        registers.cs = 0x33;
        registers.rsp = 0x7ffd_0000_1238;
        registers
    }

    #[test]
    fn the_argument_lies_below_the_red_zone_and_is_aligned() {
        let at = X86_64::scratch(&registers(), 16).unwrap();
        assert!(at + 16 <= 0x7ffd_0000_1238 - 128);
        assert_eq!(at % 16, 0);
        let mut none = registers();
        none.rsp = 100;
        assert_eq!(X86_64::scratch(&none, 16), None);
    }

    #[test]
    fn interrupted_calls_are_told_from_finished_ones() {
        let mut regs = registers();
        regs.orig_rax = 7;
        for restart in [512i64, 513, 514, 516] {
            regs.rax = (-restart).cast_unsigned();
            assert_eq!(
                X86_64::interrupted(&regs),
                Interrupted::Restarts { number: 7 }
            );
        }
        regs.rax = (-4i64).cast_unsigned();
        regs.rsi = 99;
        let eintr = Interrupted::Eintr {
            number: 7,
            second: 99,
        };
        assert_eq!(X86_64::interrupted(&regs), eintr);
        regs.rax = 3;
        assert_eq!(X86_64::interrupted(&regs), Interrupted::Nothing);
        regs.orig_rax = u64::MAX;
        regs.rax = (-4i64).cast_unsigned();
        assert_eq!(X86_64::interrupted(&regs), Interrupted::Nothing);
    }

    #[test]
    fn thirty_two_bit_code_is_not_native() {
        let mut regs = registers();
        assert!(X86_64::is_native(&regs));
        regs.cs = 0x23;
        assert!(!X86_64::is_native(&regs));
    }
}
