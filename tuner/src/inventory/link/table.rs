//! The links of one network namespace, kept up to date by what the kernel
//! tells of them.

use std::collections::{BTreeMap, BTreeSet};

use super::message::Message;
use super::socket::{Answer, Route};
use super::{Link, LinkError, parse};

/// `RTM_NEWLINK` of rtnetlink(7).
pub(super) const RTM_NEWLINK: u16 = 16;
/// `RTM_DELLINK`.
pub(super) const RTM_DELLINK: u16 = 17;
/// `RTM_NEWSTATS`.
pub(super) const RTM_NEWSTATS: u16 = 92;

/// Attempts at a dump that is whole. Links come and go while VMs start; each
/// attempt is one pass over all links, a few milliseconds for 500.
const ATTEMPTS: u32 = 8;

/// Counters of single links are asked for where there are this many times as
/// many links as wanted. One question takes as long as seven links of a dump
/// (measured: 2.2 µs against 0.33 µs a link).
const FEW: usize = 8;

/// What changed at a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Something that the table shows now: its name, say.
    Shown,
    /// It went, or its queues are others: who is behind it has to be looked up
    /// anew.
    Moved,
}

/// Changed links by index.
pub type Changes = BTreeMap<u32, Change>;

/// The links of a network namespace.
pub struct Table {
    asks: Route,
    listens: Route,
    links: BTreeMap<u32, Link>,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("links", &self.links).finish()
    }
}

impl Table {
    /// Reads the links of the calling thread's network namespace. Needs no
    /// rights. It stays with that namespace, and keeps it alive.
    ///
    /// # Errors
    /// See [`LinkError`].
    pub fn open() -> Result<Self, LinkError> {
        let mut table = Self {
            asks: Route::asking()?,
            // Before the links are read: what changes meanwhile is told.
            listens: Route::listening()?,
            links: BTreeMap::new(),
        };
        table.links = table.dump()?;
        Ok(table)
    }

    /// Links by index.
    #[must_use]
    pub fn links(&self) -> &BTreeMap<u32, Link> {
        &self.links
    }

    /// Takes in what was told since the last time. Where something was lost,
    /// all links are read anew.
    ///
    /// # Errors
    /// If the kernel does not answer. The table is of no use then.
    pub fn follow(&mut self) -> Result<Changes, LinkError> {
        let mut changes = Changes::new();
        let links = &mut self.links;
        let answer = self
            .listens
            .told(|message| apply(links, message, &mut changes))?;
        if answer == Answer::Torn {
            let fresh = self.dump()?;
            compare(&self.links, &fresh, &mut changes);
            self.links = fresh;
        }
        Ok(changes)
    }

    /// Packets dropped on their way out, of each of these links that is there.
    ///
    /// # Errors
    /// If the kernel does not answer. The table is of no use then.
    pub fn dropped(&mut self, wanted: &BTreeSet<u32>) -> Result<BTreeMap<u32, u64>, LinkError> {
        let mut dropped = BTreeMap::new();
        let mut note = |message: Message<'_>| {
            if message.kind == RTM_NEWSTATS
                && let Some((ifindex, stats)) = parse::counters(message.payload)
                && wanted.contains(&ifindex)
            {
                dropped.insert(ifindex, stats.tx_dropped);
            }
        };
        if wanted.len() * FEW >= self.links.len() {
            // What was told of a torn answer is right all the same, and a link
            // that just came or went is one that has no figures.
            self.asks.counters(None, note)?;
            return Ok(dropped);
        }
        for ifindex in wanted {
            match self.asks.counters(Some(*ifindex), &mut note) {
                // It went.
                Ok(_) | Err(LinkError::Refused { .. }) => {}
                Err(why) => return Err(why),
            }
        }
        Ok(dropped)
    }

    fn dump(&mut self) -> Result<BTreeMap<u32, Link>, LinkError> {
        for _ in 0..ATTEMPTS {
            let mut links = BTreeMap::new();
            let answer = self.asks.links(|message| {
                if message.kind == RTM_NEWLINK {
                    links.extend(parse::link(message.payload).map(|link| (link.ifindex, link)));
                }
            })?;
            if answer == Answer::Whole {
                return Ok(links);
            }
        }
        Err(LinkError::Unsettled(ATTEMPTS))
    }
}

/// Takes one event in.
fn apply(links: &mut BTreeMap<u32, Link>, message: Message<'_>, changes: &mut Changes) {
    match message.kind {
        RTM_NEWLINK => {
            if let Some(link) = parse::link(message.payload) {
                note(changes, link.ifindex, links.get(&link.ifindex), Some(&link));
                links.insert(link.ifindex, link);
            }
        }
        RTM_DELLINK => {
            if let Some(ifindex) = parse::index(message.payload)
                && let Some(link) = links.remove(&ifindex)
            {
                note(changes, ifindex, Some(&link), None);
            }
        }
        _ => {}
    }
}

