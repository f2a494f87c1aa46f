//! Whether a command may go on, and the sentence if not. Pure.

use std::fmt::{self, Write};
use std::path::PathBuf;

use super::files::{Kind, Problem};
use super::state::{Facts, State, User};

/// What a command may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// Go on.
    Ahead,
    /// Nothing: it is as it should be.
    Already,
    /// Follow a transition that is under way.
    Follow,
}

/// Why a command does nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// CAP_SYS_MODULE is missing.
    Unprivileged,
    /// The kernel knows no modules.
    NoModules,
    /// `kernel.modules_disabled`.
    ModulesDisabled,
    /// vhost_net is part of the kernel image.
    BuiltIn,
    /// The kernel cannot be patched live.
    NoLivepatch,
    /// No file was found.
    NoFile {
        /// Which one.
        kind: Kind,
        /// Where.
        folders: Vec<PathBuf>,
    },
    /// The file does not fit.
    Misfit {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: Problem,
    },
    /// The file is not signed, and has to be.
    Unsigned {
        /// The file.
        path: PathBuf,
        /// Why it has to be.
        why: String,
    },
    /// VMs use vhost_net.
    InUse {
        /// What is asked for.
        goal: Goal,
        /// Who.
        users: Vec<User>,
        /// References that the kernel counts.
        references: Option<u32>,
    },
    /// `load` while our livepatch is there.
    Livepatched,
    /// `livepatch` while our replacement is there.
    Replaced,
    /// `load` while a transition is under way.
    InTransition,
    /// `livepatch` without a vhost_net.
    NotLoaded,
    /// `livepatch` with `experimental_zcopytx`.
    ZeroCopy,
}

/// What vhost_net has to be free for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// To be replaced by ours.
    Replace,
    /// To be replaced by the distribution's.
    Restore,
}

impl Refusal {
    /// True where this system cannot do it (exit code 3) rather than not now.
    #[must_use]
    pub fn unable(&self) -> bool {
        matches!(
            self,
            Self::Unprivileged
                | Self::NoModules
                | Self::ModulesDisabled
                | Self::BuiltIn
                | Self::NoLivepatch
                | Self::Unsigned { .. }
        )
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unprivileged => f.write_str(
                "this process may not load modules: run it as root (CAP_SYS_MODULE in the \
                 host's user namespace)",
            ),
            Self::NoModules => f.write_str("this kernel is built without modules"),
            Self::ModulesDisabled => f.write_str(
                "kernel.modules_disabled is on: this kernel takes no more modules until it is \
                 booted again",
            ),
            Self::BuiltIn => f.write_str(
                "vhost_net is part of this kernel: it can be neither replaced nor patched, a \
                 kernel with CONFIG_VHOST_NET=m is needed",
            ),
            Self::NoLivepatch => f.write_str(
                "this kernel cannot be patched live (no /sys/kernel/livepatch): stop the VMs \
                 and use `vhost-tuner module load`, or boot a kernel with CONFIG_LIVEPATCH",
            ),
            Self::NoFile { kind, folders } => {
                write!(f, "no {} was found in ", kind.file_name())?;
                for (at, folder) in folders.iter().enumerate() {
                    let comma = if at == 0 { "" } else { ", " };
                    write!(f, "{comma}{}", folder.display())?;
                }
                f.write_str(": build it for this kernel, or say where it is with --dir")
            }
            Self::Misfit { path, problem } => {
                write!(f, "{} is not for this kernel: {problem}", path.display())
            }
            Self::Unsigned { path, why } => write!(
                f,
                "{} is not signed, and this kernel takes signed modules only ({why}): sign it \
                 with a key that the kernel trusts (kmodsign, mokutil --import)",
                path.display()
            ),
            Self::InUse {
                goal,
                users,
                references,
            } => in_use(f, *goal, users, *references),
            Self::Livepatched => f.write_str(
                "our livepatch is at work: it does the same; to load the replacement instead, \
                 take it back first (`vhost-tuner module revert`)",
            ),
            Self::Replaced => f.write_str(
                "our vhost_net is loaded already in place of the distribution's: there is \
                 nothing to patch",
            ),
            Self::InTransition => f.write_str(
                "our livepatch is being applied or taken back: wait until `vhost-tuner module \
                 status` says that it is done, or run `vhost-tuner module revert`",
            ),
            Self::NotLoaded => f.write_str(
                "vhost_net is not loaded, so no VM uses it and there is nothing to patch: use \
                 `vhost-tuner module load`",
            ),
            Self::ZeroCopy => f.write_str(
                "vhost_net runs with experimental_zcopytx=1, which cannot be patched live: \
                 packets in flight would call functions that are gone; stop the VMs and load \
                 vhost_net without it",
            ),
        }
    }
}

