//! Reading kernel memory at offsets from BTF.

use core::arch::asm;
use core::ffi::c_void;

use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use aya_ebpf::programs::ProbeContext;

use crate::layout::at;

/// Reads a `T` at `base + offset`; zero where it cannot be read, which for
/// every use here means "no such thing".
///
/// The helper's result is not looked at: it clears what it could not read, and
/// a branch for each read would have the verifier walk every combination.
#[inline(always)]
pub(crate) fn read<T: Copy + Default>(base: u64, offset: u32) -> T {
    let mut value = T::default();
    // SAFETY: the helper checks the source address and fails rather than
    // faults; the destination is `value`, of exactly that size.
    unsafe {
        bpf_probe_read_kernel(
            core::ptr::from_mut(&mut value).cast::<c_void>(),
            size_of::<T>() as u32,
            base.wrapping_add(u64::from(offset)) as *const c_void,
        );
    }
    value
}

/// An argument of the probed function, by the offset of its register in
/// `struct pt_regs`; zero for an offset that carries none.
///
/// The verifier lets a program read its context at constant offsets only, so
/// each has its own instruction, kept from being merged with the others by
/// being written out.
#[inline(always)]
pub(crate) fn argument(ctx: &ProbeContext, offset: u32) -> u64 {
    let regs = ctx.as_ptr();
    macro_rules! at_offsets {
        ($($constant:literal)*) => {
            match offset {
                $($constant => {
                    let value: u64;
                    // SAFETY: reads the saved register at this offset of the
                    // context, which outlives the call.
                    unsafe {
                        asm!(
                            concat!("{0} = *(u64 *)({1} + ", $constant, ")"),
                            out(reg) value,
                            in(reg) regs,
                            options(pure, readonly, nostack),
                        );
                    }
                    value
                })*
                _ => 0,
            }
        };
    }
    // x86-64 passes at 112, 104, 96, 88, 72, 64; arm64 at 0 to 40.
    at_offsets!(112 104 96 88 72 64 0 8 16 24 32 40)
}

/// Offset in `struct vhost_net` of a direction's `vhost_virtqueue`.
#[inline(always)]
pub(crate) fn vq_offset(direction: u32) -> u32 {
    if direction == 0 {
        at!(net_vq[0])
    } else {
        at!(net_vq[1])
    }
}

/// Offset in `struct vhost_net` of a direction's socket poll.
#[inline(always)]
pub(crate) fn socket_poll_offset(direction: u32) -> u32 {
    if direction == 0 {
        at!(net_poll[0])
    } else {
        at!(net_poll[1])
    }
}

/// The ring's `last_avail_idx`: how many entries vhost has taken, modulo 2^16.
/// Only the worker moves it while the device runs.
#[inline(always)]
pub(crate) fn last_avail(net: u64, direction: u32) -> u32 {
    u32::from(read::<u16>(net, vq_offset(direction) + at!(vq_last_avail)))
}
