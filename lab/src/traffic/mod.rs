//! The modes: what a guest thread does in one round.

mod burst;
mod echo;
mod flood;

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::guest::Guest;
use crate::options::{Mode, RunOptions};
use crate::wire::Stop;

/// Silence after which what has not come is taken for lost.
pub(crate) const QUIET: Duration = Duration::from_secs(1);

/// Does one round of the options' mode on one queue pair.
///
/// # Errors
/// When the device breaks the protocol, or a system call fails.
pub fn run(guest: &mut Guest, options: &RunOptions, seed: u64, stop: &Stop) -> Result<()> {
    guest.nic.suppress();
    guest.prime(stop)?;
    let start = Instant::now();
    match options.mode {
        Mode::Echo => echo::run(guest, options, seed, stop)?,
        Mode::Txflood | Mode::Rxflood | Mode::Bidir | Mode::Rxburst => {
            flood::run(guest, options, stop)?;
        }
        Mode::Onoff => flood::run_on_off(guest, options, stop)?,
        Mode::Txburst => burst::run(guest, options, seed, stop)?,
        Mode::Idle => {}
    }
    guest.active = start.elapsed();
    guest.finish(stop)
}

/// True for modes in which the guest itself sends more than questions.
#[must_use]
pub const fn guest_sends(mode: Mode) -> bool {
    matches!(
        mode,
        Mode::Txflood | Mode::Bidir | Mode::Txburst | Mode::Onoff
    )
}

/// True for modes in which the host sends of its own accord.
#[must_use]
pub const fn host_sends(mode: Mode) -> bool {
    matches!(mode, Mode::Rxflood | Mode::Bidir | Mode::Rxburst)
}

/// Waits until `then` with open eyes, because a sleep would overshoot; but
/// sleeps through the first part of a long wait. Ends early when stopped.
pub(crate) fn spin_until(then: Instant, stop: &Stop) {
    const EYES_OPEN: Duration = Duration::from_millis(2);
    loop {
        let left = then.saturating_duration_since(Instant::now());
        if left.is_zero() || stop.is_set() {
            return;
        }
        if left > EYES_OPEN * 2 {
            std::thread::sleep((left - EYES_OPEN).min(Duration::from_millis(50)));
        } else {
            std::hint::spin_loop();
        }
    }
}