fn in_use(
    f: &mut fmt::Formatter<'_>,
    goal: Goal,
    users: &[User],
    references: Option<u32>,
) -> fmt::Result {
    f.write_str("vhost_net is in use by ")?;
    if users.is_empty() {
        match references.unwrap_or(0) {
            0 => f.write_str("a process that has closed it by now")?,
            count => write!(
                f,
                "something that /proc does not show ({count} reference{}): a process that has \
                 closed it by now, one that is hidden from this user or in another pid \
                 namespace, or another module",
                if count == 1 { "" } else { "s" }
            )?,
        }
    } else {
        f.write_str(&names(users))?;
    }
    f.write_str(match goal {
        Goal::Replace => {
            "; it can be replaced only while nobody uses it: stop them, or use `vhost-tuner \
             module livepatch`, which reaches running VMs"
        }
        Goal::Restore => "; it can be taken out only while nobody uses it: stop them first",
    })
}

/// Users with their descriptors: `web (100:30, 100:31), db (200:7)`.
#[must_use]
pub fn names(users: &[User]) -> String {
    let mut text = String::new();
    let mut last: Option<&User> = None;
    for user in users {
        match last {
            Some(before) if before.pid == user.pid => text.push_str(", "),
            Some(_) => {
                let _ = write!(text, "), {} (", user.vm);
            }
            None => {
                let _ = write!(text, "{} (", user.vm);
            }
        }
        let _ = write!(text, "{}:{}", user.pid, user.fd);
        last = Some(user);
    }
    if last.is_some() {
        text.push(')');
    }
    text
}

/// What is known of the file that is to be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Candidate {
    /// There is none.
    Missing {
        /// Where it was looked for.
        folders: Vec<PathBuf>,
    },
    /// There is one.
    Found {
        /// Where.
        path: PathBuf,
        /// Whether it carries a signature.
        signed: bool,
        /// What is wrong with it, if anything.
        problem: Option<Problem>,
    },
}

/// Whether vhost_net may be replaced.
///
/// # Errors
/// The reason, if it may not.
pub fn load(facts: &Facts, file: &Candidate) -> Result<Go, Refusal> {
    match facts.state() {
        State::Replaced => return Ok(Go::Already),
        State::BuiltIn => return Err(Refusal::BuiltIn),
        State::Livepatched => return Err(Refusal::Livepatched),
        State::Applying | State::Reverting => return Err(Refusal::InTransition),
        State::Absent | State::Stock => {}
    }
    able(facts)?;
    fits(facts, Kind::Replacement, file)?;
    free(facts, Goal::Replace)?;
    Ok(Go::Ahead)
}

/// Whether the running vhost_net may be patched.
///
/// # Errors
/// The reason, if it may not.
pub fn livepatch(facts: &Facts, file: &Candidate) -> Result<Go, Refusal> {
    match facts.state() {
        State::Livepatched => return Ok(Go::Already),
        State::BuiltIn => return Err(Refusal::BuiltIn),
        State::Replaced => return Err(Refusal::Replaced),
        State::Applying | State::Reverting => return able(facts).map(|()| Go::Follow),
        State::Absent | State::Stock => {}
    }
    able(facts)?;
    if !facts.livepatch_supported {
        return Err(Refusal::NoLivepatch);
    }
    if facts.state() == State::Absent {
        return Err(Refusal::NotLoaded);
    }
    if facts.zero_copy == Some(true) {
        return Err(Refusal::ZeroCopy);
    }
    fits(facts, Kind::Livepatch, file)?;
    Ok(Go::Ahead)
}

/// Whether our module may be taken out again.
///
/// # Errors
/// The reason, if it may not.
pub fn revert(facts: &Facts) -> Result<Go, Refusal> {
    match facts.state() {
        // A livepatch that is disabled and still there does nothing; it is
        // taken out all the same.
        State::Stock | State::Absent if facts.livepatch_module => {
            able(facts)?;
            Ok(Go::Follow)
        }
        State::Stock | State::Absent | State::BuiltIn => Ok(Go::Already),
        State::Livepatched | State::Applying | State::Reverting => {
            able(facts)?;
            Ok(Go::Follow)
        }
        State::Replaced => {
            able(facts)?;
            free(facts, Goal::Restore)?;
            Ok(Go::Ahead)
        }
    }
}

fn able(facts: &Facts) -> Result<(), Refusal> {
    if !facts.modules {
        Err(Refusal::NoModules)
    } else if !facts.privileged {
        Err(Refusal::Unprivileged)
    } else if facts.modules_disabled {
        Err(Refusal::ModulesDisabled)
    } else {
        Ok(())
    }
}

fn fits(facts: &Facts, kind: Kind, file: &Candidate) -> Result<(), Refusal> {
    match file {
        Candidate::Missing { folders } => Err(Refusal::NoFile {
            kind,
            folders: folders.clone(),
        }),
        Candidate::Found {
            path,
            problem: Some(problem),
            ..
        } => Err(Refusal::Misfit {
            path: path.clone(),
            problem: problem.clone(),
        }),
        Candidate::Found { path, signed, .. } => match facts.signature_demanded() {
            Some(why) if !signed => Err(Refusal::Unsigned {
                path: path.clone(),
                why,
            }),
            _ => Ok(()),
        },
    }
}

fn free(facts: &Facts, goal: Goal) -> Result<(), Refusal> {
    if facts.in_use() {
        Err(Refusal::InUse {
            goal,
            users: facts.users.clone(),
            references: facts.references,
        })
    } else {
        Ok(())
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
