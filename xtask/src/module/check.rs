//! Whether a module that was built fits the kernel that it was built for. What
//! does not fit may load all the same, and corrupt memory.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::parse::{self, Symbols};
use crate::command;

/// Structures that both modules must have, and have alike.
const SHARED: [&str; 5] = [
    "vhost_net",
    "vhost_net_virtqueue",
    "vhost_dev",
    "vhost_virtqueue",
    "vhost_poll",
];

/// All of these are compared, where both have them.
const PREFIX: &str = "vhost_";

const PARAMETERS: [&str; 2] = ["tx_batched", "poll_peer"];

/// Function names that every module has.
const COMMON: [&str; 2] = ["init_module", "cleanup_module"];

/// Which of the two modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Takes the place of the stock module.
    Replacement,
    /// Is put over the stock module while that runs.
    Livepatch,
}

impl Kind {
    /// Where the build leaves it.
    pub(super) fn built(self) -> &'static str {
        match self {
            Self::Replacement => "replace/vhost_net.ko",
            Self::Livepatch => "livepatch/livepatch-vhost-net.ko",
        }
    }

    /// Its file.
    pub(super) fn file(self) -> &'static str {
        self.built().rsplit('/').next().unwrap_or_default()
    }

    fn name(self) -> &'static str {
        match self {
            Self::Replacement => "vhost_net",
            Self::Livepatch => "livepatch_vhost_net",
        }
    }
}

/// What modules are measured against.
#[derive(Debug)]
pub(super) struct Reference {
    /// The kernel's own vhost_net, unpacked.
    pub(super) stock: PathBuf,
    /// A file with the kernel's type information.
    pub(super) types: PathBuf,
    /// The text of `Module.symvers`.
    pub(super) symvers: String,
    /// Whether this kernel checks symbols by checksum.
    pub(super) checksums: bool,
}

/// Checks one module; the error has all that is wrong with it.
pub(super) fn check(module: &Path, kind: Kind, reference: &Reference) -> Result<()> {
    let mut wrong = Vec::new();
    information(module, kind, reference, &mut wrong)?;
    let (ours, stock) = (symbols(module)?, symbols(&reference.stock)?);
    if reference.checksums {
        let dumped = command::output(tool("modprobe")?.arg("--dump-modversions").arg(module))?;
        wrong.extend(unlike(
            &dumped,
            &reference.symvers,
            ours.undefined.iter().map(String::as_str),
        ));
    }
    let text = |file: &Path| {
        let mut pahole = tool("pahole")?;
        pahole.arg("--btf_base").arg(&reference.types).arg(file);
        command::output(&mut pahole)
    };
    wrong.extend(layouts(&text(&reference.stock)?, &text(module)?));
    if kind == Kind::Livepatch {
        wrong.extend(taken(&ours, &stock));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    bail!(
        "{} does not fit its kernel, and must not be loaded:\n  {}",
        module.display(),
        wrong.join("\n  ")
    )
}

fn tool(name: &str) -> Result<Command> {
    let program = command::find(name)
        .with_context(|| format!("no {name} here: cargo xtask setup --only module-packages"))?;
    let mut command = Command::new(program);
    command.env("LC_ALL", "C");
    Ok(command)
}

fn symbols(module: &Path) -> Result<Symbols> {
    let listing = command::output(tool("readelf")?.arg("-sW").arg(module))?;
    Ok(Symbols::of(&listing))
}

/// What `modinfo` has to say.
fn information(
    module: &Path,
    kind: Kind,
    reference: &Reference,
    wrong: &mut Vec<String>,
) -> Result<()> {
    let field = |module: &Path, field: &str| {
        let text = command::output(tool("modinfo")?.args(["-F", field]).arg(module))?;
        anyhow::Ok(text.trim().to_owned())
    };
    let mut expect = |name: &str, wanted: &str| {
        let found = field(module, name)?;
        if found != wanted {
            wrong.push(format!("{name} is `{found}` where `{wanted}` is wanted"));
        }
        anyhow::Ok(())
    };
    expect("vermagic", &field(&reference.stock, "vermagic")?)?;
    expect("name", kind.name())?;
    expect("vhost_tuner", "1")?;
    if kind == Kind::Livepatch {
        expect("livepatch", "Y")?;
    }
    wrong.extend(parameters(&field(module, "parm")?));
    let sections = command::output(tool("readelf")?.arg("-SW").arg(module))?;
    if !sections.split_whitespace().any(|word| word == ".BTF") {
        wrong.push("no type information (.BTF) in it".to_owned());
    }
    Ok(())
}

fn parameters(listed: &str) -> Vec<String> {
    let there: HashSet<&str> = listed
        .lines()
        .filter_map(|line| line.split(':').next())
        .collect();
    PARAMETERS
        .iter()
        .filter(|name| !there.contains(**name))
        .map(|name| format!("no parameter {name}"))
        .collect()
}

/// Symbols whose checksums are not the kernel's.
fn unlike<'a>(
    dumped: &str,
    symvers: &str,
    undefined: impl Iterator<Item = &'a str>,
) -> Vec<String> {
    let (ours, theirs) = (parse::checksums(dumped), parse::checksums(symvers));
    let mut wrong: Vec<String> = ours
        .iter()
        .filter_map(|(symbol, sum)| match theirs.get(symbol) {
            Some(there) if there == sum => None,
            Some(there) => Some(format!(
                "{symbol} has checksum {sum:#010x}, in the kernel {there:#010x}"
            )),
            // The structure of every module, which no Module.symvers lists.
            None if *symbol == "module_layout" => None,
            None => Some(format!("{symbol} is not among the kernel's symbols")),
        })
        .collect();
    wrong.extend(
        undefined
            .filter(|symbol| !ours.contains_key(symbol))
            .map(|symbol| format!("{symbol} has no checksum")),
    );
    wrong.sort();
    wrong
}

