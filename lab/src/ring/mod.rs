//! The driver's side of a virtio split ring: arithmetic and layout.
//!
//! [`DriverRing`] puts buffers in and takes used ones back; [`Area`] is the
//! memory it shares with vhost.

mod area;
mod driver;

pub use area::Area;
pub use driver::{DriverRing, Used};

use thiserror::Error;

/// What can be wrong with a ring.
#[derive(Debug, Error)]
pub enum RingError {
    /// The ring size is not a power of two between 2 and 32768.
    #[error("a ring of {0} descriptors is not possible: it takes a power of two from 2 to 32768")]
    Size(usize),
    /// Guest memory could not be mapped.
    #[error("cannot map {bytes} bytes of guest memory: {reason}")]
    Map {
        /// Size asked for, in bytes.
        bytes: usize,
        /// What the mapping code said.
        reason: String,
    },
    /// The device returned a descriptor that it does not hold.
    #[error("the device returned descriptor {0}, which it was not given")]
    ForeignHead(u32),
    /// The device moved its used index further than there were buffers.
    #[error("the device used {used} buffers, but holds {held}")]
    UsedTooMany {
        /// How far the used index moved.
        used: u16,
        /// Buffers the device held.
        held: u16,
    },
}

/// Says whether moving an index from `old` to `new` passes `event`, the
/// moment the other side wants to be told of (virtio 1.2, 2.7.7.1).
///
/// All three count modulo 2^16.
#[must_use]
pub const fn need_event(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

/// Where the parts of one ring lie in guest memory; offsets in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Number of descriptors.
    pub size: u16,
    /// Descriptor table.
    pub desc: usize,
    /// Available ring (driver to device).
    pub avail: usize,
    /// Used ring (device to driver).
    pub used: usize,
    /// First byte behind the ring.
    pub end: usize,
}

impl Layout {
    /// Lays a ring of `size` descriptors out from `start`.
    ///
    /// # Errors
    /// [`RingError::Size`] when `size` is no power of two in range.
    pub fn new(start: usize, size: usize) -> Result<Self, RingError> {
        let count = u16::try_from(size).map_err(|_| RingError::Size(size))?;
        if !(2..=32768).contains(&size) || !size.is_power_of_two() {
            return Err(RingError::Size(size));
        }
        // A page for each part: vhost needs only 16, 2 and 4 bytes of
        // alignment, but separate pages keep the two writers apart.
        let desc = start.next_multiple_of(4096);
        let avail = (desc + 16 * size).next_multiple_of(4096);
        let used = (avail + 4 + 2 * size + 2).next_multiple_of(4096);
        let end = used + 4 + 8 * size + 2;
        Ok(Self {
            size: count,
            desc,
            avail,
            used,
            end,
        })
    }

    /// Offset of descriptor `index`.
    #[must_use]
    pub const fn descriptor(&self, index: u16) -> usize {
        self.desc + 16 * index as usize
    }

    /// Offset of the slot in the available ring that running index `index`
    /// falls on.
    #[must_use]
    pub const fn avail_slot(&self, index: u16) -> usize {
        self.avail + 4 + 2 * self.slot(index)
    }

    /// Offset of the element in the used ring that running index `index`
    /// falls on.
    #[must_use]
    pub const fn used_slot(&self, index: u16) -> usize {
        self.used + 4 + 8 * self.slot(index)
    }

    /// Offset of `used_event`, by which the driver says when it wants an
    /// interrupt.
    #[must_use]
    pub const fn used_event(&self) -> usize {
        self.avail + 4 + 2 * self.size as usize
    }

    /// Offset of `avail_event`, by which the device says when it wants a
    /// kick.
    #[must_use]
    pub const fn avail_event(&self) -> usize {
        self.used + 4 + 8 * self.size as usize
    }

    const fn slot(&self, index: u16) -> usize {
        (index & (self.size - 1)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn event_is_due_exactly_when_the_index_passes_it() {
        assert!(need_event(5, 6, 5));
        assert!(!need_event(6, 6, 5));
        assert!(!need_event(4, 6, 5));
        assert!(need_event(65535, 0, 65535));
        assert!(need_event(0, 3, 65534));
        assert!(!need_event(0, 256, 256));
    }

    #[test]
    fn sizes_that_no_ring_can_have_are_refused() {
        for size in [0, 1, 3, 255, 65536, 100_000] {
            assert!(Layout::new(0, size).is_err(), "{size}");
        }
    }

    proptest! {
        /// Stepping one by one from old to new meets `event` or it does not.
        #[test]
        fn need_event_agrees_with_counting(old: u16, step in 0u16..2000, event: u16) {
            let new = old.wrapping_add(step);
            let met = (0..step).any(|i| old.wrapping_add(i) == event);
            prop_assert_eq!(need_event(event, new, old), met);
        }

        #[test]
        fn slots_stay_inside_and_repeat_after_size(index: u16, log in 1u32..=15, start in 0usize..100_000) {
            let size = 1usize << log;
            let layout = Layout::new(start, size).unwrap();
            let next = index.wrapping_add(layout.size);
            prop_assert_eq!(layout.avail_slot(index), layout.avail_slot(next));
            prop_assert_eq!(layout.used_slot(index), layout.used_slot(next));
            prop_assert!(layout.avail_slot(index) + 2 <= layout.used_event());
            prop_assert!(layout.used_slot(index) + 8 <= layout.avail_event());
            prop_assert!(layout.used_event() + 2 <= layout.used);
            prop_assert_eq!(layout.avail_event() + 2, layout.end);
            prop_assert_eq!(layout.desc % 16, 0);
        }
    }
}
