//! What the kernel's files and the tools for modules print, read.

use std::collections::{HashMap, HashSet};

/// `VERSION.PATCHLEVEL.SUBLEVEL` of a kernel's source.
pub(super) type SourceVersion = (u32, u32, u32);

/// Of the `Makefile` at the top of a kernel's source.
pub(super) fn makefile_version(makefile: &str) -> Option<SourceVersion> {
    let value = |name: &str| {
        makefile.lines().find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == name).then(|| value.trim().parse().ok())?
        })
    };
    Some((value("VERSION")?, value("PATCHLEVEL")?, value("SUBLEVEL")?))
}

/// Of `include/generated/uapi/linux/version.h`.
pub(super) fn header_version(header: &str) -> Option<SourceVersion> {
    let value = |part: &str| {
        let name = format!("LINUX_VERSION_{part}");
        defined(header, &name)?.parse().ok()
    };
    Some((value("MAJOR")?, value("PATCHLEVEL")?, value("SUBLEVEL")?))
}

/// What a header defines this name as, without quotes.
pub(super) fn defined<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    header.lines().find_map(|line| {
        let line = line.strip_prefix("#define ")?.strip_prefix(name)?;
        let value = line.strip_prefix([' ', '\t'])?.trim();
        Some(value.trim_matches('"'))
    })
}

/// A kernel's configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct Config(HashMap<String, String>);

impl Config {
    /// From `.config` or `include/config/auto.conf`.
    pub(super) fn of(text: &str) -> Self {
        let lines = text.lines().filter(|line| line.starts_with("CONFIG_"));
        Self(
            lines
                .filter_map(|line| line.split_once('='))
                .map(|(name, value)| (name.to_owned(), value.trim_matches('"').to_owned()))
                .collect(),
        )
    }

    /// The value of `CONFIG_NAME`, without quotes.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(&format!("CONFIG_{name}")).map(String::as_str)
    }

    /// Whether `CONFIG_NAME` is `y`.
    pub(super) fn on(&self, name: &str) -> bool {
        self.get(name) == Some("y")
    }
}

/// The first word that is a version and nothing else: of what `gcc --version`
/// says first, and of what a kernel says of its compiler.
pub(super) fn compiler_version(text: &str) -> Option<&str> {
    text.split_whitespace().find(|word| {
        word.matches('.').count() == 2
            && word
                .split('.')
                .all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit()))
    })
}

/// Checksums of symbols: `modprobe --dump-modversions`, and `Module.symvers`,
/// which has more columns behind.
pub(super) fn checksums(text: &str) -> HashMap<&str, u32> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split('\t');
            let sum = words.next()?.trim().strip_prefix("0x")?;
            Some((words.next()?, u32::from_str_radix(sum, 16).ok()?))
        })
        .collect()
}

/// Names of symbols that `readelf -sW` lists.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Symbols {
    pub(super) functions: HashSet<String>,
    pub(super) objects: HashSet<String>,
    pub(super) undefined: HashSet<String>,
}

impl Symbols {
    pub(super) fn of(listing: &str) -> Self {
        let mut symbols = Self::default();
        for line in listing.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [number, _, _, kind, _, _, section, name] = words[..] else {
                continue;
            };
            if !number.ends_with(':') {
                continue;
            }
            let set = match (section, kind) {
                ("UND", _) => &mut symbols.undefined,
                (_, "FUNC") => &mut symbols.functions,
                (_, "OBJECT") => &mut symbols.objects,
                _ => continue,
            };
            set.insert(name.to_owned());
        }
        symbols
    }
}

/// The structures in what pahole prints whose names begin with `prefix`.
pub(super) fn structures<'a>(text: &'a str, prefix: &str) -> HashMap<&'a str, Vec<&'a str>> {
    let mut found: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut current = None;
    for line in text.lines() {
        if let Some(name) = line
            .strip_prefix("struct ")
            .and_then(|rest| rest.strip_suffix(" {"))
        {
            // The first of several wins; the others are of other files.
            current =
                Some(name).filter(|name| name.starts_with(prefix) && !found.contains_key(name));
        }
        if let Some(name) = current {
            found.entry(name).or_default().push(line);
            if line.starts_with('}') {
                current = None;
            }
        }
    }
    found
}

