//! A vhost-net device opened and set up step by step in this very process, and
//! a tap to put behind it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use libc::{c_int, c_short, c_ulong, c_void};

const SET_FEATURES: c_ulong = 0x4008_af00;
const SET_OWNER: c_ulong = 0xaf01;
const RESET_OWNER: c_ulong = 0xaf02;
const SET_FORK_FROM_OWNER: c_ulong = 0x4001_af84;
const SET_MEM_TABLE: c_ulong = 0x4008_af03;
const SET_VRING_NUM: c_ulong = 0x4008_af10;
const SET_VRING_ADDR: c_ulong = 0x4028_af11;
const SET_BACKEND: c_ulong = 0x4008_af30;
const TUNSETIFF: c_ulong = 0x4004_54ca;
const TUNSETQUEUE: c_ulong = 0x4004_54d9;

const IFF_TAP: c_short = 0x0002;
const IFF_MULTI_QUEUE: c_short = 0x0100;
const IFF_ATTACH_QUEUE: c_short = 0x0200;
const IFF_DETACH_QUEUE: c_short = 0x0400;
const IFF_NO_PI: c_short = 0x1000;
const IFF_VNET_HDR: c_short = 0x4000;

const RING: u32 = 16;
/// Room for both rings, in bytes.
const AREA: usize = 64 * 1024;

#[repr(C)]
struct IndexAndValue(u32, u32);

#[repr(C)]
struct IndexAndFile(u32, c_int);

#[repr(C)]
struct RingAddress {
    index: u32,
    flags: u32,
    desc: u64,
    used: u64,
    avail: u64,
    log: u64,
}

#[repr(C)]
struct OneRegion {
    count: u32,
    padding: u32,
    guest: u64,
    size: u64,
    address: u64,
    flags: u64,
}

#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: c_short,
    rest: [u8; 22],
}

fn ioctl<T>(file: &impl AsRawFd, request: c_ulong, argument: &T) {
    // SAFETY: the argument is what each of the requests here reads.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request, std::ptr::from_ref(argument)) };
    assert!(
        result >= 0,
        "ioctl {request:#x}: {}",
        io::Error::last_os_error()
    );
}

/// An open /dev/vhost-net.
pub(crate) struct Device {
    file: File,
    area: *mut c_void,
}

impl Device {
    /// Opens it; that is all.
    pub(crate) fn open() -> Self {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/vhost-net")
            .unwrap();
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let area = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                AREA,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert!(area != libc::MAP_FAILED);
        Self { file, area }
    }

    /// Its descriptor in this process.
    pub(crate) fn fd(&self) -> u64 {
        u64::try_from(self.file.as_raw_fd()).unwrap()
    }

    /// A second descriptor, which a process started from here inherits.
    pub(crate) fn inherited(&self) -> OwnedFd {
        use std::os::fd::FromRawFd;
        // SAFETY: a new descriptor, which nobody else owns.
        unsafe { OwnedFd::from_raw_fd(libc::dup(self.file.as_raw_fd())) }
    }

    /// Makes this process its owner.
    pub(crate) fn own(&self) {
        ioctl(&self.file, SET_OWNER, &());
    }

    /// Asks for a kernel thread as worker, before it is owned. Where the kernel
    /// knows no such request, it gives whatever it gives.
    pub(crate) fn ask_for_a_kthread(&self) {
        let kthread = 0u8;
        // SAFETY: the request reads one byte.
        unsafe {
            libc::ioctl(
                self.file.as_raw_fd(),
                SET_FORK_FROM_OWNER,
                &raw const kthread,
            )
        };
    }

    /// Gives ownership up.
    pub(crate) fn disown(&self) {
        ioctl(&self.file, RESET_OWNER, &());
    }

    /// Sets both rings up; the device has to be owned.
    pub(crate) fn set_up(&self) {
        let base = self.area as u64;
        ioctl(&self.file, SET_FEATURES, &(1u64 << 32));
        let memory = OneRegion {
            count: 1,
            padding: 0,
            guest: 0,
            size: AREA as u64,
            address: base,
            flags: 0,
        };
        ioctl(&self.file, SET_MEM_TABLE, &memory);
        for index in [0, 1] {
            ioctl(&self.file, SET_VRING_NUM, &IndexAndValue(index, RING));
            let at = base + u64::from(index) * 16 * 1024;
            let address = RingAddress {
                index,
                flags: 0,
                desc: at,
                avail: at + 4096,
                used: at + 8192,
                log: 0,
            };
            ioctl(&self.file, SET_VRING_ADDR, &address);
        }
    }

    /// Puts something behind both rings, or with -1 nothing.
    pub(crate) fn backend(&self, fd: RawFd) {
        for index in [0, 1] {
            ioctl(&self.file, SET_BACKEND, &IndexAndFile(index, fd));
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: mapped by us. The device may outlive the mapping: it then
        // finds no rings, and nothing runs.
        unsafe { libc::munmap(self.area, AREA) };
    }
}

/// One queue of a tap, which goes with its last queue.
pub(crate) struct Queue(File);

impl Queue {
    /// Opens a queue of the tap `name`, which is made if it is not there.
    pub(crate) fn open(name: &str, multi_queue: bool) -> Self {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/net/tun")
            .unwrap();
        let queue = Self(file);
        let more = if multi_queue { IFF_MULTI_QUEUE } else { 0 };
        queue.request(TUNSETIFF, name, IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | more);
        queue
    }

    /// Turns the queue off or on.
    pub(crate) fn enable(&self, on: bool) {
        let flag = if on {
            IFF_ATTACH_QUEUE
        } else {
            IFF_DETACH_QUEUE
        };
        self.request(TUNSETQUEUE, "", flag);
    }

    /// Its descriptor.
    pub(crate) fn fd(&self) -> c_int {
        self.0.as_raw_fd()
    }

    fn request(&self, request: c_ulong, name: &str, flags: c_short) {
        let mut argument = InterfaceRequest {
            name: [0; 16],
            flags,
            rest: [0; 22],
        };
        argument.name[..name.len()].copy_from_slice(name.as_bytes());
        ioctl(&self.0, request, &argument);
    }
}
