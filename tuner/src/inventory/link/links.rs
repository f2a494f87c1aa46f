//! The links of all network namespaces that a known tap is in.

use std::collections::{BTreeMap, BTreeSet};

use super::namespace::{self, NamespaceError};
use super::table::{Change, Table};
use super::{Link, LinkError};

/// A link: inode number of its network namespace, and its index there.
pub type Place = (u32, u32);

/// Why the links of a namespace are not known.
#[derive(Debug, thiserror::Error)]
enum Unknown {
    #[error(transparent)]
    Links(#[from] LinkError),
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

/// Tables of links by namespace. Our own is always there; another one as long
/// as it is asked for, since the sockets keep it alive.
#[derive(Debug, Default)]
pub struct Links {
    own: u32,
    tables: BTreeMap<u32, Table>,
    /// Namespaces that could not be looked into, with the reason.
    closed: BTreeMap<u32, String>,
}

impl Links {
    /// Reads the links of the calling thread's namespace.
    #[must_use]
    pub fn new() -> Self {
        let mut links = Self {
            // 0 is no namespace's number.
            own: namespace::own().unwrap_or(0),
            ..Self::default()
        };
        links.need(links.own, &[]);
        links
    }

    /// Number of our own namespace.
    #[must_use]
    pub fn own(&self) -> u32 {
        self.own
    }

    /// Has the links of a namespace known from now on, if it can be entered;
    /// `pids` are processes that are likely to be in it.
    pub fn need(&mut self, netns: u32, pids: &[u32]) {
        if self.tables.contains_key(&netns) || self.closed.contains_key(&netns) {
            return;
        }
        let opened = if netns == self.own {
            Table::open().map_err(Unknown::from)
        } else {
            enter(netns, pids)
        };
        match opened {
            Ok(table) => {
                self.tables.insert(netns, table);
            }
            Err(why) => {
                self.closed.insert(netns, why.to_string());
            }
        }
    }

    /// Lets go of all namespaces but these and our own. What could not be
    /// looked into is tried again when it is needed next.
    pub fn keep(&mut self, needed: &BTreeSet<u32>) {
        let own = self.own;
        self.tables
            .retain(|netns, _| *netns == own || needed.contains(netns));
        self.closed.clear();
    }

    /// A link, where it is known.
    #[must_use]
    pub fn get(&self, (netns, ifindex): Place) -> Option<&Link> {
        self.tables.get(&netns)?.links().get(&ifindex)
    }

    /// Takes in what changed since the last time.
    pub fn follow(&mut self) -> BTreeMap<Place, Change> {
        let mut all = BTreeMap::new();
        self.each(|netns, table| {
            let changes = table.follow()?;
            all.extend(
                changes
                    .into_iter()
                    .map(|(ifindex, change)| ((netns, ifindex), change)),
            );
            Ok(())
        });
        all
    }

    /// Packets that these dropped on their way out.
    pub fn dropped(&mut self, wanted: &BTreeSet<Place>) -> BTreeMap<Place, u64> {
        let mut all = BTreeMap::new();
        self.each(|netns, table| {
            let range = wanted.range((netns, 0)..=(netns, u32::MAX));
            let here: BTreeSet<u32> = range.map(|(_, ifindex)| *ifindex).collect();
            if !here.is_empty() {
                let dropped = table.dropped(&here)?;
                all.extend(
                    dropped
                        .into_iter()
                        .map(|(ifindex, count)| ((netns, ifindex), count)),
                );
            }
            Ok(())
        });
        all
    }

    /// What is not known, in sentences.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        // One sentence for each reason: there may be hundreds of containers.
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for (netns, why) in &self.closed {
            if *netns == self.own {
                notes.push(format!("network devices are not listed: {why}"));
            } else {
                *reasons.entry(why).or_default() += 1;
            }
        }
        for (why, count) in reasons {
            notes.push(format!(
                "kind, MTU and statistics of taps in {} are not known: {why}",
                match count {
                    1 => "another network namespace".to_owned(),
                    _ => format!("{count} other network namespaces"),
                }
            ));
        }
        notes
    }

    /// Does something with each table. One that fails is of no use any more:
    /// it is dropped, and the reason kept until it is tried again.
    fn each(&mut self, mut work: impl FnMut(u32, &mut Table) -> Result<(), LinkError>) {
        let closed = &mut self.closed;
        self.tables
            .retain(|netns, table| match work(*netns, table) {
                Ok(()) => true,
                Err(why) => {
                    closed.insert(*netns, why.to_string());
                    false
                }
            });
    }
}

fn enter(netns: u32, pids: &[u32]) -> Result<Table, Unknown> {
    let file = namespace::find(netns, pids)?;
    Ok(namespace::inside(&file, Table::open)??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_links_are_there_from_the_start() {
        let mut links = Links::new();
        let lo = (links.own(), 1);
        assert_eq!(links.get(lo).unwrap().name, "lo");
        assert!(links.notes().is_empty());
        assert!(links.dropped(&BTreeSet::from([lo])).contains_key(&lo));
        links.follow();
        links.keep(&BTreeSet::new());
        assert!(links.get(lo).is_some());
    }

    #[test]
    fn namespaces_that_cannot_be_entered_are_said_once_for_each_reason() {
        let mut links = Links::new();
        for netns in [1, 2, 3] {
            links.need(netns, &[]);
            assert_eq!(links.get((netns, 1)), None);
        }
        let notes = links.notes();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains("3 other network namespaces"), "{notes:?}");
        links.keep(&BTreeSet::new());
        assert!(links.notes().is_empty());
    }
}
