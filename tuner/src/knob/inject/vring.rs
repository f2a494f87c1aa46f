//! The ioctls this module exists for: a vring's busyloop timeout.

use super::Call;

/// `_IOW(0xAF, 0x23, struct vhost_vring_state)` of linux/vhost.h.
pub const VHOST_SET_VRING_BUSYLOOP_TIMEOUT: u64 = 0x4008_af23;
/// `_IOW(0xAF, 0x24, struct vhost_vring_state)`; it writes the answer all the
/// same.
pub const VHOST_GET_VRING_BUSYLOOP_TIMEOUT: u64 = 0x4008_af24;

/// Sets the busyloop timeout of ring `index` (0: receive, 1: transmit, as the
/// guest sees it) on descriptor `fd` of the target, in the kernel's unit of
/// 1.024 µs. With `previous` a later failure in the same batch sets that again.
///
/// The kernel takes any value and has no upper bound; callers must have one.
/// The call waits for the ring's mutex, so for a spin in progress.
pub fn set_busyloop(fd: i32, index: u32, timeout: u32, previous: Option<u32>) -> Call {
    let call = Call::new(fd, VHOST_SET_VRING_BUSYLOOP_TIMEOUT, &state(index, timeout));
    match previous {
        Some(previous) => call.undone_by(&state(index, previous)),
        None => call,
    }
}

/// Reads it back, in the same unit; see [`busyloop_of`]. From inside the owner
/// this is harmless, unlike from outside.
pub fn get_busyloop(fd: i32, index: u32) -> Call {
    Call::new(fd, VHOST_GET_VRING_BUSYLOOP_TIMEOUT, &state(index, 0))
}

/// The timeout in the argument that a [`get_busyloop`] came back with.
pub fn busyloop_of(argument: &[u8]) -> Option<u32> {
    let number = argument.get(4..8)?.try_into().ok()?;
    Some(u32::from_ne_bytes(number))
}

/// `struct vhost_vring_state`.
fn state(index: u32, number: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&index.to_ne_bytes());
    bytes[4..].copy_from_slice(&number.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_state_is_index_then_number() {
        let call = set_busyloop(9, 1, 50, Some(7));
        let bytes = |index: u8, number: u8| {
            super::super::Argument::Bytes(vec![index, 0, 0, 0, number, 0, 0, 0])
        };
        assert_eq!(call.argument, bytes(1, 50));
        assert_eq!(call.undo, Some(bytes(1, 7)));
        assert_eq!(busyloop_of(&[1, 0, 0, 0, 50, 0, 0, 0]), Some(50));
        assert_eq!(busyloop_of(&[1]), None);
    }
}
