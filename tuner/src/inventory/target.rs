//! What a user calls a device: a VM's name, a pid, a tap, or `pid:fd`. Pure.

use super::device::{Device, Inventory};

/// A target as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target(pub String);

/// Why a target does not name what was meant.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Nothing is called so.
    #[error("no VM, process, tap or device is called `{target}`; there is: {candidates}")]
    Unknown {
        /// What was given.
        target: String,
        /// What could be given.
        candidates: String,
    },
    /// Several are.
    #[error("`{target}` may mean several: {candidates}")]
    Ambiguous {
        /// What was given.
        target: String,
        /// What it may mean.
        candidates: String,
    },
}

impl Target {
    /// True if it names a device that has these: the one rule for every command.
    #[must_use]
    pub fn names(&self, vm: &str, pid: u32, fd: u32, tap: Option<&str>) -> bool {
        let by_descriptor = || {
            let parts = self.0.split_once(':');
            parts.is_some_and(|(p, f)| p.parse() == Ok(pid) && f.parse() == Ok(fd))
        };
        self.0 == vm || tap == Some(self.0.as_str()) || self.0.parse() == Ok(pid) || by_descriptor()
    }

    /// The devices meant: all of one process, or the one behind a tap or a
    /// descriptor. A tap with several queue pairs is all of them.
    ///
    /// # Errors
    /// If the target is unknown, or means devices of more than one process.
    pub fn resolve<'a>(&self, inventory: &'a Inventory) -> Result<Vec<&'a Device>, TargetError> {
        // A word may be both a VM's name and a tap's: that is ambiguous unless
        // both belong to one process.
        let found: Vec<&Device> = inventory
            .devices
            .iter()
            .filter(|d| self.names(&d.vm.name, d.pid, d.fd, d.tap.as_deref()))
            .collect();
        if found.is_empty() {
            return Err(TargetError::Unknown {
                target: self.0.clone(),
                candidates: describe(inventory.devices.iter()),
            });
        }
        if found.iter().any(|d| d.pid != found[0].pid) {
            return Err(TargetError::Ambiguous {
                target: self.0.clone(),
                candidates: describe(found.into_iter()),
            });
        }
        Ok(found)
    }
}

fn describe<'a>(devices: impl Iterator<Item = &'a Device>) -> String {
    let list: Vec<String> = devices
        .map(|d| {
            let tap = d.tap.as_deref().unwrap_or("no tap");
            format!("{}:{} ({}, {tap})", d.pid, d.fd, d.vm.name)
        })
        .collect();
    if list.is_empty() {
        "nothing".to_owned()
    } else {
        list.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::super::device::tests::sample;
    use super::*;

    fn inventory() -> Inventory {
        Inventory {
            devices: vec![
                sample(1, 100, 7, "web", "tap0"),
                sample(2, 100, 8, "web", "tap0"),
                sample(3, 200, 7, "db", "tap1"),
                sample(4, 300, 7, "db", "tap2"),
            ],
            notes: Vec::new(),
        }
    }

    fn resolve(text: &str) -> Result<Vec<u64>, TargetError> {
        let inventory = inventory();
        Target(text.to_owned())
            .resolve(&inventory)
            .map(|found| found.iter().map(|d| d.net).collect())
    }

    #[test]
    fn each_way_of_naming_finds_its_devices() {
        assert_eq!(resolve("web"), Ok(vec![1, 2]));
        assert_eq!(resolve("100"), Ok(vec![1, 2]));
        assert_eq!(resolve("tap0"), Ok(vec![1, 2]));
        assert_eq!(resolve("100:8"), Ok(vec![2]));
        assert_eq!(resolve("tap2"), Ok(vec![4]));
    }

    #[test]
    fn a_name_of_two_vms_is_ambiguous_and_lists_both() {
        let why = resolve("db").unwrap_err().to_string();
        assert!(why.contains("200:7") && why.contains("300:7"), "{why}");
        assert!(!why.contains("100:7"), "{why}");
    }

    #[test]
    fn an_unknown_target_lists_what_there_is() {
        let why = resolve("mail").unwrap_err().to_string();
        assert!(why.contains("100:7 (web, tap0)"), "{why}");
        let empty = Target("x".to_owned())
            .resolve(&Inventory::default())
            .unwrap_err();
        assert!(empty.to_string().ends_with("there is: nothing"));
    }
}
