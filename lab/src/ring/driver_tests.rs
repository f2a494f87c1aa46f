//! A toy device on the other end of the ring.

use super::*;
use proptest::prelude::*;

struct ToyDevice {
    area: Arc<Area>,
    layout: Layout,
    seen: u16,
    used: u16,
}

impl ToyDevice {
    fn avail_index(&self) -> u16 {
        self.area
            .word16(self.layout.avail + 2)
            .load(Ordering::Acquire)
    }

    fn use_one(&mut self) -> Option<u16> {
        if self.seen == self.avail_index() {
            return None;
        }
        let slot = self.layout.avail_slot(self.seen);
        let head = self.area.word16(slot).load(Ordering::Relaxed);
        self.seen = self.seen.wrapping_add(1);
        self.put_used(u32::from(head), 7);
        Some(head)
    }

    fn put_used(&mut self, id: u32, len: u32) {
        let at = self.layout.used_slot(self.used);
        self.area.word32(at).store(id, Ordering::Relaxed);
        self.area.word32(at + 4).store(len, Ordering::Relaxed);
        self.used = self.used.wrapping_add(1);
        self.area
            .word16(self.layout.used + 2)
            .store(self.used, Ordering::Release);
    }

    /// As the device decides, having last signalled at `old`.
    fn would_interrupt(&self, old: u16, event_idx: bool) -> bool {
        if event_idx {
            let event = self.area.word16(self.layout.used_event());
            need_event(event.load(Ordering::Relaxed), self.used, old)
        } else {
            self.area.word16(self.layout.avail).load(Ordering::Relaxed) & 1 == 0
        }
    }
}

fn ring(size: usize, event_idx: bool) -> (DriverRing, ToyDevice) {
    let layout = Layout::new(0, size).unwrap();
    let buffers = layout.end.next_multiple_of(64);
    let area = Arc::new(Area::new(buffers + size * 64).unwrap());
    let device = ToyDevice {
        area: Arc::clone(&area),
        layout,
        seen: 0,
        used: 0,
    };
    (
        DriverRing::new(area, layout, buffers, 64, event_idx),
        device,
    )
}

#[test]
fn staged_buffers_are_unseen_until_published() {
    let (mut driver, mut device) = ring(4, false);
    assert!(driver.stage_readable(&[b"one", b"two"]));
    assert_eq!(device.use_one(), None);
    assert!(driver.publish());
    assert!(!driver.publish());
    assert_eq!(device.use_one(), Some(0));
    assert_eq!(driver.take().unwrap(), Some(Used { head: 0, len: 7 }));
    let mut text = Vec::new();
    driver.read(Used { head: 0, len: 6 }, &mut text);
    assert_eq!(text, b"onetwo");
}

#[test]
fn data_larger_than_a_buffer_is_refused() {
    let (mut driver, _device) = ring(4, false);
    assert!(!driver.stage_readable(&[&[0; 65]]));
    assert_eq!(driver.free(), 4);
}

#[test]
fn a_descriptor_never_given_is_an_error() {
    let (mut driver, mut device) = ring(4, false);
    driver.stage_readable(&[b"x"]);
    driver.publish();
    device.put_used(3, 0);
    assert!(matches!(driver.take(), Err(RingError::ForeignHead(3))));
}

#[test]
fn a_used_index_beyond_what_was_given_is_an_error() {
    let (mut driver, mut device) = ring(4, false);
    device.put_used(0, 0);
    assert!(matches!(
        driver.take(),
        Err(RingError::UsedTooMany { used: 1, held: 0 })
    ));
}

#[test]
fn kicks_are_asked_for_once_per_publication() {
    let (mut driver, device) = ring(8, true);
    driver.stage_readable(&[b"a"]);
    driver.publish();
    // avail_event is 0: the device wants to hear of the first buffer only.
    assert!(driver.needs_kick());
    assert!(!driver.needs_kick());
    driver.stage_readable(&[b"b"]);
    driver.publish();
    assert!(!driver.needs_kick());
    device
        .area
        .word16(device.layout.avail_event())
        .store(2, Ordering::Relaxed);
    driver.stage_readable(&[b"c"]);
    driver.publish();
    assert!(driver.needs_kick());
}

#[test]
fn without_event_index_the_flag_decides() {
    let (mut driver, device) = ring(8, false);
    device
        .area
        .word16(device.layout.used)
        .store(1, Ordering::Relaxed);
    driver.stage_readable(&[b"a"]);
    driver.publish();
    assert!(!driver.needs_kick());
}

proptest! {
    /// Whatever the steps, across many turns of the ring: nothing is lost,
    /// and an armed driver with work is either told at once or interrupted.
    #[test]
    fn every_buffer_comes_back_once(
        steps in prop::collection::vec((0usize..9, 0usize..9, 0u16..4), 1..300),
        event_idx: bool,
    ) {
        let (mut driver, mut device) = ring(8, event_idx);
        let (mut given, mut taken, mut signalled) = (0u64, 0u64, 0u16);
        for (give, work, after) in steps {
            for _ in 0..give {
                given += u64::from(driver.stage_readable(&[b"data"]));
            }
            driver.publish();
            driver.needs_kick();
            let after = if event_idx { after } else { 0 };
            let ready = driver.arm(after);
            prop_assert_eq!(ready, driver.pending() > after);
            let before = driver.pending();
            for _ in 0..work {
                device.use_one();
            }
            let interrupted = device.would_interrupt(signalled, event_idx);
            signalled = device.used;
            if !ready && driver.pending() > after && driver.pending() > before {
                prop_assert!(interrupted);
            }
            driver.suppress();
            prop_assert_eq!(device.would_interrupt(signalled, event_idx), false);
            while driver.take().unwrap().is_some() {
                taken += 1;
            }
            prop_assert_eq!(given - taken, u64::from(driver.outstanding()));
            prop_assert_eq!(8 - driver.free(), usize::from(driver.outstanding()));
        }
    }
}
