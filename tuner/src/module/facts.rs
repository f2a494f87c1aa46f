//! Reads the facts about this kernel from `/sys`, `/proc` and `/lib/modules`.

use std::fs;
use std::path::Path;

use super::state::{Facts, Form, Livepatch, Parameters, User};
use super::{LIVEPATCH, VHOST_NET};
use crate::inventory::proc::{ProcStatus, vhost_net_openers_under, vm_name};

/// Bit of CAP_SYS_MODULE, capabilities(7).
const CAP_SYS_MODULE: u32 = 16;

impl Facts {
    /// Looks at the running kernel.
    #[must_use]
    pub fn read() -> Self {
        Self::read_under(Path::new("/"))
    }

    /// The same for a system that was captured under `root`.
    #[must_use]
    pub fn read_under(root: &Path) -> Self {
        let release = line(root, "proc/sys/kernel/osrelease").unwrap_or_default();
        let yes = |path| line(root, path).is_some_and(|text| text == "Y" || text == "1");
        let number = |path: String| line(root, &path)?.parse().ok();
        let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
        let capabilities = ProcStatus::from_text(&status).capabilities.unwrap_or(0);
        let (users, hidden) = users(root);
        Self {
            modules: root.join("proc/modules").exists(),
            vhost_net: presence(root, &release),
            parameters: parameters(root, VHOST_NET),
            zero_copy: line(root, "sys/module/vhost_net/parameters/experimental_zcopytx")
                .map(|text| text != "0"),
            references: number(format!("sys/module/{VHOST_NET}/refcnt")),
            livepatch: livepatch(root),
            livepatch_module: root.join("sys/module").join(LIVEPATCH).exists(),
            livepatch_parameters: parameters(root, LIVEPATCH),
            livepatch_supported: root.join("sys/kernel/livepatch").is_dir(),
            lockdown: line(root, "sys/kernel/security/lockdown").and_then(|text| bracketed(&text)),
            signature_enforced: yes("sys/module/module/parameters/sig_enforce"),
            modules_disabled: yes("proc/sys/kernel/modules_disabled"),
            privileged: capabilities >> CAP_SYS_MODULE & 1 == 1,
            release,
            users,
            hidden,
        }
    }
}

/// What sysfs says of our livepatch now.
pub(super) fn livepatch_now() -> Option<Livepatch> {
    livepatch(Path::new("/"))
}

/// All parameters of a loaded module as they would be written on a command
/// line.
pub(super) fn parameter_line(module: &str) -> String {
    let folder = Path::new("/sys/module").join(module).join("parameters");
    let mut list: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let value = fs::read_to_string(entry.path()).ok()?;
            let name = entry.file_name().into_string().ok()?;
            Some(format!("{name}={}", value.trim()))
        })
        .collect();
    list.sort();
    list.join(" ")
}

fn line(root: &Path, path: &str) -> Option<String> {
    let text = fs::read_to_string(root.join(path)).ok()?;
    Some(text.trim().to_owned())
}

