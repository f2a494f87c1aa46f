//! Whether a livepatch was compiled with the structures that the running
//! vhost_net uses: with others it would corrupt memory.
//!
//! Structures are compared down to what lies inside them by value. What a
//! pointer leads to is another structure, in the list below or the kernel's.

use std::path::Path;

use btf_rs::{Btf, BtfType, Struct, Type};

use super::VHOST_NET;
use super::elf::Contents;
use crate::inspect::btf;

/// Structures that the livepatch's functions share with the stock ones.
const SHARED: [&str; 5] = [
    "vhost_net",
    "vhost_virtqueue",
    "vhost_dev",
    "vhost_net_virtqueue",
    "vhost_poll",
];
/// More of them, each known to some kernels only.
const MORE: [&str; 7] = [
    "vhost_worker",
    "vhost_work",
    "vhost_iotlb",
    "vhost_iotlb_map",
    "vhost_net_ubuf_ref",
    "vhost_net_buf",
    "vhost_msg_node",
];

/// No structure of the kernel is nested deeper.
const DEEPEST: u32 = 24;
/// Nor has one that many members. BTF for another kernel may look as if.
const MOST_MEMBERS: u32 = 20_000;

/// How something lies in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    /// A number, by its size in bytes.
    Scalar(usize),
    /// A pointer.
    Pointer,
    /// So many of something.
    Array(usize, Box<Shape>),
    /// A structure or union.
    Compound { size: usize, members: Vec<Member> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    name: String,
    bit_offset: u32,
    /// Bits of a bit field, else 0.
    bits: u32,
    shape: Shape,
}

impl Shape {
    fn size(&self) -> usize {
        match self {
            Self::Scalar(size) | Self::Compound { size, .. } => *size,
            Self::Pointer => size_of::<u64>(),
            Self::Array(len, of) => len * of.size(),
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Scalar(_) => "a number",
            Self::Pointer => "a pointer",
            Self::Array(..) => "an array",
            Self::Compound { .. } => "a structure",
        }
    }

    /// The first difference to `running`, in words; `at` names what is compared.
    fn difference(&self, running: &Self, at: &str) -> Option<String> {
        if self.size() != running.size() {
            return Some(format!(
                "{at} has {} bytes in the file and {} in the running module",
                self.size(),
                running.size()
            ));
        }
        match (self, running) {
            (Self::Scalar(_), Self::Scalar(_)) | (Self::Pointer, Self::Pointer) => None,
            (Self::Array(mine, a), Self::Array(theirs, b)) if mine == theirs => {
                a.difference(b, &format!("{at}[]"))
            }
            (Self::Compound { members: a, .. }, Self::Compound { members: b, .. }) => {
                // Types of the kernel's own may be known by their size only.
                if a.is_empty() || b.is_empty() {
                    return None;
                }
                members_differ(a, b, at)
            }
            _ => Some(format!(
                "{at} is {} in the file and {} in the running module",
                self.word(),
                running.word()
            )),
        }
    }
}

fn members_differ(file: &[Member], running: &[Member], at: &str) -> Option<String> {
    for (mine, theirs) in file.iter().zip(running) {
        let name = format!("{at}.{}", mine.name);
        if mine.name != theirs.name {
            return Some(format!(
                "{name} is {at}.{} in the running module",
                theirs.name
            ));
        }
        if mine.bit_offset != theirs.bit_offset || mine.bits != theirs.bits {
            return Some(format!(
                "{name} lies at bit {} in the file and at bit {} in the running module",
                mine.bit_offset, theirs.bit_offset
            ));
        }
        let found = mine.shape.difference(&theirs.shape, &name);
        if found.is_some() {
            return found;
        }
    }
    (file.len() != running.len()).then(|| {
        format!(
            "{at} has {} members in the file and {} in the running module",
            file.len(),
            running.len()
        )
    })
}

/// Draws shapes from BTF.
struct Reader<'a> {
    btf: &'a Btf,
    members_left: u32,
}

