//! A storm of signals to the threads that sit in system calls.
//!
//! Signals of a kind that does not queue are sent one at a time: the next one
//! when the handler of the last one has run. So each is accounted for, like
//! those that queue.

mod handler;

use std::io;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;

use self::handler::Kind;
use crate::sitters::Sitters;

pub use self::handler::{handled_here, is_expected, keep_away, let_in};

/// How long a handler may take to run.
const PATIENCE: Duration = Duration::from_secs(30);
/// How soon to look whether it has, and how seldom at last.
const LOOKS: (Duration, Duration) = (Duration::from_micros(50), Duration::from_millis(2));
/// Signals that queue, sent to a thread at once.
const VOLLEY: u64 = 8;

/// Signals of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SignalCounts {
    /// Sent.
    pub sent: u64,
    /// Handlers that have run.
    pub handled: u64,
}

/// Signals of all kinds since the start.
#[derive(Debug, Clone, Serialize)]
pub struct StormCounts {
    /// SIGALRM to the process, by setitimer(2). The first sitter gets it.
    pub alarm: SignalCounts,
    /// SIGUSR1 to each thread in turn.
    pub user: SignalCounts,
    /// SIGCHLD to the process, by children that end at once. The first sitter
    /// gets it.
    pub child: SignalCounts,
    /// A real-time signal to each thread, numbered one after the other.
    pub queued: SignalCounts,
    /// Of those that queue, how many came out of order, twice or not at all.
    pub misplaced: u64,
}

/// What was sent so far, over all rounds.
#[derive(Debug, Default)]
struct Sent {
    alarm: AtomicU64,
    user: AtomicU64,
    child: AtomicU64,
    queued: AtomicU64,
    /// To each thread, the last number.
    numbers: Vec<(i32, AtomicU64)>,
}

/// Sends some signals of a kind, and waits until they are handled.
type Source = fn(&Sent) -> Result<()>;

/// Storms of one program; one rages at a time.
#[derive(Debug)]
pub struct Weather {
    sent: Arc<Sent>,
    pause: Duration,
    /// How its threads are called.
    name: String,
}

/// A storm that rages.
#[derive(Debug)]
pub struct Storm {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Weather {
    /// Storms on `sitters`, with a pause of `pause_us` between two signals of a
    /// kind, made by threads whose names begin with `name`; none without a
    /// pause.
    ///
    /// # Errors
    /// When the handlers cannot be installed.
    pub fn of(sitters: &Sitters, pause_us: Option<u32>, name: String) -> Result<Option<Self>> {
        let Some(pause) = pause_us else {
            return Ok(None);
        };
        handler::install().context("cannot install signal handlers")?;
        let tids = sitters.tids().into_iter();
        Ok(Some(Self {
            sent: Arc::new(Sent {
                numbers: tids.map(|tid| (tid, AtomicU64::new(0))).collect(),
                ..Sent::default()
            }),
            pause: Duration::from_micros(pause.into()),
            name,
        }))
    }

    /// Lets a storm begin.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn begin(&self) -> Result<Storm> {
        let mut storm = Storm {
            stop: Arc::default(),
            threads: Vec::new(),
        };
        let sources: [(&str, Source); 4] = [
            ("alarm", alarm),
            ("user", user),
            ("child", child),
            ("queued", queued),
        ];
        for (name, send) in sources {
            let (sent, stop, pause) = (Arc::clone(&self.sent), Arc::clone(&storm.stop), self.pause);
            let thread = thread::Builder::new()
                .name(format!("{}-{name}", self.name))
                .spawn(move || {
                    while !stop.load(Ordering::Acquire) {
                        send(&sent)?;
                        thread::sleep(pause);
                    }
                    Ok(())
                })
                .context("cannot start a thread")?;
            storm.threads.push(thread);
        }
        Ok(storm)
    }

    /// What was sent and handled so far.
    #[must_use]
    pub fn counts(&self) -> StormCounts {
        let counts = |sent: &AtomicU64, kind| SignalCounts {
            sent: sent.load(Ordering::SeqCst),
            handled: handler::count(kind),
        };
        StormCounts {
            alarm: counts(&self.sent.alarm, Kind::Alarm),
            user: counts(&self.sent.user, Kind::User),
            child: counts(&self.sent.child, Kind::Child),
            queued: counts(&self.sent.queued, Kind::Queued),
            misplaced: handler::misplaced(),
        }
    }
}

impl Storm {
    /// Ends it, and waits until the handler of every signal sent has run.
    ///
    /// # Errors
    /// When a handler did not run in time, or a signal could not be sent.
    pub fn calm(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::Release);
        let mut ended = Ok(());
        for thread in self.threads.drain(..) {
            let result = thread
                .join()
                .unwrap_or_else(|_| Err(anyhow!("a thread panicked")));
            ended = ended.and(result);
        }
        ended
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        if let Err(e) = self.end() {
            eprintln!("vhost-lab: {e:#}");
        }
    }
}

/// Counts one as sent, sends it, and waits until it is handled.
fn one(kind: Kind, sent: &AtomicU64, send: impl FnOnce() -> io::Result<()>) -> Result<()> {
    let goal = sent.fetch_add(1, Ordering::SeqCst) + 1;
    send().with_context(|| format!("cannot send {kind:?}"))?;
    handled(kind, goal)
}

fn handled(kind: Kind, goal: u64) -> Result<()> {
    let patience = Instant::now() + PATIENCE;
    let (mut nap, longest) = LOOKS;
    while handler::count(kind) < goal {
        if Instant::now() > patience {
            bail!("a signal was lost: {kind:?}, number {goal}");
        }
        thread::sleep(nap);
        nap = (nap * 2).min(longest);
    }
    Ok(())
}

fn alarm(sent: &Sent) -> Result<()> {
    one(Kind::Alarm, &sent.alarm, handler::set_alarm)
}

fn user(sent: &Sent) -> Result<()> {
    for (tid, _) in &sent.numbers {
        one(Kind::User, &sent.user, || handler::send_user(*tid))?;
    }
    Ok(())
}

fn child(sent: &Sent) -> Result<()> {
    one(Kind::Child, &sent.child, || {
        Command::new("true").status().map(drop)
    })
}

fn queued(sent: &Sent) -> Result<()> {
    for (tid, number) in &sent.numbers {
        for _ in 0..VOLLEY {
            let next = number.load(Ordering::SeqCst) + 1;
            match handler::queue(*tid, next) {
                Ok(()) => {}
                // The queue is full.
                Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => break,
                Err(e) => return Err(e).context("cannot queue a signal"),
            }
            number.store(next, Ordering::SeqCst);
            sent.queued.fetch_add(1, Ordering::SeqCst);
        }
    }
    handled(Kind::Queued, sent.queued.load(Ordering::SeqCst))
}
