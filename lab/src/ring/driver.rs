//! Giving buffers to the device and taking them back.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::{Area, Layout, RingError, need_event};

const DESC_WRITABLE: u16 = 2;
const AVAIL_NO_INTERRUPT: u16 = 1;
const USED_NO_NOTIFY: u16 = 1;

/// A buffer that the device has given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// Descriptor, which is also the number of the buffer.
    pub head: u16,
    /// Bytes the device wrote.
    pub len: u32,
}

/// The driver's view of one ring in which every descriptor owns one buffer
/// of fixed size, so that a buffer is always exactly one descriptor.
#[derive(Debug)]
pub struct DriverRing {
    area: Arc<Area>,
    layout: Layout,
    buffers: usize,
    buffer_size: usize,
    event_idx: bool,
    /// Descriptors not held by the device.
    free: Vec<u16>,
    held: Vec<bool>,
    /// Next available index, published or not.
    next_avail: u16,
    /// What `avail->idx` says.
    published: u16,
    /// Available index when we last asked whether to kick.
    asked: u16,
    /// Next used index to look at.
    last_used: u16,
    /// `avail->flags`, so as not to write it in vain.
    flags: u16,
}

impl DriverRing {
    /// A ring at `layout`, its buffers of `buffer_size` bytes following each
    /// other from `buffers`. With `event_idx`, VIRTIO_RING_F_EVENT_IDX is
    /// taken to be negotiated.
    #[must_use]
    pub fn new(
        area: Arc<Area>,
        layout: Layout,
        buffers: usize,
        buffer_size: usize,
        event_idx: bool,
    ) -> Self {
        Self {
            area,
            layout,
            buffers,
            buffer_size,
            event_idx,
            // Reversed, so that descriptor 0 goes first.
            free: (0..layout.size).rev().collect(),
            held: vec![false; usize::from(layout.size)],
            next_avail: 0,
            published: 0,
            asked: 0,
            last_used: 0,
            flags: 0,
        }
    }

    /// Where the ring lies.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Size of one buffer in bytes.
    #[must_use]
    pub const fn buffer_size(&self) -> usize {
        self.buffer_size
    }

    /// Buffers that can be given to the device now.
    #[must_use]
    pub const fn free(&self) -> usize {
        self.free.len()
    }

    /// Buffers given and not yet taken back.
    #[must_use]
    pub const fn outstanding(&self) -> u16 {
        self.next_avail.wrapping_sub(self.last_used)
    }

    /// Buffers staged but not published.
    #[must_use]
    pub const fn staged(&self) -> u16 {
        self.next_avail.wrapping_sub(self.published)
    }

    /// Stages one buffer for the device to read, filled with the parts of
    /// `data`. False when none is free or the data does not fit.
    pub fn stage_readable(&mut self, data: &[&[u8]]) -> bool {
        let len = data.iter().map(|part| part.len()).sum::<usize>();
        if len > self.buffer_size {
            return false;
        }
        let Some(head) = self.free.pop() else {
            return false;
        };
        let mut to = self.buffer(head);
        for part in data {
            self.area.write(to, part);
            to += part.len();
        }
        self.stage(head, len, 0);
        true
    }

    /// Stages every free buffer for the device to write; says how many.
    pub fn stage_writable(&mut self) -> usize {
        let mut count = 0;
        while let Some(head) = self.free.pop() {
            self.stage(head, self.buffer_size, DESC_WRITABLE);
            count += 1;
        }
        count
    }

    fn stage(&mut self, head: u16, len: usize, flags: u16) {
        let at = self.layout.descriptor(head);
        let address = self.buffer(head) as u64;
        // Relaxed is enough: publish() releases all of it at once.
        self.area
            .word64(at)
            .store(address.to_le(), Ordering::Relaxed);
        self.area
            .word32(at + 8)
            .store((len as u32).to_le(), Ordering::Relaxed);
        self.area
            .word16(at + 12)
            .store(flags.to_le(), Ordering::Relaxed);
        self.area.word16(at + 14).store(0, Ordering::Relaxed);
        self.area
            .word16(self.layout.avail_slot(self.next_avail))
            .store(head.to_le(), Ordering::Relaxed);
        self.held[usize::from(head)] = true;
        self.next_avail = self.next_avail.wrapping_add(1);
    }