impl Reader<'_> {
    /// The shape of `struct name`; none if there is none.
    fn structure(&mut self, name: &str) -> Result<Option<Shape>, String> {
        let found = self.btf.resolve_types_by_name(name).unwrap_or_default();
        let found = found.into_iter().find_map(|kind| match kind {
            Type::Struct(found) => Some(found),
            _ => None,
        });
        let shape = found.map(|found| self.compound(&found, 0));
        shape
            .transpose()
            .map_err(|why| format!("struct {name}: {why}"))
    }

    fn compound(&mut self, of: &Struct, depth: u32) -> Result<Shape, String> {
        if depth > DEEPEST {
            return Err("the BTF is nested too deeply to be this kernel's".to_owned());
        }
        let mut members = Vec::with_capacity(of.members.len());
        for member in &of.members {
            self.members_left = self
                .members_left
                .checked_sub(1)
                .ok_or("the BTF is too large to be this kernel's")?;
            members.push(Member {
                name: self.btf.resolve_name(member).unwrap_or_default(),
                bit_offset: member.bit_offset(),
                bits: member.bitfield_size().unwrap_or(0),
                shape: self.shape(member, depth)?,
            });
        }
        Ok(Shape::Compound {
            size: of.size(),
            members,
        })
    }

    /// The shape of the type behind `of`, through typedefs and qualifiers.
    fn shape(&mut self, of: &(impl BtfType + ?Sized), depth: u32) -> Result<Shape, String> {
        let mut kind = self.chained(of)?;
        // A chain is as long as somebody writes it; a circle is a broken one.
        for _ in 0..64 {
            kind = match &kind {
                Type::Int(it) => return Ok(Shape::Scalar(it.size())),
                Type::Float(it) => return Ok(Shape::Scalar(it.size())),
                Type::Enum(it) => return Ok(Shape::Scalar(it.size())),
                Type::Enum64(it) => return Ok(Shape::Scalar(it.size())),
                Type::Ptr(_) => return Ok(Shape::Pointer),
                Type::Struct(it) | Type::Union(it) => return self.compound(it, depth + 1),
                Type::Array(it) => {
                    let element = self.shape(it, depth + 1)?;
                    return Ok(Shape::Array(it.len(), Box::new(element)));
                }
                Type::Typedef(it) => self.chained(it)?,
                Type::Volatile(it) | Type::Const(it) | Type::Restrict(it) => self.chained(it)?,
                Type::TypeTag(it) => self.chained(it)?,
                other => return Err(format!("a member is a {}", other.name())),
            };
        }
        Err("the BTF goes in a circle".to_owned())
    }

    fn chained(&self, of: &(impl BtfType + ?Sized)) -> Result<Type, String> {
        self.btf
            .resolve_chained_type(of)
            .map_err(|why| why.to_string())
    }
}

/// Holds two sets of types against each other. `Err` is the first difference.
fn compare(file: &Btf, running: &Btf) -> Result<(), String> {
    let mut mine = reader(file);
    let mut theirs = reader(running);
    for name in SHARED.iter().chain(&MORE) {
        let pair = (mine.structure(name)?, theirs.structure(name)?);
        match pair {
            (Some(a), Some(b)) => {
                if let Some(why) = a.difference(&b, &format!("struct {name}")) {
                    return Err(why);
                }
            }
            _ if MORE.contains(name) => {}
            (None, _) => return Err(format!("the file's BTF has no struct {name}")),
            (_, None) => return Err(format!("the running module's BTF has no struct {name}")),
        }
    }
    Ok(())
}

fn reader(btf: &Btf) -> Reader<'_> {
    Reader {
        btf,
        members_left: MOST_MEMBERS,
    }
}

/// Whether the structures in a livepatch's file are those of the running
/// vhost_net. `folder` is where the kernel shows BTF, `/sys/kernel/btf`.
///
/// # Errors
/// A sentence that says what differs or what is missing.
pub fn check(contents: &Contents, folder: &Path) -> Result<(), String> {
    let types = contents.btf.as_deref().ok_or(
        "the file carries no BTF, so they cannot be compared: build it with \
         CONFIG_DEBUG_INFO_BTF_MODULES and pahole",
    )?;
    let image = btf::open(&folder.join("vmlinux")).map_err(|why| {
        format!("this kernel's own BTF (/sys/kernel/btf/vmlinux) cannot be read: {why}")
    })?;
    let running = Btf::from_split_file(folder.join(VHOST_NET), &image).map_err(|why| {
        format!("the running vhost_net's BTF (/sys/kernel/btf/vhost_net) cannot be read: {why}")
    })?;
    let broken = |why: btf_rs::Error| format!("the file's BTF cannot be read: {why}");
    let base = contents.btf_base.as_deref();
    let base = base.map(Btf::from_bytes).transpose().map_err(broken)?;
    let file = Btf::from_split_bytes(types, base.as_ref().unwrap_or(&image)).map_err(broken)?;
    compare(&file, &running)
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
