//! What a module's file says of itself.

use object::{Object, ObjectSection};

/// What the kernel looks for at the very end of a signed module.
const SIGNATURE_MARK: &[u8] = b"~Module signature appended~\n";

/// What is in a module's file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// `key=value` pairs of `.modinfo`, in order; a key may be there twice.
    pub info: Vec<(String, String)>,
    /// Whether a signature is appended.
    pub signed: bool,
    /// Types, split off `btf_base` or else off the kernel's.
    pub btf: Option<Vec<u8>>,
    /// The part of the kernel's types that `btf` leans on, which newer tools
    /// put beside it for modules built outside the kernel's tree.
    pub btf_base: Option<Vec<u8>>,
}

impl Contents {
    /// Reads the bytes of a `.ko`.
    ///
    /// # Errors
    /// A sentence, if that is no module.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let file = object::File::parse(bytes).map_err(|why| format!("it is no ELF file: {why}"))?;
        let section = |name| -> Result<Option<Vec<u8>>, String> {
            let Some(section) = file.section_by_name(name) else {
                return Ok(None);
            };
            let data = section.data();
            let data = data.map_err(|why| format!("its section {name} cannot be read: {why}"))?;
            Ok(Some(data.to_vec()))
        };
        let info = section(".modinfo")?.ok_or("it has no section .modinfo, so it is no module")?;
        Ok(Self {
            info: pairs(&info),
            signed: bytes.ends_with(SIGNATURE_MARK),
            btf: section(".BTF")?,
            btf_base: section(".BTF.base")?,
        })
    }

    /// The first value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.info.iter().find(|(k, _)| k == key);
        found.map(|(_, value)| value.as_str())
    }

    /// Names of the modules that have to be loaded before.
    pub fn depends(&self) -> impl Iterator<Item = &str> {
        let list = self.get("depends").unwrap_or_default();
        list.split(',').filter(|name| !name.is_empty())
    }
}

/// Strings that end with zeros, of which there may be several for padding.
fn pairs(bytes: &[u8]) -> Vec<(String, String)> {
    bytes
        .split(|byte| *byte == 0)
        .filter_map(|text| {
            let text = String::from_utf8_lossy(text);
            let (key, value) = text.split_once('=')?;
            Some((key.to_owned(), value.to_owned()))
        })
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use object::write::Object as Writer;
    use object::{Architecture, BinaryFormat, Endianness, SectionKind};

    use super::*;

    /// An ELF file with these sections.
    pub(crate) fn module(sections: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = Writer::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        for (name, data) in sections {
            let name = name.as_bytes().to_vec();
            let id = writer.add_section(Vec::new(), name, SectionKind::ReadOnlyData);
            writer.append_section_data(id, data, 1);
        }
        writer.write().unwrap()
    }

    const INFO: &[u8] = b"vhost_tuner=1\0\0\0depends=vhost,tun,tap\0name=vhost_net\0\
        vermagic=6.1.0-57-amd64 SMP preempt mod_unload modversions \0parm=a:b=c\0nonsense\0";

    #[test]
    fn modinfo_is_read_from_an_elf_file() {
        let contents = Contents::parse(&module(&[(".modinfo", INFO), (".BTF", b"types")])).unwrap();
        assert_eq!(contents.get("vhost_tuner"), Some("1"));
        assert_eq!(contents.get("parm"), Some("a:b=c"));
        assert_eq!(contents.get("missing"), None);
        assert_eq!(
            contents.get("vermagic"),
            Some("6.1.0-57-amd64 SMP preempt mod_unload modversions ")
        );
        assert_eq!(
            contents.depends().collect::<Vec<_>>(),
            ["vhost", "tun", "tap"]
        );
        assert_eq!(contents.btf.as_deref(), Some(&b"types"[..]));
        assert_eq!(contents.btf_base, None);
        assert!(!contents.signed);
    }

    #[test]
    fn a_signature_stands_at_the_very_end() {
        let mut bytes = module(&[(".modinfo", INFO)]);
        bytes.extend_from_slice(b"pkcs7");
        bytes.extend_from_slice(SIGNATURE_MARK);
        assert!(Contents::parse(&bytes).unwrap().signed);
        bytes.push(b'x');
        assert!(!Contents::parse(&bytes).unwrap().signed);
    }

    #[test]
    fn no_dependencies_are_none() {
        let contents = Contents::parse(&module(&[(".modinfo", b"depends=\0")])).unwrap();
        assert_eq!(contents.depends().count(), 0);
    }

    #[test]
    fn what_is_no_module_is_told_in_words() {
        assert!(Contents::parse(b"#!/bin/sh\n").unwrap_err().contains("ELF"));
        let why = Contents::parse(&module(&[(".text", b"x")])).unwrap_err();
        assert!(why.contains(".modinfo"), "{why}");
    }
}