/// The word in brackets.
fn bracketed(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

fn presence(root: &Path, release: &str) -> Form {
    let folder = root.join("sys/module").join(VHOST_NET);
    if folder.join("initstate").exists() {
        return Form::Loaded;
    }
    // What is built in has a folder for its parameters only.
    let list = root
        .join("lib/modules")
        .join(release)
        .join("modules.builtin");
    let list = fs::read_to_string(list).unwrap_or_default();
    let built_in = list.lines().any(|path| path.ends_with("/vhost_net.ko"));
    if built_in || folder.exists() {
        Form::BuiltIn
    } else {
        Form::Absent
    }
}

fn parameters(root: &Path, module: &str) -> Parameters {
    let read = |name| line(root, &format!("sys/module/{module}/parameters/{name}"));
    Parameters {
        tx_batched: read("tx_batched").and_then(|text| text.parse().ok()),
        poll_peer: read("poll_peer").map(|text| text == "Y" || text == "1"),
    }
}

fn livepatch(root: &Path) -> Option<Livepatch> {
    let folder = format!("sys/kernel/livepatch/{LIVEPATCH}");
    let flag = |name| line(root, &format!("{folder}/{name}")).map(|text| text == "1");
    Some(Livepatch {
        enabled: flag("enabled")?,
        transition: flag("transition")?,
    })
}

fn users(root: &Path) -> (Vec<User>, usize) {
    let openers = match vhost_net_openers_under(&root.join("proc")) {
        Ok(openers) => openers,
        Err(why) => {
            log::debug!("descriptors are not listed: {why}");
            return (Vec::new(), 0);
        }
    };
    let users = openers
        .openers
        .iter()
        .flat_map(|opener| {
            let name = vm_name(opener.pid).ok();
            let (vm, vmm) = match name {
                Some(name) => (name.name, name.vmm.as_str()),
                None => (format!("process {}", opener.pid), "other"),
            };
            let user = move |fd: &i32| User {
                vm: vm.clone(),
                vmm,
                pid: opener.pid,
                fd: *fd,
            };
            opener.fds.iter().map(user)
        })
        .collect();
    (users, openers.hidden)
}

#[cfg(test)]
mod tests {
    use super::super::state::State;
    use super::*;

    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let always = [
            ("proc/sys/kernel/osrelease", "6.1.0-57-amd64\n"),
            ("proc/modules", ""),
            ("proc/self/status", "Name:\tx\nCapEff:\t000001ffffffffff\n"),
        ];
        for (path, text) in always.iter().chain(files) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn a_stock_module_is_read() {
        let root = system(&[
            ("sys/module/vhost_net/initstate", "live\n"),
            ("sys/module/vhost_net/refcnt", "3\n"),
            (
                "sys/module/vhost_net/parameters/experimental_zcopytx",
                "0\n",
            ),
            ("sys/kernel/livepatch/other/enabled", "1\n"),
            (
                "sys/kernel/security/lockdown",
                "[none] integrity confidentiality\n",
            ),
            ("sys/module/module/parameters/sig_enforce", "N\n"),
        ]);
        let facts = Facts::read_under(root.path());
        assert_eq!(facts.state(), State::Stock);
        assert_eq!(facts.release, "6.1.0-57-amd64");
        assert_eq!(facts.references, Some(3));
        assert_eq!(facts.zero_copy, Some(false));
        assert!(facts.livepatch_supported && facts.privileged && facts.modules);
        assert_eq!(facts.signature_demanded(), None);
    }

    #[test]
    fn a_replacement_is_known_by_its_parameters() {
        let root = system(&[
            ("sys/module/vhost_net/initstate", "live\n"),
            ("sys/module/vhost_net/parameters/tx_batched", "16\n"),
            ("sys/module/vhost_net/parameters/poll_peer", "N\n"),
        ]);
        let facts = Facts::read_under(root.path());
        assert_eq!(facts.state(), State::Replaced);
        assert_eq!(
            facts.in_effect(),
            Some(Parameters {
                tx_batched: Some(16),
                poll_peer: Some(false),
            })
        );
    }

    #[test]
    fn a_livepatch_in_transition_is_read() {
        let root = system(&[
            ("sys/module/vhost_net/initstate", "live\n"),
            ("sys/module/livepatch_vhost_net/initstate", "live\n"),
            ("sys/kernel/livepatch/livepatch_vhost_net/enabled", "0\n"),
            ("sys/kernel/livepatch/livepatch_vhost_net/transition", "1\n"),
        ]);
        let facts = Facts::read_under(root.path());
        assert_eq!(facts.state(), State::Reverting);
        assert!(facts.livepatch_module);
    }

    #[test]
    fn built_in_is_told_from_absent() {
        let root = system(&[(
            "sys/module/vhost_net/parameters/experimental_zcopytx",
            "0\n",
        )]);
        assert_eq!(Facts::read_under(root.path()).state(), State::BuiltIn);
        let root = system(&[(
            "lib/modules/6.1.0-57-amd64/modules.builtin",
            "kernel/drivers/vhost/vhost.ko\nkernel/drivers/vhost/vhost_net.ko\n",
        )]);
        assert_eq!(Facts::read_under(root.path()).state(), State::BuiltIn);
        assert_eq!(Facts::read_under(system(&[]).path()).state(), State::Absent);
    }

    #[test]
    fn an_ordinary_user_may_not_load_and_lockdown_is_seen() {
        let root = system(&[
            ("proc/self/status", "CapEff:\t0000000000000000\n"),
            (
                "sys/kernel/security/lockdown",
                "none integrity [confidentiality]\n",
            ),
            ("proc/sys/kernel/modules_disabled", "1\n"),
        ]);
        let facts = Facts::read_under(root.path());
        assert!(!facts.privileged && facts.modules_disabled);
        assert_eq!(facts.lockdown.as_deref(), Some("confidentiality"));
    }
}
