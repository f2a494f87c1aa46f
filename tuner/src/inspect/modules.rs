//! Which modules are there, told cheaply enough to be asked often, and what is
//! to be known about our livepatch.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tuner_common::layout::ABSENT;

use super::btf::{BtfError, Types};
use super::kallsyms::Kallsyms;
use super::{WANTED, layout};
use crate::knob::module::LIVEPATCH;

/// The modules whose functions are probed, each by the inode of its folder in
/// sysfs, which is another one once it was loaded anew. None while a module is
/// not there, is being loaded or is going.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modules {
    /// vhost_net, whoever built it.
    pub vhost_net: Option<u64>,
    /// Our livepatch.
    pub livepatch: Option<u64>,
}

impl Modules {
    /// Looks at sysfs.
    #[must_use]
    pub fn look() -> Self {
        Self::look_under(Path::new("/sys"))
    }

    fn look_under(sys: &Path) -> Self {
        let folder = |name| sys.join("module").join(name);
        let state = |name| fs::read_to_string(folder(name).join("initstate"));
        let inode = |name| fs::metadata(folder(name)).ok().map(|meta| meta.ino());
        // What is built in has no state.
        let loaded = state("vhost_net").map_or(true, |state| state.trim() == "live");
        // A livepatch is at work before it is live: its tasks move over while
        // it is being loaded, which may take seconds.
        let at_work = sys.join("kernel/livepatch").join(LIVEPATCH).exists();
        let patched = state(LIVEPATCH).is_ok_and(|state| match state.trim() {
            "live" => true,
            "coming" => at_work,
            _ => false,
        });
        Self {
            vhost_net: loaded.then(|| inode("vhost_net")).flatten(),
            livepatch: patched.then(|| inode(LIVEPATCH)).flatten(),
        }
    }
}

/// Facts about the livepatch that is loaded.
#[derive(Clone, Debug)]
pub struct Livepatch {
    /// Symbols, its own among them.
    pub symbols: Kallsyms,
    /// Offset in `struct pt_regs` of the argument `busyloop_intr` of its copy
    /// of `vhost_net_busy_poll`, or [`ABSENT`].
    pub arg_poll_intr: u32,
}

impl Livepatch {
    /// Name of its copy of `vhost_net_busy_poll`.
    pub const BUSY_POLL: &str = "vnt_vhost_net_busy_poll";

    /// Reads kallsyms and its BTF.
    #[must_use]
    pub fn inspect() -> Self {
        let text = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        Self::with(Kallsyms::parse(&text, &WANTED))
    }

    /// The same with symbols that were read already.
    pub(super) fn with(symbols: Kallsyms) -> Self {
        let arg_poll_intr = argument().unwrap_or_else(|why| {
            log::debug!("{LIVEPATCH}: {why}");
            ABSENT
        });
        Self {
            symbols,
            arg_poll_intr,
        }
    }
}

fn argument() -> Result<u32, BtfError> {
    let folder = Path::new("/sys/kernel/btf");
    let kernel = Types::kernel(&folder.join("vmlinux"))?;
    let types = Types::module(&folder.join(LIVEPATCH), &kernel)?;
    Ok(layout::argument(
        &types,
        Livepatch::BUSY_POLL,
        "busyloop_intr",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(sys: &Path, name: &str, state: &str) {
        let folder = sys.join("module").join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("initstate"), state).unwrap();
    }

    #[test]
    fn a_module_counts_while_it_is_live() {
        let sys = tempfile::tempdir().unwrap();
        assert_eq!(Modules::look_under(sys.path()), Modules::default());
        module(sys.path(), "vhost_net", "live\n");
        let before = Modules::look_under(sys.path());
        assert!(before.vhost_net.is_some());
        module(sys.path(), LIVEPATCH, "live\n");
        let after = Modules::look_under(sys.path());
        assert!(after.livepatch.is_some());
        assert_eq!(after.vhost_net, before.vhost_net);
        module(sys.path(), LIVEPATCH, "going\n");
        assert_eq!(Modules::look_under(sys.path()), before);
    }

    #[test]
    fn a_livepatch_counts_from_when_it_is_at_work() {
        let sys = tempfile::tempdir().unwrap();
        module(sys.path(), LIVEPATCH, "coming\n");
        assert_eq!(Modules::look_under(sys.path()).livepatch, None);
        fs::create_dir_all(sys.path().join("kernel/livepatch").join(LIVEPATCH)).unwrap();
        let at_work = Modules::look_under(sys.path());
        assert!(at_work.livepatch.is_some());
        module(sys.path(), LIVEPATCH, "live\n");
        assert_eq!(Modules::look_under(sys.path()), at_work);
    }

    #[test]
    fn what_is_built_in_has_no_state() {
        let sys = tempfile::tempdir().unwrap();
        fs::create_dir_all(sys.path().join("module/vhost_net/parameters")).unwrap();
        assert!(Modules::look_under(sys.path()).vhost_net.is_some());
    }
}
