//! Bad input to the ioctls: the right errno, and nothing changed.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use tuner_common::module::{Counters, Knobs, VNT_COUNTERS, VNT_KNOBS, set};

use super::Module;

fn open() -> File {
    let mut options = std::fs::OpenOptions::new();
    options
        .read(true)
        .write(true)
        .open("/dev/vhost-net")
        .unwrap()
}

/// The errno of an ioctl with this address for its argument; 0 for none.
fn errno(fd: i32, command: u64, address: usize) -> i32 {
    // SAFETY: the kernel checks the address; where it is one of ours, the
    // caller holds what it points to, which is as large as the command says.
    if unsafe { libc::ioctl(fd, command as libc::Ioctl, address) } == 0 {
        return 0;
    }
    io::Error::last_os_error().raw_os_error().unwrap()
}

fn ask<T>(file: &File, command: u64, value: &mut T) -> i32 {
    errno(file.as_raw_fd(), command, std::ptr::from_mut(value).addr())
}

fn knobs(file: &File) -> Knobs {
    let mut knobs = Knobs::request();
    assert_eq!(ask(file, VNT_KNOBS, &mut knobs), 0);
    knobs
}

/// A device with a value in everything.
fn device() -> (File, Knobs) {
    let file = open();
    let mut knobs = Knobs {
        set: set::ALL,
        busyloop: [11, 22],
        tx_batched: 7,
        poll_peer: 0,
        ..Knobs::request()
    };
    assert_eq!(ask(&file, VNT_KNOBS, &mut knobs), 0);
    (file, knobs_of(knobs))
}

fn knobs_of(mut knobs: Knobs) -> Knobs {
    knobs.set = 0;
    knobs
}

const CHANGE: Knobs = Knobs {
    set: set::ALL,
    busyloop: [1, 2],
    tx_batched: 3,
    poll_peer: 1,
    ..Knobs::request()
};

#[test]
fn what_is_set_is_read_back() {
    let _module = Module::replacing();
    let (file, set) = device();
    let now = knobs(&file);
    assert_eq!(now, set);
    assert_eq!((now.tx_batched_now, now.poll_peer_now), (7, 0));
    // One at a time leaves the others alone.
    let mut one = Knobs {
        set: set::BUSYLOOP_TX,
        busyloop: [99, 33],
        ..Knobs::request()
    };
    assert_eq!(ask(&file, VNT_KNOBS, &mut one), 0);
    assert_eq!(knobs(&file).busyloop, [11, 33]);
    assert_eq!(knobs(&file).tx_batched, 7);
}

#[test]
fn bad_input_is_refused_and_changes_nothing() {
    for module in [Module::replacing as fn() -> Module, Module::livepatching] {
        let _module = module();
        let (file, before) = device();
        let larger = |command: u64| command + (8 << 16);
        for (mut change, command, want) in [
            (Knobs { size: 39, ..CHANGE }, VNT_KNOBS, libc::EINVAL),
            (Knobs { size: 0, ..CHANGE }, VNT_KNOBS, libc::EINVAL),
            (
                Knobs {
                    version: 0,
                    ..CHANGE
                },
                VNT_KNOBS,
                libc::EOPNOTSUPP,
            ),
            (
                Knobs {
                    version: 2,
                    ..CHANGE
                },
                VNT_KNOBS,
                libc::EOPNOTSUPP,
            ),
            (
                Knobs {
                    set: 0x10,
                    ..CHANGE
                },
                VNT_KNOBS,
                libc::EINVAL,
            ),
            (Knobs { set: !0, ..CHANGE }, VNT_KNOBS, libc::EINVAL),
            (
                Knobs {
                    tx_batched: 65,
                    ..CHANGE
                },
                VNT_KNOBS,
                libc::EINVAL,
            ),
            (
                Knobs {
                    poll_peer: 3,
                    ..CHANGE
                },
                VNT_KNOBS,
                libc::EINVAL,
            ),
            (CHANGE, larger(VNT_KNOBS), libc::EINVAL),
        ] {
            let told = format!("{change:?} {command:x}");
            assert_eq!(ask(&file, command, &mut change), want, "{told}");
            assert_eq!(knobs(&file), before, "{told}");
        }
        for (index, zero, size, version, want) in [
            (2, 0, 176, 1, libc::ENOBUFS),
            (u32::MAX, 0, 176, 1, libc::ENOBUFS),
            (0, 1, 176, 1, libc::EINVAL),
            (0, 0, 168, 1, libc::EINVAL),
            (0, 0, 176, 9, libc::EOPNOTSUPP),
            (1, 0, 176, 1, 0),
        ] {
            let mut counters = Counters {
                index,
                zero,
                size,
                version,
                ..Counters::default()
            };
            assert_eq!(ask(&file, VNT_COUNTERS, &mut counters), want);
        }
        for address in [0, 8, usize::MAX - 7] {
            assert_eq!(errno(file.as_raw_fd(), VNT_KNOBS, address), libc::EFAULT);
            assert_eq!(errno(file.as_raw_fd(), VNT_COUNTERS, address), libc::EFAULT);
        }
        assert_eq!(knobs(&file), before);
        let closed = {
            let file = open();
            file.as_raw_fd()
        };
        assert_eq!(errno(closed, VNT_KNOBS, 0), libc::EBADF);
    }
}

