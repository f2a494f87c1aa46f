//! The eBPF programs: constant work per run, per hand-over and per sleep,
//! nothing per packet.
//!
//! Where things lie in this kernel is found by user space in BTF and stands in
//! [`layout`]. Every program is attached to a function of vhost or vhost_net
//! by user space; what each relies on in the kernel's source
//! (`drivers/vhost/net.c`, `vhost.c`) is said beside it.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

mod control;
mod counters;
mod devices;
mod flush;
mod kernel;
mod layout;
mod maps;
mod poll;
mod run;
mod wake;

/// Helpers such as `bpf_probe_read_kernel` are open to GPL programs only.
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 4] = *b"GPL\0";

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}
