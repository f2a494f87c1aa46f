//! Symbols of the running kernel, from `/proc/kallsyms`.

use std::collections::BTreeMap;

/// One symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Its name, with the suffix of a compiler clone if it is one.
    pub name: String,
    /// Address; 0 where the kernel hides it (`kptr_restrict`).
    pub address: u64,
    /// True for a function.
    pub text: bool,
    /// Module it lives in; none in the kernel image.
    pub module: Option<String>,
}

impl Symbol {
    /// True for a copy that the compiler made (`.constprop.0`, `.isra.0`): its
    /// arguments may differ from the source's.
    #[must_use]
    pub fn is_clone(&self) -> bool {
        self.name.contains('.')
    }
}

/// The symbols that somebody asked about.
#[derive(Clone, Debug, Default)]
pub struct Kallsyms {
    by_base: BTreeMap<String, Vec<Symbol>>,
}

impl Kallsyms {
    /// Keeps those symbols of `text` (the format of `/proc/kallsyms`) whose
    /// name up to the first dot is one of `wanted`. Lines that cannot be read
    /// are passed over, as are split-off cold parts, which are no functions.
    #[must_use]
    pub fn parse(text: &str, wanted: &[&str]) -> Self {
        let mut by_base: BTreeMap<String, Vec<Symbol>> = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let base = name.split('.').next().unwrap_or(name);
            if !wanted.contains(&base) || name.contains(".cold") {
                continue;
            }
            let Ok(address) = u64::from_str_radix(address, 16) else {
                continue;
            };
            let module = words
                .next()
                .map(|word| word.trim_matches(['[', ']']).to_owned());
            by_base.entry(base.to_owned()).or_default().push(Symbol {
                name: name.to_owned(),
                address,
                text: kind.eq_ignore_ascii_case("t"),
                module,
            });
        }
        Self { by_base }
    }

    /// Functions called `base` or clones of it that live in `module` or in the
    /// kernel image; the module's before the image's, which may be somebody
    /// else's, and the plain one before clones.
    #[must_use]
    pub fn functions(&self, base: &str, module: &str) -> Vec<&Symbol> {
        let mut found: Vec<_> = self
            .all(base)
            .filter(|s| s.text && s.module.as_deref().is_none_or(|m| m == module))
            .collect();
        found.sort_by_key(|s| (s.module.is_none(), s.is_clone()));
        found
    }

    /// The plain function `base` of `module` or the kernel image.
    #[must_use]
    pub fn function(&self, base: &str, module: &str) -> Option<&Symbol> {
        self.functions(base, module)
            .into_iter()
            .find(|s| !s.is_clone())
    }

    /// How many functions bear exactly this name, anywhere.
    #[must_use]
    pub fn namesakes(&self, name: &str) -> usize {
        let base = name.split('.').next().unwrap_or(name);
        self.all(base).filter(|s| s.text && s.name == name).count()
    }

    fn all(&self, base: &str) -> impl Iterator<Item = &Symbol> {
        self.by_base.get(base).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
ffffffffc0a01000 t handle_tx\t[vhost_net]
ffffffffc0a02000 t handle_tx.cold\t[vhost_net]
ffffffffc0a03000 t __pfx_handle_tx\t[vhost_net]
ffffffffc0a04000 t vhost_notify.constprop.0\t[vhost]
ffffffffc0a05000 T vhost_signal\t[vhost]
ffffffffc0b05000 t handle_tx\t[livepatch_other]
not a line
ffffffff81000000 T _text
";

    fn symbols() -> Kallsyms {
        Kallsyms::parse(TEXT, &["handle_tx", "vhost_notify", "vhost_signal"])
    }

    #[test]
    fn a_function_is_found_in_its_module_only() {
        let found = symbols().function("handle_tx", "vhost_net").cloned();
        assert_eq!(found.map(|s| s.address), Some(0xffff_ffff_c0a0_1000));
        assert!(symbols().function("handle_tx", "vhost").is_none());
    }

    #[test]
    fn cold_parts_and_prefixes_are_no_functions() {
        assert_eq!(symbols().functions("handle_tx", "vhost_net").len(), 1);
    }

    #[test]
    fn a_clone_is_told_from_the_plain_function() {
        let all = symbols();
        let clones = all.functions("vhost_notify", "vhost");
        assert_eq!(clones.len(), 1);
        assert!(clones[0].is_clone());
        assert!(all.function("vhost_notify", "vhost").is_none());
    }

    #[test]
    fn namesakes_are_counted_over_all_modules() {
        assert_eq!(symbols().namesakes("handle_tx"), 2);
        assert_eq!(symbols().namesakes("vhost_signal"), 1);
        assert_eq!(symbols().namesakes("vhost_notify.constprop.0"), 1);
    }

    #[test]
    fn a_modules_function_comes_before_a_namesake_of_the_image() {
        let text = format!("ffffffff81000000 t handle_tx\n{TEXT}");
        let symbols = Kallsyms::parse(&text, &["handle_tx"]);
        let found = symbols.function("handle_tx", "vhost_net");
        assert_eq!(found.and_then(|s| s.module.as_deref()), Some("vhost_net"));
    }
}
