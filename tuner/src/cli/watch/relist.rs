//! When the list of devices has to be read anew. Pure.

use std::time::Duration;

/// An event may be told before what it brings is to be seen: a descriptor is
/// there only after its device was opened. So the list is read once more this
/// long after the last event.
const SETTLE: Duration = Duration::from_secs(1);

/// How often anyway: nothing tells that a descriptor was handed on.
const ANYWAY: Duration = Duration::from_secs(60);

/// How often where events are not told.
const BLIND: Duration = Duration::from_secs(5);

/// What the list that is known was read with. Times are since any fixed moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Relist {
    /// When it was read.
    read: Duration,
    /// How many events there had been before; none where they are not told.
    generation: Option<u64>,
    /// True if it has to be read once more, since an event had just come.
    unsettled: bool,
}

impl Relist {
    /// A first list.
    pub(super) fn new(now: Duration, generation: Option<u64>) -> Self {
        Self {
            read: now,
            generation,
            // What began before anybody counted is seen by then.
            unsettled: true,
        }
    }

    /// True if the list has to be read anew.
    pub(super) fn is_due(&self, now: Duration, generation: Option<u64>) -> bool {
        let age = now.saturating_sub(self.read);
        match generation {
            None => age >= BLIND,
            Some(_) if generation != self.generation => true,
            Some(_) => age >= if self.unsettled { SETTLE } else { ANYWAY },
        }
    }

    /// The list was read; `generation` was so before.
    pub(super) fn done(&mut self, now: Duration, generation: Option<u64>) {
        *self = Self {
            read: now,
            generation,
            unsettled: generation != self.generation,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_event_has_the_list_read_at_once_and_once_more() {
        let mut list = Relist::new(at(0), Some(7));
        list.done(at(1), Some(7));
        assert!(!list.is_due(at(2), Some(7)));
        assert!(list.is_due(at(2), Some(8)));
        list.done(at(2), Some(8));
        assert!(!list.is_due(at(2), Some(8)));
        assert!(list.is_due(at(3), Some(8)));
        list.done(at(3), Some(8));
        assert!(!list.is_due(at(50), Some(8)));
    }

    #[test]
    fn without_events_it_is_read_now_and_then() {
        let mut list = Relist::new(at(0), Some(1));
        list.done(at(1), Some(1));
        assert!(!list.is_due(at(60), Some(1)));
        assert!(list.is_due(at(61), Some(1)));
    }

    #[test]
    fn where_events_are_not_told_it_is_read_every_few_seconds() {
        let mut list = Relist::new(at(0), None);
        assert!(!list.is_due(at(4), None));
        assert!(list.is_due(at(5), None));
        list.done(at(5), None);
        assert!(!list.is_due(at(9), None));
        // They are told again: another vhost_net was loaded.
        assert!(list.is_due(at(6), Some(0)));
    }
}