/// An answer that cannot be written must not leave the change behind.
#[test]
fn memory_that_can_only_be_read_changes_nothing() {
    let _module = Module::replacing();
    let (file, before) = device();
    // SAFETY: a fresh private mapping.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(page, libc::MAP_FAILED);
    // SAFETY: the page is ours, aligned and large enough.
    unsafe { page.cast::<Knobs>().write(CHANGE) };
    // SAFETY: nobody else uses the page.
    assert_eq!(unsafe { libc::mprotect(page, 4096, libc::PROT_READ) }, 0);
    assert_eq!(
        errno(file.as_raw_fd(), VNT_KNOBS, page.addr()),
        libc::EFAULT
    );
    assert_eq!(knobs(&file), before);
}

#[test]
fn without_the_capability_nothing_is_told_or_changed() {
    let _module = Module::replacing();
    let (file, before) = device();
    let errnos = std::thread::scope(|scope| {
        let strip = || {
            drop_net_admin();
            let mut change = CHANGE;
            let mut counters = Counters::request(0);
            [
                ask(&file, VNT_KNOBS, &mut change),
                ask(&file, VNT_KNOBS, &mut Knobs::request()),
                ask(&file, VNT_COUNTERS, &mut counters),
            ]
        };
        scope.spawn(strip).join().unwrap()
    });
    assert_eq!(errnos, [libc::EPERM; 3]);
    assert_eq!(knobs(&file), before);
}

/// Takes CAP_NET_ADMIN out of this thread's effective set.
fn drop_net_admin() {
    const VERSION_3: u32 = 0x2008_0522;
    const NET_ADMIN: u32 = 12;
    let header = [VERSION_3, 0];
    // Effective, permitted and inheritable, for the lower 32 and the upper.
    let mut data = [0u32; 6];
    // SAFETY: both are as large as version 3 asks for.
    let got = unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), data.as_mut_ptr()) };
    assert_eq!(got, 0);
    data[0] &= !(1 << NET_ADMIN);
    // SAFETY: as above.
    let set = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) };
    assert_eq!(set, 0);
}

/// A worker that spins for its longest holds its ring's lock meanwhile: the
/// ioctls do not wait for it.
#[test]
fn a_spinning_worker_is_not_waited_for() {
    let _module = Module::replacing();
    let mut lab = crate::support::Lab::open(&[
        "--mode",
        "echo",
        "--packets",
        "200",
        "--busyloop-rx",
        "2000000",
        "--busyloop-tx",
        "0",
    ]);
    let fd = lab.descriptors()[0];
    lab.run();
    // Its receive ring now spins for two seconds at a time.
    let handle = super::handle(&lab.pid(), fd);
    let began = std::time::Instant::now();
    let runs = handle.counters(0).unwrap().runs;
    let mut asked = 0;
    while began.elapsed() < std::time::Duration::from_millis(500) {
        handle.knobs().unwrap();
        asked += 1;
    }
    // More calls than the ring has ended runs meanwhile: they went on inside
    // one.
    let ended = handle.counters(0).unwrap().runs - runs;
    assert!(asked > ended + 10, "{asked} calls, {ended} runs");
    drop(handle);
    lab.close();
}
