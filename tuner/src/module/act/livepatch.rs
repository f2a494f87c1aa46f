//! Our livepatch, on and off again.

use std::io;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use super::super::LIVEPATCH;
use super::super::facts::livepatch_now;
use super::super::insert::{self, KernelLog};
use super::super::state::Facts;
use super::super::status::Found;
use super::super::tasks::{Task, sentence};
use super::super::transition::{End, Way, follow, turn};
use super::{Order, Outcome, Report};

/// How long the kernel may take to let go of a module whose transition is over.
const LET_GO: Duration = Duration::from_secs(10);

/// Loads the livepatch and follows it.
pub(super) fn apply(facts: &Facts, found: Found, order: &mut Order<'_>) -> Report {
    let Some(image) = found.image else {
        return Report::new(Outcome::Failed, "the file could not be read");
    };
    let path = image.path.clone();
    let failed = |sentence: String| Report::new(Outcome::Failed, sentence).of_file(path.clone());
    if facts.livepatch_module
        && let Err(why) = remove()
    {
        return failed(format!(
            "a livepatch of ours that is off is still loaded and cannot be taken out: {why}"
        ));
    }
    if let Err(why) = insert::dependencies(&image.contents) {
        return failed(format!("{}: {why}; nothing was changed", path.display()));
    }
    let mut log = KernelLog::from_here();
    if let Err(why) = insert::insert(&image, &insert::configured(LIVEPATCH)) {
        let (why, logged) = (insert::explain(&why), log.about(LIVEPATCH));
        return failed(format!(
            "{}: {why}{logged}; nothing was changed",
            path.display()
        ));
    }
    follow_on(order).of_file(path)
}

/// Goes on with a transition that somebody else began, whichever way it goes.
pub(super) fn finish(order: &mut Order<'_>) -> Report {
    match turn(Way::Apply) {
        Ok(()) => follow_on(order),
        Err(why) => Report::new(
            Outcome::Failed,
            format!("the transition that is under way cannot be turned round: {why}"),
        ),
    }
}

fn follow_on(order: &mut Order<'_>) -> Report {
    let began = Instant::now();
    let end = follow(
        Way::Apply,
        began + order.timeout,
        order.stop,
        &mut order.progress,
    );
    let took = began.elapsed();
    let (why, tasks) = match end {
        End::Done => {
            return Report::new(
                Outcome::Done,
                format!(
                    "our livepatch is at work in the running vhost_net; every task had moved \
                     over after {:.1} s",
                    took.as_secs_f64()
                ),
            )
            .took(took);
        }
        End::Turned => {
            return Report::new(
                Outcome::Failed,
                "somebody else turned the livepatch off meanwhile (/sys/kernel/livepatch): \
                 `vhost-tuner module status` says where it is",
            );
        }
        End::Late(tasks) => (
            format!(
                "not every task had moved over after {} s",
                order.timeout.as_secs()
            ),
            tasks,
        ),
        End::Stopped(tasks) => ("interrupted".to_owned(), tasks),
    };
    let report = undo(&why, tasks, order);
    report.took(began.elapsed())
}

/// Turns a transition round and takes the module out, so that all is as it
/// was. A signal does not end this: it would leave things half way.
fn undo(why: &str, tasks: Vec<Task>, order: &mut Order<'_>) -> Report {
    let why = format!("{why}; it was held by {}", sentence(&tasks));
    let failed = |sentence: String| Report::new(Outcome::Failed, sentence);
    let go_on = "run `vhost-tuner module revert`";
    if let Err(error) = turn(Way::Revert) {
        let text = format!("{why}; it could not be turned off again: {error}; {go_on}");
        return failed(text).held_by(tasks);
    }
    let until = Instant::now() + order.timeout.max(Duration::from_secs(60));
    let never = AtomicBool::new(false);
    match follow(Way::Revert, until, &never, &mut order.progress) {
        End::Done => {}
        End::Late(others) | End::Stopped(others) => {
            return failed(format!(
                "{why}; it is being taken back, which is held by {}: the kernel goes on with \
                 that; {go_on} to have the module taken out",
                sentence(&others)
            ))
            .held_by(others);
        }
        End::Turned => {
            return failed(format!("{why}; somebody else turned it on again; {go_on}"))
                .held_by(tasks);
        }
    }
    match remove() {
        Ok(()) => Report::new(
            Outcome::Undone,
            format!("{why}; the livepatch was taken back, everything is as it was"),
        ),
        Err(error) => failed(format!(
            "{why}; the livepatch is off, its module is still loaded: {error}; {go_on}"
        )),
    }
    .held_by(tasks)
}

/// Turns the livepatch off and takes it out. If that is not done in time, it
/// is left to go on: each task is in one of two states that both work, the
/// kernel goes on moving them, and the way that was asked for is the way to go.
pub(super) fn take_back(order: &mut Order<'_>) -> Report {
    let began = Instant::now();
    let was_on = livepatch_now().is_some();
    let failed = |sentence: String| Report::new(Outcome::Failed, sentence);
    if let Err(why) = turn(Way::Revert) {
        return failed(format!("the livepatch cannot be turned off: {why}"));
    }
    // Turning it off may take the kernel long enough by itself.
    let until = Instant::now() + order.timeout;
    let end = follow(Way::Revert, until, order.stop, &mut order.progress);
    let took = began.elapsed();
    let (why, tasks) = match end {
        End::Done => {
            return match remove() {
                Ok(()) if was_on => Report::new(
                    Outcome::Done,
                    "our livepatch is off and out; vhost_net is the distribution's again",
                )
                .took(took),
                Ok(()) => Report::new(
                    Outcome::Done,
                    "our livepatch, which was off already, is out",
                ),
                Err(why) => failed(format!(
                    "the livepatch is off, its module is still loaded: {why}"
                )),
            };
        }
        End::Turned => {
            return failed("somebody else turned the livepatch on again meanwhile".to_owned());
        }
        End::Late(tasks) => (
            format!(
                "not every task had moved over after {} s",
                order.timeout.as_secs()
            ),
            tasks,
        ),
        End::Stopped(tasks) => ("interrupted".to_owned(), tasks),
    };
    failed(format!(
        "{why}; it is held by {}: the kernel goes on moving them to the distribution's \
         vhost_net; run `vhost-tuner module revert` again to have the module taken out",
        sentence(&tasks)
    ))
    .held_by(tasks)
    .took(took)
}

/// Takes the module out as soon as the kernel has let go of it.
fn remove() -> io::Result<()> {
    let until = Instant::now() + LET_GO;
    loop {
        match insert::remove(LIVEPATCH) {
            Err(why) if why.raw_os_error() == Some(libc::ENOENT) => return Ok(()),
            Err(why)
                if matches!(why.raw_os_error(), Some(libc::EWOULDBLOCK | libc::EBUSY))
                    && Instant::now() < until => {}
            result => return result,
        }
        thread::sleep(Duration::from_millis(50));
    }
}
