//! Which system calls survive an interruption, and how.
//!
//! A tracer's interruption is like a signal without a handler. signal(7) lists
//! what follows: most calls start again by themselves; some return `EINTR` even
//! though no handler ran.

/// `KVM_RUN` of linux/kvm.h: `_IO(0xAE, 0x80)`.
const KVM_RUN: u64 = 0xae80;

/// The C library's binding lacks this number on x86-64.
#[cfg(target_arch = "x86_64")]
const IO_PGETEVENTS: i64 = 333;

/// What becomes of an interrupted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behaviour {
    /// An idle wait without a descriptor; starts again by itself.
    Idle,
    /// Starts again by itself.
    Restarts,
    /// Starts again, or returns `EINTR`, by what its descriptor is.
    ByFile,
    /// May return `EINTR`; issuing it again is right, though a relative time
    /// limit then counts from the beginning.
    Eintr,
    /// An ioctl: by its request.
    Ioctl,
    /// Not known: better not interrupted, and never issued again by us.
    Unknown,
}

/// Behaviour of call `number`.
pub(super) fn behaviour(number: i64) -> Behaviour {
    match number {
        libc::SYS_futex
        | libc::SYS_futex_waitv
        | libc::SYS_nanosleep
        | libc::SYS_clock_nanosleep
        | libc::SYS_wait4
        | libc::SYS_waitid
        | libc::SYS_rt_sigsuspend
        | libc::SYS_restart_syscall => Behaviour::Idle,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_pause => Behaviour::Idle,
        libc::SYS_ppoll
        | libc::SYS_pselect6
        | libc::SYS_flock
        | libc::SYS_msgrcv
        | libc::SYS_msgsnd => Behaviour::Restarts,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll | libc::SYS_select => Behaviour::Restarts,
        libc::SYS_read | libc::SYS_readv | libc::SYS_write | libc::SYS_writev => Behaviour::ByFile,
        libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_recvmmsg
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_sendmmsg
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_connect
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2
        | libc::SYS_semop
        | libc::SYS_semtimedop
        | libc::SYS_rt_sigtimedwait
        | libc::SYS_io_getevents
        | IO_PGETEVENTS
        | libc::SYS_io_uring_enter => Behaviour::Eintr,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => Behaviour::Eintr,
        libc::SYS_ioctl => Behaviour::Ioctl,
        _ => Behaviour::Unknown,
    }
}

/// Whether a call that returned `EINTR` may be issued again unseen.
///
/// Only where `EINTR` means that nothing was done. Not `close`, above all: it
/// has closed the descriptor by then, and another try could hit somebody
/// else's.
pub(super) fn may_start_again(number: i64, second: u64) -> bool {
    match behaviour(number) {
        Behaviour::Idle | Behaviour::Restarts | Behaviour::ByFile | Behaviour::Eintr => true,
        Behaviour::Ioctl => second == KVM_RUN,
        Behaviour::Unknown => false,
    }
}

/// Whether reads and writes on a file, by its link in `/proc/PID/fd`, start
/// again by themselves. Sockets do not when they carry a time limit
/// (`SO_RCVTIMEO`), which cannot be seen from outside; inotify did not always.
pub(super) fn file_restarts(link: &str) -> bool {
    !link.starts_with("socket:") && !link.contains("notify")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_taken_effect_is_never_issued_again() {
        for number in [libc::SYS_close, libc::SYS_sendfile, libc::SYS_splice, 9999] {
            assert!(!may_start_again(number, 0));
        }
        assert!(may_start_again(libc::SYS_ioctl, KVM_RUN));
        assert!(!may_start_again(libc::SYS_ioctl, 0x5401));
        assert!(may_start_again(libc::SYS_epoll_pwait, 0));
    }

    #[test]
    fn sockets_may_not_restart_but_pipes_do() {
        assert!(!file_restarts("socket:[123]"));
        assert!(!file_restarts("anon_inode:inotify"));
        assert!(file_restarts("pipe:[5]"));
        assert!(file_restarts("anon_inode:[eventfd]"));
    }
}
