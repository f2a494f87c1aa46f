//! What user space and the kernel side agree on: the layout of map values, the
//! offsets found in BTF, the histogram's bucket arithmetic, and the ioctls of
//! the module.
//!
//! Everything here is `#[repr(C)]` and `no_std`; nothing depends on a kernel
//! version. Times are nanoseconds of `CLOCK_MONOTONIC` (`bpf_ktime_get_ns`)
//! unless a name says otherwise.
#![no_std]

pub mod device;
pub mod hist;
pub mod layout;
pub mod module;
pub mod queue;
