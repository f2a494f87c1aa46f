//! Everything that `status` shows: facts, files, and what each command would
//! do.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::decide::{self, Candidate, Go, Refusal};
use super::files::{self, Image, Kind, Problem, Wanted};
use super::state::{Facts, Form, Parameters, State, User};
use super::{layout, stock, tasks};
use tasks::Task;

/// A file that was looked for.
pub struct Found {
    /// Where it was looked for.
    pub folders: Vec<PathBuf>,
    /// Where it lies, if there is one.
    pub path: Option<PathBuf>,
    /// What was read.
    pub image: Option<Image>,
    /// What is wrong with it.
    pub problem: Option<Problem>,
}

impl Found {
    /// What the checks want to know of it.
    #[must_use]
    pub fn candidate(&self) -> Candidate {
        match &self.path {
            None => Candidate::Missing {
                folders: self.folders.clone(),
            },
            Some(path) => Candidate::Found {
                path: path.clone(),
                signed: self.image.as_ref().is_some_and(|i| i.contents.signed),
                problem: self.problem.clone(),
            },
        }
    }
}

/// Looks for a file of ours for this kernel. The layouts of a livepatch are
/// held against vhost_net while that is loaded.
#[must_use]
pub fn find(kind: Kind, facts: &Facts, dir: Option<&Path>) -> Found {
    let program = std::env::current_exe().ok();
    let folders = files::folders(dir, &facts.release, program.as_deref());
    let wanted = Wanted {
        release: facts.release.clone(),
        vermagic: stock::vermagic(&facts.release),
    };
    let chosen = files::choose(kind, &folders, &wanted);
    let mut found = Found {
        folders,
        path: None,
        image: None,
        problem: None,
    };
    if let Some(chosen) = chosen {
        found.path = Some(chosen.path);
        found.image = chosen.image;
        found.problem = chosen.problem;
    }
    let patchable = facts.vhost_net == Form::Loaded && !facts.parameters.ours();
    if kind == Kind::Livepatch
        && patchable
        && found.problem.is_none()
        && let Some(image) = &found.image
        && let Err(why) = layout::check(&image.contents, Path::new("/sys/kernel/btf"))
    {
        found.problem = Some(Problem::Layout(why));
    }
    found
}

/// All that `status` knows.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// `uname -r`.
    pub kernel: String,
    /// Whether it knows modules at all.
    pub modules: bool,
    /// What is loaded.
    pub state: State,
    /// Who holds devices.
    pub users: Vec<User>,
    /// Processes whose descriptors are hidden from this user.
    pub hidden_processes: usize,
    /// References that the kernel counts.
    pub references: Option<u32>,
    /// Our parameters, while a module of ours is at work.
    pub parameters: Option<Parameters>,
    /// Whether vhost_net sends without copying.
    pub zero_copy: Option<bool>,
    /// Tasks that a transition waits for.
    pub waiting: Vec<Task>,
    /// Whether this kernel can be patched live.
    pub livepatch_supported: bool,
    /// Kernel lockdown.
    pub lockdown: Option<String>,
    /// Whether this kernel takes signed modules only.
    pub signature_demanded: bool,
    /// `vhost_net.ko`.
    pub replacement: FileStatus,
    /// `livepatch-vhost-net.ko`.
    pub livepatch: FileStatus,
    /// What the commands would do.
    pub commands: Vec<CommandStatus>,
}

/// What is known of a file.
#[derive(Clone, Debug, Serialize)]
pub struct FileStatus {
    /// Where it lies; null if it was not found.
    pub path: Option<PathBuf>,
    /// Whether it fits this kernel.
    pub fits: bool,
    /// Whether it carries a signature.
    pub signed: Option<bool>,
    /// What is wrong with it.
    pub problem: Option<String>,
}

/// What a command would do now.
#[derive(Clone, Debug, Serialize)]
pub struct CommandStatus {
    /// `load`, `livepatch` or `revert`.
    pub command: &'static str,
    /// Whether it would go on, also where nothing is to be done.
    pub possible: bool,
    /// Why not, or that there is nothing to do.
    pub reason: Option<String>,
}

/// Looks at everything and changes nothing.
#[must_use]
pub fn status(dir: Option<&Path>) -> Status {
    let facts = Facts::read();
    let replacement = find(Kind::Replacement, &facts, dir);
    let livepatch = find(Kind::Livepatch, &facts, dir);
    let proc = Path::new("/proc");
    let left = match facts.state() {
        State::Applying => tasks::left(proc, true),
        State::Reverting => tasks::left(proc, false),
        _ => Vec::new(),
    };
    let commands = vec![
        command("load", decide::load(&facts, &replacement.candidate())),
        command(
            "livepatch",
            decide::livepatch(&facts, &livepatch.candidate()),
        ),
        command("revert", decide::revert(&facts)),
    ];
    Status {
        state: facts.state(),
        modules: facts.modules,
        references: facts.references,
        parameters: facts.in_effect(),
        zero_copy: facts.zero_copy,
        waiting: tasks::describe_all(&left),
        livepatch_supported: facts.livepatch_supported,
        signature_demanded: facts.signature_demanded().is_some(),
        replacement: file(&replacement),
        livepatch: file(&livepatch),
        commands,
        kernel: facts.release,
        users: facts.users,
        hidden_processes: facts.hidden,
        lockdown: facts.lockdown,
    }
}

fn file(found: &Found) -> FileStatus {
    FileStatus {
        path: found.path.clone(),
        fits: found.path.is_some() && found.problem.is_none(),
        signed: found.image.as_ref().map(|image| image.contents.signed),
        problem: found.problem.as_ref().map(ToString::to_string),
    }
}

fn command(command: &'static str, decision: Result<Go, Refusal>) -> CommandStatus {
    CommandStatus {
        command,
        possible: decision.is_ok(),
        reason: match decision {
            Ok(Go::Already) => Some("there is nothing to do".to_owned()),
            Ok(_) => None,
            Err(refusal) => Some(refusal.to_string()),
        },
    }
}