/// Structures that the stock module has another layout of.
fn layouts(stock: &str, ours: &str) -> Vec<String> {
    let (stock, ours) = (
        parse::structures(stock, PREFIX),
        parse::structures(ours, PREFIX),
    );
    let mut wrong: Vec<String> = SHARED
        .iter()
        .filter(|name| !stock.contains_key(**name) || !ours.contains_key(**name))
        .map(|name| format!("struct {name} is not in the type information of both modules"))
        .collect();
    let differ = stock.iter().filter_map(|(name, stock)| {
        let ours = ours.get(name)?;
        let at = stock
            .iter()
            .zip(ours)
            .find(|(stock, ours)| stock != ours)
            .map(|(stock, ours)| (stock.trim(), ours.trim()))
            .or_else(|| (stock.len() != ours.len()).then_some(("(its end)", "(its end)")))?;
        Some(format!(
            "struct {name} has another layout: `{}` where the stock module has `{}`",
            at.1, at.0
        ))
    });
    wrong.extend(differ);
    wrong.sort();
    wrong
}

/// Names in a livepatch that may not be there: probes on a name that two
/// functions of a module and its livepatch share attach to neither.
fn taken(ours: &Symbols, stock: &Symbols) -> Vec<String> {
    let bare = |name: &str| name.strip_prefix("__pfx_").unwrap_or(name).to_owned();
    let mut wrong: Vec<String> = ours
        .functions
        .iter()
        .filter(|name| {
            let name = bare(name);
            !name.starts_with("vnt_") && !COMMON.contains(&name.as_str())
        })
        .map(|name| format!("the name of function {name} does not begin with vnt_"))
        .collect();
    let shared = ours.objects.intersection(&stock.objects);
    wrong.extend(
        shared
            // What the build system and the compiler name so in every module.
            .filter(|name| !name.starts_with('_') && *name != "orc_header")
            .map(|name| format!("data {name} has the name of data of the stock module")),
    );
    wrong.sort();
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_parameter_is_named() {
        let listed = "tx_batched:Most packets handed over together (uint)\nother:poll_peer (bool)";
        assert_eq!(parameters(listed), ["no parameter poll_peer"]);
    }

    #[test]
    fn checksums_have_to_be_the_kernels() {
        let symvers = "0x00000001\ta\tvmlinux\tEXPORT_SYMBOL\t\n0x00000002\tb\tv\tE\t\n";
        let dumped = "0x00000001\ta\n0x00000003\tb\n0x00000004\tc\n0x00000005\tmodule_layout\n";
        assert_eq!(
            unlike(dumped, symvers, ["a", "d"].into_iter()),
            [
                "b has checksum 0x00000003, in the kernel 0x00000002",
                "c is not among the kernel's symbols",
                "d has no checksum",
            ]
        );
        let none: [&str; 0] = [];
        assert_eq!(unlike("0x00000001\ta\n", symvers, ["a"].into_iter()), none);
    }

    fn structures(offset: u32) -> String {
        SHARED
            .iter()
            .map(|name| format!("struct {name} {{\n\tint a; /* {offset} 4 */\n}};\n"))
            .collect()
    }

    #[test]
    fn layouts_have_to_be_the_stock_modules() {
        let stock = structures(0);
        assert!(layouts(&stock, &stock).is_empty());
        let moved = stock.replacen("/* 0 4 */", "/* 8 4 */", 1);
        assert_eq!(
            layouts(&stock, &moved),
            [
                "struct vhost_net has another layout: `int a; /* 8 4 */` where the stock module \
                 has `int a; /* 0 4 */`"
            ]
        );
        let longer = stock.replacen("4 */\n", "4 */\n\n\tint b; /* 4 4 */\n", 1);
        assert_eq!(layouts(&stock, &longer).len(), 1);
        assert_eq!(layouts(&stock, "").len(), SHARED.len());
    }

    #[test]
    fn a_livepatch_shares_no_name_with_the_module() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let symbols = |functions: &[&str], objects: &[&str]| Symbols {
            functions: set(functions),
            objects: set(objects),
            undefined: HashSet::new(),
        };
        let stock = symbols(
            &["handle_rx", "init_module"],
            &["vhost_net_fops", "__this_module"],
        );
        let good = symbols(
            &[
                "vnt_handle_rx",
                "__pfx_vnt_handle_rx",
                "vnt_tx.constprop.0",
                "init_module",
                "__pfx_cleanup_module",
            ],
            &["vnt_fops", "__this_module"],
        );
        assert!(taken(&good, &stock).is_empty());
        let bad = symbols(&["handle_rx", "__pfx_helper"], &["vhost_net_fops"]);
        assert_eq!(taken(&bad, &stock).len(), 3);
    }
}
