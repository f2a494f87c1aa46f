//! A page that comes when we say so, by userfaultfd(2).

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use crate::system::wait_readable;

// linux/userfaultfd.h.
const UFFD_API: u64 = 0xaa;
const UFFD_EVENT_PAGEFAULT: u8 = 0x12;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_COPY: libc::c_ulong = 0xc028_aa03;

/// `struct uffdio_api`.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
struct Register {
    start: u64,
    length: u64,
    mode: u64,
    ioctls: u64,
}

/// `struct uffdio_copy`.
#[repr(C)]
struct Copy {
    to: u64,
    from: u64,
    length: u64,
    mode: u64,
    copied: i64,
}

/// Size of `struct uffd_msg`; the event is its first byte.
const MESSAGE: usize = 32;

/// Two pages, of which the second is not there before [`Pages::fill`].
#[derive(Debug)]
pub struct Pages {
    base: NonNull<u8>,
    size: usize,
    faults: File,
}

// SAFETY: the mapping belongs to this value alone, and nothing here gives out
// references into it.
unsafe impl Send for Pages {}
// SAFETY: as above; the first page is written in `before`, which the one caller
// uses before it reads, and the second by the kernel only.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps them.
    ///
    /// # Errors
    /// What mmap(2), userfaultfd(2) or its ioctls failed with. Faults inside
    /// system calls take CAP_SYS_PTRACE or `vm.unprivileged_userfaultfd`.
    pub fn new() -> io::Result<Self> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
        // SAFETY: takes plain flags.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let fd = i32::try_from(fd).unwrap_or(-1);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let faults = unsafe { File::from_raw_fd(fd) };
        // SAFETY: takes a plain number. It cannot fail for this name.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        // SAFETY: a fresh mapping somewhere.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                2 * size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(ErrorKind::AddrNotAvailable)?;
        let pages = Self { base, size, faults };
        let mut api = Api {
            api: UFFD_API,
            features: 0,
            ioctls: 0,
        };
        // SAFETY: a structure of the size the request expects.
        unsafe { pages.ask(UFFDIO_API, &mut api)? };
        let mut register = Register {
            start: pages.second(),
            length: size as u64,
            mode: UFFDIO_REGISTER_MODE_MISSING,
            ioctls: 0,
        };
        // SAFETY: as above; the range is the second page, which is ours.
        unsafe { pages.ask(UFFDIO_REGISTER, &mut register)? };
        Ok(pages)
    }

    /// Writes four bytes to the end of the first page, and returns their
    /// address: what follows them is on the second.
    pub fn before(&self, bytes: [u8; 4]) -> *const u8 {
        // SAFETY: within the first page, which is mapped and writable.
        unsafe {
            let at = self.base.as_ptr().add(self.size - bytes.len());
            at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            at
        }
    }

    /// Waits until somebody waits for the second page; false if nobody did
    /// within `limit`.
    ///
    /// # Errors
    /// What poll(2) or read(2) failed with.
    pub fn wait_for_reader(&self, limit: Duration) -> io::Result<bool> {
        let end = Instant::now() + limit;
        let mut message = [0; MESSAGE];
        loop {
            match (&self.faults).read(&mut message) {
                Ok(_) if message[0] == UFFD_EVENT_PAGEFAULT => return Ok(true),
                Ok(_) => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            wait_readable(&[self.faults.as_raw_fd()], &[], Some(left))?;
        }
    }

    /// Lets the second page come, with these bytes at its beginning.
    ///
    /// # Errors
    /// What the ioctl failed with.
    pub fn fill(&self, beginning: &[u8]) -> io::Result<()> {
        let mut page = beginning.to_vec();
        page.resize(self.size, 0);
        let mut copy = Copy {
            to: self.second(),
            from: page.as_ptr().addr() as u64,
            length: self.size as u64,
            mode: 0,
            copied: 0,
        };
        // SAFETY: a structure of the size the request expects, from a page of
        // bytes to a page of ours that is not there yet.
        unsafe { self.ask(UFFDIO_COPY, &mut copy) }
    }

    fn second(&self) -> u64 {
        (self.base.as_ptr().addr() + self.size) as u64
    }

    /// # Safety
    ///
    /// `argument` must be what `request` expects.
    unsafe fn ask<T>(&self, request: libc::c_ulong, argument: &mut T) -> io::Result<()> {
        // SAFETY: upheld by the caller.
        let result = unsafe { libc::ioctl(self.faults.as_raw_fd(), request, &raw mut *argument) };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: nobody uses the mapping any more: it is only borrowed from
        // this value.
        unsafe {
            libc::munmap(self.base.as_ptr().cast(), 2 * self.size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    /// A page held back from a system call; none where that is not allowed.
    fn pages() -> Option<Arc<Pages>> {
        match Pages::new() {
            Ok(pages) => Some(Arc::new(pages)),
            Err(e) => {
                println!("userfaultfd: {e}; not tested");
                None
            }
        }
    }

    #[test]
    fn a_system_call_waits_for_the_page_and_then_finds_what_came() {
        let Some(pages) = pages() else { return };
        let mut pipe = [0; 2];
        // SAFETY: room for two descriptors.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        // SAFETY: both are new and nobody else's.
        let [mut reader, writer] = pipe.map(|fd| unsafe { File::from_raw_fd(fd) });
        let thread = thread::spawn({
            let pages = Arc::clone(&pages);
            move || {
                let from = pages.before(*b"held");
                // SAFETY: eight bytes, four of them on the second page.
                unsafe { libc::write(writer.as_raw_fd(), from.cast(), 8) }
            }
        });
        assert!(pages.wait_for_reader(Duration::from_secs(20)).unwrap());
        assert!(!thread.is_finished());
        pages.fill(b"back").unwrap();
        assert_eq!(thread.join().unwrap(), 8);
        let mut bytes = [0; 8];
        reader.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"heldback");
    }

    #[test]
    fn without_a_reader_the_wait_ends() {
        let Some(pages) = pages() else { return };
        assert!(!pages.wait_for_reader(Duration::from_millis(10)).unwrap());
    }
}