/// Notes what differs between two states of all links.
fn compare(before: &BTreeMap<u32, Link>, after: &BTreeMap<u32, Link>, changes: &mut Changes) {
    for ifindex in before.keys().chain(after.keys()) {
        note(changes, *ifindex, before.get(ifindex), after.get(ifindex));
    }
}

fn note(changes: &mut Changes, ifindex: u32, before: Option<&Link>, after: Option<&Link>) {
    let queues = |link: Option<&Link>| link.map(|link| (link.queues, link.disabled_queues));
    // That packets went through is no change.
    let shown = |link: Option<&Link>| {
        link.cloned().map(|link| Link {
            stats: None,
            ..link
        })
    };
    if before.is_some() && queues(before) != queues(after) {
        changes.insert(ifindex, Change::Moved);
    } else if shown(before) != shown(after) {
        changes.entry(ifindex).or_insert(Change::Shown);
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::messages;
    use super::super::message::tests::message;
    use super::super::parse::tests::payload;
    use super::*;

    fn applied(links: &mut BTreeMap<u32, Link>, events: &[(u16, Vec<u8>)]) -> Changes {
        let mut changes = Changes::new();
        for (kind, payload) in events {
            let bytes = message(*kind, 0, payload);
            for message in messages(&bytes) {
                apply(links, message.unwrap(), &mut changes);
            }
        }
        changes
    }

    fn two() -> BTreeMap<u32, Link> {
        let mut links = BTreeMap::new();
        let events = [
            (RTM_NEWLINK, payload(0, 5, "tap5")),
            (RTM_NEWLINK, payload(0, 6, "tap6")),
        ];
        let changes = applied(&mut links, &events);
        assert_eq!(
            changes,
            Changes::from([(5, Change::Shown), (6, Change::Shown)])
        );
        links
    }

    #[test]
    fn links_come_go_and_change_their_names() {
        let mut links = two();
        let changes = applied(&mut links, &[(RTM_NEWLINK, payload(0, 5, "web"))]);
        assert_eq!(changes, Changes::from([(5, Change::Shown)]));
        assert_eq!(links[&5].name, "web");
        let changes = applied(&mut links, &[(RTM_DELLINK, payload(0, 6, "tap6"))]);
        assert_eq!(changes, Changes::from([(6, Change::Moved)]));
        assert_eq!(links.len(), 1);
        // The same once more, and of a link that was never there.
        assert!(applied(&mut links, &[(RTM_NEWLINK, payload(0, 5, "web"))]).is_empty());
        assert!(applied(&mut links, &[(RTM_DELLINK, payload(0, 6, "tap6"))]).is_empty());
    }

    #[test]
    fn a_link_that_leaves_its_bridge_is_not_gone() {
        let mut links = two();
        let bridge = libc::AF_BRIDGE as u8;
        let events = [
            (RTM_NEWLINK, payload(bridge, 5, "port")),
            (RTM_DELLINK, payload(bridge, 5, "port")),
        ];
        assert!(applied(&mut links, &events).is_empty());
        assert_eq!(links[&5].name, "tap5");
    }

    #[test]
    fn a_link_that_went_and_came_again_was_moved() {
        let mut links = two();
        let events = [
            (RTM_DELLINK, payload(0, 5, "tap5")),
            (RTM_NEWLINK, payload(0, 5, "tap5")),
        ];
        let changes = applied(&mut links, &events);
        assert_eq!(changes, Changes::from([(5, Change::Moved)]));
    }

    #[test]
    fn a_dump_is_compared_with_what_was_known() {
        let before = two();
        let mut after = before.clone();
        after.remove(&5);
        if let Some(link) = after.get_mut(&6) {
            link.queues = Some(2);
            link.stats = None;
        }
        let mut seven = after[&6].clone();
        seven.ifindex = 7;
        after.insert(7, seven);
        let mut changes = Changes::new();
        compare(&before, &after, &mut changes);
        let expected = [(5, Change::Moved), (6, Change::Moved), (7, Change::Shown)];
        assert_eq!(changes, Changes::from(expected));
    }

    #[test]
    fn loopback_is_found_and_has_counters() {
        let mut table = Table::open().unwrap();
        let lo = table
            .links()
            .values()
            .find(|link| link.name == "lo")
            .unwrap();
        assert_eq!(lo.ifindex, 1);
        assert!(lo.stats.is_some());
        assert!(table.follow().is_ok());
        let all: BTreeSet<u32> = table.links().keys().copied().collect();
        assert_eq!(table.dropped(&all).unwrap().len(), all.len());
        let gone = BTreeSet::from([0x3fff_ffff]);
        assert!(table.dropped(&gone).unwrap().is_empty());
    }
}
