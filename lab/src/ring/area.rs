//! Memory shared with vhost.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

use super::RingError;

/// One mapped region of guest memory at guest address 0.
///
/// The kernel writes to it at any time, so nothing here hands out plain
/// references into it: words are atomics, and blocks are copied.
#[derive(Debug)]
pub struct Area {
    base: NonNull<u8>,
    len: usize,
    memory: Arc<GuestMemoryMmap<()>>,
}

// SAFETY: the mapping is owned by `memory`, which lives as long as the area,
// and all access goes through atomics or raw copies.
unsafe impl Send for Area {}
// SAFETY: as above; no method gives out a non-atomic reference.
unsafe impl Sync for Area {}

impl Area {
    /// Maps `len` bytes of zeroed memory.
    ///
    /// # Errors
    /// [`RingError::Map`] when the system has not that much.
    pub fn new(len: usize) -> Result<Self, RingError> {
        let failed = |reason: String| RingError::Map { bytes: len, reason };
        let memory = GuestMemoryMmap::<()>::from_ranges(&[(GuestAddress(0), len)])
            .map_err(|e| failed(e.to_string()))?;
        let base = memory
            .get_host_address(GuestAddress(0))
            .map_err(|e| failed(e.to_string()))?;
        let base = NonNull::new(base).ok_or_else(|| failed("mapped at null".to_owned()))?;
        Ok(Self {
            base,
            len,
            memory: Arc::new(memory),
        })
    }

    /// The mapping as vhost is told of it.
    #[must_use]
    pub fn memory(&self) -> Arc<GuestMemoryMmap<()>> {
        Arc::clone(&self.memory)
    }

    /// Size in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True for an area without a byte.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first byte in this process.
    #[must_use]
    pub fn host_address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// A pointer to `size` bytes at `offset`, aligned to `align`.
    ///
    /// Offsets are computed by this crate alone, so a bad one is a bug in it
    /// and may panic.
    fn at(&self, offset: usize, size: usize, align: usize) -> *mut u8 {
        assert!(
            offset.is_multiple_of(align) && offset.checked_add(size).is_some_and(|e| e <= self.len),
            "{size} bytes at {offset} lie outside the shared area"
        );
        // SAFETY: the range was just checked to lie inside the mapping.
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// The 16-bit word at `offset`.
    #[must_use]
    pub fn word16(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: in bounds and aligned by `at`; the mapping outlives `self`.
        unsafe { AtomicU16::from_ptr(self.at(offset, 2, 2).cast()) }
    }

    /// The 32-bit word at `offset`.
    #[must_use]
    pub fn word32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: in bounds and aligned by `at`; the mapping outlives `self`.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4, 4).cast()) }
    }

    /// The 64-bit word at `offset`.
    #[must_use]
    pub fn word64(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: in bounds and aligned by `at`; the mapping outlives `self`.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8, 8).cast()) }
    }

    /// Copies `data` to `offset`.
    pub fn write(&self, offset: usize, data: &[u8]) {
        let to = self.at(offset, data.len(), 1);
        // SAFETY: `to` has room for `data`, and a private slice cannot
        // overlap the mapping.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) }
    }

    /// Appends `len` bytes from `offset` to `into`.
    pub fn read(&self, offset: usize, len: usize, into: &mut Vec<u8>) {
        let from = self.at(offset, len, 1);
        into.reserve(len);
        // SAFETY: `from` is readable for `len` bytes, and the vector just
        // reserved as many behind its length, which is moved over them only
        // after they are written.
        unsafe {
            std::ptr::copy_nonoverlapping(from, into.as_mut_ptr().add(into.len()), len);
            into.set_len(into.len() + len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn what_is_written_is_read_back() {
        let area = Area::new(8192).unwrap();
        area.write(4090, b"across a page");
        let mut back = vec![1];
        area.read(4090, 13, &mut back);
        assert_eq!(&back[1..], b"across a page");
        area.word64(0)
            .store(0x0102_0304_0506_0708, Ordering::Relaxed);
        assert_eq!(area.word16(0).load(Ordering::Relaxed), 0x0708);
        assert_eq!(area.word32(4).load(Ordering::Relaxed), 0x0102_0304);
    }

    #[test]
    #[should_panic(expected = "outside the shared area")]
    fn access_behind_the_end_is_stopped() {
        let area = Area::new(4096).unwrap();
        area.write(4095, b"ab");
    }
}