/// Complaints of gcc and sparse about any of these files, and those of modpost.
pub(super) fn complaints<'a>(output: &'a str, files: &HashSet<String>) -> Vec<&'a str> {
    output
        .lines()
        .filter(|line| {
            let place = line.split(':').next().unwrap_or_default();
            let name = place.rsplit('/').next().unwrap_or_default();
            let ours = files.contains(name)
                && [" warning: ", " error: ", " fatal error: "]
                    .iter()
                    .any(|word| line.contains(word));
            ours || line.starts_with("WARNING: modpost:") || line.starts_with("ERROR: modpost:")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_same_in_makefile_and_header() {
        let makefile = "# SPDX-License-Identifier: GPL-2.0\nVERSION = 6\nPATCHLEVEL = 12\n\
                        SUBLEVEL = 117\nEXTRAVERSION =\nNAME = Baby Opossum Posse\n";
        let header = "#define LINUX_VERSION_CODE 396405\n#define LINUX_VERSION_MAJOR 6\n\
                      #define LINUX_VERSION_PATCHLEVEL 12\n#define LINUX_VERSION_SUBLEVEL 117\n";
        assert_eq!(makefile_version(makefile), Some((6, 12, 117)));
        assert_eq!(header_version(header), makefile_version(makefile));
        assert_eq!(makefile_version("all:\n\techo VERSION\n"), None);
    }

    #[test]
    fn a_definition_loses_its_quotes() {
        let header = "#define UTS_RELEASE_NOT \"no\"\n#define UTS_RELEASE \"6.1.0-57-amd64\"\n";
        assert_eq!(defined(header, "UTS_RELEASE"), Some("6.1.0-57-amd64"));
    }

    #[test]
    fn configuration() {
        let config = Config::of(
            "# CONFIG_TEST_LIVEPATCH is not set\nCONFIG_LIVEPATCH=y\nCONFIG_VHOST_NET=m\n\
             CONFIG_CC_VERSION_TEXT=\"gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0\"\n",
        );
        assert!(config.on("LIVEPATCH") && !config.on("TEST_LIVEPATCH") && !config.on("VHOST_NET"));
        assert_eq!(config.get("VHOST_NET"), Some("m"));
        let text = config.get("CC_VERSION_TEXT").unwrap();
        assert_eq!(compiler_version(text), Some("12.2.0"));
    }

    #[test]
    fn compilers_of_several_distributions() {
        for (text, version) in [
            ("gcc (GCC) 13.2.1 20230801 (Red Hat 13.2.1-1)", "13.2.1"),
            (
                "x86_64-linux-gnu-gcc-13 (Ubuntu 13.2.0-23ubuntu4) 13.2.0",
                "13.2.0",
            ),
        ] {
            assert_eq!(compiler_version(text), Some(version));
        }
        assert_eq!(compiler_version("cc: not found"), None);
    }

    #[test]
    fn checksums_of_both_kinds() {
        let dumped = "0xdbc8ba4e\tvhost_poll_init\n0x65487097\t__x86_indirect_thunk_rax\n";
        let symvers = "0xdbc8ba4e\tvhost_poll_init\tdrivers/vhost/vhost\tEXPORT_SYMBOL_GPL\t\n\
                       0x65487097\t__x86_indirect_thunk_rax\tvmlinux\tEXPORT_SYMBOL\t\n";
        assert_eq!(checksums(dumped), checksums(symvers));
        assert_eq!(checksums(dumped)["vhost_poll_init"], 0xdbc8_ba4e);
    }

    #[test]
    fn symbols_by_kind() {
        let symbols = Symbols::of(
            "   Num:    Value          Size Type    Bind   Vis      Ndx Name\n\
             \x20    0: 0000000000000000     0 NOTYPE  LOCAL  DEFAULT  UND \n\
             \x20    1: 0000000000000000     0 SECTION LOCAL  DEFAULT    3 .text\n\
             \x20   20: 0000000000000000    33 FUNC    LOCAL  DEFAULT    5 vhost_net_init\n\
             \x20   23: 0000000000000000    80 OBJECT  LOCAL  DEFAULT   30 vhost_net_misc\n\
             \x20   85: 0000000000000000     0 NOTYPE  GLOBAL DEFAULT  UND sched_clock_cpu\n",
        );
        let set = |names: [&str; 1]| HashSet::from(names.map(str::to_owned));
        assert_eq!(symbols.functions, set(["vhost_net_init"]));
        assert_eq!(symbols.objects, set(["vhost_net_misc"]));
        assert_eq!(symbols.undefined, set(["sched_clock_cpu"]));
    }

    #[test]
    fn structures_by_prefix() {
        let text = "struct list_head {\n\tint a;\n};\nstruct vhost_work {\n\tint b; /* 0 4 */\n\n\
                    \t/* size: 4 */\n} __attribute__((__packed__));\nunion vhost_u {\n};\n";
        let found = structures(text, "vhost_");
        assert_eq!(found.len(), 1);
        assert_eq!(found["vhost_work"].len(), 5);
        assert_eq!(found["vhost_work"][1], "\tint b; /* 0 4 */");
    }

    #[test]
    fn only_complaints_about_our_own_files_count() {
        let files = HashSet::from(["vnt_poll.c".to_owned()]);
        let output = "  CC [M]  /t/vnt_poll.o\n\
                      In file included from /t/vnt_poll.c:1:\n\
                      /t/net.c:12:3: warning: context imbalance in 'x'\n\
                      ./include/linux/list.h:1:1: error: bad\n\
                      /t/vnt_poll.c:7:2: warning: symbol 'y' was not declared\n\
                      /t/vnt_poll.c:7:2: note: here\n\
                      WARNING: modpost: missing MODULE_LICENSE()\n";
        assert_eq!(
            complaints(output, &files),
            [
                "/t/vnt_poll.c:7:2: warning: symbol 'y' was not declared",
                "WARNING: modpost: missing MODULE_LICENSE()"
            ]
        );
    }
}
