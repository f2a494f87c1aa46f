//! Lists of CPUs as the kernel writes them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A set of CPUs, written as `0-3,8`. Nothing stands for none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpus {
    ranges: Vec<(u32, u32)>,
}

impl Cpus {
    /// Reads a list.
    ///
    /// # Errors
    ///
    /// A sentence that quotes what is no CPU and no range of CPUs.
    pub fn parse(list: &str) -> Result<Self, String> {
        let ranges = list
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(|part| {
                let (from, to) = part.split_once('-').unwrap_or((part, part));
                match (from.trim().parse(), to.trim().parse()) {
                    (Ok(from), Ok(to)) if from <= to => Ok((from, to)),
                    _ => Err(format!("`{part}` is no CPU and no range of CPUs")),
                }
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { ranges })
    }

    /// Whether there are any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether all of them are among those of `other`. Of none, none is.
    #[must_use]
    pub fn are_within(&self, other: &Self) -> bool {
        let mut ranges = other.ranges.clone();
        ranges.sort_unstable();
        let covered = |from: u32, to: u32| {
            let mut next = u64::from(from);
            for (low, high) in &ranges {
                if u64::from(*low) <= next {
                    next = next.max(u64::from(*high) + 1);
                }
            }
            next > u64::from(to)
        };
        !self.is_empty() && self.ranges.iter().all(|(from, to)| covered(*from, *to))
    }
}

impl Serialize for Cpus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let parts: Vec<String> = self
            .ranges
            .iter()
            .map(|(from, to)| {
                if from == to {
                    from.to_string()
                } else {
                    format!("{from}-{to}")
                }
            })
            .collect();
        serializer.serialize_str(&parts.join(","))
    }
}

impl<'de> Deserialize<'de> for Cpus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = String::deserialize(deserializer)?;
        Self::parse(&list).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_lies_within_another() {
        for (inner, outer, expected) in [
            ("0-1", "0-3,8", true),
            ("8", "0-3,8", true),
            ("0-3,8", "8,0-3", true),
            ("3-5", "4-7,0-3", true),
            ("0-4", "0-3,8", false),
            ("", "0-3", false),
            ("0", "", false),
        ] {
            let (inner_set, outer_set) = (Cpus::parse(inner), Cpus::parse(outer));
            assert_eq!(
                inner_set.unwrap().are_within(&outer_set.unwrap()),
                expected,
                "{inner} {outer}"
            );
        }
    }

    #[test]
    fn what_is_no_list_is_refused_with_the_part_that_is_wrong() {
        for (list, part) in [("0,x", "x"), ("3-1", "3-1"), ("1-2-3", "1-2-3")] {
            let said = Cpus::parse(list).unwrap_err();
            assert!(said.contains(&format!("`{part}`")), "{said}");
        }
    }

    #[test]
    fn a_list_is_written_as_it_is_read() {
        let list: Cpus = serde_json::from_str("\"0-3, 8\"").unwrap();
        assert_eq!(serde_json::to_string(&list).unwrap(), "\"0-3,8\"");
        assert!(serde_json::from_str::<Cpus>("\"a\"").is_err());
    }
}
