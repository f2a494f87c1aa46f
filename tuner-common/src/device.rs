//! What the BPF iterator writes for each open `/dev/vhost-net`.

/// One file descriptor that refers to a vhost-net device.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Kernel address of the `struct vhost_net`.
    pub net: u64,
    /// Process that holds the descriptor, by its number in the pid namespace of
    /// whoever reads.
    pub pid: u32,
    /// The descriptor.
    pub fd: u32,
    /// 1 if this process owns the device (its address space is the one the
    /// rings lie in), so that it may change the rings.
    pub owner: u32,
    /// 1 if the device has an owner at all.
    pub owned: u32,
    /// RX and TX.
    pub rings: [Ring; 2],
}

/// One ring of a device.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ring {
    /// Busyloop timeout in the kernel's unit of 1.024 µs.
    pub timeout: u32,
    /// Size of the ring in descriptors.
    pub size: u32,
    /// Thread that works for it, numbered likewise; 0 if there is none yet, or
    /// none that is visible there.
    pub worker_tid: u32,
    /// 1 if a backend is attached.
    pub backend: u32,
    /// Kind of the backend, of [`backend`].
    pub kind: u32,
    /// Interface index of the backend's net device, 0 if unknown.
    pub ifindex: u32,
    /// Inode number of the network namespace that it is an index in.
    pub netns: u32,
    /// 1 if the net device gives packets to this queue: a queue of a multi-queue
    /// tap may be turned off.
    pub enabled: u32,
    /// Name of the net device, padded with zeros.
    pub ifname: [u8; 16],
}

/// Kinds of backend.
pub mod backend {
    /// None attached.
    pub const NONE: u32 = 0;
    /// A queue of a tun/tap device.
    pub const TUN: u32 = 1;
    /// A queue of a macvtap or ipvtap device.
    pub const TAP: u32 = 2;
    /// Something else: a raw packet socket.
    pub const OTHER: u32 = 3;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_no_padding() {
        assert_eq!(size_of::<Ring>(), 48);
        assert_eq!(size_of::<Device>(), 24 + 2 * 48);
    }
}
