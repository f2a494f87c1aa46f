//! Which entries of the journal a target means. Pure.

use crate::inventory::{Inventory, Target, TargetError};
use crate::knob::journal::{Entries, Entry};

/// The entries that are meant: those of devices that are called so, and those
/// of devices that were and are gone.
///
/// # Errors
/// If a target is called neither now nor then, or means devices of more than
/// one process now.
pub(super) fn named(
    targets: &[String],
    entries: &Entries,
    inventory: &Inventory,
) -> Result<Vec<Entry>, TargetError> {
    let mut devices = Vec::new();
    let mut gone = Vec::new();
    for target in targets {
        let target = Target(target.clone());
        let was = |entry: &Entry| {
            let key = &entry.key;
            target.names(&entry.vm, key.pid, key.fd, entry.tap.as_deref())
                && inventory
                    .at(key.net)
                    .is_none_or(|now| now.pid != key.pid || now.start_time != Some(key.start_time))
        };
        let were: Vec<_> = entries.iter().filter(|entry| was(entry)).collect();
        match target.resolve(inventory) {
            Ok(now) => devices.extend(now),
            // What is gone cannot be taken for something else.
            Err(TargetError::Unknown { .. }) if !were.is_empty() => {}
            Err(why) => return Err(why),
        }
        gone.extend(were.iter().map(|entry| &entry.key));
    }
    let is_now = |entry: &Entry| {
        let key = &entry.key;
        devices.iter().any(|now| {
            (now.net, now.pid, now.start_time) == (key.net, key.pid, Some(key.start_time))
        })
    };
    let meant = |entry: &&Entry| is_now(entry) || gone.contains(&&entry.key);
    Ok(entries.iter().filter(meant).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::device::tests::sample;
    use crate::knob::journal::{Key, Record};
    use crate::knob::module::Knob;

    /// An entry of the device that `sample` makes.
    fn entry(net: u64, pid: u32, fd: u32, vm: &str, tap: &str) -> Record {
        Record::Touch {
            key: Key {
                boot: "b".to_owned(),
                pid,
                start_time: 1,
                fd,
                net,
                knob: Knob::TxBatched,
            },
            original: 0,
            wanted: 8,
            previous: None,
            vm: vm.to_owned(),
            tap: Some(tap.to_owned()),
        }
    }

    fn nets(targets: &[&str]) -> Result<Vec<u64>, TargetError> {
        let mut entries = Entries::default();
        for record in [
            entry(1, 100, 7, "web", "tap0"),
            entry(2, 100, 8, "web", "tap1"),
            entry(3, 200, 7, "db", "tap2"),
            // An earlier VM of the same name, and one that is no more.
            entry(4, 90, 7, "web", "tap0"),
            entry(5, 91, 7, "mail", "tap3"),
        ] {
            entries.apply(&record);
        }
        let inventory = Inventory {
            devices: vec![
                sample(1, 100, 7, "web", "tap0"),
                sample(2, 100, 8, "web", "tap1"),
                sample(3, 200, 7, "db", "tap2"),
                sample(6, 300, 7, "db", "tap6"),
                sample(7, 400, 7, "new", "tap7"),
            ],
            notes: Vec::new(),
        };
        let targets: Vec<_> = targets.iter().map(|text| (*text).to_owned()).collect();
        let mut nets: Vec<u64> = named(&targets, &entries, &inventory)?
            .iter()
            .map(|entry| entry.key.net)
            .collect();
        nets.sort_unstable();
        Ok(nets)
    }

    #[test]
    fn a_name_means_what_is_called_so_and_what_was() {
        assert_eq!(nets(&["web"]), Ok(vec![1, 2, 4]));
        assert_eq!(nets(&["100"]), Ok(vec![1, 2]));
        assert_eq!(nets(&["100:8"]), Ok(vec![2]));
        assert_eq!(nets(&["tap0"]), Ok(vec![1, 4]));
        assert_eq!(nets(&["mail", "tap2"]), Ok(vec![3, 5]));
        assert_eq!(nets(&["mail", "tap3"]), Ok(vec![5]));
    }

    #[test]
    fn a_device_without_an_entry_is_known_all_the_same() {
        assert_eq!(nets(&["new"]), Ok(vec![]));
    }

    #[test]
    fn unknown_and_ambiguous_names_are_errors() {
        assert!(matches!(nets(&["x"]), Err(TargetError::Unknown { .. })));
        assert!(matches!(
            nets(&["web", "x"]),
            Err(TargetError::Unknown { .. })
        ));
        assert!(matches!(nets(&["db"]), Err(TargetError::Ambiguous { .. })));
    }
}
