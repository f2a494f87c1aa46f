//! The three commands that change something.

mod livepatch;
mod replace;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;

use super::decide::{self, Go, Refusal};
use super::files::Kind;
use super::state::{Facts, State, User};
use super::status::find;
use super::tasks::Task;
use super::transition::Progress;
use crate::lock::{self, Lock};

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// What was asked.
    Done,
    /// Nothing: it was so already.
    Already,
    /// Nothing: a check failed.
    Refused,
    /// It was begun and taken back.
    Undone,
    /// It was begun and is neither done nor taken back; the sentence says
    /// where things stand.
    Failed,
}

/// How a command ended.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was done.
    pub outcome: Outcome,
    /// The state now.
    pub state: State,
    /// The file that was, or would have been, loaded.
    pub file: Option<PathBuf>,
    /// How long the transition took.
    pub transition_s: Option<f64>,
    /// Who keeps it from being done.
    pub users: Vec<User>,
    /// Tasks that kept the transition from ending.
    pub held_by: Vec<Task>,
    /// All this in words.
    pub sentence: String,
    /// True where this system cannot do it.
    #[serde(skip)]
    pub unable: bool,
}

impl Report {
    fn new(outcome: Outcome, sentence: impl Into<String>) -> Self {
        Self {
            outcome,
            state: Facts::read().state(),
            file: None,
            transition_s: None,
            users: Vec::new(),
            held_by: Vec::new(),
            sentence: sentence.into(),
            unable: false,
        }
    }

    fn refused(refusal: &Refusal) -> Self {
        let users = match refusal {
            Refusal::InUse { users, .. } => users.clone(),
            _ => Vec::new(),
        };
        Self {
            users,
            unable: refusal.unable(),
            ..Self::new(Outcome::Refused, refusal.to_string())
        }
    }

    fn of_file(mut self, path: PathBuf) -> Self {
        self.file = Some(path);
        self
    }

    fn held_by(mut self, tasks: Vec<Task>) -> Self {
        self.held_by = tasks;
        self
    }

    fn took(mut self, time: Duration) -> Self {
        self.transition_s = Some((time.as_secs_f64() * 100.0).round() / 100.0);
        self
    }
}

/// What a command was told.
pub struct Order<'a> {
    /// Where to look for files; none for the usual places.
    pub dir: Option<PathBuf>,
    /// How long a transition may take.
    pub timeout: Duration,
    /// Set once a signal asks to stop.
    pub stop: &'a AtomicBool,
    /// Where to say how far it is.
    pub progress: Progress,
}

/// Puts our vhost_net into the place of the distribution's.
#[must_use]
pub fn load(order: &Order<'_>) -> Report {
    locked("module load", |facts| {
        let found = find(Kind::Replacement, facts, order.dir.as_deref());
        match decide::load(facts, &found.candidate()) {
            Ok(Go::Already) => Report::new(
                Outcome::Already,
                "our vhost_net is loaded already in place of the distribution's",
            ),
            Ok(_) => replace::load(facts, found, order.stop),
            Err(refusal) => Report::refused(&refusal),
        }
    })
}

/// Patches the running vhost_net.
#[must_use]
pub fn livepatch(order: &mut Order<'_>) -> Report {
    locked("module livepatch", |facts| {
        let found = find(Kind::Livepatch, facts, order.dir.as_deref());
        match decide::livepatch(facts, &found.candidate()) {
            Ok(Go::Already) => Report::new(Outcome::Already, "our livepatch is at work already"),
            Ok(Go::Follow) => livepatch::finish(order),
            Ok(Go::Ahead) => livepatch::apply(facts, found, order),
            Err(refusal) => Report::refused(&refusal),
        }
    })
}

/// Brings the distribution's vhost_net back.
#[must_use]
pub fn revert(order: &mut Order<'_>) -> Report {
    locked("module revert", |facts| match decide::revert(facts) {
        Ok(Go::Already) => Report::new(Outcome::Already, "no module of ours is loaded"),
        Ok(Go::Follow) => livepatch::take_back(order),
        Ok(Go::Ahead) => replace::restore(facts, order),
        Err(refusal) => Report::refused(&refusal),
    })
}

/// Takes the lock, then the facts: what was true before may not be any more.
/// Who may not load modules may not take the lock either, and is told so by
/// the checks.
fn locked(command: &str, work: impl FnOnce(&Facts) -> Report) -> Report {
    let _lock = if Facts::read().privileged {
        match Lock::take(Path::new(lock::MODULE), command, Duration::ZERO) {
            Ok(lock) => Some(lock),
            Err(why) => return Report::new(Outcome::Refused, why.to_string()),
        }
    } else {
        None
    };
    work(&Facts::read())
}
