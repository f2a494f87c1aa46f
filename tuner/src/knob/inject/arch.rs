//! The seam between what every processor has and what one has.

/// A system call another call of ours broke into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// None: user mode, or a call that was just returning by itself.
    Nothing,
    /// One that the kernel starts again by itself once the thread is let go.
    Restarts {
        /// Its number.
        number: i64,
    },
    /// One that returned `EINTR`, which the program would see.
    Eintr {
        /// Its number.
        number: i64,
        /// Its second argument, the request of an ioctl.
        second: u64,
    },
}

/// How one processor runs a system call in a stopped thread: everything about
/// registers, nothing about ptrace.
///
/// An implementation for another processor is this trait and a table of call
/// numbers; the choreography in `session.rs` does not change.
pub trait RemoteIoctl {
    /// The general registers as `PTRACE_GETREGSET(NT_PRSTATUS)` gives them.
    type Registers: Copy;

    /// The instruction that enters the kernel, to look for in the vDSO.
    const INSTRUCTION: &'static [u8];

    /// Whether the thread runs this processor's native code, so that native
    /// call numbers apply.
    fn is_native(registers: &Self::Registers) -> bool;

    /// Where the next instruction is.
    fn program_counter(registers: &Self::Registers) -> u64;

    /// Whether the thread was stopped in user mode rather than on its way out
    /// of a system call.
    fn in_user_mode(registers: &Self::Registers) -> bool;

    /// Address of `length` bytes that neither the code the thread was stopped
    /// in nor the ABI has a claim to; `None` when there is no such place.
    fn scratch(registers: &Self::Registers, length: usize) -> Option<u64>;

    /// `registers`, changed so that the instruction at `instruction` performs
    /// `ioctl(fd, request, argument)`.
    fn aim(
        registers: &Self::Registers,
        instruction: u64,
        fd: i32,
        request: u64,
        argument: u64,
    ) -> Self::Registers;

    /// Changes registers at a syscall-entry stop so that no call is made.
    fn skip(registers: &Self::Registers) -> Self::Registers;

    /// Number of `ioctl`.
    fn ioctl_number() -> i64;

    /// The result at a syscall-exit stop: negative errno, or the value.
    fn result(registers: &Self::Registers) -> i64;

    /// What the stop broke into.
    fn interrupted(registers: &Self::Registers) -> Interrupted;

    /// `registers`, with `EINTR` turned into the kernel's own mark for "start
    /// again unless a signal handler runs" (`ERESTARTNOHAND`).
    fn start_again(registers: &Self::Registers) -> Self::Registers;
}
