//! Whether our module is there, from sysfs alone: asking a stock vhost_net by
//! ioctl would have it flush the VM's workers.

use std::fs;
use std::path::{Path, PathBuf};

/// Name of the module that is the livepatch.
pub const LIVEPATCH: &str = "livepatch_vhost_net";

/// Who answers an ioctl of the module now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Nobody: vhost_net is the stock one, or not loaded.
    None,
    /// vhost_net itself is ours.
    Replaced,
    /// A stock vhost_net that our livepatch has changed.
    Livepatched,
    /// The livepatch is on its way in or out: who answers differs from task to
    /// task.
    Transition,
}

impl Presence {
    /// Looks at sysfs.
    #[must_use]
    pub fn find() -> Self {
        Self::find_under(Path::new("/sys"))
    }

    /// [`Presence::find`] for a sysfs elsewhere.
    #[must_use]
    pub fn find_under(sys: &Path) -> Self {
        if has_parameters(sys, "vhost_net") {
            return Self::Replaced;
        }
        if !has_parameters(sys, LIVEPATCH) {
            return Self::None;
        }
        let state = |file| flag(&sys.join("kernel/livepatch").join(LIVEPATCH).join(file));
        match (state("transition"), state("enabled")) {
            (Some(true), _) => Self::Transition,
            (Some(false), Some(true)) => Self::Livepatched,
            // Loaded and reverted, or not applied yet.
            _ => Self::None,
        }
    }

    /// True where the module answers whoever asks.
    #[must_use]
    pub fn answers(self) -> bool {
        matches!(self, Self::Replaced | Self::Livepatched)
    }

    /// What it means, as a sentence.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::None => {
                "vhost_net is the stock one: tx_batched and poll_peer cannot be set; \
                 `vhost-tuner module livepatch` brings them without restarting a VM."
            }
            Self::Replaced => "vhost_net is vhost-tuner's own: everything can be set through it.",
            Self::Livepatched => {
                "vhost_net is patched by vhost-tuner's livepatch: everything can be set through it."
            }
            Self::Transition => {
                "vhost-tuner's livepatch is being applied or reverted: nothing can be set until \
                 that is done."
            }
        }
    }

    /// What devices without a choice of their own follow; none where nobody
    /// says.
    #[must_use]
    pub fn parameters(self) -> Option<Parameters> {
        let module = match self {
            Self::Replaced => "vhost_net",
            Self::Livepatched => LIVEPATCH,
            Self::None | Self::Transition => return None,
        };
        let folder = parameters(Path::new("/sys"), module);
        let text = fs::read_to_string(folder.join("tx_batched")).ok()?;
        Some(Parameters {
            tx_batched: text.trim().parse().ok()?,
            poll_peer: flag(&folder.join("poll_peer"))?,
        })
    }
}

/// The module's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The cap on packets handed over together.
    pub tx_batched: u32,
    /// Whether a poll watches the other direction too.
    pub poll_peer: bool,
}

fn parameters(sys: &Path, module: &str) -> PathBuf {
    sys.join("module").join(module).join("parameters")
}

/// A stock vhost_net has neither parameter.
fn has_parameters(sys: &Path, module: &str) -> bool {
    let folder = parameters(sys, module);
    ["tx_batched", "poll_peer"]
        .iter()
        .all(|name| folder.join(name).exists())
}

/// A file that says 1 or 0, or Y or N.
fn flag(path: &Path) -> Option<bool> {
    match fs::read_to_string(path).ok()?.trim() {
        "1" | "Y" => Some(true),
        "0" | "N" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sysfs with these files.
    fn sysfs(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const STOCK: (&str, &str) = ("module/vhost_net/parameters/experimental_zcopytx", "0\n");
    const PATCH: [(&str, &str); 2] = [
        ("module/livepatch_vhost_net/parameters/tx_batched", "64\n"),
        ("module/livepatch_vhost_net/parameters/poll_peer", "Y\n"),
    ];
    const ENABLED: &str = "kernel/livepatch/livepatch_vhost_net/enabled";
    const TRANSITION: &str = "kernel/livepatch/livepatch_vhost_net/transition";

    fn patched(enabled: &str, transition: &str) -> Presence {
        let mut files = vec![STOCK, (ENABLED, enabled), (TRANSITION, transition)];
        files.extend(PATCH);
        Presence::find_under(sysfs(&files).path())
    }

    #[test]
    fn a_stock_vhost_net_has_neither_parameter() {
        assert_eq!(Presence::find_under(sysfs(&[]).path()), Presence::None);
        assert_eq!(Presence::find_under(sysfs(&[STOCK]).path()), Presence::None);
        // Somebody else's patch may have one of them.
        let other = ("module/vhost_net/parameters/tx_batched", "64\n");
        assert_eq!(Presence::find_under(sysfs(&[other]).path()), Presence::None);
    }

    #[test]
    fn our_own_vhost_net_is_known_by_both_parameters() {
        let found = Presence::find_under(
            sysfs(&[
                STOCK,
                ("module/vhost_net/parameters/tx_batched", "64\n"),
                ("module/vhost_net/parameters/poll_peer", "N\n"),
            ])
            .path(),
        );
        assert_eq!(found, Presence::Replaced);
        assert!(found.answers());
    }

    #[test]
    fn a_livepatch_answers_once_every_task_runs_it() {
        assert_eq!(patched("1\n", "0\n"), Presence::Livepatched);
        assert!(Presence::Livepatched.answers());
        for (enabled, transition) in [("1\n", "1\n"), ("0\n", "1\n")] {
            assert_eq!(patched(enabled, transition), Presence::Transition);
        }
        assert!(!Presence::Transition.answers());
        assert_eq!(patched("0\n", "0\n"), Presence::None);
    }

    #[test]
    fn a_livepatch_that_is_loaded_and_not_applied_does_not_answer() {
        let files = [STOCK, PATCH[0], PATCH[1]];
        assert_eq!(Presence::find_under(sysfs(&files).path()), Presence::None);
    }

    #[test]
    fn every_state_has_its_sentence() {
        for presence in [
            Presence::None,
            Presence::Replaced,
            Presence::Livepatched,
            Presence::Transition,
        ] {
            assert!(presence.sentence().ends_with('.'));
        }
    }
}
