//! The system calls, each checked for returning as it should.
//!
//! All are made directly, without a library that would try again on EINTR.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use vmm_sys_util::eventfd::EventFd;

use super::Call;
use super::masked::{self, Mailbox};
use super::ring::Ring;
use crate::system::now_ns;

const NAP_NS: u64 = 5_000_000;
/// Much longer than a sitter is ever left alone.
const RECV_TIMEOUT: Duration = Duration::from_secs(30);

/// Number of the calling thread.
pub(super) fn thread_id() -> u64 {
    // SAFETY: gettid takes nothing and cannot fail.
    let tid = unsafe { libc::gettid() };
    u64::from(tid.unsigned_abs())
}

/// A place to sit: a system call and the means to wake it.
#[derive(Debug)]
pub(super) enum Seat {
    Poll(EventFd),
    Read(EventFd),
    Nanosleep,
    Futex(AtomicU32),
    Epoll(OwnedFd, EventFd),
    Recv(UnixDatagram, UnixDatagram),
    Ppoll(EventFd),
    Pselect(EventFd),
    IoUring(Box<Ring>),
    Signal(Mailbox),
}

/// errno + 1 of a call that failed, 1 of one that returned early.
pub(super) type Failure = i32;
pub(super) const EARLY: Failure = 1;

impl Seat {
    pub(super) fn new(call: Call) -> io::Result<Self> {
        Ok(match call {
            Call::Poll => Self::Poll(EventFd::new(0)?),
            Call::Read => Self::Read(EventFd::new(0)?),
            Call::Nanosleep => Self::Nanosleep,
            Call::Futex => Self::Futex(AtomicU32::new(0)),
            Call::Epoll => {
                let event = EventFd::new(0)?;
                Self::Epoll(epoll_on(&event)?, event)
            }
            Call::RecvTimeout => {
                let (here, there) = UnixDatagram::pair()?;
                here.set_read_timeout(Some(RECV_TIMEOUT))?;
                there.set_nonblocking(true)?;
                Self::Recv(here, there)
            }
            Call::Ppoll => Self::Ppoll(EventFd::new(0)?),
            Call::Pselect => Self::Pselect(EventFd::new(0)?),
            Call::IoUring => Self::IoUring(Box::new(Ring::new()?)),
            Call::Sigtimedwait => Self::Signal(Mailbox::default()),
        })
    }

    /// Makes the calling thread the one that sits here.
    pub(super) fn take(&self) {
        masked::block_letters();
        if let Self::Signal(mailbox) = self {
            mailbox.take();
        }
    }

    /// Makes the call once.
    pub(super) fn sit(&self) -> Result<(), Failure> {
        match self {
            Self::Poll(event) => {
                let mut polled = libc::pollfd {
                    fd: event.as_raw_fd(),
                    events: libc::POLLIN,
                    revents: 0,
                };
                // SAFETY: one entry, which lives across the call.
                expect(1, i64::from(unsafe { libc::poll(&raw mut polled, 1, -1) }))?;
                drain(event)
            }
            Self::Read(event) => drain(event),
            Self::Nanosleep => nap(),
            Self::Futex(word) => wait_for_change(word),
            Self::Epoll(epoll, event) => {
                let mut ready = libc::epoll_event { events: 0, u64: 0 };
                // SAFETY: room for one event, which lives across the call.
                let count = unsafe { libc::epoll_wait(epoll.as_raw_fd(), &raw mut ready, 1, -1) };
                expect(1, i64::from(count))?;
                drain(event)
            }
            Self::Recv(here, _) => {
                let mut byte = 0u8;
                // SAFETY: room for one byte, which lives across the call.
                let count = unsafe { libc::recv(here.as_raw_fd(), (&raw mut byte).cast(), 1, 0) };
                expect(1, count as i64)
            }
            Self::Ppoll(event) => {
                masked::ppoll(event)?;
                drain(event)
            }
            Self::Pselect(event) => {
                masked::pselect(event)?;
                drain(event)
            }
            Self::IoUring(ring) => ring.sit(),
            Self::Signal(mailbox) => mailbox.sit(),
        }
    }

    /// Makes a call in progress return.
    pub(super) fn wake(&self) {
        match self {
            Self::Poll(event)
            | Self::Read(event)
            | Self::Epoll(_, event)
            | Self::Ppoll(event)
            | Self::Pselect(event) => {
                // Can only fail by overflow, when nobody reads any more.
                let _ = event.write(1);
            }
            Self::Nanosleep => {}
            Self::Futex(word) => {
                word.fetch_add(1, Ordering::SeqCst);
                // SAFETY: the word is alive; waking reads nothing else.
                unsafe {
                    libc::syscall(
                        libc::SYS_futex,
                        word.as_ptr(),
                        libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                        1,
                    );
                }
            }
            Self::Recv(_, there) => {
                // A full queue wakes as well as one more message.
                let _ = there.send(&[0]);
            }
            Self::IoUring(ring) => ring.wake(),
            Self::Signal(mailbox) => mailbox.wake(),
        }
    }
}

pub(super) fn expect(wanted: i64, result: i64) -> Result<(), Failure> {
    if result == wanted {
        return Ok(());
    }
    if result < 0 {
        let errno = io::Error::last_os_error().raw_os_error();
        return Err(errno.unwrap_or(0) + 1);
    }
    Err(EARLY)
}

pub(super) fn drain(event: &EventFd) -> Result<(), Failure> {
    let mut value = 0u64;
    // SAFETY: room for eight bytes, which live across the call.
    let count = unsafe { libc::read(event.as_raw_fd(), (&raw mut value).cast(), 8) };
    expect(8, count as i64)
}

fn nap() -> Result<(), Failure> {
    let length = libc::timespec {
        tv_sec: 0,
        tv_nsec: NAP_NS as libc::c_long,
    };
    let before = now_ns();
    // SAFETY: reads a local; a null second argument asks for no rest.
    let result = unsafe { libc::nanosleep(&raw const length, std::ptr::null_mut()) };
    expect(0, i64::from(result))?;
    if now_ns() - before < NAP_NS {
        return Err(EARLY);
    }
    Ok(())
}

fn wait_for_change(word: &AtomicU32) -> Result<(), Failure> {
    let before = word.load(Ordering::SeqCst);
    // SAFETY: the word is alive; a null timeout means to wait for ever.
    let result = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            before,
            std::ptr::null::<libc::timespec>(),
        )
    };
    if result < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN) {
        // It changed before we sat down, which is no fault of the call.
        return Ok(());
    }
    expect(0, result)?;
    if word.load(Ordering::SeqCst) == before {
        return Err(EARLY);
    }
    Ok(())
}

fn epoll_on(event: &EventFd) -> io::Result<OwnedFd> {
    // SAFETY: takes a plain flag.
    let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    let epoll = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut wanted = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: 0,
    };
    // SAFETY: both descriptors are open; the event is read during the call.
    let result = unsafe {
        libc::epoll_ctl(
            epoll.as_raw_fd(),
            libc::EPOLL_CTL_ADD,
            event.as_raw_fd(),
            &raw mut wanted,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(epoll)
}