    const fn buffer(&self, head: u16) -> usize {
        self.buffers + head as usize * self.buffer_size
    }

    /// Shows everything staged to the device with one update of the index.
    /// False when there was nothing.
    pub fn publish(&mut self) -> bool {
        if self.staged() == 0 {
            return false;
        }
        self.published = self.next_avail;
        self.area
            .word16(self.layout.avail + 2)
            .store(self.published.to_le(), Ordering::Release);
        true
    }

    /// Says whether the device wants a kick for what was published since
    /// the last call.
    pub fn needs_kick(&mut self) -> bool {
        let (old, new) = (self.asked, self.published);
        self.asked = new;
        if old == new {
            return false;
        }
        // The device enables kicks, then looks at the index; we wrote the
        // index and now look whether kicks are enabled. One of us must see
        // the other, hence the full barrier.
        fence(Ordering::SeqCst);
        if self.event_idx {
            let event = self.area.word16(self.layout.avail_event());
            need_event(u16::from_le(event.load(Ordering::Relaxed)), new, old)
        } else {
            let flags = self.area.word16(self.layout.used).load(Ordering::Relaxed);
            u16::from_le(flags) & USED_NO_NOTIFY == 0
        }
    }

    fn used_index(&self) -> u16 {
        let index = self.area.word16(self.layout.used + 2);
        u16::from_le(index.load(Ordering::Acquire))
    }

    /// Used buffers that wait to be taken.
    #[must_use]
    pub fn pending(&self) -> u16 {
        self.used_index().wrapping_sub(self.last_used)
    }

    /// Takes the next used buffer back. Its contents stay until it is staged
    /// again.
    ///
    /// # Errors
    /// When the device breaks the protocol.
    pub fn take(&mut self) -> Result<Option<Used>, RingError> {
        let pending = self.pending();
        if pending == 0 {
            return Ok(None);
        }
        let held = self.published.wrapping_sub(self.last_used);
        if pending > held {
            return Err(RingError::UsedTooMany {
                used: pending,
                held,
            });
        }
        let at = self.layout.used_slot(self.last_used);
        let id = u32::from_le(self.area.word32(at).load(Ordering::Relaxed));
        let len = u32::from_le(self.area.word32(at + 4).load(Ordering::Relaxed));
        let head = u16::try_from(id)
            .ok()
            .filter(|head| self.held.get(usize::from(*head)) == Some(&true))
            .ok_or(RingError::ForeignHead(id))?;
        self.held[usize::from(head)] = false;
        self.last_used = self.last_used.wrapping_add(1);
        self.free.push(head);
        Ok(Some(Used { head, len }))
    }

    /// Appends what the device wrote into a buffer just taken.
    pub fn read(&self, used: Used, into: &mut Vec<u8>) {
        let len = (used.len as usize).min(self.buffer_size);
        self.area.read(self.buffer(used.head), len, into);
    }

    /// Asks for no interrupts.
    pub fn suppress(&mut self) {
        if self.event_idx {
            // An index just passed is the furthest away there is.
            self.set_used_event(self.last_used.wrapping_sub(1));
        } else {
            self.set_flags(AVAIL_NO_INTERRUPT);
        }
    }

    /// Asks for an interrupt once more than `after` buffers are used beyond
    /// those already taken. True when that is so already, and no interrupt
    /// is to be waited for.
    ///
    /// Without event index a ring cannot count, so `after` is taken as 0.
    #[must_use = "sleeping although buffers are used would miss them"]
    pub fn arm(&mut self, after: u16) -> bool {
        let after = if self.event_idx { after } else { 0 };
        if self.event_idx {
            self.set_used_event(self.last_used.wrapping_add(after));
        } else {
            self.set_flags(0);
        }
        // The device writes the used index, then looks whether we want an
        // interrupt; we do the reverse.
        fence(Ordering::SeqCst);
        self.pending() > after
    }

    fn set_used_event(&self, index: u16) {
        self.area
            .word16(self.layout.used_event())
            .store(index.to_le(), Ordering::Relaxed);
    }

    fn set_flags(&mut self, flags: u16) {
        if self.flags != flags {
            self.flags = flags;
            self.area
                .word16(self.layout.avail)
                .store(flags.to_le(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod tests;
