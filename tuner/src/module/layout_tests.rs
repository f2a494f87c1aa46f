use std::fs;

use super::super::elf::Contents;
use super::*;

const INT: u32 = 1;
const STRUCT: u32 = 4;
const PTR: u32 = 2;
const ARRAY: u32 = 3;

/// Writes BTF types one after the other.
#[derive(Default)]
struct Blob {
    types: Vec<u8>,
    names: Vec<u8>,
    /// What names begin at: the base's length in split BTF.
    names_from: u32,
    last: u32,
}

impl Blob {
    fn base() -> Self {
        Self {
            names: vec![0],
            ..Self::default()
        }
    }

    fn split_off(base: &Self) -> Self {
        Self {
            names: vec![0],
            names_from: base.names.len() as u32,
            last: base.last,
            ..Self::default()
        }
    }

    fn words(&mut self, words: &[u32]) {
        for word in words {
            self.types.extend_from_slice(&word.to_le_bytes());
        }
    }

    fn name(&mut self, name: &str) -> u32 {
        let at = self.names_from + self.names.len() as u32;
        self.names.extend_from_slice(name.as_bytes());
        self.names.push(0);
        at
    }

    fn push(&mut self, name: &str, kind: u32, members: u32, size: u32) -> u32 {
        let name = if name.is_empty() { 0 } else { self.name(name) };
        self.words(&[name, kind << 24 | members, size]);
        self.last += 1;
        self.last
    }

    fn int(&mut self, name: &str, bytes: u32) -> u32 {
        let id = self.push(name, INT, 0, bytes);
        self.words(&[bytes * 8]);
        id
    }

    fn pointer(&mut self, to: u32) -> u32 {
        self.push("", PTR, 0, to)
    }

    fn array(&mut self, of: u32, len: u32) -> u32 {
        let id = self.push("", ARRAY, 0, 0);
        self.words(&[of, of, len]);
        id
    }

    /// Members are (name, type, byte offset).
    fn structure(&mut self, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        let id = self.push(name, STRUCT, members.len() as u32, size);
        for (name, of, at) in members {
            let name = self.name(name);
            self.words(&[name, *of, at * 8]);
        }
        id
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&0xeb9f_u16.to_le_bytes());
        out.extend_from_slice(&[1, 0]);
        let (types, names) = (self.types.len() as u32, self.names.len() as u32);
        for word in [24, 0, types, types, names] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.types);
        out.extend_from_slice(&self.names);
        out
    }
}

/// The kernel's own types: 1 is an int, 2 a pointer, 3 `struct mutex`.
fn image() -> Blob {
    let mut blob = Blob::base();
    let int = blob.int("int", 4);
    blob.pointer(int);
    blob.structure("mutex", 8, &[("owner", 2, 0)]);
    blob
}

/// vhost_net's types; `shift` moves a member of `struct vhost_poll`.
fn module(base: &Blob, shift: u32, queues: u32) -> Blob {
    let mut blob = Blob::split_off(base);
    let poll = blob.structure("vhost_poll", 24, &[("table", 2, 0), ("mask", 1, 8 + shift)]);
    let members = [("mutex", 3, 0), ("poll", poll, 8), ("kick", 2, 32)];
    let queue = blob.structure("vhost_virtqueue", 40, &members);
    let nvq = blob.structure(
        "vhost_net_virtqueue",
        48,
        &[("vq", queue, 0), ("done", 1, 40)],
    );
    let dev = blob.structure("vhost_dev", 16, &[("mm", 2, 0), ("nvqs", 1, 8)]);
    let vqs = blob.array(nvq, queues);
    let members = [("dev", dev, 0), ("vqs", vqs, 16)];
    blob.structure("vhost_net", 16 + 48 * queues, &members);
    blob
}

fn checked(file: Option<Vec<u8>>, base: Option<Vec<u8>>) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("vmlinux"), image().bytes()).unwrap();
    let running = module(&image(), 0, 2).bytes();
    fs::write(folder.path().join("vhost_net"), running).unwrap();
    let contents = Contents {
        btf: file,
        btf_base: base,
        ..Contents::default()
    };
    check(&contents, folder.path())
}

#[test]
fn the_same_structures_fit() {
    assert_eq!(checked(Some(module(&image(), 0, 2).bytes()), None), Ok(()));
}

#[test]
fn a_member_that_moved_is_named() {
    let why = checked(Some(module(&image(), 4, 2).bytes()), None).unwrap_err();
    assert!(why.contains(".vq.poll.mask lies at bit 96"), "{why}");
}

#[test]
fn another_size_is_named() {
    let why = checked(Some(module(&image(), 0, 3).bytes()), None).unwrap_err();
    assert_eq!(
        why,
        "struct vhost_net has 160 bytes in the file and 112 in the running module"
    );
}

#[test]
fn types_beside_the_file_may_know_only_sizes() {
    let mut base = Blob::base();
    let int = base.int("int", 4);
    base.pointer(int);
    base.structure("mutex", 8, &[]);
    let file = module(&base, 0, 2).bytes();
    assert_eq!(checked(Some(file), Some(base.bytes())), Ok(()));
}

#[test]
fn a_file_without_types_or_without_a_structure_does_not_fit() {
    assert!(checked(None, None).unwrap_err().contains("no BTF"));
    let mut blob = Blob::split_off(&image());
    blob.structure("vhost_net", 112, &[]);
    let why = checked(Some(blob.bytes()), None).unwrap_err();
    assert!(why.contains("no struct vhost_virtqueue"), "{why}");
}

#[test]
fn damaged_types_do_not_fit_and_do_no_harm() {
    assert!(checked(Some(b"\x9f\xebjunk".to_vec()), None).is_err());
    let mut bytes = module(&image(), 0, 2).bytes();
    bytes.truncate(bytes.len() / 2);
    assert!(checked(Some(bytes), None).is_err());
}

#[test]
fn a_structure_inside_itself_ends() {
    let mut blob = Blob::split_off(&image());
    let own = blob.last + 1;
    blob.structure("vhost_net", 8, &[("a", own, 0), ("b", own, 0)]);
    let why = checked(Some(blob.bytes()), None).unwrap_err();
    assert!(why.contains("too"), "{why}");
}

#[test]
fn a_kernel_that_does_not_show_its_types_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let contents = Contents {
        btf: Some(module(&image(), 0, 2).bytes()),
        ..Contents::default()
    };
    let why = check(&contents, folder.path()).unwrap_err();
    assert!(why.contains("vmlinux"), "{why}");
}
